"""How are the ledger's lines written and read, and which are damaged?

An append-only file with one JSON object a line. A line is on disk when `append` returns. Writers
hold a lock, readers tolerate the torn last line that a kill can leave and say so; any other damage,
and any line that this version does not know, is an error, never a smaller total.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from simplexdp.accounting.charges import is_event
from simplexdp.accounting.inputs import check_delta, check_epsilon

WEIGHTS, DRAWS, NOTHING = COVERS = ("weights", "draws", "nothing")
# What a line of each kind holds; one with less is damaged.
_FIELDS = {
    "reserve": frozenset({"id", "time", "data", "method", "run", "covers", "event"}),
    "budget": frozenset({"data", "epsilon", "delta"}),
    "torn": frozenset(),
}


@contextmanager
def locked(path: Path) -> Iterator[TextIO]:
    """The file opened for appending, made where there is none, with every other writer kept out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file  # the lock goes with the file


def append(file: TextIO, record: Mapping[str, Any]) -> None:
    """Write one whole line, on disk when this returns; close a torn line first.

    Where there is no room for it, nothing of it stays.
    """
    before = os.fstat(file.fileno()).st_size
    text = json.dumps({**record, "time": time.time()}, allow_nan=False) + "\n"
    if _torn(Path(file.name)):
        text = "\n" + json.dumps({"kind": "torn", "time": time.time()}) + "\n" + text
    try:
        line = text.encode()
        while line:  # a disk that fills takes a part of it
            line = line[os.write(file.fileno(), line) :]
        os.fsync(file.fileno())
    except OSError:
        os.ftruncate(file.fileno(), before)
        raise


def read(path: Path) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The lines of the ledger, and what was odd about it.

    A line that is no JSON is passed over only where it is a torn one: the unterminated last line,
    or one that the next writer closed and marked. Its run had not started. A last line that lacks
    nothing but its newline is counted.
    """
    if not path.exists():
        return [], ()
    raw = path.read_bytes().split(b"\n")
    last, found, notes = len(raw) - 1, [], []
    for number, line in enumerate(raw):
        if not line:
            continue
        record = _parse(line)
        if record is None and number == last:
            notes.append(f"line {number + 1} is torn: a writer was killed before its run started")
            continue
        if record is None and number + 1 < last and _is_mark(_parse(raw[number + 1])):
            notes.append(f"line {number + 1} was torn by a kill before its run started")
            continue
        if not _is_known(record):
            raise ValueError(
                f"line {number + 1} of the ledger {path} is damaged, or of a newer version: "
                "restore the file from a copy, or use that version; nothing is counted from it"
            )
        if number == last:
            notes.append(f"line {number + 1} has lost the newline at its end; it is counted")
        found.append(record)
    return found, tuple(notes)


def _torn(path: Path) -> bool:
    """Whether the file ends inside a line."""
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _parse(line: bytes) -> Any:
    """The JSON of a line, None where it is none: a part of a JSON object never is."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def _is_mark(record: Any) -> bool:
    """Whether a line says that the one before it was torn."""
    return isinstance(record, dict) and record.get("kind") == "torn"


def _is_known(record: Any) -> bool:
    """Whether a line is of a kind that this version knows, and holds all that it should."""
    if not isinstance(record, dict) or str(record.get("kind")) not in _FIELDS:
        return False
    if not _FIELDS[record["kind"]] <= set(record):
        return False
    if record["kind"] == "torn":
        return True
    if record["kind"] == "budget":
        return isinstance(record["data"], str) and _is_budget(record["epsilon"], record["delta"])
    return (
        isinstance(record["data"], str) and record["covers"] in COVERS and is_event(record["event"])
    )


def _is_budget(epsilon: Any, delta: Any) -> bool:
    """Whether a budget is one that could have been set: NaN would admit every run."""
    try:
        check_epsilon(epsilon)
        check_delta(delta)
    except (TypeError, ValueError):
        return False
    return True
