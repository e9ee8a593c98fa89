"""Claims are converted to the relation of the audit, never in the method's favour or against it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy import stats

from simplexdp import files
from simplexdp.accounting import events
from simplexdp.audit import claims
from simplexdp.statement import Statement

ROOT = Path(__file__).parents[2]


def statement(name: str, relation: str, sampling: str, epsilon: float | None = 1.0) -> Statement:
    return Statement(
        method=name,
        mechanism={"name": name},
        epsilon=epsilon,
        delta=None if epsilon is None else 1e-5,
        accountant="x",
        relation=relation,
        sampling=sampling,
        steps=1,
        covers_draws=False,
        covers_weights=True,
        covers=(),
        does_not_cover=(),
    )


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Balle and Wang's curve, written out."""
    tail = stats.norm.logcdf(-mu / 2 - epsilon / mu)
    return float(stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + tail))


def test_one_gaussian_mechanism_has_twice_the_sensitivity() -> None:
    # Find μ of (1, 1e-5) by bisection here, and check the doubled one on the exact curve.
    low, high = 0.01, 2.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(middle, 1.0) <= 1e-5 else (low, middle)
    plain = statement("Gaussian", "zero-out", "full batches")
    claim = claims.for_pairs(replace(plain, event=events.gaussian(1 / low)), 1e-5)
    assert claim.epsilon is not None
    assert claim.delta == 1e-5
    assert gaussian_delta(2 * low, claim.epsilon) == pytest.approx(1e-5, rel=1e-4)
    assert 2.0 < claim.epsilon < 2.5


def test_other_claims_go_through_group_privacy() -> None:
    claim = claims.for_pairs(statement("Gaussian", "add/remove", "Poisson, rate 1/9"), 1e-5)
    assert claim.epsilon == 2.0
    assert claim.delta == pytest.approx((1 + math.e) * 1e-5)


@pytest.mark.parametrize("attack", ["canary", "one_run"])
def test_dpsgd_s_claim_for_pairs_at_an_equal_delta(attack: str) -> None:
    """By dp-accounting's curve on the audits' schedules: group privacy at δ = 1e-5, about 2.2."""
    rows = files.read_json(ROOT / "results" / "audit" / "digits.json")["rows"]
    (row,) = [row for row in rows if row["method"] == "dpsgd"]
    schedule = row[attack]["schedule"]
    rate = schedule["sampling"].removeprefix("Poisson, rate ").split(";")[0]
    taken, records = rate.split("/")
    curve = from_gaussian_mechanism(
        schedule["noise_multiplier"],
        value_discretization_interval=1e-4,
        sampling_prob=float(taken) / float(records),
    ).self_compose(schedule["steps"])
    assert curve.get_epsilon_for_delta(1e-5) == pytest.approx(row["claimed_epsilon"], rel=0.02)
    low, high = 1.0, 1.5
    for _ in range(40):
        middle = (low + high) / 2
        enough = (1 + math.exp(middle)) * curve.get_delta_for_epsilon(middle) <= 1e-5
        low, high = (low, middle) if enough else (middle, high)
    assert 2.15 < 2 * high < 2.25


def test_claims_that_are_about_replacing_stay() -> None:
    lemma = statement("Dirichlet", "the RDP lemma is replace-input; …", "Poisson, rate 1/9")
    dirichlet = replace(lemma, event=events.dirichlet(0.2, 3.0, 0.1, 9))
    assert claims.for_pairs(dirichlet, 1e-5).epsilon == 1.0
    other = statement("noise", "replace-input", "full batches")
    assert claims.for_pairs(other, 1e-5).epsilon == 1.0


def test_in_or_out_is_held_against_the_claim_itself() -> None:
    for relation in ("zero-out", "add/remove"):
        claim = claims.held(statement("Gaussian", relation, "full"), 1e-5, "in-out")
        assert claim.epsilon == 1.0
        assert claim.delta == 1e-5
        assert claim.relation == f"in or out ({relation})"
    dirichlet = statement("Dirichlet", "the RDP lemma is replace-input; …", "Poisson, rate 1/9")
    assert claims.held(dirichlet, 1e-5, "in-out").relation == "in or out (its input zeroed)"


def test_a_figure_below_zero_claims_no_more_than_zero() -> None:
    """A lower bound of 0 says nothing, and must not be read as above such a figure."""
    below = statement("sampled Gaussian", "add/remove", "Poisson", -1.2)
    assert claims.held(below, 1e-5, "in-out").epsilon == 0.0
    assert claims.held(below, 1e-5, "pair").epsilon == 0.0


def test_no_claim_is_no_claim() -> None:
    nothing = statement("none", "none", "Poisson", None)
    assert claims.for_pairs(nothing, 1e-5).epsilon is None
    assert claims.in_or_out(nothing, 1e-5).epsilon is None
