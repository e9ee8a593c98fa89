"""The records of a batch as tensors: of a known data set, or of a loop of one's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, default_collate

from simplexdp import data as datasets
from simplexdp import sampling

Batch = tuple[Tensor, Tensor]
Data = Any  # a map-style torch data set, or a pair (inputs, labels) of tensors or arrays


def gather(data: Data, batches: Iterator[sampling.Indices], workers: int) -> Iterator[Batch]:
    """Yield the records of each batch in order; an empty batch keeps its place."""
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
        batch_sampler=(indices.tolist() for indices in batches),
        num_workers=workers,
        collate_fn=partial(_collate, empty),
    )
    yield from loader


def _collate(empty: Batch, records: list[Any]) -> Batch:
    """Stack a batch; an empty one keeps the shapes, so that the step is not lost."""
    if not records:
        return empty
    inputs, labels = default_collate(records)[:2]
    return inputs, labels


def ahead(prepare: Callable[[int], Batch], steps: range, workers: int) -> Iterator[Batch]:
    """Yield the batches of these steps in order; workers prepare the next ones meanwhile."""
    if workers < 1:
        yield from map(prepare, steps)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[Batch]] = deque()
        for step in steps:
            waiting.append(pool.submit(prepare, step))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def tensors(split: datasets.Split, rows: sampling.Indices | slice, device: str) -> Batch:
    """Return inputs, as they are stored, and labels of these rows."""
    inputs = torch.from_numpy(split.inputs[rows].copy()).to(device)
    return inputs, torch.from_numpy(split.labels[rows].copy()).to(device)


def to_network(inputs: Tensor, channels_last: bool = True) -> Tensor:
    """Return scaled inputs in the layout that convolutions are fastest with."""
    inputs = datasets.to_model_input(inputs)
    if inputs.ndim == 4 and channels_last:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    return inputs
