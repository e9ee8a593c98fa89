"""The cache of fetched data sets: plain .npy files with a manifest, put in place atomically.

A set is written to a temporary folder beside its final place and renamed when complete, under a
file lock: two processes that fetch at once give one result, and a kill leaves only a temporary
folder that the next fetch removes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from simplexdp import files
from simplexdp.data.dataset import Array, DataError, Split

FORMAT = 1
SPLITS = ("train", "validation", "test")


def root() -> Path:
    """Return the folder of the cache."""
    return files.cache_folder("datasets")


def array_digest(array: Array) -> str:
    """Return the sha256 of an array's elements in C order, whatever file they came from."""
    return hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()


@dataclass(frozen=True)
class Entry:
    """A cached set: its folder and its manifest."""

    folder: Path
    manifest: Mapping[str, Any]

    @property
    def verified(self) -> bool:
        """Return whether the files were the original ones."""
        return bool(self.manifest["verified"])

    @property
    def provenance(self) -> tuple[str, ...]:
        """Return where the files came from, in sentences."""
        return tuple(self.manifest["provenance"])


@contextmanager
def locked(base: Path, key: str) -> Iterator[None]:
    """Hold the set's lock; the kernel drops it when the process ends, however it ends."""
    files.make_cache(base)
    with FileLock(base / f".{key}.lock", fallback_to_soft=False):
        yield


@contextmanager
def work_folder(base: Path, key: str) -> Iterator[Path]:
    """Return an empty folder for downloads; the caller holds the lock."""
    work = base / f".{key}.work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _damaged(folder: Path, reason: str) -> DataError:
    return DataError(
        f"the cached copy {folder} is damaged ({reason}): "
        f"remove that folder, or fetch again with --force"
    )


def entry(base: Path, key: str) -> Entry | None:
    """Return the cached set under a key, or None; refuse a folder without a readable manifest."""
    folder = base / key
    if not folder.is_dir():
        return None
    try:
        manifest = files.read_json(folder / "manifest.json")
    except (OSError, ValueError) as error:
        raise _damaged(folder, "its manifest cannot be read") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise _damaged(folder, "its manifest has another format")
    return Entry(folder, manifest)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write_array(path: Path, array: Array) -> dict[str, Any]:
    contiguous = np.ascontiguousarray(array)
    np.save(path, contiguous, allow_pickle=False)
    _sync(path)
    return {
        "sha256": array_digest(contiguous),
        "bytes": path.stat().st_size,
        "shape": list(contiguous.shape),
        "dtype": contiguous.dtype.str,
    }


def store(base: Path, key: str, splits: Mapping[str, Split], facts: Mapping[str, Any]) -> Entry:
    """Write a set and put it in place in one rename; the caller holds the lock."""
    for leftover in base.glob(f".{key}.partial-*"):
        shutil.rmtree(leftover)
    partial = base / f".{key}.partial-{os.getpid()}"
    partial.mkdir()
    arrays = {
        f"{name}_{what}": _write_array(partial / f"{name}_{what}.npy", getattr(split, what))
        for name, split in splits.items()
        for what in ("inputs", "labels")
    }
    manifest = {"format": FORMAT, **facts, "arrays": arrays}
    (partial / "manifest.json").write_text(json.dumps(manifest, indent=1), "utf-8")
    _sync(partial / "manifest.json")
    _sync(partial)
    final = base / key
    if final.exists():
        final.rename(base / f".{key}.partial-old-{os.getpid()}")
    partial.rename(final)
    _sync(base)
    for replaced in base.glob(f".{key}.partial-old-*"):
        shutil.rmtree(replaced)
    return Entry(final, manifest)


def _open_array(found: Entry, name: str) -> Array:
    facts = found.manifest["arrays"][name]
    path = found.folder / f"{name}.npy"
    if not path.is_file() or path.stat().st_size != facts["bytes"]:
        raise _damaged(found.folder, f"{name}.npy is missing or has another size")
    array: Array = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    if list(array.shape) != facts["shape"] or array.dtype.str != facts["dtype"]:
        raise _damaged(found.folder, f"{name}.npy has another shape or type")
    return array


def open_splits(found: Entry) -> dict[str, Split]:
    """Return the splits, memory-mapped read-only; sizes, shapes and types are compared."""
    return {
        name: Split(
            _open_array(found, f"{name}_inputs"),
            np.array(_open_array(found, f"{name}_labels"), dtype=np.int64),
        )
        for name in SPLITS
        if f"{name}_inputs" in found.manifest["arrays"]
    }


def verify(found: Entry) -> dict[str, str]:
    """Recompute every array's sha256 and compare it with the manifest."""
    actual = {name: array_digest(_open_array(found, name)) for name in found.manifest["arrays"]}
    for name, digest in actual.items():
        if digest != found.manifest["arrays"][name]["sha256"]:
            raise _damaged(found.folder, f"{name}.npy does not match its sha256")
    return actual
