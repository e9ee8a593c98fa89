"""Fixed feature maps with their provenance, computed once and cached."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from simplexdp.features import cache
from simplexdp.features.cache import room
from simplexdp.features.maps import NAMES, Array, FeatureMap, RowMap, build
from simplexdp.features.provenance import NO_DATA, Provenance

__all__ = ["NAMES", "NO_DATA", "FeatureMap", "Provenance", "RowMap", "build", "compute", "room"]

# Small blocks stay in the processor's cache: 32 images are faster than 256.
BLOCK = 32


def compute(inputs: Array, feature_map: FeatureMap, use_cache: bool = True) -> Array:
    """Return the features of all records, float32 (N, d): from the cache where they are stored.

    A row need not be finite: whether one is depends on a private record, so nothing is refused for
    it. The methods count such a row as zero.
    """
    if not (feature_map.stored and use_cache):
        size = BLOCK if feature_map.stored else 1024
        return _checked(np.concatenate(list(_blocks(inputs, feature_map, size))), feature_map)
    key = cache.fingerprint(inputs, feature_map.name)
    found = cache.read(key, len(inputs))
    if found is None:
        found = cache.write(
            key, len(inputs), feature_map.width, _blocks(inputs, feature_map, BLOCK)
        )
    return _checked(found, feature_map)


def _blocks(inputs: Array, feature_map: FeatureMap, size: int) -> Iterator[Array]:
    with torch.no_grad():
        for first in range(0, max(1, len(inputs)), size):
            # A copy: the inputs may be mapped read-only from disk.
            block = torch.from_numpy(np.array(inputs[first : first + size]))
            yield feature_map.apply(block).numpy()


def _checked(rows: Array, feature_map: FeatureMap) -> Array:
    if rows.ndim != 2 or rows.shape[1] != feature_map.width:
        raise ValueError(
            f"the features have shape {rows.shape[1:]}, not ({feature_map.width},); "
            "check the feature map"
        )
    return rows
