"""Write and read the lines of a ledger's file.

The file is append-only, with one JSON object a line. A line is on disk when `append` returns.
Writers hold a lock; readers tolerate the torn last line that a kill can leave and say so. Any other
damage, and any line that this version does not know, is an error, never a smaller total.
"""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from filelock import FileLock

from simplexdp.accounting.inputs import check_delta, check_epsilon
from simplexdp.accounting.totals import BROKEN

if TYPE_CHECKING:
    from dp_accounting import DpEvent

WEIGHTS, DRAWS, NOTHING = COVERS = ("weights", "draws", "nothing")
RECORD, PERSON = UNITS = ("record", "person")


@dataclass(frozen=True)
class Entry:
    """One reservation: a run, its event, what that covers, and the marks of what the run breaks."""

    id: str
    time: float
    data: str
    method: str
    run: str
    covers: str
    event: DpEvent
    run_id: str | None = None
    broken: tuple[str, ...] = ()
    unit: str = RECORD


@dataclass(frozen=True)
class Budget:
    """A budget that was set for a data set."""

    data: str
    epsilon: float
    delta: float


@contextmanager
def locked(path: Path) -> Iterator[TextIO]:
    """Open the file for appending, made where there is none, with every other writer kept out.

    The lock is a file beside it and stays there: of the same mode, so that whoever may write the
    ledger may wait for it, and beside the file itself where `path` is a link.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        lock = f"{path.resolve()}.lock"
        with FileLock(lock, mode=mode, poll_interval=0.01, fallback_to_soft=False):
            yield file


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


def read(path: Path) -> tuple[list[Entry | Budget], tuple[str, ...]]:
    """Return the reservations and budgets of the file, and what was odd about it.

    A line that is no JSON is passed over only where it is a torn one: the unterminated last line,
    or one that the next writer closed and marked. Its run had not started. A last line that lacks
    nothing but its newline is counted.

    Raises:
        ValueError: A line is damaged, or of a newer version.
    """
    if not path.exists():
        return [], ()
    raw = path.read_bytes().split(b"\n")
    last, records, notes = len(raw) - 1, [], []
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
        try:
            known = None if _is_mark(record) else _known(record)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ValueError(
                f"line {number + 1} of the ledger {path} is damaged, or of a newer version; "
                "restore the file from a copy, or use that version"
            ) from error
        if number == last:
            notes.append(f"line {number + 1} has lost the newline at its end; it is counted")
        records += [] if known is None else [known]
    return records, tuple(notes)


def _torn(path: Path) -> bool:
    """Return whether the file ends inside a line."""
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _parse(line: bytes) -> Any:
    """Return the JSON of a line; None if it is none, as no part of a JSON object is."""
    try:
        return json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
    except (ValueError, RecursionError):  # JSON, but of too many digits or too deep
        return False


def _is_mark(record: Any) -> bool:
    """Return whether a line says that the one before it was torn."""
    return isinstance(record, dict) and record.get("kind") == "torn"


def _known(record: Any) -> Entry | Budget:
    """Return what a line says, in today's form; refuse a line that says less or something else."""
    match record:
        case {"kind": "budget", "data": str(data), "epsilon": epsilon, "delta": delta}:
            check_epsilon(epsilon)  # NaN would admit every run
            check_delta(delta)
            return Budget(data, epsilon, delta)
        case {"kind": "reserve", "data": str(data), "covers": str(covers), "event": dict(event)}:
            from simplexdp.accounting.events import from_json

            # Version 0.1.0 kept the marks in the event.
            broken = (*record.get("broken", ()), *event.get("broken", ()))
            unit = record.get("unit", RECORD)
            if covers not in COVERS or not set(broken) <= set(BROKEN) or unit not in UNITS:
                raise ValueError("unknown coverage, mark or unit")
            names = ("id", "time", "data", "method", "run", "covers")
            return Entry(
                **{name: record[name] for name in names},
                event=from_json(event),
                run_id=record.get("run_id"),
                broken=broken,
                unit=unit,
            )
    raise ValueError("unknown kind of line")
