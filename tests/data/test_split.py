from __future__ import annotations

import numpy as np
import pytest

from simplexdp.data.dataset import DataError
from simplexdp.data.split import grouped_split, held_out_by_class, stratified_split


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


def test_a_grouped_split_divides_no_group_and_keeps_the_shares():
    rng = np.random.default_rng(5)
    groups = rng.integers(0, 60, 900)
    labels = (groups % 3 + (rng.random(900) < 0.1)) % 3  # a person has mostly one class
    train, test = grouped_split(labels, groups, 180)
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(900))
    assert not set(groups[train]) & set(groups[test])
    wanted = 0.2 * np.bincount(labels)
    largest = np.bincount(groups).max()
    assert np.abs(np.bincount(labels[test]) - wanted).max() <= largest
    again = grouped_split(labels, groups, 180)
    assert np.array_equal(again[1], test)
    other = grouped_split(labels, groups, 180, seed=1)
    assert not np.array_equal(other[1], test)


def test_a_grouped_split_never_takes_all_records_of_a_class():
    labels, groups = np.array([0, 0, 1, 1, 1]), np.array([0, 0, 1, 1, 2])
    train, test = grouped_split(labels, groups, 2)
    assert set(labels[train]) == {0, 1}
    assert len(test)
    with pytest.raises(ValueError, match="all records are of one person"):
        grouped_split(labels, np.zeros(5, dtype=np.int64), 2)
    with pytest.raises(ValueError, match="no person can be held out"):
        grouped_split(np.array([0, 1]), np.array([0, 1]), 1)
