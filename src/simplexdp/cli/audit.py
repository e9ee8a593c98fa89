"""`simplexdp audit`: attack what was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from simplexdp.cli.options import with_data, with_settings
from simplexdp.cli.shell import Json, Quiet, app, emit
from simplexdp.settings import Settings


@app.command()
@with_settings(
    "data",
    "method",
    "epsilon",
    "delta",
    method="The method to attack.",
    epsilon="The claimed ε; 1 unless given.",
    delta="The claimed δ; 1e-5 unless given.",
)
@with_data
def audit(
    files: dict[str, Any],
    given: dict[str, Any],
    attack: Annotated[
        str | None,
        typer.Option(help="transcript, canary, one-run, membership, reconstruct or all."),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            help="Attack this finished run's method and budget on its own data: transcript and "
            "one-run repeat its whole schedule, canary a few steps."
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Trainings, pairs of them, canaries or shadow models.")
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(help="Confidence of the bound (joint for --attack all); 0.95 unless given."),
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(help="Canaries: a pair of inputs, or one that is in or out (in-out)."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the audit itself.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the results and pictures.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Attack what was trained; with no arguments: every method on the digits."""
    from simplexdp import audit as audits

    method = given.get("method")
    if run is not None:
        named = {f"--{name}": value for name, value in given.items()}
        _refuse({**named, "options of the data": files or None}, "the run has its own")
    settings = Settings(**given, data_options=files)
    if attack == "reconstruct":
        asked = {"--confidence": confidence, "--relation": relation}
        _refuse(asked, "reconstruct counts inputs and bounds nothing")
    level = 0.95 if confidence is None else confidence
    if attack == "reconstruct" and method is None and run is None and out is not None:
        _refuse({"--trials": trials}, "the pictures are of one record and of eight")
        record = audits.pictures(settings, out, seed)
        emit(record, as_json, "\n".join(f"{name}: {value}" for name, value in record.items()))
        return
    if attack is None and method is None and run is None and relation in (None, "pair"):
        record = audits.table(
            settings, confidence=level, trials=trials, seed=seed, out=out, show_progress=not quiet
        )
        emit(record, as_json, audits.as_text(record))
        return
    record = audits.run(
        settings,
        attack or "canary",
        trials,
        level,
        folder=run,
        out=out,
        seed=seed,
        show_progress=not quiet,
        relation=relation or "pair",
    )
    parts = record.get("audits", [record])
    emit(record, as_json, "\n".join(part["summary"] for part in parts))


def _refuse(given: dict[str, Any], reason: str) -> None:
    """Refuse an option that would have no effect."""
    if named := [name for name, value in given.items() if value is not None]:
        raise ValueError(f"leave out {', '.join(named)}: {reason}")
