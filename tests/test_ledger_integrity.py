"""The ledger cannot be talked around: changes, losses, other names, replaced files, policies."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from simplexdp import CertifiedClassifier, files, journal
from simplexdp.accounting import events
from simplexdp.accounting.gaussian import calibrate_mu, gaussian_epsilon
from simplexdp.ledger import BudgetExceeded, Ledger, NotCovered

FIT = events.gaussian(9.0)


@pytest.fixture
def book(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "deep" / "ledger.jsonl")


def beside(book: Ledger, ending: str) -> Path:
    return book.path.with_name(book.path.name + ending)


def three(book: Ledger, runs: str = "ab") -> bytes:
    book.set_budget("d", 5.0, 1e-5)
    for run in runs:
        book.reserve("d", "m", FIT, run, "weights")
    return book.path.read_bytes()


def test_every_changed_byte_of_the_ledger_is_noticed(book: Ledger) -> None:
    whole = three(book, "a")
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1 << (position % 7)
        book.path.write_bytes(changed)
        with pytest.raises(ValueError, match=re.escape(str(book.path))):
            journal.read(book.path)


def test_every_changed_byte_of_the_head_is_noticed(book: Ledger) -> None:
    three(book, "a")
    head = beside(book, ".head")
    whole = head.read_bytes()
    for position in range(len(whole) - 1):  # its last newline says nothing
        changed = bytearray(whole)
        changed[position] ^= 1 << (position % 7)
        head.write_bytes(changed)
        with pytest.raises(ValueError, match=re.escape(str(head))):
            journal.read(book.path)


def test_lines_that_are_missing_swapped_or_twice_are_noticed(book: Ledger) -> None:
    whole = three(book)
    lines = whole.splitlines(keepends=True)
    for cut in range(0, len(whole) - 1, 7):
        book.path.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=re.escape(str(book.path))):
            journal.read(book.path)
    for changed in (
        lines[1:],
        lines[:1] + lines[2:],
        [lines[0], *lines[:0:-1]],
        [*lines, lines[2]],
    ):
        book.path.write_bytes(b"".join(changed))
        with pytest.raises(ValueError, match=re.escape(str(book.path))):
            journal.read(book.path)
    book.path.unlink()
    with pytest.raises(ValueError, match="of its 3 lines the last were changed or are missing"):
        book.reserve("d", "m", FIT, "c", "weights")
    assert not book.path.exists()


def test_a_head_that_is_gone_is_noticed_and_can_be_accepted(book: Ledger) -> None:
    whole = three(book)
    noted = book.verify().head
    beside(book, ".head").unlink()
    with pytest.raises(ValueError, match=r"\.head is missing, and lines may be too"):
        book.spent("d", 1e-5)
    with pytest.raises(ValueError, match=r"\.head is missing"):
        book.verify()
    accepted = book.verify(accept=True)
    assert accepted.entries == 2
    assert "accepted on" in book.spent("d", 1e-5).notes[0]
    book.reserve("d", "m", FIT, "c", "weights")
    assert book.verify(noted).entries == 3
    # Cut back by an editor who took away the head too, it never had the head that was noted.
    book.path.write_bytes(b"".join(whole.splitlines(keepends=True)[:2]))
    beside(book, ".head").unlink()
    book.verify(accept=True)
    with pytest.raises(ValueError, match="never had the head"):
        book.verify(noted)


def test_an_edit_is_named_by_its_line_and_can_be_accepted(book: Ledger) -> None:
    whole = three(book)
    book.path.write_bytes(whole.replace(b'"run": "a"', b'"run": "z"'))
    with pytest.raises(ValueError, match=r"line 3 of the ledger .* does not follow"):
        book.spent("d", 1e-5)
    with pytest.raises(ValueError, match=r"line 3 of the ledger .* does not follow"):
        book.verify()
    book.verify(accept=True)
    assert [entry.run for entry in book.entries()] == ["z", "b"]
    assert "line 3" in book.spent("d", 1e-5).notes[0]


def test_a_ledger_of_version_0_1_0_is_carried_on_and_sealed(book: Ledger) -> None:
    old = {
        **{"kind": "reserve", "id": "1", "time": 1.0, "data": "d", "method": "m", "run": "a"},
        **{"covers": "weights", "event": {"type": "gaussian", "noise_multiplier": 9.0, "steps": 1}},
    }
    book.path.parent.mkdir()
    book.path.write_text(json.dumps(old) + "\n")
    assert book.spent("d", 1e-5).runs == 1
    book.reserve("d", "m", FIT, "b", "weights")
    expected = gaussian_epsilon(2**0.5 / 9.0, 1e-5)
    assert book.spent("d", 1e-5).weights == pytest.approx(expected, rel=1e-9)
    book.path.write_text(book.path.read_text().replace('"steps": 1', '"steps": 2'))
    with pytest.raises(ValueError, match=r"line 2 .* does not follow"):
        book.spent("d", 1e-5)


def test_modes_and_what_is_flushed_in_which_order(book: Ledger, monkeypatch: Any) -> None:
    flushed: list[str] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    book.reserve("d", "m", FIT, "a", "weights")
    first = [re.sub(r"\.[0-9a-f]{16}$", ".new", name) for name in flushed]
    head = [".ledger.jsonl.head.new", "deep"]  # then its folder, after the rename
    assert first == [book.path.parent.parent.name, *head, "ledger.jsonl", "deep", *head]
    for path in (book.path, beside(book, ".head"), beside(book, ".lock")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(book.path.parent.stat().st_mode) == 0o700


def test_a_waiting_writer_writes_to_the_file_that_is_there(book: Ledger) -> None:
    """It was lost: the file was opened before its lock was held."""
    three(book)
    with FileLock(f"{book.path}.lock"):
        writer = threading.Thread(target=book.reserve, args=("d", "m", FIT, "c", "weights"))
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()  # the lock holds it off
        copy = book.path.with_name("copy")
        shutil.copy(book.path, copy)
        os.replace(copy, book.path)
    writer.join()
    assert [entry.run for entry in book.entries()] == ["a", "b", "c"]


def test_a_ledger_replaced_under_a_writer_acknowledges_nothing(
    book: Ledger, monkeypatch: Any
) -> None:
    whole, sync = three(book), os.fsync

    def replace(descriptor: int) -> None:
        sync(descriptor)
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(book.path):
            files.write_atomically(book.path, whole)

    monkeypatch.setattr(os, "fsync", replace)
    with pytest.raises(ValueError, match="was replaced while a line was written"):
        book.reserve("d", "m", FIT, "c", "weights")
    monkeypatch.undo()
    assert [entry.run for entry in book.entries()] == ["a", "b"]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: b"{}",
        lambda text: b"null",
        lambda text: b"[" * 100_000,
        lambda text: b"\xff\xfe{",
        lambda text: text.replace(b'"tallies": {', b'"tallies": {"x": 3, '),
        lambda text: re.sub(rb'"mu_squared": [0-9.e-]+', b'"mu_squared": "x"', text),
    ],
)
def test_a_head_that_was_written_anew_is_refused_in_a_line(book: Ledger, change: Any) -> None:
    """However well its own digest fits."""
    book.reserve("digits", "m", FIT, "a", "weights")
    head = beside(book, ".head")
    text = change(head.read_bytes().splitlines()[1])
    head.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text + b"\n")
    for call in (lambda: book.spent("digits", 1e-5), book.verify):
        with pytest.raises(ValueError, match=r"ledger\.jsonl\.head is damaged or was edited"):
            call()


def test_a_pipe_or_a_folder_in_the_ledgers_place_is_refused(book: Ledger) -> None:
    """A pipe would block who reserves for ever."""
    book.reserve("digits", "m", FIT, "a", "weights")
    for make in (os.mkfifo, os.mkdir):
        book.path.unlink()
        make(book.path)
        for call in (
            lambda: book.reserve("digits", "m", FIT, "b", "weights"),
            lambda: book.spent("digits", 1e-5),
            book.verify,
        ):
            with pytest.raises(ValueError, match=r"ledger\.jsonl is no regular file"):
                call()


def test_a_refusal_says_what_still_fits(book: Ledger) -> None:
    book.set_budget("d", 1.0, 1e-5)
    for past in ([], [FIT], [events.sampled_gaussian(2.0, 0.01, 50)]):
        for event in past:
            book.reserve("d", "m", event, "a", "weights")
        with pytest.raises(BudgetExceeded, match="still fits") as caught:
            book.reserve("d", "m", events.gaussian(0.5), "b", "weights")
        said = float(re.findall(r"at most epsilon = ([\d.]+) still fits", str(caught.value))[0])
        assert 0.1 < said <= 1.0
        book.check("d", [events.gaussian(1.0 / calibrate_mu(said, 1e-5))])
        with pytest.raises(BudgetExceeded):
            book.check("d", [events.gaussian(1.0 / calibrate_mu(1.03 * said, 1e-5))])


def test_covered_only_refuses_what_nothing_bounds(book: Ledger, succeed: Any, fail: Any) -> None:
    draws = events.dirichlet(0.4, 3.0, 0.01, 5)
    book.set_policy("d", covered_only=True)
    for event, covers, broken in (
        (draws, "draws", ()),
        (events.no_guarantee(), "nothing", ()),
        (FIT, "weights", ("seed",)),
    ):
        with pytest.raises(NotCovered, match="nothing would bound the weights"):
            book.reserve("d", "m", event, "a", covers, broken=broken)
    with pytest.raises(NotCovered):
        book.check("d", [FIT], uncovered=True)
    book.reserve("d", "m", FIT, "a", "weights")
    assert book.spent("d", 1e-5).covered_only
    book.set_policy("d", covered_only=False)
    book.reserve("d", "m", draws, "a", "draws")
    path = ("--path", str(book.path))
    assert succeed("ledger", *path, "--data", "digits", "--covered-only")["data"][0]["covered_only"]
    assert "never had the head" in fail("ledger", *path, "verify", "--head", "abc")


ROWS = np.random.default_rng(0).normal(size=(900, 4)).astype(np.float32)


def test_every_name_of_a_file_counts_on_one_account(
    book: Ledger, tmp_path: Path, capsys: Any
) -> None:
    first = tmp_path / "a.csv"
    first.write_text("1,2\n3,4\n")
    book.set_budget(str(first), 1.0, 1e-5)
    book.reserve(str(first), "m", events.gaussian(6.0), "a", "weights")  # ε = 0.6
    os.link(first, tmp_path / "linked.csv")
    shutil.copy(first, tmp_path / "copy.csv")
    for name in ("linked.csv", "copy.csv"):
        with pytest.raises(BudgetExceeded):
            book.reserve(str(tmp_path / name), "m", events.gaussian(4.0), "b", "weights")
        book.reserve(str(tmp_path / name), "m", events.gaussian(60.0), "b", "weights")
        assert f"counts on one account with {first}" in capsys.readouterr().err
    first.rename(tmp_path / "moved.csv")
    assert not (tmp_path / "a.csv").exists()
    with pytest.raises(BudgetExceeded):
        book.reserve(str(tmp_path / "moved.csv"), "m", events.gaussian(4.0), "b", "weights")
    for name in ("linked.csv", "copy.csv"):
        spent = book.spent(str(tmp_path / name), 1e-5)
        assert (spent.runs, spent.budget) == (3, (1.0, 1e-5))
    # A larger budget on a copy does not lift the one of the original.
    book.set_budget(str(tmp_path / "copy.csv"), 50.0, 1e-5)
    with pytest.raises(BudgetExceeded):
        book.reserve(str(tmp_path / "copy.csv"), "m", events.gaussian(4.0), "b", "weights")
    other = tmp_path / "other.csv"
    other.write_text("5,6\n")
    book.reserve(str(other), "m", events.gaussian(4.0), "c", "weights")
    assert book.spent(str(other), 1e-5).runs == 1


def test_the_same_records_in_another_order_count_on_one_account(book: Ledger, capsys: Any) -> None:
    book.reserve("one", "m", FIT, "a", "weights", records=ROWS)
    book.reserve("two", "m", FIT, "b", "weights", records=ROWS[::-1])
    assert "two counts on one account with one" in capsys.readouterr().err
    assert book.spent("one", 1e-5).runs == book.spent("two", 1e-5).runs == 2
    assert book.spent("one", 1e-5).names == ("one", "two")
    book.reserve("three", "m", FIT, "c", "weights", records=ROWS + 1.0)
    assert book.spent("three", 1e-5).runs == 1
    assert capsys.readouterr().err == ""


def test_an_overlap_of_records_is_warned_of(book: Ledger, capsys: Any) -> None:
    book.reserve("one", "m", FIT, "a", "weights", records=ROWS)
    part = np.concatenate([ROWS[:100], ROWS[:800] + 1.0])
    book.reserve("two", "m", FIT, "b", "weights", records=part)
    assert "records are also in one, which has an account of its own" in capsys.readouterr().err
    spent = book.spent("two", 1e-5)
    assert spent.runs == 1
    assert any("also in one" in caveat for caveat in spent.caveats)


def test_prints_tell_nothing_without_the_secret_and_its_loss_is_noticed(
    book: Ledger, tmp_path: Path
) -> None:
    other = Ledger(tmp_path / "other" / "ledger.jsonl")
    for one in (book, other):
        one.reserve("d", "m", FIT, "a", "weights", records=ROWS)
    found = [json.loads(one.path.read_text().splitlines()[0]) for one in (book, other)]
    assert not set(found[0]["prints"]) & set(found[1]["prints"])
    assert found[0]["sketch"] != found[1]["sketch"]
    key = beside(book, ".key")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    for change in (key.unlink, lambda: key.write_text("00")):
        change()
        with pytest.raises(ValueError, match=r"\.key is not the secret"):
            book.reserve("e", "m", FIT, "b", "weights", records=ROWS)
        with pytest.raises(ValueError, match=r"\.key is not the secret"):
            book.verify()
        book.verify(accept=True)
        book.reserve("e", "m", FIT, "b", "weights", records=ROWS)


def test_a_classifier_enters_its_fits_itself(book: Ledger) -> None:
    X, y = ROWS, (ROWS[:, 0] > 0).astype(int)
    model = CertifiedClassifier(epsilon=0.8, bounds=(-4, 4), ledger=book, data_name="rows")
    book.set_budget("rows", 1.0, 1e-5)
    model.fit(X, y)
    (entry,) = book.entries("rows")
    assert entry.id == model.ledger_entry_
    assert (entry.method, entry.covers, entry.event) == ("certified", "weights", model.event_)
    weights = model.weights_
    with pytest.raises(BudgetExceeded, match="still fits"):
        model.fit(X, y)
    assert model.weights_ is weights
    with pytest.raises(ValueError, match="give data_name too"):
        CertifiedClassifier(ledger=str(book.path)).fit(X, y)


class Writers(RuleBasedStateMachine):
    """Writers, budgets, kills, edits and replaced files, against what was acknowledged."""

    @initialize(folder=st.just(None))
    def begin(self, folder: None) -> None:
        import tempfile

        self.folder = Path(tempfile.mkdtemp())
        self.book = Ledger(self.folder / "ledger.jsonl")
        self.mu_squared = {"x": 0.0, "y": 0.0}
        self.budget: dict[str, float] = {}
        self.runs = 0

    def fits(self, name: str, sigma: float) -> bool:
        if name not in self.budget:
            return True
        mu = (self.mu_squared[name] + sigma**-2) ** 0.5
        return gaussian_epsilon(mu, 1e-5) <= self.budget[name]

    @rule(name=st.sampled_from("xy"), sigma=st.floats(1.0, 30.0))
    def reserve(self, name: str, sigma: float) -> None:
        if self.fits(name, sigma):
            self.book.reserve(name, "m", events.gaussian(sigma), "r", "weights")
            self.mu_squared[name] += sigma**-2
            self.runs += 1
        else:
            with pytest.raises(BudgetExceeded):
                self.book.reserve(name, "m", events.gaussian(sigma), "r", "weights")

    @rule(name=st.sampled_from("xy"), epsilon=st.floats(0.1, 10.0))
    def limit(self, name: str, epsilon: float) -> None:
        self.book.set_budget(name, epsilon, 1e-5)
        self.budget[name] = epsilon

    @rule(share=st.floats(0.0, 0.99))
    def kill(self, share: float) -> None:
        """A writer dies inside a line that was not acknowledged."""
        line = b'{"kind": "reserve", "data": "x"}'
        with self.book.path.open("ab") as file:
            file.write(line[: int(share * len(line))])

    @rule()
    def replace(self) -> None:
        if self.book.path.exists():
            files.write_atomically(self.book.path, self.book.path.read_bytes())

    @rule(where=st.floats(0.0, 0.999), bit=st.integers(0, 6))
    def edit(self, where: float, bit: int) -> None:
        if self.runs == 0:
            return
        whole = self.book.path.read_bytes()
        acknowledged = journal.read(self.book.path).base
        changed = bytearray(whole)
        changed[int(where * acknowledged)] ^= 1 << bit
        self.book.path.write_bytes(changed)
        with pytest.raises(ValueError, match="ledger"):
            self.book.spent("x", 1e-5)
        with pytest.raises(ValueError, match="ledger"):
            self.book.reserve("x", "m", FIT, "r", "weights")
        self.book.path.write_bytes(whole)

    @invariant()
    def totals(self) -> None:
        if not hasattr(self, "book"):
            return
        found = {name: self.book.spent(name, 1e-5) for name in "xy"}
        assert sum(spent.runs for spent in found.values()) == self.runs
        for name, spent in found.items():
            mu = self.mu_squared[name] ** 0.5
            expected = gaussian_epsilon(mu, 1e-5) if mu else 0.0
            assert spent.weights == pytest.approx(expected, rel=1e-9)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


Writers.TestCase.settings = settings(
    max_examples=12,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestWriters = Writers.TestCase
