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
        ("dirichlet", {**SHORT, "model": "cnn", "norm": "batch"}),
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
    with pytest.raises(ValueError, match=r"takes bytes \(uint8, 0 to 255\), and these are float64"):
        found.predict(np.zeros((4, 1, 8, 8)))
    with pytest.raises(ValueError, match=r"and these have \(\)"):
        found.predict([1, 2])
    with pytest.raises(ValueError, match="do not fit the model"):
        load_model(folder.path, torch.nn.Linear(3, 3))
    with pytest.raises(ValueError, match=r"has no model.json"):
        load_model(tmp_path)
    weights = folder.path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    with pytest.raises(ValueError, match="are damaged"):
        load_model(folder.path)
    for name, content in (("model.json", "{}"), ("statement.json", '{"assumptions": [{"zz": 1}]}')):
        kept = (folder.path / name).read_text()
        (folder.path / name).write_text(content)
        with pytest.raises(
            ValueError, match=r"model.json or statement.json .* damaged or was edit"
        ):
            load_model(folder.path)
        (folder.path / name).write_text(kept)
    (folder.path / "statement.json").unlink()
    with pytest.raises(ValueError, match=r"has no statement.json, so it holds no finished"):
        load_model(folder.path)


@pytest.mark.parametrize("method", ["dirichlet", "certified", "gaussian-features"])
def test_a_folder_cannot_have_code_imported(
    images: data.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    given = SHORT if method == "dirichlet" else FIXED
    settings = Settings(method=method, **given)
    outcome, folder = methods.run(settings, tmp_path / "run", dataset=images)
    (tmp_path / "this.py").write_text("raise SystemExit('this was imported')")
    monkeypatch.syspath_prepend(tmp_path)
    path = folder.path / "model.json"
    record = json.loads(path.read_text())
    if method == "dirichlet":
        record["model"] = "this:that"
    else:
        record["options"]["features"] = "this:that"
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match="build it and pass it"):
        load_model(folder.path)
    found = load_model(folder.path, outcome.model)
    assert len(found.predict(images.test.inputs)) == 90


def test_numbers_may_be_a_list_or_a_tensor_but_not_bytes_or_nan(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    labels = np.arange(80) % 2
    inputs = (rng.normal(0, 0.1, size=(80, 3)) + labels[:, None]).astype(np.float32)
    split = data.Split(inputs, labels.astype(np.int64))
    numbers = data.Dataset("numbers", split, split, None, ("a", "b"))
    _, folder = methods.run(
        Settings(**{**SHORT, "batch_size": 4}), tmp_path / "run", dataset=numbers
    )
    found = load_model(folder.path)
    expected = found.predict(inputs)
    assert np.array_equal(found.predict(inputs.tolist()), expected)
    assert np.array_equal(found.predict(torch.from_numpy(inputs)), expected)
    with pytest.raises(ValueError, match="takes scaled numbers"):
        found.predict(inputs.astype(np.uint8))
    with pytest.raises(ValueError, match="NaN or infinity"):
        found.predict(np.full((1, 3), np.nan))


def test_three_files_are_enough_and_tell_no_accuracy(images: data.Dataset, tmp_path: Path) -> None:
    settings = Settings(method="certified", **FIXED)
    outcome, folder = methods.run(settings, tmp_path / "run", dataset=images)
    given = tmp_path / "given"
    given.mkdir()
    for name in ("model.json", "model.safetensors", "statement.json"):
        (given / name).write_bytes((folder.path / name).read_bytes())
    found = load_model(given).predict(images.test.inputs)
    assert float((found == images.test.labels).mean()) == pytest.approx(outcome.accuracy)
    for name in ("model.json", "statement.json"):
        text = (given / name).read_text()
        assert str(tmp_path) not in text
        assert "accuracy" not in json.loads(text)
        assert str(outcome.accuracy) not in text
