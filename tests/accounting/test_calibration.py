"""r* against the paper's printed values, and the safe side of every jump."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simplexdp.accounting import (
    ACCOUNTANTS,
    BudgetTooSmall,
    account,
    calibrate,
    largest_sample_rate,
)

SCHEDULES = {
    "cifar10": (250 / 50_000, 20_000),
    "mnist": (250 / 60_000, 9_600),
    "fashion-mnist": (250 / 60_000, 9_600),
    "dermamnist": (70 / 7_007, 6_006),
    "svhn": (250 / 73_257, 11_722),
}
# The paper's r* by data set and ε, at α = 3 and δ = 1e-5, as printed.
PRINTED = {
    "cifar10": {1: "0.235", 2: "0.404", 3: "0.559", 4: "0.679", 6: "0.825", 8: "0.903"},
    "mnist": {0.5: "0.136", 1: "0.277", 2: "0.472", 4: "0.711"},
    "dermamnist": {1: "0.137", 4: "0.645", 7.42: "0.856"},
    "svhn": {1: "0.284", 2: "0.475", 3: "0.575", 4: "0.717", 6: "0.930", 8: "0.964"},
    "fashion-mnist": {0.5: "0.136", 1: "0.277", 2: "0.472", 4: "0.711"},
}
BY_ALPHA = {0.1: "0.0087", 0.3: "0.0260", 0.5: "0.0433", 1: "0.0864", 2: "0.1580", 3: "0.2349"}
CASES = [(data, eps, r) for data, row in PRINTED.items() for eps, r in row.items()]


def digits(printed):
    return len(printed.split(".")[1])


def test_there_are_23_printed_values():
    assert len(CASES) == 23


@pytest.mark.parametrize(("data", "epsilon", "printed"), CASES)
def test_r_by_data_set_and_epsilon(data, epsilon, printed):
    q, steps = SCHEDULES[data]
    found = calibrate(
        "theorem1", epsilon=epsilon, delta=1e-5, alpha=3.0, sample_rate=q, steps=steps
    )
    assert found.r == pytest.approx(float(printed), rel=0.015)
    assert found.epsilon <= epsilon
    if epsilon == 1:
        assert f"{found.r:.{digits(printed)}f}" == printed


@pytest.mark.parametrize(("alpha", "printed"), BY_ALPHA.items())
def test_r_by_alpha(alpha, printed):
    found = calibrate(
        "theorem1", epsilon=1.0, delta=1e-5, alpha=alpha, sample_rate=0.005, steps=20_000
    )
    assert found.r == pytest.approx(float(printed), rel=0.015)
    assert found.epsilon <= 1.0
    if alpha >= 0.3:
        assert f"{found.r:.{digits(printed)}f}" == printed


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from(["theorem1", "exact", "visible"]),
    epsilon=st.floats(0.05, 50.0),
    delta=st.floats(-30, -2).map(lambda x: 10**x),
    alpha=st.floats(0.05, 100.0),
    q=st.floats(-9, -1).map(lambda x: 10**x),
    steps=st.floats(0, 6).map(lambda x: round(10**x)),
)
def test_the_largest_r_on_the_safe_side(name, epsilon, delta, alpha, q, steps):
    where = {"alpha": alpha, "sample_rate": q, "steps": steps, "delta": delta}
    try:
        found = calibrate(name, epsilon=epsilon, **where)
    except BudgetTooSmall:
        assert account(name, r=alpha * 1e-8, **where).epsilon > epsilon
        return
    assert account(name, r=found.r, **where).epsilon == found.epsilon <= epsilon
    above = min(found.r * (1 + 1e-6), (found.r + alpha) / 2)
    assert account(name, r=above, **where).epsilon > epsilon or above >= alpha * (1 - 1e-9)


def test_exact_ends_on_the_jump_itself():
    """At r = α/k order k is still proved, above it is not; the printed ε = 4 ends on α/4."""
    found = calibrate("exact", epsilon=4.0, delta=1e-5, alpha=3.0, sample_rate=0.005, steps=20_000)
    assert found.r == 0.75
    assert found.epsilon < 4.0
    run = {"alpha": 3.0, "delta": 1e-5, "sample_rate": 0.005, "steps": 20_000}
    for k in (5, 9):  # which the search does not begin with
        at, above = (account("exact", r=r, **run).epsilon for r in (3 / k, 3 / k * (1 + 1e-9)))
        assert above > 1.05 * at
        assert calibrate("exact", epsilon=(at + above) / 2, **run).r == 3 / k


def test_a_budget_below_the_floor_says_what_would_do():
    where = {"delta": 1e-5, "alpha": 3.0, "steps": 20_000}
    with pytest.raises(BudgetTooSmall) as caught:
        calibrate("theorem1", epsilon=0.5, sample_rate=0.05, **where)
    error = caught.value
    assert "\n" not in str(error)
    assert error.floor > 0.5
    assert "sampling rate below" in str(error)
    assert "steps" in str(error)
    rate = error.largest_sample_rate
    assert rate is not None
    assert rate < 0.05
    assert calibrate("theorem1", epsilon=0.5, sample_rate=rate * 0.99, **where).r > 0
    with pytest.raises(BudgetTooSmall):
        calibrate("theorem1", epsilon=0.5, sample_rate=rate * 1.01, **where)
    assert error.most_steps is not None
    fewer = where | {"steps": error.most_steps}
    assert calibrate("theorem1", epsilon=0.5, sample_rate=0.05, **fewer).r > 0
    with pytest.raises(BudgetTooSmall):
        calibrate(
            "theorem1", epsilon=0.5, sample_rate=0.05, **(fewer | {"steps": fewer["steps"] + 2})
        )


def test_the_largest_sample_rate_for_an_r():
    rate = largest_sample_rate(
        "theorem1", epsilon=1.0, delta=1e-5, alpha=3.0, steps=20_000, r=0.2348
    )
    assert rate == pytest.approx(0.005, rel=5e-3)


GOOD = {"epsilon": 1.0, "delta": 1e-5, "alpha": 3.0, "sample_rate": 0.005, "steps": 100}
BAD = [
    ("epsilon", 0.0), ("epsilon", -1.0), ("epsilon", math.nan), ("epsilon", math.inf),
    ("delta", 0.0), ("delta", 1.0), ("delta", math.nan), ("alpha", 0.0), ("alpha", -3.0),
    ("alpha", math.inf), ("sample_rate", 0.0), ("sample_rate", 1.0), ("sample_rate", math.nan),
    ("steps", 0), ("steps", -5), ("steps", 2.5),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), BAD)
@pytest.mark.parametrize("name", list(ACCOUNTANTS))
def test_bad_input_is_one_line(name, key, value):
    with pytest.raises(ValueError, match=r"must") as caught:
        calibrate(name, **(GOOD | {key: value}))
    assert "\n" not in str(caught.value)
    if key != "epsilon":
        spent = {k: v for k, v in (GOOD | {"r": 0.2, key: value}).items() if k != "epsilon"}
        with pytest.raises(ValueError, match=r"must"):
            account(name, **spent)


@pytest.mark.parametrize("r", [0.0, -1.0, 3.0, 4.0, math.nan])
@pytest.mark.parametrize("name", list(ACCOUNTANTS))
def test_r_outside_its_range(name, r):
    with pytest.raises(ValueError, match="between 0 and alpha"):
        account(name, r=r, alpha=3.0, sample_rate=0.1, steps=10, delta=1e-5)


def test_an_unknown_accountant_lists_the_names():
    with pytest.raises(ValueError, match="theorem1"):
        account("prv", r=0.1, alpha=3.0, sample_rate=0.1, steps=10, delta=1e-5)


@pytest.mark.parametrize("rate", [1e-13, 1e-150, 5e-324])
def test_a_sampling_rate_below_the_tested_range_is_refused(rate):
    for name in ACCOUNTANTS:
        with pytest.raises(ValueError, match="at least 1e-12"):
            account(name, r=0.2, alpha=3.0, sample_rate=rate, steps=10, delta=1e-5)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", ["theorem1", "exact", "visible"])
def test_the_smallest_sampling_rate_gives_a_figure_without_a_warning(name):
    cost = account(name, r=0.2, alpha=3.0, sample_rate=1e-12, steps=10, delta=1e-5)
    assert 0.0 <= cost.epsilon < 1.0


@pytest.mark.parametrize("kind", [np.float16, np.float32])
@pytest.mark.parametrize("accountant", ["theorem1", "visible"])
def test_a_budget_in_few_digits_is_kept_in_all_of_them(accountant, kind):
    """Compared in half precision, 1.0005 is not above 1."""
    given = {"delta": kind(1e-4), "alpha": kind(3), "sample_rate": kind(0.01), "steps": 500}
    found = calibrate(accountant, epsilon=kind(1), **given)
    exact = {name: float(value) for name, value in given.items()}
    assert account(accountant, r=found.r, **{**exact, "steps": 500}).epsilon <= 1.0
