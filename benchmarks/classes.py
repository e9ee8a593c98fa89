"""The recall of each class, for networks in results/runs.

Algorithm 1's gradient carries the factor κ, which is nearly proportional to the probability of the
true class, so a class that the network has given up hardly pulls any more. An accuracy does not
show that; the recall of each class does.

    python benchmarks/classes.py --runs runs

The folders are those that `simplexdp reproduce` leaves (--runs there); a run counts if its record
is in results/runs. What is found is added to results/benchmarks/classes.json, and the tables on
results/tables.md are made anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file

import simplexdp
from simplexdp import data, files, models, runs, training
from simplexdp.paper import identity, records
from simplexdp.paper.report.tables import refresh
from simplexdp.runs import RunFolder
from simplexdp.settings import Settings

HERE = Path(__file__).resolve().parent.parent
RESULTS, PAGE = HERE / "results", HERE / "results" / "tables.md"
OUT = RESULTS / "benchmarks" / "classes.json"
EXPERIMENTS = ("fashion-mnist", "mnist", "dermamnist", "cifar10")
METHODS = ("dirichlet", "plain")


def folders(roots: list[Path]) -> Iterator[RunFolder]:
    """The finished runs in these folders, or one level below them."""
    for root in roots:
        for path in (root, *sorted(root.iterdir())):
            if (path / runs.CONFIGURATION).is_file() and RunFolder(path).finished():
                yield RunFolder(path)


def measure(folder: RunFolder, record: dict[str, Any]) -> dict[str, Any]:
    """The recall of each class on the test set."""
    settings = folder.settings()
    dataset = data.load(settings.data, **settings.data_options)
    model = models.build(record["model"], dataset.input_shape, dataset.classes, settings.norm)
    model.load_state_dict(load_file(folder.path / runs.MODEL))
    predicted = training.predictions(model, dataset.test, settings)
    labels = dataset.test.labels
    accuracy = float((predicted == labels).mean())
    if abs(accuracy - record["accuracy"]) > 1e-3:
        raise ValueError(f"{folder.path} scores {accuracy}, and its record {record['accuracy']}")
    recall = [float((predicted[labels == k] == k).mean()) for k in range(dataset.classes)]
    never = sorted(set(range(dataset.classes)) - set(np.unique(predicted).tolist()))
    return {
        "key": record["key"],
        "experiment": record["experiment"],
        "method": settings.method,
        "epsilon": None if settings.method == "plain" else settings.epsilon,
        "lr": settings.lr,
        "accountant": settings.accountant,
        "class_weights": "class_weights" in settings.options,
        "warmup": record.get("warmup", settings.options.get("warmup")),
        "steps": record["steps"],
        "seed": settings.seed,
        "accuracy": accuracy,
        "recall": [round(value, 4) for value in recall],
        "never_predicted": [dataset.class_names[k] for k in never],
    }


def _of_record(row: dict[str, Any], record: dict[str, Any] | None) -> bool:
    """Whether what was measured is of the network that the record is of; rounding aside.

    A run may be trained anew under its key, after a change of the code.
    """
    if record is None or row.get("digest", record["digest"]) != record["digest"]:
        return False
    return abs(row["accuracy"] - record["accuracy"]) <= 1e-3


def measured(
    out: Path,
    wanted: Callable[[Settings, dict[str, Any]], bool],
    measure: Callable[[RunFolder, dict[str, Any]], dict[str, Any]],
) -> list[dict[str, Any]]:
    """The rows of a file, and those of the runs in the folders given that are not in it yet."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=Path, nargs="+", required=True)
    known = {record["key"]: dict(record) for record in records.load(RESULTS).records}
    rows = json.loads(out.read_text())["rows"] if out.exists() else []
    found = {row["key"]: row for row in rows if _of_record(row, known.get(row["key"]))}
    for folder in folders(parser.parse_args().runs):
        settings = folder.settings()
        record = known.get(identity.key(settings))
        if record is None or record["key"] in found or not wanted(settings, record):
            continue
        if not _of_record(folder.configuration()["outcome"], record):
            print(f"{folder.path} is not the run of its record; left out", flush=True)
            continue
        row = {**measure(folder, record), "digest": record["digest"]}
        found[record["key"]] = row
        print(row, flush=True)
    return list(found.values())


def main() -> None:
    """Measure what is not in the file yet, write, renew."""
    rows = sorted(
        measured(OUT, lambda s, r: s.method in METHODS and r["experiment"] in EXPERIMENTS, measure),
        key=lambda row: (
            EXPERIMENTS.index(row["experiment"]),
            row["class_weights"],
            row["lr"] is not None,
            row["epsilon"] or float("inf"),
            row["accountant"],
            row.get("warmup") == 0,
            row["steps"],
            row["seed"],
        ),
    )
    machine = {**runs.machine(), "version": simplexdp.__version__}
    files.write_json(OUT, {"machine": machine, "rows": rows})
    refresh([PAGE], RESULTS)


if __name__ == "__main__":
    main()
