"""Which files, and what may be assumed of them?  Options of every command that loads data."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from simplexdp.cli.shell import names

Data = Annotated[
    str | None,
    typer.Option(help="A data set's name, or a path to your own; digits unless given."),
]
DataDir = Annotated[Path | None, typer.Option(help="Folder with the original files.")]
AllowUnverified = Annotated[
    bool, typer.Option("--allow-unverified", help="Take a file whose checksum is unknown.")
]


def data_options(
    *,
    data_dir: DataDir = None,
    allow_unverified: AllowUnverified = False,
    label: Annotated[str | None, typer.Option(help="Label column of your table.")] = None,
    test: Annotated[Path | None, typer.Option(help="Your test data.")] = None,
    bounds: Annotated[
        list[str] | None, typer.Option(help="Public bounds of a column, as column=low:high.")
    ] = None,
    categories: Annotated[
        list[str] | None, typer.Option(help="Public categories of a column, as column=a|b.")
    ] = None,
    public_columns: Annotated[
        str | None,
        typer.Option(help="Columns whose bounds are read from the data; then NOT private."),
    ] = None,
    drop: Annotated[str | None, typer.Option(help="Columns to leave out.")] = None,
    schema: Annotated[
        Path | None,
        typer.Option(help="A JSON file with the label and the columns; see docs/data.md."),
    ] = None,
    image_size: Annotated[
        str | None, typer.Option(help="Your images' size in pixels, as 32 or 28x28x1.")
    ] = None,
    test_fraction: Annotated[float | None, typer.Option(help="Share held out for tests.")] = None,
) -> dict[str, Any]:
    """What was given, as `data.load` and a run's configuration take it."""
    given: dict[str, Any] = {
        "data_dir": None if data_dir is None else str(data_dir),
        "allow_unverified": allow_unverified or None,
        "label": label,
        "test": None if test is None else str(test),
        "bounds": bounds,
        "categories": categories,
        "public_columns": names(public_columns),
        "drop": names(drop),
        "schema": None if schema is None else str(schema),
        "image_size": image_size,
        "test_fraction": test_fraction,
    }
    return {name: value for name, value in given.items() if value is not None}


def with_data_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the options of `data_options`, which it gets as its argument `files`."""
    own = inspect.signature(command, eval_str=True).parameters
    added = inspect.signature(data_options, eval_str=True).parameters

    @functools.wraps(command)
    def call(**given: Any) -> None:
        files = data_options(**{name: given.pop(name) for name in added})
        command(files=files, **given)

    shown = [p for name, p in own.items() if name != "files"] + list(added.values())
    shown = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shown]
    call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in shown}
    return call
