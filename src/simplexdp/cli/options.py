"""Options of commands, made from the fields of `Settings` and of other dataclasses."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from simplexdp.cli.shell import names, number
from simplexdp.settings import Settings, setting

Command = Callable[..., None]


@dataclass(frozen=True)
class DataOptions:
    """What `data.load` takes beside a name or a path."""

    data_dir: str | None = setting(None, "Folder with the original files.")
    allow_unverified: bool = setting(False, "Take a file whose checksum is unknown.")
    label: str | None = setting(None, "Label column of your table.")
    test: str | None = setting(None, "Your test data.")
    bounds: list[str] | None = setting(None, "Public bounds of a column, as column=low:high.")
    categories: list[str] | None = setting(None, "Public categories of a column, as column=a|b.")
    public_columns: tuple[str, ...] = setting(
        (), "Columns whose bounds are read from the data; then NOT private."
    )
    drop: tuple[str, ...] = setting((), "Columns to leave out.")
    schema: str | None = setting(None, "A JSON file with label and columns; see docs/data.md.")
    image_size: str | None = setting(None, "Your images' size in pixels, as 32 or 28x28x1.")
    test_fraction: float | None = setting(None, "Share held out for tests.")


def with_options(
    argument: str, of: type, *fields: str, **helps: str
) -> Callable[[Command], Command]:
    """Give a command options for fields of a dataclass, all that have a help text unless named.

    It gets those that were given together in one argument. `helps` are texts that differ from the
    fields' own.
    """
    hints = typing.get_type_hints(of)
    described = {f.name: f.metadata["help"] for f in dataclasses.fields(of) if f.metadata}
    kinds = {name: _kind(hints[name]) for name in fields or described}

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters
        added = {n: _parameter(n, kinds[n], helps.get(n, described[n])) for n in kinds}

        @functools.wraps(command)
        def call(**given: Any) -> None:
            asked = {name: given.pop(name) for name in kinds}
            read = {n: _read(n, kinds[n], v) for n, v in asked.items() if v not in (None, [])}
            command(**{argument: read}, **given)

        shown = [*added.values(), *(p for name, p in own.items() if name != argument)]
        shown = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shown]
        call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in shown}
        return call

    return decorate


def _kind(hint: Any) -> Any:
    """Return the type of a field, without the None that stands for no value."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return kinds[0]


def _parameter(name: str, kind: Any, text: str) -> inspect.Parameter:
    """Return the option of a field; None unless given."""
    flag = [f"--{name.replace('_', '-')}"] if kind is bool else []
    kind = str if name == "lr" or typing.get_origin(kind) is tuple else kind
    annotation = Annotated[kind | None, typer.Option(*flag, help=text)]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _read(name: str, kind: Any, value: Any) -> Any:
    """Return what was given as the field takes it."""
    if name == "lr":
        return None if value == "auto" else number(value, "--lr")
    return names(value) if typing.get_origin(kind) is tuple else value


with_data = with_options("files", DataOptions)
with_settings = functools.partial(with_options, "given", Settings)
