"""`simplexdp data list|fetch|check`: data sets known by name, and whether they are intact."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from simplexdp.cli.options import DataOptions, with_options
from simplexdp.cli.shell import Json, app, emit

data_app = typer.Typer(help="List, fetch and check data sets.", no_args_is_help=True)
app.add_typer(data_app, name="data")

Name = Annotated[str, typer.Argument(help="A data set's name, or all.")]


@data_app.command("list")
def list_(as_json: Json = False) -> None:
    """List the data sets known by name, and which of them are here."""
    from simplexdp import data

    records = [data.describe(name) for name in data.names()]
    emit({"data": records}, as_json, "\n".join(_line(record) for record in records))


@data_app.command()
@with_options("where", DataOptions, "data_dir", "allow_unverified")
def fetch(
    name: Name,
    where: dict[str, Any],
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is here.")] = False,
    as_json: Json = False,
) -> None:
    """Get a data set from the first source that has it, with its checksum verified."""
    from simplexdp import data

    wanted = data.names() if name == "all" else (name,)
    records = [data.fetch(one, force=force, **where) for one in wanted]
    emit({"data": records}, as_json, "\n".join(_line(record) for record in records))


@data_app.command()
def check(name: Name, as_json: Json = False) -> None:
    """Verify every array of a data set that is here."""
    from simplexdp import data

    wanted = data.names() if name == "all" else (name,)
    records = [data.check(one) for one in wanted]
    lines = [f"{record['name']}: {record['checked']}" for record in records]
    emit({"data": records}, as_json, "\n".join(lines))


def _line(record: dict[str, Any]) -> str:
    counts = ", ".join(f"{split} {count:,}" for split, count in record["counts"].items())
    shape = "×".join(str(side) for side in record["shape"])
    return f"{record['name']:14} {record['status']:22} {shape:9} {counts}; {record['licence']}"
