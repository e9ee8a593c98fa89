"""Noise whose sample is known beforehand, so that a scale is read off a release exactly.

A release takes 64-bit words, and each word stands for one quantile of the normal law. Words that
are spread evenly over all 2^64 give a sample whose root mean square is known without any chance:
what a method adds, divided by it, is the standard deviation that the method really uses.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
Bits = Callable[[int], NDArray[np.uint64]]


def magnitudes(count: int) -> Floats:
    """The absolute values of `count` normal quantiles, evenly spread in probability."""
    return np.asarray(-special.ndtri((np.arange(count) + 0.5) / (2 * count)))


@pytest.fixture
def even_bits() -> Callable[[], Bits]:
    """Make a source of words that are spread evenly, in an order of chance, half of each sign.

    Every source gives the same words, so that two fits differ by their records alone.
    """

    def source() -> Bits:
        rng = np.random.default_rng(0)

        def bits(count: int) -> NDArray[np.uint64]:
            order = rng.permutation(count)
            tails = ((order + 0.5) / count * 2.0**63).astype(np.uint64)
            return (tails << np.uint64(1)) | (order & 1).astype(np.uint64)

        return bits

    return source


@pytest.fixture
def scale_of() -> Callable[[Floats], float]:
    """Return the standard deviation behind noise that was made of `even_bits`, to 1e-6.

    The shape is checked too: no quantile may be further off than the lattice and the finite
    sample make it. There is no chance in it.
    """

    def scale(noise: Floats) -> float:
        flat = np.sort(np.ravel(noise)).astype(np.float64)
        count = len(flat)
        sigma = float(np.sqrt((flat**2).mean() / (magnitudes(count) ** 2).mean()))
        steps = np.arange(count + 1) / count
        law = special.ndtr(flat / sigma)
        assert max((law - steps[:-1]).max(), (steps[1:] - law).max()) < 2.0 / count + 1e-4
        return sigma

    return scale
