"""Which files, and what may be assumed of them?  Options of every command that trains on data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .shell import names

Data = Annotated[
    str, typer.Option(help="A data set's name, or a path to your own; digits unless given.")
]
DataDir = Annotated[Path | None, typer.Option(help="Folder with the original files.")]
AllowUnverified = Annotated[
    bool, typer.Option("--allow-unverified", help="Take a file whose checksum is unknown.")
]
Label = Annotated[str | None, typer.Option(help="Label column of your table.")]
Test = Annotated[Path | None, typer.Option(help="Your test data.")]
Bounds = Annotated[
    list[str] | None, typer.Option(help="Public bounds of a column, as column=low:high.")
]
Categories = Annotated[
    list[str] | None, typer.Option(help="Public categories of a column, as column=a|b.")
]
PublicColumns = Annotated[
    str | None, typer.Option(help="Columns whose bounds may be read from the data.")
]
Drop = Annotated[str | None, typer.Option(help="Columns to leave out.")]
Schema = Annotated[
    Path | None, typer.Option(help="A JSON file with label, bounds, categories, drop.")
]
ImageSize = Annotated[
    str | None, typer.Option(help="Your images' size in pixels, as 32 or 28x28x1.")
]
TestFraction = Annotated[float | None, typer.Option(help="Share held out for tests.")]


def data_options(
    *,
    data_dir: Path | None,
    allow_unverified: bool,
    label: str | None,
    test: Path | None,
    bounds: list[str] | None,
    categories: list[str] | None,
    public_columns: str | None,
    drop: str | None,
    schema: Path | None,
    image_size: str | None,
    test_fraction: float | None,
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
