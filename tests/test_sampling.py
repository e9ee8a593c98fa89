"""Poisson batches: inclusion rates, independence, batch sizes, by tests with stated error."""

from __future__ import annotations

import math
import zlib

import numpy as np
import pytest
from scipy import stats

from simplexdp import sampling

# Each statistical check fails by chance in fewer than 1e-5 of all seeds.
LEVEL = 1e-5


def inclusion_matrix(records: int, rate: float, steps: int, seed: int = 5) -> np.ndarray:
    matrix = np.zeros((steps, records), dtype=bool)
    for step, indices in enumerate(sampling.poisson_batches(records, rate, steps, seed)):
        matrix[step, indices] = True
    return matrix


@pytest.mark.parametrize("rate", [0.004, 0.05, 0.5, 0.9])
def test_every_record_is_included_at_the_rate(rate):
    matrix = inclusion_matrix(200, rate, 4000)
    counts = matrix.sum(0)
    statistic = ((counts - 4000 * rate) ** 2 / (4000 * rate * (1 - rate))).sum()
    assert stats.chi2(200).sf(statistic) > LEVEL
    assert stats.chi2(200).cdf(statistic) > LEVEL  # nor too even
    first_and_last = counts[[0, -1]]
    assert (np.abs(first_and_last - 4000 * rate) < 5 * math.sqrt(4000 * rate)).all()


@pytest.mark.parametrize("rate", [0.05, 0.5])
def test_records_and_steps_are_independent(rate):
    matrix = inclusion_matrix(60, rate, 8000).astype(float)
    deviations = (matrix - rate) / math.sqrt(rate * (1 - rate))
    products = deviations.T @ deviations / len(deviations)
    upper = products[np.triu_indices(60, 1)] * math.sqrt(len(deviations))
    assert stats.chi2(len(upper)).sf((upper**2).sum()) > LEVEL
    along_steps = (deviations[1:] * deviations[:-1]).sum(0) / math.sqrt(len(deviations) - 1)
    assert stats.chi2(60).sf((along_steps**2).sum()) > LEVEL


def test_batch_sizes_are_binomial():
    records, rate, steps = 1000, 0.01, 20_000
    sizes = np.array(
        [len(batch) for batch in sampling.poisson_batches(records, rate, steps, seed=11)]
    )
    law = stats.binom(records, rate)
    edges = np.arange(3, 19)
    observed = np.array(
        [(sizes <= 3).sum(), *[(sizes == k).sum() for k in edges[1:]], (sizes > 18).sum()]
    )
    expected = steps * np.array([law.cdf(3), *law.pmf(edges[1:]), law.sf(18)])
    assert stats.chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > LEVEL


def test_small_batches_are_often_empty_and_still_counted():
    sizes = [len(batch) for batch in sampling.poisson_batches(100, 0.005, 4000, seed=2)]
    assert len(sizes) == 4000
    empty = sum(size == 0 for size in sizes)
    probability = 0.995**100
    assert stats.binomtest(empty, 4000, probability).pvalue > LEVEL


def test_a_billion_records():
    records, expected = 10**9, 250
    batch = sampling.poisson_batch(records, expected / records, np.random.default_rng(0))
    assert batch.dtype == np.int64
    assert (np.diff(batch) > 0).all()
    assert 0 <= batch[0] <= batch[-1] < records
    assert abs(len(batch) - expected) < 6 * math.sqrt(expected)
    positions = np.concatenate(
        [
            sampling.poisson_batch(records, expected / records, sampling.stream(4, "batch", step))
            for step in range(40)
        ]
    )
    assert stats.kstest(positions / records, "uniform").pvalue > LEVEL


def test_a_batch_longer_than_one_round_of_gaps():
    """Drawing the gaps in many short rounds gives the same law and cuts no batch short."""
    rng = np.random.default_rng(0)
    batches = [sampling.poisson_batch(500, 0.3, rng, gaps_at_once=7) for _ in range(2000)]
    assert all((np.diff(batch) > 0).all() for batch in batches)
    total = sum(len(batch) for batch in batches)
    assert stats.binomtest(total, 500 * 2000, 0.3).pvalue > LEVEL
    counts = np.bincount(np.concatenate(batches), minlength=500)
    statistic = ((counts - 600) ** 2 / (2000 * 0.3 * 0.7)).sum()
    assert stats.chi2(500).sf(statistic) > LEVEL


def test_any_start_gives_the_same_batches():
    whole = list(sampling.poisson_batches(500, 0.02, 30, seed=9))
    rest = list(sampling.poisson_batches(500, 0.02, 30, seed=9, start=12))
    assert len(rest) == 18
    for a, b in zip(whole[12:], rest, strict=True):
        assert np.array_equal(a, b)


def test_streams_differ_by_seed_purpose_and_step():
    draws = {
        (seed, purpose, step): sampling.stream(seed, purpose, step).integers(2**63)
        for seed in (1, 2)
        for purpose in ("batch", "noise")
        for step in (0, 1)
    }
    assert len(set(draws.values())) == 8


def test_fresh_seeds_are_long_and_do_not_repeat():
    seeds = {sampling.fresh_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert max(seeds) > 2**100


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_bad_rates_are_refused(rate):
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        sampling.poisson_batch(10, rate, np.random.default_rng(0))


def test_bad_sizes_and_seeds_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        sampling.poisson_batch(0, 0.1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="seed is -1"):
        sampling.stream(-1, "batch", 0)


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**64 + 5, 2**127 + 9, 2**200 + 3])
@pytest.mark.parametrize("step", [0, 7, 2**32 - 1, 2**32, 2**40])
def test_a_stream_is_numpys_own_under_the_key_that_was_promised(seed, step):
    """Runs of earlier versions go on with the batches and the noise that they began with."""
    for purpose in ("batch", "noise-8", "torch", ""):
        key = np.random.SeedSequence(seed, spawn_key=(zlib.crc32(purpose.encode()), step))
        theirs = np.random.Generator(np.random.Philox(key))
        ours = sampling.stream(seed, purpose, step)
        assert str(ours.bit_generator.state) == str(theirs.bit_generator.state)
        assert sampling.first_word(seed, purpose, step) >> 1 == theirs.integers(2**63)
