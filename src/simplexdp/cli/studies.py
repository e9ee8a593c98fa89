"""`simplexdp compare`, `audit`, `reproduce`, `report`: several runs, and what they show."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..settings import Settings
from .shell import Delta, Json, Quiet, app, emit, names

Data = Annotated[str, typer.Option(help="A data set's name, or a path to your own.")]


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
    plot: Annotated[Path | None, typer.Option(help="Draw the comparison to this file.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Several methods on one data set at one budget, side by side."""
    from .. import compare as comparison

    settings = Settings(
        data=data, epsilon=epsilon, delta=delta, steps=steps, batch_size=batch_size, model=model
    )
    rows = comparison.compare(
        settings, names(method) or comparison.DEFAULT_METHODS, seeds, show_progress=not quiet
    )
    if plot is not None:
        comparison.plot(plot, settings, rows)
    record: dict[str, Any] = comparison.to_json(settings, rows)
    note = (
        "\n\nSeeds 0, 1, … are known, so these runs measure accuracy and protect nobody; "
        "train without --seed for use."
    )
    emit(record, as_json, comparison.to_text(rows) + note)
