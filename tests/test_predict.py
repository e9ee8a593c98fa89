"""A model takes new records as they come, by what is kept with it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from simplexdp import cli, data, load_model, methods, seal
from simplexdp.settings import Settings

COLUMNS = {"features": "columns"}


def trained(path: Path, out: Path, method: str = "certified", **options: Any) -> data.Dataset:
    """Train on one's own data and return them, tested on themselves in the file's order."""
    given = {"steps": 5, "batch_size": 8} if method == "dirichlet" else {"options": COLUMNS}
    settings = Settings(data=str(path), method=method, data_options=options, epsilon=200.0, **given)
    methods.run(settings, out)
    return data.load(path, **{**options, "test": path})


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures and a table, a model of each, and a dirichlet one of the pictures."""
    base = tmp_path_factory.mktemp("predict")
    rng = np.random.default_rng(1)
    for k in range(80):
        folder = base / "pets" / ("cat", "dog")[k % 2]
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 80, (4, 4), dtype=np.uint8) + np.uint8(120 * (k % 2))
        Image.fromarray(pixels).save(folder / f"{k:02}.png")
    trained(base / "pets", base / "image-run", image_size="4x4x1")
    trained(base / "pets", base / "paper-run", "dirichlet", image_size="4x4x1")
    rows = ["age,sex,y"]
    rows += [f"{'' if k % 9 == 0 else k},{'fm'[k % 2]},{['no', 'yes'][k % 2]}" for k in range(80)]
    (base / "t.csv").write_text("\n".join(rows))
    options = {"label": "y", "bounds": "age=0:80", "categories": "sex=f|m"}
    trained(base / "t.csv", base / "table-run", **options, missing="age=indicator")
    return base


def run(*arguments: str | Path) -> None:
    cli.commands()([str(argument) for argument in arguments], standalone_mode=False)


def test_pictures_from_a_released_folder_alone(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seal.release(base / "image-run", tmp_path / "given")
    model = load_model(tmp_path / "given")
    dataset = data.load(base / "pets", image_size="4x4x1", test=base / "pets")
    expected = model.predict(dataset.test.inputs)
    assert (expected == dataset.test.labels).mean() > 0.9
    names = sorted(p.relative_to(base / "pets").as_posix() for p in base.rglob("pets/*/*.png"))
    paths = [base / "pets" / name for name in names]
    for given in (base / "pets", paths, [Image.open(p) for p in paths]):
        assert np.array_equal(model.predict(given), expected)
    capsys.readouterr()
    run("predict", tmp_path / "given", base / "pets", "--out", tmp_path / "p.csv", "--json")
    said = json.loads(capsys.readouterr().out)
    assert said["records"] == sum(said["classes"].values()) == 80
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert [row["record"] for row in rows] == names
    assert [row["class"] for row in rows] == [("cat", "dog")[k] for k in expected]
    shares = model.predict_proba(dataset.test.inputs)
    assert np.allclose([float(row["probability of dog"]) for row in rows], shares[:, 1], atol=1e-6)
    with pytest.raises(ValueError, match=r"exists; name another file with --out"):
        run("predict", tmp_path / "given", base / "pets", "--out", tmp_path / "p.csv")


def test_what_is_no_probability_is_not_written_as_one(base: Path, tmp_path: Path) -> None:
    run("predict", base / "paper-run", base / "pets/cat", "--out", tmp_path / "p.csv")
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert len(rows) == 40
    assert set(rows[0]) == {"record", "class"}


def test_a_table_with_gaps_and_without_its_label(base: Path) -> None:
    model = load_model(base / "table-run")
    options = {"label": "y", "bounds": "age=0:80", "categories": "sex=f|m"}
    dataset = data.load(base / "t.csv", **options, missing="age=indicator", test=base / "t.csv")
    expected = model.predict(dataset.test.inputs)
    assert np.array_equal(model.predict(base / "t.csv"), expected)
    new = pa.table({"sex": ["f", "m"], "age": pa.array([None, 7])})
    assert np.array_equal(model.predict(new), [expected[0], expected[7]])
    assert model.table(new)["record"] == ["1", "2"]


def test_raw_numbers_are_not_taken_for_scaled_ones(base: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    values = rng.normal(size=(90, 2)) + 5.0 * labels[:, None]
    np.savez(tmp_path / "t.npz", X=values, y=labels)
    dataset = trained(tmp_path / "t.npz", tmp_path / "run", bounds="-3:13")
    model = load_model(tmp_path / "run")
    expected = model.predict(dataset.test.inputs)
    assert np.array_equal(model.predict(model.inputs(values)), expected)
    assert np.array_equal(model.predict(tmp_path / "t.npz"), expected)
    with pytest.raises(ValueError, match=r"outside \[-1, 1\], so they are raw"):
        model.predict(values)
    with pytest.raises(ValueError, match="was trained on arrays"):
        model.predict(base / "t.csv")


def test_another_preprocessing_is_refused(base: Path, tmp_path: Path) -> None:
    import shutil

    folder = Path(shutil.copytree(base / "image-run", tmp_path / "run"))
    path = folder / "preprocessing.json"
    path.write_text(path.read_text().replace("4,", "5,"))
    with pytest.raises(ValueError, match=r"preprocessing\.json is not the file that manifest"):
        load_model(folder)
    seal.seal_again(folder)
    with pytest.raises(ValueError, match=r"preprocessing\.json .* shape"):
        load_model(folder)


def test_a_model_without_preprocessing_takes_arrays_alone(
    blobs: data.Dataset, tmp_path: Path
) -> None:
    settings = Settings(method="certified", options=COLUMNS)
    methods.run(settings, tmp_path / "run", dataset=blobs)
    model = load_model(tmp_path / "run")
    assert len(model.predict(blobs.test.inputs)) == 150
    with pytest.raises(ValueError, match="has no preprocessing of its own"):
        model.predict(tmp_path / "x.csv")
