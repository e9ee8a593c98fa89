"""What Poisson-sampled Gaussian releases cost, by the PRV accountant of Opacus.

Formal guarantee
    Statement: T releases of a sum to which a record adds at most 1 in norm, each over a Poisson
    sample of rate q and with Gaussian noise of standard deviation σ, are (ε, δ)-differentially
    private under add/remove at a fixed q, with the ε of ``epsilon_of`` (Gopi et al., 2021).
    Assumptions: the accountant is in floating point, and is refused where its rounding may reach a
    tenth of δ, or its e^ε the largest double.
"""

from __future__ import annotations

import math
import warnings
from functools import cache
from typing import Any

import numpy as np

from simplexdp.accounting.inputs import check_epsilon

# It forms e^ε in double precision: beyond e^709 its ε stands still and is too small.
LARGEST_EPSILON = 500.0
# What the PRV accountant's Fourier transforms in double precision may move in δ with every step.
ROUNDING_OF_A_STEP = 1e-15


@cache
def epsilon_of(
    noise_multiplier: float, sample_rate: float, steps: int, delta: float, error: float
) -> float:
    """Return the PRV accountant's upper bound on ε for these steps, its numerical error in it."""
    epsilon = _bound(noise_multiplier, sample_rate, steps, delta, error)
    if epsilon > LARGEST_EPSILON:
        raise ValueError(
            f"noise_multiplier {noise_multiplier:g} for {steps} steps costs more than ε = "
            f"{LARGEST_EPSILON:g}, up to which the PRV accountant is used; give more noise"
        )
    return epsilon


def bound(event: Any, epsilon: float, delta: float) -> float:
    """Return ε of `events.sampled_gaussian`, with the numerical error of a budget."""
    sampled, noise = event.event, event.event.event.noise_multiplier
    error = numerical_error(epsilon)
    return epsilon_of(noise, sampled.sampling_probability, event.count, delta, error)


@cache
def _bound(
    noise_multiplier: float, sample_rate: float, steps: int, delta: float, error: float
) -> float:
    """Return the accountant's ε; infinity where that is beyond what it computes."""
    from opacus.accountants import PRVAccountant  # takes seconds to load

    check_rounding(steps, delta)
    accountant = PRVAccountant()
    accountant.history = [(noise_multiplier, sample_rate, steps)]
    with warnings.catch_warnings(), np.errstate(all="ignore"):  # what overflows is told below
        # A Rényi bound, only to find the width of its grid, remarks on the orders it tried.
        warnings.filterwarnings("ignore", message="Optimal order is")
        try:
            epsilon = float(accountant.get_epsilon(delta, eps_error=error))
        except RuntimeError:  # by its own checks its grid is too coarse for so large a loss
            return math.inf
    if not epsilon <= LARGEST_EPSILON:  # true for NaN too
        return math.inf
    return max(0.0, epsilon)  # at a large δ it may be negative; ε = 0 is then what holds


def check_rounding(steps: int, delta: float) -> None:
    """Refuse a δ at which rounding would make the accountant's ε too small."""
    moved = steps * ROUNDING_OF_A_STEP
    if not moved <= delta / 10.0:
        raise ValueError(
            f"delta = {delta:g} is too small for the PRV accountant at {steps} steps: rounding may "
            f"move {moved:.1g}; use a larger delta or fewer steps"
        )


def numerical_error(epsilon: float) -> float:
    """Return the accountant's error, which its ε includes: a fifth of a percent of the budget."""
    return min(0.1, max(1e-3, 0.002 * epsilon))


@cache
def calibrate(epsilon: float, delta: float, sample_rate: float, steps: int) -> tuple[float, float]:
    """Return a noise multiplier within the budget, and above 99 % of it, and what it costs."""
    check_epsilon(epsilon)
    if epsilon > LARGEST_EPSILON:
        raise ValueError(
            f"epsilon = {epsilon:g} is above {LARGEST_EPSILON:g}, up to which the PRV accountant "
            "is used; give a smaller budget, or train without privacy by --method plain"
        )
    error = numerical_error(epsilon)
    target = math.log(0.995 * epsilon)
    sigma = 1.0
    below: tuple[float, float] | None = None  # log σ and log ε of too little noise,
    above: tuple[float, float] | None = None  # and of too much
    for _ in range(60):
        cost = _bound(sigma, sample_rate, steps, delta, error)
        if 0.99 * epsilon <= cost <= epsilon:
            return sigma, cost
        point = (math.log(sigma), math.log(max(cost, 1e-9)))
        below, above = (point, above) if cost > epsilon else (below, point)
        if below is None or above is None:
            sigma *= 2.0 if above is None else 0.5
        else:
            # Straight between the two in logarithms, and never at the very ends.
            part = (below[1] - target) / (below[1] - above[1]) if math.isfinite(below[1]) else 0.5
            part = min(0.95, max(0.05, part))
            sigma = math.exp(below[0] + part * (above[0] - below[0]))
        if not 2.0**-7 < sigma < 2.0**16:
            break
    raise ValueError(
        f"no noise gives epsilon = {epsilon:g} for {steps} steps; change the steps or the budget"
    )
