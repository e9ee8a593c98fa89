"""From files of one's own to a released model and back, in four commands each."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simplexdp import data

PATH = Path(__file__).parent.parent / "benchmarks/walks.py"


@pytest.fixture(scope="module")
def walks() -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_walks", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "records"), [("table", 569), ("slices", 40), ("digits", 300)])
def test_a_walk(
    walks: Any, name: str, records: int, tmp_path: Path, command: Callable[..., Any]
) -> None:
    if name == "slices":
        pytest.importorskip("pydicom")
    if name == "digits" and not data.present("mnist"):
        pytest.skip("mnist is not in the cache")

    def typed(*words: str) -> tuple[str, str]:
        done = command(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    row = walks.measure(name, tmp_path, typed, records)
    assert len(row["commands"]) == 4
    assert row["words"] < 250
    assert 0.0 <= row["accuracy_on_new"] <= 1.0
    if name == "table":
        assert row["accuracy_on_new"] > 0.7  # 63 % are benign
