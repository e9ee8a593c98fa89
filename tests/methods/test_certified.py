"""The certified method: a run, its refusals, and what one record can decide."""

from __future__ import annotations

import errno
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from simplexdp import data, features, load_model, methods, noise
from simplexdp.ledger import Ledger
from simplexdp.methods import certified
from simplexdp.settings import Settings


def test_a_run_on_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMPLEXDP_CACHE", str(tmp_path / "cache"))
    settings = Settings(data="digits", method="certified", epsilon=4.0, seed=3)
    outcome, folder = methods.run(settings, tmp_path / "run")
    assert outcome.accuracy > 0.8
    assert outcome.statement.covers_weights
    assert outcome.statement.epsilon == pytest.approx(4.0, rel=1e-9)
    assert noise.SAMPLER in str(outcome.statement.mechanism)
    assert {p.name for p in folder.path.iterdir()} >= {
        "model.safetensors",
        "run.json",
        "metrics.jsonl",
        "statement.json",
        "statement.md",
    }
    test = data.load("digits").test
    right = (load_model(folder.path).predict(test.inputs) == test.labels).mean()
    assert right == pytest.approx(outcome.accuracy, abs=1e-9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"options": {"momentum": 0.9}}, "does not know the option"),
        ({"model": "cnn"}, "leave out --model"),
        ({"augment": ("flip",)}, "no use for --augment"),
        ({"batch_size": 64}, "no use for --batch-size"),
        ({"options": {"clip": 0.0}}, "clip"),
        ({"options": {"clip": "half"}}, "give a number"),
        ({"options": {"mean_share": True}}, "give a number"),
        ({"options": {"features": "wavelets"}}, "unknown features"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, object], words: str) -> None:
    settings = Settings(data="digits", method="certified", **change)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=words):
        methods.train(settings, data.load("digits"))


def test_a_disk_without_room_for_the_rows_spends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    book = Ledger(tmp_path / "ledger")
    settings = Settings(data="digits", method="certified", options={"features": "columns"})
    monkeypatch.setattr(features, "room", full)
    with pytest.raises(OSError, match="No space"):
        methods.run(settings, tmp_path / "run", ledger=book)
    assert book.entries() == []
    assert not (tmp_path / "run").exists()


def with_record(dataset: data.Dataset, value: float) -> data.Dataset:
    """The data set in double precision, with one training input of this value throughout."""
    inputs = dataset.train.inputs.astype(np.float64)
    inputs[5] = value
    return replace(dataset, train=replace(dataset.train, inputs=inputs))


def test_one_record_does_not_decide_whether_anything_is_released() -> None:
    """Features of 1e300 overflow: the run is that with an input of zeros, its null record."""
    digits = data.load("digits")
    settings = Settings(
        data="digits",
        method="certified",
        seed=3,
        steps=5,
        options={"features": "columns", "mean_share": 0.0, "moment_share": 0.0},
    )
    large, null = (
        methods.train(settings, with_record(digits, value)).model for value in (1e300, 0.0)
    )
    for name, value in null.state_dict().items():
        assert torch.equal(large.state_dict()[name], value), name


@pytest.mark.parametrize("method", ["certified", "gaussian-features"])
@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_inputs_that_are_not_finite_are_refused_and_the_refusal_is_named(
    method: str, split: str, value: float, tmp_path: Path
) -> None:
    digits = data.load("digits")
    broken = replace(digits, **{split: with_record(digits, value).train})
    book = Ledger(tmp_path / "ledger.jsonl")
    settings = Settings(method=method, seed=3, options={"features": "columns"})
    with pytest.raises(ValueError, match=f"the {split}.* inputs hold NaN or infinity"):
        methods.run(settings, tmp_path / "run", dataset=broken, ledger=book)
    assert book.entries() == []
    outcome = methods.train(settings, digits)
    assert any("refusal tells" in text for text in outcome.statement.does_not_cover)


def bytes_over_eight(batch: np.ndarray) -> np.ndarray:
    return batch.reshape(len(batch), -1) / 8


def test_a_model_on_user_features_of_pixels_scores_as_it_is_released() -> None:
    digits = data.load("digits")
    train, test = (
        replace(split, inputs=((split.inputs + 1) * 127.5).astype(np.uint8))
        for split in (digits.train, digits.test)
    )
    pixels = replace(digits, train=train, test=test)
    name = f"{__name__}:{bytes_over_eight.__name__}"
    settings = Settings(method="certified", epsilon=50.0, seed=0, options={"features": name})
    outcome = methods.train(settings, pixels)
    with torch.no_grad():
        logits = outcome.model(data.to_model_input(torch.from_numpy(test.inputs)))
    right = float((logits.argmax(1).numpy() == test.labels).mean())
    assert right == pytest.approx(outcome.accuracy, abs=1e-9)
    assert outcome.statement.assumptions[0].holds is None


def test_an_interrupted_run_that_was_counted_leaves_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its budget is in the ledger, so the folder that the ledger names must not vanish."""

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(certified.linear, "fit", interrupted)
    book = Ledger(tmp_path / "ledger.jsonl")
    settings = Settings(data="digits", method="certified", epsilon=1.0, seed=0)
    with pytest.raises(KeyboardInterrupt):
        methods.run(settings, tmp_path / "run", ledger=book)
    assert (tmp_path / "run" / "run.json").is_file()
    assert not (tmp_path / "run" / "model.safetensors").exists()
    with pytest.raises(KeyboardInterrupt):
        methods.run(settings, tmp_path / "uncounted")
    assert not (tmp_path / "uncounted").exists()
