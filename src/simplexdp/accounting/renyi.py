"""The cost of the draws in Rényi divergence, and in (ε, δ).

The vocabulary of this file, for a mechanism Dir(r·g(x) + α·1) and an order λ:

- the *log moment* f(λ) is (λ − 1) times a bound on the Rényi divergence of order λ of one draw
  (`lemma_log_moment`: the paper's lemma; `exact_log_moment`: the divergence of the vertex pair);
- the *excess* E(λ) is the bracket of Theorem 1 minus one. The bracket is a binomial sum whose
  weights add to one, so that

      E(λ) = Bin(2)·(e^{f(2)} − 1) + Σ_{j=3..λ} Bin(j)·(3 e^{f(j)} − 1),

  a sum of positive terms: nothing cancels, whatever q, T and the order are.

Everything is a sum of logarithms; no quantity overflows or loses digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

Array = npt.NDArray[np.float64]
LogMoment = Callable[[Array, float, float], Array]

MAX_ORDER = 16_384
"""The largest order tried. Every admissible order gives a valid bound and the figure is the
least of them, so a cap can only make the figure larger, never too small. An optimum above it
needs ε below about log(1/δ)/8,000: 0.0014 at δ = 1e-5."""

_BLOCK = 1 << 19
"""Entries of the (order, j) table held in memory at once."""

_SERIES_RATIO = 0.25
_SERIES_TERMS = 16


@dataclass(frozen=True)
class Setting:
    """What a cost depends on: r, α, the sampling rate q, the steps T and δ."""

    r: float
    alpha: float
    sample_rate: float
    steps: int
    delta: float


@dataclass(frozen=True)
class Cost:
    """What a run costs.

    Attributes:
        epsilon: ε at the δ that was asked for.
        order: The Rényi order that gave it, for accountants that have one.
    """

    epsilon: float
    order: int | None


def lemma_log_moment(order: Array, r: float, alpha: float) -> Array:
    """Return (λ − 1)·ε̂(λ) with ε̂(λ) = λ r² ψ'(α − (λ−1) r).

    Formal guarantee
        One draw from Dir(r·g(x) + α·1), at parameters that do not depend on x, is
        (λ, ε̂(λ))-RDP under replace-input for 1 < λ < 1 + α/r.
        Source: the paper's RDP lemma (Ponnoprat 2021).
    """
    gap = alpha - (order - 1.0) * r
    trigamma = special.zeta(2.0, np.where(gap > 0, gap, 1.0))
    return np.where(gap > 0, (order - 1.0) * order * r * r * trigamma, np.inf)


def exact_log_moment(order: Array, r: float, alpha: float) -> Array:
    """Return (λ − 1)·D_λ between the draws of two vertices of the simplex.

    Formal guarantee
        D_λ = 1/(λ−1)·[lnΓ(α+λr) + lnΓ(α−(λ−1)r) − lnΓ(α+r) − lnΓ(α)] bounds the divergence of
        any two softmax outputs under replace-input for 1 < λ ≤ α/r: the divergence is convex
        in each argument there, so its maximum is at two vertices. Never above the lemma's bound.
        Source: docs/dominance.md, "Rényi divergences".

    With x = α + r/2 and h_λ = (λ − ½) r the value is G(h_λ) − G(h_1), G(h) = lnΓ(x+h) + lnΓ(x−h).
    Where h is small against x the difference would cancel; the Taylor series of G,
    Σ_k ζ(2k, x) h^{2k}/k, has positive terms only and does not.
    """
    x = alpha + r / 2.0
    h = (order - 0.5) * r
    gap = alpha - (order - 1.0) * r
    near = h <= _SERIES_RATIO * x
    k = np.arange(1.0, _SERIES_TERMS + 1.0)
    # ζ(2k, x) overflows for a small x: scale by x^{2k}, which the ratios h/x take back.
    weight = np.array([_scaled_zeta(2.0 * term, x) for term in k]) / k
    ratio = np.where(near, h / x, 0.0)[..., None] ** (2.0 * k) - (r / (2.0 * x)) ** (2.0 * k)
    ratio[..., 0] = order * (order - 1.0) * (r / x) ** 2
    series = np.sum(weight * ratio, axis=-1)
    far = (
        special.gammaln(alpha + order * r)
        + special.gammaln(np.where(gap > 0, gap, 1.0))
        - special.gammaln(alpha + r)
        - special.gammaln(alpha)
    )
    return np.where(gap > 0, np.where(near, series, far), np.inf)


def _scaled_zeta(s: float, x: float) -> float:
    """Return x^s ζ(s, x) = 1 + Σ_{k≥1} (x/(x+k))^s, for s ≥ 2, without overflow in x^-s."""
    shifted = float(special.zeta(s, x + 1.0))
    return 1.0 + (math.exp(s * math.log(x) + math.log(shifted)) if shifted > 0 else 0.0)


def top_order(r: float, alpha: float) -> int:
    """Return the largest integer order λ < 1 + α/r, up to the cap; at least 2 because r < α."""
    return max(2, math.ceil(min(alpha / r, MAX_ORDER)))


def conversion(orders: Array, delta: float) -> Array:
    """Return Theorem 1's log(λ−1) − (log δ + λ log λ)/(λ−1), so that nothing cancels.

    Source: Canonne, Kamath and Steinke 2020, Proposition 12, as the paper uses it.
    """
    result: Array = np.log1p(-1.0 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1.0)
    return result


@dataclass(frozen=True)
class _Binomial:
    """What Theorem 1 needs of Bin(λ, q) for every order up to the cap; independent of r."""

    log_factorial: Array
    log_two: Array  # log P[Bin = 2] by order
    log_tail: Array  # log P[Bin ≥ 3] by order
    tail_mean: Array  # E[Bin | Bin ≥ 3] by order


@lru_cache(maxsize=8)
def _binomial(sample_rate: float, size: int) -> _Binomial:
    orders = np.arange(2.0, size + 1.0)
    log_factorial = special.gammaln(np.arange(size + 1.0) + 1.0)
    log_two = (
        np.log(orders * (orders - 1.0) / 2.0)
        + 2.0 * math.log(sample_rate)
        + (orders - 2.0) * math.log1p(-sample_rate)
    )
    # P[Bin(n, q) ≥ k] is the regularised incomplete beta function I_q(k, n − k + 1).
    wide = orders[1:]
    tail = special.betainc(3.0, wide - 2.0, sample_rate)
    mean = wide * sample_rate * special.betainc(2.0, wide - 2.0, sample_rate) / tail
    return _Binomial(
        log_factorial,
        log_two,
        np.concatenate(([-np.inf], np.log(tail))),
        np.concatenate(([2.0], np.clip(mean, 3.0, wide))),
    )


def _tables(sample_rate: float, top: int) -> _Binomial:
    """Return tables that reach `top`, cached in powers of two so that calibrations share them."""
    size = min(MAX_ORDER, max(64, 1 << (top - 1).bit_length()))
    return _binomial(float(sample_rate), size)


def log_excess(orders: npt.NDArray[np.int64], moments: Array, sample_rate: float) -> Array:
    """Return log E(λ) of Theorem 1 for the given orders.

    `moments[j]` is the log moment f(j); indices 0 and 1 are not used. Memory is bounded: the
    (order, j) table is made in blocks.
    """
    top = int(orders.max())
    factorial = _tables(sample_rate, top).log_factorial
    j = np.arange(2, top + 1)
    f = moments[2 : top + 1]
    factor = f + np.log(3.0 - np.exp(-f))  # log(3 e^f − 1)
    factor[0] = _log_expm1(f[:1])[0]
    constant = j * math.log(sample_rate) - factorial[2 : top + 1] + factor
    log_absent = math.log1p(-sample_rate)
    rows = max(1, _BLOCK // max(1, top))
    result = np.empty(len(orders))
    for start in range(0, len(orders), rows):
        block = orders[start : start + rows]
        rest = block[:, None] - j[None, :]
        inside = rest >= 0
        rest = np.maximum(rest, 0)
        term = constant - factorial[rest] + rest * log_absent
        term = np.where(inside, term, -np.inf)
        peak = term.max(axis=1)
        finite = np.where(np.isfinite(peak), peak, 0.0)
        with np.errstate(over="ignore", divide="ignore"):
            total = np.log(np.exp(term - finite[:, None]).sum(axis=1)) + finite
        result[start : start + rows] = total + factorial[block]
    return result


def _log_expm1(f: Array) -> Array:
    """Return log(e^f − 1) for f ≥ 0."""
    with np.errstate(divide="ignore"):
        result: Array = np.where(
            f > 1.0,
            f + np.log1p(-np.exp(-np.maximum(f, 1.0))),
            np.log(np.expm1(np.minimum(f, 1.0))),
        )
    return result


def _compose(log_e: Array, orders: Array, steps: int, delta: float) -> Array:
    """Return T/(λ−1)·log(1 + E) + the conversion."""
    result: Array = steps * np.logaddexp(0.0, log_e) / (orders - 1.0) + conversion(orders, delta)
    return result


def _lower_bounds(moment: LogMoment, tables: _Binomial, top: int, r: float, alpha: float) -> Array:
    """Return a lower bound on log E(λ) at every order, at the cost of one table row.

    f is convex in its order, so by Jensen Σ_{j≥3} Bin(j) e^{f(j)} ≥ P[Bin ≥ 3]·e^{f(m)} with m the
    mean of Bin given Bin ≥ 3. The term j = 2 is kept as it is.
    """
    two = _log_expm1(moment(np.array([2.0]), r, alpha))[0]
    mean = moment(tables.tail_mean[: top - 1], r, alpha)
    tail = tables.log_tail[: top - 1] + mean + np.log(3.0 - np.exp(-mean))
    result: Array = np.logaddexp(tables.log_two[: top - 1] + two, tail)
    return result


def subsampled_cost(
    moment: LogMoment, moments: Array, setting: Setting, target: float | None = None
) -> Cost:
    """Return Theorem 1's cost with the log moments f(j) = moments[j], least over all orders.

    `moment` is a function convex in the order and nowhere above `moments`. Every order is
    considered, most promising first; one is left unevaluated only when a lower bound on its
    figure is above a figure already found. With a `target` the answer is the first figure found
    within it, or infinity where there is none.
    """
    q, steps, delta = setting.sample_rate, setting.steps, setting.delta
    top = len(moments) - 1
    orders = np.arange(2, top + 1)
    tables = _tables(q, top)
    # With a margin for rounding.
    excess = _lower_bounds(moment, tables, top, setting.r, setting.alpha) - 1e-9
    bound = _compose(excess, orders.astype(float), steps, delta)
    queue = np.argsort(bound, kind="stable")
    best, best_order = math.inf, None
    enough = -math.inf if target is None else target
    limit = math.inf if target is None else target
    position, size = 0, 32
    while position < len(queue) and bound[queue[position]] <= limit and best > enough:
        chunk = orders[queue[position : position + size]]
        chunk = chunk[bound[chunk - 2] <= limit]
        value = _compose(log_excess(chunk, moments, q), chunk.astype(float), steps, delta)
        least = int(np.argmin(value))
        if value[least] < best:
            best, best_order = float(value[least]), int(chunk[least])
        limit = min(limit, best)
        position += size
    if target is not None and best > target:
        return Cost(math.inf, None)
    return Cost(max(best, 0.0), best_order)


def theorem1(setting: Setting, target: float | None = None) -> Cost:
    """Return the cost by Theorem 1, as published.

    Formal guarantee
        The draws of Algorithm 1 are (ε, δ)-DP under add/remove, where an absent record emits a
        dummy draw: the lemma for one draw is replace-input, its amplification by sampling is
        add/remove. Assumptions: every update touches the data only through earlier draws; every
        record enters every batch independently with probability q; which records a batch holds
        stays secret; an unsampled record is not told apart from a sampled one by the absence of
        a draw (hidden participation); and the output of a record does not depend on other
        records of its batch. Algorithm 1's own updates break the first.
        It does not cover the released weights. Source: the paper, Theorem 1: the RDP lemma, the
        Poisson subsampling bound of Zhu and Wang 2019, the conversion of Canonne, Kamath and
        Steinke 2020.
    """
    r, alpha = setting.r, setting.alpha
    moments = lemma_log_moment(np.arange(top_order(r, alpha) + 1.0), r, alpha)
    return subsampled_cost(lemma_log_moment, moments, setting, target)


def exact(setting: Setting, target: float | None = None) -> Cost:
    """Return the cost by Theorem 1 with the vertex pair's exact divergence for the lemma's.

    Formal guarantee
        As `theorem1`, under the same assumptions. The exact divergence is used for the orders
        λ ≤ α/r, for which the vertex pair is proved to be the worst pair; the one admissible
        order above α/r keeps the lemma's bound. Never above `theorem1`.
    """
    r, alpha = setting.r, setting.alpha
    orders = np.arange(top_order(r, alpha) + 1.0)
    proved = orders * r <= alpha
    moments = np.where(
        proved, exact_log_moment(orders, r, alpha), lemma_log_moment(orders, r, alpha)
    )
    return subsampled_cost(exact_log_moment, moments, setting, target)


def visible(setting: Setting, target: float | None = None) -> Cost:
    """Return the cost when it is visible who was sampled.

    Formal guarantee
        The draws and the participation of every record are (ε, δ)-DP under replace-input: per
        step the divergence is at most 1/(λ−1)·log(1 − q + q e^{(λ−1) ε̂(λ)}), T steps compose,
        and the conversion is Theorem 1's. Assumptions: every record enters every batch
        independently with probability q, updates touch the data only through earlier draws, and
        the output of a record does not depend on other records of its batch. Who was in which
        batch may be known.
        It does not cover the released weights. Source: the paper's RDP lemma, mixed with the
        identity; the conversion of Canonne, Kamath and Steinke 2020.
    """
    orders = np.arange(2.0, top_order(setting.r, setting.alpha) + 1.0)
    f = lemma_log_moment(orders, setting.r, setting.alpha)
    log_e = math.log(setting.sample_rate) + _log_expm1(f)  # E = q (e^f − 1)
    return _least(_compose(log_e, orders, setting.steps, setting.delta), orders)


def _least(value: Array, orders: Array) -> Cost:
    least = int(np.argmin(value))
    return Cost(max(float(value[least]), 0.0), int(orders[least]))


def subsampling_floor(sample_rate: float, steps: int, delta: float) -> Cost:
    """Return what Theorem 1 tends to as r → 0: T/(λ−1)·log(1 + 2·P[Bin(λ,q) ≥ 3])."""
    orders = np.arange(2.0, MAX_ORDER + 1.0)
    log_e = math.log(2.0) + _tables(sample_rate, MAX_ORDER).log_tail
    return _least(_compose(log_e, orders, steps, delta), orders)


def most_steps_at_floor(sample_rate: float, epsilon: float, delta: float) -> int | None:
    """Return the most steps with Theorem 1's floor below ε; None where no number exceeds it.

    Order 2 has no term with the factor 3: a budget above its conversion has no floor.
    """
    orders = np.arange(2.0, MAX_ORDER + 1.0)
    room = (epsilon - conversion(orders, delta)) * (orders - 1.0)
    if room[0] > 0:
        return None
    per_step = np.logaddexp(0.0, math.log(2.0) + _tables(sample_rate, MAX_ORDER).log_tail[1:])
    return max(0, math.ceil(float(np.max(room[1:] / per_step))) - 1)
