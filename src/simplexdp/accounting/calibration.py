"""Calibration: the largest r that a budget allows.

The figure h(r) is non-decreasing, with jumps where an order drops out. The answer is the largest
r with h(r) ≤ ε, found by bisection that only ever moves its lower end to an r that was seen to
meet the budget: whatever the tolerance, the answer is on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from simplexdp.accounting import renyi
from simplexdp.accounting.accountants import COMPUTE, account, lookup
from simplexdp.accounting.inputs import (
    check_alpha,
    check_delta,
    check_epsilon,
    check_r,
    check_schedule,
)
from simplexdp.accounting.renyi import Setting

_TOLERANCE = 1e-10
_PRINTED = 5e-4  # what rounding to four digits moves at most
_GRID_TOLERANCE = 1e-5
_STRIDE = 4.0
_SMALLEST_RATIO = 1e-9
"""An r below this fraction of α carries no signal; the search does not go further down."""


@dataclass(frozen=True)
class Calibration:
    """The largest r within the budget, and what it really costs.

    Attributes:
        r: Scale of the mechanism.
        epsilon: Its cost, at most the budget.
        order: The Rényi order that gave it, for accountants that have one.
    """

    r: float
    epsilon: float
    order: int | None


class BudgetTooSmall(ValueError):
    """No r meets the budget on this schedule.

    Attributes:
        floor: The ε that no r goes below.
        largest_sample_rate: The largest sampling rate at which some r would meet the budget in as
            many steps; None if there is none.
        most_steps: The most steps at this sampling rate; None if steps are not what is missing.
    """

    def __init__(
        self,
        message: str,
        *,
        floor: float,
        largest_sample_rate: float | None,
        most_steps: int | None,
    ) -> None:
        super().__init__(message)
        self.floor = floor
        self.largest_sample_rate = largest_sample_rate
        self.most_steps = most_steps


def largest_within(within: Callable[[float], bool], low: float, high: float, tol: float) -> float:
    """Return the largest x in [low, high) with within(x), for a `within` that turns false once.

    `low` must be within. The answer is an x for which `within` was seen to hold.
    """
    while high / low > 1.0 + tol:
        middle = math.sqrt(low * high)
        if not low < middle < high:
            break
        if within(middle):
            low = middle
        else:
            high = middle
    return low


def calibrate(
    accountant: str,
    *,
    epsilon: float,
    delta: float,
    alpha: float,
    sample_rate: float,
    steps: int,
) -> Calibration:
    """Return the largest r whose cost by this accountant is within ε.

    Args:
        accountant: One of `ACCOUNTANTS`.
        epsilon: Budget ε.
        delta: Budget δ.
        alpha: Concentration of the mechanism.
        sample_rate: Probability with which a record enters a batch.
        steps: Number of batches.

    Returns:
        r with its cost, which was seen to be within the budget.

    Raises:
        BudgetTooSmall: If no r meets the budget; says what would.
        ValueError: If a parameter is outside its range.

    Formal guarantee:
        account(accountant, r=result.r, ...) equals result.epsilon and is at most `epsilon`.

    Example:
        >>> from simplexdp.accounting import calibrate
        >>> run = {"alpha": 3.0, "sample_rate": 0.005, "steps": 20_000, "delta": 1e-5}
        >>> found = calibrate("theorem1", epsilon=1.0, **run)
        >>> round(found.r, 3), found.epsilon <= 1.0
        (0.235, True)
    """
    record = lookup(accountant)
    check_epsilon(epsilon)
    check_delta(delta)
    check_alpha(alpha)
    check_schedule(sample_rate, steps)
    # In double precision, whatever the numbers came as: half of it would round the budget.
    epsilon, delta, alpha = float(epsilon), float(delta), float(alpha)
    sample_rate, steps = float(sample_rate), int(steps)
    tolerance = _TOLERANCE if record.has_order else _GRID_TOLERANCE

    def within(r: float) -> bool:
        setting = Setting(r, alpha, sample_rate, steps, delta)
        return COMPUTE[accountant](setting, epsilon).epsilon <= epsilon

    low = _first_within(within, alpha)
    if low is None:
        raise _too_small(accountant, epsilon, delta, alpha, sample_rate, steps)
    high = min(alpha, low * _STRIDE)
    r = largest_within(within, low, high, tolerance)
    if record.has_order:
        r = _snap(within, r, alpha)
    cost = account(accountant, r=r, alpha=alpha, sample_rate=sample_rate, steps=steps, delta=delta)
    if cost.epsilon > epsilon:
        raise ValueError(
            f"the r found for epsilon = {epsilon:g} costs {cost.epsilon!r}, above it by rounding; "
            "ask for a slightly smaller epsilon"
        )
    return Calibration(r, cost.epsilon, cost.order)


def _snap(within: Callable[[float], bool], r: float, alpha: float) -> float:
    """Return the jump at α/k where the search ended just below it and the jump is within."""
    jump = alpha / round(alpha / r)
    near = r < jump < min(alpha, r * (1.0 + 10.0 * _TOLERANCE))
    return jump if near and within(jump) else r


def _first_within(within: Callable[[float], bool], alpha: float) -> float | None:
    """Return the first of α/4, α/16, … that meets the budget."""
    ratio = 1.0 / _STRIDE
    while ratio >= _SMALLEST_RATIO:
        if within(ratio * alpha):
            return ratio * alpha
        ratio /= _STRIDE
    return None


def largest_sample_rate(
    accountant: str,
    *,
    epsilon: float,
    delta: float,
    alpha: float,
    steps: int,
    r: float | None = None,
) -> float | None:
    """Return the largest sampling rate within the budget in so many steps; None if there is none.

    Args:
        accountant: One of `ACCOUNTANTS`.
        epsilon: Budget ε.
        delta: Budget δ.
        alpha: Concentration of the mechanism.
        steps: Number of batches.
        r: The scale that must stay within the budget; without it, at least some r must.

    Returns:
        The rate, or None.

    Raises:
        ValueError: If a parameter is outside its range.
    """
    record = lookup(accountant)
    check_epsilon(epsilon)
    check_delta(delta)
    check_alpha(alpha)
    least = r if r is not None else _SMALLEST_RATIO * alpha
    check_r(least, alpha)
    rate = 0.5
    check_schedule(rate, steps)
    epsilon, delta, alpha, least = float(epsilon), float(delta), float(alpha), float(least)

    def within(sample_rate: float) -> bool:
        if r is None and record.has_floor:
            return renyi.subsampling_floor(sample_rate, int(steps), delta).epsilon < epsilon
        setting = Setting(least, alpha, sample_rate, int(steps), delta)
        return COMPUTE[accountant](setting, epsilon).epsilon <= epsilon

    if within(1.0 - 1e-9):
        return 1.0 - 1e-9
    while not within(rate):
        rate /= 2.0
        if rate < 1e-12:
            return None
    return largest_within(within, rate, min(2.0 * rate, 1.0 - 1e-9), 1e-4)


def _too_small(
    accountant: str, epsilon: float, delta: float, alpha: float, sample_rate: float, steps: int
) -> BudgetTooSmall:
    smallest = Setting(_SMALLEST_RATIO * alpha, alpha, sample_rate, steps, delta)
    least = COMPUTE[accountant](smallest).epsilon
    record = lookup(accountant)
    rate = (
        largest_sample_rate(accountant, epsilon=epsilon, delta=delta, alpha=alpha, steps=steps)
        if record.has_order
        else None
    )
    most = None
    if record.has_floor:
        most = renyi.most_steps_at_floor(sample_rate, epsilon, delta)
    # Four digits, on the side on which the advice holds.
    advice = [f"an epsilon above {least * (1 + _PRINTED):.4g}"]
    if rate is not None and rate < sample_rate:
        below = rate * (1 - _PRINTED)
        advice.append(f"a sampling rate below {below:.4g} (a smaller batch or more records)")
    if most:
        advice.append(f"at most {most} steps")
    return BudgetTooSmall(
        f"no r meets epsilon = {epsilon:g} at sampling rate {sample_rate:.4g} in {steps} steps: "
        f"the floor is {least:.4g}; what would do: {', or '.join(advice)}",
        floor=least,
        largest_sample_rate=rate,
        most_steps=most,
    )
