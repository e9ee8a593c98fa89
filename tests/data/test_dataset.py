from __future__ import annotations

import numpy as np
import pytest
import torch

from simplexdp import data


def test_bytes_are_scaled_by_their_format_and_floats_pass() -> None:
    batch = torch.tensor([0, 51, 255], dtype=torch.uint8)
    scaled = data.to_model_input(batch)
    assert scaled.dtype == torch.float32
    torch.testing.assert_close(scaled, torch.tensor([-1.0, -0.6, 1.0]))
    floats = torch.tensor([0.25, 7.0])
    assert torch.equal(data.to_model_input(floats), floats)
    assert data.to_model_input(floats.double()).dtype == torch.float32


def test_a_split_needs_as_many_labels_as_inputs() -> None:
    with pytest.raises(ValueError, match="3 inputs but 2 labels"):
        data.Split(np.zeros((3, 1)), np.zeros(2, dtype=np.int64))


def test_no_record_is_shown_in_a_repr() -> None:
    split = data.Split(np.full((2, 3), 0.123), np.zeros(2, dtype=np.int64))
    assert repr(split) == "Split(2 records of shape (3,), float64)"
    assert "0.123" not in repr(data.Dataset("own", split, split, None, ("a", "b")))


def test_digits_have_the_published_records_and_a_fixed_split() -> None:
    digits = data.load("digits")
    assert (len(digits.train), len(digits.test), digits.validation) == (1437, 360, None)
    assert digits.input_shape == (1, 8, 8)
    assert digits.classes == 10
    assert digits.train.inputs.dtype == np.float32
    both = np.concatenate([digits.train.inputs, digits.test.inputs])
    # sklearn documents pixels 0..16 and these class sizes (UCI's test half).
    assert (both.min(), both.max()) == (-1.0, 1.0)
    assert set(np.unique((both + 1) * 8)) == set(range(17))
    counts = np.bincount(np.concatenate([digits.train.labels, digits.test.labels]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert digits.computed_from_data == ()
    again = data.load("digits")
    assert np.array_equal(digits.test.labels, again.test.labels)


def test_digits_splits_share_no_record() -> None:
    from sklearn.datasets import load_digits

    digits = data.load("digits")
    counts = [((s.inputs + 1) * 8).astype(np.uint8) for s in (digits.train, digits.test)]
    rows = sorted(row.tobytes() for split in counts for row in split)
    assert rows == sorted(r.tobytes() for r in load_digits().images.astype(np.uint8))


def test_names_and_unknown_names() -> None:
    assert data.names() == ("digits", "mnist", "fashion-mnist", "cifar10", "svhn", "dermamnist")
    with pytest.raises(ValueError, match="neither a file or folder nor a known data set"):
        data.load("emnist")
    with pytest.raises(ValueError, match="unknown data set 'emnist'; known: digits"):
        data.fetch("emnist")
    with pytest.raises(ValueError, match="takes no option of one's own data"):
        data.load("digits", label="target")
