"""The rules for what is not given: they leave a useful r, and the rate undoes κ."""

from __future__ import annotations

import math

import pytest

from simplexdp import Plan, mechanism
from simplexdp.paper import recipes
from simplexdp.schedule import LEAST_USEFUL_R


def test_learning_rate_undoes_the_attenuation():
    """γ·κ is the geometric middle of where the nine curves of the paper's figure are best."""
    curves = recipes.published()["learning_rate_figure"]["curves"]
    best = [max((p["accuracy"], p["lr"]) for p in c["points"])[1] * c["kappa"] for c in curves]
    assert len(best) == 9
    middle = math.sqrt(min(best) * max(best))
    for alpha in (0.3, 3.0, 10.0):
        plan = Plan(
            epsilon=1.0, delta=1e-5, records=50_000, batch_size=250, steps=20_000, alpha=alpha
        )
        kappa = float(mechanism.attenuation(0.9, plan.r, alpha))
        assert plan.learning_rate() * kappa == pytest.approx(middle, rel=0.02)
        assert plan.learning_rate("momentum") == pytest.approx(0.1 * plan.learning_rate())
        assert plan.learning_rate("adam") == 0.001


@pytest.mark.parametrize("records", [300, 1437, 7007, 60_000, 10**7])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
def test_the_automatic_schedule_leaves_a_useful_r(records, epsilon):
    plan = Plan(epsilon=epsilon, delta=1e-5, records=records)
    assert plan.r > LEAST_USEFUL_R * plan.alpha
    assert 1 <= plan.batch_size <= 250


def test_an_impossible_schedule_says_which_batch_size_would_do():
    with pytest.raises(ValueError, match="a batch size of at most") as caught:
        Plan(epsilon=1.0, delta=1e-5, records=1437, batch_size=64, steps=674)
    limit = int(str(caught.value).split("at most ")[1].split(",")[0])
    Plan(epsilon=1.0, delta=1e-5, records=1437, batch_size=limit, steps=674)
    with pytest.raises(ValueError, match="a batch size of at most"):
        Plan(epsilon=1.0, delta=1e-5, records=1437, batch_size=limit + 1, steps=674)
