"""T steps by privacy loss distribution: Monte Carlo, the Gaussian limit, bounds from both sides."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from lower_bounds import lower_epsilon
from scipy import integrate, special, stats

from simplexdp.accounting import account, calibrate
from simplexdp.accounting.composed import HIDDEN, VISIBLE, Step, upper_epsilon
from simplexdp.accounting.loss_distribution import VertexPair, vertex_masses

CIFAR10 = {"alpha": 3.0, "sample_rate": 0.005, "steps": 20_000, "delta": 1e-5}
PAPER = [
    (0.005, 20_000, 0.235),
    (0.005, 20_000, 0.903),
    (250 / 60_000, 9_600, 0.136),
    (70 / 7_007, 6_006, 0.856),
    (250 / 73_257, 11_722, 0.964),
]


def losses_of(t, q, r, participation):
    base = r * special.logit(t)
    return np.log1p(q * np.expm1(base)) if participation == HIDDEN else base


def sampled_loss(rng, size, q, r, alpha, participation, add):
    """Losses of one step, drawn from its upper distribution."""
    chosen = rng.random(size) < q
    high, low = rng.beta(alpha + r, alpha, size), rng.beta(alpha, alpha + r, size)
    if participation == VISIBLE:
        return np.where(chosen, losses_of(high, q, r, VISIBLE), 0.0)
    if add:
        return -losses_of(low, q, r, HIDDEN)
    return losses_of(np.where(chosen, high, low), q, r, HIDDEN)


@pytest.mark.parametrize("participation", [HIDDEN, VISIBLE])
def test_against_monte_carlo(participation):
    """δ at the figure's ε, by 4·10^5 draws; false failure below 1e-4 for the four intervals."""
    rng = np.random.default_rng(20)
    q, r, alpha, steps, delta, draws = 0.2, 1.5, 3.0, 5, 0.02, 400_000
    step = Step(participation, q, VertexPair(r, alpha))
    upper = upper_epsilon(step, steps, delta, 64.0)
    lower = lower_epsilon(step, steps, delta, 128.0)
    estimates = []
    for add in (False, True):
        total = sum(sampled_loss(rng, draws, q, r, alpha, participation, add) for _ in range(steps))
        at_upper = np.maximum(0.0, -np.expm1(upper - total))
        at_lower = np.maximum(0.0, -np.expm1(lower - total))
        estimates.append((at_upper.mean(), at_lower.mean(), at_lower.std() / math.sqrt(draws)))
    error = max(row[2] for row in estimates)
    assert max(row[0] for row in estimates) <= delta + 4.5 * error
    assert max(row[1] for row in estimates) >= delta - 4.5 * error
    assert upper == pytest.approx(lower, rel=0.01)


@pytest.mark.parametrize(("q", "steps"), [(0.05, 100), (0.3, 20)])
def test_gaussian_limit(q, steps):
    """For large α the loss r·logit(t) is normal: a Gaussian mechanism of μ² = 2 r² ψ'(α)."""
    alpha, r = 1e5, 200.0
    mu = r * math.sqrt(special.polygamma(1, alpha) + special.polygamma(1, alpha + r))
    peer = privacy_loss_distribution.from_gaussian_mechanism(
        standard_deviation=1 / mu, sampling_prob=q, value_discretization_interval=5e-4
    ).self_compose(steps)
    ours = account("pld", r=r, alpha=alpha, sample_rate=q, steps=steps, delta=1e-5).epsilon
    assert ours == pytest.approx(peer.get_epsilon_for_delta(1e-5), rel=0.01)


@pytest.mark.parametrize(("q", "steps", "r"), PAPER)
@pytest.mark.parametrize("participation", [HIDDEN, VISIBLE])
def test_between_the_bounds_within_one_percent(q, steps, r, participation):
    step = Step(participation, q, VertexPair(r, 3.0))
    name = "pld" if participation == HIDDEN else "visible-pld"
    figure = account(name, r=r, alpha=3.0, sample_rate=q, steps=steps, delta=1e-5).epsilon
    lower = lower_epsilon(step, steps, 1e-5)
    assert lower <= figure <= 1.01 * lower


def test_never_above_the_exact_renyi_figure():
    """The Rényi divergence of the subsampled vertex pair itself, by quadrature, is an upper
    bound on the same quantity: a figure above it would be loose, far below it wrong."""
    q, r, alpha, steps, delta = 0.005, 0.235, 3.0, 20_000, 1e-5
    lower = stats.beta(alpha, alpha + r)
    best = math.inf
    for order in np.linspace(30, 60, 16):
        excess = integrate.quad(
            lambda t, k=order: math.expm1(k * float(losses_of(t, q, r, HIDDEN))) * lower.pdf(t),
            0,
            1,
            epsabs=1e-13,
        )[0]
        figure = steps * math.log1p(excess) / (order - 1)
        figure += math.log1p(-1 / order) - (math.log(delta) + math.log(order)) / (order - 1)
        best = min(best, figure)
    figure = account("pld", r=r, **CIFAR10).epsilon
    assert 0.85 * best < figure < best


@pytest.mark.parametrize(("r", "looser"), [(0.235, 0.62), (0.903, 2.69)])
def test_rounding_every_loss_up_gives_the_looser_figures(r, looser):
    """0.62 … 2.69 are this distribution with each step's loss rounded up to a
    multiple of 1e-5, which adds about T·1e-5/2 = 0.1; connecting the dots does not pay that."""
    interval, q, steps = 1e-5, 0.005, 20_000
    k = np.arange(-510, round(4 * r**3 / interval) + 20_000)
    inside = 1 + np.expm1(k * interval) / q
    edges = np.where(inside > 0, np.log(np.maximum(inside, 1e-300)), -np.inf)
    p, base = vertex_masses(np.append(edges, np.inf), r, 3.0)
    mass = (1 - q) * base + q * p
    rounded = dict(zip((k + 1).tolist(), mass.tolist(), strict=True))
    peer = privacy_loss_distribution.PrivacyLossDistribution.create_from_rounded_probability(
        rounded, 0.0, interval
    ).self_compose(steps, 1e-10)
    figure = peer.get_epsilon_for_delta(1e-5)
    assert figure == pytest.approx(looser, abs=0.006)
    assert account("pld", r=r, **CIFAR10).epsilon == pytest.approx(figure - 0.1, abs=0.01)


@pytest.mark.parametrize("name", ["pld", "visible-pld"])
@pytest.mark.parametrize("epsilon", [1.0])
def test_calibration_is_on_the_safe_side(name, epsilon):
    found = calibrate(name, epsilon=epsilon, **CIFAR10)
    assert found.order is None
    assert found.epsilon <= epsilon
    assert account(name, r=found.r, **CIFAR10).epsilon == found.epsilon
    assert account(name, r=found.r * 1.005, **CIFAR10).epsilon > epsilon
    looser = "exact" if name == "pld" else "visible"
    assert found.r > calibrate(looser, epsilon=epsilon, **CIFAR10).r


def test_what_the_grid_cannot_resolve_is_refused():
    with pytest.raises(ValueError, match="too small for pld"):
        account("pld", r=0.1, alpha=3.0, sample_rate=0.005, steps=100, delta=1e-14)
    with pytest.raises(ValueError, match="fewer steps"):
        account("pld", r=0.01, alpha=3.0, sample_rate=0.005, steps=10**9, delta=1e-5)


def test_where_rounding_would_take_a_tenth_of_delta():
    """At T = 20,000 between δ = 1e-8 and 1e-9; at δ = 1e-5 below T = 10^8."""
    where = {"r": 0.235, "alpha": 3.0, "sample_rate": 0.005}
    looser = account("pld", **where, steps=20_000, delta=1e-7).epsilon
    assert account("pld", **where, steps=20_000, delta=1e-8).epsilon > looser
    # At 7e-9 it is what the transform moved that is too much, seen when it is done.
    for steps, delta in ((20_000, 7e-9), (20_000, 1e-9), (10**8, 1e-5)):
        with pytest.raises(ValueError, match="rounding may move"):
            account("pld", **where, steps=steps, delta=delta)


def test_a_draw_that_leaks_less_than_delta_costs_nothing():
    assert account("pld", r=1e-6, alpha=3.0, sample_rate=0.01, steps=10, delta=1e-5).epsilon == 0


def test_a_coarse_grid_is_only_ever_larger():
    step = Step(HIDDEN, 0.005, VertexPair(0.235, 3.0))
    figures = [upper_epsilon(step, 20_000, 1e-5, per) for per in (1.0, 4.0, 16.0, 64.0)]
    assert figures == sorted(figures, reverse=True)
    assert figures[-1] >= lower_epsilon(step, 20_000, 1e-5)


def test_losses_beyond_the_largest_float_do_not_end_the_search():
    """The search visits r = α/4; in the Gaussian limit r grows with the root of α."""
    schedule = {"sample_rate": 0.01, "steps": 50, "delta": 1e-5}
    small, large = (calibrate("pld", epsilon=1.0, alpha=a, **schedule).r for a in (1e3, 1e4))
    assert large / small == pytest.approx(math.sqrt(10), rel=0.01)
    assert account("pld", r=999.0, alpha=1000.0, **schedule).epsilon > 600
