"""The cache of computed features: one .npy file for each data set and feature map.

The name is a digest of the inputs, of the feature map and of its version, so a file can never be
taken for another data set's. A file is written beside its place and renamed when complete. The
features are as private as the inputs: the folder is readable by its owner alone.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simplexdp import files

Array = NDArray[Any]
SECONDS_UNTIL_ABANDONED = 3600.0


def folder() -> Path:
    """Return the cache of features."""
    return files.cache_folder("features")


def fingerprint(inputs: Array, feature_map: str) -> str:
    """Return a digest of the inputs, their shape and type, and what is computed from them."""
    digest = hashlib.sha256(f"{feature_map}|{inputs.shape}|{inputs.dtype}|".encode())
    for first in range(0, len(inputs), 8192):
        digest.update(np.ascontiguousarray(inputs[first : first + 8192]).data)
    return digest.hexdigest()[:32]


def read(key: str, rows: int) -> Array | None:
    """Return the stored features, mapped from disk; None for another length, or no file."""
    path = folder() / f"{key}.npy"
    if not path.is_file():
        return None
    try:
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError):
        return None  # damaged, or empty after a loss of power: it is computed again and replaced
    return stored if stored.ndim == 2 and len(stored) == rows else None


def write(key: str, rows: int, columns: int, blocks: Iterator[Array]) -> Array:
    """Write blocks of rows as they come, and give the finished file back, mapped from disk."""
    base = folder()
    files.make_cache(base, mode=0o700)
    for left in base.glob(".*.npy"):  # by a process that was killed; a living one writes on
        with suppress(FileNotFoundError):  # another process has just finished it
            if time.time() - left.stat().st_mtime > SECONDS_UNTIL_ABANDONED:
                left.unlink()
    handle, name = tempfile.mkstemp(dir=base, prefix=f".{key}.", suffix=".npy")
    os.close(handle)
    try:
        out = np.lib.format.open_memmap(name, mode="w+", dtype=np.float32, shape=(rows, columns))
        first = 0
        for block in blocks:
            out[first : first + len(block)] = block
            first += len(block)
        out.flush()
        del out
        os.replace(name, base / f"{key}.npy")
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    finished: Array = np.load(base / f"{key}.npy", mmap_mode="r", allow_pickle=False)
    return finished
