"""Allowances for what floating point may have moved in a composed distribution.

T steps are composed as inverse FFT(FFT(p)^T). With F the exact transform of length n and G = F^T,
what the rounding moves in any sum of masses is at most the sum of all masses' errors, which by
Cauchy-Schwarz and Parseval is at most the 2-norm of the error of G:

- every coefficient of FFT(p) is a sum, over at most log2(n) butterflies, of masses that add to at
  most one, so it is off by at most `_BUTTERFLY`·eps·log2(n), and its T-th power by T·|F|^(T−1)
  times as much;
- the power itself, exp(T·log F), is off by at most `_POWER`·T·eps·|F|^T;
- the inverse transform is off by `_BUTTERFLY`·eps·log2(n) times the norm of G.

Parseval gives the norm of G from the composed masses, n·Σ mass², and Hölder's inequality that of
|F|^(T−1) from it. So nothing is assumed about the shape of the distribution. What is not proved of
the library at hand are the two constants, taken with room above the textbook's (Higham 2002,
Theorem 24.2), and the errors of the incomplete beta and the normal distribution functions,
estimates from measurements: the allowance as a whole is an estimate on the safe side and not a
theorem.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import fft

Array = npt.NDArray[np.float64]

_EPS = float(np.finfo(np.float64).eps)
_BUTTERFLY = 4.0
_POWER = 8.0
_BETAINC = 1e-14
"""Above the error of a value of the incomplete beta function up to α of 1, by the tests."""
_NDTR = 1e-15
"""Above the error of a value of the normal distribution function, by the tests."""


def self_composition(steps: int, masses: Array, length: int) -> float:
    """Return what the transform may have moved in `masses`, T steps from a given `length`."""
    n = int(fft.next_fast_len(max(len(masses), length, 2)))
    energy = max(n * float(masses @ masses), 1.0)
    before = math.exp(0.5 * ((1.0 - 1.0 / steps) * math.log(energy) + math.log(n) / steps))
    butterflies = _BUTTERFLY * math.log2(n)
    norm = math.sqrt(energy)
    return _EPS * (steps * (butterflies * before + _POWER * norm) + butterflies * norm)


def composition(first: Array, second: Array) -> float:
    """Return what the transform may move in the convolution of two distributions."""
    if min(len(first), len(second)) < 2:
        return 0.0
    n = int(fft.next_fast_len(len(first) + len(second)))
    norms = sum(math.sqrt(n * float(masses @ masses)) for masses in (first, second))
    return 2.0 * _BUTTERFLY * _EPS * math.log2(n) * norms


def normal(steps: int) -> float:
    """Estimate the same of the normal distribution function."""
    return steps * _NDTR


def incomplete_beta(steps: int, alpha: float) -> float:
    """Estimate what the errors of one step's cumulative distribution may add up to."""
    return steps * _BETAINC * max(1.0, math.sqrt(alpha))


def least(steps: int) -> float:
    """Return below what no T steps' transform can move, known before anything is computed."""
    return steps * _EPS * (_BUTTERFLY + _POWER)


def check(allowance: float, delta: float, steps: int) -> None:
    """Refuse a bound whose rounding may take more than a tenth of δ."""
    if not allowance <= delta / 10.0:
        raise ValueError(
            f"delta = {delta:g} is too small for pld at {steps} steps: rounding may move "
            f"{allowance:.1g}; use a larger delta, fewer steps, or for draws exact"
        )
