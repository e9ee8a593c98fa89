"""Several processes train the model that one process trains, on shards that are Poisson."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import distributed as torch_distributed

from simplexdp import data, distributed, mechanism, methods, runs, sampling
from simplexdp.settings import Settings

SETTINGS = Settings(
    data="images", model="cnn", norm="group", epsilon=8.0, batch_size=3, steps=25, lr=0.1, seed=5
)
WEIGHTED = {"options": {"class_weights": "balanced"}}
METHODS: dict[str, dict[str, Any]] = {"plain": WEIGHTED, "dirichlet": WEIGHTED, "dpsgd": {}}


def images() -> data.Dataset:
    """200 records of 8×8 pixels in three classes, one of them twice as large."""
    rng = np.random.default_rng(1)
    labels = (np.arange(200) % 4 % 3).astype(np.int64)
    inputs = rng.integers(0, 120, (200, 1, 8, 8), dtype=np.uint8)
    inputs[np.arange(200), 0, 2 * labels] += 100
    split = data.Split(inputs, labels)
    return data.Dataset("images", split, split, None, ("a", "b", "c"))


def weights(outcome: methods.Outcome) -> np.ndarray:
    return torch.cat([p.detach().flatten() for p in outcome.model.parameters()]).numpy()


def fixed_noise(logits, labels, r, alpha, rng, *estimator_and_link):
    """The expected loss in the place of a draw: what a record contributes is its own alone."""
    s_y = torch.softmax(logits.double(), 1)[torch.arange(len(labels)), labels]
    return torch.digamma(torch.tensor(r + logits.shape[1] * alpha)) - torch.digamma(r * s_y + alpha)


def fewer() -> data.Dataset:
    """A part of the records, as of a process with a stale copy."""
    split = data.Split(images().train.inputs[:50], images().train.labels[:50])
    return dataclasses.replace(images(), train=split)


def one_of_two(rank: int, folder: str, settings: Settings) -> None:
    """What each of the two processes does; this file is their program."""
    torch.set_num_threads(1)
    torch_distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2
    )
    mechanism.perturbed_nll = fixed_noise
    for method in METHODS:
        chosen = dataclasses.replace(settings, method=method, **METHODS[method])
        outcome, _ = methods.run(chosen, Path(folder) / method, dataset=images())
        np.save(Path(folder) / f"{method}-{rank}.npy", weights(outcome))
    dropout = torch.initial_seed()  # as the last step has left it
    secret = distributed.agree(1000 + rank)
    own = distributed.own_seed(7)
    try:
        other = images() if rank == 0 else fewer()
        methods.run(
            dataclasses.replace(settings, method="dpsgd"), Path(folder) / "x", dataset=other
        )
        said = ""
    except ValueError as error:
        said = str(error)
    (Path(folder) / f"facts-{rank}.json").write_text(json.dumps([secret, own, said, dropout]))
    torch_distributed.destroy_process_group()


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Every method that can, trained by two processes."""
    folder = tmp_path_factory.mktemp("two")
    configuration = json.dumps(SETTINGS.to_json())
    both = [
        subprocess.Popen([sys.executable, __file__, str(rank), str(folder), configuration])
        for rank in range(2)
    ]
    assert [process.wait(timeout=600) for process in both] == [0, 0]
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_two_processes_give_the_weights_of_one(method, trained, monkeypatch):
    settings = dataclasses.replace(SETTINGS, method=method, **METHODS[method])
    monkeypatch.setattr(mechanism, "perturbed_nll", fixed_noise)
    wanted = weights(methods.train(settings, images()))
    first, second = (np.load(trained / f"{method}-{rank}.npy") for rank in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, wanted, rtol=0, atol=2e-6)
    moved = weights(methods.train(dataclasses.replace(settings, steps=1), images()))
    assert np.abs(wanted - moved).max() > 1e-3  # training did change them
    # A mean batch of 3 in two shards: some shards were empty, and one whole batch as well.
    sizes = [
        [len(s) for s in (batch[batch % 2 == 0], batch[batch % 2 == 1])]
        for batch in sampling.poisson_batches(200, 3 / 200, 25, seed=5)
    ]
    assert any(0 in pair and sum(pair) > 0 for pair in sizes)
    assert [0, 0] in sizes
    # One folder, written by the first process alone.
    folder = runs.RunFolder.open(trained / method)
    assert folder.finished()
    assert folder.processes() == 2
    steps = [line["step"] for line in folder.metrics()]
    assert steps == sorted(set(steps))
    # The seed of the first for the batches, a seed of one's own for the noise and for dropout.
    facts = [json.loads((trained / f"facts-{rank}.json").read_text()) for rank in range(2)]
    assert facts[0][0] == facts[1][0] == 1000
    assert facts[0][1] == 7
    assert facts[1][1] not in (7, 0)
    assert facts[0][3] != facts[1][3]


def test_processes_with_other_records_are_refused_on_all_sides(trained):
    """Their rate would be another one than that for which the first has made its noise."""
    for rank in range(2):
        said = json.loads((trained / f"facts-{rank}.json").read_text())[2]
        assert "do not have the same training records" in said
    assert not (trained / "x").exists()


def test_the_shards_are_poisson_samples_of_a_partition(monkeypatch):
    """Inclusion of each record in its shard at rate q, independent between shards.

    6,000 batches at q = 0.05: a record's frequency has standard error 0.0028, so 5 standard
    errors fail by chance for one of 40 records with probability below 3e-5; the correlation of
    the two shard sizes has standard error 0.013, and 5 of them fail with probability 6e-7.
    """
    records, q, batches = 40, 0.05, 6_000
    counts = np.zeros(records)
    sizes = np.zeros((batches, 2))
    monkeypatch.setattr(distributed, "world", lambda: 2)
    for step in range(batches):
        batch = sampling.poisson_batch(records, q, sampling.stream(3, "batch", step))
        shards = []
        for rank in range(2):
            monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
            shards.append(distributed.shard(batch))
        assert sorted([*shards[0], *shards[1]]) == sorted(batch)
        assert all((s % 2 == rank).all() for rank, s in enumerate(shards))
        counts[batch] += 1
        sizes[step] = [len(s) for s in shards]
    error = np.sqrt(q * (1 - q) / batches)
    assert np.abs(counts / batches - q).max() < 5 * error
    assert abs(np.corrcoef(sizes.T)[0, 1]) < 5 / np.sqrt(batches)
    assert sizes[:, 0].mean() == pytest.approx(q * records / 2, abs=5 * np.sqrt(20 * q / batches))


def test_alone_nothing_changes():
    indices = np.array([1, 4, 7])
    model = torch.nn.Linear(2, 2)
    assert distributed.shard(indices) is indices
    assert distributed.parallel(model) is model
    assert (distributed.agree(9), distributed.own_seed(9), distributed.batch_records(3)) == (
        9,
        9,
        3,
    )
    assert distributed.is_first()
    with distributed.group("cpu"):
        assert distributed.world() == 1


def test_an_empty_shard_leaves_running_statistics_alone():
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    model.train()
    logits = distributed.forward(model, torch.zeros(0, 3))
    assert logits.shape == (0, 2)
    assert bool(torch.isfinite(model[0].running_mean).all())
    assert bool(torch.isfinite(model[0].running_var).all())


def test_torchrun_trains_into_one_folder(tmp_path):
    """The command line under torchrun: a secret seed, one folder, one accountant."""
    arguments = ["--steps", "40", "--batch-size", "8", "--quiet", "--out", str(tmp_path / "run")]
    torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, "-m", *torchrun, "-m", "simplexdp", "train", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "SIMPLEXDP_LEDGER": str(tmp_path / "ledger")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    folder = runs.RunFolder.open(tmp_path / "run")
    assert folder.finished()
    statement = json.loads((folder.path / "statement.json").read_text())
    assert statement["steps"] == 40
    assert statement["epsilon"] <= 1.0
    assert statement["covers_weights"] is False
    assert load_file(folder.path / "model.safetensors")
    assert folder.metrics()[-1]["step"] == 40
    assert not folder.checkpoint.exists()


def test_each_process_takes_the_card_of_its_number(monkeypatch, tmp_path):
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert distributed.local_device("cpu") == "cpu"
    assert distributed.local_device("cuda:3") == "cuda:3"
    settings = dataclasses.replace(SETTINGS, device="cuda")
    if torch.cuda.device_count() < 2:  # the message names the card that was looked for
        with pytest.raises(ValueError, match="no device 'cuda:1'"):
            methods.run(settings, tmp_path / "run", dataset=images())


def test_several_processes_need_a_folder_and_a_method_that_can(monkeypatch, tmp_path):
    monkeypatch.setattr(distributed, "world", lambda: 2)
    with pytest.raises(ValueError, match="needs --out"):
        methods.run(SETTINGS, None, dataset=images())


if __name__ == "__main__":
    one_of_two(int(sys.argv[1]), sys.argv[2], Settings.from_json(json.loads(sys.argv[3])))
