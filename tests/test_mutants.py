"""The tests have the power that they are named for: broken code turns them red.

A few mutants by chance at every run; `python benchmarks/mutants.py` tries them all.
"""

from __future__ import annotations

import datetime
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
GATE = ROOT / "benchmarks" / "mutants.py"


@pytest.fixture(scope="module")
def gate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", GATE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(GATE), *arguments], capture_output=True, text=True, check=False
    )


def test_every_mutant_is_found_once_and_names_a_test(gate: ModuleType) -> None:
    """Where a source has moved, the line to change in tests/mutants.toml is named."""
    mutants = gate.read()
    assert gate.faults(mutants) == []
    assert len(mutants) == len({(m.file, m.old, m.new, m.test) for m in mutants}) > 200


def test_some_mutants_of_the_day_turn_their_tests_red() -> None:
    done = run("--seconds", "6", "--seed", str(datetime.date.today().toordinal()))
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_survives_and_what_is_no_test_are_told(tmp_path: Path) -> None:
    """A change that no test can see, and one that breaks the import: neither counts as killed."""
    given = tmp_path / "list.toml"
    given.write_text(
        """
        [[group]]
        file = "noise.py"
        test = "tests/test_noise.py::test_system_bits_differ"
        swap = [
            ["import mpmath\\n", "import mpmath  # as ever\\n"],
            ["import mpmath\\n", "import mpmaths\\n"],
        ]
        """
    )
    done = run("--list", str(given))
    assert done.returncode == 1
    assert "survived: noise.py: import mpmath" in done.stdout
    assert "not tested (pytest's exit code" in done.stdout
    assert "2 mutants tried" in done.stdout
