"""A linear softmax trained by full-batch noisy descent, so that its weights may be released.

Formal guarantee
    Statement: with noise multiplier σ, ``descend`` for T steps is T adaptive Gaussian releases of
    sensitivity clip and standard deviation σ·clip, hence exactly one Gaussian mechanism of
    μ = √T/σ (Dong, Roth and Su, 2022, Corollary 3.3). Every iterate is covered, and so is any
    average of them.
    Relation: zero-out. One input is replaced by a null record that contributes nothing to any
    sum; labels and the number of records are public. With persons, all inputs of one person are.
    Replacing an input by another changes a sum by up to 2·clip: for that relation μ is twice as
    large.
    Assumptions: those of ``simplexdp.noise`` and ``simplexdp.linear.exact_sums``. Where several
    processes hold a part of the rows each, all of them add the same noise, from the same bits, to
    the same sum: one release and not one each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from simplexdp.linear import exact_sums
from simplexdp.linear.exact_sums import ROW_UNIT, UNIT, Everywhere, alone
from simplexdp.noise import Bits, OnRelease, release, unheard

Floats = NDArray[np.float64]
# A sum beyond this many standard deviations of noise would leave 64 bits.
LARGEST_NOISE = 2.0**55


@dataclass(frozen=True)
class Schedule:
    """Steps, clip, learning rate (on the mean gradient), and the share of iterates averaged.

    Attributes:
        steps: Full-batch steps.
        clip: Bound on the norm of each record's gradient.
        lr: Learning rate.
        averaged: Share of the last iterates in the average.

    Raises:
        ValueError: If one of them is not positive and finite.
    """

    steps: int
    clip: float
    lr: float
    averaged: float = 0.5

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"the number of steps is {self.steps}; at least 1 is needed")
        if not (self.clip > 0 and math.isfinite(self.clip)):
            raise ValueError(f"the clip is {self.clip}; it must be positive")
        if not (self.lr > 0 and math.isfinite(self.lr)):
            raise ValueError(f"the learning rate is {self.lr}; it must be positive")


def noise_scale(clip: float, noise_multiplier: float) -> float:
    """Return the noise's standard deviation in integer units; refuse it beyond 64 bits."""
    sigma = clip * noise_multiplier / UNIT
    if not sigma < LARGEST_NOISE:
        raise ValueError(
            "the budget is too small for one step: its noise would exceed the range of the "
            "sums; give a larger epsilon"
        )
    return sigma


def descend(
    rows: exact_sums.Rows,
    labels: torch.Tensor,
    log_prior: torch.Tensor,
    schedule: Schedule,
    noise_multiplier: float,
    bits: Bits,
    on_step: Callable[[int], None] = lambda step: None,
    on_release: OnRelease = unheard,
    everywhere: Everywhere = alone,
) -> Floats:
    """Return the averaged weights (width, classes) after all steps; the bias is the log prior."""
    units = int(everywhere(np.array([rows.units]))[0])
    sigma = noise_scale(schedule.clip, noise_multiplier)
    classes = len(log_prior)
    weights = np.zeros((classes, rows.width))
    average = np.zeros_like(weights)
    first_averaged = schedule.steps - max(1, round(schedule.averaged * schedule.steps))
    for step in range(schedule.steps):
        total = exact_sums.gradient_sum(rows, _residuals(weights, labels, log_prior), schedule.clip)
        total = everywhere(total)
        noisy = on_release("steps", total, release(total, sigma, bits), sigma)
        weights -= schedule.lr * (noisy * (UNIT / units))
        if step >= first_averaged:
            average += weights
        on_step(step + 1)
    return np.asarray(average.T / (schedule.steps - first_averaged))


def _residuals(
    weights: Floats, labels: torch.Tensor, log_prior: torch.Tensor
) -> Callable[[torch.Tensor, slice], torch.Tensor]:
    scaled = torch.from_numpy(weights * ROW_UNIT).float()

    def residuals(block: torch.Tensor, where: slice) -> torch.Tensor:
        s = torch.softmax(functional.linear(block, scaled, log_prior), dim=1)
        chosen = labels[where]
        s[torch.arange(len(chosen)), chosen] -= 1.0
        return s

    return residuals
