"""Stored features: damaged files and files of other processes do no harm."""

from __future__ import annotations

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


def test_a_file_that_another_process_finishes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write("key", 3, 2, iter([ROWS]))
    gone = cache.folder() / ".other.npy"
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([gone]))
    assert np.array_equal(cache.write("key", 3, 2, iter([ROWS])), ROWS)


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
