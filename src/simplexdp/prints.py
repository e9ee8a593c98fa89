"""Provide keyed fingerprints of files and records, by which a ledger knows data under any name.

The key is a secret beside the ledger. Without it a print tells nothing of the records; with it
one can test whether a record that one has is among them.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simplexdp import files

KEY = ".key"
SKETCHED = 512  # of the records' digests are kept: the smallest
BYTES = 6  # of each


def key_of(ledger: Path, known: str, *, new: bool = False) -> tuple[bytes, str]:
    """Return the secret beside a ledger, made where there is none, and its id.

    Args:
        ledger: The ledger's file.
        known: The id of the key that its prints were made with, "" before there are any.
        new: Whether it may be another key.

    Raises:
        ValueError: The key is gone or another one.
    """
    path = ledger.with_name(ledger.name + KEY)
    there = path.is_file()  # a pipe would block for ever
    if not there and (new or not known):
        files.write_atomically(path, secrets.token_hex(32).encode() + b"\n", 0o600)
    if there or new or not known:
        key = hashlib.sha256(path.read_bytes().strip()).digest()
        name = hashlib.blake2b(b"the key of a ledger", key=key, digest_size=8).hexdigest()
        if new or known in ("", name):
            return key, name
    raise ValueError(
        f"{path} is not the secret by which the ledger knows data; restore it, or begin with "
        "another: simplexdp ledger verify --accept"
    )


def of_file(path: Path, key: bytes) -> str:
    """Return the print of a file's bytes."""
    digest = hashlib.blake2b(key=key, digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return f"file:{digest.hexdigest()}"


def of_records(records: NDArray[Any], key: bytes) -> tuple[str, str]:
    """Return the print of records in any order, and a sketch of which they are.

    Of two sets that share m records and the larger of which has n, the sketches share about
    min(m, 512·m/n) digests.
    """
    rows = np.ascontiguousarray(records)
    form = hashlib.blake2b(f"{rows.dtype.str}{rows.shape[1:]}".encode(), key=key, digest_size=16)
    digests = np.empty(len(rows), dtype=">u8")
    for index, row in enumerate(rows):
        one = form.copy()
        one.update(row.tobytes())
        digests[index] = int.from_bytes(one.digest()[:8], "big")
    digests.sort()
    whole = hashlib.blake2b(digests.tobytes(), key=key, digest_size=16).hexdigest()
    smallest = np.unique(digests)[:SKETCHED]
    cut = b"".join(int(one).to_bytes(8, "big")[:BYTES] for one in smallest)
    return f"records:{whole}", base64.b64encode(cut).decode()


def share_records(one: str, other: str) -> bool:
    """Return whether two sketches have a record in common."""

    def digests(sketch: str) -> set[bytes]:
        raw = base64.b64decode(sketch)
        return {raw[at : at + BYTES] for at in range(0, len(raw), BYTES)}

    return bool(digests(one) & digests(other))


def stat_of(path: Path) -> tuple[int, ...]:
    """Return device, inode, size and time of change of a file or folder."""
    found = os.stat(path)
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
