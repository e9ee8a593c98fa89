"""The time of a training here over that of a tight plain loop, alternated in one run.

    python benchmarks/speed.py               # writes results/benchmarks/speed.json, part by part

Every variant trains the same network on the same Poisson batches, in turn and in a new order each
round, so that a slow moment of the machine hits all of them. A ratio is of processor time in the
same round; the table has the median over the rounds and the interval that holds the middle half of
them. The tight loop is what a person would write in twenty lines: tensors in memory, cross entropy,
`torch.optim.SGD`, batches drawn beforehand, no seed, no test, no file.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from simplexdp import data, files, linear, methods, models, runs, sampling
from simplexdp.methods.base import Run
from simplexdp.optimizers import seed_torch
from simplexdp.settings import Settings

OUT = Path(__file__).resolve().parent.parent / "results" / "benchmarks" / "speed.json"
ROUNDS = 7
# network, data, batch size, steps of a round
NETWORKS = {
    "digits MLP": ("mlp", "digits", 8, 300),
    "CNN": ("cnn", "fashion-mnist", 64, 8),
    "Inception": ("inception", "fashion-mnist", 64, 4),
    "ResNet-18": ("resnet18", "cifar10", 32, 2),
    "fast": ("fast-mirrored", "fashion-mnist", 250, 4),
}
PARTS = (*NETWORKS, "onednn", "certified", "calibration", "commands")
LINK = {"link": "log"}
Job = Callable[[], object]
Setup = Callable[[], Job]  # its time does not count


def alternated(jobs: dict[str, Setup], rounds: int, base: str) -> dict[str, object]:
    """Return processor seconds of each job, and their ratios to one of them."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for setup in jobs.values():
        setup()()  # warm caches, and what torch sets up once
    for _ in range(rounds):
        for name in random.sample(list(jobs), len(jobs)):
            job = jobs[name]()
            began = time.process_time()
            job()
            seconds[name].append(time.process_time() - began)
    ratios = {
        name: [own / of for own, of in zip(taken, seconds[base], strict=True)]
        for name, taken in seconds.items()
    }
    return {
        name: {
            "seconds": float(np.median(seconds[name])),
            "ratio": float(np.median(ratios[name])),
            "middle_half": [float(q) for q in np.quantile(ratios[name], [0.25, 0.75])],
        }
        for name in jobs
    }


def small(name: str, records: int = 4096) -> data.Dataset:
    """Return the first records of a set, with one test record, so that testing costs nothing."""
    if data.present(name):
        whole = data.load(name)
        train = data.Split(whole.train.inputs[:records], whole.train.labels[:records])
        test = data.Split(whole.test.inputs[:1], whole.test.labels[:1])
        return data.Dataset(name, train, test, None, whole.class_names)
    shape = (3, 32, 32) if name == "cifar10" else (1, 28, 28)
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 256, (records, *shape), dtype=np.uint8)
    train = data.Split(inputs, rng.integers(0, 10, records))
    test = data.Split(inputs[:1], train.labels[:1])
    return data.Dataset(name, train, test, None, tuple("0123456789"))


def ours(method: str, settings: dict[str, object], dataset: data.Dataset) -> Setup:
    chosen = Settings(method=method, data=dataset.name, seed=1, evaluations=0, **settings)

    def setup() -> Job:
        prepared = methods.prepare(chosen, dataset)
        return lambda: prepared.start(Run())

    return setup


def tight(
    dataset: data.Dataset, model_name: str, batch: int, steps: int, fixed: bool = False
) -> Setup:
    records = len(dataset.train.labels)
    inputs = data.to_model_input(torch.from_numpy(dataset.train.inputs.copy()))
    labels = torch.from_numpy(dataset.train.labels.copy())
    if fixed:
        drawn = [np.arange(batch) + batch * k for k in range(steps)]
    else:
        drawn = list(sampling.poisson_batches(records, batch / records, steps, 1))
    rows = [torch.from_numpy(indices) for indices in drawn if len(indices)]

    def setup() -> Job:
        seed_torch(1, "weights", 0)
        model = models.build(model_name, dataset.input_shape, dataset.classes)
        images = inputs
        if inputs.ndim == 4:
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            images = inputs.contiguous(memory_format=torch.channels_last)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def train() -> None:
            for of in rows:
                optimizer.zero_grad(set_to_none=True)
                functional.cross_entropy(model(images[of]), labels[of]).backward()
                optimizer.step()

        return train

    return setup


def loop(name: str, rounds: int) -> dict[str, object]:
    """Return our methods against the tight loop, on one network."""
    model, set_name, batch, steps = NETWORKS[name]
    dataset = small(set_name)
    settings: dict[str, object] = {"model": model, "batch_size": batch, "steps": steps}
    private = {**settings, "epsilon": 50.0}
    jobs = {
        "tight plain loop": tight(dataset, model, batch, steps),
        "plain": ours("plain", settings, dataset),
        "dirichlet": ours("dirichlet", private, dataset),
        "dirichlet, link log": ours("dirichlet", {**private, "options": LINK}, dataset),
    }
    return {"batch": batch, "steps": steps, **alternated(jobs, rounds, "tight plain loop")}


def primitive_cache(rounds: int) -> dict[str, object]:
    """Return Poisson batch sizes against a fixed one, by the capacity of oneDNN's cache.

    The capacity is read when torch loads, so that each is measured in a process of its own.
    """
    found: dict[str, object] = {}
    for capacity in (1024, 8192):
        code = (
            "import sys, json, resource; sys.path.insert(0, sys.argv[1]); import speed, torch;"
            "torch.set_num_threads(1); d = speed.small('digits');"
            "jobs = {'fixed': speed.tight(d, 'resnet18', 40, 30, fixed=True),"
            " 'Poisson': speed.tight(d, 'resnet18', 40, 30)};"
            "r = speed.alternated(jobs, int(sys.argv[2]), 'fixed');"
            "r['megabytes'] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024;"
            "print(json.dumps(r))"
        )
        environment = {**os.environ, "ONEDNN_PRIMITIVE_CACHE_CAPACITY": str(capacity)}
        done = subprocess.run(
            [sys.executable, "-c", code, str(Path(__file__).parent), str(rounds)],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        found[str(capacity)] = json.loads(done.stdout.splitlines()[-1])
    return found


def certified(rounds: int) -> dict[str, object]:
    """Return the exact sums of a certified fit against the same products in single precision."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((20_000, 2048)).astype(np.float32) / 64
    labels = rng.integers(0, 10, 20_000)
    rule, cost = linear.planned(len(labels), 1.0, 1e-5, (2048, 1), steps=10, moment_share=0.0)
    weights = rng.standard_normal((2048, 10)).astype(np.float32)

    def plain() -> None:
        held = weights
        for _ in range(10):
            error = rows @ held
            held = held - 1e-6 * (rows.T @ error)

    def fit() -> None:
        from simplexdp import noise

        bits = noise.seeded_bits(sampling.stream(1, "certified", 0))
        linear.fit(rows, labels, 10, (2048, 1), rule, cost, bits)

    found = alternated(
        {"two float32 products": lambda: plain, "certified": lambda: fit},
        rounds,
        "two float32 products",
    )
    return found


def calibration() -> dict[str, object]:
    """Return processor seconds of calibrating DP-SGD, and of one ε by dp-accounting's PLD."""
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    from simplexdp.accounting import sampled_gaussian

    rate, delta, found = 256 / 60_000, 1e-5, {}
    for steps in (20_000, 1_000_000):
        began = time.process_time()
        sigma, epsilon = sampled_gaussian.calibrate(1.0, delta, rate, steps)
        took = time.process_time() - began
        began = time.process_time()
        loss = from_gaussian_mechanism(sigma, sampling_prob=rate)
        theirs = loss.self_compose(steps).get_epsilon_for_delta(delta)
        found[f"{steps:,} steps"] = {
            "noise": sigma,
            "epsilon": epsilon,
            "seconds": took,
            "epsilon by dp-accounting": theirs,
            "seconds of dp-accounting's one": time.process_time() - began,
        }
    return dict(found)


def commands(rounds: int) -> dict[str, object]:
    """Return the processor seconds of whole commands, against an interpreter that does nothing."""

    def command(*arguments: str) -> Job:
        def run() -> None:
            subprocess.run([sys.executable, *arguments], capture_output=True, check=True)

        return run

    jobs = {
        "python -c pass": command("-c", "pass"),
        "--help": command("-m", "simplexdp", "--help"),
        "data list": command("-m", "simplexdp", "data", "list"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            job()
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds[name].append(
                after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
            )
    found: dict[str, object] = {
        name: {
            "processor_seconds": float(np.median(taken)),
            "middle_half": [float(q) for q in np.quantile(taken, [0.25, 0.75])],
        }
        for name, taken in seconds.items()
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    random.seed(0)
    parts = {
        **{name: partial(loop, name, asked.rounds) for name in NETWORKS},
        "onednn": lambda: primitive_cache(max(2, asked.rounds // 3)),
        "certified": lambda: certified(asked.rounds),
        "calibration": calibration,
        "commands": lambda: commands(max(3, asked.rounds // 2)),
    }
    record: dict[str, object] = {
        "command": "python benchmarks/speed.py",
        "machine": runs.machine(),
        "rounds": asked.rounds,
        "load_average": os.getloadavg()[0],
    }
    if asked.out.exists():  # of a run that was stopped
        kept = json.loads(asked.out.read_text())
        if kept["rounds"] == asked.rounds and set(kept) - set(record) < set(PARTS):
            record = kept
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for name in asked.parts:
        if name not in record:
            record[name] = parts[name]()
            print(name, json.dumps(record[name]), flush=True)
            files.write_json(asked.out, record)


if __name__ == "__main__":
    main()
