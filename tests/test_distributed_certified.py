"""Several processes with a part of the rows each release what one process with all of them does."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import distributed as torch_distributed

from simplexdp import data, distributed, methods, runs
from simplexdp.linear import exact_sums
from simplexdp.methods.base import Run
from simplexdp.settings import Settings

PROCESSES = (2, 4)
SETTINGS = Settings(
    data="blobs", method="certified", epsilon=4.0, steps=12, seed=5, options={"features": "columns"}
)
MOMENTS = {"features": "columns", "moment_share": 0.2, "ridge": 0.1}
# A stride, so that there are many blocks; the settings; and whether records are of persons.
CASES: dict[str, tuple[int, Settings, bool]] = {
    "records": (64, SETTINGS, False),
    "moments": (64, dataclasses.replace(SETTINGS, options=MOMENTS), False),
    "streamed": (50, dataclasses.replace(SETTINGS, options={**MOMENTS, "memory": 1}), False),
    "persons": (64, SETTINGS, True),
    "one block": (2048, SETTINGS, False),  # all processes but the last have no rows
}


def blobs(persons: bool) -> data.Dataset:
    """700 records of three classes, some of one person."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 3, 700)
    inputs = rng.normal(size=(700, 40)).astype(np.float32) / 4
    inputs[np.arange(700), labels] += 1.0
    groups = np.unique(rng.integers(0, 150, 700), return_inverse=True)[1] if persons else None
    train = data.Split(inputs, labels, groups)
    return data.Dataset("blobs", train, data.Split(inputs[:90], labels[:90]), None, tuple("abc"))


def fit(case: str) -> tuple[np.ndarray, list[float]]:
    """Return the weights and what was measured."""
    stride, settings, persons = CASES[case]
    exact_sums.STRIDE = stride
    prepared = methods.prepare(settings, blobs(persons))
    trained = prepared.start(Run())
    weights = torch.cat([p.detach().flatten() for p in trained.model.parameters()]).numpy()
    return weights, [trained.accuracy, *trained.recalls]


def secret() -> tuple[np.ndarray, float]:
    """Return all releases of a fit of secret noise, and the noise over what it should be."""
    heard, added = [], []

    def hear(name, total, released, sigma):
        heard.append(released.ravel())
        added.append((released - total).ravel() / sigma)
        return released

    exact_sums.STRIDE = 64
    settings = dataclasses.replace(SETTINGS, seed=None, steps=40)
    methods.prepare(settings, blobs(False), seed=9).start(Run(on_release=hear))
    return np.concatenate(heard), float(np.concatenate(added).std())


def one_of_several(rank: int, world: int, folder: Path) -> None:
    """What each process does; this file is their program."""
    torch.set_num_threads(1)
    for size in PROCESSES:
        if rank >= size:
            continue
        torch_distributed.init_process_group(
            "gloo",
            init_method=f"file://{folder}/meeting-{size}",
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=60),
        )
        for case in CASES:
            weights, told = fit(case)
            np.save(folder / f"{case}-{size}-{rank}.npy", weights)
            (folder / f"{case}-{size}-{rank}.json").write_text(json.dumps(told))
        released, noise = secret()
        np.save(folder / f"secret-{size}-{rank}.npy", released)
        (folder / f"secret-{size}-{rank}.json").write_text(json.dumps(noise))
        said = ""
        try:
            methods.prepare(SETTINGS, blobs(persons=rank == 0)).start(Run())
        except ValueError as error:
            said = str(error)
        (folder / f"other-{size}-{rank}.json").write_text(json.dumps(said))
        methods.run(SETTINGS, folder / f"run-{size}", dataset=blobs(False))
        torch_distributed.destroy_process_group()


@pytest.fixture(scope="module")
def several(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    world = max(PROCESSES)
    started = [
        subprocess.Popen([sys.executable, __file__, str(rank), str(world), str(folder)])
        for rank in range(world)
    ]
    assert [process.wait(timeout=600) for process in started] == [0] * world
    return folder


@pytest.mark.parametrize("case", CASES)
def test_the_weights_are_the_same_bits_on_one_two_and_four(case, several, monkeypatch):
    monkeypatch.setattr(exact_sums, "STRIDE", CASES[case][0])
    wanted, told = fit(case)
    assert np.abs(wanted).max() > 0.1
    for size in PROCESSES:
        for rank in range(size):
            got = np.load(several / f"{case}-{size}-{rank}.npy")
            np.testing.assert_array_equal(got, wanted)
            assert json.loads((several / f"{case}-{size}-{rank}.json").read_text()) == told


def test_secret_noise_is_drawn_once_and_not_once_a_process(several):
    """3 × 40 × 40 draws and a mean: the deviation has a standard error of 0.010."""
    for size in PROCESSES:
        first, *others = (np.load(several / f"secret-{size}-{rank}.npy") for rank in range(size))
        for other in others:
            np.testing.assert_array_equal(other, first)
        told = json.loads((several / f"secret-{size}-0.json").read_text())
        assert told == pytest.approx(1.0, abs=0.05)
    two, four = (np.load(several / f"secret-{size}-0.npy") for size in PROCESSES)
    assert not np.array_equal(two, four)


def test_processes_with_other_records_are_refused_on_all_sides(several):
    for size in PROCESSES:
        for rank in range(size):
            said = json.loads((several / f"other-{size}-{rank}.json").read_text())
            assert "do not have the same training records" in said


def test_one_folder_is_written_by_the_first_process(several):
    for size in PROCESSES:
        folder = runs.RunFolder.open(several / f"run-{size}")
        assert folder.finished()
        assert [line["step"] for line in folder.metrics()] == [12]


def test_parts_are_whole_blocks_that_miss_nothing(monkeypatch):
    blocks = exact_sums.strides(10_000)
    for size in (1, 2, 3, 4, 8):
        monkeypatch.setattr(distributed, "world", lambda size=size: size)
        found = []
        for rank in range(size):
            monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
            part = distributed.part(blocks)
            assert part.start % exact_sums.STRIDE == 0
            found += range(part.start, part.stop)
        assert found == list(range(10_000))


if __name__ == "__main__":
    one_of_several(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
