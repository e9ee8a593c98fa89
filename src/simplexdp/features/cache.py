"""The cache of computed features: one .npy file for each data set and feature map.

The name is a digest of the inputs, of the feature map and of its version, so a file can never be
taken for another data set's. A file is written beside its place, with a digest of its rows, and
renamed when it is complete and on disk. The features are as private as the inputs: the folder is
readable by its owner alone.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from simplexdp import files

Array = NDArray[Any]
DIGEST_BYTES = 32  # of the rows, after them
ROWS_AT_ONCE = 8192


def folder() -> Path:
    """Return the folder of the cache."""
    return files.cache_folder("features")


def fingerprint(inputs: Array, feature_map: str) -> str:
    """Return a digest of the inputs, their shape and type, and what is computed from them."""
    digest = hashlib.sha256(f"{feature_map}|{inputs.shape}|{inputs.dtype}|".encode())
    for first in range(0, len(inputs), ROWS_AT_ONCE):
        digest.update(np.ascontiguousarray(inputs[first : first + ROWS_AT_ONCE]).data)
    return digest.hexdigest()[:32]


def read(key: str, rows: int) -> Array | None:
    """Return the stored features, mapped from disk; None unless they are as they were written.

    Whoever reads them would have to read them from disk anyway: the checksum costs one pass.
    """
    path = folder() / f"{key}.npy"
    try:
        stored: Array = np.load(path, mmap_mode="r", allow_pickle=False)
        whole = stored.nbytes + stored.offset + DIGEST_BYTES  # type: ignore[attr-defined]
        if stored.ndim != 2 or len(stored) != rows or path.stat().st_size != whole:
            return None
        with path.open("rb") as file:
            file.seek(-DIGEST_BYTES, os.SEEK_END)
            return stored if file.read() == _digest(stored).digest() else None
    except (ValueError, EOFError, FileNotFoundError):
        return None  # damaged, or empty after a loss of power: it is computed again and replaced


def write(key: str, rows: int, columns: int, blocks: Iterator[Array]) -> Array:
    """Write blocks of rows as they come, and give the finished file back, mapped from disk.

    Room for all of them is taken before the first is computed. Nothing is written through a memory
    map: on a full disk that is no error but the end of the process.
    """
    path = folder() / f"{key}.npy"
    files.make_cache(path.parent, mode=0o700)
    files.remove_abandoned(path.parent, seconds=files.SECONDS_UNTIL_ABANDONED)  # of other keys too
    name = files.beside(path)
    try:
        handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            header = np.lib.format.header_data_from_array_1_0(np.empty((0, columns), np.float32))
            np.lib.format.write_array_header_1_0(file, {**header, "shape": (rows, columns)})
            size = file.tell() + 4 * rows * columns + DIGEST_BYTES
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(handle, 0, size)
            digest = hashlib.sha256()
            for block in blocks:
                content = np.ascontiguousarray(block, dtype=np.float32).data
                digest.update(content)
                file.write(content)
            file.write(digest.digest())
            file.flush()
            os.fsync(handle)
        files.put_in_place(name, path)
    except BaseException as error:
        with suppress(OSError):
            name.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename, error.filename2 = str(path), None
        raise
    finished: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return finished


class Streamed:
    """Rows of whole numbers of 16 bits in a file without a name: memory holds a block of them.

    Nothing is mapped: a page that is read stays the system's own, to drop as it likes.

    Args:
        records: How many rows.
        width: Of how many coordinates.
    """

    def __init__(self, records: int, width: int) -> None:
        files.make_cache(folder(), mode=0o700)
        self.shape = (records, width)
        self._file = tempfile.TemporaryFile(dir=folder(), buffering=0)  # noqa: SIM115
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file.fileno(), 0, 2 * records * width)

    def __len__(self) -> int:
        """Return how many rows there are."""
        return self.shape[0]

    def __getitem__(self, where: slice, /) -> torch.Tensor:
        """Read some rows."""
        first, last, _ = where.indices(len(self))
        self._file.seek(2 * first * self.shape[1])
        rows = np.fromfile(self._file, np.int16, (last - first) * self.shape[1])
        return torch.from_numpy(rows.reshape(last - first, self.shape[1])).float()

    def __setitem__(self, where: slice, rows: torch.Tensor, /) -> None:
        """Write some rows, which must be whole numbers that 16 bits hold."""
        whole = rows.to(torch.int16)
        if not torch.equal(whole.float(), rows):
            raise ValueError("rows to be streamed must be whole numbers of 16 bits")
        self._file.seek(2 * where.indices(len(self))[0] * self.shape[1])
        whole.numpy().tofile(self._file)


def room(size: tuple[int, int], mebibytes: int) -> torch.Tensor | Streamed:
    """Return room for rows of this size: in memory up to so many MiB, else in a file."""
    fits = 4 * size[0] * size[1] <= mebibytes * 2**20
    return torch.empty(size, dtype=torch.float32) if fits else Streamed(*size)


def _digest(rows: Array) -> hashlib._Hash:
    digest = hashlib.sha256()
    for first in range(0, len(rows), ROWS_AT_ONCE):
        digest.update(np.ascontiguousarray(rows[first : first + ROWS_AT_ONCE]).data)
    return digest
