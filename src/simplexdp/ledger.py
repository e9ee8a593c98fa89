"""What has been spent on this data?

An append-only file with one JSON object a line. A run reserves its whole cost before it starts;
the reservation is on disk when `reserve` returns, so a killed run has been counted and a run that
was not counted has not started. Writers hold a lock, readers tolerate the torn last line that a
kill can leave and say so; any other damage is an error, never a smaller total.

A figure covers either the released weights (Gaussian methods) or the draws only (Dirichlet). The
ledger keeps these totals apart. Their composition bounds what both kinds of outputs tell together,
which for the draws-only runs still says nothing about their weights.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from simplexdp.accounting import totals
from simplexdp.accounting.gaussian import composed_mu, gaussian_epsilon
from simplexdp.accounting.inputs import check_delta, check_epsilon, check_r, check_schedule
from simplexdp.statement import rounded_up

WEIGHTS, DRAWS, NOTHING = "weights", "draws", "nothing"
Event = dict[str, Any]
# What a line of each kind holds; a line with less is damaged.
_FIELDS = {
    "reserve": frozenset({"id", "time", "data", "method", "run", "covers", "event"}),
    "budget": frozenset({"data", "epsilon", "delta"}),
}


class BudgetExceeded(ValueError):
    """The run would take the data set's total above its budget; it has not started."""


@dataclass(frozen=True)
class Entry:
    """One reservation."""

    id: str
    time: float
    data: str
    method: str
    run: str
    covers: str
    event: Event


@dataclass(frozen=True)
class Spent:
    """What the entries of a data set cost at one δ.

    `weights` composes the runs whose figure covers their weights, `draws` those whose figure
    covers draws only, `together` both. `uncovered` counts the runs whose released weights no
    figure here covers; `accountants` names for each of the three totals what composed it,
    `caveats` what they rest on; `notes` reports what was odd about the file.
    """

    data: str
    delta: float
    weights: float
    draws: float
    together: float
    runs: int
    uncovered: int
    budget: tuple[float, float] | None
    accountants: Mapping[str, str | None]
    caveats: tuple[str, ...]
    notes: tuple[str, ...]


def dirichlet(
    r: float, alpha: float, sample_rate: float, steps: int, participation: str = "hidden"
) -> Event:
    """The draws of a run of Algorithm 1."""
    check_r(r, alpha)
    check_schedule(sample_rate, steps)
    if participation not in ("hidden", "visible"):
        raise ValueError(f"participation is hidden or visible, got {participation!r}")
    return {
        "type": "dirichlet",
        "r": r,
        "alpha": alpha,
        "sample_rate": sample_rate,
        "steps": int(steps),
        "participation": participation,
    }


def gaussian(noise_multiplier: float, steps: int = 1) -> Event:
    """Full-batch Gaussian releases; the multiplier is relative to the sensitivity."""
    composed_mu(noise_multiplier, steps)
    return {"type": "gaussian", "noise_multiplier": noise_multiplier, "steps": int(steps)}


def sampled_gaussian(noise_multiplier: float, sample_rate: float, steps: int) -> Event:
    """DP-SGD: Gaussian releases of Poisson batches."""
    composed_mu(noise_multiplier, steps)
    check_schedule(sample_rate, steps)
    return {
        "type": "sampled-gaussian",
        "noise_multiplier": noise_multiplier,
        "sample_rate": sample_rate,
        "steps": int(steps),
    }


def no_guarantee() -> Event:
    """A run without a figure, such as plain training: its cost is infinite."""
    return {"type": "none"}


def _as_dp_event(event: Event) -> Any:
    import dp_accounting

    from simplexdp.accounting.events import dirichlet_event

    kind = event["type"]
    if kind == "dirichlet":
        return dirichlet_event(
            event["r"], event["alpha"], event["sample_rate"], event["steps"], event["participation"]
        )
    noise = dp_accounting.GaussianDpEvent(event["noise_multiplier"])
    if kind == "sampled-gaussian":
        noise = dp_accounting.PoissonSampledDpEvent(event["sample_rate"], noise)
    return dp_accounting.SelfComposedDpEvent(noise, event["steps"])


def compose(events: list[Event], delta: float) -> float:
    """ε of all events together under zero-out.

    Formal guarantee
        Full-batch Gaussian events alone are composed exactly. Otherwise dp-accounting composes
        privacy loss distributions, pessimistic in every rounding to the grid, with what floating
        point may move set aside from δ; Dirichlet events rest on hidden participation and on
        dominance of the vertex pair (docs/dominance.md) and cover draws only.
    """
    check_delta(delta)
    if not events:
        return 0.0
    kinds = {event["type"] for event in events}
    if "none" in kinds:
        return math.inf
    if kinds == {"gaussian"}:
        mus = [composed_mu(event["noise_multiplier"], event["steps"]) for event in events]
        return gaussian_epsilon(math.hypot(*mus), delta)
    from simplexdp.accounting.events import compose_epsilon

    return compose_epsilon([_as_dp_event(event) for event in events], delta)


def identity(data: str) -> str:
    """The name under which a data set is kept: a known set's own, or the full path of a file."""
    from simplexdp.data import names

    return data if data in names() else str(Path(data).expanduser().resolve())


def default_path() -> Path:
    """SIMPLEXDP_LEDGER if set, else ~/.simplexdp/ledger.jsonl."""
    chosen = os.environ.get("SIMPLEXDP_LEDGER")
    return Path(chosen) if chosen else Path.home() / ".simplexdp" / "ledger.jsonl"


class Ledger:
    """The append-only file at `path`; made when first written to."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def set_budget(self, data: str, epsilon: float, delta: float) -> None:
        """From now on refuse runs that take `data` above (ε, δ). The latest budget holds."""
        check_epsilon(epsilon)
        check_delta(delta)
        with self._locked() as file:
            self._append(file, {"kind": "budget", "data": data, "epsilon": epsilon, "delta": delta})

    def reserve(
        self, data: str, method: str, event: Event, run: str, covers: str, *, resume: bool = False
    ) -> str:
        """Count a run before it starts, and return its entry's id.

        Refuses with `BudgetExceeded` where the total with this run would be above the data set's
        budget. With `resume`, a reservation of the same run with the same event is found again
        and not counted twice.
        """
        if covers not in (WEIGHTS, DRAWS, NOTHING):
            raise ValueError(f"covers is weights, draws or nothing, got {covers!r}")
        if event["type"] == "dirichlet" and covers == WEIGHTS:
            raise ValueError("a Dirichlet figure covers the draws, never the released weights")
        with self._locked() as file:
            lines, _ = _read(self.path)
            entries = _entries(lines, data)
            if resume:
                for entry in entries:
                    if entry.run == run and entry.method == method and entry.event == event:
                        return entry.id
            budget = _budget(lines, data)
            if budget is not None:
                self._check(entries, event, data, budget)
            record = {
                "kind": "reserve",
                "id": secrets.token_hex(8),
                "data": data,
                "method": method,
                "run": run,
                "covers": covers,
                "event": event,
            }
            self._append(file, record)
            return str(record["id"])

    def entries(self, data: str | None = None) -> list[Entry]:
        """The reservations, of one data set or of all."""
        return _entries(_read(self.path)[0], data)

    def data_sets(self) -> list[str]:
        """The data sets the ledger knows, in order of their first line."""
        return list(dict.fromkeys(line["data"] for line in _read(self.path)[0] if "data" in line))

    def budget(self, data: str) -> tuple[float, float] | None:
        """The (ε, δ) that holds for a data set, None if none was set."""
        return _budget(_read(self.path)[0], data)

    def spent(self, data: str, delta: float) -> Spent:
        """What the runs on a data set cost so far, at this δ."""
        lines, notes = _read(self.path)
        entries = _entries(lines, data)
        kinds = {kind: [e.event for e in entries if e.covers == kind] for kind in (WEIGHTS, DRAWS)}
        kinds["together"] = [entry.event for entry in entries]
        return Spent(
            data=data,
            delta=delta,
            weights=compose(kinds[WEIGHTS], delta),
            draws=compose(kinds[DRAWS], delta),
            together=compose(kinds["together"], delta),
            runs=len(entries),
            uncovered=sum(entry.covers != WEIGHTS for entry in entries),
            budget=_budget(lines, data),
            accountants={kind: totals.accountant(events) for kind, events in kinds.items()},
            caveats=totals.caveats(kinds["together"]),
            notes=notes,
        )

    def _check(
        self, entries: list[Entry], event: Event, data: str, budget: tuple[float, float]
    ) -> None:
        epsilon, delta = budget
        past = [entry.event for entry in entries]
        total = compose([*past, event], delta)
        if total > epsilon:
            before = compose(past, delta)
            raise BudgetExceeded(
                f"this run would take {data} to epsilon = {rounded_up(total)} at delta = "
                f"{delta:g}, above its budget of {epsilon:g} ({rounded_up(before)} is spent): "
                "plan a smaller epsilon or fewer steps; the run has not started"
            )

    @contextmanager
    def _locked(self) -> Iterator[TextIO]:
        """The file opened for appending, with every other writer kept out."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file  # the lock goes with the file

    def _append(self, file: TextIO, record: Mapping[str, Any]) -> None:
        """Write one whole line, on disk when this returns; close a torn line first."""
        text = json.dumps({**record, "time": time.time()}, allow_nan=False) + "\n"
        if _torn(self.path):
            text = "\n" + json.dumps({"kind": "torn", "time": time.time()}) + "\n" + text
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _torn(path: Path) -> bool:
    """Whether the file ends inside a line."""
    with open(path, "rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _read(path: Path) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The lines of the ledger, and what was odd about it.

    A line that cannot be read is passed over only where it is a torn one: the unterminated last
    line, or one that the next writer closed and marked. Its run had not started.
    """
    if not path.exists():
        return [], ()
    raw = path.read_bytes().split(b"\n")
    last, found, notes = len(raw) - 1, [], []
    for number, line in enumerate(raw):
        if number == last and line:
            notes.append(f"line {number + 1} is torn: a writer was killed before its run started")
            continue
        if not line:
            continue
        record = _parse(line)
        if record is None:
            if number + 1 < last and (_parse(raw[number + 1]) or {}).get("kind") == "torn":
                notes.append(f"line {number + 1} was torn by a kill before its run started")
                continue
            raise ValueError(
                f"line {number + 1} of the ledger {path} is damaged: restore the file from a "
                "copy; nothing is counted from a damaged ledger"
            )
        found.append(record)
    return found, tuple(notes)


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    if not isinstance(record, dict) or "kind" not in record:
        return None
    return record if _FIELDS.get(str(record["kind"]), frozenset()) <= set(record) else None


def _entries(lines: list[dict[str, Any]], data: str | None) -> list[Entry]:
    return [
        Entry(
            line["id"],
            line["time"],
            line["data"],
            line["method"],
            line["run"],
            line["covers"],
            line["event"],
        )
        for line in lines
        if line["kind"] == "reserve" and data in (None, line["data"])
    ]


def _budget(lines: list[dict[str, Any]], data: str) -> tuple[float, float] | None:
    found = [line for line in lines if line["kind"] == "budget" and line["data"] == data]
    return (found[-1]["epsilon"], found[-1]["delta"]) if found else None


def summary(spent: Spent) -> dict[str, Any]:
    """A total as JSON; infinite figures are null, as JSON has no infinity."""

    def finite(value: float) -> float | None:
        return value if math.isfinite(value) else None

    return {
        "data": spent.data,
        "delta": spent.delta,
        "runs": spent.runs,
        "epsilon_weights": finite(spent.weights),
        "epsilon_draws_only": finite(spent.draws),
        "epsilon_together": finite(spent.together),
        "accountants": dict(spent.accountants),
        "relation": totals.ZERO_OUT,
        "caveats": list(spent.caveats),
        "runs_whose_weights_are_not_covered": spent.uncovered,
        "budget": None
        if spent.budget is None
        else {"epsilon": spent.budget[0], "delta": spent.budget[1]},
        "notes": list(spent.notes),
    }


def describe(spent: Spent) -> list[str]:
    """A total in sentences for a person."""

    def total(epsilon: float, kind: str) -> str:
        by = spent.accountants[kind]
        return f"epsilon = {rounded_up(epsilon)} at delta = {spent.delta:g} ({by or 'no runs'})"

    lines = [
        f"{spent.data}: {spent.runs} run{'s' if spent.runs != 1 else ''}",
        f"  covering released weights: {total(spent.weights, WEIGHTS)}",
        f"  covering draws only:       {total(spent.draws, DRAWS)}",
        f"  all runs together:         {total(spent.together, 'together')}",
        f"  relation: {totals.ZERO_OUT}",
        *(f"  {caveat}" for caveat in spent.caveats),
    ]
    if spent.uncovered:
        lines.append(f"  no figure covers the released weights of {spent.uncovered} of them")
    if spent.budget is not None:
        lines.append(f"  budget: epsilon = {spent.budget[0]:g} at delta = {spent.budget[1]:g}")
    return lines + [f"  note: {note}" for note in spent.notes]
