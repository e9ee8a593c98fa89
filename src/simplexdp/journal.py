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

import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from simplexdp import files
from simplexdp.accounting.inputs import check_delta, check_epsilon
from simplexdp.accounting.totals import BROKEN
from simplexdp.tally import COVERS, Budget, Entry, Line, Policy, Tally, known_from

HEAD, LOCK = ".head", ".lock"
REPAIR = "restore both from a copy, or accept what is there: simplexdp ledger verify --accept"


@dataclass
class Page:
    """The file as it was read, and what it comes to.

    Attributes:
        path: The file itself, where the ledger's path is a link.
        raw: Its bytes.
        tallies: The totals by name, in the order of their first lines.
        notes: What was odd about it.
        lines: How many lines there are.
        faults: What shows that lines were changed or are missing.
        unfinished: What of a line the file ends in, which a kill can leave.
        key: The id of the secret that data are known by, "" before there is one.
    """

    path: Path
    raw: bytes = b""
    tallies: dict[str, Tally] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    lines: int = 0
    faults: list[str] = field(default_factory=list)
    unfinished: bytes = b""
    key: str = ""
    _hash: Any = field(default_factory=hashlib.sha256)
    _position: int = 0  # of what was not scanned yet
    _chained: bool = False
    _closed: bool = True  # whether the last line ends in a newline

    @property
    def digest(self) -> str:
        """Return the digest of all whole lines, which names this state of the ledger."""
        return str(self._hash.hexdigest())

    def lines_with(self, text: str) -> list[Line]:
        """Return the lines with this text in them."""
        found, position, wanted = [], 0, text.encode()
        while (position := self.raw.find(wanted, position)) >= 0:
            line = self.line_at(self.raw.rfind(b"\n", 0, position) + 1)
            found += [] if line is None else [line]
            position = self.raw.find(b"\n", position)
            if position < 0:
                break
        return found

    def line_at(self, begin: int) -> Line | None:
        """Return the line that begins at an offset, None if it adds nothing."""
        end = self.raw.find(b"\n", begin)
        record = _parse(self.raw[begin : end if end >= 0 else None])
        return _known(record) if record else None

    def scan(self, heads: set[str] | None = None) -> Iterator[Line]:
        """Yield the lines that were not scanned yet, and add them to the totals.

        The digests of all states on the way are added to `heads`.
        """
        raw, past = self.raw, memoryview(self.raw)
        while self._position < len(raw):
            begin, end = self._position, raw.find(b"\n", self._position)
            line, number = raw[begin : end if end >= 0 else None], self.lines + 1
            self._position = len(raw) if end < 0 else end + 1
            record = _parse(line) if line else None
            if record is None and line and end < 0:
                self._position = begin
                self.unfinished = line
                return
            self.lines = number
            before = self.digest
            self._hash.update(past[begin : self._position])
            if heads is not None:
                heads.add(self.digest)
            if not line:
                continue
            if record is None and _is_mark(_parse(raw[end + 1 :].split(b"\n", 1)[0])):
                self.notes.append(f"line {number} was torn by a kill before its run started")
                continue
            try:
                found = None if record is None else _known(record)
                if record is None:
                    raise ValueError("no JSON")
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise ValueError(
                    f"line {number} of the ledger {self.path} is damaged, or of a newer version; "
                    "restore the file from a copy, or use that version"
                ) from error
            self._check_chain(record, number, before)
            if end < 0:
                self._hash.update(b"\n")
                self._closed = False
            self.key = record.get("key", self.key)
            if found is not None:
                self.tallies.setdefault(found.data, Tally()).add(found, number, begin)
                yield found

    def _check_chain(self, record: Mapping[str, Any], number: int, before: str) -> None:
        """Note a line that does not follow from all bytes before it; one of 0.1.0 needs not."""
        previous = record.get("prev")
        if previous != before and (self._chained or previous is not None):
            self.faults.append(
                f"line {number} of the ledger {self.path} does not follow from the lines before it"
            )
        self._chained = self._chained or previous is not None
        if record["kind"] == "accepted":
            day = time.strftime("%Y-%m-%d", time.gmtime(float(record["time"])))
            said = "; ".join(str(fault) for fault in record["faults"])
            self.notes.append(f"line {number} accepted on {day} what had been changed: {said}")
            self.faults.clear()

    def finish(self) -> Page:
        """Scan what is left, and refuse a file that was changed."""
        for _ in self.scan():
            pass
        if self.faults:
            raise ValueError(f"{self.faults[0]}; {REPAIR}")
        return self

    def said(self) -> tuple[str, ...]:
        """Return what was odd about the file."""
        end = []
        if self.unfinished:
            end = [f"line {self.lines + 1} is torn: a writer was killed before its run started"]
        elif not self._closed:
            end = [f"line {self.lines} has lost the newline at its end; it is counted"]
        return (*self.notes, *end)

    def head(self) -> bytes:
        """Return the head of this state: its digest, and what it is the digest of."""
        record = {
            "format": 1,
            "bytes": len(self.raw) - len(self.unfinished) + (not self._closed),
            "lines": self.lines,
            "digest": self.digest,
            "chained": self._chained,
            "notes": self.notes,
            "key": self.key,
            "tallies": {name: tally.to_json() for name, tally in self.tallies.items()},
        }
        text = json.dumps(record).encode()
        return hashlib.sha256(text).hexdigest().encode() + b"\n" + text + b"\n"


def read(path: Path) -> Page:
    """Return the ledger's file, checked against its head.

    Raises:
        ValueError: A line is damaged, was changed or is missing, or is of a newer version.
    """
    whole = path.resolve()
    while True:
        head = _bytes(_beside(whole, HEAD))  # before the file, which only grows
        try:
            return _page(whole, _bytes(whole) or b"", head)
        except ValueError:
            if _bytes(_beside(whole, HEAD)) == head:  # else a writer came between
                raise


def _page(path: Path, raw: bytes, head: bytes | None) -> Page:
    """Return the file with its totals; those of the head are not counted again."""
    if head is None:
        page = Page(path, raw).finish()
        if page._chained:
            raise ValueError(f"{_beside(path, HEAD)} is missing, and lines may be too; {REPAIR}")
        return page
    state = _state(_beside(path, HEAD), head)
    size, digest = state["bytes"], state["digest"]
    lost = len(raw) == size - 1  # the newline of the last line
    content = raw + b"\n" if lost else raw
    page = Page(path, raw)
    page._hash.update(memoryview(content)[:size])
    if len(content) < size or page.digest != digest:
        Page(path, raw).finish()  # names the line where it can
        raise ValueError(
            f"the ledger {path} is not as its head left it: of its {state['lines']} lines the last "
            f"were changed or are missing; {REPAIR}"
        )
    page.tallies = {name: Tally.from_json(one) for name, one in state["tallies"].items()}
    page.notes, page.lines, page.key = list(state["notes"]), state["lines"], state["key"]
    page._chained, page._position, page._closed = state["chained"], size, not lost
    return page.finish()


def examine(path: Path) -> tuple[Page, set[str]]:
    """Read every line of a ledger; return it, and the digests of all states it went through.

    What does not fit, its head included, is among its `faults`.

    Raises:
        ValueError: A line is damaged, or of a newer version.
    """
    whole = path.resolve()
    return _examined(whole, _bytes(whole) or b"", _bytes(_beside(whole, HEAD)))


def _examined(whole: Path, raw: bytes, head: bytes | None) -> tuple[Page, set[str]]:
    page, heads = Page(whole, raw), set[str]()
    for _ in page.scan(heads):
        pass
    if head is None:
        if page._chained:
            page.faults.append(f"{_beside(whole, HEAD)} is missing, and lines may be too")
        return page, heads
    try:
        state = _state(_beside(whole, HEAD), head)
        missing = b"\n" if len(raw) == state["bytes"] - 1 else b""
        then = Page(whole, (raw + missing)[: state["bytes"]])
        for _ in then.scan():
            pass
        if then.head() != head:
            page.faults.append(f"{_beside(whole, HEAD)} is not the head of these lines")
    except ValueError as error:
        page.faults.append(str(error))
    return page, heads


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
    lock = str(_beside(whole, LOCK))
    with FileLock(lock, mode=mode, poll_interval=0.01, fallback_to_soft=False):
        if not whole.exists() and not accept:
            read(whole)  # a head without its ledger is refused before one is made
        descriptor = os.open(whole, os.O_RDWR | os.O_APPEND | os.O_CREAT, mode)
        try:
            with open(descriptor, "rb", closefd=False) as file:
                raw = file.read()
            head = _bytes(_beside(whole, HEAD))
            page = _examined(whole, raw, head)[0] if accept else _page(whole, raw, head)
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
        page, head = self.page, _beside(self.page.path, HEAD)
        if not head.exists():  # a line that is chained is never without one
            files.write_atomically(head, page.head(), self.mode)
        text = b""
        digest = page._hash.copy()
        if page.unfinished:
            text = b"\n" + _line({"kind": "torn"}, digest, page.unfinished + b"\n")
        elif not page._closed:
            text = b"\n"
        for record in records:
            text += _line(record, digest)
        before = os.fstat(self.descriptor).st_size
        after = _page_after(page, text)
        try:
            self._write(text)
            files.write_atomically(head, after.head(), self.mode)
        except OSError:
            if _bytes(head) != after.head():
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
    after = Page(page.path, page.raw + text, page.tallies, page.notes, page.lines, key=page.key)
    after._hash, after._chained = page._hash, page._chained
    after._position = len(page.raw) - len(page.unfinished) + (not page._closed)
    return after.finish()


def _line(record: Mapping[str, Any], digest: Any, before: bytes = b"") -> bytes:
    """Return a line that holds the digest of all bytes before it, and add it to the digest."""
    digest.update(before)
    whole = {**record, "time": time.time(), "prev": digest.hexdigest()}
    line = (json.dumps(whole, allow_nan=False) + "\n").encode()
    digest.update(line)
    return line


def _state(path: Path, head: bytes) -> Any:
    """Return what the head says; refuse one that was changed."""
    digest, _, text = head.removesuffix(b"\n").partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != digest:
        raise ValueError(f"{path} is damaged or was edited; {REPAIR}")
    state = json.loads(text)
    if state["format"] != 1:
        raise ValueError(f"{path} is of a newer version; use that version")
    return state


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _bytes(path: Path) -> bytes | None:
    """Return the content of a file, None where there is none; a pipe would block for ever."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is no regular file; name another ledger")
    return path.read_bytes()


def _make_folder(folder: Path) -> None:
    """Make a folder that only its owner enters, as far as it is not there, and flush its name."""
    if not folder.exists():
        _make_folder(folder.parent)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        files.flush_folder(folder.parent)


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


def _known(record: Any) -> Line | None:
    """Return what a line says, in today's form; refuse a line that says less or something else."""
    match record:
        case {"kind": "torn"}:
            return None
        case {"kind": "accepted", "faults": list(), "key": str(), "time": float()}:
            return None
        case {"kind": "budget", "data": str(data), "epsilon": epsilon, "delta": delta}:
            check_epsilon(epsilon)  # NaN would admit every run
            check_delta(delta)
            return Budget(data, epsilon, delta)
        case {"kind": "policy", "data": str(data), "covered_only": bool(covered_only)}:
            return Policy(data, covered_only)
        case {"kind": "known", "data": str(), "key": str()}:
            return known_from(
                {k: v for k, v in record.items() if k not in ("kind", "time", "prev")}
            )
        case {"kind": "reserve", "data": str(data), "covers": str(covers), "event": dict(event)}:
            from simplexdp.accounting.events import from_json

            # Version 0.1.0 kept the marks in the event.
            broken = (*record.get("broken", ()), *event.get("broken", ()))
            if covers not in COVERS or not set(broken) <= set(BROKEN):
                raise ValueError("unknown coverage or mark")
            names = ("id", "time", "data", "method", "run", "covers")
            return Entry(
                **{name: record[name] for name in names},
                event=from_json(event),
                run_id=record.get("run_id"),
                broken=broken,
            )
    raise ValueError("unknown kind of line")


def entries(page: Page) -> list[Entry]:
    """Return every reservation of a file."""
    whole = Page(page.path, page.raw)
    return [line for line in whole.scan() if isinstance(line, Entry)]


def quoted(text: str) -> str:
    """Return a text as a line holds it."""
    return json.dumps(text)
