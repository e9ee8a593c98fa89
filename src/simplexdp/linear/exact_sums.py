"""Sums over records that one record moves by no more than its bound, exactly.

A floating-point sum of n terms has a rounding error that depends on every record, and whose
proven bound is far larger than one record's share. Here rows and coefficients are whole numbers
of a public unit, and a block of records is so short that every partial sum of its products stays
below 2^24: single precision adds such integers exactly, in any order, with any kernel. Blocks are
added in double precision, exactly up to 2^53.

Formal guarantee
    Statement: ``gradient_sum`` returns Σ_i p_i ⊗ x_i exactly, with ‖p_i‖·‖x_i‖ ≤ clip for every
    record, so replacing one record by a null record (that contributes 0) changes the result by at
    most clip in the Frobenius norm. With persons, Σ ‖p_i‖·‖x_i‖ ≤ clip over all records of one
    person, so the same holds, by the triangle inequality, where all records of a person become
    null records; who has which records is public. ``row_sum`` (‖x_i‖ ≤ bound) and ``moment_sum``
    (‖X_i X_iᵀ‖ ≤ ‖x_i‖² ≤ bound²) are exact in the same way.
    Argument: every entry of a term is at most its Frobenius norm, so a block of B records has
    partial sums of at most B·clip (or B·bound²) in integer units; B is chosen from that. Norms of
    whole numbers are computed in double precision and compared with a margin of 1e-9, far above
    their rounding error. A row or coefficient that is not finite (the overflow of one record in
    what comes before) counts as zero, so that it cannot reach the sums of the others. Sums of
    several processes, each of its own rows, are added as whole numbers (``Everywhere``), which is
    exact in any order.
    Assumption: the processor's arithmetic is IEEE 754, in single precision too. torch can be told
    to compute such products in fewer bits (bfloat16 or TF32); ``check_products`` multiplies whole
    numbers of the largest size before a fit and refuses if a digit is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

Integers = NDArray[np.int64]
# Adds whole numbers over all processes that hold a part of the rows, and returns them to each.
Everywhere = Callable[[Integers], Integers]

ROW_UNIT = 2.0**-10
COEFFICIENT_UNIT = 2.0**-9
UNIT = ROW_UNIT * COEFFICIENT_UNIT
MARGIN = 1.0 - 1e-9
LARGEST_BOUND = 64  # of a row's norm
EXACT_SINGLE, EXACT_DOUBLE = 2.0**24, 2.0**53
# The check multiplies matrices of this size, large enough for the kernels with fewer bits, with
# whole numbers up to 12 and 6 bits, whose sums of products just stay below 2^24.
CHECK_SIZE, CHECK_LARGE, CHECK_SMALL = 64, 2**12 - 1, 2**6 - 1
# Records whose logits are computed together; exact blocks are parts of it.
STRIDE = 2048


class Store(Protocol):
    """What keeps rows of whole numbers, and gives slices of them in single precision."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return how many rows there are, and of how many coordinates."""
        ...

    def __len__(self) -> int:
        """Return how many rows there are."""
        ...

    def __getitem__(self, where: slice, /) -> torch.Tensor:
        """Return some rows."""
        ...

    def __setitem__(self, where: slice, rows: torch.Tensor, /) -> None:
        """Keep some rows."""
        ...


def in_memory(records: int, width: int) -> Store:
    """Return room for rows in memory."""
    return torch.empty(records, width, dtype=torch.float32)


def alone(total: Integers) -> Integers:
    """Return what is already the sum over all processes: there is one."""
    return total


@dataclass(frozen=True)
class Rows:
    """Rows of whole numbers (× ROW_UNIT), given in single precision, and their real norms.

    ``persons`` are whose the rows are, by ascending numbers from 0; without, each is one's own.
    """

    integers: Store
    norms: torch.Tensor
    bound: float
    persons: torch.Tensor | None = None

    def __len__(self) -> int:
        return len(self.integers)

    @property
    def width(self) -> int:
        """Return the number of coordinates."""
        return int(self.integers.shape[1])

    @property
    def units(self) -> int:
        """Return how many units of privacy there are: persons, or rows without."""
        return len(self) if self.persons is None else len(torch.bincount(self.persons))

    @cached_property
    def strides(self) -> list[slice]:
        """Return blocks of about STRIDE rows that divide no person."""
        return strides(len(self), None if self.persons is None else self.persons.numpy())


def strides(records: int, persons: Integers | None = None, size: int | None = None) -> list[slice]:
    """Return blocks of about STRIDE rows, in order, of whole persons.

    Each is a function of where it begins and of the rows from there on, so that processes that
    share the blocks between them compute what one process would, to the last bit.

    Args:
        records: How many rows.
        persons: Whose each is, by ascending numbers; each row is one's own without.
        size: Rows of a block, where they are not STRIDE.
    """
    last = None if persons is None else np.bincount(persons).cumsum()  # where each person ends
    found: list[slice] = []
    first = 0
    while first < records or not found:
        end = min(first + (size or STRIDE), records)
        if last is not None and records:
            end = int(last[np.searchsorted(last, end)])
        found.append(slice(first, end))
        first = end
    return found


def quantize(rows: torch.Tensor, bound: float) -> Rows:
    """Return rows in whole numbers of ROW_UNIT with norm ≤ bound: rounded, or scaled and cut."""
    if not 0 < bound <= LARGEST_BOUND:
        raise ValueError(
            f"the bound on a row's norm is {bound}; it must lie in (0, {LARGEST_BOUND}]"
        )
    integers = torch.empty(rows.shape, dtype=torch.float32)
    norms = torch.empty(len(rows), dtype=torch.float64)
    for first in range(0, len(rows), STRIDE):
        where = slice(first, first + STRIDE)
        scaled = rows[where].float() / ROW_UNIT
        whole = scaled.round()
        length = _norm(whole)
        over = ~(length <= bound * MARGIN / ROW_UNIT)  # true for NaN too
        if bool(over.any()):
            # Truncation never lengthens a row, so a row scaled below the bound stays below it.
            # In double precision even the largest single has a finite norm.
            exact = rows[where][over].double() / ROW_UNIT
            size = exact.norm(dim=1, keepdim=True)
            short = exact * (bound * (1 - 1e-6) / ROW_UNIT / size).clamp_max(1.0)
            whole[over] = torch.where(size.isfinite(), short, 0.0).trunc().float()
            length = _norm(whole)
        integers[where], norms[where] = whole, length * ROW_UNIT
    return Rows(integers, norms, bound)


def _norm(whole: torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(torch.linalg.vector_norm(whole, dim=1, dtype=torch.float64))


def clipped_coefficients(
    coefficients: torch.Tensor,
    norms: torch.Tensor,
    clip: float,
    persons: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return whole p (× COEFFICIENT_UNIT) with ‖p‖·‖x‖ ≤ clip: clipping in closed form.

    The gradient of a linear softmax at one record is (s − e_y) ⊗ x, whose Frobenius norm is the
    product of the two norms; no per-record gradient is ever formed. With ``persons`` (numbers from
    0, all records of each) it is the sum of these products over a person that is clipped.
    """
    exact = coefficients.double()
    exact = torch.where(exact.isfinite(), exact, 0.0)
    size = together(exact.norm(dim=1) * norms, persons)
    factor = (clip / size.clamp_min(1e-300)).clamp_max(1.0) * (1 - 1e-6)
    scaled = exact * (factor / COEFFICIENT_UNIT)[:, None]
    whole = scaled.round()
    over = together(whole.norm(dim=1) * COEFFICIENT_UNIT * norms, persons) > clip * MARGIN
    whole[over] = scaled[over].trunc()
    return torch.as_tensor(whole.float())


def together(sizes: torch.Tensor, persons: torch.Tensor | None) -> torch.Tensor:
    """Return for each record the sum of the sizes over its person; its own without persons."""
    if persons is None:
        return sizes
    total = torch.zeros_like(sizes)  # no more persons than records
    return total.index_add(0, persons, sizes)[persons]


def gradient_sum(
    rows: Rows, coefficients: Callable[[torch.Tensor, slice], torch.Tensor], clip: float
) -> Integers:
    """Return Σ_i p_i ⊗ x_i (classes × width) in units of ROW_UNIT·COEFFICIENT_UNIT.

    ``coefficients(block, where)`` gives s − e_y of the records in ``where``, whose whole-number
    rows are ``block``. It must treat every record by itself.
    """
    size = _block_size(clip / UNIT, len(rows))
    total: torch.Tensor | None = None
    for where in rows.strides:
        block = rows.integers[where]
        persons = None if rows.persons is None else rows.persons[where] - rows.persons[where][:1]
        p = clipped_coefficients(coefficients(block, where), rows.norms[where], clip, persons)
        if total is None:
            total = torch.zeros(p.shape[1], rows.width, dtype=torch.float64)
        for at in range(0, len(block), size):
            total += p[at : at + size].T @ block[at : at + size]
    assert total is not None  # there is a block, if an empty one
    return np.asarray(total.numpy().astype(np.int64))


def row_sum(rows: Rows) -> Integers:
    """Return Σ_i x_i in units of ROW_UNIT."""
    size = _block_size(rows.bound / ROW_UNIT, len(rows))
    total = torch.zeros(rows.width, dtype=torch.float64)
    for at in range(0, len(rows), size):
        total += rows.integers[at : at + size].sum(dim=0)
    return np.asarray(total.numpy().astype(np.int64))


def moment_sum(rows: Rows, channels: int, positions: int) -> tuple[Integers, Integers]:
    """Return Σ_i X_i X_iᵀ and Σ_i X_iᵀ X_i, where X_i is row i as (channels, positions).

    In units of ROW_UNIT². Without positions the second is the sum of squared norms.
    """
    size = _block_size((rows.bound / ROW_UNIT) ** 2, len(rows))
    by_channel = torch.zeros(channels, channels, dtype=torch.float64)
    by_position = torch.zeros(positions, positions, dtype=torch.float64)
    for at in range(0, len(rows), size):
        cube = rows.integers[at : at + size].view(-1, channels, positions)
        flat = cube.transpose(1, 2).reshape(-1, channels)
        by_channel += flat.T @ flat
        flat = cube.reshape(-1, positions)
        by_position += flat.T @ flat
    return (
        np.asarray(by_channel.numpy().astype(np.int64)),
        np.asarray(by_position.numpy().astype(np.int64)),
    )


def statistics(
    source: NDArray[Any],
    bound: float,
    channels: int,
    positions: int,
    moments: bool,
    order: Integers | None = None,
) -> tuple[Integers, Integers, Integers]:
    """Return the sum of rows and, where asked for, both moments, in one pass over blocks.

    With ``order``, of those rows alone.
    """
    total = np.zeros(channels * positions, dtype=np.int64)
    by_channel = np.zeros((channels, channels), dtype=np.int64)
    by_position = np.zeros((positions, positions), dtype=np.int64)
    for rows in blocks(source, order):
        whole = quantize(rows, bound)
        total += row_sum(whole)
        if moments:
            channel, position = moment_sum(whole, channels, positions)
            by_channel += channel
            by_position += position
    return total, by_channel, by_position


def blocks(source: NDArray[Any], order: Integers | None = None) -> Iterator[torch.Tensor]:
    """Yield blocks of STRIDE rows, of all or of those in ``order``."""
    for first in range(0, len(source) if order is None else len(order), STRIDE):
        yield block_of(source, slice(first, first + STRIDE), order)


def block_of(source: NDArray[Any], where: slice, order: Integers | None = None) -> torch.Tensor:
    """Return some rows, copied: the source may be mapped read-only from disk."""
    rows = source[where] if order is None else source[order[where]]
    return torch.from_numpy(np.array(rows, dtype=np.float32))


def check_clip(clip: float, records: int) -> None:
    """Refuse a clip for which ``gradient_sum`` over so many records would not be exact."""
    _block_size(clip / UNIT, records)


def check_products() -> None:
    """Refuse where torch does not multiply whole numbers exactly in single precision."""
    rng = np.random.default_rng(0)
    shape = (CHECK_SIZE, CHECK_SIZE)
    large = rng.integers(CHECK_LARGE // 2, CHECK_LARGE, shape, endpoint=True) | 1
    small = rng.integers(CHECK_SMALL // 2, CHECK_SMALL, shape, endpoint=True)
    left, right = (torch.from_numpy(whole).float() for whole in (large, small))
    exact = large.T @ small
    found = (left.T @ right, (right.T @ left).T)
    if not all(np.array_equal(product.numpy(), exact) for product in found):
        raise ValueError(
            "torch multiplies matrices in fewer bits than single precision has, so that sums would "
            "not be exact; call torch.set_float32_matmul_precision('highest')"
        )


def _block_size(term: float, records: int) -> int:
    """Return how many terms of at most this many units a block may have; check the whole."""
    if not (term > 0 and np.isfinite(term)):
        raise ValueError("the clip must be a positive number")
    if term > EXACT_SINGLE or term * records > EXACT_DOUBLE:
        raise ValueError("the clip or the number of records is too large for exact sums")
    return int(EXACT_SINGLE // term)
