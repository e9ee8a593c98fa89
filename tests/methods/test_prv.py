"""The PRV accountant: against dp-accounting, a closed form, and what it refuses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant

from simplexdp import data, methods
from simplexdp.accounting.gaussian import gaussian_epsilon
from simplexdp.ledger import Ledger
from simplexdp.methods.dpsgd import prv
from simplexdp.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.parametrize(("sigma", "rate", "steps"), [(1.0, 0.01, 500), (6.6, 0.1, 300)])
def test_cost_against_dp_accounting(sigma: float, rate: float, steps: int) -> None:
    accountant = PLDAccountant()
    accountant.compose(
        dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma)), steps
    )
    exact = accountant.get_epsilon(1e-5)
    got = prv.epsilon_of(sigma, rate, steps, 1e-5, 0.01)
    # An upper bound that includes its own error of at most 1 %.
    assert exact * (1 - 1e-3) <= got <= exact * 1.02


def test_calibration_keeps_the_budget() -> None:
    sigma, cost = prv.calibrate(1.0, 1e-5, 0.05, 100)
    assert 0.99 <= cost <= 1.0
    assert prv.epsilon_of(sigma * 0.97, 0.05, 100, 1e-5, 0.01) > 1.0


def test_a_figure_is_never_negative() -> None:
    """At δ = 0.7 one step at rate 0.1 costs nothing: TPR − FPR is at most 0.1."""
    assert prv.epsilon_of(1.0, 0.1, 1, 0.7, 0.01) == 0.0


@pytest.mark.parametrize(("sigma", "refused"), [(0.05, False), (0.03, True), (0.02, True)])
def test_a_large_figure_is_an_upper_bound_or_refused(sigma: float, refused: bool) -> None:
    """At q = 1 and T = 1 it is one Gaussian release; unrefused, ε = 1,427 was told as 707."""
    exact = gaussian_epsilon(1.0 / sigma, 1e-5)
    if refused:
        with pytest.raises(ValueError, match="costs more than ε = 500"):
            prv.epsilon_of(sigma, 1.0 - 1e-9, 1, 1e-5, 0.1)
    else:
        assert exact <= prv.epsilon_of(sigma, 1.0 - 1e-9, 1, 1e-5, 0.1) <= exact + 0.3


def test_calibration_comes_back_from_noise_that_costs_too_much_to_tell() -> None:
    """σ = 1, where the search begins, costs more than 500 here."""
    sigma, cost = prv.calibrate(2.0, 1e-5, 0.5, 5000)
    assert 1.98 <= cost <= 2.0
    accountant = PLDAccountant()
    gaussian = dp_accounting.GaussianDpEvent(sigma)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.5, gaussian), 5000)
    assert accountant.get_epsilon(1e-5) == pytest.approx(cost, abs=0.02)


@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize(
    ("delta", "steps", "refused"),
    [
        (1e-11, 1000, False),
        (1e-10, 10_000, False),
        (1e-11, 10_000, True),
        (1e-13, 10_000, True),
        (1e-13, 100, True),
    ],
)
def test_a_figure_at_a_small_delta_is_an_upper_bound_or_refused(
    delta: float, steps: int, refused: bool
) -> None:
    """At q = 1 the run is one Gaussian release of μ = √T/σ, whose ε is known in closed form.

    Unrefused, the figure at δ = 1e-13 and T = 10,000 is 3.553 where the exact one is 3.612.
    """
    sigma, exact = 2.0 * math.sqrt(steps), gaussian_epsilon(0.5, delta)
    if not refused:
        assert exact <= prv.epsilon_of(sigma, 1.0, steps, delta, 0.01) <= exact + 0.02
        return
    with pytest.raises(ValueError, match="too small for the PRV accountant"):
        prv.epsilon_of(sigma, 1.0, steps, delta, 0.01)
    with pytest.raises(ValueError, match="larger delta or fewer steps"):
        prv.calibrate(1.0, delta, 0.1, steps)


@pytest.mark.parametrize("change", [{"method": "dpsgd"}, {"options": {"form": "trained"}}])
def test_it_is_refused_before_anything_is_spent(change: dict[str, Any], tmp_path: Path) -> None:
    book = Ledger(tmp_path / "ledger.jsonl")
    settings = Settings(
        **{"method": "gaussian-features", **change}, delta=1e-14, steps=20, model="logistic"
    )
    with pytest.raises(ValueError, match="too small for the PRV accountant"):
        methods.run(settings, tmp_path / "run", dataset=data.load("digits"), ledger=book)
    assert book.entries() == []
