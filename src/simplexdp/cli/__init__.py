"""A thin shell over the library: `simplexdp COMMAND`.

Standard output carries the result (with --json, one JSON object and nothing else); progress and
warnings go to standard error.  Exit code 0, or 2 with one line that says what is wrong.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import traceback
from typing import Any

from simplexdp.cli import signals

__all__ = ["commands", "main"]

FULL = "the disk is full; make room first"
INTERRUPTED = "interrupted"
GO_ON = {
    "train": "a training that had begun goes on with --resume --out FOLDER",
    "reproduce": "the same command goes on where it was",
}
AGAIN = "give the command again"
INTERRUPTED_CODE = 130  # what typer makes of Ctrl-C
TOO_LARGE = "a number is too large or too small to compute with; give a usual one"
NO_MEMORY = "there is not enough memory; give a smaller batch, network or data set"


def commands() -> Any:
    """Return the application with all commands, of this package and of plug-ins."""
    from simplexdp import plugins
    from simplexdp.cli import (  # noqa: F401  # they register
        audit,
        budget,
        bundle,
        compare,
        data,
        predict,
        train,
    )
    from simplexdp.cli.shell import app

    for name in plugins.names("simplexdp.commands"):
        plugins.load("simplexdp.commands", name)
    return app


def main() -> None:
    """Run a command: every failure is one line on standard error and exit code 2."""
    signals.install(_with_advice(INTERRUPTED))
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):  # a result is not lost for an ε it cannot show
            sys.stdout.reconfigure(errors="backslashreplace")
        code = commands()(standalone_mode=False)
        sys.stdout.flush()
        if code == INTERRUPTED_CODE:
            code = _fail(_with_advice(INTERRUPTED))
    except (Exception, KeyboardInterrupt) as error:
        code = _failed(error)
    sys.exit(code or 0)


def _with_advice(what: str) -> str:
    """Return what ended a command, with how to go on after it."""
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    return f"{what}; {GO_ON.get(command, AGAIN)}"


def _failed(error: BaseException) -> int:
    """Say in one line what went wrong, and return the exit code."""
    import typer

    from simplexdp import files

    # Typer carries its own copy of click in some releases; its exceptions' base is found from here.
    mistake: Any = typer.BadParameter.__bases__[0].__bases__[0]
    if isinstance(error, typer.Exit):
        return error.exit_code
    if isinstance(error, mistake):
        return _help(error) or _fail(error.format_message())
    if isinstance(error, typer.Abort | KeyboardInterrupt):
        return _fail(_with_advice(INTERRUPTED))
    if files.is_disk_full(error):
        return _fail(_with_advice(FULL))
    if isinstance(error, OSError) and error.strerror is not None and error.filename is not None:
        return _fail(f"{error.filename}: {error.strerror}; give another path, or mend this one")
    if isinstance(error, ValueError | OSError):
        return _fail(str(error))
    if isinstance(error, ArithmeticError):
        return _fail(TOO_LARGE)
    if isinstance(error, MemoryError):
        return _fail(NO_MEMORY)
    return _fail(
        f"this is a fault of simplexdp ({type(error).__name__}); the whole error is in "
        f"{_kept(error)}, which may hold private values: read it before you report it"
    )


def _kept(error: BaseException) -> str:
    """Write the whole of an unforeseen error where its owner alone may read it."""
    try:
        handle, name = tempfile.mkstemp(prefix="simplexdp-error-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(traceback.format_exception(error))
    except OSError as full:
        return f"no file ({full.strerror})"
    return name


def _help(error: Any) -> int:
    """Print help where no command was given, and return exit code 2; else return 0."""
    if type(error).__name__ != "NoArgsIsHelpError":
        return 0
    print(error.format_message(), file=sys.stderr)
    return 2


def _fail(message: str) -> int:
    """Print one line on standard error; what cannot be printed any more is given up."""
    from simplexdp.progress import warn

    warn(" ".join(message.split()))
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # it would be tried again at the end, with a traceback
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 2
