"""What a ledger promises of its file: flushed, alone, and never above the budget."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock, Timeout

from simplexdp.accounting import events
from simplexdp.accounting.gaussian import gaussian_epsilon
from simplexdp.ledger import BudgetExceeded, Ledger


def test_a_reservation_is_on_disk_and_no_one_else_writes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the flush the line is whole in the ledger's own file, and its lock is held."""
    path = tmp_path / "ledger.jsonl"
    real, flushed = os.fsync, []

    def fsync(descriptor: int) -> None:
        there = os.fstat(descriptor)
        if path.exists() and os.path.samestat(there, path.stat()):
            flushed.append(path.read_text())
            with pytest.raises(Timeout):
                FileLock(f"{path}.lock", blocking=False).acquire()
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    book = Ledger(path)
    for run in ("first", "second"):
        book.reserve("d", "m", events.gaussian(9.0), run, "weights")
        assert run in flushed[-1]
        assert flushed[-1].endswith("}\n")
    FileLock(f"{path}.lock", blocking=False).acquire().lock.release()


@pytest.mark.parametrize("runs", [1, 3])
def test_a_budget_holds_to_a_millionth(tmp_path: Path, runs: int) -> None:
    """By the closed form of runs·μ²: what fits by a millionth is taken, what does not is not."""
    sigma, delta = 4.0, 1e-5
    exact = gaussian_epsilon(runs**0.5 / sigma, delta)
    for budget, fits in ((exact * (1 + 1e-6), True), (exact * (1 - 1e-6), False)):
        book = Ledger(tmp_path / f"{fits}.jsonl")
        book.set_budget("d", budget, delta)
        for run in range(runs - 1):
            book.reserve("d", "m", events.gaussian(sigma), str(run), "weights")
        last: Any = ("d", "m", events.gaussian(sigma), "last", "weights")
        if fits:
            book.reserve(*last)
        else:
            with pytest.raises(BudgetExceeded):
                book.reserve(*last)
            with pytest.raises(BudgetExceeded):
                book.check("d", [events.gaussian(sigma)])
        assert len(book.entries()) == runs - 1 + fits


def test_the_lock_is_one_that_a_killed_writer_gives_back(tmp_path: Path) -> None:
    """A lock of the system's on a plain file, and no file that would stay locked for ever."""
    path = tmp_path / "ledger.jsonl"
    Path(f"{path}.lock").write_text("left by a killed writer")
    Ledger(path).reserve("d", "m", events.gaussian(9.0), "a", "weights")
    assert stat.S_ISREG(Path(f"{path}.lock").stat().st_mode)
    assert len(Ledger(path).entries()) == 1
