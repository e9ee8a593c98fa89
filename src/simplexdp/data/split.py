"""A stratified split that reads only the public labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simplexdp.data.dataset import DataError

SPLIT_SEED = 20240229


def held_out_by_class(counts: NDArray[np.int64], held_out: int) -> NDArray[np.int64]:
    """Return how many of each class to hold out: in proportion, largest remainders rounded up."""
    exact = counts * (held_out / counts.sum())
    floor: NDArray[np.int64] = np.floor(exact).astype(np.int64)
    order = np.argsort(floor - exact, kind="stable")
    floor[order[: held_out - int(floor.sum())]] += 1
    return floor


def stratified_split(
    labels: NDArray[np.int64], held_out: int, seed: int = SPLIT_SEED
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return sorted indices (kept, held out), a function of the public labels and the seed."""
    if not 0 < held_out < len(labels):
        raise DataError(
            f"cannot hold out {held_out} of {len(labels)} records: "
            "choose a test fraction that leaves records on both sides"
        )
    rng = np.random.Generator(np.random.Philox(seed))
    counts = np.bincount(labels).astype(np.int64)
    taken = [
        rng.permutation(np.flatnonzero(labels == k))[:n]
        for k, n in enumerate(held_out_by_class(counts, held_out))
    ]
    test = np.sort(np.concatenate(taken)).astype(np.int64)
    train = np.setdiff1d(np.arange(len(labels), dtype=np.int64), test)
    return train, test


def numbered(persons: Sequence[str]) -> NDArray[np.int64]:
    """Return persons as numbers from 0, in the order of their names."""
    return np.unique(np.asarray(persons, dtype=np.str_), return_inverse=True)[1].astype(np.int64)


def split_persons(
    labels: NDArray[np.int64], persons: NDArray[np.int64], share: float, seed: int = SPLIT_SEED
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return sorted indices (kept, held out) that divide no person.

    The share is of persons, in each class; a person's class is that of its first record.
    """
    first = np.unique(persons, return_index=True)[1]
    held_out = max(1, round(share * len(first)))
    _, chosen = stratified_split(labels[first], held_out, seed)
    inside = np.isin(persons, chosen)
    return np.flatnonzero(~inside).astype(np.int64), np.flatnonzero(inside).astype(np.int64)
