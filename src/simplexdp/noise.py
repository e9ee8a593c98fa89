"""Gaussian noise rounded exactly to a lattice, so that floating point gives nothing away.

A Gaussian sampler in floating point reaches only some doubles, and the gaps depend on the secret
sum (Mironov, 2012). Here the secret is an array of exact integers, and what comes out is the real
number secret + sigma·N rounded to the nearest multiple of a public granularity. That number is
decided and not approximated: a draw is computed in doubles with an error bound, and where the
bound leaves two cells possible it is computed again with more random bits and more digits.

Formal guarantee
    Statement: ``release`` returns round((total + sigma·N)/granularity) with N standard normal and
    independent by coordinate. Rounding is post-processing, so it has exactly the privacy of the
    ideal Gaussian mechanism on ``total``: with L2 sensitivity Δ it is Δ/sigma-GDP, and a sequence
    of adaptive releases composes to μ² = Σ μ_i² (Dong, Roth and Su, 2022).
    Assumptions: the bits are independent and uniform (those of the operating system, or a secret
    seed's), and scipy's ``ndtri`` has a relative error below 2^-46 (its authors state 2^-50; the
    tests compare it with mpmath). The time that a release takes is not hidden.
    Difference from the discrete Gaussian of Canonne, Kamath and Steinke (2020): that one is an
    integer-valued law of its own, whose composition is not exactly a Gaussian mechanism's.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

Integers = NDArray[np.int64]
Bits = Callable[[int], NDArray[np.uint64]]
# Told of a release: its name, the exact sum, what came out, and the standard deviation that the
# noise should have. It returns what goes on, and only an audit returns anything else than came out.
OnRelease = Callable[[str, Integers, Integers, float], Integers]

SAMPLER = "Gaussian rounded exactly to a lattice (integer sums, inverse CDF with lazy refinement)"

# Cells per standard deviation: fine enough to cost no accuracy, coarse enough that about one draw
# in two million needs more digits than a double has.
CELLS = 2**20
# sup of Q(x)/q(x) for x ≥ 0 (Mills' ratio at 0) is 1.2533: turns a relative error of a tail
# probability into an error of its quantile.
MILLS = 1.26
NDTRI_ERROR = 2.0**-46
EXTRA_BITS = 128


def unheard(name: str, total: Integers, released: Integers, sigma: float) -> Integers:
    """Return what came out: nobody listens."""
    return released


def system_bits(count: int) -> NDArray[np.uint64]:
    """Return 64-bit words from the operating system's cryptographic generator."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def seeded_bits(rng: np.random.Generator) -> Bits:
    """Return a source of 64-bit words of one generator: private only while its seed is secret."""
    return lambda count: rng.integers(0, 2**64, size=count, dtype=np.uint64)


def granularity_for(sigma: float) -> int:
    """Return the power of two that leaves at most ``CELLS`` cells in a standard deviation."""
    if not (sigma > 0 and math.isfinite(sigma)):
        raise ValueError(f"the noise has standard deviation {sigma}; it must be positive")
    return 1 << max(0, math.ceil(math.log2(sigma / CELLS)))


def release(total: Integers, sigma: float, bits: Bits) -> Integers:
    """Round total + sigma·N to multiples of ``granularity_for(sigma)``, all in units of one."""
    if total.dtype != np.int64:
        raise ValueError(f"the sum to release has type {total.dtype}; give exact int64 integers")
    grain = granularity_for(sigma)
    scale = sigma / grain
    flat = total.ravel()
    words = bits(flat.size)
    # a//g + (a mod g)/g is exact: only the fraction below one cell enters the floating sum.
    whole, rest = np.divmod(flat, grain)
    offset = rest / grain
    tail = (words >> np.uint64(1)).astype(np.float64)
    magnitude = -ndtri((tail + 0.5) * 2.0**-64)
    place = offset + scale * np.where(words & np.uint64(1), -magnitude, magnitude)
    cell = np.rint(place)
    error = scale * (MILLS * (1.0 / (tail + 0.5) + 2.0**-52) + magnitude * NDTRI_ERROR) + 2.0**-22
    # A tail of 0 stands for all draws from there to infinity, which no error bound covers.
    unsure = np.flatnonzero((np.abs(np.abs(place - cell) - 0.5) <= error) | (tail == 0))
    cells = whole + cell.astype(np.int64)
    for index in unsure:
        cells[index] = int(whole[index]) + decide(
            int(words[index]), int(rest[index]), grain, sigma, bits
        )
    return (cells * grain).reshape(total.shape)


def decide(word: int, rest: int, granularity: int, sigma: float, bits: Bits) -> int:
    """Return the cell of one draw, with as many more random bits as it takes to be sure."""
    count, width, sign = word >> 1, 64, -1 if word & 1 else 1
    while True:
        for _ in range(EXTRA_BITS // 64):
            count = (count << 64) | int(bits(1)[0])
            width += 64
        with mpmath.workdps(width // 3 + 30):
            ends = [
                mpmath.nint((rest + sigma * sign * quantile(count + step, width)) / granularity)
                for step in (0, 1)
            ]
        if count > 0 and ends[0] == ends[1]:
            return int(ends[0])


def quantile(count: int, width: int) -> mpmath.mpf:
    """Return the x ≥ 0 with upper tail count/2^width, to the working precision."""
    tail = mpmath.mpf(count) / mpmath.mpf(2) ** width
    guess = mpmath.mpf(float(-ndtri(max(float(tail), 1e-300))))
    if count == 0:
        return mpmath.inf
    # Newton on log Q(x), which is concave and smooth far into the tail.
    for _ in range(60):
        upper = mpmath.erfc(guess / mpmath.sqrt(2)) / 2
        density = mpmath.npdf(guess)
        step = upper * (mpmath.log(upper) - mpmath.log(tail)) / density
        guess += step
        if abs(step) < mpmath.mpf(10) ** (-mpmath.mp.dps + 8):
            break
    return guess
