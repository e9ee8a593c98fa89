#!/usr/bin/env python3
"""Set up a virtual environment and do one job in it: `python3 make.py train`, `… test`, `… docs`.

Needs Python 3.11 or later with its venv module; it installs the rest into .venv, once.  `python3
make.py cpu`, given first, takes PyTorch's build for processors, without the CUDA libraries.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
ENVIRONMENT = HERE / ".venv"
BIN = ENVIRONMENT / "bin"
SOURCES = (HERE / "pyproject.toml", HERE / "constraints.txt")
TORCH = "torch==2.13.0"
APART = {"dev", "timm", "cluster"}  # tools, what needs its own torch, and hundreds of megabytes
SMOKE = ("tests/test_card.py", "tests/test_predict.py", "tests/test_charts.py",
         "tests/test_export.py", "tests/data/test_medical.py", "tests/data/test_images.py",
         "tests/methods/test_dpsgd_plan.py")  # fmt: skip


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
    # torch first and alone, at its pinned version: see the note in constraints.txt.
    pip("-c", "constraints.txt", TORCH, "setuptools")
    pip("-c", "constraints.txt", "-e", f".{extras}")
    stamp.write_text(wanted)


def pip(*packages: str) -> None:
    """Install into the environment, which is made if need be."""
    if not (BIN / "pip").exists():
        venv.create(ENVIRONMENT, with_pip=True)
    python = str(BIN / "python")
    run(python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *packages)


def cpu() -> None:
    """PyTorch's build for processors, which uv finds by itself; later jobs keep it."""
    pip("uv")
    python = ("--python", str(BIN / "python"))
    run(str(BIN / "uv"), "pip", "install", *python, "--torch-backend", "cpu", TORCH)


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
    site()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the tests run in two processes
    run(str(BIN / "pytest"), "-n", "2", *arguments)


def gate(*arguments: str) -> None:
    """Every mutant of tests/mutants.toml against the test that is named for it."""
    set_up("[dev]")
    run(str(BIN / "python"), "benchmarks/mutants.py", *arguments)


def docs() -> None:
    """The documentation as a site in build/site; a broken link is an error."""
    set_up("[dev]")
    site()
    print("build/site/index.html")


def wheel() -> None:
    """Wheel and source archive in dist/, the wheel tried in an environment of its own."""
    set_up()
    pip("build")
    run(str(BIN / "python"), "-m", "build", "--quiet")
    (made,) = sorted((HERE / "dist").glob("*.whl"))[-1:]
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / "bin" / "python")
        install = (python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
        run(*install, "-c", "constraints.txt", TORCH)
        run(*install, "-c", "constraints.txt", str(made))
        run(python, "-m", "simplexdp", "train", "--steps", "5", "--quiet", "--out", f"{folder}/run")
    print(made)


def lowest() -> None:
    """The lowest versions that pyproject.toml allows, beside this torch, on some of the tests."""
    set_up("[dev]")
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = list(project["dependencies"])
    for name in extras.keys() - APART:
        asked += extras[name]
    pins = [line.split(",")[0].replace(">=", "==") for line in asked if "torch" not in line]
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=False)
        low = str(Path(folder) / "bin" / "python")
        (here,), (there,) = (Path(e).glob("lib/*/site-packages") for e in (ENVIRONMENT, folder))
        (there / "borrowed.pth").write_text(f"{here}\n")  # torch, pytest, and what those need
        python = str(BIN / "python")
        run(python, "-m", "pip", "--python", low, "install", "--quiet", "--no-deps", *pins)
        os.environ["PYTHONPATH"] = "src"
        run(low, "-m", "pytest", *SMOKE)


def site() -> None:
    os.environ["NO_MKDOCS_2_WARNING"] = "1"
    run(str(BIN / "mkdocs"), "build", "--quiet")


JOBS = {
    "train": train,
    "test": test,
    "gate": gate,
    "docs": docs,
    "wheel": wheel,
    "lowest": lowest,
    "cpu": cpu,
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in JOBS:
        sys.exit(f"usage: python3 make.py {{{','.join(JOBS)}}} [arguments]")
    JOBS[sys.argv[1]](*sys.argv[2:])
