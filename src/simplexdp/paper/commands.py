"""`simplexdp reproduce` and `report`: the paper's tables, and everything measured on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from simplexdp.cli import signals
from simplexdp.cli.options import with_options
from simplexdp.cli.shell import Json, Quiet, app, emit
from simplexdp.paper.asked import Asked


@app.command()
@with_options("asked", Asked)
def reproduce(
    asked: dict[str, Any],
    name: Annotated[
        str, typer.Argument(help="A table or figure of the paper; an unknown name lists them.")
    ] = "",
    import_run: Annotated[
        Path | None, typer.Option(help="Only file this finished run among the results.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce a table or figure of the paper: run what is missing, resume what was cut off."""
    from simplexdp.paper import records
    from simplexdp.paper import reproduce as reproduction

    if import_run is not None:
        if name:
            raise ValueError("--import-run files one run where it belongs; leave out the table")
        path = records.import_run(import_run, Path(asked.get("results", "results")))
        emit({"imported": str(path)}, as_json, f"filed as {path}")
        return
    summary = reproduction.reproduce(name, show_progress=not quiet, stop=signals.asked, **asked)
    emit(summary, as_json, reproduction.text_of(summary))
    if signals.asked():
        raise KeyboardInterrupt
    if summary.get("failed"):
        raise typer.Exit(2)  # the reasons are on standard error


@app.command()
def report(
    of: Annotated[
        list[Path] | None, typer.Argument(help="Your runs, or folders of runs; else the paper's.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Where the records are kept.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    pictures: Annotated[
        Path | None,
        typer.Option(help="Another folder with pictures of reconstruction."),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write figures and tables for papers here.")
    ] = None,
    refresh: Annotated[
        list[Path] | None, typer.Option(help="Put the tables between their markers on this page.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write one self-contained page with charts of your runs, or of the paper's tables."""
    from simplexdp import files
    from simplexdp.paper.report import figures as drawings
    from simplexdp.paper.report import own, page, tables

    files.check_drawing()
    written = own.write(of, out) if of else page.write(results, out, pictures)
    written["figures"] = [str(p) for p in drawings.write(results, figures)] if figures else []
    written["refreshed"] = [str(p) for p in tables.refresh(refresh, results)] if refresh else []
    lines = [
        f"{written['page']} from {written['runs']} run{'s' if written['runs'] != 1 else ''}",
        *written["left_out"],
    ]
    emit(written, as_json, "\n".join([*lines, *written["figures"], *written["refreshed"]]))
