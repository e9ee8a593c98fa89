"""The cost of privacy in time: seconds of a step by method and network, side by side.

The methods train at once, each in a thread, and hand a baton round at every step: one step of
each makes a round, so that a slow moment of the machine strikes them alike. The order within a
round goes through all permutations. What is reported is the median over rounds of the ratio
within a round. The time is the processor's, of one thread, from the moment a batch is read to
the moment the next one is: building the network, calibrating and evaluating lie outside.
"""

from __future__ import annotations

import itertools
import math
import statistics
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simplexdp import data, files, methods, progress
from simplexdp.methods.base import Run
from simplexdp.runs import machine
from simplexdp.settings import Settings

NAME = "cost"
METHODS = ("plain", "dirichlet", "dpsgd")
# network → input shape and batch size; ResNet-18 at a batch whose per-record gradients fit memory
NETWORKS: dict[str, tuple[tuple[int, int, int], int]] = {
    "mlp": ((1, 28, 28), 250),
    "inception": ((1, 28, 28), 64),
    "resnet18": ((3, 32, 32), 16),
}
ROUNDS = 36
AT_ONCE = 12  # rounds of one training: every permutation of three methods twice


def run(
    folder: Path,
    *,
    networks: Sequence[str] = tuple(NETWORKS),
    rounds: int = ROUNDS,
    budget_minutes: float | None = None,
    show_progress: bool = False,
) -> Path:
    """Add rounds to cost.json until every network has enough or the time is up."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "cost.json"
    found = files.read_json(path) if path.exists() else {}
    deadline = time.monotonic() + 60 * (budget_minutes or float("inf"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        revisions = {name: methods.lookup(name).revision for name in METHODS}
        here = {"revisions": revisions, "machine": machine()}
        found = found or {**here, "rounds": {}}
        if {name: found.get(name) for name in here} != here:
            raise ValueError(
                f"{path} was measured by another revision or on another machine; "
                "name another folder with --results, or delete the file"
            )
        with progress.bars(show_progress) as shown:
            bar = shown.add_task("rounds", total=rounds * len(networks))
            for reached in range(0, rounds, AT_ONCE):
                for network in networks:
                    there = found["rounds"].setdefault(network, [])
                    missing = min(rounds, reached + AT_ONCE) - len(there)
                    if missing > 0 and time.monotonic() < deadline:
                        there += some_rounds(network, missing)
                        files.write_json(path, {**found, **summary(found["rounds"])})
                    done = sum(min(rounds, len(of)) for of in found["rounds"].values())
                    shown.update(bar, completed=done, description=f"rounds with {network}")
    finally:
        torch.set_num_threads(threads)
    return path


def some_rounds(
    network: str, rounds: int, chosen: Sequence[str] = METHODS
) -> list[dict[str, float]]:
    """Return the processor seconds of a step for every method, in every round."""
    shape, batch_size = NETWORKS[network]
    dataset = random_images(shape, 100 * batch_size)
    orders = itertools.islice(itertools.cycle(itertools.permutations(chosen)), rounds)
    # Before the rounds all build their networks and make a step that is not counted: it fetches
    # memory.  After them all make one more, which ends with the evaluation.
    baton = Baton([*chosen, *chosen, *itertools.chain.from_iterable(orders), *chosen])

    def seconds(method: str) -> list[float]:
        settings = Settings(
            data="random", method=method, model=network, epsilon=8.0, seed=0, evaluations=1,
            batch_size=batch_size, steps=rounds + 2, threads=1, lr=0.1,
        )  # fmt: skip
        held: list[float] = []
        began = 0.0

        def hand_on(step: int) -> None:
            nonlocal began
            held.append(time.process_time() - began)
            baton.hand_on()
            baton.wait_for(method)
            began = time.process_time()

        with baton.or_drop():
            torch.set_num_threads(1)
            baton.wait_for(method)
            methods.prepare(settings, dataset).start(Run(on_step=hand_on))
            baton.hand_on()
        return held[2:]

    with ThreadPoolExecutor(len(chosen)) as pool, baton.or_drop():
        found = dict(zip(chosen, pool.map(seconds, chosen), strict=True))
    return [{method: found[method][i] for method in chosen} for i in range(rounds)]


class Baton:
    """A queue of names, known beforehand; who is first in it may run."""

    def __init__(self, order: Sequence[str]) -> None:
        self._order = deque(order)
        self._failure: BaseException | None = None
        self._changed = threading.Condition()

    def wait_for(self, name: str) -> None:
        """Return when it is this one's turn; raise when another one has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure is not None or self._order[0] == name)
            if self._failure is not None:
                raise self._failure

    def hand_on(self) -> None:
        """Let the next one run."""
        with self._changed:
            self._order.popleft()
            self._changed.notify_all()

    @contextmanager
    def or_drop(self) -> Iterator[None]:
        """Let the others go where what runs inside fails, all with the first one's error."""
        try:
            yield
        except BaseException as error:
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()
            raise


def summary(rounds: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Return medians, and medians of the ratios that the paper is about, with intervals."""
    rows = []
    for network, found in rounds.items():
        if not found:
            continue
        shape, batch_size = NETWORKS[network]
        row: dict[str, Any] = {
            "network": network,
            "input_shape": list(shape),
            "batch_size": batch_size,
            "norm": "group",
            "seconds": {m: statistics.median(r[m] for r in found) for m in METHODS},
            "rounds": len(found),
        }
        for one, other in (("dirichlet", "plain"), ("dpsgd", "dirichlet")):
            ratios = [r[one] / r[other] for r in found]
            row[f"{one}_over_{other}"] = statistics.median(ratios)
            row[f"{one}_over_{other}_interval"] = interval(ratios)
        rows.append(row)
    return {"what": "processor seconds of one training step, one thread", "networks": rows}


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return an interval with at least 95 % confidence for the median of independent values.

    It holds whatever their distribution.

    Between the k-th smallest and the k-th largest, where k is the largest number such that a fair
    coin shows fewer than k heads with probability at most 2.5 %; None where there is no such k.
    """
    n, rank, below = len(values), 0, 0.0
    while (below := below + math.comb(n, rank) / 2**n) <= 0.025:
        rank += 1
    ordered = sorted(values)
    return (ordered[rank - 1], ordered[n - rank]) if rank else None


def random_images(shape: tuple[int, int, int], records: int) -> data.Dataset:
    """Return noise in the shape of images: what is in them does not change a step's time."""
    rng = np.random.default_rng(0)

    def split(size: int) -> data.Split:
        inputs = rng.integers(0, 256, (size, *shape), dtype=np.uint8)
        return data.Split(inputs, np.arange(size, dtype=np.int64) % 10)

    return data.Dataset("random", split(records), split(10), None, tuple("0123456789"))
