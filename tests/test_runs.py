"""The run folder: what it holds, who may train in it, and what is counted."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from simplexdp import distributed, methods, runs, training
from simplexdp.ledger import Ledger, identity
from simplexdp.methods import _run
from simplexdp.settings import Settings

SETTINGS = Settings(
    data="blobs", method="dirichlet", model="mlp", epsilon=8.0, batch_size=3, steps=60, seed=4
)


def test_a_run_folder_holds_what_was_promised(tmp_path, blobs):
    outcome, folder = methods.run(SETTINGS, tmp_path / "run", dataset=blobs)
    names = {path.name for path in folder.path.iterdir()}
    assert names == {
        "run.json",
        "manifest.json",
        "metrics.jsonl",
        "model.json",
        "model.safetensors",
        "statement.json",
        "statement.md",
    }
    assert folder.settings() == SETTINGS
    assert folder.metrics()[-1]["step"] == 60
    saved = load_file(folder.path / "model.safetensors")
    for name, value in outcome.model.state_dict().items():
        assert torch.equal(saved[name], value)


def test_a_folder_without_a_checkpoint_keeps_its_settings_all_the_same(tmp_path, blobs):
    begun = Settings(data="blobs", method="certified", epsilon=1.0, seed=0)
    folder = runs.RunFolder.create(tmp_path / "run", begun)
    other = dataclasses.replace(begun, epsilon=4.0)
    with pytest.raises(ValueError, match="other settings or another revision"):
        methods.run(other, folder.path, resume=True, dataset=blobs)
    record = {**folder.configuration(), "revision": 99}
    (folder.path / "run.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match="other settings or another revision"):
        methods.run(begun, folder.path, resume=True, dataset=blobs)


def test_a_run_knows_its_ledger_before_it_is_counted(tmp_path, blobs, monkeypatch):
    """A kill while the ledger is read must not send the run to another ledger."""
    book = Ledger(tmp_path / "team.jsonl")
    seen = []
    original = Ledger.reserve

    def reserve(self, *arguments, **options):
        seen.append(runs.RunFolder(tmp_path / "run").ledger_path())
        original(self, *arguments, **options)

    monkeypatch.setattr(Ledger, "reserve", reserve)
    methods.run(SETTINGS, tmp_path / "run", dataset=blobs, ledger=book)
    assert seen == [book.path]


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_full_disk_before_the_first_step_spends_nothing(tmp_path, blobs, monkeypatch, written):
    """First the configuration is written, then the ledger's name in it, then a checkpoint."""
    left = [written]
    sync = os.fsync

    def full(descriptor: int) -> None:
        if left[0] == 0:
            raise OSError(28, "No space left on device")
        left[0] -= 1
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    book = Ledger(tmp_path / "ledger.jsonl")
    with pytest.raises(OSError, match="No space left"):
        methods.run(SETTINGS, tmp_path / "run", dataset=blobs, ledger=book)
    assert not list(tmp_path.rglob("*"))


def test_a_run_beyond_the_budget_is_refused_before_it_starts(tmp_path, blobs):
    book = Ledger(tmp_path / "ledger.jsonl")
    book.set_budget(identity("blobs"), 1e-3, 1e-5)
    with pytest.raises(ValueError, match="budget"):
        methods.run(SETTINGS, tmp_path / "run", dataset=blobs, ledger=book)
    assert not (tmp_path / "run").exists()
    assert book.entries() == []


def test_a_run_without_its_checkpoint_is_counted_again(tmp_path, blobs, killed):
    book = Ledger(tmp_path / "ledger.jsonl")
    with killed(training, "evaluate"):
        methods.run(SETTINGS, tmp_path / "run", dataset=blobs, ledger=book)
    (tmp_path / "run/checkpoint.safetensors").unlink()
    methods.run(SETTINGS, tmp_path / "run", resume=True, dataset=blobs, ledger=book)
    assert len(book.entries()) == 2


@pytest.mark.parametrize("first_counts", [True, False])
def test_another_run_in_the_same_folder_is_counted_again(
    tmp_path, blobs, monkeypatch, killed, first_counts
):
    """One run is counted and its folder removed; the next is killed before it is counted."""
    book = Ledger(tmp_path / "ledger.jsonl")
    if first_counts:
        methods.run(SETTINGS, tmp_path / "run", dataset=blobs, ledger=book)
        shutil.rmtree(tmp_path / "run")
    with monkeypatch.context() as patch, killed(_run, "reserve"):
        patch.setattr(runs.RunFolder, "forget_seed", lambda _: None)  # a kill forgets nothing
        methods.run(SETTINGS, tmp_path / "run", dataset=blobs, ledger=book)
    assert (tmp_path / "run/checkpoint.safetensors").exists()
    methods.run(SETTINGS, tmp_path / "run", resume=True, dataset=blobs, ledger=book)
    assert len(book.entries()) == 1 + first_counts


@pytest.mark.parametrize("line", ["5", '{"a": 1}', '{"step": 30, ', "\xff"])
def test_what_was_measured_ends_where_a_line_is_damaged(tmp_path, line):
    folder = runs.RunFolder.create(tmp_path / "run", SETTINGS)
    folder.append_metrics({"step": 10})
    with (folder.path / "metrics.jsonl").open("ab") as file:
        file.write(line.encode("latin-1") + b'\n{"step": 40}\n')
    assert folder.metrics() == [{"step": 10}]


def test_nothing_that_holds_the_seed_outlives_a_run(tmp_path, blobs, killed):
    with killed(training, "evaluate"):
        methods.run(SETTINGS, tmp_path / "run", dataset=blobs)
    torn = tmp_path / "run/.checkpoint.safetensors.abcd"  # what a kill in a write leaves
    torn.write_bytes(b"seed")
    methods.run(SETTINGS, tmp_path / "run", resume=True, dataset=blobs)
    assert not list((tmp_path / "run").glob("*checkpoint*"))
    assert not torn.exists()


def test_a_refused_plan_leaves_nothing_behind(tmp_path, blobs):
    settings = dataclasses.replace(SETTINGS, batch_size=299, epsilon=0.5)
    with pytest.raises(ValueError, match="no useful r"):
        methods.run(settings, tmp_path / "run", dataset=blobs)
    assert not (tmp_path / "run").exists()


def test_an_existing_folder_is_refused(tmp_path, blobs):
    (tmp_path / "run").mkdir()
    with pytest.raises(ValueError, match="exists; choose another folder"):
        methods.run(SETTINGS, tmp_path / "run", dataset=blobs)


@pytest.mark.parametrize("resume", [True, False])
def test_two_commands_do_not_train_in_one_folder(tmp_path, blobs, resume):
    """The second would be taken for the first, and both be counted once."""
    book = Ledger(tmp_path / "ledger.jsonl")
    settings = Settings(method="certified", data="blobs", seed=None)
    with runs.RunFolder.create(tmp_path / "run", settings).held():
        before = (tmp_path / "run" / "run.json").read_text()
        with pytest.raises(ValueError, match=r"another process trains in|exists; choose another"):
            methods.run(settings, tmp_path / "run", resume=resume, dataset=blobs, ledger=book)
        assert (tmp_path / "run" / "run.json").read_text() == before
    assert book.entries() == []
    methods.run(settings, tmp_path / "run", resume=True, dataset=blobs, ledger=book)
    assert len(book.entries()) == 1
    assert not (tmp_path / "run" / ".lock").exists()


def test_a_folder_keeps_the_device_that_was_asked_for(tmp_path, blobs, monkeypatch):
    """Not the card that its first process had: every process takes its own when it resumes."""
    monkeypatch.setattr(distributed, "local_device", lambda device: "cpu")
    settings = dataclasses.replace(SETTINGS, device="cuda")
    _, folder = methods.run(settings, tmp_path / "run", dataset=blobs)
    assert folder.settings().device == "cuda"


def test_a_machine_is_told_by_its_processor(monkeypatch):
    here = runs.machine()
    assert here["processor"].startswith(platform.machine())
    assert here["instructions"] in torch.__config__.show()  # the same from another source

    def absent(path, **how):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", absent)  # as on macOS
    assert runs.machine()["processor"] == platform.machine()
    monkeypatch.setattr(Path, "read_text", lambda path, **how: "flags\t: a\nmodel name\t: X 1\n")
    assert runs.machine()["processor"] == f"{platform.machine()} X 1"
