"""What ε changes in Algorithm 1: accuracy over ε, and the spread of a gradient's factor over r.

The same network makes the same number of steps on FashionMNIST at every ε, with the link, without
it, and with errors in the logits that are a function of draw and label alone (draw-only, at α = 100
by pld). The rate is γ/κ. Of several γ the best at each ε on half of the held-out training records
is measured on the other half: the test set is not read. Beside it, what the canary audit finds in
the same method at the same budgets, on the digits (pairs of inputs, 400 trainings, 95 %).

    python benchmarks/what_epsilon_changes.py

About a quarter of an hour on an idle core. Writes results/benchmarks/what_epsilon_changes.json, in
which a line that is there is not made again, and docs/images/what-epsilon-changes.svg.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch

from simplexdp import (
    accounting,
    audit,
    batches,
    data,
    files,
    mechanism,
    models,
    optimizers,
    runs,
    sampling,
)
from simplexdp.accounting.calibration import BudgetTooSmall
from simplexdp.schedule import LEAST_USEFUL_R, TYPICAL_TRUE_CLASS_PROBABILITY
from simplexdp.settings import Settings

ROOT = Path(__file__).parent.parent
OUT = ROOT / "results" / "benchmarks" / "what_epsilon_changes.json"
FIGURE = ROOT / "docs" / "images" / "what-epsilon-changes.svg"
EPSILONS = (1.0, 8.0, 0.01, 1e-4, 0.1)
AUDITED = (1.0,)  # at 8 some hundred trainings show nothing; plans refuse the smallest
DELTA, BATCH, STEPS, HELD_OUT, SEED = 1e-5, 250, 240, 6000, 0
ROWS: dict[str, dict[str, Any]] = {
    "link": {"alpha": 3.0, "estimator": "marginal", "link": "log", "rates": [0.2]},
    "softmax": {"alpha": 3.0, "estimator": "marginal", "link": "softmax", "rates": [0.2]},
    "draw-only": {
        "alpha": 100.0,
        "estimator": "draw-only",
        "link": "softmax",
        "rates": [0.06, 0.02, 0.005, 0.0005],
    },
}
DRAWS = 200_000


def calibrated(epsilon: float, alpha: float, sample_rate: float, draw_only: bool) -> dict[str, Any]:
    """Return r by theorem1, or by pld where that leaves none, or where it pays (draw-only)."""
    schedule = {"delta": DELTA, "alpha": alpha, "sample_rate": sample_rate, "steps": STEPS}
    if not draw_only:
        try:
            found = accounting.calibrate("theorem1", epsilon=epsilon, **schedule)
        except BudgetTooSmall:  # below its floor
            found = accounting.calibrate("pld", epsilon=epsilon, **schedule)
            return {"r": found.r, "accountant": "pld"}
        if found.r >= LEAST_USEFUL_R * alpha:
            return {"r": found.r, "accountant": "theorem1"}
    return {"r": accounting.calibrate("pld", epsilon=epsilon, **schedule).r, "accountant": "pld"}


def spread(r: float, alpha: float) -> float:
    """Return the coefficient of variation of the factor of (s − e_y) in a record's gradient."""
    s_y = 0.5
    logits = torch.zeros(DRAWS, 2, dtype=torch.float64, requires_grad=True)
    rng = np.random.default_rng(SEED)
    labels = torch.zeros(DRAWS, dtype=torch.int64)
    mechanism.perturbed_nll(logits, labels, r, alpha, rng).sum().backward()
    factor = logits.grad[:, 0].numpy() / (s_y - 1)  # type: ignore[index]
    return float(factor.std() / factor.mean())


def best(row: str, epsilon: float, split: data.Split, held: data.Split) -> dict[str, Any]:
    """Return the training whose rate is best on the first half of the held-out records."""
    found, failed = [], ""
    for rate in ROWS[row]["rates"]:
        try:
            found.append(train(row, epsilon, rate, split, held))
        except ValueError as error:  # its logits are no numbers any more
            failed = str(error)
    if not found:
        return {"row": row, "epsilon": epsilon, "accuracy": None, "why": failed}
    return max(found, key=lambda one: one["chosen_by"])


def train(
    row: str, epsilon: float, gamma: float, split: data.Split, held: data.Split
) -> dict[str, Any]:
    """Return the accuracies on both halves of the held-out records after all steps."""
    given = ROWS[row]
    alpha, estimator, link = given["alpha"], given["estimator"], given["link"]
    cost = calibrated(epsilon, alpha, BATCH / len(split), estimator == "draw-only")
    kappa = 1.0
    if estimator != "draw-only":
        typical = TYPICAL_TRUE_CLASS_PROBABILITY
        kappa = float(mechanism.attenuation(typical, cost["r"], alpha, link))
    optimizers.seed_torch(SEED, "weights", 0)
    model = models.build("fast", split.inputs.shape[1:], 10)
    optimizer = optimizers.make("nesterov", model, gamma / kappa)
    rate, began = BATCH / len(split), time.process_time()
    for step in range(STEPS):
        rows = sampling.batch_of_step(len(split), rate, SEED, step)
        inputs, labels = batches.tensors(split, rows, "cpu")
        share = optimizers.share_of_rate("triangular", step, STEPS, STEPS // 5)
        optimizers.set_rate(optimizer, share)
        optimizer.zero_grad()
        rng = sampling.stream(SEED, "noise", step)
        logits = model(batches.to_network(inputs))
        losses = mechanism.perturbed_nll(logits, labels, cost["r"], alpha, rng, estimator, link)
        losses.mean().to(logits.dtype).backward()
        optimizer.step()
    with torch.no_grad():
        model.eval()
        inputs, labels = batches.tensors(held, slice(None), "cpu")
        found = model(batches.to_network(inputs)).argmax(1)
    right, half = (found == labels).float(), len(labels) // 2
    recall = [float((found[labels == k] == k).float().mean()) for k in range(10)]
    return {
        "row": row,
        "epsilon": epsilon,
        **cost,
        "alpha": alpha,
        "rate": gamma,
        "chosen_by": float(right[:half].mean()),
        "accuracy": float(right[half:].mean()),
        "worst_recall": min(recall),
        "processor_seconds": round(time.process_time() - began, 1),
    }


def leak(epsilon: float) -> dict[str, Any]:
    """Return the canary audit's bound at a claimed ε, by pld, which has an r for every budget."""
    asked = Settings(epsilon=epsilon, accountant="pld", options={"link": "log"})
    found = audit.run(asked, "canary", dataset=data.load("digits"), seed=SEED)
    kept = ("summary", "epsilon_lower", "trials")
    return {"epsilon": epsilon, **{name: found[name] for name in kept}}


def main() -> None:
    """Measure what is missing, and write after every line."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    there: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    if "spread" not in there:
        there["spread"] = [
            {"alpha": alpha, "r": r, "coefficient_of_variation": spread(r, alpha)}
            for alpha, rs in ((3.0, (1.0, 0.1, 0.01, 1e-3, 1e-5)), (30.0, (0.1,)), (100.0, (0.1,)))
            for r in rs
        ]
    whole = data.load("fashion-mnist").train
    shuffled = np.random.default_rng(SEED).permutation(len(whole))
    held, kept = (np.sort(rows) for rows in np.split(shuffled, [HELD_OUT]))
    held_out, split = (data.Split(whole.inputs[k], whole.labels[k]) for k in (held, kept))
    done = there.setdefault("accuracy", [])
    for epsilon in EPSILONS:
        for row in ROWS:
            if not any((d["row"], d["epsilon"]) == (row, epsilon) for d in done):
                done.append(best(row, epsilon, split, held_out))
                print(done[-1], flush=True)
                files.write_json(OUT, {**there, "seed": SEED, "machine": runs.machine()})
    audited = there.setdefault("audit", [])
    for epsilon in AUDITED:
        if not any(line["epsilon"] == epsilon for line in audited):
            audited.append(leak(epsilon))
            print(audited[-1], flush=True)
            files.write_json(OUT, {**there, "seed": SEED, "machine": runs.machine()})
    draw(done)


def draw(done: list[dict[str, Any]]) -> None:
    """Write the figure: accuracy over ε, a curve a row."""
    from matplotlib.figure import Figure

    from simplexdp.paper.report.figures import LOOK

    names = {"link": "Algorithm 1 with a link", "softmax": "Algorithm 1", "draw-only": "draw-only"}
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(6.4, 3.2))
        axes = figure.subplots()
        for (row, title), marker in zip(names.items(), "os^", strict=True):
            points = sorted((d["epsilon"], d["accuracy"]) for d in done if d["row"] == row)
            axes.plot(
                *zip(*((e, 100 * a) for e, a in points if a), strict=True),
                marker=marker,
                label=title,
            )
        axes.set_xscale("log")
        axes.set_xlabel("budget ε of the draws (δ = 1e-5)")
        axes.set_ylabel("held-out accuracy, %")
        axes.set_ylim(0, 100)
        axes.legend(frameon=False, loc="lower right")
        figure.savefig(FIGURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
