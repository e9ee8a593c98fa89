"""Dirichlet events beside dp-accounting's own in one accountant."""

from __future__ import annotations

import math

import dp_accounting
import pytest
from dp_accounting import NeighboringRelation, UnsupportedEventError, privacy_accountant_test
from dp_accounting.pld import PLDAccountant

from simplexdp.accounting import account
from simplexdp.accounting.events import (
    DirichletDpEvent,
    VisiblySampledDpEvent,
    compose,
    dirichlet,
    gaussian,
)
from simplexdp.accounting.gaussian import gaussian_epsilon
from simplexdp.accounting.loss_distribution import VertexPair
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
