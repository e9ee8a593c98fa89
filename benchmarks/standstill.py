"""The step that Algorithm 1 would take next, for trained networks of DermaMNIST.

A network that gives one class everything gets no gradient from any record.  Whether a run that was
cut short there would have gone on to learn can be seen without training it: by the largest step
that any of its weights takes on further batches, beside that of runs that still learn.

    python benchmarks/standstill.py --runs runs

The folders are those that `simplexdp reproduce` leaves (--runs there); a run counts if its record
is in results/runs.  The weights stay as they are, and the draws are not charged to anybody: this
is for public benchmark data.  Writes results/benchmarks/standstill.json and the table on
results/tables.md.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
from classes import PAGE, RESULTS, measured
from safetensors.torch import load_file

import simplexdp
from simplexdp import Plan, data, files, models, runs
from simplexdp.loss import balanced_weights
from simplexdp.paper.report.measured_tables import rate_of
from simplexdp.runs import RunFolder

OUT = RESULTS / "benchmarks" / "standstill.json"
BATCHES, SEED = 10, 1_000_000  # the batches and draws of another seed than the run's


def measure(folder: RunFolder, record: dict[str, Any]) -> dict[str, Any]:
    """The largest step of any weight, and the gap between the two largest logits."""
    settings = folder.settings()
    dataset = data.load(settings.data, **settings.data_options)
    model = models.build(record["model"], dataset.input_shape, dataset.classes, settings.norm)
    model.load_state_dict(load_file(folder.path / runs.MODEL))
    plan = Plan(
        settings.epsilon, settings.delta, len(dataset.train.labels),
        batch_size=record["batch_size"], steps=record["steps"], alpha=settings.alpha, seed=SEED,
    )  # fmt: skip
    weighted = "class_weights" in settings.options
    weights = balanced_weights(dataset.train.labels, dataset.classes) if weighted else None
    criterion = plan.loss(weights)
    steps, gaps = [], []
    batches = plan.batches((dataset.train.inputs, dataset.train.labels))
    for inputs, labels in itertools.islice(batches, BATCHES):
        logits = model(data.to_model_input(inputs))
        model.zero_grad()
        criterion(logits, labels).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        steps.append(record["lr"] * max(float(gradient.abs().max()) for gradient in gradients))
        largest = logits.detach().topk(2).values
        gaps.append(float((largest[:, 0] - largest[:, 1]).mean()))
    return {
        "key": record["key"],
        "epsilon": settings.epsilon,
        "lr": settings.lr,
        "class_weights": weighted,
        "warmup": record.get("warmup", settings.options.get("warmup")),
        "steps": record["steps"],
        "seed": settings.seed,
        "accuracy": record["accuracy"],
        "largest_step": max(steps),
        "mean_gap": sum(gaps) / len(gaps),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """A row for each run."""
    lines = [
        "| ε | learning rate | steps | seed | accuracy | gap of the logits | largest step |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['epsilon']:g} | {rate_of(row)} | {row['steps']:,} | {row['seed']} "
            f"| {100 * row['accuracy']:.2f} | {row['mean_gap']:.1f} | {row['largest_step']:.0e} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure what is not in the file yet, write, renew."""
    torch.set_num_threads(1)
    rows = sorted(
        measured(
            OUT,
            lambda s, r: s.method == "dirichlet" and r["experiment"] == "dermamnist",
            measure,
        ),
        key=lambda row: (
            row["lr"] is not None,
            row["class_weights"],
            row["epsilon"],
            row.get("warmup") == 0,
            row["steps"],
            row["seed"],
        ),
    )
    machine = {**runs.machine(), "version": simplexdp.__version__}
    files.write_json(OUT, {"machine": machine, "batches": BATCHES, "seed": SEED, "rows": rows})
    files.put_between(PAGE, "standstill", table(rows))


if __name__ == "__main__":
    main()
