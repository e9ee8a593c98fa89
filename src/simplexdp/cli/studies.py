"""`simplexdp compare`, `audit`, `reproduce`, `report`: several runs, and what they show."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from ..ledger import Ledger, default_path
from ..settings import Settings
from .shell import Delta, Json, Quiet, app, emit, names

Data = Annotated[
    str,
    typer.Option(help="A data set's name, or a path to a folder of images or .npz of uint8."),
]


@app.command()
def compare(
    data: Data = "digits",
    method: Annotated[
        str | None, typer.Option("--methods", help="Comma-separated; all of them unless given.")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="Budget ε.")] = 1.0,
    delta: Delta = 1e-5,
    seeds: Annotated[int, typer.Option(help="Trainings of each method.")] = 3,
    steps: Annotated[int | None, typer.Option(help="Number of steps.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Expected records in a batch.")] = None,
    model: Annotated[str | None, typer.Option(help="A model's name.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Reproducible, and then NOT private: the seed is known.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the runs.")] = None,
    ledger: Annotated[Path | None, typer.Option(help="The ledger that counts the runs.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the comparison to this file.")] = None,
    with_audit: Annotated[
        bool, typer.Option("--audit", help="Attack every method too, with canaries.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Several methods on one data set at one budget, side by side."""
    from .. import compare as comparison

    settings = Settings(
        data=data,
        epsilon=epsilon,
        delta=delta,
        steps=steps,
        batch_size=batch_size,
        model=model,
        seed=seed,
    )
    out = out or Path("runs") / f"compare-{secrets.token_hex(4)}"
    if out.exists():
        raise ValueError(f"{out} exists; choose another folder with --out")
    if plot is not None:
        comparison.check_picture(plot)
    rows = comparison.compare(
        settings,
        out,
        names(method) or comparison.DEFAULT_METHODS,
        seeds,
        show_progress=not quiet,
        ledger=Ledger(ledger or default_path()),
    )
    if plot is not None:
        comparison.plot(plot, settings, rows)
    audits = comparison.audit(settings, rows, show_progress=not quiet) if with_audit else {}
    record: dict[str, Any] = {**comparison.to_json(settings, rows), "audits": audits}
    note = f"\n\nThe runs with their statements: {out}"
    if seed is not None:
        note += "\nThe seeds are known, so these runs measure accuracy and protect nobody."
    emit({**record, "runs": str(out)}, as_json, comparison.to_text(rows, audits) + note)


@app.command()
def reproduce(
    name: Annotated[
        str, typer.Argument(help="A table or figure of the paper; without it they are listed.")
    ] = "",
    seeds: Annotated[int, typer.Option(help="Runs of each cell.")] = 1,
    epsilon: Annotated[
        list[float] | None, typer.Option(help="Only these budgets; may be given several times.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Only rows whose label has this in it.")] = None,
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
    allow_unverified: Annotated[
        bool, typer.Option("--allow-unverified", help="Take a file whose checksum is unknown.")
    ] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the original files.")] = None,
    import_run: Annotated[
        Path | None, typer.Option(help="Only file this finished run among the results.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """A table or figure of the paper: runs what is missing, resumes what was cut off."""
    from ..experiments import records
    from ..experiments import reproduce as reproduction

    if import_run is not None:
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
    )
    emit(summary, as_json, reproduction.text_of(summary))
    if summary.get("failed"):
        raise typer.Exit(2)  # the reasons are on standard error


@app.command()
def audit(
    attack: Annotated[
        str | None, typer.Option(help="canary, one-run, membership, reconstruct or all.")
    ] = None,
    method: Annotated[str | None, typer.Option(help="The method to attack.")] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            help="Attack this finished run's method, network and budget on its data: one-run "
            "trains its whole schedule, membership halves of it, canary a few steps."
        ),
    ] = None,
    data: Data = "digits",
    epsilon: Annotated[float, typer.Option(help="The claimed ε.")] = 1.0,
    delta: Delta = 1e-5,
    trials: Annotated[
        int | None, typer.Option(help="Trainings, canaries or shadow models of the attack.")
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Of the lower bound; with all, of both together.")
    ] = 0.95,
    relation: Annotated[
        str, typer.Option(help="Canaries: a pair of inputs, or one that is in or out (in-out).")
    ] = "pair",
    seed: Annotated[int, typer.Option(help="Of the audit itself.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the results and pictures.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Attack what was trained; with no arguments: every method on the digits."""
    from .. import audit as audits

    if attack == "reconstruct" and method is None and run is None and out is not None:
        record = audits.pictures(data, out)
        emit(record, as_json, "\n".join(f"{name}: {value}" for name, value in record.items()))
        return
    if attack is None and method is None and run is None and relation == "pair":
        record = audits.table(
            data,
            epsilon=epsilon,
            delta=delta,
            confidence=confidence,
            trials=trials,
            seed=seed,
            out=out,
            show_progress=not quiet,
        )
        emit(record, as_json, audits.as_text(record))
        return
    record = audits.run(
        Settings(data=data, method=method or "dirichlet", epsilon=epsilon, delta=delta),
        attack or "canary",
        trials,
        confidence,
        folder=run,
        out=out,
        seed=seed,
        show_progress=not quiet,
        relation=relation,
    )
    parts = record.get("audits", [record])
    emit(record, as_json, "\n".join(part["summary"] for part in parts))


@app.command()
def report(
    results: Annotated[Path, typer.Option(help="Where the records are kept.")] = Path("results"),
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    pictures: Annotated[
        Path | None, typer.Option(help="Folder with pictures of reconstruction.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Also write figures and tables for papers here.")
    ] = None,
    refresh: Annotated[
        list[Path] | None, typer.Option(help="Put the tables between their markers on this page.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The results as one self-contained page with plots."""
    from .. import report as pages
    from ..report import figures as drawings
    from ..report import tables

    written = pages.write(results, out, pictures)
    written["figures"] = [str(p) for p in drawings.write(results, figures)] if figures else []
    written["refreshed"] = [str(p) for p in tables.refresh(refresh, results)] if refresh else []
    lines = [f"{written['page']} from {written['runs']} runs", *written["left_out"]]
    emit(written, as_json, "\n".join([*lines, *written["figures"], *written["refreshed"]]))
