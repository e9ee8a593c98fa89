"""Persons: all records of one together move a sum by no more than one record's bound."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from simplexdp import linear, noise, sampling
from simplexdp.linear import exact_sums
from simplexdp.linear.exact_sums import ROW_UNIT, UNIT, Rows


def rows_of(counts: list[int], seed: int = 0) -> Rows:
    """Rows of persons with so many records each."""
    rng = torch.Generator().manual_seed(seed)
    found = exact_sums.quantize(torch.randn(sum(counts), 5, generator=rng), bound=4.0)
    whose = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    return Rows(found.integers, found.norms, found.bound, whose)


def coefficients(rows: Rows, seed: int = 1) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(len(rows), 3, generator=rng)


def summed(rows: Rows, values: torch.Tensor, clip: float) -> np.ndarray:
    return exact_sums.gradient_sum(rows, lambda block, where: values[where], clip) * UNIT


@pytest.mark.parametrize("clip", [0.01, 0.5, 3.0])
def test_zeroing_a_person_moves_the_sum_by_at_most_the_clip(clip: float) -> None:
    counts = [1, 7, 2, 40, 1, 3]
    rows = rows_of(counts)
    values = coefficients(rows)
    whole = summed(rows, values, clip)
    moved = []
    for person in range(len(counts)):
        mine = rows.persons == person
        without = values.clone()
        without[mine] = 0.0
        moved.append(float(np.linalg.norm(whole - summed(rows, without, clip))))
    assert max(moved) <= clip
    assert max(moved) > 0.1 * clip


def test_the_sum_is_that_of_each_person_scaled_to_the_clip() -> None:
    """A direct computation in double precision, person by person."""
    counts, clip = [3, 1, 5], 0.7
    rows = rows_of(counts)
    values = coefficients(rows)
    want = np.zeros((3, 5))
    for person in range(len(counts)):
        mine = rows.persons == person
        p, x = values[mine].double().numpy(), rows.integers[mine].double().numpy() * ROW_UNIT
        size = sum(np.linalg.norm(a) * np.linalg.norm(b) for a, b in zip(p, x, strict=True))
        want += min(1.0, clip / size) * p.T @ x
    np.testing.assert_allclose(summed(rows, values, clip), want, atol=0.02)


def test_one_record_each_is_the_sum_without_persons() -> None:
    rows = rows_of([1] * 50)
    values = coefficients(rows)
    alone = Rows(rows.integers, rows.norms, rows.bound)
    np.testing.assert_array_equal(summed(rows, values, 0.5), summed(alone, values, 0.5))


@pytest.mark.parametrize("stride", [1, 4, 10, 1000])
def test_blocks_divide_no_person_and_leave_nothing_out(
    stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact_sums, "STRIDE", stride)
    counts = [3, 1, 12, 2, 2, 1]
    rows = rows_of(counts)
    blocks = rows.strides
    assert [i for b in blocks for i in range(b.start, b.stop)] == list(range(sum(counts)))
    edges = {0, *itertools.accumulate(counts)}
    assert {b.start for b in blocks} | {b.stop for b in blocks} <= edges


def test_a_person_who_is_not_finite_counts_as_zero() -> None:
    rows = rows_of([2, 3])
    values = coefficients(rows)
    broken = values.clone()
    broken[1] = float("nan")
    values[1] = 0.0
    np.testing.assert_array_equal(summed(rows, broken, 0.5), summed(rows, values, 0.5))


def fit(features: np.ndarray, labels: np.ndarray, persons: np.ndarray | None) -> linear.Fitted:
    units = len(labels) if persons is None else int(persons.max()) + 1
    rule, cost = linear.planned(units, 4.0, 1e-5, (6, 1), steps=5)
    bits = noise.seeded_bits(sampling.stream(0, "certified", 0))
    return linear.fit(features, labels, 2, (6, 1), rule, cost, bits, persons=persons)


def test_a_fit_does_not_depend_on_the_order_of_persons() -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(200, 6)).astype(np.float32) / 3
    labels = (features[:, 0] > 0).astype(np.int64)
    persons = np.sort(rng.integers(0, 60, 200))
    persons = np.unique(persons, return_inverse=True)[1]
    want = fit(features, labels, persons)
    # The first record of each stays its first: an order that is stable within a person.
    order = np.argsort(persons % 7, kind="stable")
    got = fit(features[order], labels[order], persons[order])
    np.testing.assert_array_equal(got.weights, want.weights)
    each = np.arange(len(labels))
    np.testing.assert_array_equal(
        fit(features, labels, each).weights, fit(features, labels, None).weights
    )


@pytest.mark.parametrize(
    ("persons", "words"),
    [([0, 0, 0, 0], "one person"), ([0, 2, 2, 0], "without a gap"), ([0, 1], "one for each")],
)
def test_bad_persons_are_refused(persons: list[int], words: str) -> None:
    rule, _ = linear.planned(4, 4.0, 1e-5, (6, 1))
    features, labels = np.ones((4, 6), np.float32), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match=words):
        linear.check(features, labels, 2, (6, 1), rule, np.array(persons))
