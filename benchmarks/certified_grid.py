"""Certified training over data sets, budgets and seeds: one small record a run, resumable.

    python benchmarks/certified_grid.py --data fashion-mnist mnist --epsilons 0.5 1 2 4 --seeds 5

A record that exists is not made again. Features are computed once and cached; `seconds` is the
time of the fit alone. The seed makes a run repeatable, so its weights are for measuring only.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from simplexdp import data, features, runs
from simplexdp.accounting.gaussian import calibrate_mu
from simplexdp.files import write_json
from simplexdp.methods import certified, linear, linear_rule

DELTA = 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["digits"])
    parser.add_argument("--data-dir", help="where DermaMNIST's file is")
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 2.0, 4.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/certified"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.data:
        run_data_set(name, arguments)


def run_data_set(name: str, arguments: argparse.Namespace) -> None:
    """All budgets and seeds of one data set; seeds in the outer loop, so every ε has one early."""
    todo = [
        (epsilon, seed)
        for seed in range(arguments.seeds)
        for epsilon in arguments.epsilons
        if not record_path(arguments.out, name, epsilon, seed).exists()
    ]
    if not todo:
        return
    options = (
        {"data_dir": arguments.data_dir, "allow_unverified": True} if arguments.data_dir else {}
    )
    dataset = data.load(name, **options)
    feature_map = features.build("auto", dataset.input_shape)
    rows = np.array(features.compute(dataset.train.inputs, feature_map))
    test = features.compute(dataset.test.inputs, feature_map)
    for epsilon, seed in todo:
        record = one(dataset, feature_map, rows, test, epsilon, seed)
        write_json(record_path(arguments.out, name, epsilon, seed), record)
        print(
            json.dumps({k: record[k] for k in ("data", "epsilon", "seed", "accuracy", "seconds")})
        )


def record_path(out: Path, name: str, epsilon: float, seed: int) -> Path:
    return out / f"{name}-eps{epsilon:g}-seed{seed}.json"


def one(
    dataset: data.Dataset,
    feature_map: features.FeatureMap,
    rows: np.ndarray,
    test: np.ndarray,
    epsilon: float,
    seed: int,
) -> dict[str, object]:
    """One fit and its record."""
    rule = linear_rule.choose(len(rows), calibrate_mu(epsilon, DELTA))
    cost = linear.spending(epsilon, DELTA, rule)
    began, busy = time.monotonic(), time.process_time()
    fitted = linear.fit(
        rows,
        dataset.train.labels,
        dataset.classes,
        (feature_map.channels, feature_map.positions),
        rule,
        cost,
        certified.noise_bits(seed),
    )
    seconds, busy = time.monotonic() - began, time.process_time() - busy
    return {
        "data": dataset.name,
        "method": "certified",
        "features": feature_map.name,
        "epsilon": epsilon,
        "epsilon_spent": cost.epsilon,
        "delta": DELTA,
        "relation": "zero-out",
        "covers_weights": True,
        "seed": seed,
        "accuracy": certified.score(fitted, test, dataset.test.labels),
        "records": len(rows),
        "test_records": len(dataset.test.labels),
        "seconds": round(seconds, 2),
        "cpu_seconds": round(busy, 2),
        "chosen": fitted.chosen(),
        "provenance": list(dataset.provenance),
        "machine": {**runs.machine(), "shared": "with other work at the same time"},
        "versions": {
            "simplexdp": version("simplexdp"),
            "numpy": np.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


if __name__ == "__main__":
    main()
