"""Keep the ledger: what was spent on each data set, and the budgets that hold.

A run reserves its whole cost before it starts; the reservation is on disk when `reserve` returns,
so a killed run has been counted and a run that was not counted has not started. `journal.py`
writes the file, `ledger_page.py` reads it, `accounts.py` knows data under other names, and
`spending.py` says totals.

The bound of a run covers either the released weights (Gaussian methods) or the draws only
(Dirichlet). The ledger keeps these totals apart. Their composition bounds what both kinds of
outputs tell together, which for the draws-only runs still says nothing about their weights. A run
that breaks an assumption of its bound (a known seed, values computed from the inputs) is charged
all the same; its entry is marked, and every total says so.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simplexdp import claims, files, journal, prints, spending
from simplexdp.accounting import totals
from simplexdp.accounting.gaussian import calibrate_mu, gaussian_epsilon
from simplexdp.accounting.inputs import check_delta, check_epsilon
from simplexdp.accounts import Account, full_name, identity, key_of, known_as, said_of
from simplexdp.journal import Page
from simplexdp.ledger_lines import COVERS, DRAWS, NOTHING, RECORD, WEIGHTS, Entry, Known
from simplexdp.progress import warn
from simplexdp.rounding import rounded_down, rounded_up
from simplexdp.spending import Spent, describe, summary
from simplexdp.tally import Tally

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
            name = full_name(page, data)
            append(*_lines(known_as(page, name, None)), {**record, "data": name})

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
        from simplexdp.accounting.events import to_json

        if isinstance(broken, str) or not set(broken) <= set(totals.BROKEN):
            marks = ", ".join(totals.BROKEN)
            raise ValueError(f"broken is a list of marks out of {marks}, got {broken!r}")
        record = to_json(event)
        claims.check(event, covers)
        with journal.writing(self.path) as (page, append):
            name = full_name(page, data)
            known = known_as(page, name, records)
            account = Account.of(page, name, known)
            for entry in _of_run(page, run_id):
                if entry.data in account.names and (entry.method, entry.event) == (method, event):
                    return entry.id
            said = [] if known is None else said_of(known)
            if budgets := account.budgets:
                for budget in budgets:
                    _check(account.total, [event], data, budget)
                said += totals.accepted(name, covers == DRAWS, broken)
            _check_policy(account, name, covers != WEIGHTS or bool(broken))
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
        name = full_name(page, data)
        account = Account.of(page, name)
        for budget in account.budgets:
            _check(account.total, events, data, budget)
        _check_policy(account, name, uncovered)

    def entries(self, data: str | None = None) -> list[Entry]:
        """Return the reservations, of one data set or of all."""
        page = journal.read(self.path)
        names = None if data is None else Account.of(page, data).names
        return [e for e in journal.entries(page) if names is None or e.data in names]

    def data_sets(self) -> list[str]:
        """Return the data sets the ledger knows, in order of their first line."""
        page, found, seen = journal.read(self.path), [], set[str]()
        for name in page.tallies:
            if name not in seen:
                account = Account.of(page, name)
                seen |= account.names
                same = [other for other in account.tallies if key_of(other) == key_of(name)]
                found.append(max(same, key=lambda other: page.tallies[other].last))
        return found

    def knows(self, data: str) -> bool:
        """Return whether a line of the ledger is about this data set, under any name of it."""
        page = journal.read(self.path)
        return bool(Account.of(page, data).tallies)

    def budget(self, data: str) -> tuple[float, float] | None:
        """Return the (ε, δ) that holds for a data set, None if none was set."""
        page = journal.read(self.path)
        return min(Account.of(page, data).budgets, default=None)

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
        page = journal.read(self.path)
        return spending.of(Account.of(page, data), data, delta, page.said())


@dataclass(frozen=True)
class Verified:
    """What a ledger is that was checked: its lines, its entries, its head and what was odd."""

    lines: int
    entries: int
    head: str
    notes: tuple[str, ...]


def _lines(known: Known | None) -> list[dict[str, Any]]:
    return [] if known is None else [{"kind": "known", **asdict(known)}]


def _of_run(page: Page, run_id: str | None) -> Iterable[Entry]:
    """Return the reservations of a run by its id."""
    if run_id is None:
        return []
    found = page.lines_with(f'"run_id": {json.dumps(run_id)}')
    return [line for line in found if isinstance(line, Entry) and line.run_id == run_id]


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


def _check_policy(account: Account, data: str, uncovered: bool) -> None:
    if uncovered and account.covered_only:
        raise NotCovered(
            f"nothing would bound the weights, and runs on {data} must be covered; use a method "
            "whose bound covers them; nothing has started"
        )
