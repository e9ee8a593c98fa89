"""A ledger against a model of it: writers, kills, replaced files and budgets in any order."""

from __future__ import annotations

import contextlib
import io
import math
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from scipy.optimize import brentq
from scipy.special import log_ndtr

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faults"))
from disk import AFTER, BEFORE, INSIDE, KILLED, Disk

from simplexdp.accounting import events
from simplexdp.ledger import BudgetExceeded, Ledger

DELTA = 1e-5
RUNS = st.sampled_from("abcdefgh")
NOISE = st.sampled_from([2.0, 4.0, 8.0, 16.0])
OPERATIONS = 30  # of a reservation that makes the ledger's file, and more


def spent(noises: list[float]) -> float:
    """Return ε of Gaussian releases, by the curve of Balle and Wang (2018)."""
    mu = math.sqrt(sum(1 / noise**2 for noise in noises))
    if not mu:
        return 0.0

    def excess(epsilon: float) -> float:
        lost = log_ndtr(-epsilon / mu - mu / 2) + epsilon
        return float(math.exp(log_ndtr(-epsilon / mu + mu / 2)) - math.exp(lost)) - DELTA

    return 0.0 if excess(0.0) <= 0 else float(brentq(excess, 0.0, 200.0, xtol=1e-12))


class Book(RuleBasedStateMachine):
    """The model is the noise of every run that is counted, and the budget."""

    @initialize()
    def begin(self) -> None:
        self.home = Path(tempfile.mkdtemp(dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
        (self.home / "disk").mkdir()
        self.path = self.home / "disk" / "ledger.jsonl"
        self.writers = [Ledger(self.path), Ledger(self.path)]
        self.counted: dict[tuple[str, float], float] = {}
        self.budget: float | None = None
        self.kept = b""

    def fits(self, run: str, noise: float) -> bool | None:
        """Return whether a run is to be taken; None within a rounding of the budget."""
        if self.budget is None or (run, noise) in self.counted:
            return True
        share = spent([*self.counted.values(), noise]) / self.budget
        return None if abs(share - 1) < 1e-6 else share < 1

    def reserve(self, writer: Ledger, run: str, noise: float) -> bool:
        """Reserve, and return whether it was taken."""
        with contextlib.redirect_stderr(io.StringIO()):
            try:
                writer.reserve("d", "m", events.gaussian(noise), run, "weights", run_id=run)
            except BudgetExceeded:
                return False
        return True

    def forked(self, run: str, noise: float, disk: Disk) -> int:
        """Reserve in a process of its own, under a disk; return its id."""
        child = os.fork()
        if child == 0:
            code = 99
            try:
                with disk.mounted():
                    code = 0 if self.reserve(Ledger(self.path), run, noise) else 1
            finally:
                os._exit(code)
        return child

    @rule(writer=st.integers(0, 1), run=RUNS, noise=NOISE)
    def writes(self, writer: int, run: str, noise: float) -> None:
        expected = self.fits(run, noise)
        taken = self.reserve(self.writers[writer], run, noise)
        assert expected is None or taken is expected
        if taken:
            self.counted[run, noise] = noise

    @rule(run=RUNS, noise=NOISE)
    def two_write_at_once(self, run: str, noise: float) -> None:
        asked = [(run, noise), (f"{run}'", 2 * noise)]
        children = [self.forked(*one, Disk(self.home / "disk")) for one in asked]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert set(codes) <= {0, 1}
        taken = [one for one, code in zip(asked, codes, strict=True) if code == 0]
        for one in taken:
            self.counted[one] = one[1]
        for one, code in zip(asked, codes, strict=True):  # refused beside what is counted now
            assert code == 0 or self.fits(*one) is not True

    @rule(
        run=RUNS,
        noise=NOISE,
        at=st.integers(0, OPERATIONS),
        phase=st.sampled_from([BEFORE, INSIDE, AFTER]),
        power=st.booleans(),
    )
    def is_killed(self, run: str, noise: float, at: int, phase: str, power: bool) -> None:
        expected = self.fits(run, noise)
        disk = Disk(self.home / "disk", at=at, phase=phase, power=power)
        child = self.forked(run, noise, disk)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 1, KILLED)
        there = run in {entry.run for entry in Ledger(self.path).entries("d")} and any(
            entry.run == run and entry.event == events.gaussian(noise)
            for entry in Ledger(self.path).entries("d")
        )
        assert there or code != 0  # what was acknowledged is never lost
        if there:
            assert expected is not False
            self.counted[run, noise] = noise

    @rule(share=st.floats(0.5, 4.0))
    def has_a_budget(self, share: float) -> None:
        self.budget = share * max(0.1, spent(list(self.counted.values())))
        self.writers[0].set_budget("d", self.budget, DELTA)

    @precondition(lambda self: self.path.exists())
    @rule()
    def is_replaced_by_its_copy(self) -> None:
        shutil.copy2(self.path, self.home / "copy")
        os.replace(self.home / "copy", self.path)

    @precondition(lambda self: self.path.exists())
    @rule()
    def is_copied(self) -> None:
        self.kept = self.path.read_bytes()

    @precondition(lambda self: self.kept and self.kept != self.path.read_bytes())
    @rule()
    def is_put_back_to_an_older_copy(self) -> None:
        now = self.path.read_bytes()
        self.path.write_bytes(self.kept)
        with pytest.raises(ValueError, match="verify --accept"):
            Ledger(self.path).verify()
        with pytest.raises(ValueError, match="verify --accept"):
            self.writers[0].reserve("d", "m", events.gaussian(100.0), "late", "weights")
        self.path.write_bytes(now)

    @invariant()
    def all_agree(self) -> None:
        if not self.path.exists():
            assert not self.counted
            return
        for writer in self.writers:
            there = sorted((entry.run, entry.id) for entry in writer.entries("d"))
            assert [run for run, _ in there] == sorted(run for run, _ in self.counted)
            assert len({one for _, one in there}) == len(there)
            total = writer.spent("d", DELTA).together
            assert total == pytest.approx(spent(list(self.counted.values())), rel=1e-6, abs=1e-9)
            budget = writer.budget("d")
            assert (budget and budget[0]) == (self.budget or None)

    def teardown(self) -> None:
        if hasattr(self, "home"):
            shutil.rmtree(self.home, ignore_errors=True)


TestBook = pytest.mark.skipif(sys.platform != "linux", reason="/proc is read")(Book.TestCase)
TestBook.settings = settings(
    max_examples=8,
    stateful_step_count=15,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
