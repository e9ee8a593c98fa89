"""Check the parameters of an accounting, each with one line of refusal before any work."""

from __future__ import annotations

import math

SMALLEST_ALPHA, LARGEST_ALPHA = 1e-6, 1e6
MOST_STEPS = 2**53


def check_alpha(alpha: float) -> None:
    """Refuse a concentration that is not a positive number, or is far from any in use."""
    check_positive(alpha, "alpha")
    if not SMALLEST_ALPHA <= float(alpha) <= LARGEST_ALPHA:
        raise ValueError(
            f"alpha must lie between {SMALLEST_ALPHA:g} and {LARGEST_ALPHA:g}, got {alpha:g}: "
            "no bound has been tested outside"
        )


def check_r(r: float, alpha: float) -> None:
    """Refuse an r outside (0, alpha): beyond it order 2 is not admissible."""
    check_alpha(alpha)
    if not 0 < r < alpha:
        raise ValueError(f"r must lie strictly between 0 and alpha = {alpha}, got {r}")


SMALLEST_SAMPLE_RATE = 1e-12
"""Below this no bound has been tested; no data set is that large."""


def check_schedule(sample_rate: float, steps: int) -> None:
    """Refuse a sampling rate outside (0, 1) and fewer than one step."""
    if not 0 < sample_rate < 1:
        raise ValueError(
            f"the sampling rate must lie strictly between 0 and 1, got {sample_rate}; "
            "it is the expected batch size over the number of records"
        )
    if sample_rate < SMALLEST_SAMPLE_RATE:
        raise ValueError(
            f"the sampling rate must be at least {SMALLEST_SAMPLE_RATE:g}, got {sample_rate:g}: "
            "no bound has been tested below; use a larger batch"
        )
    check_steps(steps)


def check_steps(steps: int) -> None:
    """Refuse what is no number of steps, and one that a float does not hold exactly."""
    if not (1 <= steps <= MOST_STEPS and steps == int(steps)):
        raise ValueError(
            f"steps must be a whole number of at least 1 and at most 2^53, got {steps!s:.40}"
        )


def check_delta(delta: float) -> None:
    """Refuse a delta outside (0, 1)."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie strictly between 0 and 1, got {delta}")


def check_epsilon(epsilon: float) -> None:
    """Refuse a budget that is not a positive number."""
    check_positive(epsilon, "epsilon")


def check_positive(value: float, name: str) -> None:
    """Refuse a parameter that is not a positive number."""
    try:
        finite = math.isfinite(value)
    except OverflowError:  # a whole number that no float holds
        finite = False
    if not (finite and value > 0):
        raise ValueError(f"{name} must be a positive number, got {value!s:.40}")
