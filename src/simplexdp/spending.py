"""Say what the runs on a data set cost together, as numbers, as JSON and in sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from simplexdp.accounting import totals
from simplexdp.accounts import OVERLAP, Account
from simplexdp.files import finite
from simplexdp.ledger_lines import COVERS, DRAWS, WEIGHTS
from simplexdp.rounding import rounded_up
from simplexdp.tally import Tally

if TYPE_CHECKING:
    from dp_accounting import DpEvent


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


class _Charge(NamedTuple):
    event: DpEvent
    covers: str


def of(account: Account, data: str, delta: float, notes: tuple[str, ...]) -> Spent:
    """Return what the runs of an account cost so far, at this δ."""
    from simplexdp.accounting.events import compose

    tally = account.total
    kinds = {kind: tally.events(kind) for kind in (WEIGHTS, DRAWS)}
    kinds["together"] = tally.events(*COVERS)
    budgets = account.budgets
    broken = {mark: tally.broken.get(mark, 0) for mark in totals.BROKEN}
    charged = [_Charge(event, kind) for kind in COVERS for event in tally.events(kind)]
    others = sorted({name for known in tally.known for name in known.overlaps} - account.names)
    return Spent(
        data=data,
        delta=delta,
        **{kind: compose(events, delta) for kind, events in kinds.items()},
        runs=tally.runs,
        uncovered=tally.uncovered,
        broken=broken,
        budget=min(budgets, default=None),
        covered_only=account.covered_only,
        names=tuple(sorted(account.tallies)),
        accountants={kind: totals.accountant(events) for kind, events in kinds.items()},
        caveats=(
            *totals.caveats(charged, tally.runs, broken),
            *_per_person(tally),
            *(totals.unbounded(tally.charges[DRAWS].runs) if budgets else ()),
            *(OVERLAP.format(other) for other in others),
        ),
        notes=notes,
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
