"""`simplexdp calibrate`, `account` and `ledger`: what runs cost, and what has been spent."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simplexdp import accounting
from simplexdp.cli.options import Schedule, with_options
from simplexdp.cli.shell import Json, Verbose, app, emit
from simplexdp.files import check_picture
from simplexdp.rounding import rounded_down, rounded_up

if TYPE_CHECKING:
    from simplexdp.ledger import Ledger


@app.command()
@with_options("run", Schedule)
def calibrate(
    run: dict[str, Any],
    epsilon: Annotated[float, typer.Option(help="Budget ε.")],
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Find the largest r within a budget."""
    schedule = asdict(Schedule(**run))
    found = accounting.calibrate(epsilon=epsilon, **schedule)
    # What is shown must meet the budget too.
    _emit_cost(schedule, found.r, rounded_down(found.r, 6), found, verbose, as_json)


@app.command()
@with_options("run", Schedule)
def account(
    run: dict[str, Any],
    r: Annotated[float, typer.Option(help="Scale r of the Dirichlet mechanism.")],
    plot: Annotated[
        Path | None, typer.Option(help="Draw ε over r, α, q, T and the classes to this file.")
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Compute what an r costs."""
    of = Schedule(**run)
    if plot is not None:
        from simplexdp.charts import curves, plot_accountants

        check_picture(plot)
        note = f"r = {r:g}, α = {of.alpha:g}, q = {of.sample_rate:g},\nT = {of.steps:,}, "
        around = curves(
            r=r, alpha=of.alpha, sample_rate=of.sample_rate, steps=of.steps, delta=of.delta
        )
        plot_accountants(plot, around, f"{note}δ = {of.delta:g}")
    cost = accounting.account(r=r, **asdict(of))
    _emit_cost(asdict(of), r, str(r), cost, verbose, as_json)


def _emit_cost(
    schedule: dict[str, Any],
    r: float,
    shown: str,
    cost: accounting.Cost | accounting.Calibration,
    verbose: bool,
    as_json: bool,
) -> None:
    known = accounting.ACCOUNTANTS[schedule["accountant"]]
    record = {"r": r, "epsilon": cost.epsilon, **schedule, "order": cost.order}
    delta = rounded_up(schedule["delta"], 6)
    text = (
        f"r = {shown} costs ε = {rounded_up(cost.epsilon, 6)} at δ = {delta} "
        f"({known.title}; {known.relation}); it bounds the draws, NOT the weights"
    )
    if verbose:
        text += "\nIt holds only if:\n" + "\n".join(f"- {one}" for one in known.assumptions)
    emit(record, as_json, text)


ledger_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
app.add_typer(ledger_app, name="ledger")
LedgerPath = Annotated[Path | None, typer.Option("--path", help="The ledger's file.")]


@ledger_app.callback()
def ledger(
    context: typer.Context,
    data: Annotated[
        str | None, typer.Option(help="One data set; all of them unless given.")
    ] = None,
    delta: Annotated[float, typer.Option(help="The δ of totals and budget.")] = 1e-5,
    set_budget: Annotated[
        float | None, typer.Option(help="From now on refuse runs that take --data above this ε.")
    ] = None,
    covered_only: Annotated[
        bool | None,
        typer.Option(help="From now on refuse runs on --data whose weights nothing bounds."),
    ] = None,
    path: LedgerPath = None,
    as_json: Json = False,
) -> None:
    """Show what has been spent on a data set, or set the budget that must not be exceeded."""
    if context.invoked_subcommand is not None:
        return
    from simplexdp import ledger as ledgers

    sets = set_budget is not None or covered_only is not None
    if path is not None and not sets and not path.exists():
        raise ValueError(f"there is no ledger {path}; a run begins one, or --set-budget")
    book = ledgers.Ledger(path or ledgers.default_path())
    chosen = [_known(data, book)] if data is not None else book.data_sets()
    if sets and data is None:
        option = "--set-budget" if set_budget is not None else "--covered-only"
        raise ValueError(f"{option} needs a data set; name it with --data")
    if set_budget is not None:
        book.set_budget(chosen[0], set_budget, delta)
    if covered_only is not None:
        book.set_policy(chosen[0], covered_only=covered_only)
    totals = [book.spent(name, delta) for name in chosen]
    record: dict[str, Any] = {
        "ledger": str(book.path),
        "data": [ledgers.summary(total) for total in totals],
        "entries": [
            {
                "id": e.id,
                "data": e.data,
                "method": e.method,
                "run": e.run,
                "covers": e.covers,
                "breaks": list(e.broken),
            }
            for name in (chosen if as_json else ())
            for e in book.entries(name)
        ],
    }
    lines = [line for total in totals for line in ledgers.describe(total)]
    emit(record, as_json, "\n".join(lines) or "Nothing has been spent: the ledger is empty.")


@ledger_app.command("verify")
def verify_ledger(
    context: typer.Context,
    path: LedgerPath = None,
    head: Annotated[
        str | None, typer.Option(help="A head noted earlier; refused if the ledger never had it.")
    ] = None,
    accept: Annotated[
        bool, typer.Option("--accept", help="Go on with a changed ledger; every total says so.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Check that no line of the ledger was changed or is missing, and show its head."""
    from simplexdp import ledger as ledgers

    before = None if context.parent is None else context.parent.params.get("path")
    book = ledgers.Ledger(path or before or ledgers.default_path())
    found = book.verify(head, accept=accept)
    record = {
        "ledger": str(book.path),
        "lines": found.lines,
        "entries": found.entries,
        "head": found.head,
        "notes": list(found.notes),
    }
    text = "\n".join(
        [
            f"{book.path}: {found.entries} entries in {found.lines} lines, none changed or missing",
            f"head: {found.head}",
            *(f"note: {note}" for note in found.notes),
        ]
    )
    emit(record, as_json, text)


def _known(data: str, book: Ledger) -> str:
    """Return the ledger's name of a data set; refuse a typo, whose budget would bind nothing."""
    from simplexdp.data import names
    from simplexdp.ledger import identity

    found = identity(data)
    if found in names() or book.knows(found) or Path(found).exists():
        return found
    if book.knows(data):
        return data  # a label of the user's own, which a program reserved under
    raise ValueError(
        f"no data set {data!r} and no such file: name your own by its path, or use one of "
        f"{', '.join(names())}"
    )
