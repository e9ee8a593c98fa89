"""Certified training beside its peers, on the same rows, in one process.

    python benchmarks/certified_peers.py --data digits mnist --diffprivlib-python PYTHON

- Opacus: the same linear model, the same steps, with per-example gradients: seconds a step, and
  the accuracy and seconds of a whole training at ε = 1.
- diffprivlib's LogisticRegression at the same ε: accuracy and seconds. Its guarantee is pure ε
  (δ = 0) and add/remove-like; ours is (ε, 1e-5) under zero-out with public labels. In its favour
  the best of several C by test accuracy, where fits are short, and its default C where not.

Both peers and `certified` see the columns scaled by their format's range (no scattering), so that
the model is the same; `certified` uses its private mean and moments, which are part of its budget.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opacus.grad_sample import GradSampleModule
from torch import nn

from simplexdp import data, features, linear, runs
from simplexdp.files import read_json, write_json
from simplexdp.linear import exact_sums, noisy_gd
from simplexdp.methods import certified, dpsgd_step, fixed_features

DELTA = 1e-5
EPSILONS = (0.5, 1.0, 2.0, 4.0)
PENALTIES = (1.0, 0.1, 0.01)  # diffprivlib's C, its default first
SHORT = 10_000  # records up to which all of them are tried, with every seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["digits"])
    parser.add_argument(
        "--diffprivlib-python", required=True, help="an interpreter with diffprivlib"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--timed-records", type=int, default=10_000)
    parser.add_argument("--timed-steps", type=int, default=3)
    parser.add_argument("--timed-rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/certified/peers.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    record: dict[str, Any] = read_json(arguments.out) if arguments.out.exists() else {}
    record["machine"] = {**runs.machine(), "load_average": round(os.getloadavg()[0], 2)}
    for name in arguments.data:
        if name not in record.get("data", {}):
            found = on_data_set(name, arguments)
            record.setdefault("data", {})[name] = found
            write_json(arguments.out, record)


def on_data_set(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """The time of a step beside Opacus, and accuracy beside diffprivlib at every ε."""
    dataset = data.load(name)
    feature_map = features.build("columns", dataset.input_shape)
    rows = features.compute(dataset.train.inputs, feature_map)
    test = features.compute(dataset.test.inputs, feature_map)
    labels, held = dataset.train.labels, dataset.test.labels
    step = time_of_a_step(name, arguments)
    same = same_steps(rows, labels, test, held, dataset.classes)
    print(name, step, same, flush=True)
    budgets = []
    with tempfile.TemporaryDirectory() as folder:
        shared = Path(folder) / "rows.npz"
        np.savez(shared, rows=rows, labels=labels, test=test, held=held)
        for epsilon in EPSILONS:
            ours = [
                _certified(rows, labels, test, held, dataset.classes, epsilon, seed)
                for seed in range(arguments.seeds)
            ]
            short = len(rows) < SHORT
            theirs = [
                {
                    **_summary(
                        [
                            _diffprivlib(arguments.diffprivlib_python, shared, epsilon, seed, c)
                            for seed in range(arguments.seeds if short else 1)
                        ]
                    ),
                    "C": c,
                }
                for c in (PENALTIES if short else PENALTIES[:1])
            ]
            best = max(theirs, key=lambda found: float(found["accuracy"]))
            budgets.append({"epsilon": epsilon, "certified": _summary(ours), "diffprivlib": best})
            print(name, budgets[-1], flush=True)
    return {
        "records": len(rows),
        "columns": rows.shape[1],
        "step": step,
        "opacus": same,
        "budgets": budgets,
    }


def time_of_a_step(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Processor seconds of one full-batch step: closed-form clipping, or per-example gradients."""
    dataset = data.load(name)
    count = min(arguments.timed_records, len(dataset.train.labels))
    feature_map = features.build("auto", dataset.input_shape)
    source = features.compute(dataset.train.inputs[:count], feature_map, use_cache=False)
    labels = torch.from_numpy(dataset.train.labels[:count])
    rows = exact_sums.quantize(torch.from_numpy(source), 4.0)
    prior = torch.zeros(dataset.classes)
    schedule = noisy_gd.Schedule(arguments.timed_steps, 0.5, 1.0)
    bits = fixed_features.noise_bits(0)
    layer = nn.Linear(rows.width, dataset.classes, bias=False)
    GradSampleModule(layer, loss_reduction="sum")
    inputs = rows.integers * exact_sums.ROW_UNIT
    chosen = dpsgd_step.StepParameters(0.5, 10.0, float(count), False, 1, (), 128)
    rng = np.random.default_rng(0)

    def certified_steps() -> None:
        noisy_gd.descend(rows, labels, prior, schedule, 10.0, bits)

    def opacus_steps() -> None:
        for _ in range(arguments.timed_steps):
            totals = dpsgd_step.clipped_sum(layer, inputs, labels, chosen, rng)
            dpsgd_step.set_noisy_gradient(layer, totals, chosen, rng)

    # In turns, so that a slow moment strikes both; the first round, which fetches memory, is left.
    rounds = [
        [
            _processor_seconds(steps) / arguments.timed_steps
            for steps in (certified_steps, opacus_steps)
        ]
        for _ in range(arguments.timed_rounds + 1)
    ][1:]
    ours, theirs = np.median(np.array(rounds), axis=0)
    ratio = np.median([other / own for own, other in rounds])
    return {
        "records": count,
        "features": feature_map.name,
        "width": rows.width,
        "certified_seconds": round(float(ours), 4),
        "opacus_seconds": round(float(theirs), 4),
        "ratio": round(float(ratio), 2),
    }


def _processor_seconds(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def same_steps(rows: Any, labels: Any, test: Any, held: Any, classes: int) -> dict[str, Any]:
    """One training of the same linear model by either: steps, clip, rate and noise are equal."""
    epsilon, shape = 1.0, (rows.shape[1], 1)
    began = time.process_time()
    rule, cost = linear.planned(len(rows), epsilon, DELTA, shape, mean_share=0.0, moment_share=0.0)
    fitted = linear.fit(rows, labels, classes, shape, rule, cost, fixed_features.noise_bits(0))
    ours = time.process_time() - began
    accuracy = certified.score(fitted, test, held)

    began = time.process_time()
    schedule = rule.schedule
    layer = nn.Linear(rows.shape[1], classes, bias=False)
    GradSampleModule(layer, loss_reduction="sum")
    prior = torch.from_numpy(linear.public_log_prior(labels, classes)).float()
    biased = nn.Sequential(layer, AddPrior(prior))
    inputs, targets = torch.from_numpy(rows), torch.from_numpy(labels)
    chosen = dpsgd_step.StepParameters(
        schedule.clip, cost.noise_multiplier, float(len(rows)), False, 1, (), 512
    )
    rng = np.random.default_rng(0)
    average = torch.zeros_like(layer.weight)
    first = schedule.steps - max(1, round(schedule.averaged * schedule.steps))
    with torch.no_grad():
        layer.weight.zero_()
    for step in range(schedule.steps):
        totals = dpsgd_step.clipped_sum(biased, inputs, targets, chosen, rng)
        dpsgd_step.set_noisy_gradient(layer, totals, chosen, rng)
        with torch.no_grad():
            layer.weight -= schedule.lr * layer.weight.grad
            if step >= first:
                average += layer.weight / (schedule.steps - first)
    theirs = time.process_time() - began
    logits = torch.from_numpy(test) @ average.T + prior
    return {
        "epsilon": epsilon,
        "steps": schedule.steps,
        "certified_accuracy": round(accuracy, 4),
        "certified_seconds": round(ours, 3),
        "opacus_accuracy": round(float((logits.argmax(1).numpy() == held).mean()), 4),
        "opacus_seconds": round(theirs, 3),
    }


class AddPrior(nn.Module):
    """The public log prior as a bias that is not trained."""

    def __init__(self, prior: torch.Tensor) -> None:
        super().__init__()
        self.prior = prior

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return logits + self.prior


def _certified(
    rows: Any, labels: Any, test: Any, held: Any, classes: int, epsilon: float, seed: int
) -> tuple[float, float]:
    began = time.process_time()
    shape = (rows.shape[1], 1)
    rule, cost = linear.planned(len(rows), epsilon, DELTA, shape)
    fitted = linear.fit(rows, labels, classes, shape, rule, cost, fixed_features.noise_bits(seed))
    return certified.score(fitted, test, held), time.process_time() - began


def _diffprivlib(
    python: str, rows: Path, epsilon: float, seed: int, weight: float
) -> tuple[float, float]:
    script = Path(__file__).with_name("diffprivlib_peer.py")
    done = subprocess.run(
        [python, str(script), str(rows), str(epsilon), str(seed), str(weight)],
        check=True,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)
    return found["accuracy"], found["seconds"]


def _summary(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    accuracies, seconds = zip(*pairs, strict=True)
    return {
        "accuracy": round(float(np.mean(accuracies)), 4),
        "deviation": round(float(np.std(accuracies)), 4),
        "seconds": round(float(np.mean(seconds)), 3),
        "runs": len(pairs),
    }


if __name__ == "__main__":
    main()
