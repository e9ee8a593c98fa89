"""How do a batch's indices become its tensors?  From arrays at once, or record by record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from simplexdp import sampling

Data = Any  # a map-style torch data set, or a pair (inputs, labels) of tensors or arrays


def gather(
    data: Data, batches: Iterator[sampling.Indices], workers: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The records of each batch in order; an empty batch keeps its place."""
    if isinstance(data, tuple):
        inputs, labels = data
        for indices in batches:
            yield torch.as_tensor(inputs[indices]), torch.as_tensor(labels[indices])
        return
    # The first record lends its shape to an empty batch; none of its values are used.
    inputs, labels = default_collate([data[0]])[:2]
    empty = (inputs[:0], labels[:0])
    loader: DataLoader[Any] = DataLoader(
        data,
        batch_sampler=_IndexLists(batches),
        num_workers=workers,
        collate_fn=_Collate(empty),
    )
    yield from loader


class _IndexLists:
    """Index arrays as lists, the form in which a DataLoader takes batches."""

    def __init__(self, batches: Iterator[sampling.Indices]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[list[int]]:
        return (indices.tolist() for indices in self._batches)


class _Collate:
    """Stack a batch; an empty one keeps the shapes, so that the step is not lost."""

    def __init__(self, empty: tuple[Tensor, Tensor]) -> None:
        self._empty = empty

    def __call__(self, records: list[Any]) -> tuple[Tensor, Tensor]:
        if not records:
            return self._empty
        inputs, labels = default_collate(records)[:2]
        return inputs, labels
