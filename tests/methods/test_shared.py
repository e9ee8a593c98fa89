"""What the methods share: entries in the ledger that say what the statement says, class weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simplexdp import data, methods
from simplexdp.ledger import Ledger
from simplexdp.settings import Settings

SHORT: dict[str, dict[str, Any]] = {
    "certified": {"method": "certified", "steps": 2, "options": {"features": "columns"}},
    "fixed": {"method": "gaussian-features", "options": {"features": "columns"}},
    "trained": {
        "method": "gaussian-features",
        "model": "logistic",
        "batch_size": 20,
        "steps": 1,
        "options": {"form": "trained"},
    },
    "dpsgd": {"method": "dpsgd", "model": "logistic", "batch_size": 20, "steps": 1},
}
WORDS = {"seed": "random seed", "computed": "Preprocessing"}


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("computed", [(), ("the image size",)])
def test_an_entry_is_marked_where_the_statement_calls_an_assumption_broken(
    name: str, seed: int | None, computed: tuple[str, ...], tmp_path: Path
) -> None:
    book = Ledger(tmp_path / "ledger.jsonl")
    dataset = replace(data.load("digits"), computed_from_data=computed)
    settings = Settings(seed=seed, epsilon=8.0, **SHORT[name])
    outcome, _ = methods.run(settings, tmp_path / "run", dataset=dataset, ledger=book)
    (entry,) = book.entries()
    told = outcome.statement.broken()
    assert set(entry.broken) == {
        mark for mark, words in WORDS.items() if any(words in text for text in told)
    }
    assert ("seed" in entry.broken) is (seed is not None)
    assert ("computed" in entry.broken) is bool(computed)


def thinned(blobs: data.Dataset) -> data.Dataset:
    """100 records of the first class, 5 of the second, none of the third."""
    labels = blobs.train.labels
    rows = np.concatenate([np.flatnonzero(labels == 0), np.flatnonzero(labels == 1)[:5]])
    return replace(blobs, train=data.Split(blobs.train.inputs[rows], labels[rows]))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("method", "lr", "steps"), [("dirichlet", 0.3, 400), ("plain", 0.01, 80)])
def test_class_weights_find_a_rare_class(
    method: str, lr: float, steps: int, seed: int, blobs: data.Dataset
) -> None:
    """In so many steps as leave the rare class unlearned without them; the figure is the same."""
    dataset = thinned(blobs)
    settings = Settings(
        data="blobs", method=method, model="logistic", epsilon=8.0, batch_size=5, steps=steps,
        seed=seed, lr=lr,
    )  # fmt: skip
    train = methods.train
    without = train(settings, dataset)
    weighted = train(replace(settings, options={"class_weights": "balanced"}), dataset)

    def recall(outcome: methods.Outcome) -> float:
        rare = torch.from_numpy(blobs.test.inputs[blobs.test.labels == 1])
        return float((outcome.model(rare).argmax(1) == 1).double().mean())

    assert recall(without) < 0.5
    assert recall(weighted) > 0.8
    assert weighted.statement.epsilon == without.statement.epsilon
    if method == "dirichlet":
        assert any("weighted by class" in note for note in weighted.statement.notes)
        assert not any("weighted" in note for note in without.statement.notes)


@pytest.mark.parametrize("method", ["dirichlet", "plain"])
def test_other_class_weights_are_refused(method: str, blobs: data.Dataset) -> None:
    settings = Settings(data="blobs", method=method, options={"class_weights": "3"})
    with pytest.raises(ValueError, match="class_weights is '3'; leave it out or use balanced"):
        methods.train(settings, blobs)


@pytest.mark.parametrize("method", ["dpsgd", "certified", "gaussian-features"])
def test_methods_without_class_weights_refuse_them(method: str, blobs: data.Dataset) -> None:
    settings = Settings(data="blobs", method=method, options={"class_weights": "balanced"})
    with pytest.raises(ValueError, match="does not know the option 'class_weights'"):
        methods.train(settings, blobs)
