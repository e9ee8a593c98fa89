"""Theorem 1 and its relatives against plain double loops in mpmath."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from simplexdp.accounting import account, renyi

DIGITS = 60


def lemma_moment(j, r, alpha):
    return (j - 1) * j * r**2 * mpmath.psi(1, alpha - (j - 1) * r)


def vertex_moment(j, r, alpha):
    return (
        mpmath.loggamma(alpha + j * r)
        + mpmath.loggamma(alpha - (j - 1) * r)
        - mpmath.loggamma(alpha + r)
        - mpmath.loggamma(alpha)
    )


def bracket(order, q, moment):
    """The bracket of Theorem 1, term by term as printed."""
    total = (1 - q) ** (order - 1) * (q * order - q + 1)
    total += mpmath.binomial(order, 2) * q**2 * (1 - q) ** (order - 2) * mpmath.exp(moment[2])
    for j in range(3, order + 1):
        total += (
            3 * mpmath.binomial(order, j) * (1 - q) ** (order - j) * q**j * mpmath.exp(moment[j])
        )
    return total


def orders_of(r, alpha):
    order, found = 2, []
    while order < 1 + alpha / r:
        found.append(order)
        order += 1
    return found


def convert(order, delta):
    return mpmath.log(order - 1) - (mpmath.log(delta) + order * mpmath.log(order)) / (order - 1)


def check(actual, expected):
    assert actual == pytest.approx(max(float(expected), 0.0), rel=1e-9, abs=1e-12)


RATIOS = (1.000001, 1.5, 2.0, 3.7, 12.766, 60.3)
STEPS = (1, 20_000, 10**8)
DELTAS = (0.3, 1e-5, 1e-30)


@pytest.mark.parametrize("q", [1e-9, 1e-5, 0.005, 0.1, 0.5])
@pytest.mark.parametrize("alpha", [0.05, 3.0, 100.0])
def test_theorem1_and_visible_against_a_double_loop(q, alpha):
    with mpmath.workdps(DIGITS):
        for ratio in RATIOS:
            r = alpha / ratio
            mr, ma, mq = mpmath.mpf(r), mpmath.mpf(alpha), mpmath.mpf(q)
            orders = orders_of(mr, ma)
            moment = {j: lemma_moment(j, mr, ma) for j in orders}
            hidden = {k: mpmath.log(bracket(k, mq, moment)) / (k - 1) for k in orders}
            seen = {k: mpmath.log(1 - mq + mq * mpmath.exp(moment[k])) / (k - 1) for k in orders}
            for steps in STEPS:
                for delta in DELTAS:
                    for name, curve in (("theorem1", hidden), ("visible", seen)):
                        cost = account(
                            name, r=r, alpha=alpha, sample_rate=q, steps=steps, delta=delta
                        )
                        figures = {k: steps * curve[k] + convert(k, delta) for k in orders}
                        check(cost.epsilon, min(figures.values()))
                        check(cost.epsilon, figures[cost.order])


@pytest.mark.parametrize("q", [1e-9, 0.005, 0.5])
def test_exact_against_a_double_loop(q):
    with mpmath.workdps(DIGITS):
        for alpha, r in ((3.0, 0.235), (3.0, 1.7), (0.1, 0.0087), (50.0, 1.0), (3.0, 0.75)):
            mr, ma, mq = mpmath.mpf(r), mpmath.mpf(alpha), mpmath.mpf(q)
            orders = orders_of(mr, ma)
            moment = {
                j: (vertex_moment if j <= ma / mr else lemma_moment)(j, mr, ma) for j in orders
            }
            curve = {k: mpmath.log(bracket(k, mq, moment)) / (k - 1) for k in orders}
            for steps in STEPS:
                cost = account("exact", r=r, alpha=alpha, sample_rate=q, steps=steps, delta=1e-5)
                check(cost.epsilon, min(steps * curve[k] + convert(k, 1e-5) for k in orders))


@pytest.mark.parametrize(("order", "q"), [(2000, 1e-9), (3999, 0.005)])
def test_thousands_of_orders(order, q):
    alpha, r = 3.0, 3.0 / 4000.5
    moments = renyi.lemma_log_moment(np.arange(order + 1.0), r, alpha)
    actual = np.logaddexp(0.0, renyi.log_excess(np.array([order]), moments, q))[0]
    with mpmath.workdps(35):
        mr, ma, mq = mpmath.mpf(r), mpmath.mpf(alpha), mpmath.mpf(q)
        total, weight = mpmath.mpf(0), (1 - mq) ** order
        for j in range(order + 1):
            factor = 1 if j < 3 else 3
            total += factor * weight * mpmath.exp(lemma_moment(j, mr, ma) if j > 1 else 0)
            weight *= mq / (1 - mq) * (order - j) / (j + 1)
        assert actual == pytest.approx(float(mpmath.log(total)), rel=1e-9)


def test_pruning_leaves_the_minimum_over_every_order():
    """The figure equals the least over all orders, each of them evaluated."""
    for alpha, r, q, steps in (
        (3.0, 0.01, 0.005, 2000),
        (1.0, 0.002, 0.3, 3),
        (3.0, 0.004, 0.5, 1),
    ):
        top = renyi.top_order(r, alpha)
        orders = np.arange(2, top + 1)
        moments = renyi.lemma_log_moment(np.arange(top + 1.0), r, alpha)
        every = steps * np.logaddexp(0.0, renyi.log_excess(orders, moments, q)) / (orders - 1.0)
        every = every + renyi.conversion(orders.astype(float), 1e-5)
        cost = account("theorem1", r=r, alpha=alpha, sample_rate=q, steps=steps, delta=1e-5)
        assert cost.epsilon == pytest.approx(float(every.min()), rel=1e-12)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 1.0, 3.0, 20.0, 100.0])
def test_exact_moment_has_all_its_digits_and_is_never_above_the_lemma(alpha):
    with mpmath.workdps(DIGITS):
        for ratio in (2.0, 2.5, 7.3, 100.0, 1e4, 1e7):
            r = alpha / ratio
            for order in {2, 3, min(50, int(ratio)), min(5000, int(ratio))} - {0, 1}:
                if order > ratio:
                    continue
                value = renyi.exact_log_moment(np.array([float(order)]), r, alpha)[0]
                oracle = vertex_moment(mpmath.mpf(order), mpmath.mpf(r), mpmath.mpf(alpha))
                assert value == pytest.approx(float(oracle), rel=1e-10)
                lemma = renyi.lemma_log_moment(np.array([float(order)]), r, alpha)[0]
                assert value <= lemma * (1 + 1e-12)


def test_known_values_of_the_paper():
    """CIFAR10 at r = 0.404 is above its printed budget of 2; participation in view costs 13."""
    setting = {"alpha": 3.0, "sample_rate": 0.005, "steps": 20_000, "delta": 1e-5}
    assert account("theorem1", r=0.404, **setting).epsilon == pytest.approx(2.05, abs=5e-3)
    assert account("visible", r=0.235, **setting).epsilon == pytest.approx(13.0, abs=0.5)


@pytest.mark.parametrize(("q", "steps"), [(0.0445, 690), (0.005, 20_000)])
def test_floor_as_r_vanishes(q, steps):
    """T/(λ−1)·log(1 + 2·P[Bin(λ, q) ≥ 3]) plus the conversion, summed directly."""
    delta, orders = 1e-5, np.arange(2, renyi.MAX_ORDER + 1)
    loss = steps / (orders - 1) * np.log1p(2 * stats.binom.sf(2, orders, q))
    best = min(loss + [float(convert(order, delta)) for order in orders.tolist()])
    cost = account("theorem1", r=3e-8, alpha=3.0, sample_rate=q, steps=steps, delta=delta)
    beyond = renyi.subsampling_floor(q, steps, delta)
    assert cost.epsilon == pytest.approx(beyond.epsilon, rel=1e-6)
    assert beyond.epsilon == pytest.approx(best, rel=1e-9)


def test_a_negative_figure_is_reported_as_zero():
    for name in ("theorem1", "exact", "visible"):
        cost = account(name, r=1e-3, alpha=3.0, sample_rate=1e-6, steps=1, delta=0.9)
        assert cost.epsilon == 0.0


rates = st.floats(-9, -0.31).map(lambda x: 10**x)
setting = {
    "alpha": st.floats(0.05, 100.0),
    "ratio": st.floats(1.01, 300.0),
    "q": rates,
    "steps": st.floats(0, 8).map(lambda x: round(10**x)),
    "delta": st.floats(-30, -1).map(lambda x: 10**x),
}


@settings(max_examples=60, deadline=None)
@given(**setting, more=st.floats(1.0, 2.0))
def test_monotone_in_everything(alpha, ratio, q, steps, delta, more):
    base = {"r": alpha / ratio, "alpha": alpha, "sample_rate": q, "steps": steps, "delta": delta}
    worse = [
        base | {"r": min(base["r"] * more, alpha * 0.999)},
        base | {"sample_rate": min(q * more, 0.99)},
        base | {"steps": math.ceil(steps * more)},
        base | {"delta": delta / more},
    ]
    for name in ("theorem1", "exact", "visible"):
        cost = account(name, **base).epsilon
        for other in worse:
            assert account(name, **other).epsilon >= cost * (1 - 1e-10)
    assert account("exact", **base).epsilon <= account("theorem1", **base).epsilon * (1 + 1e-10)
