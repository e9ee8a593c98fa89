"""Keep the ledger: what was spent on each data set, and the budgets that hold.

A run reserves its whole cost before it starts; the reservation is on disk when `reserve` returns,
so a killed run has been counted and a run that was not counted has not started. The file itself is
`journal.py`'s, its running totals `tally.py`'s, and `prints.py` knows data under other names.

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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from simplexdp import files, journal, prints
from simplexdp.accounting import totals
from simplexdp.accounting.gaussian import calibrate_mu, gaussian_epsilon
from simplexdp.accounting.inputs import check_delta, check_epsilon
from simplexdp.files import finite
from simplexdp.journal import Page
from simplexdp.progress import warn
from simplexdp.rounding import rounded_down, rounded_up
from simplexdp.tally import COVERS, DRAWS, NOTHING, RECORD, WEIGHTS, Entry, Known, Tally

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from numpy.typing import NDArray

__all__ = [
    "DRAWS",
    "NOTHING",
    "WEIGHTS",
    "BudgetExceeded",
    "Entry",
    "Ledger",
    "NotCovered",
    "Spent",
    "default_path",
    "describe",
    "identity",
    "summary",
]


class BudgetExceeded(ValueError):
    """The run would take the data set's total above its budget; it has not started."""


class NotCovered(ValueError):
    """Nothing would bound the run's weights, and the data set's policy asks for that."""


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
        covered_only: Whether runs are refused whose weights nothing bounds.
        names: The names under which these records were used.
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
    covered_only: bool
    names: tuple[str, ...]
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
        self._set(data, {"kind": "budget", "epsilon": epsilon, "delta": delta})

    def set_policy(self, data: str, *, covered_only: bool) -> None:
        """Refuse from now on runs on `data` whose released weights nothing bounds, or no longer."""
        self._set(data, {"kind": "policy", "covered_only": bool(covered_only)})

    def _set(self, data: str, record: Mapping[str, Any]) -> None:
        with journal.writing(self.path) as (page, append):
            name = _full(page, data)
            append(*_lines(_known(page, name, None)), {**record, "data": name})

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
        records: NDArray[Any] | None = None,
        unit: str = RECORD,
    ) -> str:
        """Count a run before it starts, and return its entry's id.

        What a budget does not bound about the run that it admits is said on standard error, and so
        are other names under which the ledger knows these records.

        Args:
            data: A known set's name, the path of a file or folder, or a label of the user's own.
            method: The method's name.
            event: What the run is charged, made by `simplexdp.accounting.events`.
            run: Where the run is; another run may be there later.
            covers: What the bound is about, "weights", "draws" or "nothing".
            run_id: A reservation of this run with the same event is found again, not made twice.
            broken: Marks of the assumptions that the run breaks (`accounting.totals.BROKEN`).
            records: The training inputs, one a row. A keyed fingerprint of them is kept, so that a
                copy under another name counts on the same account.
            unit: Whether the bound is per "record" or per "person".

        Raises:
            BudgetExceeded: The total with this run would be above the data set's budget.
            NotCovered: Nothing bounds its weights, and the data set's policy asks for that.
            ValueError: The event is unknown, or cannot cover what it is said to.
        """
        record = _checked(event, covers, broken)
        with journal.writing(self.path) as (page, append):
            name = _full(page, data)
            known = _known(page, name, records)
            account = _account(page, name, known)
            for entry in _of_run(page, run_id):
                if entry.data in account and (entry.method, entry.event) == (method, event):
                    return entry.id
            said = [] if known is None else _said(known)
            if budgets := _budgets(page, account):
                for budget in budgets:
                    _check(_total(page, account), [event], data, budget)
                said += totals.accepted(name, covers == DRAWS, broken)
            _check_policy(page, account, name, covers != WEIGHTS or bool(broken))
            entry_id = secrets.token_hex(8)
            append(
                *_lines(known),
                {
                    "kind": "reserve",
                    "id": entry_id,
                    "data": name,
                    "method": method,
                    "run": run,
                    "run_id": run_id,
                    "covers": covers,
                    "event": record,
                    "broken": list(broken),
                    **({"unit": unit} if unit != RECORD else {}),
                },
            )
        for sentence in said:
            warn(sentence)
        return entry_id

    def check(self, data: str, events: Sequence[DpEvent], *, uncovered: bool = False) -> None:
        """Refuse runs that together would be above the budget, or that the policy refuses.

        Args:
            data: The data set.
            events: What the runs are charged.
            uncovered: Whether nothing bounds the weights of one of them.

        Raises:
            BudgetExceeded: The total would be above the data set's budget.
            NotCovered: The policy refuses such a run.
        """
        page = journal.read(self.path)
        name = _full(page, data)
        account = _account(page, name)
        for budget in _budgets(page, account):
            _check(_total(page, account), events, data, budget)
        _check_policy(page, account, name, uncovered)

    def entries(self, data: str | None = None) -> list[Entry]:
        """Return the reservations, of one data set or of all."""
        page = journal.read(self.path)
        account = None if data is None else _account(page, data)
        return [e for e in journal.entries(page) if account is None or e.data in account]

    def data_sets(self) -> list[str]:
        """Return the data sets the ledger knows, in order of their first line."""
        page, found, seen = journal.read(self.path), [], set[str]()
        for name in page.tallies:
            if name not in seen:
                account = _account(page, name)
                seen |= account
                same = [other for other in account if _key(other) == _key(name)]
                found.append(max(same, key=lambda other: page.tallies[other].last))
        return found

    def knows(self, data: str) -> bool:
        """Return whether a line of the ledger is about this data set, under any name of it."""
        page = journal.read(self.path)
        return bool(_account(page, data) & page.tallies.keys())

    def budget(self, data: str) -> tuple[float, float] | None:
        """Return the (ε, δ) that holds for a data set, None if none was set."""
        page = journal.read(self.path)
        return min(_budgets(page, _account(page, data)), default=None)

    def verify(self, head: str | None = None, *, accept: bool = False) -> Verified:
        """Check every line of the ledger, its head and its key.

        Args:
            head: A head that was noted earlier; the ledger must have gone through it.
            accept: Whether to go on with a ledger that was changed or is incomplete. A line is
                added that says so, and every total repeats it.

        Returns:
            How many lines there are, and the head to note.

        Raises:
            ValueError: Lines were changed or are missing.
        """
        if not self.path.exists():
            raise ValueError(f"there is no ledger {self.path}; restore it, or begin one by a run")
        page, heads = journal.examine(self.path)
        if head is not None and head not in heads:
            raise ValueError(
                f"{self.path} never had the head {head}: lines were changed or are missing; "
                "restore it from a copy"
            )
        try:
            prints.key_of(page.path, page.key, new=not page.key)
        except ValueError as error:
            page.faults.append(str(error))
        if page.faults and not accept:
            fault = page.faults[0]
            raise ValueError(fault if journal.REPAIR in fault else f"{fault}; {journal.REPAIR}")
        if page.faults:
            with journal.writing(self.path, accept=True) as (now, append):
                _, key = prints.key_of(now.path, now.key, new=True)
                append({"kind": "accepted", "faults": page.faults, "key": key})
            page, _ = journal.examine(self.path)
        entries = sum(tally.runs for tally in page.tallies.values())
        return Verified(page.lines, entries, page.digest, page.said())

    def spent(self, data: str, delta: float) -> Spent:
        """Return what the runs on a data set cost so far, at this δ."""
        from simplexdp.accounting.events import compose

        page = journal.read(self.path)
        account = _account(page, data)
        tally = _total(page, account)
        kinds = {kind: tally.events(kind) for kind in (WEIGHTS, DRAWS)}
        kinds["together"] = tally.events(*COVERS)
        budgets = _budgets(page, account)
        broken = {mark: tally.broken.get(mark, 0) for mark in totals.BROKEN}
        charged = [_Charge(event, kind) for kind in COVERS for event in tally.events(kind)]
        others = sorted({name for known in tally.known for name in known.overlaps} - account)
        return Spent(
            data=data,
            delta=delta,
            **{kind: compose(events, delta) for kind, events in kinds.items()},
            runs=tally.runs,
            uncovered=tally.uncovered,
            broken=broken,
            budget=min(budgets, default=None),
            covered_only=_covered_only(page, account),
            names=tuple(sorted(account & page.tallies.keys())),
            accountants={kind: totals.accountant(events) for kind, events in kinds.items()},
            caveats=(
                *totals.caveats(charged, tally.runs, broken),
                *_per_person(tally),
                *(totals.unbounded(tally.charges[DRAWS].runs) if budgets else ()),
                *(OVERLAP.format(other) for other in others),
            ),
            notes=page.said(),
        )


@dataclass(frozen=True)
class Verified:
    """What a ledger is that was checked: its lines, its entries, its head and what was odd."""

    lines: int
    entries: int
    head: str
    notes: tuple[str, ...]


class _Charge(NamedTuple):
    event: DpEvent
    covers: str


OVERLAP = "some of these records are also in {}, which has an account of its own"


def _said(known: Known) -> list[str]:
    """Return what is to be said of other names of the same records."""
    said = [f"{known.data} counts on one account with {name}" for name in known.same_as]
    return said + [f"{known.data}: {OVERLAP.format(name)}" for name in known.overlaps]


def _lines(known: Known | None) -> list[dict[str, Any]]:
    return [] if known is None else [{"kind": "known", **asdict(known)}]


def _of_run(page: Page, run_id: str | None) -> Iterable[Entry]:
    """Return the reservations of a run by its id."""
    if run_id is None:
        return []
    found = page.lines_with(f'"run_id": {journal.quoted(run_id)}')
    return [line for line in found if isinstance(line, Entry) and line.run_id == run_id]


def _known(page: Page, data: str, records: NDArray[Any] | None) -> Known | None:
    """Return what the records of a name are known by; None where nothing of it is new.

    A file is the same under another name where it is the same file (a hard link, a bind mount),
    where its bytes or its records are the same (a copy), or where it has the inode of one that is
    gone and nothing shows that it is another.
    """
    path = Path(data) if os.path.isabs(data) and Path(data).exists() else None
    if path is None and records is None:
        return None
    key, key_id = prints.key_of(page.path, page.key)
    mine = page.tallies.get(data, Tally()).known
    stat = () if path is None else prints.stat_of(path)
    found, sketch = [], ""
    if path is not None and path.is_file():
        before = [k for k in mine if k.stat == stat and k.key == key_id]
        unchanged = [one for k in before for one in k.prints if one.startswith("file:")]
        found.append(unchanged[-1] if unchanged else prints.of_file(path, key))
    if records is not None:
        whole, sketch = prints.of_records(records, key)
        found.append(whole)
    if any(k.key == key_id and k.stat == stat and set(found) <= set(k.prints) for k in mine):
        return None
    same, overlaps = [], []
    for name, tally in page.tallies.items():
        theirs = [k for k in tally.known if k.key == key_id]
        if _key(name) == _key(data):
            continue
        if _is_same_file(path, stat, name, tally.known, found) or any(
            set(found) & set(k.prints) for k in theirs
        ):
            same.append(name)
        elif sketch and any(
            prints.share_records(sketch, line.sketch)
            for line in map(page.line_at, tally.sketches)
            if isinstance(line, Known) and line.key == key_id
        ):
            overlaps.append(name)
    return Known(data, key_id, tuple(found), stat, tuple(same), tuple(overlaps), sketch)


def _is_same_file(
    path: Path | None, stat: tuple[int, ...], name: str, known: list[Known], found: list[str]
) -> bool:
    """Return whether a path is the file or folder that another name was given for."""
    if path is None or not os.path.isabs(name):
        return False
    if Path(name).exists():
        return os.path.samefile(path, name)
    kinds = {one.partition(":")[0] for one in found}
    return any(
        one.stat[:2] == stat[:2] and not kinds & {p.partition(":")[0] for p in one.prints}
        for one in known
    )


def _per_person(tally: Tally) -> tuple[str, ...]:
    """Say whose records the total is about where runs protect persons."""
    persons, runs = tally.persons, tally.runs
    if persons == 0:
        return ()
    if persons == runs:
        return ("per person: each run protects all records of a person together",)
    return (
        f"{persons} of {runs} runs are per person and the others per record: the total "
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


def _check(tally: Tally, events: Sequence[DpEvent], data: str, budget: tuple[float, float]) -> None:
    """Refuse runs that would take the total above the budget."""
    from simplexdp.accounting.events import compose

    epsilon, delta = budget
    past = tally.events(*COVERS)
    total = compose([*past, *events], delta)
    if total <= epsilon:
        return
    before = compose(past, delta)
    runs = "this run" if len(events) == 1 else f"these {len(events)} runs"
    fits = f"at most epsilon = {rounded_down(_room(past, epsilon, delta))} still fits"
    if math.isinf(total) and not math.isinf(before):
        which = "it" if len(events) == 1 else "one of them"
        fits = f"{which} has no privacy mechanism, and no budget allows that"
    raise BudgetExceeded(
        f"{runs} would take {data} to epsilon = {rounded_up(total)} at delta = "
        f"{rounded_up(delta, 6)}, above its budget of {epsilon:g} ({rounded_up(before)} is "
        f"spent): {fits}; nothing has started"
    )


def _room(past: list[DpEvent], epsilon: float, delta: float) -> float:
    """Return the largest ε, found by halving, that a full-batch Gaussian run may still cost."""
    from simplexdp.accounting.events import compose, gaussian, gaussian_mu

    low, high = 0.0, calibrate_mu(epsilon, delta)
    exact = all(gaussian_mu(event) is not None for event in past)
    for _ in range(40 if exact else 12):  # a numerical composition takes its time
        mu = (low + high) / 2.0
        if compose([*past, gaussian(1.0 / mu)], delta) <= epsilon:
            low = mu
        else:
            high = mu
    return gaussian_epsilon(low, delta) if low > 0.0 else 0.0


def _check_policy(page: Page, account: set[str], data: str, uncovered: bool) -> None:
    if uncovered and _covered_only(page, account):
        raise NotCovered(
            f"nothing would bound the weights, and runs on {data} must be covered; use a method "
            "whose bound covers them; nothing has started"
        )


def _is_path(name: str) -> bool:
    """Return whether a name stands for a file or folder, and not for a known set or a label."""
    from simplexdp.data import names

    if not name or name in names():
        return False
    written_as_one = os.path.isabs(name) or name.startswith(("~", "." + os.sep, ".." + os.sep))
    return written_as_one or Path(name).exists()


def _full(page: Page, data: str) -> str:
    """Return the name to keep data under: a path in full, so that its budget binds everywhere.

    A bare name with no file here, where the ledger has a path that ends so, is refused: it would
    be counted as other data.
    """
    if _is_path(data):
        return data if os.path.isabs(data) else identity(data)
    paths = [name for name in page.tallies if os.path.isabs(name)]
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


def _account(page: Page, data: str, known: Known | None = None) -> set[str]:
    """Return all names of the records of a data set, itself among them."""
    keys = {name: _key(name) for name in {*page.tallies, data}}
    every = [k for tally in page.tallies.values() for k in tally.known]
    ties = [(k.data, other) for k in [*every, *([known] if known else [])] for other in k.same_as]
    account: set[str] = set()
    more = {data}
    while more:
        account |= more
        here = {keys[name] for name in account if name in keys}
        more = {name for name, key in keys.items() if key in here}
        more |= {b for pair in ties for a, b in (pair, pair[::-1]) if a in account}
        more -= account
    return account


def _members(page: Page, account: set[str]) -> list[Tally]:
    return [tally for name, tally in page.tallies.items() if name in account]


def _total(page: Page, account: set[str]) -> Tally:
    return Tally.of(_members(page, account))


def _by_file(page: Page, account: set[str]) -> list[list[Tally]]:
    """Return the tallies of an account by file: what was said last of one holds for it."""
    found: dict[str, list[Tally]] = {}
    for name, tally in page.tallies.items():
        if name in account:
            found.setdefault(_key(name), []).append(tally)
    return list(found.values())


def _budgets(page: Page, account: set[str]) -> list[tuple[float, float]]:
    """Return the budgets that hold: the latest of each file, and of copies those of all."""
    latest = [max(file, key=lambda one: one.budget_line) for file in _by_file(page, account)]
    return [tally.budget for tally in latest if tally.budget is not None]


def _covered_only(page: Page, account: set[str]) -> bool:
    latest = [max(file, key=lambda one: one.policy_line) for file in _by_file(page, account)]
    return any(tally.covered_only for tally in latest)


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
        "covered_only": spent.covered_only,
        "names": list(spent.names),
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
    if spent.covered_only:
        lines.append("  policy: runs whose weights nothing bounds are refused")
    if len(spent.names) > 1:
        lines.append(f"  one account of: {', '.join(spent.names)}")
    return lines + [f"  note: {note}" for note in spent.notes]
