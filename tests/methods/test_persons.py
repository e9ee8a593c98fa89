"""Persons with several records: read from files, never divided, and the unit of the claim."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simplexdp import data, methods
from simplexdp.ledger import Ledger
from simplexdp.settings import Settings

PEOPLE = 30


def arrays(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Records of persons with one to five each; some persons have records of both classes."""
    persons = np.repeat(np.arange(PEOPLE), 1 + np.arange(PEOPLE) % 5)
    labels = (persons + (rng.random(len(persons)) < 0.2)) % 2
    return rng.uniform(-1, 1, (len(persons), 4)) + 0.5 * labels[:, None], labels, persons


def npz(folder: Path) -> tuple[Path, dict[str, object]]:
    inputs, labels, persons = arrays(np.random.default_rng(0))
    np.savez(folder / "own.npz", X=inputs, y=labels, person=persons)
    return folder / "own.npz", {"bounds": "-2:2", "group": "person"}


def table(folder: Path) -> tuple[Path, dict[str, object]]:
    inputs, labels, persons = arrays(np.random.default_rng(0))
    with open(folder / "own.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", "c", "d", "person", "y"])
        writer.writerows(
            [*map(float, x), f"p{p}", y] for x, p, y in zip(inputs, persons, labels, strict=True)
        )
    return folder / "own.csv", {"bounds": "-2:2", "group": "person", "label": "y"}


def pictures(folder: Path) -> tuple[Path, dict[str, object]]:
    _, labels, persons = arrays(np.random.default_rng(0))
    for k, (label, person) in enumerate(zip(labels, persons, strict=True)):
        place = folder / "own" / f"class{label}" / f"p{person}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), 40 + k, np.uint8)).save(place / f"{k}.png")
    return folder / "own", {"image_size": "8x8x1"}


@pytest.mark.parametrize("make", [npz, table, pictures])
def test_no_person_is_divided_and_none_is_lost(make: object, tmp_path: Path) -> None:
    path, options = make(tmp_path)  # type: ignore[operator]
    found = data.load(path, **options)
    train, test = found.train.groups, found.test.groups
    assert train is not None
    assert test is not None
    assert not set(train) & set(test)
    _, _, persons = arrays(np.random.default_rng(0))
    counted = np.bincount(np.concatenate([train, test]))
    assert sorted(counted) == sorted(np.bincount(persons))
    assert found.test.persons == round(0.2 * PEOPLE)
    assert "no person divided" in found.provenance[0]
    several = sum(len(set(found.train.labels[train == person])) > 1 for person in set(train))
    assert several > 0
    assert f", {several} of them of several classes, with 5 records" in found.provenance[0]
    assert found.input_shape in {(4,), (1, 8, 8)}  # the person is no input


def test_the_claim_and_the_ledger_say_per_person(tmp_path: Path) -> None:
    path, options = npz(tmp_path)
    book = Ledger(tmp_path / "ledger.jsonl")
    settings = Settings(data=str(path), method="certified", epsilon=2.0, steps=5, seed=None)
    outcome, _ = methods.run(
        settings, tmp_path / "run", dataset=data.load(path, **options), ledger=book
    )
    said = outcome.statement
    assert "ε = 2, δ = 1e-05 per person" in said.headline()
    assert said.unit == "all training inputs of one person together; their labels stay"
    assert "zero-out: all inputs of one person are replaced" in said.to_markdown()
    assert "one input is replaced" not in said.to_markdown()
    assert "which records are of the same person" in said.public
    assert any("One alone of a person's records" in text for text in said.does_not_cover)
    assert [entry.unit for entry in book.entries()] == ["person"]
    assert any("per person" in text for text in book.spent(str(path), 1e-5).caveats)
    methods.run(settings, tmp_path / "again", dataset=data.load(path, bounds="-2:2"), ledger=book)
    assert any("1 of 2 runs are per person" in text for text in book.spent(str(path), 1e-5).caveats)


def test_the_rule_counts_persons_and_not_records(tmp_path: Path) -> None:
    path, options = npz(tmp_path)
    settings = Settings(method="certified", epsilon=2.0)
    persons = methods.prepare(settings, data.load(path, **options))
    found = data.load(path, **options).train
    assert found.persons < len(found)
    assert persons.resolved["mu"] == pytest.approx(
        methods.prepare(settings, data.load(path, bounds="-2:2")).resolved["mu"]
    )
    by_record = methods.prepare(settings, data.load(path, bounds="-2:2"))
    assert persons.resolved["lr"] < by_record.resolved["lr"]  # a horizon in proportion to n


@pytest.mark.parametrize("method", ["dirichlet", "gaussian-features", "plain"])
def test_methods_that_protect_records_refuse_persons(method: str, tmp_path: Path) -> None:
    path, options = npz(tmp_path)
    book = Ledger(tmp_path / "ledger.jsonl")
    with pytest.raises(
        ValueError, match="records and not persons; use --method certified or dpsgd"
    ):
        methods.run(
            Settings(data=str(path), method=method),
            tmp_path / "run",
            dataset=data.load(path, **options),
            ledger=book,
        )
    assert book.entries() == []


def test_bad_persons_are_refused(tmp_path: Path) -> None:
    inputs, labels, persons = arrays(np.random.default_rng(0))
    given = {"bounds": "-2:2", "group": "person"}
    path = tmp_path / "own.npz"
    np.savez(path, X=inputs, y=labels, person=np.zeros_like(persons))
    with pytest.raises(data.DataError, match="all records are of one person"):
        data.load(path, **given)
    np.savez(path, X=inputs, y=labels, person=persons[:5])
    with pytest.raises(data.DataError, match="one whole number or text for each record"):
        data.load(path, **given)
    np.savez(
        path, X=inputs, y=labels, person=persons, X_test=inputs, y_test=labels, person_test=persons
    )
    with pytest.raises(data.DataError, match="30 persons have records in both"):
        data.load(path, **given)
    with pytest.raises(data.DataError, match="known by name"):
        data.load("digits", group="person")
    csv_path, _ = table(tmp_path)
    with pytest.raises(data.DataError, match="no column 'whose'"):
        data.load(csv_path, label="y", bounds="-2:2", group="whose")


def test_vectors_of_declared_making_need_no_bounds_and_no_if(tmp_path: Path) -> None:
    inputs, labels, _ = arrays(np.random.default_rng(0))
    path = tmp_path / "own.npz"
    np.savez(path, X=inputs * 1e-6, y=labels)
    with pytest.raises(data.DataError, match="--features-from TEXT for embeddings"):
        data.load(path)
    declared = data.load(path, features_from="CLIP ViT-B/32")
    norms = np.linalg.norm(declared.train.inputs, axis=1)
    np.testing.assert_allclose(norms, 2.0, rtol=1e-5)  # the columns map divides by the root of 4
    settings = Settings(method="certified", epsilon=5.0, steps=5)
    said = methods.prepare(settings, declared).statement()
    assert said.proviso == ""
    assert any("CLIP ViT-B/32" in text for text in said.does_not_cover)
    assert said.mechanism["encoder"] == "as declared: CLIP ViT-B/32"
    unsaid = methods.prepare(settings, data.load(path, bounds="-1:1")).statement()
    assert "if the vectors were computed from each record by itself" in unsaid.headline()
    np.testing.assert_allclose(
        data.read_inputs(path, features_from="CLIP ViT-B/32")[:1].shape, (1, 4)
    )
