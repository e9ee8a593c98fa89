"""The cost of T steps by privacy loss distribution.

Every figure is pessimistic at each rounding to the grid and each truncation. Truncation may take a
thousandth of δ in each of two places; what floating point may have moved is estimated on the safe
side (rounding.py) and set aside from δ. Where that exceeds a tenth of δ the figure is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_distribution

from simplexdp.accounting import loss_distribution as one
from simplexdp.accounting import rounding
from simplexdp.accounting.renyi import Cost, Setting

HIDDEN, VISIBLE = "hidden", "visible"
SMALLEST_INTERVAL = 1e-8
"""Grids are not made finer than this; a coarser grid only makes a figure larger."""
MOST_CELLS = 1 << 20
MOST_COMPOSED = 1 << 23
_SHARE = 1e-3
_CELLS_PER_DEVIATION = 16.0
_REFINED_ENOUGH = 2e-3


@dataclass(frozen=True)
class Step:
    """One step of a run: participation hidden or visible, q, and the laws told apart."""

    participation: str
    sample_rate: float
    pair: one.Pair


def grid(step: Step, steps: int, delta: float, per_deviation: float) -> tuple[float, float, float]:
    """Return interval, lowest and highest loss for a step: fine, within the cells allowed."""
    rate = 1.0 if step.participation == VISIBLE else step.sample_rate
    weight = step.sample_rate if step.participation == VISIBLE else 1.0
    share = _SHARE * delta / (steps * weight)
    if not share > 1e-290:
        raise ValueError(f"delta = {delta:g} is below what a float resolves; use accountant exact")
    low, high = one.loss_range(share, min(rate, 1.0 - 1e-16), step.pair)
    deviation = one.step_deviation(min(rate, 1.0 - 1e-16), step.pair)
    interval, width = _interval(
        high - low, deviation * math.sqrt(weight), steps, delta, deviation / per_deviation
    )
    return interval, low, low + max(high - low, width)


def _interval(
    width: float, deviation: float, steps: int, delta: float, wanted: float
) -> tuple[float, float]:
    """Return the interval, and how wide one step's grid is made.

    dp-accounting truncates T steps by Chernoff's bound at orders k/width, k = 1 … 20. The best
    order is about √(2 log(1/tail)/T)/deviation, so the grid is widened until that is among them.
    """
    log_tail = math.log(2.0 / (_SHARE * delta))
    variance = max(steps * deviation**2, 1e-300)
    best = math.sqrt(2.0 * log_tail / variance)
    width = min(max(width, 4.0 / best), 1e4 * width)
    reach = min(
        variance * k / width + 2.0 * log_tail * width / k for k in range(1, 21)
    )  # both tails, as for a normal composition
    finest = max(SMALLEST_INTERVAL, width / MOST_CELLS, reach / MOST_COMPOSED)
    return max(wanted, finest), width


@lru_cache(maxsize=8)
def step_pmfs(
    step: Step, interval: float, low: float, high: float
) -> tuple[pld_pmf.DensePLDPmf, ...]:
    """Return a step on the grid: (remove, add) for hidden participation, one for visible."""
    if step.participation == VISIBLE:
        masses = one.pessimistic((low, high), interval, sample_rate=1.0, pair=step.pair, add=False)
        mixed = one.mix_with_identity(masses, step.sample_rate)
        return (one.as_pmf(mixed, interval),)
    return tuple(
        one.as_pmf(
            one.pessimistic(
                bounds, interval, sample_rate=step.sample_rate, pair=step.pair, add=add
            ),
            interval,
        )
        for add, bounds in ((False, (low, high)), (True, (-high, -low)))
    )


def step_distribution(step: Step, interval: float, low: float, high: float) -> Any:
    """Return one step as dp-accounting's privacy loss distribution, pessimistic."""
    return privacy_loss_distribution.PrivacyLossDistribution(*step_pmfs(step, interval, low, high))


def masses_of(pmf: Any) -> one.Array:
    """Return the finite masses of one of dp-accounting's distributions."""
    return np.asarray(pmf.to_dense_pmf()._probs, dtype=np.float64)


@lru_cache(maxsize=32)
def _compose(
    step: Step, steps: int, delta: float, per_deviation: float, kinds: int = 1
) -> tuple[tuple[pld_pmf.DensePLDPmf, ...], float]:
    """Return T steps composed, and what of δ is left beside what is set aside for rounding.

    Of so many kinds each may cut off its share alone.
    """
    rounding.check(rounding.least(steps) + step.pair.moved(steps), delta, steps)
    interval, low, high = grid(step, steps, delta / kinds, per_deviation)
    singles = step_pmfs(step, interval, low, high)
    pmfs = tuple(pmf.self_compose(steps, _SHARE * delta / kinds) for pmf in singles)
    allowance = step.pair.moved(steps) + max(
        rounding.self_composition(steps, masses_of(pmf), single.size)
        for pmf, single in zip(pmfs, singles, strict=True)
    )
    rounding.check(allowance, delta, steps)
    return pmfs, delta - allowance


def within(step: Step, steps: int, delta: float, epsilon: float) -> bool:
    """Return whether T steps are (ε, δ) on the coarsest grid, seen to hold and never guessed."""
    pmfs, left = _compose(step, steps, delta, _CELLS_PER_DEVIATION)
    return all(float(pmf.get_delta_for_epsilon(epsilon)) <= left for pmf in pmfs)


def upper_epsilon(step: Step, steps: int, delta: float, per_deviation: float) -> float:
    """Return ε of T steps from a pessimistic grid with so many cells to a standard deviation."""
    pmfs, left = _compose(step, steps, delta, per_deviation)
    return max(float(pmf.get_epsilon_for_delta(left)) for pmf in pmfs)


@lru_cache(maxsize=256)
def epsilon(step: Step, steps: int, delta: float) -> float:
    """Return ε of T steps; the grid is refined until ε settles, an upper bound on every grid."""
    per_deviation = _CELLS_PER_DEVIATION
    best = upper_epsilon(step, steps, delta, per_deviation)
    while True:
        before = grid(step, steps, delta, per_deviation)[0]
        per_deviation *= 2.0
        if grid(step, steps, delta, per_deviation)[0] >= 0.99 * before:
            break
        finer = upper_epsilon(step, steps, delta, per_deviation)
        settled = best - finer <= _REFINED_ENOUGH * finer
        best = min(best, finer)
        if settled:
            break
    if not math.isfinite(best):
        raise ValueError(
            f"the pld accountants cannot resolve delta = {delta:g} at {steps} steps; "
            "use accountant exact, a larger delta or fewer steps"
        )
    return best


def epsilon_of_kinds(counts: Mapping[Step, int], mu: float, delta: float) -> float:
    """Return ε of steps of several kinds, beside full-batch Gaussian releases that are one of μ.

    Each kind is composed on a grid of its own. Their sum is wider and may stand on a coarser one,
    which is refined until ε settles, an upper bound on every grid.
    """
    kinds = [
        _compose(step, count, delta, _CELLS_PER_DEVIATION, len(counts))
        for step, count in counts.items()
    ]
    release = one.GaussianPair(1.0 / mu) if mu > 0.0 else None
    reach = release.reach(_SHARE * delta) if release else 0.0
    deviation = math.hypot(mu, *(one.deviation_of(pmfs[0]) for pmfs, _ in kinds))
    width = 2.0 * reach + sum(one.width_of(pmfs[0]) for pmfs, _ in kinds)
    interval, best = deviation / (2.0 * _CELLS_PER_DEVIATION), math.inf
    while True:
        interval = max(interval, width / MOST_CELLS)
        parts = [tuple(one.on_grid(pmf, interval) for pmf in pmfs) for pmfs, _ in kinds]
        allowance = sum(delta - left for _, left in kinds)
        if release:
            masses = one.pessimistic(
                (-reach, reach), interval, sample_rate=1.0, pair=release, add=False
            )
            parts.append((one.as_pmf(masses, interval),))
            allowance += release.moved(1)
        (remove, moved), (add, moved_too) = (
            _convolved([pmfs[way % len(pmfs)] for pmfs in parts]) for way in (0, 1)
        )
        left = delta - allowance - max(moved, moved_too)
        rounding.check(delta - left, delta, sum(counts.values()))
        finer = max(float(pmf.get_epsilon_for_delta(left)) for pmf in (remove, add))
        settled = best - finer <= _REFINED_ENOUGH * finer or interval == width / MOST_CELLS
        best, interval = min(best, finer), interval / 2.0
        if settled:
            return best


def _convolved(pmfs: Sequence[pld_pmf.DensePLDPmf]) -> tuple[pld_pmf.DensePLDPmf, float]:
    """Return the sum of independent losses on one grid, and what rounding may have moved in it."""
    total, moved = pmfs[0], 0.0
    for pmf in pmfs[1:]:
        moved += rounding.composition(masses_of(total), masses_of(pmf))
        total = total.compose(pmf)
    return total, moved


def _cost(participation: str, setting: Setting, target: float | None) -> Cost:
    step = Step(participation, setting.sample_rate, one.VertexPair(setting.r, setting.alpha))
    if target is None:
        return Cost(epsilon(step, setting.steps, setting.delta), None)
    met = within(step, setting.steps, setting.delta, target)
    return Cost(target if met else math.inf, None)


def pld(setting: Setting, target: float | None = None) -> Cost:
    """Return ε by the vertex pair's privacy loss distribution under hidden participation.

    Formal guarantee
        The draws are (ε, δ)-DP under zero-out, where the null record and every absent record emit
        a dummy draw; not under replace-input, where both sides are mixtures. Assumptions: those of
        `theorem1`, and that the vertex pair dominates every pair of softmax outputs in every
        hockey-stick divergence. That is a proof of this project's, not yet peer reviewed.
        It does not cover the released weights. What floating point may have moved is an estimate
        (rounding.py). Source: docs/dominance.md.
    """
    return _cost(HIDDEN, setting, target)


def visible_pld(setting: Setting, target: float | None = None) -> Cost:
    """Return ε by the vertex pair's privacy loss distribution, mixed with the identity.

    Formal guarantee
        As `visible`, under replace-input and the same assumptions, and the dominance that `pld`
        rests on.
    """
    return _cost(VISIBLE, setting, target)
