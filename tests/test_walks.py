"""The walks of three people with the installed wheel, in short."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simplexdp import data

PATH = Path(__file__).parent.parent / "benchmarks/walks.py"
Typed = Callable[..., tuple[str, str]]


@pytest.fixture(scope="module")
def walks() -> Any:
    spec = importlib.util.spec_from_file_location("benchmark_walks", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def typist(walks: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A process of a fresh environment that has the wheel, and takes commands."""
    room = tmp_path_factory.mktemp("room")
    programs = walks.environment(room)
    process = subprocess.Popen(
        [programs / "python", "-c", walks.TYPIST],
        cwd=room,
        env={**walks._surroundings(), "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def call(folder: Path, *words: str) -> list[Any]:
        process.stdin.write(json.dumps([str(folder), words]) + "\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        return list(json.loads(process.stdout.readline()))  # type: ignore[union-attr]

    yield call
    process.stdin.close()
    process.wait()


def test_the_package_is_that_of_the_wheel(typist: Any, tmp_path: Path) -> None:
    (tmp_path / "where.py").write_text("import simplexdp; print(simplexdp.__file__)")
    code, out, _ = typist(tmp_path, "python", "where.py")
    assert code == 0
    assert "venv" in Path(out.strip()).parts
    assert (Path(out.strip()).parents[4] / "bin/simplexdp").exists()


@pytest.mark.parametrize(
    ("name", "records", "commands"),
    [
        ("table", 569, 4),
        ("slices", 40, 4),
        ("digits", 300, 4),
        ("researcher", 300, 2),
        ("officer", 569, 1),
    ],
)
def test_a_walk(
    walks: Any,
    typist: Any,
    name: str,
    records: int,
    commands: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if name == "slices":
        pytest.importorskip("pydicom")
    if name in ("digits", "researcher"):
        monkeypatch.setenv("SIMPLEXDP_CACHE", os.environ["SIMPLEXDP_REAL_CACHE"])
        if not os.environ["SIMPLEXDP_CACHE"]:
            monkeypatch.delenv("SIMPLEXDP_CACHE")
        if not data.present("mnist"):
            pytest.skip("mnist is not in the cache")

    def typed(*words: str) -> tuple[str, str]:
        code, out, err = typist(tmp_path, *words)
        assert code == 0, err
        return out, err

    row = walks.measure(name, tmp_path, typed, records)
    print(walks.told(row))
    assert len(row["commands"]) == commands
    assert row["words"] < (600 if name == "officer" else 250)
    if name == "officer":
        assert "covers the released weights" in (tmp_path / "given/statement.md").read_text()
    else:
        assert 0.0 <= row["accuracy_on_new"] <= 1.0
    if name == "table":
        assert row["accuracy_on_new"] > 0.7  # 63 % are benign
    if name == "researcher":
        assert "my loop" in (tmp_path / "ledger.jsonl").read_text()
