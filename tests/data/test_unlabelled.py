"""New records without labels are read as the training inputs were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from PIL import Image

from simplexdp import data

LABELS = np.arange(30) % 3


def test_images_one_or_many(tmp_path: Path) -> None:
    for k, label in enumerate(LABELS):
        folder = tmp_path / "by-class" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), k, dtype=np.uint8)).save(folder / f"{k:02}.png")
    loaded = data.load(tmp_path / "by-class", image_size="4x4x1")
    every = np.concatenate([loaded.train.inputs, loaded.test.inputs])
    folder = tmp_path / "by-class" / "2"
    found = data.read_inputs(folder, image_size="4x4x1")
    assert found.dtype == every.dtype
    assert found[:, 0, 0, 0].tolist() == [k for k in range(30) if k % 3 == 2]
    one = data.read_inputs(folder / "05.png", image_size="4x4x1")
    assert one.shape == (1, 1, 4, 4)
    assert one.max() == 5
    with pytest.raises(ValueError, match="give the image size"):
        data.read_inputs(folder)
    for path in (folder, folder / "05.png"):
        with pytest.raises(ValueError, match="which has no use for a label, bounds"):
            data.read_inputs(path, image_size="4x4x1", bounds="0:9")
    assert len(data.read_inputs(tmp_path / "by-class", image_size=4)) == 30
    (tmp_path / "none").mkdir()
    with pytest.raises(ValueError, match="holds no images"):
        data.read_inputs(tmp_path / "none", image_size=4)


@pytest.mark.parametrize("bounds", ["0:60", "0=0:60,1=5:6"])
def test_arrays(tmp_path: Path, bounds: str) -> None:
    values = np.arange(60.0).reshape(30, 2)
    np.savez(tmp_path / "t.npz", X=values, y=LABELS)
    np.savez(tmp_path / "new.npz", X=values[:7])
    expected = data.load(tmp_path / "t.npz", test=tmp_path / "t.npz", bounds=bounds)
    found = data.read_inputs(tmp_path / "new.npz", bounds=bounds)
    assert np.array_equal(found, expected.test.inputs[:7])
    with pytest.raises(ValueError, match="no use for an image size"):
        data.read_inputs(tmp_path / "new.npz", bounds=bounds, image_size=4)


def test_a_table_in_another_order_without_the_label_and_what_was_dropped(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {
        "patient": [f"p{k}" for k in range(30)],
        "sex": [("f", "m")[k % 2] for k in range(30)],
        "age": list(range(30)),
        "y": LABELS.tolist(),
    }
    pyarrow.csv.write_csv(pa.table(columns), tmp_path / "t.csv")
    rules: dict[str, Any] = {
        "label": "y",
        "bounds": "age=0:120",
        "categories": "sex=f|m",
        "drop": "patient",
    }
    expected = data.load(tmp_path / "t.csv", test=tmp_path / "t.csv", **rules).test.inputs
    assert np.array_equal(data.read_inputs(tmp_path / "t.csv", **rules), expected)
    new = {name: columns[name] for name in ("age", "sex")}
    pyarrow.csv.write_csv(pa.table(new), tmp_path / "new.csv")
    assert np.array_equal(data.read_inputs(tmp_path / "new.csv", **rules), expected)
    pyarrow.csv.write_csv(pa.table({"age": columns["age"]}), tmp_path / "less.csv")
    with pytest.raises(ValueError, match="no column sex"):
        data.read_inputs(tmp_path / "less.csv", **rules)


def test_what_was_computed_from_training_records_needs_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "new.npz", X=np.zeros((3, 2)))
    with pytest.raises(ValueError, match="computed from the training records"):
        data.read_inputs(tmp_path / "new.npz", public_columns="X")
    with pytest.raises(ValueError, match="no file or folder"):
        data.read_inputs(tmp_path / "none.npz")
    (tmp_path / "t.txt").write_text("x")
    with pytest.raises(ValueError, match="is none of"):
        data.read_inputs(tmp_path / "t.txt")
