"""The loss of Algorithm 1 in a plan's batches, and public weights by class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from simplexdp import mechanism

if TYPE_CHECKING:
    from simplexdp.plan import Plan


class PrivateLoss:
    """The mean perturbed negative log-likelihood of a batch; 0 for an empty one."""

    def __init__(self, plan: Plan, class_weights: ArrayLike | None = None) -> None:
        self._plan = plan
        self._weights: Tensor | None = None
        if class_weights is not None:
            weights = torch.as_tensor(class_weights, dtype=torch.float64)
            if weights.ndim != 1 or not bool((weights.isfinite() & (weights >= 0)).all()):
                raise ValueError("class weights are one number of 0 or more for each class")
            self._weights = weights

    def __call__(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the mean loss of a batch, with one draw for each record.

        Args:
            logits: Of shape (records, classes).
            labels: Public labels, whole numbers from 0.

        Returns:
            A scalar to call `backward` on; 0 for an empty batch.

        Raises:
            ValueError: If logits and labels do not fit.
            BudgetExhausted: If the current batch has fewer records left.
        """
        mechanism.check_batch(logits, labels)
        if self._weights is not None and self._weights.shape != logits.shape[1:]:
            raise ValueError(
                f"{len(self._weights)} class weights do not fit logits of {logits.shape[1]} "
                "classes; give one weight a class"
            )
        if len(labels) == 0:
            return logits.sum() * 0.0
        plan = self._plan
        losses = mechanism.perturbed_nll(
            logits,
            labels,
            plan.r,
            plan.alpha,
            plan.noise(len(labels)),
            plan.estimator,
            plan.link,
            plan.link_bound,
        )
        if self._weights is not None:
            losses = losses * self._weights.to(losses)[labels]
        return losses.mean().to(logits.dtype)


def balanced_weights(labels: ArrayLike, classes: int) -> Tensor:
    """Return weights by which all classes that have records weigh alike, and a record 1 on average.

    They follow from the labels, which are public. A class without records weighs nothing.

    Args:
        labels: The public label of each record, from 0.
        classes: Number of classes.

    Returns:
        One weight a class, for `Plan.loss`.

    Raises:
        ValueError: If a label is not one of the classes.

    Example:
        >>> from simplexdp import balanced_weights
        >>> balanced_weights([0, 0, 0, 1], 2)
        tensor([0.6667, 2.0000], dtype=torch.float64)
    """
    counts = np.bincount(np.asarray(labels), minlength=classes)
    if len(counts) > classes:
        raise ValueError(f"a label is {len(counts) - 1} and there are {classes} classes; give more")
    present = counts > 0
    return torch.from_numpy(counts.sum() / (present.sum() * np.where(present, counts, np.inf)))
