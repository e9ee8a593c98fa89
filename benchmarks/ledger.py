"""The time that a ledger of 100,000 entries takes to reserve a run, and to say a total.

    python benchmarks/ledger.py [--entries 100000] [--rounds 20]

Writes results/benchmarks/ledger.json and the table in results/tables.md. The ledger is made here,
in a temporary folder. Its runs are full-batch Gaussian, with another noise multiplier in every
entry, for which a total is exact; or beside such runs DP-SGD at one setting and Algorithm 1 at one,
whose total is a numerical composition of three distributions; or DP-SGD at twenty settings.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dp_accounting import DpEvent

from simplexdp import files, journal, runs
from simplexdp.accounting import events
from simplexdp.ledger import BudgetExceeded, Ledger

HERE = Path(__file__).resolve().parent.parent
OUT, PAGE = HERE / "results" / "benchmarks" / "ledger.json", HERE / "results" / "tables.md"
DELTA = 1e-5


def distinct(entries: int) -> Iterator[tuple[DpEvent, str]]:
    """Full-batch Gaussian runs, no two alike."""
    for number in range(entries):
        yield events.gaussian(1000.0 + number / entries), "weights"


def mixed(entries: int) -> Iterator[tuple[DpEvent, str]]:
    """Three kinds of runs, at one setting each."""
    kinds = (
        (events.gaussian(1000.0), "weights"),
        (events.sampled_gaussian(40.0, 0.001, 1), "weights"),
        (events.dirichlet(0.001, 3.0, 0.001, 1), "draws"),
    )
    for number in range(entries):
        yield kinds[number % 3]


def settings(entries: int) -> Iterator[tuple[DpEvent, str]]:
    """DP-SGD at twenty settings."""
    for number in range(entries):
        yield events.sampled_gaussian(40.0 + number // 4 % 20, 0.001, 1), "weights"


LEDGERS = {
    "Gaussian, all distinct": distinct,
    "three kinds": mixed,
    "DP-SGD, twenty settings": settings,
}


def begin(path: Path, runs_of: Iterator[tuple[DpEvent, str]]) -> Ledger:
    """Return a ledger of these entries, written at once."""
    records: list[dict[str, Any]] = [
        {
            "kind": "reserve",
            "id": f"{number:016x}",
            "data": f"data-{number % 4}",
            "method": "m",
            "run": f"/home/somebody/runs/run-{number}",
            "run_id": f"{number:032x}",
            "covers": covers,
            "event": events.to_json(event),
            "broken": [],
        }
        for number, (event, covers) in enumerate(runs_of)
    ]
    with journal.writing(path) as (_, append):
        append(*records)
    return Ledger(path)


def seconds(call: Callable[[], object], rounds: int) -> dict[str, float]:
    """Return the medians of a call's processor time and wall time, after one that is not timed."""
    call()
    busy, wall = [], []
    for _ in range(rounds):
        began, before = time.perf_counter(), time.process_time()
        call()
        busy.append(time.process_time() - before)
        wall.append(time.perf_counter() - began)
    return {
        "processor": statistics.median(busy),
        "wall": statistics.median(wall),
        "least wall": min(wall),
        "most wall": max(wall),
    }


def measure(name: str, entries: int, rounds: int) -> dict[str, Any]:
    """Return the times of one kind of ledger."""
    with tempfile.TemporaryDirectory() as folder:
        book = begin(Path(folder) / "ledger.jsonl", LEDGERS[name](entries))
        event = events.gaussian(1000.0)
        row: dict[str, Any] = {"ledger": name, "entries": entries}
        row["megabytes"] = round(book.path.stat().st_size / 1e6, 1)
        row["total"] = seconds(lambda: book.spent("data-0", DELTA), rounds)
        row["reserve, no budget"] = seconds(
            lambda: book.reserve("data-0", "m", event, "run", "weights"), rounds
        )
        book.set_budget("data-0", 100.0, DELTA)
        row["reserve, budget"] = seconds(
            lambda: book.reserve("data-0", "m", event, "run", "weights", run_id=str(time.time())),
            rounds,
        )
        row["refusal"] = seconds(lambda: refused(book), rounds)
        return row


def refused(book: Ledger) -> None:
    """Reserve what no longer fits, and have the refusal say what would."""
    with contextlib.suppress(BudgetExceeded):
        book.reserve("data-0", "m", events.gaussian(0.01), "run", "weights")
        raise AssertionError("a run above the budget was counted")


def table(rows: list[dict[str, Any]]) -> str:
    """Return the table of the page."""
    shown = ("total", "reserve, no budget", "reserve, budget", "refusal")
    lines = [
        f"| ledger | entries | MB | {' | '.join(shown)} |",
        "|---" * (3 + len(shown)) + "|",
    ]
    lines += [
        f"| {row['ledger']} | {row['entries']:,} | {row['megabytes']:g} | "
        + " | ".join(f"{row[name]['processor']:.3f} s" for name in shown)
        + " |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    """Measure, write, renew the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    rows = [measure(name, given.entries, given.rounds) for name in LEDGERS]
    files.write_json(OUT, {"machine": runs.machine(), "rounds": given.rounds, "rows": rows})
    files.put_between(PAGE, "ledger table", table(rows))
    print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
