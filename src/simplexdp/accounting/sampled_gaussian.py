"""The cost of DP-SGD, and the noise that a budget asks for.

Formal guarantee
    Statement: T releases of a sum to which a record adds at most 1 in norm, each over a Poisson
    sample of rate q and with Gaussian noise of standard deviation σ, are (ε, δ)-differentially
    private under add/remove at a fixed q and a fixed divisor, with the ε of ``cost``. Both
    directions are computed and the larger ε is told; that a record is removed is not assumed to be
    the worse.
    Why it holds: with the record a release is dominated by (1−q)·N(0, σ²) + q·N(1, σ²) against
    N(0, σ²), without it by the reverse (Zhu, Dong and Wang 2022, Theorem 11), and T adaptive
    releases by the T-fold products. Their privacy loss distributions are composed on grids that
    only enlarge them (composed.py).
    Assumptions: what floating point may have moved is an estimate on the safe side (rounding.py),
    which is set aside from δ; where it is more than a tenth of δ the request is refused.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache

from simplexdp.accounting.calibration import largest_within
from simplexdp.accounting.composed import HIDDEN, Step, epsilon, within
from simplexdp.accounting.gaussian import calibrate_mu
from simplexdp.accounting.inputs import (
    check_delta,
    check_epsilon,
    check_positive,
    check_schedule,
)
from simplexdp.accounting.loss_distribution import GaussianPair

LEAST_NOISE, MOST_NOISE = 1e-2, 1e6
LARGEST_EPSILON = 500.0
"""Beyond it a budget protects nothing, and e^ε comes near the largest float."""
STRIDE = 1.01
TOLERANCE = 2e-4
"""How far above the least noise that a grid shows to be enough the calibrated one may lie."""


def cost(noise_multiplier: float, sample_rate: float, steps: int, delta: float) -> float:
    """Return ε of T Poisson-sampled Gaussian releases, an upper bound in both directions.

    Args:
        noise_multiplier: Standard deviation of the noise over the most that a record adds.
        sample_rate: Probability with which a record enters a batch.
        steps: Number of batches.
        delta: δ at which ε is asked for.

    Returns:
        ε; 0 where δ alone is enough.

    Raises:
        ValueError: If a parameter is outside its range, or rounding could take too much of δ.

    Example:
        >>> from simplexdp.accounting.sampled_gaussian import cost
        >>> round(cost(1.0, 0.01, 500, 1e-5), 2)
        1.33
    """
    check_positive(noise_multiplier, "the noise multiplier")
    check_schedule(sample_rate, steps)
    check_delta(delta)
    return epsilon(_step(noise_multiplier, sample_rate), int(steps), float(delta))


def check_budget(epsilon: float) -> None:
    """Refuse a budget that is not a positive number, or is beyond any use."""
    check_epsilon(epsilon)
    if epsilon > LARGEST_EPSILON:
        raise ValueError(
            f"epsilon = {epsilon:g} is above {LARGEST_EPSILON:g}, where noise protects nothing; "
            "give a smaller budget, or train without privacy by --method plain"
        )


def _step(noise_multiplier: float, sample_rate: float) -> Step:
    return Step(HIDDEN, float(sample_rate), GaussianPair(float(noise_multiplier)))


@lru_cache(maxsize=256)
def calibrate(epsilon: float, delta: float, sample_rate: float, steps: int) -> tuple[float, float]:
    """Return a noise multiplier within the budget, hardly above the least, and what it costs.

    Args:
        epsilon: Budget ε.
        delta: Budget δ.
        sample_rate: Probability with which a record enters a batch.
        steps: Number of batches.

    Returns:
        σ, and its ``cost``, which is at most ε.

    Raises:
        ValueError: If a parameter is outside its range, or no noise meets the budget.

    Formal guarantee:
        The σ returned was seen to meet the budget, whatever the search assumed on its way.

    Example:
        >>> from simplexdp.accounting.sampled_gaussian import calibrate
        >>> sigma, epsilon = calibrate(1.0, 1e-5, 0.05, 100)
        >>> epsilon <= 1.0
        True
    """
    check_budget(epsilon)
    check_delta(delta)
    check_schedule(sample_rate, steps)

    @cache
    def enough(sigma: float) -> bool:
        return within(_step(sigma, sample_rate), int(steps), float(delta), float(epsilon))

    sigma, stride = _guess(epsilon, delta, sample_rate, steps), STRIDE
    while not enough(sigma):
        if sigma >= MOST_NOISE:
            raise ValueError(
                f"no noise gives epsilon = {epsilon:g} for {steps} steps; use fewer steps or a "
                "larger budget"
            )
        sigma, stride = min(sigma * stride, MOST_NOISE), stride**2
    less = sigma / STRIDE
    while less >= LEAST_NOISE and enough(less):
        sigma, stride = less, stride**2
        less = sigma / stride
    # In 1/σ, of which more costs more; the answer was seen to be within the budget.
    signal = largest_within(lambda x: enough(1.0 / x), 1.0 / sigma, 1.0 / less, TOLERANCE)
    sigma = 1.0 / signal
    return sigma, cost(sigma, sample_rate, steps, delta)


def _guess(epsilon: float, delta: float, sample_rate: float, steps: int) -> float:
    """Return the noise that the central limit asks for (Bu et al., 2020), a place to begin."""
    mu = calibrate_mu(epsilon, delta) / (sample_rate * math.sqrt(steps))
    return min(max(1.0 / math.sqrt(math.log1p(mu * mu)), LEAST_NOISE), MOST_NOISE)
