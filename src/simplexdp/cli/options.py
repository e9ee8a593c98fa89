"""Options of commands, made from `Settings` and from what `data.load` takes."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from simplexdp.cli.shell import names, number
from simplexdp.settings import Settings

DataDir = Annotated[Path | None, typer.Option(help="Folder with the original files.")]
AllowUnverified = Annotated[
    bool, typer.Option("--allow-unverified", help="Take a file whose checksum is unknown.")
]
# What the shell gives as text.
_READERS: dict[str, Callable[[str], Any]] = {
    "augment": names,
    "lr": lambda text: None if text == "auto" else number(text, "--lr"),
}


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
    group: Annotated[
        str | None,
        typer.Option(help="Column, or array of an .npz, of whose a record is: protects persons."),
    ] = None,
    features_from: Annotated[
        str | None,
        typer.Option(help="What made your vectors, or trained your encoder, as declared in text."),
    ] = None,
) -> dict[str, Any]:
    """Return what was given, as `data.load` and a run's configuration take it."""
    given: dict[str, Any] = {
        "data_dir": None if data_dir is None else str(data_dir),
        "allow_unverified": allow_unverified or None,
        "label": label,
        "test": None if test is None else str(test),
        "bounds": bounds,
        "categories": categories,
        "public_columns": None if public_columns is None else names(public_columns),
        "drop": None if drop is None else names(drop),
        "schema": None if schema is None else str(schema),
        "image_size": image_size,
        "test_fraction": test_fraction,
        "group": group,
        "features_from": features_from,
    }
    return {name: value for name, value in given.items() if value is not None}


def with_data(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `data_options`, as its argument `files`."""
    added = inspect.signature(data_options, eval_str=True).parameters
    return _with(command, "files", added, lambda given: data_options(**given))


def with_settings(
    *fields: str, **helps: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command options for these fields of `Settings`, as its argument `given`.

    Only what was given is in it. `helps` are texts that differ from those of `Settings`.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = typing.get_type_hints(Settings)
        described = {f.name: f.metadata.get("help") for f in dataclasses.fields(Settings)}
        added = {
            name: _parameter(name, hints[name], helps.get(name) or described[name] or "")
            for name in fields
        }
        return _with(command, "given", added, _given)

    return decorate


def _parameter(name: str, hint: Any, text: str) -> inspect.Parameter:
    """Return the option of a field: of its type, or text that is read; None unless given."""
    kind: Any = str if name in _READERS else next(k for k in (*typing.get_args(hint), hint) if k)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, typer.Option(help=text)],
    )


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, read where they are text."""
    return {
        name: _READERS[name](value) if name in _READERS else value
        for name, value in values.items()
        if value is not None
    }


def _with(
    command: Callable[..., None],
    argument: str,
    added: Mapping[str, inspect.Parameter],
    collect: Callable[[dict[str, Any]], dict[str, Any]],
) -> Callable[..., None]:
    """Return the command with more options, which it gets together in one argument."""
    own = inspect.signature(command, eval_str=True).parameters

    @functools.wraps(command)
    def call(**given: Any) -> None:
        command(**{argument: collect({name: given.pop(name) for name in added})}, **given)

    shown = [*added.values(), *(p for name, p in own.items() if name != argument)]
    shown = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shown]
    call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    call.__annotations__ = {p.name: p.annotation for p in shown}
    return call
