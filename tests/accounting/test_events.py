"""Dirichlet events beside dp-accounting's own in one accountant."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import NeighboringRelation, UnsupportedEventError, privacy_accountant_test
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.pld_pmf import DensePLDPmf
from scipy import integrate, optimize, stats

from simplexdp.accounting import account, composed, rounding
from simplexdp.accounting.events import (
    DirichletDpEvent,
    VisiblySampledDpEvent,
    compose,
    dirichlet,
    gaussian,
    sampled_gaussian,
    steps_of,
)
from simplexdp.accounting.gaussian import gaussian_epsilon
from simplexdp.accounting.loss_distribution import GaussianPair, VertexPair
from simplexdp.accounting.simplex_accountant import SimplexAccountant, compose_by_distribution

RUN = {"r": 0.4, "alpha": 3.0, "sample_rate": 0.01}


@pytest.mark.parametrize(("participation", "name"), [("hidden", "pld"), ("visible", "visible-pld")])
def test_one_run_is_the_pld_figure(participation, name):
    event = dirichlet(**RUN, steps=2000, participation=participation)
    figure = account(name, **RUN, steps=2000, delta=1e-5).epsilon
    assert compose([event], 1e-5) == pytest.approx(figure, rel=0.01)


def test_two_halves_are_the_whole():
    halves = [dirichlet(**RUN, steps=1000)] * 2
    whole = compose([dirichlet(**RUN, steps=2000)], 1e-5)
    assert compose(halves, 1e-5) == pytest.approx(whole, rel=5e-3)


def test_a_gaussian_event_alone_is_the_closed_form():
    gaussian = [dp_accounting.GaussianDpEvent(2.0)]
    figure = compose_by_distribution(gaussian, 1e-5)
    assert figure == pytest.approx(gaussian_epsilon(0.5, 1e-5), rel=1e-3)
    assert compose(gaussian, 1e-5) == pytest.approx(gaussian_epsilon(0.5, 1e-5), rel=1e-12)


def test_mixed_events_cost_more_than_each_and_less_than_the_sum():
    run = dirichlet(**RUN, steps=2000)
    other = dp_accounting.GaussianDpEvent(4.0)
    parts = [compose([event], 1e-5) for event in (run, other)]
    both = compose([run, other], 1e-5)
    assert max(parts) < both < sum(parts)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Balle and Wang's curve, which a negative ε has too."""
    upper = stats.norm.logsf(epsilon / mu - mu / 2), stats.norm.logcdf(-epsilon / mu - mu / 2)
    return math.exp(upper[0]) - math.exp(epsilon + upper[1])


def beside_one_step(mu: float, sigma: float, q: float, epsilon: float, remove: bool) -> float:
    """δ(ε) of a Gaussian release and one sampled step, by integration over the step's outcome."""

    def loss(x: float) -> float:
        return float(np.logaddexp(math.log1p(-q), math.log(q) + (x - 0.5) / sigma**2))

    def integrand(x: float) -> float:
        without, present = stats.norm.pdf(x, 0, sigma), stats.norm.pdf(x, 1, sigma)
        if remove:
            return float(((1 - q) * without + q * present) * gaussian_delta(mu, epsilon - loss(x)))
        return float(without * gaussian_delta(mu, epsilon + loss(x)))

    return float(integrate.quad(integrand, -12 * sigma, 1 + 12 * sigma, limit=500)[0])


@pytest.mark.parametrize(
    ("mu", "sigma", "q"), [(0.5, 1.0, 0.1), (1.0, 0.6, 0.02), (0.02, 3.0, 0.5)]
)
def test_a_release_beside_a_sampled_step_is_what_integration_says(mu, sigma, q):
    truth = max(
        optimize.brentq(lambda e, way=way: beside_one_step(mu, sigma, q, e, way) - 1e-5, 0, 40)
        for way in (True, False)
    )
    ours = compose([gaussian(1 / mu), sampled_gaussian(sigma, q, 1)], 1e-5)
    assert truth <= ours <= 1.002 * truth


SEVERAL = (
    [gaussian(50.0, 400), sampled_gaussian(4.0, 0.01, 500)],
    [gaussian(4.0), dirichlet(**RUN, steps=2000), sampled_gaussian(1.0, 0.02, 200)],
    [dirichlet(**RUN, steps=500, participation="visible"), dirichlet(0.3, 2.0, 0.02, 500)],
    [sampled_gaussian(0.6, 0.001, 100), gaussian(50.0)],
    [dp_accounting.SelfComposedDpEvent(DirichletDpEvent(0.4, 3.0), 3), gaussian(5.0)],
)


@pytest.mark.parametrize("events", SEVERAL)
def test_several_kinds_cost_what_one_accountant_says_of_them_all(events):
    """It puts all steps on one fine grid, one after the other; here each kind has its own."""
    accountant = SimplexAccountant(value_discretization_interval=2e-5, delta=1e-5)
    for event in events:
        for step, count in steps_of(event):
            accountant.compose(step, count)
    assert compose(events, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=2e-3)
    assert compose(events[::-1], 1e-5) == pytest.approx(compose(events, 1e-5), rel=1e-9)


def test_of_several_kinds_the_larger_direction_counts(monkeypatch):
    """Removing costs more here, and were it the other way round, adding would count."""
    steps = [sampled_gaussian(0.8, 0.1, 3), sampled_gaussian(0.9, 0.1, 3)]
    accountant = SimplexAccountant(value_discretization_interval=1e-4, delta=1e-6)
    for event in steps:
        accountant.compose(event)
    ways = (accountant._pld._pmf_remove, accountant._pld._pmf_add)
    remove, add = (float(pmf.get_epsilon_for_delta(1e-5)) for pmf in ways)
    assert remove > 1.01 * add
    assert compose(steps, 1e-5) == pytest.approx(remove, rel=2e-3)
    real = composed._compose

    def turned(*given):
        pmfs, left = real(*given)
        return pmfs[::-1], left

    monkeypatch.setattr(composed, "_compose", turned)
    assert compose(steps, 1e-5) == pytest.approx(remove, rel=2e-3)


def test_rounding_is_set_aside_for_every_kind(monkeypatch):
    """What is set aside for the kinds, the release and their sums is taken from δ, to the last."""
    asked = []
    real = DensePLDPmf.get_epsilon_for_delta
    monkeypatch.setattr(
        DensePLDPmf,
        "get_epsilon_for_delta",
        lambda pmf, delta: asked.append(delta) or real(pmf, delta),
    )
    monkeypatch.setattr(GaussianPair, "moved", lambda pair, steps: 1e-8 * steps)
    monkeypatch.setattr(rounding, "self_composition", lambda *_: 1e-9)
    monkeypatch.setattr(rounding, "composition", lambda *_: 1e-10)
    kinds = [gaussian(5.0), sampled_gaussian(1.7, 0.01, 3), sampled_gaussian(1.8, 0.01, 4)]
    compose(kinds, 1e-5)
    # Of the release and 7 steps; of two powers; of two convolutions.
    assert asked == [pytest.approx(1e-5 - 8e-8 - 2e-9 - 2e-10, rel=1e-12)] * len(asked)
    monkeypatch.setattr(rounding, "composition", lambda *_: 1e-6)
    with pytest.raises(ValueError, match="too small for pld"):
        compose(kinds, 1e-5)


def test_fifty_kinds_are_no_more_than_the_same_steps_of_the_loudest():
    """The share of δ that each kind may cut off gets smaller with their number."""
    kinds = [sampled_gaussian(4.0 + number / 1000, 0.01, 20) for number in range(50)]
    total = compose(kinds, 1e-5)
    loudest, faintest = (compose([sampled_gaussian(s, 0.01, 1000)], 1e-5) for s in (4.0, 4.049))
    assert 0.999 * faintest <= total <= 1.01 * loudest


def test_an_event_without_a_bound_is_refused():
    with pytest.raises(ValueError, match="no bound is known"):
        compose([dp_accounting.LaplaceDpEvent(1.0), gaussian(4.0)], 1e-5)


def test_nothing_costs_nothing():
    assert compose([], 1e-5) == 0.0


def test_combinations_without_a_theorem_are_refused_with_the_reason():
    draw = DirichletDpEvent(0.4, 3.0)
    hidden = dp_accounting.PoissonSampledDpEvent(0.01, draw)
    visible = VisiblySampledDpEvent(0.01, draw)
    replace = SimplexAccountant(NeighboringRelation.REPLACE_ONE)
    assert replace.supports(draw)
    assert replace.supports(visible)
    with pytest.raises(UnsupportedEventError, match="no theorem under"):
        replace.compose(hidden)
    with pytest.raises(UnsupportedEventError, match="presence"):
        SimplexAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE).compose(visible)
    with pytest.raises(UnsupportedEventError, match="strictly between"):
        SimplexAccountant().compose(DirichletDpEvent(3.0, 3.0))
    with pytest.raises(UnsupportedEventError, match=r"sampling probability .* got 1\.0"):
        SimplexAccountant().compose(dp_accounting.PoissonSampledDpEvent(1.0, draw))


def test_a_delta_below_what_it_was_made_for_is_answered_or_refused():
    """What was cut off for δ = 1e-5 is an infinite loss at δ = 1e-12; the answer holds."""
    accountant = SimplexAccountant(delta=1e-5).compose(DirichletDpEvent(0.4, 3.0), 3)
    least = accountant.get_epsilon(1e-5)
    assert 0 < least < accountant.get_epsilon(1e-7)
    assert accountant.get_epsilon(1e-11) == accountant.get_epsilon(0.0) == math.inf
    assert accountant.get_epsilon(1.0) == 0.0
    with pytest.raises(ValueError, match="rounding may move"):
        accountant.get_epsilon(1e-14)


class TestAsEveryAccountantOfDpAccounting(privacy_accountant_test.PrivacyAccountantTest):
    """dp-accounting's own tests of what each accountant must answer."""

    def _make_test_accountants(self):
        return [SimplexAccountant(relation) for relation in NeighboringRelation]


@pytest.mark.parametrize("relation", [None, *NeighboringRelation])
def test_sampled_gaussians_beside_dp_accountings_own(relation):
    """The peer's figure is pessimistic on its own grid; ours is within a thousandth of it."""
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(0.02, dp_accounting.GaussianDpEvent(1.1)), 300
    )
    if relation is None:
        ours, relation = compose([event], 1e-5), NeighboringRelation.REPLACE_SPECIAL
    else:
        ours = SimplexAccountant(relation, delta=1e-5).compose(event).get_epsilon(1e-5)
    peer = PLDAccountant(relation).compose(event).get_epsilon(1e-5)
    assert ours == pytest.approx(peer, rel=1e-3)


def test_an_event_survives_its_named_tuple():
    event = dirichlet(**RUN, steps=5)
    assert dp_accounting.DpEvent.from_named_tuple(event.to_named_tuple()) == event


def test_too_many_steps_for_delta_are_refused():
    with pytest.raises(ValueError, match="too small for pld"):
        compose([dirichlet(**RUN, steps=10**6)], 1e-9)


@pytest.mark.parametrize("delta", [1e-10, 1e-13])
def test_what_pld_refuses_for_rounding_the_ledger_refuses(delta):
    run = {"r": 0.5, "alpha": 3.0, "sample_rate": 0.01, "steps": 2000}
    for figure in (
        lambda: account("pld", **run, delta=delta),
        lambda: compose([dirichlet(**run)], delta),
    ):
        with pytest.raises(ValueError, match="too small for pld"):
            figure()


def test_rounding_is_set_aside_for_every_event_and_taken_from_delta(monkeypatch):
    monkeypatch.setattr(VertexPair, "moved", lambda pair, steps: 1e-9)
    accountant = SimplexAccountant(delta=1e-6)
    seen = [0.0]
    for event in (
        dirichlet(**RUN, steps=100),
        dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(2.0)), 100
        ),
        dp_accounting.GaussianDpEvent(20.0),
    ):
        accountant.compose(event)
        seen.append(accountant._allowance)
    assert seen == sorted(set(seen))
    assert 1e-9 < seen[1] < 1.1e-9
    epsilon = accountant.get_epsilon(1e-6)
    plain = accountant._pld.get_delta_for_epsilon(epsilon)
    assert plain <= 1e-6 - 0.999 * seen[-1]
    assert accountant.get_delta(epsilon) == pytest.approx(plain + seen[-1], rel=1e-12)


def test_a_step_without_noise_is_infinite():
    accountant = SimplexAccountant().compose(dp_accounting.GaussianDpEvent(0.0))
    assert accountant.get_epsilon(1e-5) == float("inf")


def test_gaussian_runs_are_one_of_their_common_mu() -> None:
    """μ² adds up, also over the steps of a run: 9 steps at σ = 6 are μ = ½."""
    both = compose([gaussian(6.0, steps=9), gaussian(3.0)], 1e-5)
    assert both == pytest.approx(gaussian_epsilon(math.sqrt(1 / 4 + 1 / 9), 1e-5), rel=1e-12)
