"""`simplexdp compare`: several methods on one data set at one budget."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from simplexdp.cli.options import with_data, with_settings
from simplexdp.cli.shell import Json, LargeDelta, Quiet, app, emit, names
from simplexdp.files import check_picture, write_json
from simplexdp.ledger import Ledger, default_path
from simplexdp.settings import Settings

NETWORKS = "(network methods only)"


@app.command()
@with_settings(
    "data",
    "epsilon",
    "delta",
    "steps",
    "batch_size",
    "model",
    "seed",
    steps=f"Number of steps {NETWORKS}.",
    batch_size=f"Expected records in a batch {NETWORKS}.",
    model=f"A network's name {NETWORKS}.",
)
@with_data
def compare(
    files: dict[str, Any],
    given: dict[str, Any],
    method: Annotated[
        str | None, typer.Option("--methods", help="Comma-separated; all of them unless given.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Trainings of each method.")] = 3,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs and comparison.json.")
    ] = None,
    ledger: Annotated[Path | None, typer.Option(help="The ledger that counts the runs.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the comparison to this file.")] = None,
    with_audit: Annotated[
        bool, typer.Option("--audit", help="Attack every method too, with canaries.")
    ] = False,
    allow_large_delta: LargeDelta = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare several methods on one data set at one budget.

    The ledger counts all of them; a method without a claim makes its total infinite.
    """
    from simplexdp import compare as comparison

    settings = Settings(**given, data_options=files)
    out = out or Path("runs") / f"compare-{secrets.token_hex(4)}"
    if out.exists():
        raise ValueError(f"{out} exists; choose another folder with --out")
    if plot is not None:
        check_picture(plot)
    chosen = None if method is None else names(method)
    if chosen == ():
        raise ValueError(f"--methods is {method!r}; name one or more, or leave it out for all")
    rows = comparison.compare(
        settings,
        out,
        chosen,
        seeds,
        show_progress=not quiet,
        ledger=Ledger(ledger or default_path()),
        allow_large_delta=allow_large_delta,
    )
    record: dict[str, Any] = {**comparison.to_json(settings, rows), "audits": {}}
    write_json(out / "comparison.json", record)  # whatever comes after it
    if plot is not None:
        comparison.plot(plot, settings, rows)
    if with_audit:
        record["audits"] = comparison.audit(settings, rows, show_progress=not quiet)
        write_json(out / "comparison.json", record)
    note = f"\n\nThe runs with their statements: {out}"
    note += "\nEach ε is of one training; `simplexdp ledger` tells what all of them cost together."
    if settings.seed is not None:
        note += "\nThe seeds are known, so these runs measure accuracy and protect nobody."
    text = comparison.to_text(rows, record["audits"]) + note
    emit({**record, "runs": str(out)}, as_json, text)
