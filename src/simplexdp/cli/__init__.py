"""A thin shell over the library: `simplexdp COMMAND`.

Standard output carries the result (with --json, one JSON object and nothing else); progress and
warnings go to standard error.  Exit code 0, or 2 with one line that says what is wrong.
"""

from __future__ import annotations

import io
import sys
import tempfile
import traceback
from typing import Any

import typer

from simplexdp import files, plugins
from simplexdp.cli import (  # each registers its commands
    audit,
    budget,
    compare,
    data,
    train,
)
from simplexdp.cli.shell import app

__all__ = ["app", "audit", "budget", "compare", "data", "main", "train"]

# Typer carries its own copy of click in some releases; its exceptions' base is found from here.
CommandLineError: Any = typer.BadParameter.__bases__[0].__bases__[0]

GO_ON = (
    "reproduce goes on when the same command is given again, "
    "and a training that had begun with --resume --out FOLDER"
)
FULL = f"the disk is full; make room first; {GO_ON}"
INTERRUPTED = 130  # what typer makes of Ctrl-C


def main() -> None:
    """Run a command: every failure is one line on standard error and exit code 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a result is not lost for an ε it cannot show
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        for name in plugins.names("simplexdp.commands"):
            plugins.load("simplexdp.commands", name)
        code = app(standalone_mode=False)
    except typer.Exit as stop:
        code = stop.exit_code
    except CommandLineError as error:
        code = _help(error) or _fail(error.format_message())
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except (ValueError, OSError) as error:
        code = _fail(FULL if files.is_disk_full(error) else _said(error))
    except ArithmeticError:
        code = _fail("a number is too large or too small to compute with; give a usual one")
    except Exception as error:
        code = _fail(_kept(error))
    if code == INTERRUPTED:
        code = _fail(f"interrupted; {GO_ON}")
    sys.exit(code or 0)


def _said(error: Exception) -> str:
    """Return our own error as it is, and the system's with its path and what to do."""
    if not isinstance(error, OSError) or error.strerror is None or error.filename is None:
        return str(error)
    return f"{error.filename}: {error.strerror}; give another path, or mend this one"


def _kept(error: Exception) -> str:
    """Write a traceback, with the code's lines and no values of variables, for its owner alone."""
    what = f"unexpected {type(error).__name__}, a fault of this program"
    try:
        handle, path = tempfile.mkstemp(prefix="simplexdp-error-", suffix=".txt")  # mode 0600
        with open(handle, "w", encoding="utf-8") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return f"{what}; there is no room to write down where it came from"
    return (
        f"{what}; {path} tells where: read it before you pass it on, its last line may quote data"
    )


def _help(error: Any) -> int:
    """Print help where no command was given, and return exit code 2; else return 0."""
    if type(error).__name__ != "NoArgsIsHelpError":
        return 0
    print(error.format_message(), file=sys.stderr)
    return 2


def _fail(message: str) -> int:
    print("simplexdp: " + " ".join(message.split()), file=sys.stderr)
    return 2
