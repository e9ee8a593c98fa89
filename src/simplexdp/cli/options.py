"""Options of commands, made from the fields of `Settings` and of other dataclasses."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field
from typing import Annotated, Any

import typer

from simplexdp.accounting import NAMES as ACCOUNTANTS
from simplexdp.cli.shell import names, number
from simplexdp.settings import Settings, setting

Command = Callable[..., None]
KEYWORD = inspect.Parameter.KEYWORD_ONLY


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
    window: str | None = setting(None, "Gray values that become black and white, as -160:240.")
    missing: list[str] | None = setting(
        None, "What stands for missing values, as column=50 or column=indicator."
    )
    test_fraction: float | None = setting(None, "Share held out for tests.")
    group: str | None = setting(
        None, "Column, or array of an .npz, that names each record's person."
    )
    features_from: str | None = setting(None, "What made your vectors or encoder, as declared.")


@dataclass(frozen=True)
class Schedule:
    """What the cost of draws depends on beside r."""

    sample_rate: float = field(metadata={"help": "Poisson sampling rate q."})
    steps: int = field(metadata={"help": "Number of steps T."})
    delta: float = setting(1e-5, "Budget δ; 1e-5 unless given.")
    alpha: float = setting(3.0, "Offset α of the Dirichlet mechanism; 3 unless given.")
    accountant: str = setting("theorem1", f"One of: {', '.join(ACCOUNTANTS)}.")


def with_options(
    argument: str, of: type, *fields: str, **helps: str
) -> Callable[[Command], Command]:
    """Give a command options for fields of a dataclass, all that have a help text unless named.

    It gets those that were given together in one argument. `helps` are texts that differ from the
    fields' own.
    """
    hints = typing.get_type_hints(of)
    known = {f.name: f for f in dataclasses.fields(of) if f.metadata}
    kinds = {name: _kind(hints[name]) for name in fields or known}

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters
        added = [
            _parameter(
                n, kind, helps.get(n, known[n].metadata["help"]), known[n].default is MISSING
            )
            for n, kind in kinds.items()
        ]

        @functools.wraps(command)
        def call(**given: Any) -> None:
            asked = {name: given.pop(name, None) for name in kinds}
            read = {n: _read(n, kinds[n], v) for n, v in asked.items() if v not in (None, [])}
            command(**{argument: read}, **given)

        shown = [*added, *(p for name, p in own.items() if name != argument)]
        shown = [p.replace(kind=KEYWORD) for p in shown]
        call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in shown}
        return call

    return decorate


def _kind(hint: Any) -> Any:
    """Return the type of a field, without the None that stands for no value."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return kinds[0]


def _parameter(name: str, kind: Any, text: str, needed: bool) -> inspect.Parameter:
    """Return the option of a field; None unless given, but for one without a default."""
    flag = [f"--{name.replace('_', '-')}"] if kind is bool else []
    kind = str if name == "lr" or typing.get_origin(kind) is tuple else kind
    option = typer.Option(*flag, help=text)
    if needed:
        return inspect.Parameter(name, KEYWORD, annotation=Annotated[kind, option])
    return inspect.Parameter(name, KEYWORD, default=None, annotation=Annotated[kind | None, option])


def _read(name: str, kind: Any, value: Any) -> Any:
    """Return what was given as the field takes it."""
    if name == "lr":
        return None if value == "auto" else number(value, "--lr")
    return names(value) if typing.get_origin(kind) is tuple else value


with_data = with_options("files", DataOptions)
with_settings = functools.partial(with_options, "given", Settings)
