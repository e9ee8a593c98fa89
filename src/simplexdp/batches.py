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
Data = Any  # a map-style torch data set, or arrays: a tuple or a dictionary of them
Place = Any  # where a record has its label: a number, a name, or several of them


def size_of(data: Data) -> int:
    """Return the number of records; refuse arrays of different lengths."""
    if not isinstance(data, tuple | dict):
        return len(data)
    lengths = [len(part) for part in parts(data)]
    if len(set(lengths)) != 1:
        names = ("inputs", "labels") if len(lengths) == 2 else ["records"] * len(lengths)
        told = " and ".join(f"{n} {what}" for n, what in zip(lengths, names, strict=True))
        raise ValueError(f"there are {told or 'no records'}")
    return lengths[0]


def parts(tree: Any) -> list[Any]:
    """Return the tensors in nested dictionaries, tuples and lists."""
    if not isinstance(tree, dict | tuple | list):
        return [tree]
    inner: Any = tree.values() if isinstance(tree, dict) else tree
    return [part for one in inner for part in parts(one)]


def mapped(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested dictionaries, tuples and lists of tensors with each of them changed."""
    if isinstance(tree, dict):
        return {name: mapped(part, change) for name, part in tree.items()}
    if isinstance(tree, tuple | list):
        return tuple(mapped(part, change) for part in tree)
    return change(tree)


def labels_at(batch: Any, place: Place) -> Tensor:
    """Return the labels of a batch, by their declared place in it."""
    try:
        for step in place if isinstance(place, tuple) else (place,):
            batch = batch[step]
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"the records have nothing at label={place!r}; give its place") from error
    return torch.as_tensor(batch)


def gather(
    data: Data, batches: Iterator[sampling.Indices], workers: int, label: Place = None
) -> Iterator[tuple[Any, Tensor]]:
    """Yield the records of each batch in order; an empty batch keeps its place.

    Without a place of the label a record is a pair, which is yielded; with one, the whole batch
    is, beside its labels.
    """
    whole: Iterator[Any]
    if isinstance(data, tuple | dict):
        _check_pair(data, label)
        whole = (mapped(data, partial(_rows, i)) for i in batches)
    else:
        # The first record lends its shape to an empty batch; none of its values are used.
        first = default_collate([data[0]])
        _check_pair(first, label)
        loader: DataLoader[Any] = DataLoader(
            data,
            batch_sampler=(indices.tolist() for indices in batches),
            num_workers=workers,
            collate_fn=partial(_collate, mapped(first, lambda part: part[:0])),
        )
        whole = iter(loader)
    for batch in whole:
        yield (batch[0], batch[1]) if label is None else (batch, labels_at(batch, label))


def _rows(indices: sampling.Indices, part: Any) -> Tensor:
    return torch.as_tensor(part[indices])


def _check_pair(record: Any, label: Place) -> None:
    """Refuse records of which it is not said where their label is."""
    if label is None and not (isinstance(record, tuple | list) and len(record) == 2):
        kind = "dictionaries" if isinstance(record, dict) else f"tuples of {len(record)}"
        raise ValueError(
            f"the records are {kind} and no pairs; say where the label is with label=, such as "
            "label=2 or label='y'"
        )


def _collate(empty: Any, records: list[Any]) -> Any:
    """Stack a batch; an empty one keeps the shapes, so that the step is not lost."""
    return default_collate(records) if records else empty


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
