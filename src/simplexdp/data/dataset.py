"""Data sets: arrays of inputs with public labels, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch

    from simplexdp.data.preprocessing import Preprocessing

Array = NDArray[Any]


class DataError(ValueError):
    """Data that is missing, damaged or not described well enough; the message says what to do."""


@dataclass(frozen=True)
class Split:
    """Inputs with their labels: images uint8 (N, C, H, W), tables float32 (N, F), labels int64.

    `groups` says whose a record is, by numbers from 0; without, each is a person of its own.
    """

    inputs: Array
    labels: NDArray[np.int64]
    groups: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.groups is not None and self.groups.shape != self.labels.shape:
            raise DataError("there must be one person for each record")
        if len(self.inputs) != len(self.labels):
            raise DataError(
                f"{len(self.inputs)} inputs but {len(self.labels)} labels: every record needs both"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: NDArray[np.int64]) -> Split:
        """Return some of the records."""
        groups = None if self.groups is None else self.groups[rows]
        return Split(self.inputs[rows], self.labels[rows], groups)

    def arrays(self) -> list[Array]:
        """Return what there is of each record: input, label, and person where one is named."""
        return [self.inputs, self.labels, *([] if self.groups is None else [self.groups])]

    @property
    def persons(self) -> int:
        """Return how many persons there are: as many as records without groups."""
        return len(self) if self.groups is None else len(np.unique(self.groups))

    def __repr__(self) -> str:
        """Show shapes alone: a traceback or a log must not show a record."""
        return f"Split({len(self)} records of shape {self.inputs.shape[1:]}, {self.inputs.dtype})"


@dataclass(frozen=True)
class Dataset:
    """A data set with its splits, and what a statement has to say about it.

    `provenance` holds sentences on where the files came from; `computed_from_data` names
    whatever the preprocessing read from the private inputs themselves.  `checksums` are of files
    that nobody else is known to have, for the run's own record and not for a statement: a checksum
    of private records tells them from all others.  `vectors` says that inputs are vectors of
    unknown making (an .npz of floats), and `features_from` what their user, or that of an encoder,
    declares it to be. `preprocessing` turns new records into inputs.
    """

    name: str
    train: Split
    test: Split
    validation: Split | None
    class_names: tuple[str, ...]
    provenance: tuple[str, ...] = field(default=())
    computed_from_data: tuple[str, ...] = field(default=())
    checksums: Mapping[str, str] = field(default_factory=dict)
    vectors: bool = False
    features_from: str | None = None
    preprocessing: Preprocessing | None = None

    @property
    def classes(self) -> int:
        """Return the number of classes."""
        return len(self.class_names)

    @property
    def pixels(self) -> bool:
        """Return whether inputs are stored as uint8, which `to_model_input` scales."""
        return bool(self.train.inputs.dtype == np.uint8)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Return the shape of one input."""
        return tuple(int(n) for n in self.train.inputs.shape[1:])


def to_model_input(batch: torch.Tensor) -> torch.Tensor:
    """Scale uint8 images to [-1, 1] by their format's range; pass other inputs as float32.

    The range 0..255 is the format's and not the data's, so nothing is read from the inputs.
    """
    import torch  # not for those who only look at a set

    if batch.dtype == torch.uint8:
        return batch.to(torch.float32).div_(255.0).sub_(0.5).div_(0.5)
    return batch.to(torch.float32)
