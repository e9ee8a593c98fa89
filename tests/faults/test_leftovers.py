"""What a kill leaves: nothing that is in the way, and nothing for ever."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from simplexdp import files, methods, runs
from simplexdp.settings import Settings

SETTINGS = Settings(data="blobs", method="plain", model="logistic", batch_size=9, steps=4, seed=0)
OLD = time.time() - 2 * files.SECONDS_UNTIL_ABANDONED


@pytest.mark.parametrize("name", ["mkdir", "rename"])
def test_a_run_killed_before_it_has_a_configuration_takes_no_name(
    tmp_path, blobs, killed, name
) -> None:
    """Neither --resume nor --out would take such a folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs.folder.shutil, "rmtree", lambda *_, **__: None)  # a kill removes nothing
        owner = Path if name == "mkdir" else os
        with killed(owner, name, lambda path, *_: ".run." in str(path), after=name == "mkdir"):
            methods.run(SETTINGS, tmp_path / "run", dataset=blobs)
    assert [path.name[:5] for path in tmp_path.iterdir()] == [".run."]
    methods.run(SETTINGS, tmp_path / "run", dataset=blobs)
    assert (tmp_path / "run" / "model.safetensors").exists()


def test_another_process_that_made_the_folder_meanwhile_keeps_it(tmp_path, monkeypatch) -> None:
    real = os.rename

    def late(source, target) -> None:
        if Path(target) == tmp_path / "run":
            (tmp_path / "run").mkdir(exist_ok=True)
            (tmp_path / "run" / "run.json").write_text("theirs")
        real(source, target)

    monkeypatch.setattr(os, "rename", late)
    with pytest.raises(ValueError, match="exists; choose another folder"):
        runs.RunFolder.create(tmp_path / "run", SETTINGS)
    assert (tmp_path / "run" / "run.json").read_text() == "theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_temporary_files_of_a_kill_go_with_the_next_write(tmp_path) -> None:
    old, young, other = (tmp_path / f".{n}.{'0' * 15}{k}" for k, n in enumerate("ffg"))
    for path in (old, young, other):
        path.write_bytes(b"half")
    os.utime(old, (OLD, OLD))
    os.utime(other, (OLD, OLD))
    files.write_atomically(tmp_path / "f", b"whole")
    assert sorted(tmp_path.iterdir()) == [young, other, tmp_path / "f"]


def test_temporary_folders_of_a_kill_go_with_the_next_run(tmp_path) -> None:
    old = tmp_path / f".run.{'a' * 16}"
    old.mkdir()
    (old / "run.json").write_text("{}")
    os.utime(old, (OLD, OLD))
    runs.RunFolder.create(tmp_path / "run", SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_resumed_run_has_no_temporary_files(tmp_path, blobs) -> None:
    folder = runs.RunFolder.create(tmp_path / "run", SETTINGS)
    (folder.path / f".metrics.jsonl.{'b' * 16}").write_text("half")
    methods.run(SETTINGS, folder.path, resume=True, dataset=blobs)
    assert not [path.name for path in folder.path.iterdir() if path.name.startswith(".")]


def test_what_is_written_outlasts_a_loss_of_power(tmp_path, monkeypatch) -> None:
    """The file is flushed before its rename, and its folder after it."""
    done = []
    sync, replace = os.fsync, os.replace

    def noted(handle: int) -> None:
        done.append(os.readlink(f"/proc/self/fd/{handle}"))
        sync(handle)

    def renamed(source, target) -> None:
        done.append("rename")
        replace(source, target)

    if not Path("/proc/self/fd").exists():
        pytest.skip("the system does not tell the file of a handle")
    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(os, "replace", renamed)
    files.write_atomically(tmp_path / "f", b"x")
    assert [Path(one).name[:3] for one in done] == [".f.", "ren", tmp_path.name[:3]]
