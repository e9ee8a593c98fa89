"""The rings: arrows between modules point inwards only, and the library works without the paper."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from simplexdp import methods

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "simplexdp"
CORE = ("mechanism", "sampling", "noise", "accounting", "linear")
BARE = ("numpy", "scipy", "torch", "dp_accounting", "mpmath", "attr", "attrs")


def modules() -> dict[str, Path]:
    """Return every module of ours below the package, named without it."""
    found = {}
    for path in SOURCES.rglob("*.py"):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported(path: Path) -> Iterator[str]:
    """Yield the absolute names that a module imports, whatever the place of the statement."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relative to itself"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                inner = whole.removeprefix("simplexdp.")
                yield whole if inner in MODULES else str(node.module)


def ring(module: str) -> int:
    """Return 0 for what a privacy reviewer must trust, 2 for the paper, 1 for the library."""
    top = module.partition(".")[0]
    return 0 if top in CORE else 2 if top == "paper" else 1


def ours(path: Path) -> Iterator[str]:
    """Yield what a module imports of the package, named without it."""
    for name in imported(path):
        if name == "simplexdp" or name.startswith("simplexdp."):
            yield name.removeprefix("simplexdp").removeprefix(".")


def test_the_walk_sees_imports_of_all_forms(tmp_path):
    """A test that sees nothing would pass."""
    source = tmp_path / "a.py"
    source.write_text(
        "import simplexdp.paper.grid\nfrom simplexdp.paper import cost\n"
        "from simplexdp import paper\ndef f():\n    from simplexdp.methods.base import Run\n"
    )
    assert sorted(ours(source)) == ["methods.base", "paper", "paper.cost", "paper.grid"]
    assert [ring(m) for m in ("noise", "linear.rule", "methods", "paper.cost")] == [0, 0, 1, 2]


@pytest.mark.parametrize("module", sorted(MODULES))
def test_imports_point_inwards(module):
    outwards = [name for name in ours(MODULES[module]) if name and ring(name) > ring(module)]
    assert outwards == []


def test_nobody_but_the_methods_and_the_paper_names_a_method():
    names = set(methods.names())
    quoted = {
        module
        for module, path in MODULES.items()
        if ring(module) < 2 and not module.startswith("methods")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in names
    }
    assert {"certified", "dirichlet", "dpsgd", "gaussian-features", "plain"} <= names
    assert quoted == set()


@pytest.mark.parametrize("module", sorted(m for m in MODULES if ring(m) == 0))
def test_the_core_stands_on_few_libraries(module):
    tops = {name.partition(".")[0] for name in imported(MODULES[module])}
    assert tops - {"simplexdp", *BARE} <= set(sys.stdlib_module_names)


@pytest.mark.parametrize("module", sorted(m for m in MODULES if m.startswith("linear")))
def test_the_linear_core_imports_noise_and_accounting_alone(module):
    tops = {name.partition(".")[0] for name in ours(MODULES[module])}
    assert tops <= {"linear", "noise", "accounting"}


def test_the_library_works_and_passes_its_tests_without_the_paper(tmp_path):
    """A copy without the folder: quick tests of every room, and the command line."""
    shutil.copytree(SOURCES, tmp_path / "simplexdp", ignore=shutil.ignore_patterns("paper"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}

    def done(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    assert str(tmp_path) in done("-c", "import simplexdp; print(simplexdp.__file__)")
    assert "reproduce" not in done("-m", "simplexdp", "--help")
    quick = ["test_sampling", "test_schedule", "test_statement", "methods/test_outside"]
    files = [f"tests/{name}.py" for name in quick]
    assert "100%]" in done("-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *files)
