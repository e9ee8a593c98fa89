"""Planted canaries: pairs of inputs of which one is trained on, or inputs in or out.

Differential privacy is a statement about every data set, so the auditor may choose it.  Here all
records but the canaries are real ones in which a few pixels, those that are lit most rarely, are
set to their background; the canaries alone use these pixels.  Nothing else is changed: the number
of records, their labels and their order stay.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from simplexdp import data

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]

LIT = 1.0
# Records that a trained model is tested on inside an audit: its accuracy is not what is asked.
TEST_RECORDS = 20


@dataclass(frozen=True)
class Pair:
    """A record's place, its public label, and the two inputs of which a coin picks one.

    A second input of None is the null record: the first input is in, or it is out.
    """

    record: int
    label: int
    first: Floats
    second: Floats | None
    pixels: tuple[int, int]  # the two features, in the flattened input, that only this pair uses


@dataclass(frozen=True)
class Planted:
    """A data set of float inputs in the model's scale, and the pairs that belong into it."""

    dataset: data.Dataset
    pairs: tuple[Pair, ...]
    removed: bool = False  # a record that is out is in no sum at all, rather than zeroed

    def with_coins(self, coins: Sequence[bool] | npt.NDArray[np.bool_]) -> data.Dataset:
        """Return the data with the first input of pair k where coin k is true, else its second."""
        inputs = np.array(self.dataset.train.inputs, dtype=np.float32)
        for pair, coin in zip(self.pairs, coins, strict=True):
            other = 0.0 if pair.second is None else pair.second
            inputs[pair.record] = pair.first if coin else other
        train = data.Split(inputs, self.dataset.train.labels)
        return dataclasses.replace(self.dataset, train=train)

    def without(self, coins: Sequence[bool] | npt.NDArray[np.bool_]) -> frozenset[int]:
        """Return the records that contribute nothing: those that are out, where they are removed.

        The others' inputs are zeroed by `with_coins`.
        """
        placed = zip(self.pairs, coins, strict=True)
        return frozenset(pair.record for pair, coin in placed if self.removed and not coin)

    def in_or_out(self, removed: bool) -> Planted:
        """Return the same canaries, each with its first input or out: zeroed, or removed."""
        pairs = tuple(dataclasses.replace(pair, second=None) for pair in self.pairs)
        return Planted(self.dataset, pairs, removed)


def subset(dataset: data.Dataset, records: int | None, rng: np.random.Generator) -> data.Dataset:
    """Return so many training records at random, as floats in the model's scale; a few to test."""
    total = len(dataset.train)
    if records is not None and records > total:
        raise ValueError(
            f"{records} records are asked for and {dataset.name} has {total}; ask for fewer"
        )
    size = total if records is None else records
    chosen = np.sort(rng.choice(total, size, replace=False))
    return dataclasses.replace(
        dataset,
        train=as_float(dataset.train, chosen),
        test=as_float(dataset.test, np.arange(min(TEST_RECORDS, len(dataset.test)))),
        validation=None,
    )


def as_float(split: data.Split, rows: Indices) -> data.Split:
    """Return some records as floats in the model's scale."""
    inputs = data.to_model_input(torch.from_numpy(np.array(split.inputs[rows])))
    return data.Split(inputs.numpy(), split.labels[rows])


def unlit_pixel(dataset: data.Dataset, rng: np.random.Generator) -> Planted:
    """Return one pair: an input with a pixel lit that is unlit in all others, and one without.

    The second pixel of the pair is unlit everywhere.  In a linear first layer the weights of the
    two pixels then move by equal amounts in every step, unless the first input is in the batch.
    """
    pixels = rarest(dataset, 2)
    blanked = _blank(dataset, pixels)
    record = int(rng.integers(len(dataset.train)))
    grey = np.zeros(dataset.input_shape, dtype=np.float32)
    first = grey.copy()
    first.ravel()[pixels[0]] = LIT
    label = int(dataset.train.labels[record])
    pair = Pair(record, label, first, grey, (int(pixels[0]), int(pixels[1])))
    return Planted(blanked, (pair,))


def blank_images(dataset: data.Dataset, rng: np.random.Generator) -> Planted:
    """Return one pair for a convolutional first layer: all other images are 0, and one is not.

    The gradient of a convolution's kernel is a sum of products with the input, so in every step
    it is exactly 0 unless the one input that is not 0 is in the batch.
    """
    record = int(rng.integers(len(dataset.train)))
    zero = np.zeros(dataset.input_shape, dtype=np.float32)
    first = np.asarray(rng.choice([-1.0, 1.0], size=zero.shape), dtype=np.float32)
    pair = Pair(record, int(dataset.train.labels[record]), first, zero, (0, 0))
    return Planted(zeroed(dataset), (pair,))


def zeroed(dataset: data.Dataset) -> data.Dataset:
    """Set all training inputs to 0: their first-layer gradients are 0 and hide no canary's."""
    train = data.Split(np.zeros_like(dataset.train.inputs), dataset.train.labels)
    return dataclasses.replace(dataset, train=train)


def opposites(dataset: data.Dataset, canaries: int, rng: np.random.Generator) -> Planted:
    """Return pairs of opposite inputs: grey (0), with one pixel lit and one dark, or the reverse.

    Their gradients in a first layer point opposite ways, which is the most that clipping leaves;
    pairs that share their two pixels have different labels, so their gradients differ too.
    """
    labels = dataset.train.labels
    by_label = {k: rng.permutation(np.flatnonzero(labels == k)) for k in range(dataset.classes)}
    most = int(np.prod(dataset.input_shape)) // 2
    room = [sum(min(c, len(rows)) for rows in by_label.values()) for c in range(most + 1)]
    if canaries > room[-1]:
        raise ValueError(
            f"{canaries} canaries do not fit into {dataset.name}: its inputs and labels have room "
            f"for {room[-1]}; give a smaller --trials"
        )
    couples = int(np.searchsorted(room, canaries))  # the fewest pairs of pixels that suffice
    pixels = rarest(dataset, 2 * couples)
    pairs = []
    for label, records in by_label.items():
        for couple, record in zip(range(couples), records, strict=False):
            i, j = int(pixels[2 * couple]), int(pixels[2 * couple + 1])
            first = np.zeros(dataset.input_shape, dtype=np.float32)
            first.ravel()[i], first.ravel()[j] = LIT, -LIT
            pairs.append(Pair(int(record), int(label), first, -first, (i, j)))
    kept = rng.permutation(len(pairs))[:canaries]
    return Planted(_blank(dataset, pixels), tuple(pairs[k] for k in kept))


def contrasts(dataset: data.Dataset, canaries: int, rng: np.random.Generator) -> Planted:
    """Return pairs of opposite inputs, every pixel at random lit or dark: the largest gradients.

    Nothing of the other records is changed.
    """
    if canaries > len(dataset.train):
        raise ValueError(
            f"{canaries} canaries do not fit into {len(dataset.train)} records; "
            "give a smaller --trials"
        )
    pairs = []
    for record in rng.permutation(len(dataset.train))[:canaries]:
        first = rng.choice([-LIT, LIT], size=dataset.input_shape).astype(np.float32)
        label = int(dataset.train.labels[record])
        pairs.append(Pair(int(record), label, first, -first, (0, 0)))
    return Planted(dataset, tuple(pairs))


def extreme(dataset: data.Dataset, turn: int, rng: np.random.Generator) -> Planted:
    """Return a record that may be the worst for one release or another.

    In turn: every pixel lit or dark at random, stripes of a random width, and the record as it is.
    """
    planted = contrasts(dataset, 1, rng)
    (pair,) = planted.pairs
    if turn % 3 == 1:
        side = dataset.input_shape[-1]
        width = int(rng.integers(1, max(2, side // 2)))
        row = np.where(np.arange(side) // width % 2, LIT, -LIT)
        first = np.broadcast_to(row, dataset.input_shape).astype(np.float32)
    elif turn % 3 == 2:
        first = np.asarray(dataset.train.inputs[pair.record], dtype=np.float32)
    else:
        first = pair.first
    return Planted(dataset, (dataclasses.replace(pair, first=first),))


def rarest(dataset: data.Dataset, count: int) -> Indices:
    """Return the features that differ from their most common value in the fewest records."""
    inputs = dataset.train.inputs.reshape(len(dataset.train), -1)
    lit = (inputs != background(inputs)).mean(axis=0)
    return np.argsort(lit, kind="stable")[:count]


def background(inputs: npt.NDArray[np.float32]) -> Floats:
    """Return the median of each feature, which is its background wherever it is rarely lit."""
    return np.asarray(np.median(inputs, axis=0), dtype=np.float32)


def _blank(dataset: data.Dataset, pixels: Indices) -> data.Dataset:
    """Return all chosen pixels at one value: the background of the one that is lit most rarely."""
    inputs = np.array(dataset.train.inputs, dtype=np.float32)
    flat = inputs.reshape(len(inputs), -1)
    flat[:, pixels] = background(flat)[pixels[0]]
    return dataclasses.replace(dataset, train=data.Split(inputs, dataset.train.labels))
