#!/usr/bin/env python3
"""Measure the sources before and after the redesign of 0.2.0.

`python benchmarks/redesign.py` writes results/benchmarks/redesign.json: lines by ring, modules that
name a method of others, modules loaded, and what three commands go through, of this tree and of the
commit before, which is measured once. `--suite` runs the whole test suite of both too (minutes);
without it what was measured before is kept.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import tokenize
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "results" / "benchmarks" / "redesign.json"
BEFORE = "5bbd1ad"
NAMES = {"certified", "dpsgd", "dirichlet", "gaussian-features", "plain"}
HEAVY = {"torch", "matplotlib", "sklearn", "pyarrow", "pooch", "opacus", "dp_accounting"}
CORE = ("mechanism", "sampling", "noise", "accounting", "linear")
OLD_CORE = {
    f"methods/{n}" for n in ("exact_sums", "noisy_gd", "whitening", "linear", "linear_rule")
}
OLD_PAPER = {f"models/{n}" for n in ("dpnas", "inception", "tanh_cnn", "wrn")}
LIGHT = {
    "simplexdp --help": ["-m", "simplexdp", "--help"],
    "simplexdp account": [*("-m", "simplexdp", "account", "--r", "0.2"),
                          *("--sample-rate", "0.01", "--steps", "9")],
    "import simplexdp.linear": ["-c", "import simplexdp.linear"],
}  # fmt: skip
TRACED = {
    "train": "train --steps 20 --batch-size 8 --seed 0 --out {0}/a --ledger {0}/l --quiet",
    "certified": "train --method certified --seed 0 --out {0}/b --ledger {0}/l --quiet",
    "reproduce": "reproduce digits --only plain --steps 20 --results {0}/r --runs {0}/s --quiet",
}
TRACER = """
import runpy, sys, threading
root, calls, files, changes, last = sys.argv[1], 0, set(), 0, None
def see(frame, event, _):
    global calls, changes, last
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(root):
        calls, changes, last = calls + 1, changes + (name != last), name
        files.add(name)
sys.argv = ["simplexdp", *sys.argv[2:]]
threading.setprofile(see)
sys.setprofile(see)
try:
    runpy.run_module("simplexdp", run_name="__main__")
except SystemExit as stop:
    assert not stop.code, stop
finally:
    sys.setprofile(None)
    print("\\n", len(files), calls, changes)
"""


def ring(name: str) -> str:
    """Return the ring of a module, of this tree or of the one before."""
    top = name.partition("/")[0]
    if top in CORE or name in OLD_CORE:
        return "core"
    return "paper" if top in ("paper", "experiments", "report") or name in OLD_PAPER else "library"


def lines(path: Path) -> tuple[int, int]:
    """Return all lines, and those of code: no docstrings, comments or blanks."""
    text = path.read_text("utf-8")
    kept: set[int] = set()
    passed = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (*passed, tokenize.ENDMARKER):
            kept.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            said = node.body[0] if node.body else None
            if isinstance(said, ast.Expr) and isinstance(said.value, ast.Constant):
                kept -= set(range(said.lineno, (said.end_lineno or 0) + 1))
    return text.count("\n"), len(kept)


def names_a_method(path: Path) -> bool:
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return any(isinstance(node, ast.Constant) and node.value in NAMES for node in nodes)


def python(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True
    )


def measured(tree: Path) -> dict[str, Any]:
    """Return everything about the sources of a tree."""
    sources = tree / "src" / "simplexdp"
    modules = {p.relative_to(sources).with_suffix("").as_posix(): p for p in sources.rglob("*.py")}
    rings = {r: {"modules": 0, "lines": 0, "code": 0} for r in ("core", "library", "paper")}
    for name, path in modules.items():
        whole, code = lines(path)
        of = rings[ring(name)]
        of |= {
            "modules": of["modules"] + 1,
            "lines": of["lines"] + whole,
            "code": of["code"] + code,
        }
    foreign = [
        name
        for name, path in modules.items()
        if not name.startswith("methods/") and ring(name) != "paper" and names_a_method(path)
    ]
    loaded = {}
    for what, arguments in LIGHT.items():
        done = python(tree, "-X", "importtime", *arguments)
        tops = {ln.split("|")[-1].strip().partition(".")[0] for ln in done.stderr.splitlines()}
        loaded[what] = None if done.returncode else sorted(tops & HEAVY)  # None: there is no such
    traces = {}
    with tempfile.TemporaryDirectory() as folder:
        for what, command in TRACED.items():
            asked = command.format(folder).split()
            done = python(tree, "-c", TRACER, str(sources), *asked)
            if done.returncode:
                sys.exit(f"{what}: {done.stderr}")
            found = map(int, done.stdout.splitlines()[-1].split())
            traces[what] = dict(zip(("files", "calls", "changes of file"), found, strict=True))
    total = {key: sum(of[key] for of in rings.values()) for key in ("modules", "lines", "code")}
    return {
        "rings": {**rings, "all": total},
        "modules that name a method of others": sorted(foreign),
        "heavy libraries loaded": loaded,
        "traces": traces,
    }


def suite(tree: Path) -> dict[str, Any]:
    """Run the tests of a tree in two processes."""
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = python(tree, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "said": (done.stdout.strip().splitlines() or [done.stderr])[-1],
        "processor_seconds": round(used),
        "seconds": round(time.monotonic() - began),
    }


def main() -> None:
    """Measure both trees and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", action="store_true")
    asked = parser.parse_args()
    from simplexdp import files, runs

    kept = json.loads(OUT.read_text()) if OUT.exists() else {}
    found: dict[str, Any] = {"before": kept.get("before"), "suite": kept.get("suite")}
    if asked.suite or not found["before"] or kept.get("commit before") != BEFORE:
        with tempfile.TemporaryDirectory() as folder:
            old = Path(folder) / "before"
            git = ["git", "-C", str(ROOT), "worktree"]
            add = [*git, "add", "--detach", str(old), BEFORE]
            subprocess.run(add, check=True, capture_output=True)
            try:
                found["before"] = measured(old)
                if asked.suite:
                    found["suite"] = {"before": suite(old), "after": suite(ROOT)}
            finally:
                subprocess.run([*git, "remove", "--force", str(old)], check=True)
    found["after"] = measured(ROOT)
    found["files to touch"] = {
        "a new method": ["a file of your own (tests/methods/test_outside.py)"],
        "a new mechanism on the simplex": [
            "mechanism.py (draw and loss)",
            "accounting/events.py (the event of a draw)",
            "accounting/simplex_accountant.py (its composition)",
            "accounting/totals.py (what its totals rest on)",
            "methods/NAME.py (training and coverage)",
        ],
    }
    found["commit before"] = BEFORE
    files.write_json(OUT, {**found, "machine": runs.machine()})


if __name__ == "__main__":
    main()
