"""The exact cost of Gaussian releases.

A Gaussian mechanism is described by one number, μ = sensitivity / standard deviation of the noise.
T adaptive full-batch steps of noise multiplier σ are exactly one Gaussian mechanism of
μ = √T/σ (Dong, Roth and Su 2022, Corollary 3.3), and its exact curve is

    δ(ε) = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)        (Balle and Wang 2018, Theorem 8).

With a = ε/μ − μ/2, b = ε/μ + μ/2 and b² − a² = 2ε, both terms share the factor e^{−a²/2}, so

    δ(ε) = ½ e^{−a²/2} (erfcx(a/√2) − erfcx(b/√2)),

which for a ≥ 0 keeps its digits at any δ that a float can hold. For a < 0 it loses some where ε is
tiny beside μ, far from any budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import special

from simplexdp.accounting.inputs import check_delta, check_epsilon, check_positive, check_steps

_ROOT2 = math.sqrt(2.0)
_TOLERANCE = 1e-13


def composed_mu(noise_multiplier: float, steps: int) -> float:
    """Return μ of `steps` adaptive full-batch Gaussian steps: √T/σ.

    Formal guarantee
        The composition is dominated by, and for the worst data equal to, one Gaussian mechanism
        of this μ, under the relation whose sensitivity the noise multiplier is relative to.
    """
    check_positive(noise_multiplier, "the noise multiplier")
    check_steps(steps)
    return math.sqrt(steps) / float(noise_multiplier)


def gaussian_log_delta(mu: float, epsilon: float) -> float:
    """Return log δ(ε) of the Gaussian mechanism of this μ; −∞ below the smallest float."""
    check_positive(mu, "mu")
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"epsilon must be a number of at least 0, got {epsilon}")
    mu, epsilon = float(mu), float(epsilon)
    a, b = epsilon / mu - mu / 2.0, epsilon / mu + mu / 2.0
    if a < 0:
        # Φ(−a) is above ½ and the second term below it: nothing cancels that matters.
        tail = math.exp(epsilon + float(special.log_ndtr(-b)))
        return math.log(max(float(special.ndtr(-a)) - tail, 5e-324))
    difference = float(special.erfcx(a / _ROOT2) - special.erfcx(b / _ROOT2))
    return -a * a / 2.0 + math.log(difference / 2.0) if difference > 0 else -math.inf


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the least δ for which the Gaussian mechanism of this μ is (ε, δ)-DP.

    Formal guarantee
        Exact, up to rounding, for one release or for adaptive composition through `composed_mu`.
        Source: Balle and Wang 2018, Theorem 8.
    """
    return math.exp(gaussian_log_delta(mu, epsilon))


def _turn(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Return the last point seen true and the first seen false of `holds`, which turns once."""
    while high - low > _TOLERANCE * high:
        middle = (low + high) / 2.0
        if not low < middle < high:
            break
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the least ε ≥ 0 for which the Gaussian mechanism of this μ is (ε, δ)-DP.

    Formal guarantee
        gaussian_delta(mu, result) ≤ delta: the search ends on the safe side.
    """
    check_positive(mu, "mu")
    check_delta(delta)
    mu, target = float(mu), math.log(delta)
    if gaussian_log_delta(mu, 0.0) <= target:
        return 0.0
    # δ(ε) < Φ(−a), so ε = μ²/2 + μ·z with Φ(−z) = δ is enough.
    low, high = 0.0, mu * mu / 2.0 + mu * max(0.0, -float(special.ndtri_exp(target)))
    while gaussian_log_delta(mu, high) > target:
        high = 2.0 * high + 1e-12
    return _turn(lambda epsilon: gaussian_log_delta(mu, epsilon) > target, low, high)[1]


def calibrate_mu(epsilon: float, delta: float) -> float:
    """Return the largest μ whose Gaussian mechanism is (ε, δ)-DP; σ = √T/μ for T steps.

    Formal guarantee
        gaussian_delta(result, epsilon) ≤ delta: the search ends on the safe side.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    target = math.log(delta)

    def holds(mu: float) -> bool:
        return gaussian_log_delta(mu, epsilon) <= target

    low = 1.0
    while not holds(low):
        low /= 2.0
    high = 2.0 * low
    while holds(high):
        high *= 2.0
    return _turn(holds, low, high)[0]
