"""Numbers for print are rounded to the side that is safe to show."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest

from simplexdp.rounding import rounded_down, rounded_up


@pytest.mark.parametrize("digits", [2, 4, 6])
def test_a_cost_is_never_shown_smaller_and_a_parameter_never_larger(digits: int) -> None:
    values = 10.0 ** np.random.default_rng(digits).uniform(-12, 6, 2000)
    for value in [*values.tolist(), 0.1, 1.0, 9.9999999, 0.09999999]:
        exact = Decimal(repr(value))
        up, down = Decimal(rounded_up(value, digits)), Decimal(rounded_down(value, digits))
        assert down <= exact <= up
        assert up - down <= Decimal(1).scaleb(exact.adjusted() - digits + 1)


def test_what_has_no_digits_is_shown_as_it_is() -> None:
    assert (rounded_up(math.inf), rounded_down(0.0)) == ("inf", "0")
