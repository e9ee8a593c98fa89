"""The time of DP-SGD's step beside Opacus', and of its parts, as ratios in one run.

    python benchmarks/dpsgd.py [--rounds 15] [--network mlp ...]

One round makes one step of every column on the same batch, in an order that changes from round to
round, so that a slow moment of the machine strikes all alike. A step is a pass forward and back,
clipping, noise and plain gradient descent. Columns: ours; Opacus' hooks (all gradients by record);
Opacus' ghost clipping (norms first, then a second pass back); a step without privacy. Opacus' own
optimizer clips, adds its noise and averages. The time is the processor's, of one thread.

Calibration is timed too: the noise for a budget of (1, 1e-5), beside one figure by Opacus' PRV
accountant and one by dp-accounting's own grid for that noise.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from opacus.accountants import PRVAccountant
from opacus.grad_sample import GradSampleModule
from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import (
    GradSampleModuleFastGradientClipping,
)
from opacus.optimizers import DPOptimizer
from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.nn import functional

from simplexdp import files, models, sampling
from simplexdp.accounting import composed, sampled_gaussian
from simplexdp.methods.dpsgd.probe import check_by_record, hooked
from simplexdp.methods.dpsgd.step import StepParameters, clipped_sum, set_noisy_gradient
from simplexdp.paper.cost import interval
from simplexdp.runs import machine

PAGE = Path(__file__).parents[1] / "results" / "tables.md"
OUT = Path(__file__).parents[1] / "results" / "benchmarks" / "dpsgd.json"
# network → input shape and batch
NETWORKS: dict[str, tuple[tuple[int, int, int], int]] = {
    "mlp": ((1, 28, 28), 250),
    "inception": ((1, 28, 28), 64),
    "resnet18": ((3, 32, 32), 16),
    "fast": ((1, 28, 28), 128),
}
CLASSES, CLIP, SIGMA, RATE = 10, 1.0, 1.0, 0.1
DELTA, PRV_ERROR = 1e-5, 0.002
PEERS = "dp-accounting", "opacus' PRV"
OURS, HOOKS, GHOST, PLAIN = "ours", "opacus hooks", "opacus ghost", "without privacy"
Step = Callable[[Tensor, Tensor], Any]


def ours(model: nn.Module, shape: tuple[int, ...], batch: int) -> Step:
    """Return a step as `dpsgd` makes it."""
    check_by_record(model, shape, CLASSES)
    hooked(model)
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    chosen = StepParameters(CLIP, SIGMA, batch, False, 1, (), batch)
    seconds = Parts()

    def step(inputs: Tensor, labels: Tensor) -> None:
        rng = sampling.stream(1, "copies", seconds.steps)
        totals = clipped_sum(model, inputs, labels, chosen, rng)
        with seconds:
            set_noisy_gradient(model, totals, chosen, sampling.stream(1, "noise", seconds.steps))
        optimizer.step()

    step.noise = seconds  # type: ignore[attr-defined]
    return step


class Parts:
    """The seconds of a part of every step."""

    def __init__(self) -> None:
        self.steps, self.last = 0, 0.0

    def __enter__(self) -> None:
        self.began = time.process_time()

    def __exit__(self, *_: object) -> None:
        self.steps, self.last = self.steps + 1, time.process_time() - self.began


def opacus_hooks(model: nn.Module, shape: tuple[int, ...], batch: int) -> Step:
    """Return a step with all gradients by record."""
    wrapped = GradSampleModule(model, loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), RATE), noise_multiplier=SIGMA, max_grad_norm=CLIP,
        expected_batch_size=batch,
    )  # fmt: skip

    def step(inputs: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        functional.cross_entropy(wrapped(inputs), labels, reduction="sum").backward()
        optimizer.step()

    return step


def opacus_ghost(model: nn.Module, shape: tuple[int, ...], batch: int) -> Step:
    """Return a step by Opacus' ghost clipping."""
    wrapped = GradSampleModuleFastGradientClipping(
        model, max_grad_norm=CLIP, use_ghost_clipping=True, loss_reduction="sum"
    )
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(model.parameters(), RATE), noise_multiplier=SIGMA, max_grad_norm=CLIP,
        expected_batch_size=batch, loss_reduction="sum",
    )  # fmt: skip
    loss = DPLossFastGradientClipping(
        wrapped, optimizer, nn.CrossEntropyLoss(reduction="sum"), loss_reduction="sum"
    )

    def step(inputs: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        loss(wrapped(inputs), labels).backward()
        optimizer.step()

    return step


def plain(model: nn.Module, shape: tuple[int, ...], batch: int) -> Step:
    """Return a step without privacy."""
    optimizer = torch.optim.SGD(model.parameters(), RATE)

    def step(inputs: Tensor, labels: Tensor) -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    return step


COLUMNS = {OURS: ours, HOOKS: opacus_hooks, GHOST: opacus_ghost, PLAIN: plain}


def rounds_of(network: str, rounds: int) -> list[dict[str, float]]:
    """Return the processor seconds of a step by column, in every round; two more are not told."""
    shape, batch = NETWORKS[network]
    torch.manual_seed(0)
    model = models.build(network, shape, CLASSES, "group")
    steps = {name: make(copy.deepcopy(model), shape, batch) for name, make in COLUMNS.items()}
    rng = np.random.default_rng(0)
    orders = itertools.cycle(itertools.permutations(steps))
    found = []
    for _ in range(rounds + 2):
        inputs = torch.from_numpy(rng.standard_normal((batch, *shape), dtype=np.float32))
        labels = torch.from_numpy(rng.integers(0, CLASSES, batch))
        row = {}
        for name in next(orders):
            began = time.process_time()
            steps[name](inputs, labels)
            row[name] = time.process_time() - began
        row["noise"] = steps[OURS].noise.last  # type: ignore[attr-defined]
        found.append(row)
    return found[2:]


def summary(network: str, found: list[dict[str, float]]) -> dict[str, Any]:
    """Return medians, and medians of ratios within a round, with their intervals."""
    shape, batch = NETWORKS[network]
    seconds = {name: statistics.median(row[name] for row in found) for name in found[0]}
    best = min((HOOKS, GHOST), key=seconds.__getitem__)
    ratios = {
        "ours over opacus' best": [row[OURS] / row[best] for row in found],
        "noise over ours": [row["noise"] / row[OURS] for row in found],
        "ours over plain": [row[OURS] / row[PLAIN] for row in found],
    }
    return {
        "network": network,
        "input_shape": list(shape),
        "batch_size": batch,
        "rounds": len(found),
        "seconds": seconds,
        "opacus' best": best,
        "ratios": {
            name: {"median": statistics.median(of), "interval": interval(of)}
            for name, of in ratios.items()
        },
    }


SCHEDULES = ((0.01, 500), (0.005, 20_000), (0.001, 1_000_000))
PRV_STEPS = 20_000  # beyond it Opacus' figure takes minutes


def calibrations() -> list[dict[str, Any]]:
    """Return processor seconds of a calibration and of peers' figures, with all their ε."""
    rows = []
    for rate, steps in SCHEDULES:
        rounds, cost = [], 0.0
        for _ in range(3):
            sampled_gaussian.calibrate.cache_clear()
            composed.epsilon.cache_clear()
            composed.step_pmfs.cache_clear()
            began = time.process_time()
            sigma, cost = sampled_gaussian.calibrate(1.0, DELTA, rate, steps)
            rounds.append(time.process_time() - began)
        row: dict[str, Any] = {
            "rate": rate,
            "steps": steps,
            "noise_multiplier": sigma,
            "epsilon": {OURS: cost},
            "seconds": {"ours, calibration": statistics.median(rounds)},
        }
        began = time.process_time()
        peer = PLDAccountant()
        peer.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(sigma)), steps)
        row["epsilon"]["dp-accounting"] = peer.get_epsilon(DELTA)
        row["seconds"]["dp-accounting, one figure"] = time.process_time() - began
        if steps <= PRV_STEPS:
            began = time.process_time()
            opacus = PRVAccountant()
            opacus.history = [(sigma, rate, steps)]
            row["epsilon"]["opacus' PRV"] = float(opacus.get_epsilon(DELTA, eps_error=PRV_ERROR))
            row["seconds"]["opacus' PRV, one figure"] = time.process_time() - began
        rows.append(row)
        print(row, flush=True)
    return rows


def page_table(found: dict[str, Any]) -> str:
    """Return the page's tables."""
    lines = [
        "| network | batch | ours, s | Opacus' hooks, s | its ghost clipping, s | plain, s "
        "| ours over Opacus' best | noise over ours |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found["networks"]:
        seconds = " | ".join(f"{row['seconds'][name]:.3g}" for name in (OURS, HOOKS, GHOST, PLAIN))
        ratios = " | ".join(
            f"{row['ratios'][name]['median']:.2f}"
            + (f" ({one[0]:.2f}–{one[1]:.2f})" if (one := row["ratios"][name]["interval"]) else "")
            for name in ("ours over opacus' best", "noise over ours")
        )
        lines.append(f"| {row['network']} | {row['batch_size']} | {seconds} | {ratios} |")
    lines += [
        "",
        "| q | T | σ for ε = 1 | our calibration, s | one figure by dp-accounting, s "
        "| one by Opacus' PRV, s | their ε at our σ |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["calibrations"]:
        seconds, epsilon = row["seconds"], row["epsilon"]
        shown = [seconds.get(f"{name}, one figure") for name in PEERS]
        peers = " | ".join("–" if one is None else f"{one:.2g}" for one in shown)
        theirs = ", ".join(f"{epsilon[name]:.4f}" for name in PEERS if name in epsilon)
        lines.append(
            f"| {row['rate']:g} | {row['steps']:,} | {row['noise_multiplier']:.4f} "
            f"| {seconds['ours, calibration']:.2g} | {peers} | {theirs} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, and write results/benchmarks/dpsgd.json and the tables of the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--network", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--dry", action="store_true", help="print, and write nothing")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    calibrated = calibrations()
    rows = []
    for network in chosen.network:
        rows.append(summary(network, rounds_of(network, chosen.rounds)))
        print(rows[-1]["network"], rows[-1]["seconds"], rows[-1]["ratios"], flush=True)
    if not chosen.dry:
        content = {
            "what": "processor seconds of one step, one thread",
            "machine": machine(),
            "load_average": os.getloadavg()[0],
            "networks": rows,
            "calibrations": calibrated,
        }
        files.write_json(OUT, content)
        files.put_between(PAGE, "dpsgd", page_table(content))


if __name__ == "__main__":
    main()
