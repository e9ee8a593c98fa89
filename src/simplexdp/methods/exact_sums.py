"""How is a sum over records computed so that one record moves it by no more than its bound?

A floating-point sum of n terms has a rounding error that depends on every record, and whose
proven bound is far larger than one record's share. Here rows and coefficients are whole numbers
of a public unit, small enough that every product and every partial sum is an integer below 2^53:
double precision adds such numbers exactly, in any order, with any kernel.

Formal guarantee
    Statement: ``gradient_sum`` returns Σ_i p_i ⊗ x_i exactly, where ‖p_i‖·‖x_i‖ ≤ clip for every
    record, so replacing one record by a null record (that contributes 0) changes the result by at
    most clip in the Frobenius norm. ``moment_sum`` and ``row_sum`` are exact in the same way.
    Argument: Cauchy–Schwarz bounds every partial sum by records·(largest row)·(largest
    coefficient), which is checked against 2^53 before anything is summed. Coefficients are
    truncated towards zero after clipping with a margin of 1e-6, far above the rounding error of
    the norms (2^-50), so the integers themselves obey the bound.
    Assumption: the processor's double arithmetic is IEEE 754.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

Integers = NDArray[np.int64]

ROW_UNIT = 2.0**-16
COEFFICIENT_UNIT = 2.0**-12
MARGIN = 1.0 - 1e-6
LARGEST_EXACT = 2.0**53
BLOCK = 1024


@dataclass(frozen=True)
class Rows:
    """Rows of whole numbers, kept in single precision, and their norms in real units."""

    integers: torch.Tensor
    norms: torch.Tensor
    bound: float

    def __len__(self) -> int:
        return len(self.integers)

    @property
    def width(self) -> int:
        return int(self.integers.shape[1])


def quantize(rows: torch.Tensor, bound: float, out: torch.Tensor | None = None) -> Rows:
    """Scale each row down to norm ≤ bound and truncate it towards zero, in units of ROW_UNIT."""
    if not 0 < bound <= 64:
        raise ValueError(f"the bound on a row's norm is {bound}; it must lie in (0, 64]")
    integers = torch.empty_like(rows, dtype=torch.float32) if out is None else out
    norms = torch.empty(len(rows), dtype=torch.float64)
    for first in range(0, len(rows), BLOCK):
        block = rows[first : first + BLOCK].double()
        length = block.norm(dim=1, keepdim=True)
        scale = (bound * MARGIN / length.clamp_min(1e-300)).clamp_max(1.0)
        whole = torch.trunc(block * scale / ROW_UNIT)
        integers[first : first + BLOCK] = whole.float()  # below 2^24: exact
        norms[first : first + BLOCK] = whole.norm(dim=1) * ROW_UNIT
    return Rows(integers, norms, bound)


def clipped_coefficients(
    coefficients: torch.Tensor, norms: torch.Tensor, clip: float
) -> torch.Tensor:
    """Whole numbers p with ‖p‖·‖x‖ ≤ clip, in units of COEFFICIENT_UNIT: clipping in closed form.

    The gradient of a linear softmax at one record is (s − e_y) ⊗ x, whose Frobenius norm is the
    product of the two norms; no per-record gradient is ever formed.
    """
    size = coefficients.double().norm(dim=1) * norms
    factor = (clip / size.clamp_min(1e-300)).clamp_max(1.0) * MARGIN
    return torch.trunc(coefficients.double() * factor[:, None] / COEFFICIENT_UNIT)


def gradient_sum(
    rows: Rows, coefficients: Callable[[torch.Tensor, slice], torch.Tensor], clip: float
) -> Integers:
    """Σ_i p_i ⊗ x_i (classes × width) in units of ROW_UNIT·COEFFICIENT_UNIT.

    ``coefficients(block, where)`` gives s − e_y of the records in ``where``, whose whole-number
    rows are ``block``. It must treat every record by itself.
    """
    if not (clip > 0 and np.isfinite(clip)):
        raise ValueError(f"the clip is {clip}; it must be positive")
    # |p| ≤ √2 for softmax residuals, and clipping only lowers it.
    _check_exact(len(rows) * (rows.bound / ROW_UNIT) * (1.5 / COEFFICIENT_UNIT))
    total: torch.Tensor | None = None
    for first in range(0, len(rows), BLOCK):
        where = slice(first, first + BLOCK)
        block = rows.integers[where]
        p = clipped_coefficients(coefficients(block, where), rows.norms[where], clip)
        part = p.T @ block.double()
        total = part if total is None else total + part
    assert total is not None
    return np.asarray(total.numpy().astype(np.int64))


def row_sum(rows: Rows) -> Integers:
    """Σ_i x_i in units of ROW_UNIT."""
    _check_exact(len(rows) * rows.bound / ROW_UNIT)
    total = torch.zeros(rows.width, dtype=torch.float64)
    for first in range(0, len(rows), BLOCK):
        total += rows.integers[first : first + BLOCK].double().sum(dim=0)
    return np.asarray(total.numpy().astype(np.int64))


def moment_sum(rows: Rows, channels: int, positions: int) -> tuple[Integers, Integers]:
    """Σ_i X_i X_iᵀ and Σ_i X_iᵀ X_i, where X_i is row i as (channels, positions).

    In units of ROW_UNIT². Each term has Frobenius norm at most ‖x_i‖².
    """
    _check_exact(len(rows) * (rows.bound / ROW_UNIT) ** 2)
    by_channel = torch.zeros(channels, channels, dtype=torch.float64)
    by_position = torch.zeros(positions, positions, dtype=torch.float64)
    for first in range(0, len(rows), BLOCK):
        block = rows.integers[first : first + BLOCK].double().view(-1, channels, positions)
        flat = block.transpose(1, 2).reshape(-1, channels)
        by_channel += flat.T @ flat
        if positions > 1:
            flat = block.reshape(-1, positions)
            by_position += flat.T @ flat
    return (
        np.asarray(by_channel.numpy().astype(np.int64)),
        np.asarray(by_position.numpy().astype(np.int64)),
    )


def _check_exact(largest: float) -> None:
    if largest >= LARGEST_EXACT:
        raise ValueError("too many records for exact double-precision sums; train on fewer")
