"""Rows that are streamed from a file: the same numbers, and memory that does not grow with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from simplexdp import features, linear, noise
from simplexdp.features.cache import Streamed


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIMPLEXDP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_blocks_come_back_as_they_were_written(cache: Path) -> None:
    rows = torch.randint(-4096, 4097, (500, 7)).float()
    kept = Streamed(500, 7)
    for first in (300, 0, 100, 200, 400):
        kept[first : first + 100] = rows[first : first + 100]
    assert torch.equal(kept[37:458], rows[37:458])
    assert torch.equal(kept[:], rows)
    assert kept[500:500].shape == (0, 7)
    assert list((cache / "features").iterdir()) == []  # it has no name that a crash could leave


@pytest.mark.parametrize("value", [0.5, 32768.0])
def test_what_16_bits_do_not_hold_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="16 bits"):
        Streamed(1, 1)[0:1] = torch.tensor([[value]])


def test_room_is_in_memory_up_to_the_setting() -> None:
    assert isinstance(features.room((1024, 256), 1), torch.Tensor)
    assert isinstance(features.room((1025, 256), 1), Streamed)


@pytest.mark.parametrize("moment_share", [0.0, 0.2])
@pytest.mark.parametrize("grouped", [False, True])
def test_streamed_weights_are_those_of_memory_to_the_last_bit(
    moment_share: float, grouped: bool
) -> None:
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(5000, 60)) / 8).astype(np.float32)
    rows[3] = np.inf
    labels = (rows[:, 0] > 0).astype(np.int64)
    persons = np.unique(rng.integers(0, 900, 5000), return_inverse=True)[1] if grouped else None
    rule, cost = linear.planned(900, 4.0, 1e-5, (60, 1), steps=6, moment_share=moment_share)

    def weights(**how: object) -> np.ndarray:
        bits = noise.seeded_bits(np.random.default_rng(1))
        fitted = linear.fit(rows, labels, 2, (60, 1), rule, cost, bits, persons=persons, **how)
        return fitted.weights

    np.testing.assert_array_equal(weights(store=Streamed), weights())


class Watched:
    """An array, and the most rows of it that were ever asked for at once."""

    def __init__(self, rows: object) -> None:
        self.rows, self.shape, self.ndim, self.most = rows, rows.shape, 2, 0

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, where: object) -> object:
        found = self.rows[where]
        self.most = max(self.most, len(found))
        return found

    def __setitem__(self, where: slice, rows: torch.Tensor) -> None:
        self.rows[where] = rows


@pytest.mark.parametrize("grouped", [False, True])
def test_no_more_than_a_block_of_rows_is_ever_in_memory(grouped: bool) -> None:
    rng = np.random.default_rng(0)
    source = Watched(rng.normal(size=(9000, 8)).astype(np.float32) / 3)
    labels = rng.integers(0, 2, 9000)
    persons = np.arange(9000) // 2 if grouped else None
    rule, cost = linear.planned(4500, 4.0, 1e-5, (8, 1), steps=2, moment_share=0.1)
    stores = []

    def store(*size: int) -> Watched:
        stores.append(Watched(Streamed(*size)))
        return stores[0]

    linear.fit(
        source, labels, 2, (8, 1), rule, cost, noise.system_bits, persons=persons, store=store
    )
    assert source.most == stores[0].most == 2048
