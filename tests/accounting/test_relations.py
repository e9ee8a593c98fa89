"""What a bound says of replaced inputs, against dp-accounting and the definition."""

from __future__ import annotations

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from simplexdp.accounting import events
from simplexdp.accounting.gaussian import gaussian_epsilon
from simplexdp.accounting.relations import replaced

DELTA = 1e-5


@pytest.mark.parametrize(("sigma", "steps"), [(3.0, 1), (20.0, 40)])
def test_gaussian_releases_cost_what_twice_the_sensitivity_costs(sigma: float, steps: int) -> None:
    epsilon = gaussian_epsilon(math.sqrt(steps) / sigma, DELTA)
    found = replaced(events.gaussian(sigma, steps), epsilon, DELTA, "zero-out")
    peer = pld.from_gaussian_mechanism(
        sigma, sensitivity=2.0, value_discretization_interval=1e-4, use_connect_dots=True
    ).self_compose(steps)
    assert found.epsilon == pytest.approx(peer.get_epsilon_for_delta(DELTA), rel=1e-3)
    assert found.delta == DELTA


def test_any_other_bound_pays_for_two_steps_through_the_null_record() -> None:
    """P ≤ e^ε N + δ and N ≤ e^ε Q + δ give P ≤ e^2ε Q + (1 + e^ε) δ."""
    event = events.sampled_gaussian(1.0, 0.01, 10)
    epsilon, delta, _ = replaced(event, 0.7, DELTA, "add/remove")
    assert epsilon == pytest.approx(1.4, rel=1e-12)
    assert delta == pytest.approx((1 + math.exp(0.7)) * DELTA, rel=1e-12)


@pytest.mark.parametrize(
    ("event", "relation"),
    [
        (events.dirichlet(0.4, 3.0, 0.01, 5), "zero-out"),
        (events.gaussian(3.0), "replace-input"),
        (events.sampled_gaussian(1.0, 0.01, 10), "replace-input, as said"),
    ],
)
def test_a_bound_of_that_relation_stays(event: events.DpEvent, relation: str) -> None:
    assert replaced(event, 0.7, DELTA, relation)[:2] == (0.7, DELTA)
