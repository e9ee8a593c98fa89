"""The bounds are valid: on mechanisms of known ε they exceed it no more often than allowed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from simplexdp.accounting.gaussian import gaussian_delta, gaussian_epsilon
from simplexdp.audit import bounds

CONFIDENCE = 0.9
# 400 repetitions at 10 % allowed errors: more than 65 have probability 6e-5 under validity.
REPETITIONS, MOST_ERRORS = 400, 65


def test_the_allowance_has_the_false_failure_probability_that_is_stated() -> None:
    assert stats.binom.sf(MOST_ERRORS, REPETITIONS, 1 - CONFIDENCE) < 1e-4


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("threshold", [0.5, None])
def test_randomised_response_is_bounded_at_its_epsilon(
    epsilon: float, threshold: float | None
) -> None:
    rng = np.random.default_rng(1)
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    found = []
    for _ in range(REPETITIONS):
        inside = (rng.random(1000) < keep).astype(float)
        outside = (rng.random(1000) >= keep).astype(float)
        found.append(bounds.threshold_bound(inside, outside, 0.0, CONFIDENCE, threshold).epsilon)
    assert sum(value > epsilon for value in found) <= MOST_ERRORS
    # And the bound says something: a third of the truth at least, on the median.
    assert np.median(found) > epsilon / 3


def test_gaussian_with_delta_is_bounded_at_its_exact_epsilon() -> None:
    rng = np.random.default_rng(2)
    mu, delta = 1.0, 0.05
    truth = gaussian_epsilon(mu, delta)
    found = [
        bounds.threshold_bound(
            rng.normal(mu, 1, 1000), rng.normal(0, 1, 1000), delta, CONFIDENCE
        ).epsilon
        for _ in range(REPETITIONS)
    ]
    assert sum(value > truth for value in found) <= MOST_ERRORS
    assert np.median(found) > truth / 3


def test_null_scores_give_zero() -> None:
    rng = np.random.default_rng(3)
    constant = bounds.threshold_bound(np.ones(50), np.ones(50), 1e-5, CONFIDENCE)
    assert constant.epsilon == 0.0
    found = [
        bounds.threshold_bound(rng.random(200), rng.random(200), 0.0, CONFIDENCE).epsilon
        for _ in range(REPETITIONS)
    ]
    assert sum(value > 0 for value in found) <= MOST_ERRORS
    coins = rng.random(300) < 0.5
    assert bounds.one_run(np.zeros(300), coins, 1e-5, 0.999).epsilon == 0.0


def test_choosing_on_the_trials_that_are_counted_would_be_caught_here() -> None:
    """The validity test has power: the best of 60 distinguishers on null scores fails it."""
    rng = np.random.default_rng(4)
    errors = 0
    for _ in range(REPETITIONS):
        inside, outside = rng.random((2, 60, 100))
        errors += any(
            bounds.threshold_bound(a, b, 0.0, CONFIDENCE, 0.5).epsilon > 0
            for a, b in zip(inside, outside, strict=True)
        )
    assert errors > MOST_ERRORS


def test_perfect_separation_is_limited_by_the_trials_alone() -> None:
    n = 200
    found = bounds.threshold_bound(np.ones(n), np.zeros(n), 0.0, 0.95, threshold=0.5)
    # With n of n and 0 of n the Clopper-Pearson limits are 0.025^(1/n) and 1 − 0.025^(1/n).
    limit = 0.025 ** (1 / n)
    assert found.epsilon == pytest.approx(math.log(limit / (1 - limit)), rel=1e-9)
    assert found.trials == 2 * n
    chosen = bounds.threshold_bound(np.ones(n), np.zeros(n), 0.0, 0.95)
    assert chosen.trials == n
    assert 0 < chosen.epsilon < found.epsilon


def test_the_mirror_direction_counts_too() -> None:
    """Half of the trainings without the record alarm, all of those with it do."""
    inside, outside = np.ones(400), np.repeat([0.0, 1.0], 200)
    found = bounds.threshold_bound(inside, outside, 0.0, 0.95, threshold=0.5)
    miss = 1 - 0.025 ** (1 / 400)
    alarms_above = stats.binomtest(200, 400).proportion_ci(0.95, "exact").high
    assert found.epsilon == pytest.approx(math.log((1 - alarms_above) / miss), rel=1e-6)


@pytest.mark.parametrize(("hits", "alarms", "mirrored"), [(60, 0, False), (100, 50, True)])
def test_delta_is_taken_from_both_rates_and_ties_are_alarms(
    hits: int, alarms: int, mirrored: bool
) -> None:
    """Scores on the threshold count; the limits are those of scipy's exact test."""
    n, delta = 100, 0.1
    inside, outside = (np.where(np.arange(n) < k, 1.0, 0.0) for k in (hits, alarms))
    found = bounds.threshold_bound(inside, outside, delta, 0.95, threshold=1.0)
    low = stats.binomtest(hits, n).proportion_ci(0.95, "exact").low
    high = stats.binomtest(alarms, n).proportion_ci(0.95, "exact").high
    ways = (math.log((low - delta) / high), math.log((1 - high - delta) / (1 - low)))
    assert (ways[1] > ways[0]) is mirrored
    assert found.epsilon == pytest.approx(max(ways), rel=1e-6)
    assert (found.true_positive_rate, found.false_positive_rate) == (hits / n, alarms / n)


def test_the_best_number_of_guesses_pays_for_the_others() -> None:
    rng = np.random.default_rng(8)
    coins = rng.random(300) < 0.5
    scores = rng.normal(np.where(coins, 2.0, 0.0), 1.0)
    each = 1.0 - 0.05 / len(bounds.GUESSED_SHARES)
    singly = [
        bounds.one_run_bound(300, *bounds.guessed(scores, coins, share), 1e-5, each).epsilon
        for share in bounds.GUESSED_SHARES
    ]
    found = bounds.one_run(scores, coins, 1e-5, 0.95)
    assert len(set(singly)) == 3
    assert found.epsilon == max(singly)
    assert found.confidence == 0.95


def test_guesses_are_those_of_the_outermost_scores() -> None:
    values = np.random.default_rng(9).permutation(100).astype(float)
    assert bounds.guessed(values, values >= 50, 0.5) == (50, 50)
    assert bounds.guessed(values, values < 50, 0.5) == (50, 0)
    assert bounds.guessed(values, values >= 90, 0.5) == (50, 35)  # 25 below, and 10 of 25 above
    assert bounds.guessed([1.0, 2.0, 3.0], [False, True, True], 1.0) == (3, 3)  # none twice


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_one_run_on_randomised_response(epsilon: float) -> None:
    rng = np.random.default_rng(5)
    keep = math.exp(epsilon) / (1 + math.exp(epsilon))
    found = []
    for _ in range(REPETITIONS):
        coins = rng.random(400) < 0.5
        answers = np.where(rng.random(400) < keep, coins, ~coins)
        found.append(bounds.one_run(answers.astype(float), coins, 0.0, CONFIDENCE).epsilon)
    assert sum(value > epsilon for value in found) <= MOST_ERRORS
    assert np.median(found) > 0.5 * epsilon


def test_one_run_with_abstentions_on_gaussian_canaries() -> None:
    """Independent Gaussian releases, one a canary: each coin is exactly (ε, δ(ε))-DP."""
    rng = np.random.default_rng(6)
    mu, delta = 1.5, 1e-3
    truth = gaussian_epsilon(mu, delta)
    found = []
    for _ in range(REPETITIONS):
        coins = rng.random(300) < 0.5
        scores = rng.normal(np.where(coins, mu, 0.0), 1.0)
        found.append(bounds.one_run(scores, coins, delta, CONFIDENCE).epsilon)
    assert sum(value > truth for value in found) <= MOST_ERRORS
    assert np.median(found) > 0.5
    # Abstaining helps: the surest quarter is right far more often than the average guess.
    coins = np.arange(4000) % 2 == 0
    scores = rng.normal(np.where(coins, mu, 0.0), 1.0)
    all_guessed = bounds.one_run(scores, coins, 0.0, 0.95, shares=(1.0,)).epsilon
    surest = bounds.one_run(scores, coins, 0.0, 0.95, shares=(0.25,)).epsilon
    assert surest > all_guessed + 0.5


def test_one_run_p_value_against_direct_summation() -> None:
    """The formula of Theorem 5.2, summed term by term with mpmath."""
    mpmath = pytest.importorskip("mpmath")
    for canaries, guesses, right, epsilon, delta in [
        (100, 60, 50, 1.0, 1e-5),
        (40, 40, 40, 2.0, 1e-2),
        (60, 30, 17, 0.0, 1e-3),
        (40, 4, 2, 0.5, 1e-3),
        (10, 4, 1, 0.0, 1e-3),
    ]:
        p = mpmath.exp(epsilon) / (1 + mpmath.exp(epsilon))

        def mass(b: int, n: int = guesses, p: object = p) -> object:
            return mpmath.binomial(n, b) * p**b * (1 - p) ** (n - b)

        tail = sum(mass(b) for b in range(right, guesses + 1))
        worst = max(
            sum(mass(b) for b in range(max(0, right - i), right)) / i
            for i in range(1, canaries + 1)
        )
        expected = min(1, tail + 2 * canaries * delta * worst)
        found = bounds.one_run_p_value(canaries, guesses, right, epsilon, delta)
        assert found == pytest.approx(float(expected), rel=1e-9)


def test_one_run_bound_rejects_below_and_not_above() -> None:
    bound = bounds.one_run_bound(200, 100, 90, 1e-5, 0.95)
    assert bounds.one_run_p_value(200, 100, 90, bound.epsilon - 1e-4, 1e-5) <= 0.05
    assert bounds.one_run_p_value(200, 100, 90, bound.epsilon + 1e-4, 1e-5) > 0.05
    assert bounds.one_run_bound(200, 100, 50, 1e-5, 0.95).epsilon == 0.0


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 2.5])
def test_trials_needed_is_the_least_number(epsilon: float) -> None:
    def best(n: int) -> float:
        return bounds.threshold_bound(np.ones(n), np.zeros(n), 1e-5, 0.95, 0.5).epsilon

    needed = bounds.trials_needed(epsilon, 1e-5, 0.95)
    assert best(needed) > epsilon
    assert best(needed - 1) <= epsilon
    bounds.require_trials(4 * needed, epsilon, 1e-5, 0.95)
    bounds.require_trials(2 * needed, epsilon, 1e-5, 0.95, held_out=False)
    with pytest.raises(ValueError, match=f"give --trials {4 * needed} or more"):
        bounds.require_trials(4 * needed - 1, epsilon, 1e-5, 0.95)


def test_canaries_needed_is_the_least_number() -> None:
    def best(m: int) -> float:
        coins = np.arange(m) % 2 == 0
        return bounds.one_run(coins.astype(float), coins, 1e-5, 0.95).epsilon

    needed = bounds.canaries_needed(1.0, 1e-5, 0.95)
    assert best(needed + needed % 2) > 1.0
    assert best(needed - 1 - needed % 2) <= 1.0
    with pytest.raises(ValueError, match=f"give --trials {needed} or more"):
        bounds.require_canaries(needed - 1, 1.0, 1e-5, 0.95)


def test_interval_is_clopper_pearson() -> None:
    expected = stats.binomtest(7, 50).proportion_ci(0.95, "exact")
    assert bounds.interval(7, 50, 0.95) == pytest.approx((expected.low, expected.high), rel=1e-6)
    assert bounds.interval(0, 10, 0.95)[0] == 0.0
    assert bounds.interval(10, 10, 0.95)[1] == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bounds.threshold_bound([], [1.0], 0.0, 0.9), "no scores"),
        (lambda: bounds.threshold_bound([math.nan] * 4, [1.0] * 4, 0.0, 0.9), "not finite"),
        (lambda: bounds.threshold_bound([1.0], [1.0], 0.0, 0.9), "at least 2 a side"),
        (lambda: bounds.threshold_bound([1.0], [1.0], 1.0, 0.9, 0.5), "delta"),
        (lambda: bounds.threshold_bound([1.0], [1.0], 0.0, 1.0, 0.5), "confidence"),
        (lambda: bounds.one_run_p_value(3, 4, 1, 1.0, 0.0), "cannot be"),
        (lambda: bounds.one_run([1.0, 2.0], [True], 0.0, 0.9), "one score a canary"),
    ],
)
def test_bad_input_is_refused(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_gaussian_truth_used_above_is_the_exact_curve() -> None:
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), computed here on its own."""
    epsilon = gaussian_epsilon(1.0, 0.05)
    direct = stats.norm.cdf(0.5 - epsilon) - math.exp(epsilon) * stats.norm.cdf(-0.5 - epsilon)
    assert direct == pytest.approx(0.05, rel=1e-9)
    assert gaussian_delta(1.0, epsilon) == pytest.approx(0.05, rel=1e-9)
