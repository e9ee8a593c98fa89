"""Feature maps by name, each a function of one record and of public numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simplexdp.features import encoders, normalize, patches, scattering
from simplexdp.features.provenance import Provenance, joined

Array = NDArray[Any]
RowMap = Callable[[torch.Tensor], torch.Tensor]

NAMES = (
    "auto",
    "scattering",
    "patches",
    "patches-d4",
    "patches+scattering",
    "columns",
    "random",
)
SMALLEST_SIDE = 8
RANDOM_FEATURES = 2048
# Public: the random map is part of the model's description, not of its privacy.
RANDOM_SEED = 20210103


@dataclass(frozen=True)
class FeatureMap:
    """A fixed map of one record.

    ``channels`` × ``positions`` is the shape of the feature vector: maps over an image have
    several positions, and a flat vector has one.

    Attributes:
        name: Its name with its version or a checksum; the cache's key.
        apply: Maps a batch of records.
        channels: Channels of the vector.
        positions: Positions of the vector.
        stored: Whether computing it costs more than reading it back.
        provenance: Where it comes from.
        largest: The largest eigenvalue of the second moment of its rows, by public images, where
            they are whitened by those; None where nothing public is known of their moments.
    """

    name: str
    apply: RowMap
    channels: int
    positions: int
    stored: bool
    provenance: Provenance = field(default_factory=Provenance)
    largest: float | None = None

    @property
    def width(self) -> int:
        """Return the number of features."""
        return self.channels * self.positions


def build(
    name: str | RowMap, input_shape: tuple[int, ...], trained_on: str | None = None
) -> FeatureMap:
    """Return the map of this name for records of this shape.

    Args:
        name: One of `NAMES`, an encoder (see `encoders.load`), several of these with a "+" between
            them, whose rows of norm 1 are put side by side, or a function or torch module of your
            own, which takes records (N, …) in single precision with pixels in [0, 1] and
            gives (N, d); it must treat every record by itself and not be fitted to the private
            data. "auto" is patches for colour images, scattering for grey ones, and columns for
            anything else.
        input_shape: The shape of one record.
        trained_on: What an encoder was trained on, as its user declares.

    Raises:
        ValueError: If there is no such map for such records.
    """
    if callable(name):
        return _encoded(encoders.own(name, trained_on), input_shape)
    if name == "auto":
        is_image = len(input_shape) == 3 and min(input_shape[1:]) >= SMALLEST_SIDE
        name = "columns"
        if is_image:
            kind = patches.KINDS["patches"]
            fits = input_shape[0] == 3 and min(input_shape[1:]) >= patches.smallest_side(kind)
            name = "patches" if fits else "scattering"
    if name == "scattering":
        return _scattering(input_shape)
    if name in _PATCHES:
        return _patches(name, input_shape)
    if name == "columns":
        return FeatureMap("columns-1", columns, math.prod(input_shape), 1, stored=False)
    if name == "random":
        return _random(math.prod(input_shape))
    if "+" in name:
        parts = [build(part, input_shape, trained_on) for part in name.split("+")]
        return _joined(parts)
    if ":" in name:
        return _encoded(encoders.load(name, input_shape, trained_on), input_shape)
    raise ValueError(
        f"unknown features {name!r}; use one of {', '.join(NAMES)}, timm:NAME, torchvision:NAME, "
        "hf:NAME, onnx:FILE or package.module:OBJECT"
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


# Name → what is put side by side, for 3 channels and for 1.
_PATCHES: dict[str, dict[int, tuple[str, ...]]] = {
    "patches": {3: ("patches",), 1: ("patches-grey",)},
    "patches-d4": {3: ("patches-d4",)},
    "patches+scattering": {1: ("patches-grey", "scattering-grey")},
}


def _patches(name: str, shape: tuple[int, ...]) -> FeatureMap:
    known = _PATCHES[name].get(shape[0] if len(shape) == 3 else 0, ())
    kinds = [patches.KINDS[one] for one in known]
    least = max((patches.smallest_side(kind) for kind in kinds), default=0)
    square = name == "patches-d4"
    exact = any(not kind.scales for kind in kinds) and shape[1:] != (28, 28)
    if not kinds or min(shape[1:]) < least or exact or (square and shape[1] != shape[2]):
        wanted = {
            "patches": f"images of 1 or 3 channels and at least {least or 16} pixels a side",
            "patches-d4": f"square colour images of at least {least or 16} pixels a side",
            "patches+scattering": "grey images of 28×28 pixels",
        }[name]
        raise ValueError(
            f"{name} needs {wanted}, not inputs of shape {shape}; use scattering, columns or random"
        )
    loaded = [(kind, *patches.load(one)) for one, kind in zip(known, kinds, strict=True)]

    def apply(batch: torch.Tensor) -> torch.Tensor:
        images = as_float(batch)
        rows = [patches.apply(images, kind, constants) for kind, constants, _ in loaded]
        return torch.cat(rows, 1) / math.sqrt(len(rows))

    with torch.no_grad():
        width = apply(torch.zeros(1, *shape)).shape[1]
    return FeatureMap(
        f"{name}-{patches.VERSION}",
        apply,
        width,
        1,
        stored=True,
        largest=max(largest for *_, largest in loaded),
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


def _joined(parts: list[FeatureMap]) -> FeatureMap:
    def apply(batch: torch.Tensor) -> torch.Tensor:
        rows = [normalize.unit(part.apply(batch)) for part in parts]
        return torch.cat(rows, 1) / math.sqrt(len(rows))

    largest = [part.largest for part in parts if part.largest is not None]
    return FeatureMap(
        "+".join(part.name for part in parts),
        apply,
        sum(part.width for part in parts),
        1,
        # Where one is of weights without a checksum, its rows must not be taken for another's.
        stored=all(part.stored or part.provenance == Provenance() for part in parts),
        provenance=joined([part.provenance for part in parts]),
        largest=max(largest) if len(largest) == len(parts) else None,
    )


def _encoded(encoder: encoders.Encoder, shape: tuple[int, ...]) -> FeatureMap:
    # The released model has its pixels in [0, 1] too, whatever they were stored as.
    seen = replace(encoder, apply=lambda batch: encoder.apply(as_float(batch)))
    width = encoders.probed(seen, shape)
    return FeatureMap(
        encoder.name,
        lambda batch: encoders.rows(seen, batch),
        width,
        1,
        stored="#" in encoder.name,  # a checksum: what is stored is of these weights
        provenance=replace(encoder.provenance, record_wise=True),
    )
