from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simplexdp import data


def save(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


LABELS = np.arange(30) % 3


def test_features_with_bounds_for_all_or_by_number(tmp_path: Path) -> None:
    x = np.stack([np.arange(30.0), -np.arange(30.0)], axis=1)
    path = save(tmp_path / "a.npz", X=x, y=LABELS)
    with pytest.raises(ValueError, match=r"feature 0 of X in a\.npz .* has no bounds"):
        data.load(path)
    dataset = data.load(path, bounds="-29:29")
    assert dataset.computed_from_data == ()
    assert dataset.class_names == ("0", "1", "2")
    assert (len(dataset.train), len(dataset.test)) == (24, 6)
    assert np.allclose(dataset.train.inputs[:, 0], -dataset.train.inputs[:, 1])
    single = data.load(path, bounds=["0=0:29", "1=-29:0"])
    assert np.array_equal(
        np.sort(np.concatenate([single.train.inputs, single.test.inputs])[:, 0]),
        (np.arange(30) * (2 / 29) - 1).astype(np.float32),
    )


def test_public_features_are_named(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", X=np.random.default_rng(0).normal(size=(30, 2)), y=LABELS)
    both = data.load(path, public_columns="X")
    assert both.computed_from_data == (
        "the bounds of every feature of X (minimum and maximum of the training records)",
    )
    assert both.train.inputs.min(axis=0).tolist() == [-1.0, -1.0]
    one = data.load(path, bounds="0=-3:3", public_columns=["1"])
    assert one.computed_from_data[0].startswith("the bounds of features 1 of X")


def test_bytes_have_their_range_by_type(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (30, 4, 5, 3), dtype=np.uint8)
    images = data.load(save(tmp_path / "a.npz", X=x, y=LABELS))
    assert images.input_shape == (3, 4, 5)
    assert images.train.inputs.dtype == np.uint8
    rows = data.load(save(tmp_path / "b.npz", X=x[:, 0, :, 0], y=LABELS))
    assert rows.train.inputs.dtype == np.float32
    both = np.concatenate([rows.train.inputs, rows.test.inputs])
    bytes_again = np.rint((both + 1) * 127.5).astype(np.uint8)
    assert sorted(map(bytes, bytes_again)) == sorted(map(bytes, x[:, 0, :, 0]))
    assert images.computed_from_data == rows.computed_from_data == ()


def test_image_layouts(tmp_path: Path) -> None:
    x = np.arange(30 * 4 * 5 * 3, dtype=np.float64).reshape(30, 4, 5, 3)
    last = data.load(save(tmp_path / "a.npz", X=x, y=LABELS), bounds="X=0:1800")
    first = data.load(
        save(tmp_path / "b.npz", X=x.transpose(0, 3, 1, 2), y=LABELS), bounds="X=0:1800"
    )
    assert np.array_equal(last.train.inputs, first.train.inputs)
    grey = data.load(save(tmp_path / "c.npz", X=x[..., 0], y=LABELS), public_columns="X")
    assert grey.input_shape == (1, 4, 5)
    assert grey.computed_from_data == (
        "the bounds of X (minimum and maximum of the training records)",
    )
    with pytest.raises(ValueError, match="has shape"):
        data.load(save(tmp_path / "d.npz", X=np.zeros((30, 7, 7, 7)), y=LABELS), bounds="0:1")


def test_a_split_of_its_own(tmp_path: Path) -> None:
    x = np.zeros((30, 2))
    path = save(tmp_path / "a.npz", X=x, y=LABELS, X_test=x[:6], y_test=LABELS[:6])
    dataset = data.load(path, bounds="-1:1")
    assert (len(dataset.train), len(dataset.test)) == (30, 6)
    other = save(tmp_path / "b.npz", X=x[:9], y=LABELS[:9])
    assert len(data.load(path, test=other, bounds="-1:1").test) == 9
    wrong = save(tmp_path / "c.npz", X=x[:9, :1], y=LABELS[:9])
    with pytest.raises(ValueError, match="differ in shape or type"):
        data.load(path, test=wrong, bounds="-1:1")


def test_text_labels(tmp_path: Path) -> None:
    names = np.array(["b", "a", "c"] * 10)
    dataset = data.load(save(tmp_path / "a.npz", X=np.zeros((30, 2)), y=names), bounds="0:1")
    assert dataset.class_names == ("a", "b", "c")


def test_what_is_missing_or_wrong_is_said(tmp_path: Path) -> None:
    x = np.zeros((30, 2))
    with pytest.raises(ValueError, match="lacks the array y"):
        data.load(save(tmp_path / "a.npz", X=x), bounds="0:1")
    x[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"X in b\.npz has 1 values that are missing, infinite"):
        data.load(save(tmp_path / "b.npz", X=x, y=LABELS), bounds="0:1")
    with pytest.raises(ValueError, match="one whole number or text for each record"):
        data.load(save(tmp_path / "c.npz", X=np.zeros((30, 2)), y=LABELS[:-1]), bounds="0:1")
    with pytest.raises(ValueError, match="no column age"):
        data.load(save(tmp_path / "d.npz", X=np.zeros((30, 2)), y=LABELS), bounds="age=0:1")
    (tmp_path / "e.txt").write_text("")
    with pytest.raises(ValueError, match=r"e\.txt is none of"):
        data.load(tmp_path / "e.txt")


def test_given_bounds_win_over_the_range_of_the_type(tmp_path: Path) -> None:
    labels = np.arange(40) % 2
    np.savez(tmp_path / "t.npz", X=np.tile(np.array([0, 16], dtype=np.uint8), (40, 1)), y=labels)
    assert data.load(tmp_path / "t.npz", bounds="0:16").train.inputs[0].tolist() == [-1.0, 1.0]
    one = data.load(tmp_path / "t.npz", bounds="1=0:16").train.inputs[0]
    assert one.tolist() == [-1.0, 1.0]
    plain = data.load(tmp_path / "t.npz").train.inputs[0]
    assert plain[1] == pytest.approx(16 / 127.5 - 1)
    np.savez(tmp_path / "i.npz", X=np.zeros((40, 8, 8), dtype=np.uint8), y=labels)
    with pytest.raises(ValueError, match="they take no bounds"):
        data.load(tmp_path / "i.npz", bounds="0:16")


def test_inputs_without_columns_and_labels_in_another_code_are_refused(tmp_path: Path) -> None:
    labels = np.arange(40) % 2
    np.savez(tmp_path / "w.npz", X=np.zeros((40, 0)), y=labels)
    with pytest.raises(ValueError, match=r"X in w.npz has no records, or no values"):
        data.load(tmp_path / "w.npz")
    codes = np.array([b"\xe4", b"b"] * 20)
    np.savez(tmp_path / "c.npz", X=np.zeros((40, 3), dtype=np.uint8), y=codes)
    with pytest.raises(ValueError, match=r"y in c.npz is text that is not UTF-8"):
        data.load(tmp_path / "c.npz")


def test_no_test_records_are_refused_before_anything_is_spent(tmp_path: Path) -> None:
    labels = np.arange(40) % 2
    rows = np.zeros((40, 3), dtype=np.uint8)
    np.savez(tmp_path / "t.npz", X=rows, y=labels, X_test=rows[:0], y_test=labels[:0])
    with pytest.raises(ValueError, match=r"X_test in t.npz has no records"):
        data.load(tmp_path / "t.npz")
