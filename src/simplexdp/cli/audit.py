"""`simplexdp audit`: attack what was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from simplexdp.cli.inputs import Data, with_data_options
from simplexdp.cli.shell import Json, Quiet, app, emit
from simplexdp.settings import DEFAULTS, Settings


@app.command()
@with_data_options
def audit(
    files: dict[str, Any],
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
    data: Data = None,
    epsilon: Annotated[float | None, typer.Option(help="The claimed ε; 1 unless given.")] = None,
    delta: Annotated[float | None, typer.Option(help="The claimed δ; 1e-5 unless given.")] = None,
    trials: Annotated[
        int | None, typer.Option(help="Trainings, canaries or shadow models of the attack.")
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(help="Of the lower bound; with all, of both together; 0.95 unless given."),
    ] = None,
    relation: Annotated[
        str | None,
        typer.Option(help="Canaries: a pair of inputs, or one that is in or out (in-out)."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the audit itself.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for the results and pictures.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Attack what was trained; with no arguments: every method on the digits."""
    from simplexdp import audit as audits

    of_a_run = {"--data": data, "--method": method, "--epsilon": epsilon, "--delta": delta}
    if run is not None:
        _refuse({**of_a_run, "options of the data": files or None}, "the run has its own")
    settings = Settings(
        data=data or DEFAULTS.data,
        method=method or DEFAULTS.method,
        epsilon=DEFAULTS.epsilon if epsilon is None else epsilon,
        delta=DEFAULTS.delta if delta is None else delta,
        data_options=files,
    )
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
    """An option that would have no effect."""
    if named := [name for name, value in given.items() if value is not None]:
        raise ValueError(f"leave out {', '.join(named)}: {reason}")
