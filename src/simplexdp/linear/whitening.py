"""Private statistics that shape the features: a mean to remove, second moments to whiten by.

Gradients of a linear model are spent on the directions in which features vary most, and all of
them share one clip. Removing the mean and dividing by a root of the second moment lets the same
budget reach the directions that tell classes apart. Feature maps have a shape (channels,
positions), so the second moment is taken as a Kronecker product of a small matrix for each: two
releases of 81×81 and 49×49 numbers in place of one of 3969×3969, with far less noise.

Formal guarantee
    Statement: the mean is one Gaussian release of μ² = share·budget and each moment another; the
    transform that follows from them is post-processing, and maps each record by itself.
    Sensitivity (zero-out): one record adds a row of norm ≤ bound to the sum of rows, and X Xᵀ of
    Frobenius norm ≤ bound² to a moment. A moment is symmetric, so only its upper triangle is
    released; with noise s on the diagonal and s/√2 off it, the scaled change is exactly the
    Frobenius norm over s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from simplexdp.linear.exact_sums import ROW_UNIT, Integers
from simplexdp.noise import Bits, OnRelease, release, unheard

Floats = NDArray[np.float64]

# Rows of norm 1 may grow a little when they are rounded to whole units.
RAW_ROW_BOUND = 1.01
FEWEST_KEPT, KEPT_OF_RIDGE = 64, 0.3


@dataclass(frozen=True)
class Moments:
    """The released mean and second moments, with the spectral size of the noise in each."""

    mean: Floats
    by_channel: Floats
    by_position: Floats
    channel_noise: float
    position_noise: float


@dataclass(frozen=True)
class Transform:
    """x ↦ gain · (Uᵀ_channel (x − mean) U_position), on the kept coordinates."""

    mean: Floats
    channel_axes: Floats
    position_axes: Floats
    kept: NDArray[np.int64]
    gain: Floats
    largest: float | None = None  # eigenvalue of the transformed second moment, as released

    def apply(self, rows: torch.Tensor) -> torch.Tensor:
        """Transform a block of raw feature rows, in single precision."""
        channels, positions = len(self.channel_axes), len(self.position_axes)
        centred = rows - torch.from_numpy(self.mean).float()
        channel_axes = torch.from_numpy(self.channel_axes).float()
        position_axes = torch.from_numpy(self.position_axes).float()
        if positions == 1:  # one product of matrices, not one a record
            turned = centred @ channel_axes * position_axes.squeeze()
        else:
            turned = channel_axes.T @ centred.view(-1, channels, positions) @ position_axes
        kept = turned.flatten(1)[:, torch.from_numpy(self.kept)]
        return kept * torch.from_numpy(self.gain).float()

    def fold(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return weights (kept, classes) as (width, classes) on raw features, and their bias."""
        channels, positions = len(self.channel_axes), len(self.position_axes)
        full = np.zeros((channels * positions, weights.shape[1]))
        full[self.kept] = self.gain[:, None] * weights
        cube = full.reshape(channels, positions, -1)
        turned = np.einsum("ca,apk,qp->cqk", self.channel_axes, cube, self.position_axes)
        raw = turned.reshape(channels * positions, -1)
        return raw, -self.mean @ raw


def release_mean(
    total: Integers, records: int, mu: float, bits: Bits, on_release: OnRelease = unheard
) -> Floats:
    """Return the mean of rows of norm ≤ RAW_ROW_BOUND from their sum; shrunk if noise dominates."""
    sigma = RAW_ROW_BOUND / mu
    scaled = sigma / ROW_UNIT
    released = on_release("mean", total, release(total, scaled, bits), scaled)
    noisy = released * (ROW_UNIT / records)
    # Positive-part James–Stein with d in the place of d − 2: less squared error than the plain
    # mean has from four columns on; with one or two it can be more.
    excess = total.size * (sigma / records) ** 2
    size = float(noisy @ noisy)
    return np.asarray(noisy * (max(0.0, 1.0 - excess / size) if size > 0 else 0.0))


def moment_scale(mu: float, positions: int) -> float:
    """Return the scale of the noise in each moment: two where there are positions."""
    return RAW_ROW_BOUND**2 / (mu / math.sqrt(2.0) if positions > 1 else mu)


def release_moments(
    by_channel: Integers,
    by_position: Integers,
    records: int,
    mean: Floats,
    mu: float,
    bits: Bits,
    on_release: OnRelease = unheard,
) -> Moments:
    """Return both second moments, for ``mu`` in all, less the part of the released mean."""
    channels, positions = len(by_channel), len(by_position)
    sigma = moment_scale(mu, positions)
    centre = mean.reshape(channels, positions)
    return Moments(
        mean=mean,
        by_channel=(
            _release_symmetric(by_channel, sigma, bits, on_release) - records * centre @ centre.T
        ),
        by_position=(
            _release_symmetric(by_position, sigma, bits, on_release) - records * centre.T @ centre
            if positions > 1
            else np.ones((1, 1))
        ),
        channel_noise=math.sqrt(2.0 * channels) * sigma,
        position_noise=math.sqrt(2.0 * positions) * sigma if positions > 1 else 0.0,
    )


def _release_symmetric(total: Integers, sigma: float, bits: Bits, on_release: OnRelease) -> Floats:
    size = len(total)
    scaled = sigma / ROW_UNIT**2
    above = np.triu_indices(size, 1)
    out = np.zeros((size, size))
    off, less = total[above], scaled / math.sqrt(2.0)
    out[above] = on_release("moments", off, release(off, less, bits), less)
    out += out.T
    on = np.diag(total).copy()
    out[np.diag_indices(size)] = on_release("moments", on, release(on, scaled, bits), scaled)
    return np.asarray(out * ROW_UNIT**2)


def transform(moments: Moments, records: int, ridge: float, width: int) -> Transform:
    """Whiten by the Kronecker estimate plus ``ridge``, to an expected squared norm of 1."""
    channel_values, channel_axes = np.linalg.eigh(moments.by_channel)
    position_values, position_axes = np.linalg.eigh(moments.by_position)
    # Below half its noise an eigenvalue says nothing but that it is small.
    channel_values = np.maximum(channel_values, moments.channel_noise / 2)
    position_values = np.maximum(position_values, moments.position_noise / 2)
    product = np.outer(channel_values, position_values / position_values.sum()).ravel()
    # Far below the ridge a direction is noise, and costs as much time as any other.
    useful = max(FEWEST_KEPT, int((product >= KEPT_OF_RIDGE * ridge).sum()))
    kept = np.sort(np.argsort(product)[::-1][: min(width, useful)])
    energy = product[kept]
    gain = 1.0 / np.sqrt(energy + ridge)
    gain /= math.sqrt(float(energy @ gain**2) / records)
    largest = float((energy * gain**2).max()) / records
    return Transform(
        moments.mean, channel_axes, position_axes, kept.astype(np.int64), gain, largest
    )


def identity(mean: Floats, channels: int, positions: int) -> Transform:
    """Centre only, and bring the expected squared norm of unit rows to 1."""
    gain = 1.0 / math.sqrt(max(0.1, 1.0 - float(mean @ mean)))
    width = channels * positions
    return Transform(
        mean, np.eye(channels), np.eye(positions), np.arange(width), np.full(width, gain)
    )
