"""Bounds by trade-off curve: valid on mechanisms of known curve, and far tighter than (ε, δ)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import linprog

from simplexdp.accounting import events
from simplexdp.accounting.gaussian import calibrate_mu, gaussian_epsilon
from simplexdp.audit import bounds, tradeoff

DELTA, LEVEL = 1e-5, 0.1
# 400 repetitions at 10 % allowed errors: more than 65 have probability 6e-5 under validity.
REPETITIONS, MOST_ERRORS = 400, 65
# A full-batch claim of ε = 1 at δ = 1e-5, held against pairs: μ doubles, ε is 2.16.
MU = 2.0 * calibrate_mu(1.0, DELTA)


def curves(event: Any, pairs: bool = False) -> tradeoff.Family:
    found = tradeoff.family(event, DELTA, pairs)
    assert found is not None
    return found


def only(curve: tradeoff.Curve) -> tradeoff.Family:
    """Return a family whose scale is above 0 where this curve is rejected, and 0 where not."""
    anything = tradeoff.Curve(np.ones_like, np.inf)
    return lambda scale: curve if scale < 0.1 else anything


FULL = curves(events.gaussian(1.0 / MU))
NOISE, RATE = 0.7, 0.3
SAMPLED = curves(events.sampled_gaussian(NOISE, RATE, 1))


def gaussian_scores(mu: float, size: int, rng: np.random.Generator) -> tuple[Any, Any]:
    return rng.normal(mu, 1.0, size), rng.normal(0.0, 1.0, size)


def sampled_scores(_: float, size: int, rng: np.random.Generator) -> tuple[Any, Any]:
    inside, outside = rng.normal(0.0, NOISE, (2, size))
    return inside + (rng.random(size) < RATE), outside


def randomised_response(mu: float, size: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """The best guess from a Gaussian release: post-processing, at the edge of the curve."""
    inside, outside = gaussian_scores(mu, size, rng)
    return (inside > mu / 2).astype(float), (outside > mu / 2).astype(float)


@pytest.mark.parametrize("scores", [gaussian_scores, sampled_scores, randomised_response])
def test_the_truth_is_rejected_no_more_often_than_allowed(scores: Any) -> None:
    rng = np.random.default_rng(1)
    truth = (SAMPLED if scores is sampled_scores else FULL)(1.0)
    errors = 0
    for _ in range(REPETITIONS):
        found = tradeoff.threshold_bound(*scores(MU, 60, rng), only(truth), 1.0 - LEVEL)
        errors += found.scale > 0
    assert errors <= MOST_ERRORS


def test_the_bound_exceeds_neither_the_scale_nor_epsilon_too_often() -> None:
    rng = np.random.default_rng(2)
    found = [
        tradeoff.threshold_bound(*gaussian_scores(MU, 100, rng), FULL, 1.0 - LEVEL)
        for _ in range(60)
    ]
    # 60 at 10 %: more than 14 have probability 4e-4.
    assert sum(bound.scale > 1.0 for bound in found) <= 14
    truth = gaussian_epsilon(MU, DELTA)
    for bound in found:
        assert (bound.epsilon > truth) == (bound.scale > 1.0)
        assert bound.counted == 160


def test_on_gaussian_scores_it_sees_more_than_half_where_the_other_sees_a_tenth() -> None:
    """ε = 2.16, 1,000 trials a side: (ε, δ) alone gives about 0.2 to 0.35, a Gaussian null 1.35."""
    rng = np.random.default_rng(3)
    by_curve, plain = [], []
    for _ in range(11):
        scores = gaussian_scores(MU, 1000, rng)
        by_curve.append(tradeoff.threshold_bound(*scores, FULL, 0.95).epsilon)
        plain.append(bounds.threshold_bound(*scores, DELTA, 0.95).epsilon)
    assert np.median(plain) < 0.6
    assert np.median(by_curve) > 1.35


def test_the_p_value_is_the_tail_over_all_outcomes() -> None:
    """Summed over every pair of counts with scipy's binomial laws, at each rate of the grid."""
    inside, outside, hits, alarms = 12, 9, 9, 3
    power = FULL(1.0).power

    def apart(h: Any, a: Any) -> Any:
        return stats.norm.ppf((h + 0.5) / (inside + 1)) - stats.norm.ppf((a + 0.5) / (outside + 1))

    h, a = np.meshgrid(np.arange(inside + 1), np.arange(outside + 1), indexing="ij")
    extreme = apart(h, a) >= apart(hits, alarms) - 1e-9
    outer = tradeoff.NUISANCE * 0.05
    exact = stats.binomtest(alarms, outside).proportion_ci(1.0 - outer, "exact")
    tails = [
        float(
            (stats.binom.pmf(h, inside, power(x)) * stats.binom.pmf(a, outside, x))[extreme].sum()
        )
        for x in np.linspace(exact.low, exact.high, 2001)
    ]
    found = tradeoff.rate_p_value(hits, inside, alarms, outside, power, 0.05)
    assert found == pytest.approx(max(tails) + outer, rel=1e-3)


def test_a_pair_doubles_the_sensitivity() -> None:
    for pairs, mu in ((False, 0.5), (True, 1.0)):
        family = curves(events.gaussian(2.0), pairs)
        for scale in (1.0, 3.0):
            wanted = stats.norm.cdf(stats.norm.ppf(0.1) + scale * mu)
            assert family(scale).power(0.1) == pytest.approx(wanted)
            assert family(scale).epsilon == pytest.approx(gaussian_epsilon(scale * mu, DELTA))


def test_what_chose_the_threshold_is_not_counted() -> None:
    """And the bound is the last scale whose p-value is small enough."""
    inside, outside = gaussian_scores(1.5, 60, np.random.default_rng(6))
    outside += 5.0
    inside += 5.0
    held = 12  # a fifth
    middle = float(np.median(inside[:held]) + np.median(outside[:held])) / 2.0
    found = tradeoff.threshold_bound(inside, outside, FULL, 0.9)
    counted = inside[held:], outside[held:]
    assert found == tradeoff.threshold_bound(*counted, FULL, 0.9, middle)
    assert found.counted == 96
    hits, alarms = (int((side >= middle).sum()) for side in counted)
    assert 0 < alarms < hits
    for step, rejected in ((-2e-3, True), (2e-3, False)):
        power = FULL(found.scale + step).power
        assert (tradeoff.rate_p_value(hits, 48, alarms, 48, power, 0.1) <= 0.1) is rejected


def test_a_sampled_curve_lies_just_above_both_directions() -> None:
    """Neyman–Pearson by hand: (1−q)N(0, σ²) + qN(1, σ²) against N(0, σ²), and the reverse."""
    cuts = np.linspace(-4.0, 6.0, 400)
    out = stats.norm.sf(cuts, 0.0, NOISE)
    inside = (1 - RATE) * out + RATE * stats.norm.sf(cuts, 1.0, NOISE)
    power = SAMPLED(1.0).power
    gap = power(out) - inside
    assert gap.min() > -1e-6
    reverse = power(1.0 - inside) - (1.0 - out)  # guess "out" below the cut
    assert reverse.min() > -1e-6
    # The curve holds for both, so it touches the worse of the two, or the line between them.
    middle = (out > 0.1) & (out < 0.9)
    assert gap[middle].min() < 1e-3
    assert reverse[middle].min() < 1e-3
    # Where one direction is the worse by far, it touches it all along.
    assert gap[(out > 0.002) & (out < 0.1)].max() < 1e-3
    assert reverse[(1.0 - inside > 0.6) & (1.0 - inside < 0.9)].max() < 1e-3
    twice = curves(events.sampled_gaussian(NOISE, RATE, 1), pairs=True)(1.0).power
    assert twice(0.1) == pytest.approx(power(power(0.1)))
    assert SAMPLED(2.0).power(0.1) > power(0.1) > SAMPLED(0.0).power(0.1) == 0.1


def test_what_is_no_curve_of_gaussian_releases_has_none() -> None:
    assert tradeoff.family(events.dirichlet(0.2, 3.0, 0.01, 10), DELTA, False) is None
    assert tradeoff.family(events.no_guarantee(), DELTA, False) is None
    assert FULL(0.0).epsilon == 0.0
    assert FULL(1.0).epsilon == pytest.approx(gaussian_epsilon(MU, DELTA))
    sampled = curves(events.sampled_gaussian(1.0, 0.1, 20))
    expected = events.compose([events.sampled_gaussian(1.0, 0.1, 20)], DELTA)
    assert sampled(1.0).epsilon == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(("guesses", "right"), [(12, 10), (12, 12), (7, 6), (16, 9)])
def test_one_run_mass_against_a_linear_programme(guesses: int, right: int) -> None:
    """The largest P[right ≥ v] of any law that obeys the theorem, the curve by 4,000 tangents."""
    canaries, mu = 16, 0.8
    power = curves(events.gaussian(1.0 / mu))(1.0).power
    at = stats.norm.cdf(np.linspace(-8, 4, 4000))
    slope = stats.norm.pdf(stats.norm.ppf(at) + mu) / stats.norm.pdf(stats.norm.ppf(at))
    counts = np.arange(guesses + 1)
    rows, limits = [], []
    for j in range(1, guesses + 1):
        left = np.where(counts >= j, counts, 0) / canaries
        wrong = np.where(counts >= j - 1, guesses - counts, 0) / canaries
        rows.append(left - slope[:, None] * wrong)
        limits.append(power(at) - slope * at)
    solved = linprog(
        -(counts >= right).astype(float),
        A_ub=np.concatenate(rows)[::8],
        b_ub=np.concatenate(limits)[::8],
        A_eq=np.ones((1, guesses + 1)),
        b_eq=[1.0],
    )
    largest = -solved.fun
    assert tradeoff.one_run_mass(canaries, guesses, right, power, largest * 1.01) > 1.0 or (
        largest > 0.99
    )
    assert tradeoff.one_run_mass(canaries, guesses, right, power, largest * 0.99) <= 1.0


def one_run_scores(mu: float, rng: np.random.Generator) -> tuple[Any, Any]:
    coins = rng.random(300) < 0.5
    return rng.normal(np.where(coins, mu, 0.0), 1.0), coins


def test_one_run_sees_half_the_noise_missing_where_the_other_hardly_does() -> None:
    """300 canaries, a claim of ε = 2.16: in 40 % of runs at least, and rarely as claimed."""
    rng = np.random.default_rng(4)
    claim = gaussian_epsilon(MU, DELTA)
    at_claim, caught = FULL(1.0), {}
    for scale in (1.0, 2.0):
        runs = [one_run_scores(scale * MU, rng) for _ in range(100)]
        same = [tradeoff.one_run(*run, only(at_claim), 0.95).scale > 0 for run in runs]
        plain = [bounds.one_run(*run, DELTA, 0.95).epsilon > claim for run in runs]
        caught[scale] = (sum(same), sum(plain))
    # 100 at 5 %: more than 13 have probability 5e-4.
    assert caught[1.0][0] <= 13
    assert caught[2.0][0] >= 40
    assert caught[2.0][1] <= 3


def test_one_run_bound_is_the_last_scale_that_is_rejected() -> None:
    values, coins = one_run_scores(3.0 * MU, np.random.default_rng(5))
    found = tradeoff.one_run(values, coins, FULL, 0.95)
    assert 0.0 < found.scale < 3.0
    guesses, right = bounds.guessed(values, coins, tradeoff.GUESSED)
    below, above = (FULL(found.scale + step).power for step in (-2e-3, 2e-3))
    assert tradeoff.one_run_mass(300, guesses, right, below, 0.05) > 1.0
    assert tradeoff.one_run_mass(300, guesses, right, above, 0.05) <= 1.0


@pytest.mark.parametrize(("mass", "rejected"), [(0.999, False), (1.001, True)])
def test_a_scale_is_rejected_by_more_than_all_mass(
    mass: float, rejected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tradeoff, "one_run_mass", lambda *_: mass)
    values, coins = one_run_scores(MU, np.random.default_rng(7))
    found = tradeoff.one_run(values, coins, FULL, 0.95).scale
    assert (found > tradeoff.LARGEST_SCALE) is rejected
    assert (found == 0.0) is not rejected


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="2 a side"):
        tradeoff.threshold_bound([1.0], [1.0], FULL, 0.9)
    with pytest.raises(ValueError, match="cannot be"):
        tradeoff.one_run_mass(3, 4, 1, FULL(1.0).power, 0.05)
    with pytest.raises(ValueError, match="not finite"):
        tradeoff.threshold_bound([np.nan] * 4, [1.0] * 4, FULL, 0.9)
