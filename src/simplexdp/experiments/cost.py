"""What does privacy cost in time?  Seconds of a step by method and network, side by side.

Every round times the methods one after the other, in turning order, so that a slow moment of the
machine strikes them alike; what is reported is the median over rounds of the ratio within a
round.  The time is the processor's, of one thread, from the moment a batch is read to the moment
the next one is: building the network, calibrating and evaluating lie outside.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from .. import data, files, methods
from ..runs import machine, version
from ..settings import Settings

NAME = "cost"
METHODS = ("plain", "dirichlet", "dpsgd")
# network → input shape and batch size; ResNet-18 at a batch whose per-record gradients fit memory
NETWORKS: dict[str, tuple[tuple[int, int, int], int]] = {
    "mlp": ((1, 28, 28), 250),
    "inception": ((1, 28, 28), 64),
    "resnet18": ((3, 32, 32), 16),
}
STEPS = 6  # of which the first, in which memory is fetched, is not counted
ROUNDS = 5


def run(
    folder: Path,
    *,
    networks: Sequence[str] = tuple(NETWORKS),
    rounds: int = ROUNDS,
    budget_minutes: float | None = None,
) -> Path:
    """Add rounds to cost.json until every network has enough or the time is up."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "cost.json"
    found = files.read_json(path) if path.exists() else {}
    if found.get("version") != version():
        found = {"version": version(), "machine": machine(), "rounds": {}}
    deadline = time.monotonic() + 60 * (budget_minutes or float("inf"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for number in range(rounds):
            for network in networks:
                there = found["rounds"].setdefault(network, [])
                if len(there) <= number and time.monotonic() < deadline:
                    turn = number % len(METHODS)
                    there.append(one_round(network, (*METHODS[turn:], *METHODS[:turn])))
                    files.write_json(path, {**found, **summary(found["rounds"])})
    finally:
        torch.set_num_threads(threads)
    return path


def one_round(network: str, chosen: Sequence[str] = METHODS) -> dict[str, float]:
    """Processor seconds of a step for every method, once."""
    shape, batch_size = NETWORKS[network]
    dataset = random_images(shape, 100 * batch_size)
    inputs = dataset.train.inputs.view(Clocked)
    dataset = dataclasses.replace(dataset, train=data.Split(inputs, dataset.train.labels))

    def seconds(method: str) -> float:
        settings = Settings(
            data="random", method=method, model=network, epsilon=8.0, seed=0, evaluations=1,
            batch_size=batch_size, steps=STEPS, threads=1, lr=0.1,
        )  # fmt: skip
        Clocked.ticks.clear()
        methods.method(method)(settings, dataset, None)
        between = np.diff(Clocked.ticks)
        return float(np.median(between[1:]))

    seconds("plain")  # not counted: whoever comes first pays for the memory of all
    return {method: seconds(method) for method in chosen}


class Clocked(np.ndarray[Any, Any]):
    """Training inputs that note the processor time whenever a batch of them is read."""

    ticks: ClassVar[list[float]] = []

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, np.ndarray):
            Clocked.ticks.append(time.process_time())
        return np.asarray(self)[rows]


def summary(rounds: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians, and medians of the ratios that the paper is about."""
    rows = []
    for network, found in rounds.items():
        if not found:
            continue
        shape, batch_size = NETWORKS[network]
        rows.append(
            {
                "network": network,
                "input_shape": list(shape),
                "batch_size": batch_size,
                "norm": "group",
                "seconds": {m: statistics.median(r[m] for r in found) for m in METHODS},
                "dirichlet_over_plain": _ratio(found, "dirichlet", "plain"),
                "dpsgd_over_dirichlet": _ratio(found, "dpsgd", "dirichlet"),
                "rounds": len(found),
            }
        )
    return {"what": "processor seconds of one training step, one thread", "networks": rows}


def random_images(shape: tuple[int, int, int], records: int) -> data.Dataset:
    """Noise in the shape of images: the time of a step does not depend on what is in them."""
    rng = np.random.default_rng(0)

    def split(size: int) -> data.Split:
        inputs = rng.integers(0, 256, (size, *shape), dtype=np.uint8)
        return data.Split(inputs, np.arange(size, dtype=np.int64) % 10)

    return data.Dataset("random", split(records), split(10), None, tuple("0123456789"))


def _ratio(rounds: Sequence[dict[str, float]], one: str, other: str) -> float:
    return statistics.median(r[one] / r[other] for r in rounds)
