"""The exact Gaussian curve against mpmath and against dp-accounting's own distribution."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from simplexdp.accounting.gaussian import (
    calibrate_mu,
    composed_mu,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
)


def oracle(mu, epsilon):
    with mpmath.workdps(80):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(
            -mu / 2 - epsilon / mu
        )


@pytest.mark.parametrize("mu", [1e-3, 0.05, 0.3, 1.0, 4.0, 30.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-3, 0.1, 1.0, 8.0, 100.0, 600.0])
def test_delta_against_mpmath(mu, epsilon):
    expected = oracle(mu, epsilon)
    log_expected = float(mpmath.log(expected)) if expected > 0 else -math.inf
    if log_expected > -700:
        assert gaussian_delta(mu, epsilon) == pytest.approx(float(expected), rel=1e-9)
    if log_expected > -1e5:
        assert gaussian_log_delta(mu, epsilon) == pytest.approx(log_expected, rel=1e-9)


@pytest.mark.parametrize("delta", [0.1, 1e-5, 1e-12, 1e-30])
@pytest.mark.parametrize("mu", [0.01, 0.5, 1.0, 5.0, 20.0])
def test_epsilon_is_the_least_on_the_safe_side(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert oracle(mu, epsilon) <= delta * (1 + 1e-9)
    assert gaussian_log_delta(mu, epsilon) <= math.log(delta)
    if epsilon > 0:
        assert oracle(mu, epsilon * (1 - 1e-6)) > delta


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-30])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0, 50.0])
def test_mu_is_the_largest_on_the_safe_side(epsilon, delta):
    mu = calibrate_mu(epsilon, delta)
    assert oracle(mu, epsilon) <= delta * (1 + 1e-9)
    assert gaussian_log_delta(mu, epsilon) <= math.log(delta)
    assert oracle(mu * (1 + 1e-6), epsilon) > delta
    assert gaussian_epsilon(mu, delta) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(("sigma", "steps"), [(40.0, 1000), (2.0, 1), (10.0, 30)])
def test_composition_against_dp_accounting(sigma, steps):
    mu = composed_mu(sigma, steps)
    peer = pld.from_gaussian_mechanism(
        standard_deviation=sigma, value_discretization_interval=1e-4
    ).self_compose(steps)
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(peer.get_epsilon_for_delta(1e-5), rel=1e-4)
    assert gaussian_delta(mu, 1.0) == pytest.approx(peer.get_delta_for_epsilon(1.0), rel=1e-3)


@pytest.mark.parametrize("epsilon", [-1e-9, -1.0, math.nan, math.inf])
def test_an_epsilon_that_is_none_is_refused(epsilon):
    with pytest.raises(ValueError, match="number of at least 0"):
        gaussian_delta(1.0, epsilon)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_input(bad):
    for call in (
        lambda: gaussian_delta(bad, 1.0),
        lambda: gaussian_epsilon(bad, 1e-5),
        lambda: calibrate_mu(bad, 1e-5),
        lambda: composed_mu(bad, 10),
    ):
        with pytest.raises(ValueError, match="must be"):
            call()
    for delta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="delta"):
            calibrate_mu(1.0, delta)


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_numbers_of_few_digits_are_computed_with_all(kind):
    mu = calibrate_mu(kind(8), 1e-5)
    assert gaussian_epsilon(mu, 1e-5) <= 8.0
    assert composed_mu(kind(0.7), 3) == math.sqrt(3) / float(kind(0.7))
    assert gaussian_epsilon(kind(0.7), 1e-5) == gaussian_epsilon(float(kind(0.7)), 1e-5)
