"""Measure `certified` by its features: five noise seeds, a plain fit, seconds and memory.

    PYTHONPATH=benchmarks:ENCODER python benchmarks/certified_features.py --data-dir FOLDER \
        [--only cifar10 …] [--features-only]

ENCODER has the two packages that `imagenet_encoder` names; FOLDER the files of DermaMNIST and SVHN.
Writes results/benchmarks/certified_features.json and the table in results/tables.md. What is there
already is not made again. The fits are those of `simplexdp train --method certified --seed S`, on
features that are computed once; rows whose private accuracies `simplexdp reproduce certified` has
get the plain fit and the times alone. The plain fit is a softmax by L-BFGS on the same rows, whose
penalty is chosen on the last tenth of the training records.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from simplexdp import data, features, files, linear, runs
from simplexdp.methods import _on_features
from simplexdp.methods.certified import accuracy

HERE = Path(__file__).resolve().parent.parent
OUT = HERE / "results" / "benchmarks" / "certified_features.json"
PAGE = HERE / "results" / "tables.md"
DELTA, SEEDS, SHARD, TIMED = 1e-5, 5, 500, 256
PENALTIES = (1e-5, 1e-6)
SVHN_PART = 8000  # of the 10,000 images that are had
NO_DATA, IMAGENET = "no public data", "ImageNet"


class Row(NamedTuple):
    """A data set and its features; no budgets where `reproduce certified` has them."""

    data: str
    features: str
    category: str = NO_DATA
    budgets: tuple[float, ...] = ()
    steps: int | None = None


ROWS = (
    Row("cifar10", "imagenet_encoder:lite2", IMAGENET, (1.0, 2.0, 4.0, 8.0), 120),
    Row("dermamnist", "patches-d4+imagenet_encoder:lite2", IMAGENET, (1.0, 4.0, 7.42)),
    Row("svhn", "imagenet_encoder:lite2", IMAGENET, (1.0, 4.0)),
    Row("svhn", "patches", budgets=(1.0, 4.0)),
    Row("fashion-mnist", "patches+imagenet_encoder:lite2", IMAGENET, (1.0,), 120),
    Row("dermamnist", "patches-d4"),
    Row("cifar10", "patches"),
    Row("fashion-mnist", "patches+scattering"),
    Row("mnist", "scattering"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--only", nargs="+", default=sorted({row.data for row in ROWS}))
    parser.add_argument("--category", choices=(NO_DATA, IMAGENET))
    parser.add_argument("--features-only", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    for row in ROWS:
        if row.data in asked.only and asked.category in (None, row.category):
            measure(row, asked.data_dir, asked.features_only)
    files.put_between(PAGE, "features table", table(written()))


def measure(row: Row, folder: Path | None, features_only: bool) -> None:
    """Fill in what is missing of a row."""
    dataset = loaded(row.data, folder)
    feature_map = made(row, dataset)
    train, test = (rows_of(split.inputs, feature_map) for split in (dataset.train, dataset.test))
    if features_only:
        return
    key = f"{row.data}, {row.features}"
    one = written().get(key, {})
    if not one:
        one = about(row, dataset, feature_map)
    labels, held = dataset.train.labels, dataset.test.labels
    shape = (feature_map.channels, feature_map.positions)
    for seed in range(SEEDS):
        for epsilon in row.budgets:
            fits = one["fits"].setdefault(f"{epsilon:g}", {})
            if str(seed) in fits:
                continue
            rule, cost = linear.planned(
                len(labels), epsilon, DELTA, shape, steps=row.steps, largest=feature_map.largest
            )
            bits = _on_features.noise_bits(seed)
            began = time.process_time()
            fitted = linear.fit(train, labels, dataset.classes, shape, rule, cost, bits)
            fits[str(seed)] = {
                "accuracy": accuracy(fitted, test, held),
                "seconds": round(time.process_time() - began, 2),
                **linear.chosen(rule, cost),
                "steps": rule.schedule.steps,
            }
            save(key, one)
    if "plain" not in one:
        began = time.process_time()
        penalty, found = plain(train, labels, test, held, dataset.classes)
        seconds = round(time.process_time() - began, 1)
        one["plain"] = {"accuracy": found, "penalty": penalty, "seconds": seconds}
        save(key, one)


def loaded(name: str, folder: Path | None) -> data.Dataset:
    """Return a data set; of SVHN the part that is had, cut into training and test records."""
    unverified = name in ("dermamnist", "svhn")
    dataset = data.load(name, data_dir=folder, allow_unverified=unverified)
    if name == "svhn" and len(dataset.train.labels) != SVHN_PART:
        raise SystemExit(f"svhn has {len(dataset.train.labels)} training records, not {SVHN_PART}")
    return dataset


def made(row: Row, dataset: data.Dataset) -> features.FeatureMap:
    """Return the feature map, under a name that the cache may trust."""
    declared = None if row.category == NO_DATA else row.category
    found = features.build(row.features, dataset.input_shape, declared)
    if row.category == NO_DATA:
        return found
    from imagenet_encoder import VERSION

    return dataclasses.replace(found, name=f"{VERSION}, {found.name}", stored=True)


def rows_of(inputs: NDArray[Any], feature_map: features.FeatureMap) -> NDArray[Any]:
    """Return the features, cached shard by shard, so that what was cut off goes on."""
    return np.concatenate(
        [
            features.compute(inputs[at : at + SHARD], feature_map)
            for at in range(0, len(inputs), SHARD)
        ]
    )


def about(row: Row, dataset: data.Dataset, feature_map: features.FeatureMap) -> dict[str, Any]:
    """Return what is known before a fit, and the time of an image."""
    began = time.process_time()
    features.compute(dataset.test.inputs[:TIMED], feature_map, use_cache=False)
    return {
        "data": row.data,
        "features": row.features,
        "category": row.category,
        "encoder": feature_map.provenance.describe(),
        "records": len(dataset.train.labels),
        "width": feature_map.width,
        "milliseconds_an_image": round((time.process_time() - began) / TIMED * 1e3, 2),
        "machine": runs.machine(),
        "fits": {},
    }


def plain(
    rows: NDArray[Any],
    labels: NDArray[np.int64],
    test: NDArray[Any],
    held: NDArray[np.int64],
    classes: int,
) -> tuple[float, float]:
    """Return the penalty that is best on the last tenth, and its accuracy with all records."""
    own, truth, cut = torch.from_numpy(rows), torch.from_numpy(labels), len(rows) * 9 // 10

    def right(where: slice, penalty: float, of: torch.Tensor, labels: torch.Tensor) -> float:
        weights = softmax(own[where], truth[where], classes, penalty)
        return float((of @ weights[:-1] + weights[-1]).argmax(1).eq(labels).double().mean())

    first, last = slice(0, cut), slice(cut, None)
    best = max(PENALTIES, key=lambda penalty: right(first, penalty, own[last], truth[last]))
    return best, right(slice(None), best, torch.from_numpy(test), torch.from_numpy(held))


def softmax(rows: torch.Tensor, labels: torch.Tensor, classes: int, penalty: float) -> torch.Tensor:
    """Return weights and bias, one below the other, of the penalised softmax."""
    weights = torch.zeros(rows.shape[1] + 1, classes, requires_grad=True)
    descent = torch.optim.LBFGS(
        [weights], max_iter=60, history_size=10, line_search_fn="strong_wolfe"
    )

    def closure() -> torch.Tensor:
        descent.zero_grad()
        logits = rows @ weights[:-1] + weights[-1]
        loss = functional.cross_entropy(logits, labels) + penalty / 2 * weights.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    descent.step(closure)  # type: ignore[no-untyped-call]
    return weights.detach()


def written() -> dict[str, Any]:
    """Return what was measured before."""
    return dict(files.read_json(OUT)) if OUT.exists() else {}


def save(key: str, one: dict[str, Any]) -> None:
    """Write a row beside the others, with the most memory that the process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    one["peak_gigabytes"] = round(max(peak, one.get("peak_gigabytes", 0.0)), 2)
    files.write_json(OUT, {**written(), key: one})


def table(found: Mapping[str, Any]) -> str:
    """Return the table of the page."""
    lines = [
        "| data | features | public data | ε | accuracy, % | without privacy, % "
        "| features, ms an image | a fit, s | peak, GB |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in found.values():
        plainly = f"{100 * one['plain']['accuracy']:.2f}" if "plain" in one else "–"
        shared = (plainly, f"{one['milliseconds_an_image']:g}")
        head = (one["data"], f"`{one['features']}`", one["category"])
        last = f"{one['peak_gigabytes']:g}"
        if not one["fits"]:
            lines.append(_line(*head, "–", "reproduce certified", *shared, "–", last))
        for epsilon, fits in one["fits"].items():
            reached = [100 * fit["accuracy"] for fit in fits.values()]
            seconds = statistics.median(fit["seconds"] for fit in fits.values())
            said = f"{statistics.mean(reached):.2f}"
            if len(reached) > 1:
                said += f" ± {statistics.stdev(reached):.2f} [{len(reached)}]"
            lines.append(_line(*head, epsilon, said, *shared, f"{seconds:.0f}", last))
    return "\n".join(lines)


def _line(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
