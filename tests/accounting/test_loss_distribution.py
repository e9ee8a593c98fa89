"""One step's loss distribution against closed forms, quadrature and dp-accounting's own grid."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from lower_bounds import optimistic
from scipy import special

from simplexdp.accounting import loss_distribution as one

SETTINGS = [(0.005, 0.235, 3.0), (0.3, 2.5, 3.0), (0.02, 0.05, 0.1), (0.9, 5.0, 40.0)]


def vertex_delta(epsilon, r, alpha):
    """The closed form: I_s(α, α+r) − e^ε I_s(α+r, α), s = σ(−ε/r)."""
    s = special.expit(-epsilon / r)
    return special.betainc(alpha, alpha + r, s) - math.exp(epsilon) * special.betainc(
        alpha + r, alpha, s
    )


def sampled_delta(epsilon, q, r, alpha, add):
    """∫ (upper − e^ε lower)_+ by mpmath, over t, split where the integrand turns."""
    with mpmath.workdps(30):
        a, rr, qq = mpmath.mpf(alpha), mpmath.mpf(r), mpmath.mpf(q)
        beta = mpmath.beta(a + rr, a)

        def integrand(x):
            t, s = 1 / (1 + mpmath.exp(-x)), 1 / (1 + mpmath.exp(x))
            jacobian = t * s
            p = t ** (a + rr - 1) * s ** (a - 1) / beta
            other = t ** (a - 1) * s ** (a + rr - 1) / beta
            mixed = qq * p + (1 - qq) * other
            upper, lower = (other, mixed) if add else (mixed, other)
            return max(upper - mpmath.exp(epsilon) * lower, 0) * jacobian

        sign = -1 if add else 1
        inside = mpmath.expm1(sign * epsilon) / qq + 1
        turn = mpmath.log(inside) / rr if inside > 0 else None
        reach = 40 / a + 10
        points = [-reach, 0, reach] if turn is None else sorted({-reach, turn, 0, reach})
        return float(mpmath.quad(integrand, points, maxdegree=9))


def hockey_stick(masses, interval, epsilon):
    losses = (masses.lowest + np.arange(len(masses.mass))) * interval
    return masses.infinity + float(
        np.sum(masses.mass * np.maximum(0.0, -np.expm1(epsilon - losses)))
    )


@pytest.mark.parametrize(("q", "r", "alpha"), SETTINGS)
@pytest.mark.parametrize("add", [False, True])
def test_pessimistic_and_optimistic_enclose_the_truth(q, r, alpha, add):
    deviation = one.step_deviation(q, one.VertexPair(r, alpha))
    low, high = one.loss_range(1e-12, q, one.VertexPair(r, alpha))
    bounds = (-high, -low) if add else (low, high)
    interval = deviation / 20
    above = one.pessimistic(bounds, interval, sample_rate=q, pair=one.VertexPair(r, alpha), add=add)
    below = optimistic(bounds, interval, sample_rate=q, pair=one.VertexPair(r, alpha), add=add)
    for masses in (above, below):
        assert masses.mass.sum() + masses.infinity == pytest.approx(1.0, abs=1e-12)
        assert masses.mass.min() >= 0
    for multiple in (-1.3, 0.0, 0.37, 2.1):
        epsilon = multiple * deviation
        truth = sampled_delta(epsilon, q, r, alpha, add)
        assert hockey_stick(below, interval, epsilon) <= truth + 1e-11
        assert truth <= hockey_stick(above, interval, epsilon) + 1e-11
        assert hockey_stick(above, interval, epsilon) <= truth + 0.01 * deviation
        assert hockey_stick(below, interval, epsilon) >= truth - 0.02 * deviation


@pytest.mark.parametrize("left_out", [1e-12, 1e-3])
@pytest.mark.parametrize(("q", "r", "alpha"), SETTINGS)
def test_connect_the_dots_is_exact_on_the_grid(q, r, alpha, left_out):
    """On grid points the pessimistic curve is the curve itself: q·δ(ε') for 'remove'."""
    interval = one.step_deviation(q, one.VertexPair(r, alpha)) / 5
    bounds = one.loss_range(left_out, q, one.VertexPair(r, alpha))
    masses = one.pessimistic(
        bounds, interval, sample_rate=q, pair=one.VertexPair(r, alpha), add=False
    )
    assert masses.mass.sum() + masses.infinity == pytest.approx(1.0, abs=1e-12)
    for k in (0, 1, 3, 7):
        inner = math.log1p(math.expm1(k * interval) / q)
        expected = q * vertex_delta(inner, r, alpha)
        assert hockey_stick(masses, interval, k * interval) == pytest.approx(expected, rel=1e-8)


def test_masses_against_dp_accountings_connect_the_dots():
    q, r, alpha, interval = 0.2, 1.0, 3.0, 0.01
    masses = one.pessimistic(
        (-0.3, 2.0), interval, sample_rate=q, pair=one.VertexPair(r, alpha), add=False
    )
    k = masses.lowest + np.arange(len(masses.mass))
    deltas = []
    for loss in k * interval:
        inside = 1 + math.expm1(loss) / q
        deltas.append(
            q * vertex_delta(math.log(inside), r, alpha) if inside > 0 else -math.expm1(loss)
        )
    peer = pld_pmf.create_pmf_pessimistic_connect_dots(interval, k, deltas)
    for epsilon in (-0.1, 0.0, 0.123, 0.5, 1.0):
        assert hockey_stick(masses, interval, epsilon) == pytest.approx(
            peer.get_delta_for_epsilon(epsilon), rel=1e-6, abs=1e-12
        )


@pytest.mark.parametrize("logit", [700.0, 2000.0])
def test_far_tails_of_small_alpha_keep_their_mass(logit):
    """At α = 0.01 a quarter of the mass of a tail lies beyond what a float t can hold."""
    r, alpha, edge = 0.009, 0.01, 0.009 * logit
    p, _ = one.vertex_masses(np.array([edge, math.inf]), r, alpha)
    with mpmath.workdps(30):
        a, b = mpmath.mpf(alpha), mpmath.mpf(alpha) + mpmath.mpf(r)
        u = mpmath.exp(-mpmath.mpf(edge) / mpmath.mpf(r))
        expected = mpmath.betainc(a, b, 0, u, regularized=True)
    assert p[0] == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.parametrize(("q", "r", "alpha"), SETTINGS)
def test_the_range_leaves_out_no_more_than_its_share(q, r, alpha):
    low, high = one.loss_range(1e-9, q, one.VertexPair(r, alpha))
    masses = one.pessimistic(
        (low, high), (high - low) / 100, sample_rate=q, pair=one.VertexPair(r, alpha), add=False
    )
    assert masses.infinity <= 1e-9


@pytest.mark.parametrize("interval", [0.0007, 0.013, 0.11])
def test_on_another_grid_the_masses_stay_and_no_curve_gets_lower(interval):
    """Connect-the-dots: the mass under P and that under Q, Σ mass e^{−loss}, are both kept."""
    masses = one.pessimistic(
        (-1.0, 2.0), 0.003, sample_rate=0.3, pair=one.GaussianPair(1.5), add=False
    )
    pmf = one.as_pmf(masses, 0.003)
    other = one.on_grid(pmf, interval)
    moved = one.Masses(other._lower_loss, other._probs, other._infinity_mass)
    losses = (moved.lowest + np.arange(len(moved.mass))) * interval
    before = (masses.lowest + np.arange(len(masses.mass))) * 0.003
    assert math.fsum(moved.mass) == pytest.approx(math.fsum(masses.mass), rel=1e-12)
    lower = math.fsum(masses.mass * np.exp(-before))
    assert math.fsum(moved.mass * np.exp(-losses)) == pytest.approx(lower, rel=1e-12)
    assert moved.infinity == masses.infinity > 0
    for epsilon in np.linspace(0.0, 2.5, 60):
        truth = hockey_stick(masses, 0.003, epsilon)
        assert truth * (1 - 1e-12) <= hockey_stick(moved, interval, epsilon)
        assert hockey_stick(moved, interval, epsilon) <= truth + interval**2
