"""What DP-SGD costs: closed forms, Monte Carlo, dp-accounting, Opacus' PRV, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from lower_bounds import lower_epsilon
from opacus.accountants import PRVAccountant

from simplexdp import data, methods
from simplexdp.accounting import sampled_gaussian
from simplexdp.accounting.composed import HIDDEN, Step
from simplexdp.accounting.events import compose
from simplexdp.accounting.events import sampled_gaussian as event_of
from simplexdp.accounting.gaussian import gaussian_epsilon
from simplexdp.accounting.loss_distribution import GaussianPair
from simplexdp.ledger import Ledger
from simplexdp.settings import Settings

DELTA = 1e-5
SETTINGS = [(1.0, 0.01, 500), (6.6, 0.1, 300), (0.7, 0.004, 9_600), (70.5, 0.5, 5_000)]


@pytest.mark.parametrize(("sigma", "rate", "steps"), SETTINGS)
def test_against_dp_accountings_own_grid(sigma: float, rate: float, steps: int) -> None:
    accountant = PLDAccountant()
    accountant.compose(
        dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma)), steps
    )
    found = sampled_gaussian.cost(sigma, rate, steps, DELTA)
    assert found == pytest.approx(accountant.get_epsilon(DELTA), rel=2e-3)
    assert lower_epsilon(Step(HIDDEN, rate, GaussianPair(sigma)), steps, DELTA) <= found


@pytest.mark.filterwarnings("ignore:Optimal order is")
@pytest.mark.parametrize(("sigma", "rate", "steps"), SETTINGS[:2])
def test_within_the_error_that_opacus_states(sigma: float, rate: float, steps: int) -> None:
    """Its figure is an upper bound that includes an error of 0.01; the truth is within two."""
    opacus = PRVAccountant()
    opacus.history = [(sigma, rate, steps)]
    above = float(opacus.get_epsilon(DELTA, eps_error=0.01))
    assert above - 0.02 <= sampled_gaussian.cost(sigma, rate, steps, DELTA) <= above


def one_step_delta(epsilon: float, sigma: float, rate: float, remove: bool) -> float:
    """∫ (upper − e^ε·lower)_+ of one step by 30 digits, split where the integrand turns."""
    with mpmath.workdps(30):
        q, s, grown = mpmath.mpf(rate), mpmath.mpf(sigma), mpmath.exp(epsilon)
        inside = 1 + ((grown if remove else 1 / grown) - 1) / q
        if inside <= 0:
            return 0.0
        turn = s**2 * mpmath.log(inside) + mpmath.mpf(1) / 2
        above = [mpmath.ncdf((mean - turn) / s) for mean in (0, 1)]
        below = [1 - mass for mass in above]
        if remove:
            return float((1 - q) * above[0] + q * above[1] - grown * above[0])
        return float(below[0] - grown * ((1 - q) * below[0] + q * below[1]))


@pytest.mark.parametrize(("sigma", "rate"), [(0.5, 0.01), (1.0, 0.2), (3.0, 0.7)])
def test_one_step_against_its_closed_form(sigma: float, rate: float) -> None:
    found = sampled_gaussian.cost(sigma, rate, 1, DELTA)
    for remove in (True, False):
        assert one_step_delta(found, sigma, rate, remove) <= DELTA
    assert one_step_delta(0.995 * found, sigma, rate, True) > DELTA


def test_both_directions_against_monte_carlo() -> None:
    """δ at ε by 4·10^5 draws of three steps: a false alarm has a chance below 1e-5."""
    rng, sigma, rate, steps, delta, draws = np.random.default_rng(7), 0.8, 0.3, 3, 0.02, 400_000
    epsilon = sampled_gaussian.cost(sigma, rate, steps, delta)
    deltas = []
    for remove in (True, False):
        x = rng.normal(0.0, sigma, (steps, draws))
        if remove:
            x += rng.random(x.shape) < rate
        loss = np.log1p(rate * np.expm1((x - 0.5) / sigma**2)).sum(axis=0)
        excess = np.maximum(0.0, -np.expm1(epsilon - (loss if remove else -loss)))
        deltas.append((excess.mean(), excess.std() / math.sqrt(draws)))
    assert all(mean <= delta + 4.5 * error for mean, error in deltas)
    assert max(mean + 4.5 * error for mean, error in deltas) >= 0.99 * delta


@pytest.mark.parametrize("sigma", [0.05, 0.02, 0.01])
def test_a_large_epsilon_is_an_upper_bound(sigma: float) -> None:
    """At q = 1 and T = 1 it is one Gaussian release; the PRV accountant told 1,427 as 707."""
    exact = gaussian_epsilon(1.0 / sigma, DELTA)
    assert exact <= sampled_gaussian.cost(sigma, 1.0 - 1e-9, 1, DELTA) <= 1.005 * exact


@pytest.mark.parametrize(
    ("delta", "steps", "refused"),
    [(1e-8, 1000, False), (1e-6, 100_000, False), (1e-11, 10_000, True), (1e-13, 100, True)],
)
def test_at_a_small_delta_it_is_an_upper_bound_or_refused(
    delta: float, steps: int, refused: bool
) -> None:
    """At q = 1 the run is one Gaussian release of μ = √T/σ, whose ε is known in closed form."""
    sigma, exact = 2.0 * math.sqrt(steps), gaussian_epsilon(0.5, delta)
    if not refused:
        assert exact <= sampled_gaussian.cost(sigma, 1.0 - 1e-9, steps, delta) <= 1.01 * exact
        return
    with pytest.raises(ValueError, match="rounding may move"):
        sampled_gaussian.cost(sigma, 1.0 - 1e-9, steps, delta)
    with pytest.raises(ValueError, match="larger delta, fewer steps"):
        sampled_gaussian.calibrate(1.0, delta, 0.1, steps)


@pytest.mark.parametrize(
    ("epsilon", "rate", "steps"),
    [(1.0, 0.05, 100), (2.0, 0.5, 5_000), (1.0, 0.001, 10**5), (0.01, 0.1, 50), (400.0, 0.1, 100)],
)
def test_calibration_keeps_the_budget_and_uses_it(epsilon: float, rate: float, steps: int) -> None:
    sigma, cost = sampled_gaussian.calibrate(epsilon, DELTA, rate, steps)
    assert cost == sampled_gaussian.cost(sigma, rate, steps, DELTA)
    assert 0.997 * epsilon <= cost <= epsilon
    assert sampled_gaussian.cost(sigma * 0.99, rate, steps, DELTA) > epsilon


def test_a_statement_and_a_ledger_charge_the_same() -> None:
    sigma, cost = sampled_gaussian.calibrate(1.0, DELTA, 0.05, 100)
    assert compose([event_of(sigma, 0.05, 100)], DELTA) == cost
    whole = compose([event_of(sigma, 0.05, 40), event_of(sigma, 0.05, 60)], DELTA)
    assert whole == cost


def test_what_delta_alone_allows_costs_nothing() -> None:
    """At δ = 0.7 one step at rate 0.1 costs nothing: TPR − FPR is at most 0.1."""
    assert sampled_gaussian.cost(1.0, 0.1, 1, 0.7) == 0.0


@pytest.mark.parametrize(
    ("epsilon", "words"),
    [(0.0, "positive"), (math.inf, "positive"), (750.0, "above 500"), (1e-9, "no noise gives")],
)
def test_budgets_without_an_answer_are_refused(epsilon: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        sampled_gaussian.calibrate(epsilon, 1e-9, 0.3, 1_000)


@pytest.mark.parametrize("change", [{"method": "dpsgd"}, {"options": {"form": "trained"}}])
def test_it_is_refused_before_anything_is_spent(change: dict[str, Any], tmp_path: Path) -> None:
    book = Ledger(tmp_path / "ledger.jsonl")
    settings = Settings(
        **{"method": "gaussian-features", **change}, delta=1e-14, steps=20, model="logistic"
    )
    with pytest.raises(ValueError, match="rounding may move"):
        methods.run(settings, tmp_path / "run", dataset=data.load("digits"), ledger=book)
    assert book.entries() == []
