"""Keep the ledger: what was spent on each data set, and the budgets that hold.

A run reserves its whole cost before it starts; the reservation is on disk when `reserve` returns,
so a killed run has been counted and a run that was not counted has not started. The file itself is
`journal.py`'s.

The bound of a run covers either the released weights (Gaussian methods) or the draws only
(Dirichlet). The ledger keeps these totals apart. Their composition bounds what both kinds of
outputs tell together, which for the draws-only runs still says nothing about their weights. A run
that breaks an assumption of its bound (a known seed, values computed from the inputs) is charged
all the same; its entry is marked, and every total says so.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simplexdp import files, journal
from simplexdp.accounting import totals
from simplexdp.accounting.inputs import check_delta, check_epsilon
from simplexdp.files import finite
from simplexdp.journal import COVERS, DRAWS, NOTHING, WEIGHTS, Budget, Entry
from simplexdp.progress import warn
from simplexdp.rounding import rounded_up

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = [
    "DRAWS",
    "NOTHING",
    "WEIGHTS",
    "BudgetExceeded",
    "Entry",
    "Ledger",
    "Spent",
    "default_path",
    "describe",
    "identity",
    "summary",
]

Line = Entry | Budget


class BudgetExceeded(ValueError):
    """The run would take the data set's total above its budget; it has not started."""


@dataclass(frozen=True)
class Spent:
    """What the entries of a data set cost at one δ.

    Attributes:
        data: The data set.
        delta: The δ of the totals.
        weights: ε of the runs whose bound covers their weights.
        draws: ε of the runs whose bound covers draws only.
        together: ε of all runs.
        runs: Number of runs.
        uncovered: Runs whose released weights are not covered, be it for a broken assumption.
        broken: Runs that break an assumption, by its mark.
        budget: The (ε, δ) that holds, None if none was set.
        accountants: What composed each of the three totals.
        caveats: What the totals rest on.
        notes: What was odd about the file.
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
    """Return the name that data are kept under: a known set's own, or the full path of a file.

    A folder with train/ and test/ inside goes by its train/, whose records are the ones trained on.
    """
    from simplexdp.data import names
    from simplexdp.data.own import training_folder

    return data if data in names() else str(training_folder(files.expanded(data)).resolve())


def default_path() -> Path:
    """Return SIMPLEXDP_LEDGER if set, else ~/.simplexdp/ledger.jsonl."""
    chosen = os.environ.get("SIMPLEXDP_LEDGER")
    return Path(chosen) if chosen else files.expanded("~/.simplexdp/ledger.jsonl")


class Ledger:
    """What the runs on each data set have cost together, in an append-only file.

    The file is made when first written to. Any number of processes may use it at once.

    Args:
        path: The file; `default_path()` is the command line's.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from simplexdp.accounting import events
        >>> from simplexdp.ledger import BudgetExceeded, Ledger
        >>> book = Ledger(Path(tempfile.mkdtemp()) / "ledger.jsonl")
        >>> book.set_budget("digits", epsilon=1.0, delta=1e-5)
        >>> fit = events.gaussian(noise_multiplier=5.0)
        >>> _ = book.reserve("digits", "mine", fit, "runs/a", "weights")
        >>> book.spent("digits", delta=1e-5).weights <= 1.0
        True
        >>> try:
        ...     book.reserve("digits", "mine", fit, "runs/b", "weights")
        ... except BudgetExceeded:
        ...     print("refused")
        refused
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def set_budget(self, data: str, epsilon: float, delta: float) -> None:
        """Refuse from now on runs that take `data` above (ε, δ); the latest budget holds."""
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
        event: DpEvent,
        run: str,
        covers: str,
        *,
        run_id: str | None = None,
        broken: Sequence[str] = (),
        unit: str = journal.RECORD,
    ) -> str:
        """Count a run before it starts, and return its entry's id.

        What a budget does not bound about the run that it admits is said on standard error.

        Args:
            data: A known set's name, the path of a file or folder, or a label of the user's own.
            method: The method's name.
            event: What the run is charged, made by `simplexdp.accounting.events`.
            run: Where the run is; another run may be there later.
            covers: What the bound is about, "weights", "draws" or "nothing".
            run_id: A reservation of this run with the same event is found again, not made twice.
            broken: Marks of the assumptions that the run breaks (`accounting.totals.BROKEN`).
            unit: Whether the bound is per "record" or per "person".

        Raises:
            BudgetExceeded: The total with this run would be above the data set's budget.
            ValueError: The event is unknown, or cannot cover what it is said to.
        """
        record = _checked(event, covers, broken)
        with journal.locked(self.path) as file:
            lines, _ = journal.read(self.path)
            data = _full(lines, data)
            entries = _entries(lines, data)
            for entry in entries if run_id is not None else ():
                if (entry.run_id, entry.method, entry.event) == (run_id, method, event):
                    return entry.id
            said: tuple[str, ...] = ()
            budget = _budget(lines, data)
            if budget is not None:
                _check(entries, [event], data, budget)
                said = totals.accepted(data, covers == DRAWS, broken)
            entry_id = secrets.token_hex(8)
            journal.append(
                file,
                {
                    "kind": "reserve",
                    "id": entry_id,
                    "data": data,
                    "method": method,
                    "run": run,
                    "run_id": run_id,
                    "covers": covers,
                    "event": record,
                    "broken": list(broken),
                    **({"unit": unit} if unit != journal.RECORD else {}),
                },
            )
        for sentence in said:
            warn(sentence)
        return entry_id

    def check(self, data: str, events: Sequence[DpEvent]) -> None:
        """Refuse with `BudgetExceeded` runs that together would be above the budget."""
        lines, _ = journal.read(self.path)
        data = _full(lines, data)
        budget = _budget(lines, data)
        if budget is not None:
            _check(_entries(lines, data), events, data, budget)

    def entries(self, data: str | None = None) -> list[Entry]:
        """Return the reservations, of one data set or of all."""
        return _entries(journal.read(self.path)[0], data)

    def data_sets(self) -> list[str]:
        """Return the data sets the ledger knows, in order of their first line."""
        lines = journal.read(self.path)[0]
        return list({_key(line.data): line.data for line in lines}.values())

    def knows(self, data: str) -> bool:
        """Return whether a line of the ledger is about this data set, under any name of it."""
        return bool(_about(journal.read(self.path)[0], data))

    def budget(self, data: str) -> tuple[float, float] | None:
        """Return the (ε, δ) that holds for a data set, None if none was set."""
        return _budget(journal.read(self.path)[0], data)

    def spent(self, data: str, delta: float) -> Spent:
        """Return what the runs on a data set cost so far, at this δ."""
        from simplexdp.accounting.events import compose

        lines, notes = journal.read(self.path)
        entries = _entries(lines, data)
        kinds = {kind: [e.event for e in entries if e.covers == kind] for kind in (WEIGHTS, DRAWS)}
        kinds["together"] = [entry.event for entry in entries]
        budget = _budget(lines, data)
        epsilon = {kind: compose(events, delta) for kind, events in kinds.items()}
        return Spent(
            data=data,
            delta=delta,
            **epsilon,
            runs=len(entries),
            uncovered=sum(entry.covers != WEIGHTS or bool(entry.broken) for entry in entries),
            broken=totals.broken(entries),
            budget=budget,
            accountants={kind: totals.accountant(events) for kind, events in kinds.items()},
            caveats=(
                *totals.caveats(entries),
                *_per_person(entries),
                *(totals.unbounded(len(kinds[DRAWS])) if budget is not None else ()),
            ),
            notes=notes,
        )


def _per_person(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Say whose records the total is about where runs protect persons."""
    persons = sum(entry.unit == journal.PERSON for entry in entries)
    if persons == 0:
        return ()
    if persons == len(entries):
        return ("per person: each run protects all records of a person together",)
    return (
        f"{persons} of {len(entries)} runs are per person and the others per record: the total "
        "holds for persons with a single record",
    )


def _checked(event: DpEvent, covers: str, broken: Sequence[str]) -> dict[str, Any]:
    """Return the event as JSON; refuse one that the ledger does not know or that contradicts."""
    from dp_accounting import NonPrivateDpEvent

    from simplexdp.accounting.events import DirichletDpEvent, mechanism_of, steps_of, to_json

    if covers not in COVERS:
        raise ValueError(f"covers is weights, draws or nothing, got {covers!r}")
    unknown = set(broken) - set(totals.BROKEN)
    if isinstance(broken, str) or unknown:
        known = ", ".join(totals.BROKEN)
        raise ValueError(f"broken is a list of marks out of {known}, got {broken!r}")
    record = to_json(event)
    kinds = {type(mechanism_of(step)) for step, _ in steps_of(event)}
    if DirichletDpEvent in kinds and covers == WEIGHTS:
        raise ValueError("the bound of a Dirichlet event covers draws, never the released weights")
    if (NonPrivateDpEvent in kinds) != (covers == NOTHING):
        raise ValueError(
            f"an event {'without' if NonPrivateDpEvent in kinds else 'with'} a guarantee does not "
            f"cover {covers}; only a run without one covers nothing"
        )
    return record


def _check(
    entries: Sequence[Entry], events: Sequence[DpEvent], data: str, budget: tuple[float, float]
) -> None:
    """Refuse runs that would take the total above the budget."""
    from simplexdp.accounting.events import compose

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
    """Return whether a name stands for a file or folder, and not for a known set or a label."""
    from simplexdp.data import names

    if not name or name in names():
        return False
    written_as_one = os.path.isabs(name) or name.startswith(("~", "." + os.sep, ".." + os.sep))
    return written_as_one or Path(name).exists()


def _full(lines: Sequence[Line], data: str) -> str:
    """Return the name to keep data under: a path in full, so that its budget binds everywhere.

    A bare name with no file here, where the ledger has a path that ends so, is refused: it would
    be counted as other data.
    """
    if _is_path(data):
        return data if os.path.isabs(data) else identity(data)
    paths = {line.data for line in lines if os.path.isabs(line.data)}
    alike = sorted(path for path in paths if Path(_key(path)).name == Path(data).name)
    if alike:
        raise ValueError(
            f"there is no {data} in this folder, and the ledger has {alike[0]}; name the data by "
            "its full path"
        )
    return data


def _key(name: str) -> str:
    """Return what all names of the same records share.

    A folder with train/ and test/ inside was once kept under its own path, and goes by its train/
    now. The path with and without train/ is one, also where the folder is gone.
    """
    return identity(name).removesuffix(os.sep + "train") if _is_path(name) else name


def _about(lines: Sequence[Line], data: str) -> list[Line]:
    """Return the lines about a data set, under any name of it."""
    key = _key(data)
    names = {name for name in {line.data for line in lines} if _key(name) == key}
    return [line for line in lines if line.data in names]


def _entries(lines: Sequence[Line], data: str | None) -> list[Entry]:
    lines = lines if data is None else _about(lines, data)
    return [line for line in lines if isinstance(line, Entry)]


def _budget(lines: Sequence[Line], data: str) -> tuple[float, float] | None:
    set_so_far = [line for line in _about(lines, data) if isinstance(line, Budget)]
    return (set_so_far[-1].epsilon, set_so_far[-1].delta) if set_so_far else None


def summary(spent: Spent) -> dict[str, Any]:
    """Return a total as JSON; an infinite ε is null, as JSON has no infinity."""
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
    """Return a total in sentences for a person."""

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
        lines.append(f"  no bound covers the released weights of {spent.uncovered} of them")
    if spent.budget is not None:
        lines.append(f"  budget: epsilon = {spent.budget[0]:g} at delta = {spent.budget[1]:g}")
    return lines + [f"  note: {note}" for note in spent.notes]
