"""Feature maps by name, each a function of one record and of public numbers."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simplexdp.features import normalize, scattering

Array = NDArray[Any]
RowMap = Callable[[torch.Tensor], torch.Tensor]

NAMES = ("auto", "scattering", "columns", "random")
SMALLEST_SIDE = 8
RANDOM_FEATURES = 2048
# Public: the random map is part of the model's description, not of its privacy.
RANDOM_SEED = 20210103


@dataclass(frozen=True)
class FeatureMap:
    """A fixed map: its name and version, whether it is worth storing, and the channels it has.

    ``channels`` × ``positions`` is the shape of the feature vector: maps over an image have
    several positions, and a flat vector has one.
    """

    name: str
    apply: RowMap
    channels: int
    positions: int
    stored: bool
    built_in: bool = True  # False for the user's own, of which nothing is known

    @property
    def width(self) -> int:
        """Return the number of features."""
        return self.channels * self.positions


def build(name: str | RowMap, input_shape: tuple[int, ...]) -> FeatureMap:
    """Return the map of this name for records of this shape; "auto" is scattering for images.

    A name with a colon, "package.module:function", is the user's own function from an array
    (N, …), in single precision and with pixels in [0, 1], to an array (N, d); it must treat every
    record by itself and not read the private data.
    """
    if callable(name):
        return _user(getattr(name, "__qualname__", "function"), name, input_shape)
    if name == "auto":
        is_image = len(input_shape) == 3 and min(input_shape[1:]) >= SMALLEST_SIDE
        name = "scattering" if is_image else "columns"
    if name == "scattering":
        return _scattering(input_shape)
    if name == "columns":
        return FeatureMap("columns-1", columns, math.prod(input_shape), 1, stored=False)
    if name == "random":
        return _random(math.prod(input_shape))
    if ":" in name:
        module, _, attribute = name.partition(":")
        try:
            function = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"the features {name!r} cannot be imported: {error}") from error
        return _user(name, function, input_shape)
    raise ValueError(
        f"unknown features {name!r}; use one of {', '.join(NAMES)} or package.module:function"
    )


def as_float(batch: torch.Tensor) -> torch.Tensor:
    """Pixels in [0, 1] by their format's range; anything else as it is, in single precision."""
    return batch.float() / 255.0 if batch.dtype == torch.uint8 else batch.float()


def columns(batch: torch.Tensor) -> torch.Tensor:
    """Return the columns over the root of their number: columns in [-1, 1] have norm ≤ 1."""
    rows = as_float(batch).flatten(1)
    return rows / math.sqrt(rows.shape[1])


def _scattering(shape: tuple[int, ...]) -> FeatureMap:
    if len(shape) != 3 or min(shape[1:]) < SMALLEST_SIDE:
        raise ValueError(
            f"scattering needs images of at least {SMALLEST_SIDE}×{SMALLEST_SIDE} pixels, "
            f"not inputs of shape {shape}; use features 'columns' or 'random'"
        )
    scales, angles = 2, 8
    channels = shape[0] * (1 + scales * angles + angles**2)
    side = [scattering.output_side(n, scales) for n in shape[1:]]

    def apply(batch: torch.Tensor) -> torch.Tensor:
        maps = scattering.scatter(as_float(batch), scales, angles)
        groups = channels // normalize.CHANNELS_PER_GROUP
        return normalize.unit(normalize.group(maps, groups).flatten(1))

    return FeatureMap(
        f"{scattering.VERSION}-groups", apply, channels, side[0] * side[1], stored=True
    )


def _random(inputs: int) -> FeatureMap:
    rng = np.random.default_rng(RANDOM_SEED)
    weights = torch.from_numpy(rng.standard_normal((inputs, RANDOM_FEATURES))).float()
    phases = torch.from_numpy(rng.uniform(0, 2 * math.pi, RANDOM_FEATURES)).float()

    def apply(batch: torch.Tensor) -> torch.Tensor:
        # Rahimi and Recht's cosines; columns in [-1, 1] over √F give a unit-scale kernel.
        rows = columns(batch)
        return torch.cos(2.0 * rows @ weights + phases) * math.sqrt(1.0 / RANDOM_FEATURES)

    return FeatureMap("random-fourier-1", apply, RANDOM_FEATURES, 1, stored=False)


def _user(name: str, function: Any, shape: tuple[int, ...]) -> FeatureMap:
    def apply(batch: torch.Tensor) -> torch.Tensor:
        # The released model has its pixels in [0, 1] too, whatever they were stored as.
        out = torch.as_tensor(np.asarray(function(as_float(batch).numpy())))
        if out.ndim != 2 or len(out) != len(batch):
            raise ValueError(
                f"the features {name!r} turned {len(batch)} records into an array of shape "
                f"{tuple(out.shape)}; they must give one row for each record"
            )
        return out.float()

    # Made-up records: width and coupling are found without reading any.
    width = apply(torch.zeros(1, *shape)).shape[1]
    block = torch.rand((4, *shape), generator=torch.Generator().manual_seed(0))
    other = torch.cat([block[:1], 1.0 - block[1:]])
    if not torch.allclose(apply(block)[0], apply(other)[0], rtol=1e-4, atol=1e-6, equal_nan=True):
        raise ValueError(
            f"the features {name!r} of a record change when the records beside it change, or at "
            "every call; use a fixed function of one record"
        )
    return FeatureMap(name, apply, width, 1, stored=False, built_in=False)
