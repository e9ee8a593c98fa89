"""Default batch size, steps and learning rate, from public numbers only."""

from __future__ import annotations

import math
from numbers import Integral

import numpy as np
import numpy.typing as npt

from simplexdp import accounting
from simplexdp.settings import ADAPTIVE

# The paper's figure on learning rates: over γ·κ the curves of all α fall together. The best γ·κ
# of its nine curves are between 0.03 and 0.19; this is their geometric middle.
EFFECTIVE_LEARNING_RATE = 0.08
TYPICAL_TRUE_CLASS_PROBABILITY = 0.9
# Theorem 1 always admits some r, if need be by an order in the thousands. Below this share of α
# a draw says next to nothing about the model's outputs. A network still trains, at a rate that
# grows as 1/r, since its updates read the inputs themselves (docs/protects.md): a plan refuses.
LEAST_USEFUL_R = 1 / 100
# Adaptive optimizers divide the scale κ out again; the paper trains Adam at this rate.
ADAPTIVE_LEARNING_RATE = 0.001
LOPSIDED = 10  # times as many records in the largest class as in the smallest
WARMUP_SHARE = 0.1  # of the steps


def rate_for(optimizer: str, sgd: float) -> float:
    """Return an optimizer's rate where plain descent takes `sgd`; adaptive ones have their own."""
    if optimizer in ADAPTIVE:
        return ADAPTIVE_LEARNING_RATE
    # Momentum m adds up 1/(1 − m) past gradients, here ten.
    return sgd * (0.1 if optimizer in ("momentum", "nesterov", "muon") else 1.0)


def lopsided(class_counts: npt.NDArray[np.int64]) -> bool:
    """Return whether classes differ so much in size that Algorithm 1 is slow to find the rare ones.

    A class without records counts as rare.
    """
    return bool(class_counts.max() >= LOPSIDED * class_counts.min())


def warmup_steps(class_counts: npt.NDArray[np.int64], steps: int) -> int:
    """Return over how many steps the rule's rate is reached: a tenth where classes are lopsided.

    At the full rate from the first step on, DermaMNIST's networks came to where the softmax is 1
    for the largest class and no record pulls any more, since κ vanishes with s_y.  A heuristic,
    made with that data set in view and tried on no other, where one network in three at ε = 1
    stands still all the same.
    """
    return math.ceil(WARMUP_SHARE * steps) if lopsided(class_counts) else 0


def schedule(
    records: int,
    epsilon: float,
    delta: float,
    batch_size: int | None,
    steps: int | None,
    alpha: float,
    accountant: str = "theorem1",
) -> tuple[int, int]:
    """Return batch size and steps, by rule from the number of records and the budget if not given.

    The factor 3 in Theorem 1 leaves a cost that no r lowers at moderate orders and that grows
    like q³, so a customary batch is impossible on small data.  The rule takes q near 1/180, at
    most 250 records, and at most half of the rate at which no useful r is left.
    """
    for what, number in (("records", records), ("batch_size", batch_size), ("steps", steps)):
        if number is not None and not isinstance(number, Integral):
            raise ValueError(f"{what} is {number!r}; give a whole number (int)")
    if records < 2:
        raise ValueError(f"the data set has {records} records; at least 2 are needed")
    if batch_size is not None and not 1 <= batch_size < records:
        raise ValueError(
            f"the batch size is {batch_size}; it must be at least 1 and below the {records} records"
        )
    if steps is None:
        steps = int(min(max(records / 6, 3000), 10_000))
    if steps < 1:
        raise ValueError(f"the number of steps is {steps}; it must be at least 1")
    if batch_size is None:
        # Composed figures take seconds each, and are below these.
        hidden = accounting.lookup(accountant).participation == "hidden"
        quick = "theorem1" if hidden else "visible"
        limit = 0.5 * records * largest_useful_rate(quick, epsilon, delta, alpha, steps)
        batch_size = max(1, math.floor(min(250.0, records / 180, limit)))
    return batch_size, steps


def largest_useful_rate(
    accountant: str, epsilon: float, delta: float, alpha: float, steps: int
) -> float:
    """Return the largest sampling rate that leaves a useful r; 0 where none does."""
    rate = accounting.largest_sample_rate(
        accountant,
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
        steps=steps,
        r=LEAST_USEFUL_R * alpha,
    )
    return rate or 0.0
