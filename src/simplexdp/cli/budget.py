"""`simplexdp calibrate`, `account` and `ledger`: what runs cost, and what has been spent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from simplexdp import accounting
from simplexdp import ledger as ledgers
from simplexdp.cli.shell import (
    AccountantName,
    Alpha,
    Delta,
    Epsilon,
    Json,
    SampleRate,
    Steps,
    Verbose,
    app,
    emit,
)
from simplexdp.files import check_picture
from simplexdp.rounding import rounded_down, rounded_up


@app.command()
def calibrate(
    epsilon: Epsilon,
    sample_rate: SampleRate,
    steps: Steps,
    delta: Delta = 1e-5,
    alpha: Alpha = 3.0,
    accountant: AccountantName = "theorem1",
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Find the largest r within a budget."""
    run: dict[str, Any] = {
        "delta": delta,
        "alpha": alpha,
        "sample_rate": sample_rate,
        "steps": steps,
    }
    found = accounting.calibrate(accountant, epsilon=epsilon, **run)
    # What is shown must meet the budget too.
    _emit_cost(accountant, run, found.r, rounded_down(found.r, 6), found, verbose, as_json)


@app.command()
def account(
    r: Annotated[float, typer.Option(help="Scale r of the Dirichlet mechanism.")],
    sample_rate: SampleRate,
    steps: Steps,
    delta: Delta = 1e-5,
    alpha: Alpha = 3.0,
    accountant: AccountantName = "theorem1",
    plot: Annotated[
        Path | None, typer.Option(help="Draw ε over r, α, q, T and the classes to this file.")
    ] = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Compute what an r costs."""
    run: dict[str, Any] = {
        "delta": delta,
        "alpha": alpha,
        "sample_rate": sample_rate,
        "steps": steps,
    }
    if plot is not None:
        from simplexdp.charts import curves, plot_accountants

        check_picture(plot)
        note = f"r = {r:g}, α = {alpha:g}, q = {sample_rate:g},\nT = {steps:,}, δ = {delta:g}"
        plot_accountants(plot, curves(r=r, **run), note)
    cost = accounting.account(accountant, r=r, **run)
    _emit_cost(accountant, run, r, str(r), cost, verbose, as_json)


def _emit_cost(
    accountant: str,
    run: dict[str, Any],
    r: float,
    shown: str,
    cost: accounting.Cost | accounting.Calibration,
    verbose: bool,
    as_json: bool,
) -> None:
    known = accounting.ACCOUNTANTS[accountant]
    named = {"accountant": accountant, "order": cost.order}
    record = {"r": r, "epsilon": cost.epsilon, **run, **named}
    text = (
        f"r = {shown} costs ε = {rounded_up(cost.epsilon, 6)} at δ = {rounded_up(run['delta'], 6)} "
        f"({known.title}; {known.relation}); it bounds the draws, NOT the weights"
    )
    if verbose:
        assumptions = known.assumptions_at(run["alpha"])
        text += "\nIt holds only if:\n" + "\n".join(f"- {one}" for one in assumptions)
    emit(record, as_json, text)


@app.command()
def ledger(
    data: Annotated[
        str | None, typer.Option(help="One data set; all of them unless given.")
    ] = None,
    delta: Delta = 1e-5,
    set_budget: Annotated[
        float | None, typer.Option(help="From now on refuse runs that take --data above this ε.")
    ] = None,
    path: Annotated[Path | None, typer.Option(help="The ledger's file.")] = None,
    as_json: Json = False,
) -> None:
    """Show what has been spent on a data set, or set the budget that must not be exceeded."""
    if path is not None and set_budget is None and not path.exists():
        raise ValueError(f"there is no ledger {path}; a run begins one, or --set-budget")
    book = ledgers.Ledger(path or ledgers.default_path())
    chosen = [_known(data, book)] if data is not None else book.data_sets()
    if set_budget is not None:
        if data is None:
            raise ValueError("--set-budget needs a data set; name it with --data")
        book.set_budget(chosen[0], set_budget, delta)
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
            for name in chosen
            for e in book.entries(name)
        ],
    }
    lines = [line for total in totals for line in ledgers.describe(total)]
    emit(record, as_json, "\n".join(lines) or "Nothing has been spent: the ledger is empty.")


def _known(data: str, book: ledgers.Ledger) -> str:
    """Return the ledger's name of a data set; refuse a typo, whose budget would bind nothing."""
    from simplexdp.data import names

    found = ledgers.identity(data)
    if found in names() or book.knows(found) or Path(found).exists():
        return found
    raise ValueError(
        f"no data set {data!r} and no such file: name your own by its path, or use one of "
        f"{', '.join(names())}"
    )
