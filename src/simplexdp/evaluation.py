"""What a trained network predicts on held-out records, and what a person is told of it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta
from torch import nn

from simplexdp import data, progress
from simplexdp.batches import tensors, to_network
from simplexdp.schedule import lopsided

EVALUATED_TOGETHER = 1000
FEW = 100  # test records, on which an accuracy says little
NAMED = 5  # lost classes in a warning


def predictions(model: nn.Module, split: data.Split, device: str) -> NDArray[np.int64]:
    """Return the class that the model gives to each record."""
    model.eval()
    found = []
    with torch.no_grad():
        for first in range(0, len(split.labels), EVALUATED_TOGETHER):
            inputs, _ = tensors(split, slice(first, first + EVALUATED_TOGETHER), device)
            found.append(model(to_network(inputs)).argmax(1).cpu().numpy())
    return np.concatenate(found)


def evaluate(model: nn.Module, split: data.Split, device: str) -> float:
    """Return the share of records that the model classifies correctly."""
    return float((predictions(model, split, device) == split.labels).mean())


def interval(accuracy: float, records: int) -> tuple[float, float]:
    """Return the 95 % Clopper–Pearson interval of an accuracy on so many test records.

    >>> [round(limit, 3) for limit in interval(1.0, 1)]
    [0.025, 1.0]
    """
    right = round(accuracy * records)
    low = float(beta.ppf(0.025, right, records - right + 1)) if right else 0.0
    high = float(beta.ppf(0.975, right + 1, records - right)) if right < records else 1.0
    return low, high


def recalls(
    found: NDArray[np.int64], labels: NDArray[np.int64], classes: int
) -> tuple[float | None, ...]:
    """Return the share of each class's records that are given their class; None without records.

    >>> recalls(np.array([0, 0, 1, 0]), np.array([0, 0, 1, 1]), 3)
    (1.0, 0.5, None)
    """
    return tuple(
        float((found[labels == k] == k).mean()) if (labels == k).any() else None
        for k in range(classes)
    )


def refuse_not_finite(dataset: data.Dataset) -> None:
    """Refuse inputs with NaN or infinity before anything is spent; a statement names that."""
    splits = {"training": dataset.train, "test": dataset.test, "validation": dataset.validation}
    for name, split in splits.items():
        if split is None or split.inputs.dtype.kind != "f":
            continue
        if not bool(np.isfinite(split.inputs).all()):
            raise ValueError(f"the {name} inputs hold NaN or infinity; clean them first")


def warn_of_failure(
    model: nn.Module, dataset: data.Dataset, final: NDArray[np.int64], kept: bool, weighable: bool
) -> None:
    """Say that a training diverged or, of one that is kept, that it lost classes.

    `weighable` says whether class weights, which the method offers, were not asked for.
    """
    if not all(bool(p.isfinite().all()) for p in model.parameters()):
        progress.warn("the training diverged: its weights are not finite; a smaller --lr may help")
    lost = np.setdiff1d(dataset.test.labels, final)
    if not kept or not len(lost):
        return
    if len(np.unique(final)) == 1:
        what = "gives every test record the same class"
    else:
        names = [dataset.class_names[k] for k in lost[:NAMED]] + ["…"] * (len(lost) > NAMED)
        what = (
            f"never predicts {len(lost)} of the {dataset.classes} classes, of which there are "
            f"test records ({', '.join(names)})"
        )
    uneven = lopsided(np.bincount(dataset.train.labels, minlength=dataset.classes))
    weights = ", --option class_weights=balanced" if weighable and uneven else ""
    progress.warn(
        f"the model {what}; what may help: another --lr or --optimizer, more steps, a larger "
        f"--epsilon{weights}"
    )
