"""The rules for what is not given: they leave a useful r."""

from __future__ import annotations

import pytest

from simplexdp import Plan
from simplexdp.schedule import LEAST_USEFUL_R


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
