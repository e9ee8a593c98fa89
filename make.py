#!/usr/bin/env python3
"""Set up a virtual environment and do one job in it: `python3 make.py train` or `… test`.

Needs Python 3.11 or later with its venv module; it installs the rest into .venv, once.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE / ".venv"
BIN = ENVIRONMENT / "bin"
SOURCES = (HERE / "pyproject.toml", HERE / "constraints.txt")


def run(*command: str) -> None:
    code = subprocess.call(command, cwd=HERE)
    if code:
        sys.exit(code)


def set_up(extras: str = "") -> None:
    """Install the package, unless exactly this was installed before."""
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest() + extras
    stamp = ENVIRONMENT / f"installed{extras}"
    if stamp.exists() and stamp.read_text() == wanted:
        return
    if not (BIN / "pip").exists():
        venv.create(ENVIRONMENT, with_pip=True)
    pip = (str(BIN / "python"), "-m", "pip", "--disable-pip-version-check")
    # torch first and alone, at its pinned version: see the note in constraints.txt.
    run(*pip, "install", "--quiet", "-c", "constraints.txt", "torch==2.13.0", "setuptools")
    run(*pip, "install", "--quiet", "-c", "constraints.txt", "-e", f".{extras}")
    stamp.write_text(wanted)


def train(*arguments: str) -> None:
    """The main job: Algorithm 1 on the built-in digits, or whatever the arguments say."""
    set_up()
    run(str(BIN / "simplexdp"), "train", *arguments)


def test(*arguments: str) -> None:
    """Style, types and tests."""
    set_up("[dev]")
    run(str(BIN / "ruff"), "check", ".")
    run(str(BIN / "ruff"), "format", "--check", ".")
    run(str(BIN / "mypy"))
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests run in two processes
    run(str(BIN / "pytest"), "-n", "2", *arguments)


JOBS = {"train": train, "test": test}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in JOBS:
        sys.exit(f"usage: python3 make.py {{{','.join(JOBS)}}} [arguments]")
    JOBS[sys.argv[1]](*sys.argv[2:])
