"""Rounding for print, in the direction that is safe to show."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal


def rounded_up(value: float, digits: int = 4) -> str:
    """Return a cost for print, never below what it is."""
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 4) -> str:
    """Return a parameter whose growth costs privacy, for print, never above what it is."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, direction: str) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exact = Decimal(repr(float(value)))  # as it was typed: 0.1 is 0.1 and not a little more
    shown = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=direction)
    return f"{float(shown):.{digits}g}"
