"""Stored features: damaged files and files of other processes do no harm."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from simplexdp import data, features, methods
from simplexdp.features import cache
from simplexdp.settings import Settings

ROWS = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMPLEXDP_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("content", [b"", b"no array", None])
def test_a_damaged_file_is_computed_again(content: bytes | None) -> None:
    cache.write("key", 3, 2, iter([ROWS]))
    path = cache.folder() / "key.npy"
    path.write_bytes(path.read_bytes()[:-4] if content is None else content)
    assert cache.read("key", 3) is None
    cache.write("key", 3, 2, iter([ROWS[:2], ROWS[2:]]))
    stored = cache.read("key", 3)
    assert stored is not None
    assert np.array_equal(stored, ROWS)


def test_a_changed_value_is_computed_again() -> None:
    cache.write("key", 3, 2, iter([ROWS]))
    path = cache.folder() / "key.npy"
    content = bytearray(path.read_bytes())
    content[-cache.DIGEST_BYTES - 1] ^= 1  # in the last row
    path.write_bytes(content)
    assert cache.read("key", 3) is None


def test_a_file_that_another_process_finishes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write("key", 3, 2, iter([ROWS]))
    gone = cache.folder() / ".other.npy"
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([gone]))
    assert np.array_equal(cache.write("key", 3, 2, iter([ROWS])), ROWS)


def test_room_is_taken_before_the_first_row_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    blocks = iter([ROWS])
    with pytest.raises(OSError, match="No space left"):
        cache.write("key", 3, 2, blocks)
    assert list(blocks)  # untouched
    assert not list(cache.folder().iterdir())


def test_a_full_disk_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    """A real one, of a megabyte; it was SIGBUS, without a word."""
    (tmp_path / "cache").mkdir()
    code = (
        "import numpy as np; from simplexdp.features import cache; "
        "cache.write('key', 1024, 512, iter([np.ones((1024, 512), np.float32)]))"
    )
    mount = f"mount -t tmpfs -o size=1m t {tmp_path}/cache || exit 77"
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", f'{mount}; "$0" -c "$1"', sys.executable, code],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77 or "unshare:" in done.stderr:
        pytest.skip("no file system can be mounted here")
    assert done.returncode == 1
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("method", ["certified", "gaussian-features"])
def test_a_training_without_a_folder_stores_nothing(method: str) -> None:
    """Audits train on hundreds of random parts of the data."""
    digits = data.load("digits")
    few = data.Split(digits.train.inputs[:60], digits.train.labels[:60])
    small = data.Dataset("few", few, few, None, digits.class_names)
    methods.train(Settings(method=method, seed=0), small)
    assert not cache.folder().exists()
    features.compute(few.inputs, features.build("auto", small.input_shape))
    assert len(list(cache.folder().iterdir())) == 1
