"""Files are whole or not there, and no more open than the person's umask allows."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from simplexdp import files


@pytest.mark.parametrize(
    ("umask", "asked", "wanted"),
    [(0o077, 0o666, 0o600), (0o022, 0o666, 0o644), (0o000, 0o600, 0o600)],
)
def test_the_umask_holds(tmp_path: Path, umask: int, asked: int, wanted: int) -> None:
    before = os.umask(umask)
    try:
        files.write_atomically(tmp_path / "f", b"x", asked)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == wanted


def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write_atomically(tmp_path / "f", b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as found:
        files.write_atomically(tmp_path / "f", b"new")
    assert files.is_disk_full(found.value)
    assert not files.is_disk_full(FileNotFoundError(errno.ENOENT, "no such file"))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("f", b"old")]


def test_a_file_is_on_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content, then name, then the folder that holds the name: a loss of power leaves one whole."""
    happened: list[object] = []
    real_flush, real_replace = os.fsync, os.replace

    def flush(descriptor: int) -> None:
        there = os.fstat(descriptor)
        happened.append("folder" if stat.S_ISDIR(there.st_mode) else there.st_size)
        real_flush(descriptor)

    def replace(*names: Path) -> None:
        happened.append("name")
        real_replace(*names)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", replace)
    files.write_atomically(tmp_path / "f", b"x" * 1000)
    assert happened == [1000, "name", "folder"]


def test_a_cache_that_cannot_be_made_is_told_with_a_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"Not a directory.*set SIMPLEXDP_CACHE"):
        files.make_cache(tmp_path / "file" / "datasets")


def test_a_lock_holds_others_off_and_goes_with_its_holder(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    with files.locked(lock, "busy"):
        for _ in range(2):  # a refused one does not take the holder's file away
            with pytest.raises(files.Busy, match="busy"), files.locked(lock, "busy"):
                raise AssertionError
        assert lock.exists()
    assert not lock.exists()
    with files.locked(lock, "busy"):
        pass


def test_a_lock_file_that_went_between_opening_and_locking_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / ".lock"
    real = fcntl.flock

    def late(handle: int, flags: int) -> None:
        lock.unlink()  # by the holder before
        real(handle, flags)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(files.Busy), files.locked(lock, "busy"):
        raise AssertionError


def test_without_a_home_folder_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"no home folder is known for ~nosuchuser/x.csv"):
        files.expanded("~nosuchuser/x.csv")
