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
import io
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock

from simplexdp import files
from simplexdp.accounting.inputs import check_delta, check_epsilon
from simplexdp.accounting.totals import BROKEN
from simplexdp.tally import COVERS, RECORD, UNITS, Budget, Entry, Line, Policy, Tally, known_from

HEAD, LOCK = ".head", ".lock"
BLOCK = 1 << 20
BINARY = getattr(os, "O_BINARY", 0)  # Windows would write other line ends
REPAIR = "restore both from a copy, or accept what is there: simplexdp ledger verify --accept"


@dataclass
class Page:
    """The file as it was read, and what it comes to.

    Attributes:
        path: The file itself, where the ledger's path is a link.
        raw: Its bytes, as far as the head does not know them.
        base: Where in the file those begin.
        tallies: The totals by name, in the order of their first lines.
        notes: What was odd about it.
        lines: How many lines there are.
        faults: What shows that lines were changed or are missing.
        unfinished: What of a line the file ends in, which a kill can leave.
        key: The id of the secret that data are known by, "" before there is one.
    """

    path: Path
    raw: bytes = b""
    base: int = 0
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
        """Return the lines of the file with this text in them."""
        wanted, found, at, kept = text.encode(), [], 0, b""
        with open(self.path, "rb") as file:
            while block := file.read(BLOCK):
                block = kept + block
                position = -1
                while (position := block.find(wanted, position + 1)) >= 0:
                    found.append(at - len(kept) + position)
                at += len(block) - len(kept)
                kept = block[-len(wanted) + 1 :]
            begins = {self._begin(file, position) for position in found}
        lines = [self.line_at(begin) for begin in sorted(begins)]
        return [line for line in lines if line is not None]

    @staticmethod
    def _begin(file: BinaryIO, position: int) -> int:
        """Return where the line of a position begins."""
        reach = 1024
        while True:
            first = max(0, position - reach)
            file.seek(first)
            newline = file.read(position - first).rfind(b"\n")
            if newline >= 0 or first == 0:
                return first + newline + 1
            reach *= 4

    def line_at(self, begin: int) -> Line | None:
        """Return the line that begins at an offset of the file, None if it adds nothing."""
        with open(self.path, "rb") as file:
            file.seek(begin)
            record = _parse(file.readline())
        return _known(record) if record else None

    def scan(self, heads: set[str] | None = None, until: int | None = None) -> Iterator[Line]:
        """Yield the lines that were not scanned yet, and add them to the totals.

        The digests of all states on the way are added to `heads`; `until` is an offset.
        """
        raw, past = self.raw, memoryview(self.raw)
        stop = len(raw) if until is None else min(len(raw), until - self.base)
        while self._position < stop:
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
            if record is None and _is_mark(_parse(raw[end + 1 :].partition(b"\n")[0])):
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
                self.tallies.setdefault(found.data, Tally()).add(found, number, self.base + begin)
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
            "bytes": self.base + self._position + (not self._closed),
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
            with _opened(whole) as file:
                return _page(whole, file, head)
        except ValueError:
            if _bytes(_beside(whole, HEAD)) == head:  # else a writer came between
                raise


def _page(path: Path, file: BinaryIO, head: bytes | None) -> Page:
    """Return the file with its totals; those of the head are not counted again."""
    if head is None:
        page = Page(path, file.read()).finish()
        if page._chained:
            raise ValueError(f"{_beside(path, HEAD)} is missing, and lines may be too; {REPAIR}")
        return page
    state = _state(_beside(path, HEAD), head)
    page, left = Page(path), state["bytes"]
    while left and (block := file.read(min(BLOCK, left))):
        page._hash.update(block)
        left -= len(block)
    if left == 1:  # the newline of the last line
        page._hash.update(b"\n")
        page._closed = False
    if left > 1 or page.digest != state["digest"]:
        file.seek(0)
        Page(path, file.read()).finish()  # names the line where it can
        raise ValueError(
            f"the ledger {path} is not as its head left it: of its {state['lines']} lines the last "
            f"were changed or are missing; {REPAIR}"
        )
    page.tallies = {name: Tally.from_json(one) for name, one in state["tallies"].items()}
    page.notes, page.lines, page.key = list(state["notes"]), state["lines"], state["key"]
    page._chained, page.base, page.raw = state["chained"], state["bytes"] - left, file.read()
    return page.finish()


def examine(path: Path) -> tuple[Page, set[str]]:
    """Read every line of a ledger; return it, and the digests of all states it went through.

    What does not fit, its head included, is among its `faults`.

    Raises:
        ValueError: A line is damaged, or of a newer version.
    """
    whole = path.resolve()
    head = _bytes(_beside(whole, HEAD))
    with _opened(whole) as file:
        return _examined(whole, file, head)


def _examined(whole: Path, file: BinaryIO, head: bytes | None) -> tuple[Page, set[str]]:
    page, heads = Page(whole, file.read()), set[str]()
    faults, known = [], 0
    try:
        known = 0 if head is None else _state(_beside(whole, HEAD), head)["bytes"]
    except ValueError as error:
        faults.append(str(error))
    for _ in page.scan(heads, known):
        pass
    if known and page.head() != head:
        faults.append(f"{_beside(whole, HEAD)} is not the head of these lines")
    for _ in page.scan(heads):
        pass
    if head is None and page._chained:
        faults.append(f"{_beside(whole, HEAD)} is missing, and lines may be too")
    page.faults += faults
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
        descriptor = os.open(whole, os.O_RDWR | os.O_APPEND | os.O_CREAT | BINARY, mode)
        try:
            head = _bytes(_beside(whole, HEAD))
            with open(descriptor, "rb", closefd=False) as file:
                page = _examined(whole, file, head)[0] if accept else _page(whole, file, head)
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
    if not path.exists():
        return None
    _check_regular(path)
    return path.read_bytes()


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read; one that is not there is empty."""
    if not path.exists():
        yield io.BytesIO()
        return
    _check_regular(path)
    with open(path, "rb") as file:
        yield file


def _check_regular(path: Path) -> None:
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path} is no regular file; name another ledger")


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


def entries(page: Page) -> list[Entry]:
    """Return every reservation of a file."""
    whole = Page(page.path, page.path.read_bytes() if page.path.exists() else b"")
    return [line for line in whole.scan() if isinstance(line, Entry)]


def quoted(text: str) -> str:
    """Return a text as a line holds it."""
    return json.dumps(text)
