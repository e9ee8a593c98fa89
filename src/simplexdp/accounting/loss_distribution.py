"""The privacy loss distribution of one step.

A step is told by two laws P and Q and the privacy loss L = log dP/dQ, whose law under Q is that of
−L under P.

- `VertexPair`: between two vertices of the simplex a draw reduces to t = p_1/(p_1 + p_2):
  P = Beta(α+r, α) against Q = Beta(α, α+r), with L = r·logit(t) (docs/dominance.md).
- `GaussianPair`: P = N(1, σ²) against Q = N(0, σ²), with L = (x − ½)/σ².

Of each there is

- hidden participation: (1−q)·Q + q·P against Q ("remove") and the reverse ("add"): an unsampled
  record emits a dummy draw from Q, or adds nothing to a noisy sum;
- visible participation: the pair (P, Q) with probability q, nothing otherwise.

A distribution is put on a grid of losses pessimistically: the mass of a cell goes to its two ends
so that its mass under both hypotheses is kept (connect-the-dots, Doroshenko et al. 2022); what is
above the grid goes to infinity. Composition is dp-accounting's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from scipy import special

from simplexdp.accounting import rounding

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Masses:
    """A distribution of losses k·interval, k = lowest, lowest + 1, …, and at infinity."""

    lowest: int
    mass: Array
    infinity: float


def _upper(logit: Array, a: float, b: float) -> Array:
    """Return P[t > σ(logit)] for t ~ Beta(b, a): I_u(a, b) at u = σ(−logit), far into the tail."""
    far = logit > 300.0
    tail = np.exp(
        a * special.log_expit(-np.where(far, logit, 300.0)) - math.log(a) - special.betaln(a, b)
    )
    return np.where(far, tail, special.betainc(a, b, special.expit(-np.where(far, 0.0, logit))))


def vertex_masses(edges: Array, r: float, alpha: float) -> tuple[Array, Array]:
    """Return the mass of P and of Q between increasing losses `edges`, ends included.

    Below zero differences of the lower tail are taken, above zero of the upper tail, so that a
    tail keeps its digits. Q is P mirrored.
    """
    logit = edges / r
    masses = []
    for a, b in ((alpha, alpha + r), (alpha + r, alpha)):  # upper-tail exponents of P and of Q
        above = np.where(np.isneginf(logit), 1.0, 0.0)
        below = 1.0 - above
        finite = np.isfinite(logit)
        above[finite] = _upper(logit[finite], a, b)
        below[finite] = _upper(-logit[finite], b, a)
        low, high = logit[:-1], logit[1:]
        mass = np.where(
            low >= 0.0,
            above[:-1] - above[1:],
            np.where(high <= 0.0, below[1:] - below[:-1], 1.0 - below[:-1] - above[1:]),
        )
        masses.append(np.maximum(mass, 0.0))
    return masses[0], masses[1]


class Pair(Protocol):
    """Two laws P and Q whose loss log dP/dQ under Q is distributed as its negative under P."""

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """Return the mass of P and of Q between increasing losses, ends included."""

    def reach(self, share: float) -> float:
        """Return a loss above which about `share` of P lies."""

    def moved(self, steps: int) -> float:
        """Estimate what the errors of its distribution function may add up to."""


@dataclass(frozen=True)
class VertexPair:
    """The draws at two vertices of the simplex."""

    r: float
    alpha: float

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """Return the mass of P and of Q between increasing losses, ends included."""
        return vertex_masses(edges, self.r, self.alpha)

    def reach(self, share: float) -> float:
        """Return a loss above which about `share` of P lies."""
        # Invert I_u(α, α+r) = share for u = σ(−L/r); for a tiny u, I_u ≈ u^α/(α B).
        a, b = self.alpha, self.alpha + self.r
        log_u = (math.log(share) + math.log(a) + float(special.betaln(a, b))) / a
        if log_u > -600.0:
            u = float(special.betaincinv(a, b, share))
            log_u = math.log(u) if u > 0 else log_u
        return self.r * max(-log_u, 1.0)

    def moved(self, steps: int) -> float:
        """Estimate what the errors of its distribution function may add up to."""
        return rounding.incomplete_beta(steps, self.alpha)


@dataclass(frozen=True)
class GaussianPair:
    """A sum to which a record adds 1, with Gaussian noise of standard deviation σ."""

    noise_multiplier: float

    def masses(self, edges: Array) -> tuple[Array, Array]:
        """Return the mass of P and of Q between increasing losses, ends included."""
        centre = 0.5 / self.noise_multiplier
        at = self.noise_multiplier * edges
        return _normal_masses(at - centre), _normal_masses(at + centre)

    def reach(self, share: float) -> float:
        """Return a loss above which about `share` of P lies."""
        sigma = self.noise_multiplier
        return (0.5 / sigma - float(special.ndtri(share))) / sigma

    def moved(self, steps: int) -> float:
        """Estimate what the errors of its distribution function may add up to."""
        return rounding.normal(steps)


def _normal_masses(edges: Array) -> Array:
    """Return the mass of N(0, 1) between increasing edges; both tails keep their digits."""
    low, high = edges[:-1], edges[1:]
    above = low > 0.0
    low, high = np.where(above, -high, low), np.where(above, -low, high)
    mass: Array = special.ndtr(high) - special.ndtr(low)
    return mass


LARGEST_EXPONENT = 600.0  # e^709 overflows


def _sampled_edges(losses: Array, sample_rate: float) -> Array:
    """Return the L at which log(1 − q + q e^L) takes the given values; −∞ below log(1 − q)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        near = np.minimum(losses, LARGEST_EXPONENT)
        inside = np.expm1(near) / sample_rate
        edges = np.where(inside > -1.0, np.log1p(np.maximum(inside, -1.0)), -np.inf)
        return edges + (losses - near)


def _cells(
    lowest: int, count: int, interval: float, sample_rate: float, pair: Pair, add: bool
) -> tuple[Array, Array]:
    """Return upper mass, and upper − e^{left end}·lower, of each cell, tails included.

    Cell 0 is all that is below the grid, the last cell all that is above it.
    """
    grid: Array = (lowest + np.arange(float(count))) * interval
    edges = _sampled_edges(-grid[::-1] if add else grid, sample_rate)
    edges = np.concatenate(([-np.inf], edges, [np.inf]))
    p, q_mass = pair.masses(edges)
    if add:
        p, q_mass = p[::-1], q_mass[::-1]
    # Beyond e^±600 one of the masses is 0; a smaller exponent there only enlarges the bound.
    left = np.clip(np.concatenate(([0.0], grid)), -LARGEST_EXPONENT, LARGEST_EXPONENT)
    if add:
        surplus = np.exp(left) * ((np.expm1(-left) + sample_rate) * q_mass - sample_rate * p)
        return q_mass, surplus
    surplus = sample_rate * p - (np.expm1(left) + sample_rate) * q_mass
    return q_mass + sample_rate * (p - q_mass), surplus


def pessimistic(
    bounds: tuple[float, float],
    interval: float,
    *,
    sample_rate: float,
    pair: Pair,
    add: bool,
) -> Masses:
    """Return the connect-the-dots distribution of one step, which dominates the step's own."""
    lowest, highest = math.floor(bounds[0] / interval), math.ceil(bounds[1] / interval)
    count = highest - lowest + 1
    upper, surplus = _cells(lowest, count, interval, sample_rate, pair, add)
    to_right = np.clip(surplus[1:-1] / -math.expm1(-interval), 0.0, upper[1:-1])
    mass = np.zeros(count)
    mass[0] += upper[0]
    mass[:-1] += upper[1:-1] - to_right
    mass[1:] += to_right
    infinity = float(np.clip(surplus[-1], 0.0, upper[-1]))
    mass[-1] += upper[-1] - infinity
    mass[mass < 1e-290] = 0.0  # below what any sum of masses can show
    return Masses(lowest, mass, infinity)


def mix_with_identity(masses: Masses, weight: float) -> Masses:
    """Return the distribution with probability `weight`, else no loss (visible participation)."""
    mass = weight * masses.mass
    mass[-masses.lowest] += 1.0 - weight
    return Masses(masses.lowest, mass, weight * masses.infinity)


def as_pmf(masses: Masses, interval: float) -> pld_pmf.DensePLDPmf:
    """Return the distribution as dp-accounting's own."""
    return pld_pmf.DensePLDPmf(interval, masses.lowest, masses.mass, masses.infinity, True)


def on_grid(pmf: pld_pmf.DensePLDPmf, interval: float) -> pld_pmf.DensePLDPmf:
    """Return a distribution on another grid; each loss goes to the two ends of its cell.

    The shares keep its mass under both hypotheses, as `pessimistic` does, so it is dominated.
    """
    losses = _losses(pmf)
    left = np.floor(losses / interval)
    up = np.clip(-np.expm1(left * interval - losses) / -math.expm1(-interval), 0.0, 1.0)
    cell = (left - left[0]).astype(int)
    cells = int(cell[-1]) + 2
    mass: Array = np.zeros(cells)
    mass += np.bincount(cell, (1.0 - up) * pmf._probs, cells)
    mass += np.bincount(cell + 1, up * pmf._probs, cells)
    return as_pmf(Masses(int(left[0]), mass, pmf._infinity_mass), interval)


def width_of(pmf: pld_pmf.DensePLDPmf) -> float:
    """Return the range of the finite losses of a distribution."""
    return float(pmf.size * pmf._discretization)


def deviation_of(pmf: pld_pmf.DensePLDPmf) -> float:
    """Return the standard deviation of the finite losses of a distribution."""
    losses = _losses(pmf)
    mean = float(pmf._probs @ losses)
    return math.sqrt(max(float(pmf._probs @ (losses - mean) ** 2), 0.0))


def _losses(pmf: pld_pmf.DensePLDPmf) -> Array:
    losses: Array = (pmf._lower_loss + np.arange(float(pmf.size))) * pmf._discretization
    return losses


def loss_range(share: float, sample_rate: float, pair: Pair) -> tuple[float, float]:
    """Return losses of (1−q)Q + qP against Q outside of which at most `share` of its mass lies."""
    reach = pair.reach(min(share / sample_rate, 0.5))
    high = float(np.logaddexp(math.log1p(-sample_rate), math.log(sample_rate) + reach))
    low = float(np.logaddexp(math.log1p(-sample_rate), math.log(sample_rate) - reach))
    return low, high


def step_deviation(sample_rate: float, pair: Pair) -> float:
    """Return the standard deviation of one step's loss, from 4,000 cells."""
    low, high = loss_range(1e-12, 1.0 - 1e-15, pair)
    edges = np.linspace(low, high, 4001)
    p, q_mass = pair.masses(edges)
    middles = (edges[1:] + edges[:-1]) / 2.0
    near = np.minimum(middles, LARGEST_EXPONENT)
    loss = np.log1p(sample_rate * np.expm1(near)) + (middles - near)
    weight = (1.0 - sample_rate) * q_mass + sample_rate * p
    total = float(weight.sum())
    mean = float(weight @ loss) / total
    return math.sqrt(max(float(weight @ (loss - mean) ** 2) / total, 0.0))
