"""The ledger's file: kills, torn and damaged lines, writers at once, a disk that fills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from simplexdp.accounting import events
from simplexdp.ledger import BudgetExceeded, Ledger


@pytest.fixture
def book(tmp_path):
    return Ledger(tmp_path / "deep" / "ledger.jsonl")


def head_of(book):
    return book.path.with_name(book.path.name + ".head")


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_torn_last_line_is_tolerated_reported_and_closed(book, cut):
    book.reserve("digits", "certified", events.gaussian(10.0), "a", "weights")
    head = head_of(book).read_bytes()
    book.reserve("digits", "certified", events.gaussian(10.0), "b", "weights")
    whole = book.path.read_bytes()
    book.path.write_bytes(whole[:-cut])
    head_of(book).write_bytes(head)  # killed before the line was acknowledged
    # A line that lost only its newline is whole, and counted.
    kept = ["a", "b"] if cut == 1 else ["a"]
    assert [entry.run for entry in book.entries()] == kept
    assert ("newline" if cut == 1 else "torn") in book.spent("digits", 1e-5).notes[0]
    book.reserve("digits", "certified", events.gaussian(10.0), "c", "weights")
    assert [entry.run for entry in book.entries()] == [*kept, "c"]


def test_without_its_last_newline_a_ledger_spends_no_less(book):
    book.set_budget("digits", 1.0, 1e-5)
    event = events.gaussian(5.0)  # about 0.7 once, above 1 twice
    book.reserve("digits", "certified", event, "a", "weights")
    before = book.spent("digits", 1e-5)
    book.path.write_bytes(book.path.read_bytes().removesuffix(b"\n"))
    assert book.spent("digits", 1e-5).together == before.together > 0
    with pytest.raises(BudgetExceeded):
        book.reserve("digits", "certified", event, "b", "weights")


def test_other_damage_is_an_error_and_never_a_smaller_total(book):
    for run in "abc":
        book.reserve("digits", "certified", events.gaussian(10.0), run, "weights")
    lines = book.path.read_bytes().split(b"\n")
    lines[1] = lines[1][:-20]
    book.path.write_bytes(b"\n".join(lines))
    with pytest.raises(ValueError, match=r"line 2 .* damaged"):
        book.spent("digits", 1e-5)
    with pytest.raises(ValueError, match="damaged"):
        book.reserve("digits", "certified", events.gaussian(10.0), "d", "weights")


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


WRITE_MANY = """
import sys
from simplexdp.accounting.events import gaussian
from simplexdp.ledger import Ledger
for number in range(25):
    Ledger(sys.argv[1]).reserve("d", "m", gaussian(100.0), sys.argv[2] + str(number), "weights")
"""

RESERVE_ONCE = """
import sys
from simplexdp.accounting.events import gaussian
from simplexdp.ledger import BudgetExceeded, Ledger
try:
    Ledger(sys.argv[1]).reserve("d", "m", gaussian(6.0), sys.argv[2], "weights")
    print("started")
except BudgetExceeded:
    print("refused")
"""


def test_three_writers_at_once(book):
    writers = [start(WRITE_MANY, book.path, name) for name in "xyz"]
    assert [writer.communicate()[0] for writer in writers] == [""] * 3
    runs = [entry.run for entry in book.entries("d")]
    assert sorted(runs) == sorted(f"{n}{k}" for n in "xyz" for k in range(25))


def test_of_two_runs_that_do_not_both_fit_one_is_refused(book):
    book.set_budget("d", 0.8, 1e-5)
    runs = [start(RESERVE_ONCE, book.path, name) for name in "ab"]
    answers = sorted(run.communicate()[0].strip() for run in runs)
    assert answers == ["refused", "started"]


def test_a_writer_killed_at_any_time_leaves_a_ledger_that_reads(book):
    code = (
        "import sys; from simplexdp.ledger import Ledger\n"
        "from simplexdp.accounting.events import gaussian\n"
        "k = 0\n"
        "while True:\n"
        "    Ledger(sys.argv[1]).reserve('d', 'm', gaussian(1e4), str(k), 'weights')\n"
        "    print(k, flush=True); k += 1\n"
    )
    started = 0
    for _ in range(3):
        process = start(code, book.path)
        process.stdout.readline()
        time.sleep(0.15)
        os.kill(process.pid, signal.SIGKILL)
        started += 1 + len(process.stdout.read().split())
        process.wait()
        process.stdout.close()
        assert len(book.entries("d")) >= started


@pytest.mark.parametrize("torn", [b"", b'{"kind": "run", "da'])
def test_a_disk_that_fills_leaves_the_ledger_readable(book, monkeypatch, torn):
    """Also where the line before was torn, and where a part of the new one was written."""
    book.reserve("digits", "certified", events.gaussian(2.0), "a", "weights")
    before = book.path.read_bytes() + torn
    book.path.write_bytes(before)
    write, left = os.write, [30]

    def fills(descriptor, line):
        if left[0] == 0:
            raise OSError(28, "No space left on device")
        part = line[: left[0]]
        left[0] -= len(part)
        return write(descriptor, part)

    monkeypatch.setattr(os, "write", fills)
    with pytest.raises(OSError, match="No space left"):
        book.reserve("digits", "certified", events.gaussian(2.0), "b", "weights")
    assert book.path.read_bytes() == before
    monkeypatch.undo()
    assert len(book.entries("digits")) == 1
    book.reserve("digits", "certified", events.gaussian(2.0), "b", "weights")
    assert len(book.entries("digits")) == 2


@pytest.mark.parametrize("end", ["\n", "", '\n{"kind": "torn"}\n'])
@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "reserve", "data": "d"}',
        '{"kind": "budget"}',
        '{"kind": "spend", "data": "d", "epsilon": 3.0}',
        '{"kind": ["reserve"]}',
        '{"kind": "budget", "data": 5, "epsilon": 1.0, "delta": 1e-5}',
        '{"kind": "budget", "data": "d", "epsilon": NaN, "delta": 1e-5}',
        '{"kind": "budget", "data": "d", "epsilon": null, "delta": 1e-5}',
        '{"kind": "budget", "data": "d", "epsilon": 1.0, "delta": 2}',
        "7",
    ],
)
def test_a_line_of_another_kind_or_with_less_than_its_kind_holds_is_damage(book, line, end):
    book.path.parent.mkdir(parents=True, exist_ok=True)
    book.path.write_text(line + end)
    with pytest.raises(ValueError, match=r"line 1 .* damaged, or of a newer version"):
        book.spent("d", 1e-5)


OLD = {"type": "gaussian", "noise_multiplier": 9.0, "steps": 1}  # as version 0.1.0 wrote it


@pytest.mark.parametrize(
    "change",
    [
        {"covers": "everything"},
        {"data": None},
        {"event": {"type": "gaussian", "noise_multiplier": "9", "steps": 1}},
        {"event": {"type": "gaussian", "noise_multiplier": 9.0, "steps": float("nan")}},
        {"event": {"type": "laplace", "noise_multiplier": 9.0, "steps": 1}},
        {"event": {"type": "gaussian", "noise_multiplier": 9.0}},
        {"event": {**events.to_json(events.gaussian(9.0)), "broken": ["sampling"]}},
        {"event": {**OLD, "broken": ["sampling"]}},
    ],
)
def test_a_reservation_that_this_version_cannot_count_is_an_error(book, change):
    book.reserve("d", "m", events.gaussian(9.0), "a", "weights")
    line = json.loads(book.path.read_text())
    book.path.write_text(json.dumps({**line, **change}) + "\n")
    with pytest.raises(ValueError, match=r"line 1 .* newer version"):
        book.spent("d", 1e-5)
    if "event" in change:
        with pytest.raises(ValueError, match="does not know an event"):
            Ledger(book.path.parent / "new").reserve("d", "m", change["event"], "a", "weights")
