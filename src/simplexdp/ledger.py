"""What has been spent on this data?

A run reserves its whole cost before it starts; the reservation is on disk when `reserve` returns,
so a killed run has been counted and a run that was not counted has not started. The file itself is
`journal.py`'s.

A figure covers either the released weights (Gaussian methods) or the draws only (Dirichlet). The
ledger keeps these totals apart. Their composition bounds what both kinds of outputs tell together,
which for the draws-only runs still says nothing about their weights. A run that breaks an
assumption of its figure (a known seed, values computed from the inputs) is charged all the same;
its event is marked, and every total says so.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simplexdp import files, journal
from simplexdp.accounting import totals
from simplexdp.accounting.charges import (
    Event,
    compose,
    dirichlet,
    gaussian,
    is_event,
    marked,
    no_guarantee,
    same,
    sampled_gaussian,
)
from simplexdp.accounting.inputs import check_delta, check_epsilon
from simplexdp.files import finite
from simplexdp.journal import COVERS, DRAWS, NOTHING, WEIGHTS
from simplexdp.progress import warn
from simplexdp.statement import rounded_up

__all__ = [
    "DRAWS",
    "NOTHING",
    "WEIGHTS",
    "BudgetExceeded",
    "Entry",
    "Event",
    "Ledger",
    "Spent",
    "compose",
    "default_path",
    "describe",
    "dirichlet",
    "gaussian",
    "identity",
    "marked",
    "no_guarantee",
    "sampled_gaussian",
    "summary",
]


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
    run_id: str | None = None

    @property
    def broken(self) -> tuple[str, ...]:
        """The marks of the assumptions that the run breaks."""
        return totals.marks(self.event)


@dataclass(frozen=True)
class Spent:
    """What the entries of a data set cost at one δ.

    `weights` composes the runs whose figure covers their weights, `draws` those whose figure
    covers draws only, `together` both. `uncovered` counts the runs whose released weights no
    figure here covers, be it for an assumption that they break; `broken` counts the runs that break
    one, by its mark; `accountants` names for each of the three totals what composed it,
    `caveats` what they rest on; `notes` reports what was odd about the file.
    """

    data: str
    delta: float
    weights: float
    draws: float
    together: float
    runs: int
    uncovered: int
    broken: Mapping[str, int]
    budget: tuple[float, float] | None
    accountants: Mapping[str, str | None]
    caveats: tuple[str, ...]
    notes: tuple[str, ...]


def identity(data: str) -> str:
    """The name under which a data set is kept: a known set's own, or the full path of a file.

    A folder with train/ and test/ inside goes by its train/, whose records are the ones trained on.
    """
    from simplexdp.data import names
    from simplexdp.data.own import training_folder

    return data if data in names() else str(training_folder(files.expanded(data)).resolve())


def default_path() -> Path:
    """SIMPLEXDP_LEDGER if set, else ~/.simplexdp/ledger.jsonl."""
    chosen = os.environ.get("SIMPLEXDP_LEDGER")
    return Path(chosen) if chosen else files.expanded("~/.simplexdp/ledger.jsonl")


class Ledger:
    """The append-only file at `path`; made when first written to."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def set_budget(self, data: str, epsilon: float, delta: float) -> None:
        """From now on refuse runs that take `data` above (ε, δ). The latest budget holds."""
        check_epsilon(epsilon)
        check_delta(delta)
        with journal.locked(self.path) as file:
            data = _full(journal.read(self.path)[0], data)
            journal.append(
                file, {"kind": "budget", "data": data, "epsilon": epsilon, "delta": delta}
            )

    def reserve(
        self,
        data: str,
        method: str,
        event: Event,
        run: str,
        covers: str,
        *,
        run_id: str | None = None,
    ) -> str:
        """Count a run before it starts, and return its entry's id.

        `data` is a known set's name, the path of a file or folder, or a label of the user's own.
        Refuses with `BudgetExceeded` where the total with this run would be above the data set's
        budget. With a `run_id`, a reservation of that run with the same event is found again and
        not counted twice; `run` only says where it is, and another run may be there later. What
        a budget does not bound about the run that it admits is said on standard error.
        """
        said: tuple[str, ...] = ()
        if covers not in COVERS:
            raise ValueError(f"covers is weights, draws or nothing, got {covers!r}")
        if event["type"] == "dirichlet" and covers == WEIGHTS:
            raise ValueError("a Dirichlet figure covers the draws, never the released weights")
        if not is_event(event):
            raise ValueError(
                f"the ledger does not know an event of type {event['type']!r} with these entries; "
                "make it with the functions of this module"
            )
        with journal.locked(self.path) as file:
            lines, _ = journal.read(self.path)
            data = _full(lines, data)
            entries = _entries(lines, data)
            for entry in entries if run_id is not None else ():
                if (entry.run_id, entry.method) == (run_id, method) and same(entry.event, event):
                    return entry.id
            budget = _budget(lines, data)
            if budget is not None:
                _check(entries, [event], data, budget)
                said = totals.accepted(data, covers == DRAWS, totals.marks(event))
            record = {
                "kind": "reserve",
                "id": secrets.token_hex(8),
                "data": data,
                "method": method,
                "run": run,
                "run_id": run_id,
                "covers": covers,
                "event": event,
            }
            journal.append(file, record)
        for sentence in said:
            warn(sentence)
        return str(record["id"])

    def check(self, data: str, events: list[Event]) -> None:
        """Refuse with `BudgetExceeded` where these runs together would be above the budget."""
        lines, _ = journal.read(self.path)
        data = _full(lines, data)
        budget = _budget(lines, data)
        if budget is not None:
            _check(_entries(lines, data), events, data, budget)

    def entries(self, data: str | None = None) -> list[Entry]:
        """The reservations, of one data set or of all."""
        return _entries(journal.read(self.path)[0], data)

    def data_sets(self) -> list[str]:
        """The data sets the ledger knows, in order of their first line."""
        lines = journal.read(self.path)[0]
        return list({_key(line["data"]): line["data"] for line in lines if "data" in line}.values())

    def knows(self, data: str) -> bool:
        """Whether a line of the ledger is about this data set, under any name of it."""
        return bool(_about(journal.read(self.path)[0], data))

    def budget(self, data: str) -> tuple[float, float] | None:
        """The (ε, δ) that holds for a data set, None if none was set."""
        return _budget(journal.read(self.path)[0], data)

    def spent(self, data: str, delta: float) -> Spent:
        """What the runs on a data set cost so far, at this δ."""
        lines, notes = journal.read(self.path)
        entries = _entries(lines, data)
        kinds = {kind: [e.event for e in entries if e.covers == kind] for kind in (WEIGHTS, DRAWS)}
        kinds["together"] = [entry.event for entry in entries]
        budget = _budget(lines, data)
        return Spent(
            data=data,
            delta=delta,
            weights=compose(kinds[WEIGHTS], delta),
            draws=compose(kinds[DRAWS], delta),
            together=compose(kinds["together"], delta),
            runs=len(entries),
            uncovered=sum(entry.covers != WEIGHTS or bool(entry.broken) for entry in entries),
            broken=totals.broken(kinds["together"]),
            budget=budget,
            accountants={kind: totals.accountant(events) for kind, events in kinds.items()},
            caveats=(
                *totals.caveats(kinds["together"], kinds[DRAWS]),
                *(totals.unbounded(len(kinds[DRAWS])) if budget is not None else ()),
            ),
            notes=notes,
        )


def _check(
    entries: list[Entry], events: list[Event], data: str, budget: tuple[float, float]
) -> None:
    """Refuse runs that would take the total above the budget."""
    epsilon, delta = budget
    past = [entry.event for entry in entries]
    total = compose([*past, *events], delta)
    if total <= epsilon:
        return
    before = compose(past, delta)
    runs = "this run" if len(events) == 1 else f"these {len(events)} runs"
    advice = "plan a smaller epsilon or fewer steps"
    if math.isinf(total) and not math.isinf(before):
        which = "it" if len(events) == 1 else "one of them"
        advice = f"{which} has no privacy mechanism, and no budget allows that"
    raise BudgetExceeded(
        f"{runs} would take {data} to epsilon = {rounded_up(total)} at delta = "
        f"{rounded_up(delta, 6)}, above its budget of {epsilon:g} ({rounded_up(before)} is "
        f"spent): {advice}; nothing has started"
    )


def _is_path(name: str) -> bool:
    """Whether a name stands for a file or folder, and not for a known set or a label."""
    from simplexdp.data import names

    if not name or name in names():
        return False
    written_as_one = os.path.isabs(name) or name.startswith(("~", "." + os.sep, ".." + os.sep))
    return written_as_one or Path(name).exists()


def _full(lines: list[dict[str, Any]], data: str) -> str:
    """The name to keep data under: a path in full, so that a budget set for it binds everywhere.

    A bare name with no file here, where the ledger has a path that ends so, is refused: it would
    be counted as other data.
    """
    if _is_path(data):
        return data if os.path.isabs(data) else identity(data)
    paths = {line["data"] for line in lines if os.path.isabs(line.get("data", ""))}
    alike = sorted(path for path in paths if Path(_key(path)).name == Path(data).name)
    if alike:
        raise ValueError(
            f"there is no {data} in this folder, and the ledger has {alike[0]}; name the data by "
            "its full path"
        )
    return data


def _key(name: str) -> str:
    """What all names of the same records share.

    A folder with train/ and test/ inside was once kept under its own path, and goes by its train/
    now. The path with and without train/ is one, also where the folder is gone.
    """
    return identity(name).removesuffix(os.sep + "train") if _is_path(name) else name


def _about(lines: list[dict[str, Any]], data: str) -> list[dict[str, Any]]:
    """The lines about a data set, under any name of it."""
    key = _key(data)
    names = {name for name in {line.get("data", "") for line in lines} if _key(name) == key}
    return [line for line in lines if line.get("data") in names]


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
            line.get("run_id"),
        )
        for line in (lines if data is None else _about(lines, data))
        if line["kind"] == "reserve"
    ]


def _budget(lines: list[dict[str, Any]], data: str) -> tuple[float, float] | None:
    found = [line for line in _about(lines, data) if line["kind"] == "budget"]
    return (found[-1]["epsilon"], found[-1]["delta"]) if found else None


def summary(spent: Spent) -> dict[str, Any]:
    """A total as JSON; infinite figures are null, as JSON has no infinity."""
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
        "runs_that_break_an_assumption": dict(spent.broken),
        "budget": None
        if spent.budget is None
        else {"epsilon": spent.budget[0], "delta": spent.budget[1]},
        "notes": list(spent.notes),
    }


def describe(spent: Spent) -> list[str]:
    """A total in sentences for a person."""

    def total(epsilon: float, kind: str) -> str:
        by = spent.accountants[kind]
        delta = f"delta = {rounded_up(spent.delta, 6)}"
        return f"epsilon = {rounded_up(epsilon)} at {delta} ({by or 'no runs'})"

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
