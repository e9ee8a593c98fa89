"""The allowance for floating point: above the error that is there, against exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from scipy import special

from simplexdp.accounting import rounding


def exact_power(masses, steps):
    """The T-fold convolution with 60 digits."""
    with mpmath.workdps(60):
        result = [mpmath.mpf(1)]
        for _ in range(steps):
            longer = [mpmath.mpf(0)] * (len(result) + len(masses) - 1)
            for j, right in enumerate(masses):
                for i, left in enumerate(result):
                    longer[i + j] += left * right
            result = longer
        return result


@pytest.mark.parametrize("steps", [1, 2, 20, 120])
def test_the_transform_errs_by_less_than_the_allowance(steps):
    masses = np.random.default_rng(steps).dirichlet([0.5] * 4)
    composed = pld_pmf.DensePLDPmf(1e-3, 0, masses, 0.0, True).self_compose(steps, 0.0)
    found = np.asarray(composed._probs)
    exact = exact_power([mpmath.mpf(float(mass)) for mass in masses], steps)
    with mpmath.workdps(60):
        error = sum(abs(mpmath.mpf(float(x)) - y) for x, y in zip(found, exact, strict=True))
    assert 0 < float(error) <= rounding.self_composition(steps, found, len(masses))


def test_the_convolution_errs_by_less_than_the_allowance():
    rng = np.random.default_rng(4)
    first, second = rng.dirichlet([0.3] * 60), rng.dirichlet([0.3] * 40)
    composed = pld_pmf.DensePLDPmf(1e-3, 0, first, 0.0, True).compose(
        pld_pmf.DensePLDPmf(1e-3, 0, second, 0.0, True)
    )
    exact = [Fraction(0)] * 99
    for i, left in enumerate(first):
        for j, right in enumerate(second):
            exact[i + j] += Fraction(float(left)) * Fraction(float(right))
    error = sum(abs(Fraction(float(x)) - y) for x, y in zip(composed._probs, exact, strict=True))
    assert 0 < float(error) <= rounding.composition(first, second)


@pytest.mark.parametrize(("alpha", "r"), [(0.1, 0.05), (0.5, 0.3), (3.0, 0.235), (30.0, 5.0)])
def test_the_incomplete_beta_function_errs_by_less_than_its_share(alpha, r):
    with mpmath.workdps(30):
        for logit in np.linspace(-4, 4, 9) / math.sqrt(alpha):
            u = float(special.expit(-logit))
            exact = mpmath.betainc(alpha, alpha + r, 0, mpmath.mpf(u), regularized=True)
            error = abs(mpmath.mpf(float(special.betainc(alpha, alpha + r, u))) - exact)
            assert error <= rounding.incomplete_beta(1, alpha)


@pytest.mark.parametrize("share", [1.0, 1e-3])
def test_the_normal_distribution_errs_by_less_than_its_share(share):
    with mpmath.workdps(30):
        for x in share * np.linspace(-9, 9, 61):
            error = abs(mpmath.mpf(float(special.ndtr(x))) - mpmath.ncdf(mpmath.mpf(float(x))))
            assert error <= rounding.normal(1)


def test_no_allowance_is_below_the_least():
    for steps in (1, 100, 10**6):
        whole = rounding.incomplete_beta(steps, 0.1)
        whole += rounding.self_composition(steps, np.full(1000, 1e-3), 10)
        assert rounding.least(steps) <= whole


def test_a_figure_that_cannot_be_judged_is_refused():
    with pytest.raises(ValueError, match="too small for pld"):
        rounding.check(math.nan, 1e-5, 10)
