"""What a run leaves is a model that predicts what the run measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simplexdp import data, load_model, methods
from simplexdp.settings import Settings

SHORT: dict[str, Any] = {"steps": 20, "batch_size": 20, "seed": 0}
FIXED: dict[str, Any] = {"seed": 0}


@pytest.fixture
def images() -> data.Dataset:
    rng = np.random.default_rng(1)

    def split(records: int) -> data.Split:
        labels = np.arange(records) % 3
        pixels = rng.integers(0, 120, size=(records, 1, 8, 8), dtype=np.uint8)
        pixels[np.arange(records), 0, labels] = 255  # a bright row tells the class
        return data.Split(pixels, labels.astype(np.int64))

    return data.Dataset("images", split(200), split(90), None, ("a", "b", "c"))


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("dirichlet", {**SHORT, "model": "cnn"}),
        ("dirichlet", {**SHORT, "model": "inception", "norm": "batch"}),
        ("plain", SHORT),
        ("dpsgd", SHORT),
        (
            "dpsgd",
            {**SHORT, "norm": "batch", "model": "cnn", "options": {"replace_batch_norm": True}},
        ),
        ("dpsgd", {**SHORT, "options": {"weight_average": 0.9}}),
        ("certified", {**FIXED, "options": {"features": "columns"}}),
        ("gaussian-features", {**FIXED, "options": {"dimensions": 5}}),
        ("gaussian-features", {**SHORT, "options": {"form": "trained"}}),
    ],
)
def test_the_model_that_is_read_back_is_the_one_that_was_measured(
    images: data.Dataset, tmp_path: Path, method: str, given: dict[str, Any]
) -> None:
    settings = Settings(method=method, **given)
    outcome, folder = methods.run(settings, tmp_path / "run", dataset=images)
    found = load_model(folder.path)
    assert found.class_names == ("a", "b", "c")
    assert found.statement.to_json() == outcome.statement.to_json()
    predicted = found.predict(images.test.inputs)
    assert float((predicted == images.test.labels).mean()) == pytest.approx(outcome.accuracy)
    shares = found.predict_proba(images.test.inputs)
    assert shares.shape == (90, 3)
    assert np.allclose(shares.sum(axis=1), 1.0, atol=1e-5)
    assert np.array_equal(shares.argmax(axis=1), predicted)


def test_what_does_not_fit_is_refused(images: data.Dataset, tmp_path: Path) -> None:
    _, folder = methods.run(Settings(**SHORT), tmp_path / "run", dataset=images)
    found = load_model(folder.path)
    assert len(found.predict(images.test.inputs[:0])) == 0
    with pytest.raises(ValueError, match=r"takes records of shape \(1, 8, 8\)"):
        found.predict(np.zeros((4, 64), dtype=np.uint8))
    with pytest.raises(ValueError, match="do not fit the model"):
        load_model(folder.path, torch.nn.Linear(3, 3))
    with pytest.raises(ValueError, match="not a run folder"):
        load_model(tmp_path)
    (folder.path / "statement.json").unlink()
    with pytest.raises(ValueError, match="is not finished"):
        load_model(folder.path)


def test_a_folder_cannot_have_code_imported(images: data.Dataset, tmp_path: Path) -> None:
    outcome, folder = methods.run(Settings(**SHORT), tmp_path / "run", dataset=images)
    path = folder.path / "run.json"
    record = json.loads(path.read_text())
    record["outcome"]["model"] = "this:that"
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match="build it and pass it"):
        load_model(folder.path)
    found = load_model(folder.path, outcome.model)
    assert len(found.predict(images.test.inputs)) == 90
