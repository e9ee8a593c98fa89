"""`simplexdp reproduce` and `report`: the paper's tables, and everything measured on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simplexdp.cli import signals
from simplexdp.cli.options import AllowUnverified, DataDir
from simplexdp.cli.shell import Json, Quiet, app, emit


@app.command()
def reproduce(
    name: Annotated[
        str, typer.Argument(help="A table or figure of the paper; an unknown name lists them.")
    ] = "",
    seeds: Annotated[int, typer.Option(help="Runs of each cell.")] = 1,
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Only these budgets; may be given several times.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Only the row of this label, or rows with this in it.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Other than the recipe's; labelled so.")] = None,
    evaluations: Annotated[
        int | None, typer.Option(help="How often a run is tested on the way; 20 unless given.")
    ] = None,
    budget_minutes: Annotated[
        float | None, typer.Option(help="Stop after so many minutes.")
    ] = None,
    ray: Annotated[bool, typer.Option("--ray", help="On a Ray cluster.")] = False,
    ray_address: Annotated[str | None, typer.Option(help="The cluster's address.")] = None,
    results: Annotated[Path, typer.Option(help="Where the records are kept.")] = Path("results"),
    runs: Annotated[Path, typer.Option(help="Where runs live while they train.")] = Path("runs"),
    device: Annotated[str, typer.Option(help="cpu, cuda, …")] = "cpu",
    threads: Annotated[int | None, typer.Option(help="CPU threads.")] = None,
    allow_unverified: AllowUnverified = False,
    data_dir: DataDir = None,
    import_run: Annotated[
        Path | None, typer.Option(help="Only file this finished run among the results.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """A table or figure of the paper: runs what is missing, resumes what was cut off."""
    from simplexdp.paper import records
    from simplexdp.paper import reproduce as reproduction

    if import_run is not None:
        if name:
            raise ValueError("--import-run files one run where it belongs; leave out the table")
        path = records.import_run(import_run, results)
        emit({"imported": str(path)}, as_json, f"filed as {path}")
        return
    summary = reproduction.reproduce(
        name,
        seeds=seeds,
        epsilons=epsilon or None,
        only=only,
        steps=steps,
        evaluations=evaluations,
        budget_minutes=budget_minutes,
        ray=ray,
        ray_address=ray_address,
        results=results,
        run_root=runs,
        device=device,
        threads=threads,
        allow_unverified=allow_unverified,
        data_dir=data_dir,
        show_progress=not quiet,
        stop=signals.asked,
    )
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
    """Your runs, or the results of the paper's tables, as one self-contained page with charts."""
    from simplexdp.paper import report as pages
    from simplexdp.paper.report import figures as drawings
    from simplexdp.paper.report import own
    from simplexdp.paper.report import refresh as guide

    written = own.write(of, out) if of else pages.write(results, out, pictures)
    written["figures"] = [str(p) for p in drawings.write(results, figures)] if figures else []
    written["refreshed"] = [str(p) for p in guide.refresh(refresh, results)] if refresh else []
    lines = [f"{written['page']} from {written['runs']} runs", *written["left_out"]]
    emit(written, as_json, "\n".join([*lines, *written["figures"], *written["refreshed"]]))
