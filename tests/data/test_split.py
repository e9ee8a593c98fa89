from __future__ import annotations

import numpy as np
import pytest

from simplexdp.data.dataset import DataError
from simplexdp.data.split import held_out_by_class, stratified_split


def test_split_is_a_partition_with_proportional_classes() -> None:
    labels = np.repeat([0, 1, 2], [100, 50, 25]).astype(np.int64)
    train, test = stratified_split(labels, 35)
    assert sorted([*train, *test]) == list(range(175))
    assert np.bincount(labels[test]).tolist() == [20, 10, 5]


def test_split_depends_on_the_seed_and_on_nothing_else() -> None:
    labels = np.arange(90) % 3
    first, again, other = (stratified_split(labels, 30, seed)[1] for seed in (1, 1, 2))
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def test_rounding_gives_exactly_the_number_asked_for() -> None:
    counts = np.array([7, 7, 7, 1], dtype=np.int64)
    for held_out in range(1, 22):
        taken = held_out_by_class(counts, held_out)
        assert taken.sum() == held_out
        assert (taken <= counts).all()
        assert np.abs(taken - counts * held_out / 22).max() < 1


@pytest.mark.parametrize("held_out", [0, 10, -1])
def test_a_split_with_an_empty_side_is_refused(held_out: int) -> None:
    with pytest.raises(DataError, match="hold out"):
        stratified_split(np.zeros(10, dtype=np.int64), held_out)
