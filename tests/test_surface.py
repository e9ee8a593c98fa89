"""The public surface: what `dir` shows, what loads when, what `help` says, and its types."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import simplexdp
from simplexdp import accounting, linear, mechanism
from simplexdp.ledger import Ledger
from simplexdp.methods.base import Method, Prepared, Run

ROOT = Path(__file__).parent.parent
HEAVY = {"torch", "matplotlib", "sklearn", "pyarrow", "pooch", "opacus", "dp_accounting"}
CLASSES = (
    simplexdp.Plan,
    simplexdp.CertifiedClassifier,
    simplexdp.Settings,
    simplexdp.Statement,
    Ledger,
    Method,
    Prepared,
    Run,
)
FUNCTIONS = (simplexdp.balanced_weights, mechanism.draw)


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )


def loaded(*arguments: str) -> set[str]:
    """Return the packages that a fresh Python imports on the way."""
    said = python("-X", "importtime", *arguments).stderr
    return {line.split("|")[-1].strip().partition(".")[0] for line in said.splitlines()}


def test_dir_shows_the_public_names_and_every_one_is_there():
    assert dir(simplexdp) == sorted(simplexdp.__all__)
    for name in simplexdp.__all__:
        assert getattr(simplexdp, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = simplexdp.nothing


def test_subpackages_load_when_they_are_asked_for():
    code = (
        "import simplexdp, sys; assert 'simplexdp.data' not in sys.modules; "
        "print(simplexdp.data.names()[0], simplexdp.models.names()[0])"
    )
    assert python("-c", code).stdout == "digits cnn\n"


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (("-m", "simplexdp", "--help"), HEAVY),
        (
            (
                *("-m", "simplexdp", "account"),
                *("--r", "0.2", "--sample-rate", "0.01", "--steps", "9"),
            ),
            HEAVY,
        ),
        (("-c", "import simplexdp.linear"), HEAVY - {"torch"}),
        (("-c", "import simplexdp"), {*HEAVY, "numpy", "scipy"}),
    ],
)
def test_what_is_light_stays_light(arguments: tuple[str, ...], unwanted: set[str]):
    found = loaded(*arguments)
    assert "simplexdp" in found
    assert not found & unwanted


def test_the_version_is_that_of_the_package():
    said = python("-m", "simplexdp", "--version").stdout
    assert said == f"simplexdp {metadata.version('simplexdp')}\n"


def public_functions() -> Iterator[Any]:
    """Yield the functions that a caller meets by name, and the methods of public classes."""
    yield from FUNCTIONS
    for package in (accounting, linear):
        for name in package.__all__:
            if inspect.isfunction(getattr(package, name)):
                yield getattr(package, name)
    for one in (simplexdp.Plan, simplexdp.CertifiedClassifier):
        for name, member in vars(one).items():
            if inspect.isfunction(member) and not name.startswith("_"):
                yield member


@pytest.mark.parametrize("one", [c for c in CLASSES if c is not Method], ids=lambda c: c.__name__)
def test_help_names_every_argument_of_a_public_class(one: type):
    said = inspect.getdoc(one) or ""
    for name in inspect.signature(one).parameters:
        assert re.search(rf"^    {name}( \(.+\))?: ", said, re.M), name


@pytest.mark.parametrize("function", list(public_functions()), ids=lambda f: f.__qualname__)
def test_help_names_every_argument_of_a_public_function(function: Any):
    said = inspect.getdoc(function) or ""
    signature = inspect.signature(function)
    for name in signature.parameters:
        if name != "self":
            assert re.search(rf"^    \*{{0,2}}{name}( \(.+\))?: ", said, re.M), name
    if signature.return_annotation not in ("None", None):
        assert re.search(r"^(Returns|Yields):$", said, re.M)


def test_a_plan_and_a_statement_say_what_they_are():
    plan = simplexdp.Plan(1.0, 1e-5, records=1000, batch_size=4, steps=20)
    said = repr(plan)
    assert "ε = 1" in said
    assert "0 of 20 steps" in said
    assert said[1:-1].split(": ", 1)[1] in plan._repr_html_()
    statement = plan.statement()
    assert repr(statement) == f"<Statement: {statement.headline()}>"
    assert statement._repr_html_().startswith("<p><b>ε = ")


@pytest.mark.parametrize("one", CLASSES, ids=lambda c: c.__name__)
def test_help_of_a_public_class_has_its_parts_and_an_example(one: type):
    said = inspect.getdoc(one) or ""
    assert re.search(r"^(Args|Attributes):$", said, re.M)
    assert re.search(r"^Example:\n    >>> ", said, re.M)


def test_every_public_name_has_a_type_from_outside(tmp_path: Path):
    pytest.importorskip("mypy")
    snippet = tmp_path / "outside.py"
    names = [name for name in simplexdp.__all__ if name != "__version__"]
    lines = ["import simplexdp", *(f"reveal_type(simplexdp.{name})" for name in names)]
    snippet.write_text("\n".join(lines) + "\n")
    said = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(snippet)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found = re.findall(r'Revealed type is "(.+)"', said)
    assert len(found) == len(names), said
    assert not [one for one in found if one in ("Any", "builtins.object")]
