"""What the tests share: a small data set, a kill, and a way to call the command line."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from simplexdp import data

torch.set_num_threads(1)
# Features are computed by the code as it is; only the tests of the real sets look into the cache
# of the person who runs them.
os.environ.setdefault("SIMPLEXDP_REAL_CACHE", os.environ.get("SIMPLEXDP_CACHE", ""))
os.environ["SIMPLEXDP_CACHE"] = tempfile.mkdtemp()
# No test writes into the ledger of the person who runs it.
os.environ["SIMPLEXDP_LEDGER"] = str(Path(tempfile.mkdtemp()) / "ledger.jsonl")


@pytest.fixture
def blobs() -> data.Dataset:
    """Three well separated Gaussian blobs, 300 training records of 5 numbers each."""
    rng = np.random.default_rng(0)
    centres = 2.0 * rng.normal(size=(3, 5))

    def split(records: int) -> data.Split:
        labels = np.arange(records) % 3
        inputs = centres[labels] + rng.normal(size=(records, 5))
        return data.Split(inputs.astype(np.float32), labels.astype(np.int64))

    return data.Dataset("blobs", split(300), split(150), None, ("a", "b", "c"))


class Kill(Exception):
    """Stands in for a kill in the middle of a run."""


@pytest.fixture
def killed() -> Callable[..., contextlib.AbstractContextManager[None]]:
    """`with killed(owner, name):` is a block that must die in a call of owner.name.

    It dies in the first call whose arguments `when` accepts, before its work or `after` it; what
    follows the block finds everything as it was.
    """

    @contextlib.contextmanager
    def block(
        owner: Any, name: str, when: Callable[..., bool] = lambda *_: True, after: bool = False
    ) -> Iterator[None]:
        original = getattr(owner, name)

        def call(*arguments: Any, **named: Any) -> Any:
            if not when(*arguments):
                return original(*arguments, **named)
            if after:
                original(*arguments, **named)
            raise Kill

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, call)
            with pytest.raises(Kill):
                yield

    return block


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `simplexdp …` in a process and a folder of its own."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "simplexdp", *arguments],
            cwd=tmp_path,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "SIMPLEXDP_LEDGER": str(tmp_path / "ledger.jsonl"),
            },
            capture_output=True,
            text=True,
            check=False,
        )

    return call


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `simplexdp …` in a folder of its own, in this process, which has imported everything."""
    from simplexdp import cli

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        print(message, file=sys.stderr)

    def call(*arguments: str, encoding: str = "utf-8") -> subprocess.CompletedProcess[str]:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding, newline="") for _ in range(2))
        code: Any = None
        with (
            monkeypatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            warnings.catch_warnings(),
        ):
            patch.chdir(tmp_path)
            patch.setenv("SIMPLEXDP_LEDGER", str(tmp_path / "ledger.jsonl"))
            patch.setattr(sys, "argv", ["simplexdp", *arguments])
            patch.setattr(cli.signals, "install", lambda _: None)  # pytest has its own
            patch.setattr(warnings, "showwarning", show)  # on standard error, as in a process
            warnings.simplefilter("default", UserWarning)
            try:
                cli.main()
            except SystemExit as stop:
                code = stop.code
        torch.set_num_threads(1)  # a command may have asked for more
        for stream in (out, err):
            stream.flush()
        written = [stream.buffer.getvalue().decode(encoding) for stream in (out, err)]
        return subprocess.CompletedProcess(arguments, code, *written)

    return call


@pytest.fixture
def succeed(command: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """Run `simplexdp … --json`, which must succeed, and return what it prints."""

    def call(*arguments: str) -> dict[str, Any]:
        done = command(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        record: dict[str, Any] = json.loads(done.stdout)
        return record

    return call


@pytest.fixture
def fail(command: Callable[..., Any]) -> Callable[..., str]:
    """Run `simplexdp …`, which must fail with exit code 2 and one line; returns the line."""

    def call(*arguments: str) -> str:
        done = command(*arguments)
        assert done.returncode == 2, done.stderr
        lines = done.stderr.strip().splitlines()
        assert len(lines) == 1, done.stderr
        assert done.stdout == ""
        return lines[0]

    return call
