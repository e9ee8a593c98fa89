"""Which inputs are refused? One line each, before anything is computed."""

from __future__ import annotations

import math

SMALLEST_ALPHA, LARGEST_ALPHA = 1e-6, 1e6


def check_alpha(alpha: float) -> None:
    """Refuse a concentration that is not a positive number, or is far from any in use."""
    if not (math.isfinite(alpha) and alpha > 0):
        raise ValueError(f"alpha must be a positive number, got {alpha}")
    if not SMALLEST_ALPHA <= float(alpha) <= LARGEST_ALPHA:
        raise ValueError(
            f"alpha must lie between {SMALLEST_ALPHA:g} and {LARGEST_ALPHA:g}, got {alpha:g}: "
            "no figure has been tested outside"
        )


def check_r(r: float, alpha: float) -> None:
    """Refuse an r outside (0, alpha): beyond it order 2 is not admissible."""
    check_alpha(alpha)
    if not (math.isfinite(r) and 0 < r < alpha):
        raise ValueError(f"r must lie strictly between 0 and alpha = {alpha}, got {r}")


SMALLEST_SAMPLE_RATE = 1e-12
"""Below this the figures have not been tested; no data set is that large."""


def check_schedule(sample_rate: float, steps: int) -> None:
    """Refuse a sampling rate outside (0, 1) and fewer than one step."""
    if not (math.isfinite(sample_rate) and 0 < sample_rate < 1):
        raise ValueError(
            f"the sampling rate must lie strictly between 0 and 1, got {sample_rate}; "
            "it is the expected batch size over the number of records"
        )
    if sample_rate < SMALLEST_SAMPLE_RATE:
        raise ValueError(
            f"the sampling rate must be at least {SMALLEST_SAMPLE_RATE:g}, got {sample_rate:g}: "
            "no figure has been tested below; use a larger batch"
        )
    if not (math.isfinite(steps) and steps >= 1 and steps == int(steps)):
        raise ValueError(f"steps must be a whole number of at least 1, got {steps}")


def check_delta(delta: float) -> None:
    """Refuse a delta outside (0, 1)."""
    if not (math.isfinite(delta) and 0 < delta < 1):
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta}")


def check_epsilon(epsilon: float) -> None:
    """Refuse a budget that is not a positive number."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ValueError(f"epsilon must be a positive number, got {epsilon}")
