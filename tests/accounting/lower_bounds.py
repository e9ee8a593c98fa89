"""Lower bounds on ε from optimistic grids: how far above the truth an accountant's ε can lie.

Outcomes are merged in cells, which is post-processing, and the cell's loss is rounded down.
"""

from __future__ import annotations

import math

import numpy as np
from dp_accounting.pld import pld_pmf

from simplexdp.accounting import composed, rounding
from simplexdp.accounting import loss_distribution as one
from simplexdp.accounting.composed import VISIBLE, Step

TAIL = 1e-3  # of δ, in the composition


def optimistic(
    bounds: tuple[float, float],
    interval: float,
    *,
    sample_rate: float,
    pair: one.Pair,
    add: bool,
) -> one.Masses:
    """Return a distribution that the step's own dominates: outcomes merged, losses rounded down.

    Cell k reaches from (k − ½) to (k + ½) intervals, shifted up a little where its loss, the log
    of the ratio of its masses, would otherwise round down to k − 1.
    """
    lowest, highest = math.floor(bounds[0] / interval), math.ceil(bounds[1] / interval)
    k = np.arange(lowest, highest + 1)
    shift = np.zeros(len(k) - 1)
    for attempt in range(12):
        inner = (k[:-1] + 0.5) * interval + shift
        edges = one._sampled_edges(-inner[::-1] if add else inner, sample_rate)
        p, q_mass = pair.masses(np.concatenate(([-np.inf], edges, [np.inf])))
        if add:
            p, q_mass = p[::-1], q_mass[::-1]
        mixed = q_mass + sample_rate * (p - q_mass)
        upper, lower = (q_mass, mixed) if add else (mixed, q_mass)
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.log(upper / lower)
        # Where a mass is at the edge of its digits the ratio is not trusted: the cell's lower end.
        weak = ~np.isfinite(loss) | (np.minimum(upper, lower) < 1e-14)
        low = np.concatenate(([lowest * interval - 1.0], inner))
        loss = np.where(weak, low, loss)
        short = k * interval - loss
        if attempt == 11:
            break
        needed = np.maximum(np.where(weak, 0.0, short), 0.0)
        shift = np.minimum(shift + 1.02 * np.maximum(needed[:-1], needed[1:]), 0.45 * interval)
        if not np.any(needed > 0):
            break
    target = np.floor(loss / interval).astype(int)
    floor = int(min(target.min(), lowest - 1))
    mass: one.Array = np.bincount(target - floor, weights=upper).astype(np.float64)
    return one.Masses(floor, mass, 0.0)


def lower_epsilon(step: Step, steps: int, delta: float, per_deviation: float = 64.0) -> float:
    """Return a lower bound on the ε of T steps.

    dp-accounting counts truncated tails as infinite losses; both tails, which may also wrap
    around, are given back here.
    """
    interval, low, high = composed.grid(step, steps, delta, per_deviation)
    visible = step.participation == VISIBLE
    pmfs, moved = [], []
    for add, bounds in ((False, (low, high)), (True, (-high, -low))):
        rate = 1.0 if visible else step.sample_rate
        masses = optimistic(bounds, interval, sample_rate=rate, pair=step.pair, add=add)
        if visible:
            masses = one.mix_with_identity(masses, step.sample_rate)
        single = pld_pmf.DensePLDPmf(interval, masses.lowest, masses.mass, masses.infinity, False)
        pmfs.append(single.self_compose(steps, TAIL * delta))
        found = composed.masses_of(pmfs[-1])
        moved.append(rounding.self_composition(steps, found, masses.mass.size))
        if visible:
            break  # both directions are alike
    relaxed = delta + 2.0 * TAIL * delta + step.pair.moved(steps) + max(moved)
    return max(float(pmf.get_epsilon_for_delta(relaxed)) for pmf in pmfs)
