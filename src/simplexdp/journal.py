"""Write and read the lines of a ledger's file, and notice every line that was changed or is gone.

The file is append-only, with one JSON object a line. Each line holds the SHA-256 digest of all
bytes before it, and a small file beside the ledger, its head, that of all bytes up to the last
line that was acknowledged, with the running totals. A line and then the head are on disk before a
run starts. What stands after the head's last line was not acknowledged: a whole line there is
counted, a torn one, which a kill can leave, is passed over and said. Any other difference, and any
line that this version does not know, is an error, never a smaller total.

Who can write the folder can write both files anew: `ledger verify --head` finds a head that was
noted elsewhere.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from simplexdp import files
from simplexdp.ledger_page import (
    HEAD,
    REPAIR,
    Page,
    beside,
    check_regular,
    checked,
    content,
    entries,
    examine,
    examined,
    read,
)

__all__ = ["REPAIR", "Page", "entries", "examine", "read", "writing"]

LOCK = ".lock"
BINARY = getattr(os, "O_BINARY", 0)  # Windows would write other line ends


@contextmanager
def writing(path: Path, *, accept: bool = False) -> Iterator[tuple[Page, Append]]:
    """Hold every other writer off; give the file as it is and what appends lines to it.

    The file is opened when the lock is held, since it may have been replaced before. The lock is a
    file beside it and stays there: of the same mode, so that whoever may write the ledger may wait
    for it, and beside the file itself where `path` is a link.
    """
    whole = path.resolve()
    _make_folder(whole.parent)
    mode = stat.S_IMODE(whole.stat().st_mode) if whole.exists() else 0o600
    lock = str(beside(whole, LOCK))
    with FileLock(lock, mode=mode, poll_interval=0.01, fallback_to_soft=False):
        if whole.exists():
            check_regular(whole)
        elif not accept:
            read(whole)  # a head without its ledger is refused before one is made
        descriptor = os.open(whole, os.O_RDWR | os.O_APPEND | os.O_CREAT | BINARY, mode)
        try:
            head = content(beside(whole, HEAD))
            with open(descriptor, "rb", closefd=False) as file:
                page = examined(whole, file, head)[0] if accept else checked(whole, file, head)
            yield page, Append(page, descriptor, mode)
        finally:
            os.close(descriptor)


@dataclass
class Append:
    """Writes lines to a file whose lock is held; they are on disk when a call returns."""

    page: Page
    descriptor: int
    mode: int

    def __call__(self, *records: Mapping[str, Any]) -> None:
        """Write whole lines and the head; close a torn line first.

        Where there is no room for them, nothing of them stays.
        """
        page, head = self.page, beside(self.page.path, HEAD)
        if not head.exists():  # a line that is chained is never without one
            files.write_atomically(head, page.head(), self.mode)
        digest, lines = page._hash.copy(), []
        if page.unfinished:
            lines = [b"\n", _line({"kind": "torn"}, digest, page.unfinished + b"\n")]
        elif not page._closed:
            lines = [b"\n"]
        text = b"".join([*lines, *(_line(record, digest) for record in records)])
        before = os.fstat(self.descriptor).st_size
        after = _page_after(page, text)
        try:
            self._write(text)
            files.write_atomically(head, after.head(), self.mode)
        except OSError:
            if content(head) != after.head():
                os.ftruncate(self.descriptor, before)
                os.fsync(self.descriptor)
            raise
        self.page = after

    def _write(self, text: bytes) -> None:
        rest = text
        while rest:  # a disk that fills takes a part of it
            rest = rest[os.write(self.descriptor, rest) :]
        os.fsync(self.descriptor)
        path = self.page.path
        there = os.stat(path) if path.exists() else None
        if there is None or not os.path.samestat(there, os.fstat(self.descriptor)):
            raise ValueError(
                f"the ledger {path} was replaced while a line was written; enter the run again"
            )
        files.flush_folder(path.parent)


def _page_after(page: Page, text: bytes) -> Page:
    """Return the page once these lines stand at its end."""
    after = Page(page.path, page.unfinished + text)
    after.tallies, after.notes = page.tallies, page.notes
    after.lines, after.key = page.lines, page.key
    after._hash, after._chained = page._hash, page._chained
    after.base = page.base + page._position
    after._position = int(not page._closed)
    return after.finish()


def _line(record: Mapping[str, Any], digest: Any, before: bytes = b"") -> bytes:
    """Return a line that holds the digest of all bytes before it, and add it to the digest."""
    digest.update(before)
    whole = {**record, "time": time.time(), "prev": digest.hexdigest()}
    line = (json.dumps(whole, allow_nan=False) + "\n").encode()
    digest.update(line)
    return line


def _make_folder(folder: Path) -> None:
    """Make a folder that only its owner enters, as far as it is not there, and flush its name."""
    if not folder.exists():
        _make_folder(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        files.flush_folder(folder.parent)
