"""What a run leaves is a model that predicts what the run measured."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simplexdp import data, load_model, methods, seal
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


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    methods.run(Settings(**SHORT), path)
    return path


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
    with pytest.raises(ValueError, match="does not fit the model"):
        load_model(folder.path, torch.nn.Linear(3, 3))
    with pytest.raises(ValueError, match=r"has no model.json"):
        load_model(tmp_path)
    weights = folder.path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-9])
    with pytest.raises(ValueError, match=r"model\.safetensors is not the file that manifest"):
        load_model(folder.path)
    seal.seal_again(folder.path)
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        load_model(folder.path)
    weights.write_bytes(whole)
    (folder.path / "statement.json").unlink()
    with pytest.raises(ValueError, match=r"has no statement.json, so it holds no finished"):
        load_model(folder.path)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [-1]},
        {"shape": [10**30]},
        {"shape": "8"},
        {"pixels": 1},
        {"class_names": [1, 2]},
        {"class_names": None},
        {"options": 3},
        {"model": ["cnn"]},
        {"method": None},
        {"norm": "unheard of"},
    ],
)
def test_a_description_that_no_model_has_is_refused(
    trained: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    folder = shutil.copytree(trained, tmp_path / "run")
    record = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**record, **change}))
    digest = hashlib.sha256((folder / "model.json").read_bytes()).hexdigest()
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["model.json"] = digest
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=r"model\.json is not as it was written"):
        load_model(folder)


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
    seal.seal_again(folder.path)
    with pytest.raises(ValueError, match=r"^the model needs code, this:that; if you trust it"):
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


def test_what_is_handed_out_predicts_and_tells_no_accuracy(
    images: data.Dataset, tmp_path: Path
) -> None:
    settings = Settings(method="certified")
    outcome, folder = methods.run(settings, tmp_path / "run", dataset=images)
    given = tmp_path / "given"
    seal.release(folder.path, given)
    found = load_model(given).predict(images.test.inputs)
    assert float((found == images.test.labels).mean()) == pytest.approx(outcome.accuracy)
    for path in given.iterdir():
        text = path.read_text("latin-1")
        assert str(tmp_path) not in text
        assert path.suffix != ".json" or "accuracy" not in json.loads(text)
        assert f"{100 * outcome.accuracy:.2f} %" not in text
        assert '"accuracy"' not in text
