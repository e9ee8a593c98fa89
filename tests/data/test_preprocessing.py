"""New records become inputs as the training records did, from what is kept with the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from PIL import Image

from simplexdp import data
from simplexdp.data import preprocessing
from simplexdp.data.preprocessing import Preprocessing

LABELS = np.arange(30) % 3


def kept(dataset: data.Dataset) -> Preprocessing:
    """What a model folder would give back."""
    assert dataset.preprocessing is not None
    return preprocessing.from_json(json.loads(json.dumps(dataset.preprocessing.to_json())))


def whole(path: Path, **options: Any) -> data.Dataset:
    """The data set tested on itself, so that its order is the file's."""
    return data.load(path, test=path, **options)


def test_images_as_files_folder_pictures_and_arrays(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for k, label in enumerate(LABELS):
        folder = tmp_path / "own" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 256, (5, 4, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{k:02}.png")
    dataset = whole(tmp_path / "own", image_size="5x4")
    reader, expected = kept(dataset), dataset.test.inputs
    names, found = reader.named(tmp_path / "own")
    assert np.array_equal(found, expected)
    assert names[0] == "0/00.png"
    paths = [tmp_path / "own" / name for name in names]
    assert np.array_equal(reader.inputs(paths), expected)
    assert np.array_equal(reader.inputs(str(paths[3])), expected[3:4])
    assert np.array_equal(reader.inputs([Image.open(path) for path in paths]), expected)
    assert np.array_equal(reader.inputs(Image.open(paths[0])), expected[:1])
    assert np.array_equal(reader.inputs(expected.transpose(0, 2, 3, 1)), expected)
    np.savez(tmp_path / "new.npz", X=expected)
    assert np.array_equal(reader.inputs(tmp_path / "new.npz"), expected)


def test_a_window_is_kept(tmp_path: Path) -> None:
    for k, label in enumerate(LABELS):
        folder = tmp_path / "own" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.full((4, 4), 100 * k, dtype=np.uint16)
        Image.fromarray(pixels).save(folder / f"{k:02}.png")
    dataset = whole(tmp_path / "own", image_size="4x4x1", window="0:3000")
    assert np.array_equal(kept(dataset).inputs(tmp_path / "own"), dataset.test.inputs)


@pytest.mark.parametrize("bounds", ["-29:29", "0=0:60,1=5:6"])
def test_arrays_are_raw(tmp_path: Path, bounds: str) -> None:
    values = np.arange(60.0).reshape(30, 2)
    np.savez(tmp_path / "t.npz", X=values, y=LABELS)
    dataset = whole(tmp_path / "t.npz", bounds=bounds)
    for given in (values, values.tolist(), tmp_path / "t.npz"):
        assert np.array_equal(kept(dataset).inputs(given), dataset.test.inputs)


def test_digits_are_raw_counts() -> None:
    from sklearn.datasets import load_digits

    digits = data.load("digits")
    found = kept(digits).inputs(np.asarray(load_digits().images))
    every = np.concatenate([digits.train.inputs, digits.test.inputs])
    assert sorted(map(bytes, found)) == sorted(map(bytes, every))


class Frame:
    """What data frames of any library have in common."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns, self.columns = columns, list(columns)

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))


def test_tables_as_file_and_data_frame(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {
        "sex": [None if k == 4 else ("f", "m")[k % 2] for k in range(30)],
        "age": [None if k == 3 else k for k in range(30)],
        "flag": [k % 3 == 0 for k in range(30)],
        "y": LABELS.tolist(),
    }
    table = pa.table(columns)
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    dataset = whole(
        tmp_path / "t.parquet",
        label="y",
        bounds="age=0:120",
        categories="sex=f|m",
        missing=["age=40", "sex=indicator"],
    )
    reader, expected = kept(dataset), dataset.test.inputs
    del columns["y"]
    for given in (tmp_path / "t.parquet", table, pa.table(columns), Frame(columns)):
        names, found = reader.named(given)
        assert np.array_equal(found, expected)
        assert names[:2] == ["1", "2"]
    with pytest.raises(ValueError, match="the table lacks the column age"):
        reader.inputs(pa.table({"sex": ["f"], "flag": [True]}))


def test_records_of_another_kind_are_refused(tmp_path: Path) -> None:
    images, numbers = Preprocessing((1, 4, 4)), Preprocessing((2,), bounds=((0.0, 1.0),))
    wrong: list[tuple[Preprocessing, Any, str]] = [
        (images, np.zeros((3, 1, 4, 4)), "give images as bytes"),
        (images, np.zeros((3, 5, 4), dtype=np.uint8), r"shape \(1, 5, 4\); the model takes"),
        (images, tmp_path / "none.png", "no file or folder"),
        (images, tmp_path, "holds no images that can be read"),
        (images, Frame({"a": [1]}), "was trained on images"),
        (numbers, np.zeros((3, 4)), r"shape \(4,\); the model takes \(2,\)"),
        (numbers, np.full((3, 2), np.nan), "missing, infinite"),
        (numbers, Image.new("L", (4, 4)), "was trained on arrays"),
        (numbers, tmp_path, "was trained on arrays"),
        (numbers, ["a.png"], "several files do not fit"),
    ]
    for reader, records, message in wrong:
        with pytest.raises(ValueError, match=message):
            reader.inputs(records)
