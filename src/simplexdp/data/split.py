"""A stratified split that reads only the public labels."""

from __future__ import annotations

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


def grouped_split(
    labels: NDArray[np.int64],
    groups: NDArray[np.int64],
    held_out: int,
    seed: int = SPLIT_SEED,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return sorted indices (kept, held out) that divide no group, near to a stratified split.

    Groups are visited in random order; one is held out if that brings the classes' counts nearer
    to those of a stratified split. Only labels and groups are read.
    """
    classes = int(labels.max()) + 1
    wanted = held_out_by_class(np.bincount(labels).astype(np.int64), held_out).astype(np.float64)
    names, number = np.unique(groups, return_inverse=True)
    if len(names) < 2:
        raise DataError("all records are of one person, who cannot be trained on and tested on")
    counts = np.zeros((len(names), classes))
    np.add.at(counts, (number, labels), 1.0)
    chosen = np.zeros(len(names), dtype=bool)
    for k in np.random.Generator(np.random.Philox(seed)).permutation(len(names)):
        nearer = np.abs(wanted - counts[k]).sum() < np.abs(wanted).sum()
        if nearer and (counts.sum(0) - counts[chosen].sum(0) > counts[k]).all():
            chosen[k] = True
            wanted = wanted - counts[k]
    if not chosen.any():
        raise DataError("no person can be held out for tests: give test records with --test")
    return np.flatnonzero(~chosen[number]), np.flatnonzero(chosen[number])
