"""What the commands share: the application, options and the two forms of output."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import typer

from simplexdp import __version__
from simplexdp.progress import printable

app = typer.Typer(
    help="Train classifiers on private inputs with public labels, and say what is protected.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"simplexdp {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
        ),
    ] = False,
) -> None:
    """Take the options that stand before a command."""


Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Say everything.")]
LargeDelta = Annotated[
    bool, typer.Option("--allow-large-delta", help="Take a δ of 1/records or more.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]


def emit(record: dict[str, Any], as_json: bool, text: str) -> None:
    """Print a result for a script, in ASCII, which any terminal takes, or for a person."""
    print(json.dumps(record, allow_nan=False) if as_json else printable(text))


def names(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated list; `none` is the empty list."""
    return tuple(name for name in text.split(",") if name and name != "none")


def number(text: str, option: str) -> float:
    """Return a number, or refuse text with an error that names the option."""
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(f"{option} is {text!r}; give a number or auto") from error


def _finite(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text  # JSON has no infinity


def pair(text: str) -> tuple[str, Any]:
    """Return name and value of name=value, with the value read as JSON where it is JSON."""
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"--option {text!r} is not of the form name=value")
    try:
        return name, json.loads(value, parse_float=_finite, parse_constant=str)
    except json.JSONDecodeError:
        return name, value
    except (ValueError, RecursionError):  # JSON, but of too many digits or too deep
        raise ValueError(f"the value of --option {name} is too long; give a usual one") from None
