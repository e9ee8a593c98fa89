"""Read a ledger's file, and notice every line that was changed or is gone."""

from __future__ import annotations

import hashlib
import io
import json
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from simplexdp.ledger_lines import Entry, Line, is_mark, meaning, parse
from simplexdp.tally import Tally

HEAD = ".head"
BLOCK = 1 << 20
HELD = ("bytes", "lines", "digest", "chained", "notes", "key", "tallies")
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
            record = parse(file.readline())
        return meaning(record) if record else None

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
            record = parse(line) if line else None
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
            if record is None and is_mark(parse(raw[end + 1 :].partition(b"\n")[0])):
                self.notes.append(f"line {number} was torn by a kill before its run started")
                continue
            try:
                found = None if record is None else meaning(record)
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
        head = content(beside(whole, HEAD))  # before the file, which only grows
        try:
            with _opened(whole) as file:
                return checked(whole, file, head)
        except ValueError:
            if content(beside(whole, HEAD)) == head:  # else a writer came between
                raise


def checked(path: Path, file: BinaryIO, head: bytes | None) -> Page:
    """Return the file with its totals; those of the head are not counted again."""
    if head is None:
        page = Page(path, file.read()).finish()
        if page._chained:
            raise ValueError(f"{beside(path, HEAD)} is missing, and lines may be too; {REPAIR}")
        return page
    state = _state(beside(path, HEAD), head)
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
    page.tallies = state["tallies"]
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
    head = content(beside(whole, HEAD))
    with _opened(whole) as file:
        return examined(whole, file, head)


def examined(whole: Path, file: BinaryIO, head: bytes | None) -> tuple[Page, set[str]]:
    """Do as `examine`, with the file and its head at hand."""
    page, heads = Page(whole, file.read()), set[str]()
    faults, known = [], 0
    try:
        known = 0 if head is None else _state(beside(whole, HEAD), head)["bytes"]
    except ValueError as error:
        faults.append(str(error))
    for _ in page.scan(heads, known):
        pass
    if known and page.head() != head:
        faults.append(f"{beside(whole, HEAD)} is not the head of these lines")
    for _ in page.scan(heads):
        pass
    if head is None and page._chained:
        faults.append(f"{beside(whole, HEAD)} is missing, and lines may be too")
    page.faults += faults
    return page, heads


def entries(page: Page) -> list[Entry]:
    """Return every reservation of a file."""
    whole = Page(page.path, page.path.read_bytes() if page.path.exists() else b"")
    return [line for line in whole.scan() if isinstance(line, Entry)]


def _state(path: Path, head: bytes) -> Any:
    """Return what the head says; refuse one that was changed."""
    digest, _, text = head.removesuffix(b"\n").partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode() != digest:
        raise ValueError(f"{path} is damaged or was edited; {REPAIR}")
    try:
        state = json.loads(text)
        if state["format"] == 1:
            state["tallies"] = {n: Tally.from_json(one) for n, one in state["tallies"].items()}
            return {name: state[name] for name in HELD}
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise ValueError(f"{path} is damaged or was edited; {REPAIR}") from None
    raise ValueError(f"{path} is of a newer version; use that version")


def beside(path: Path, ending: str) -> Path:
    """Return the path of a file that belongs to a ledger."""
    return path.with_name(path.name + ending)


def content(path: Path) -> bytes | None:
    """Return the content of a file, None where there is none; a pipe would block for ever."""
    if not path.exists():
        return None
    check_regular(path)
    return path.read_bytes()


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file to read; one that is not there is empty."""
    if not path.exists():
        yield io.BytesIO()
        return
    check_regular(path)
    with open(path, "rb") as file:
        yield file


def check_regular(path: Path) -> None:
    """Refuse a folder, and a pipe, which would block for ever."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path} is no regular file; name another ledger")
