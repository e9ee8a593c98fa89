"""Rare classes with the noise and without it, and with class weights.

One class of FashionMNIST is kept large and six are thinned, to DermaMNIST's class counts.  The same
network is trained on the same Poisson batches with the cross entropy, with the expectation of
Algorithm 1's loss (its closed form: no noise, and no privacy) and with Algorithm 1; the first and
the last of them also with class weights.

    python benchmarks/lost_classes.py

Some minutes on an idle machine.  Writes results/benchmarks/lost_classes.json and the tables on
results/tables.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from classes import PAGE, RESULTS
from torch import Tensor
from torch.nn import functional

import simplexdp
from simplexdp import Plan, data, files, mechanism, models, runs
from simplexdp.loss import balanced_weights
from simplexdp.paper import recipes
from simplexdp.schedule import TYPICAL_TRUE_CLASS_PROBABILITY
from simplexdp.training import seed_torch

OUT = RESULTS / "benchmarks" / "lost_classes.json"
COUNTS = (4693, 228, 359, 769, 80, 779, 99)  # DermaMNIST's, its largest class first
EPSILON, BATCH, STEPS, SEEDS = 1.0, 35, 2000, 5
RATES: tuple[float | None, ...] = (None, 0.1)
LOSSES = (
    "cross entropy",
    "Algorithm 1 without noise",
    "Algorithm 1",
    "cross entropy, class weights",
    "Algorithm 1, class weights",
)
FOUND = 0.01  # the least recall that counts as finding a class
Criterion = Callable[[Tensor, Tensor], Tensor]


def thinned(seed: int) -> data.Dataset:
    """FashionMNIST's first seven classes with DermaMNIST's counts; the test classes stay whole."""
    whole = data.load("fashion-mnist")
    rng = np.random.default_rng(seed)
    rows = np.concatenate(
        [
            rng.permutation(np.flatnonzero(whole.train.labels == k))[:count]
            for k, count in enumerate(COUNTS)
        ]
    )
    tested = np.flatnonzero(whole.test.labels < len(COUNTS))
    return dataclasses.replace(
        whole,
        train=data.Split(whole.train.inputs[rows], whole.train.labels[rows]),
        test=data.Split(whole.test.inputs[tested], whole.test.labels[tested]),
        class_names=whole.class_names[: len(COUNTS)],
    )


def without_noise(plan: Plan) -> Criterion:
    """The mean of the closed form of the expected loss, up to its constant."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        s_y = (-functional.cross_entropy(logits, labels, reduction="none").double()).exp()
        return -torch.digamma(plan.r * s_y + plan.alpha).mean()

    return loss


def weighted(weights: Tensor) -> Criterion:
    """The mean of the records' cross entropies times their weights."""

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        return (weights[labels] * functional.cross_entropy(logits, labels, reduction="none")).mean()

    return loss


def trained(dataset: data.Dataset, kind: str, rate: float | None, seed: int) -> dict[str, Any]:
    """Train one network and see which classes it finds."""
    records, classes = len(dataset.train.labels), dataset.classes
    plan = Plan(EPSILON, 1e-5, records, batch_size=BATCH, steps=STEPS, seed=seed)
    rate = plan.learning_rate() if rate is None else rate
    weights = balanced_weights(dataset.train.labels, classes)
    criterion: Criterion = {
        "cross entropy": lambda: functional.cross_entropy,
        "Algorithm 1 without noise": lambda: without_noise(plan),
        "Algorithm 1": plan.loss,
        "cross entropy, class weights": lambda: weighted(weights),
        "Algorithm 1, class weights": lambda: plan.loss(weights),
    }[kind]()
    if kind.startswith("cross entropy"):  # the step of Algorithm 1 in expectation, by Theorem 2
        rate *= float(mechanism.attenuation(TYPICAL_TRUE_CLASS_PROBABILITY, plan.r, plan.alpha))
    seed_torch(seed, "weights", 0)
    model = models.build("mlp", dataset.input_shape, classes, "none")
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for inputs, labels in plan.batches((dataset.train.inputs, dataset.train.labels)):
        if len(labels):
            optimizer.zero_grad()
            criterion(model(data.to_model_input(inputs)), labels).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        outputs = model(data.to_model_input(torch.from_numpy(dataset.test.inputs))).softmax(1)
    found = outputs.argmax(1).numpy()
    of_class = [found[dataset.test.labels == k] for k in range(classes)]
    return {
        "r": plan.r,
        "lr": rate,
        "recall": [float((predicted == k).mean()) for k, predicted in enumerate(of_class)],
        "never_predicted": sorted(set(range(classes)) - set(found.tolist())),
        "confidence": float(outputs.max(1).values.mean()),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Mean recall and confidence, and how many classes are not found."""
    lines = [
        "| loss | learning rate | mean recall | mean confidence | classes not found, of 7 |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        recall = 100 * np.array([np.mean(run["recall"]) for run in row["runs"]])
        confidence = 100 * np.mean([run["confidence"] for run in row["runs"]])
        missed = [sum(recall < FOUND for recall in run["recall"]) for run in row["runs"]]
        few, many = min(missed), max(missed)
        rate = "auto" if row["lr"] is None else f"{row['lr']:g}"
        lines.append(
            f"| {row['loss']} | {rate} | {recall.mean():.1f} ± {recall.std(ddof=1):.1f} "
            f"| {confidence:.1f} | {few if few == many else f'{few} to {many}'} |"
        )
    return "\n".join(lines)


def shares() -> list[dict[str, Any]]:
    """What the paper's recipes give up, for their own r."""
    found = []
    for name in ("fashion-mnist", "dermamnist"):
        recipe = recipes.recipe(name)
        for epsilon in recipe.epsilons:
            settings = recipes.settings(name, epsilon=epsilon)
            plan = Plan(
                epsilon, settings.delta, recipe.records,
                batch_size=settings.batch_size, steps=settings.steps, alpha=settings.alpha,
            )  # fmt: skip
            found.append(
                {
                    "recipe": name,
                    "epsilon": epsilon,
                    "r": plan.r,
                    "share": mechanism.share_given_up(plan.r, plan.alpha),
                }
            )
    return found


def share_table(found: list[dict[str, Any]]) -> str:
    """A row for each budget of the recipes."""
    lines = ["| recipe | ε | r | given up below |", "|---|---|---|---|"]
    lines += [
        f"| {row['recipe']} | {row['epsilon']:g} | {row['r']:.3f} | {100 * row['share']:.0f} % |"
        for row in found
    ]
    return "\n".join(lines)


def main() -> None:
    """Train, write, renew."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    rows: list[dict[str, Any]] = [
        {"loss": kind, "lr": rate, "runs": []} for rate in RATES for kind in LOSSES
    ]
    for seed in range(SEEDS):
        dataset = thinned(seed)
        for row in rows:
            row["runs"].append(trained(dataset, row["loss"], row["lr"], seed))
            print(seed, row["loss"], row["lr"], row["runs"][-1]["recall"], flush=True)
    found = {
        "machine": {**runs.machine(), "version": simplexdp.__version__},
        "epsilon": EPSILON,
        "batch_size": BATCH,
        "steps": STEPS,
        "seeds": SEEDS,
        "counts": COUNTS,
        "seconds": round(time.monotonic() - began, 1),
        "rows": rows,
        "shares": shares(),
    }
    files.write_json(OUT, found)
    files.put_between(PAGE, "lost", table(rows))
    files.put_between(PAGE, "given up", share_table(found["shares"]))


if __name__ == "__main__":
    main()
