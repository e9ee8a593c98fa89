"""Ratios of the core, each pair measured side by side in one run.

    python benchmarks/core.py            # writes results/benchmarks/core.json

Calibration against a plain double loop; the perturbed loss against cross entropy; the sampler
at 10^5 against 10^9 records.  Seconds are this machine's; the ratios are what travels.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from accounting import ALPHA, DELTA, plain_theorem1
from torch.nn import functional

import simplexdp
from simplexdp import accounting, files, mechanism, runs, sampling

OUT = Path(__file__).resolve().parent.parent / "results" / "benchmarks" / "core.json"
ROUNDS = 15


def side_by_side(
    jobs: dict[str, Callable[[], object]], rounds: int = ROUNDS, repeats: int = 1
) -> dict[str, float]:
    """The median seconds of each job, interleaved so that a slow moment hits all of them.

    `repeats` calls in a row are timed together: in training, too, the caches are warm.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()
    for _ in range(rounds):
        for name, job in jobs.items():
            began = time.perf_counter()
            for _ in range(repeats):
                job()
            seconds[name].append((time.perf_counter() - began) / repeats)
    return {name: float(np.median(values)) for name, values in seconds.items()}


def calibrate_by_loops(epsilon: float, q: float, steps: int) -> float:
    """Bisection with the double loop, until r is known to 1e-6."""
    low, high = 1e-3, ALPHA
    while high - low > 1e-6:
        middle = (low + high) / 2
        if plain_theorem1(middle, q, steps) <= epsilon:
            low = middle
        else:
            high = middle
    return low


def calibration() -> dict[str, float]:
    schedule = {"delta": DELTA, "alpha": ALPHA, "sample_rate": 0.005, "steps": 20_000}
    seconds = side_by_side(
        {
            "simplexdp": lambda: accounting.calibrate("theorem1", epsilon=1.0, **schedule),
            "double_loop": lambda: calibrate_by_loops(1.0, 0.005, 20_000),
        },
        rounds=5,
    )
    ours = accounting.calibrate("theorem1", epsilon=1.0, **schedule).r
    theirs = calibrate_by_loops(1.0, 0.005, 20_000)
    return {
        "simplexdp_seconds": seconds["simplexdp"],
        "double_loop_seconds": seconds["double_loop"],
        "speedup": seconds["double_loop"] / seconds["simplexdp"],
        "r_difference": abs(ours - theirs),
    }


def losses(classes: int, batch: int) -> dict[str, float]:
    logits = torch.randn(batch, classes)
    labels = torch.randint(0, classes, (batch,))
    rng = np.random.default_rng(0)

    def backward(loss: Callable[[torch.Tensor], torch.Tensor]) -> None:
        leaf = logits.detach().requires_grad_()
        loss(leaf).sum().backward()

    jobs: dict[str, Callable[[], object]] = {
        "cross_entropy": lambda: backward(lambda z: functional.cross_entropy(z, labels)),
        "marginal": lambda: backward(
            lambda z: mechanism.perturbed_nll(z, labels, 0.28, 3.0, rng, "marginal")
        ),
        "full": lambda: backward(
            lambda z: mechanism.perturbed_nll(z, labels, 0.28, 3.0, rng, "full")
        ),
    }
    large = classes >= 100_000
    seconds = side_by_side(jobs, rounds=3 if large else ROUNDS, repeats=1 if large else 20)
    return {
        "batch": batch,
        "cross_entropy_seconds": seconds["cross_entropy"],
        "marginal_over_cross_entropy": seconds["marginal"] / seconds["cross_entropy"],
        "full_over_cross_entropy": seconds["full"] / seconds["cross_entropy"],
    }


def sampler() -> dict[str, float]:
    def draw(records: int) -> Callable[[], object]:
        return lambda: [
            sampling.poisson_batch(records, 250 / records, sampling.stream(1, "batch", step))
            for step in range(200)
        ]

    seconds = side_by_side({"1e5": draw(10**5), "1e9": draw(10**9)})
    return {
        "microseconds_a_step_at_1e5": 1e6 * seconds["1e5"] / 200,
        "microseconds_a_step_at_1e9": 1e6 * seconds["1e9"] / 200,
        "ratio": seconds["1e9"] / seconds["1e5"],
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    record = {
        "command": "python benchmarks/core.py",
        "machine": runs.machine(),
        "version": simplexdp.__version__,
        "calibration_cifar10_epsilon_1": calibration(),
        "loss_forward_and_backward": {
            str(classes): losses(classes, batch)
            for classes, batch in ((10, 250), (1000, 250), (100_000, 50))
        },
        "sampler_250_of_n": sampler(),
    }
    OUT.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(OUT, record)
    print(OUT.read_text())


if __name__ == "__main__":
    main()
