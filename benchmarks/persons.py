"""Measure what it costs to protect persons in place of records, at the same ε.

    python benchmarks/persons.py

Writes results/benchmarks/persons.json. Persons are made by rule from records of FashionMNIST's
training set, all of as many records: `mixed` ones have records of any class, `alike` ones of a
single class, so that what a person has in common is what is to be learnt. The test records are
those of the test set. Seeds are known: the runs measure accuracy and protect nobody.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from simplexdp import data, features, linear, methods, noise
from simplexdp.files import put_between
from simplexdp.methods.certified import accuracy
from simplexdp.settings import Settings

PAGE = Path(__file__).parent.parent / "docs" / "certified.md"
OUT = Path(__file__).parent.parent / "results" / "benchmarks" / "persons.json"
SIZES, RULES, DELTA = (1, 5, 20, 100), ("mixed", "alike"), 1e-5


def persons_of(labels: np.ndarray, size: int, rule: str) -> np.ndarray:
    """Return whose each record is, by numbers from 0."""
    order = np.random.default_rng(0).permutation(len(labels))
    if rule == "alike":
        order = order[np.argsort(labels[order], kind="stable")]
    persons = np.empty(len(labels), dtype=np.int64)
    persons[order] = np.arange(len(labels)) // size
    return persons


def certified(dataset: data.Dataset, persons: np.ndarray, epsilon: float, seed: int) -> float:
    """Return the test accuracy of a fit on the data's own patch features."""
    found = features.build("patches", dataset.input_shape)
    rows, test = (features.compute(s.inputs, found) for s in (dataset.train, dataset.test))
    shape = (found.channels, found.positions)
    units = int(persons.max()) + 1
    rule, cost = linear.planned(units, epsilon, DELTA, shape, largest=found.largest)
    bits = noise.seeded_bits(np.random.default_rng(seed))
    fitted = linear.fit(
        rows, dataset.train.labels, dataset.classes, shape, rule, cost, bits, persons=persons
    )
    return accuracy(fitted, test, dataset.test.labels)


def dpsgd(dataset: data.Dataset, persons: np.ndarray, epsilon: float, seed: int) -> float:
    """Return the test accuracy of a multilayer perceptron."""
    settings = Settings(
        data=dataset.name, method="dpsgd", model="mlp", epsilon=epsilon, delta=DELTA, seed=seed
    )
    train = dataclasses.replace(dataset.train, groups=persons)
    return methods.train(settings, dataclasses.replace(dataset, train=train)).accuracy


def table(found: dict[str, Any]) -> str:
    """Return what was reached as a table for the page, a row for each kind of person."""
    ways = list(dict.fromkeys((row["method"], row["epsilon"]) for row in found["rows"]))
    cells: dict[tuple[int, int, str], dict[tuple[str, float], str]] = {}
    for row in found["rows"]:
        kind = row["records_a_person"], row["persons"], row["rule"]
        reached = f"{row['accuracy']:.1f} ± {row['deviation']:.1f}"
        cells.setdefault(kind, {})[row["method"], row["epsilon"]] = reached
    heads = ["records a person", "persons", *(f"`{way}`, ε = {e:g}" for way, e in ways)]
    lines = [heads, ["---"] * len(heads)]
    for (size, persons, rule), reached in cells.items():
        name = f"{size}, {rule}" if size > 1 else "1"
        lines.append([name, f"{persons:,}", *(reached.get(way, "–") for way in ways)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Train every kind of person, and write what was reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--tested", type=int, default=2000)
    points = ["certified:1", "certified:4", "dpsgd:1"]
    parser.add_argument("--points", nargs="+", default=points, metavar="METHOD:EPSILON")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--table", action="store_true", help="only renew the page's table")
    given = parser.parse_args()
    if given.table:
        put_between(PAGE, "persons", table(json.loads(OUT.read_text())))
        return
    torch.set_num_threads(1)
    whole = data.load(given.data)
    dataset = dataclasses.replace(
        whole,
        train=whole.train.take(np.arange(given.records)),
        test=whole.test.take(np.arange(given.tested)),
        validation=None,
    )
    rows: list[dict[str, Any]] = []
    known = {"certified": certified, "dpsgd": dpsgd}
    ways = [(known[name], float(e)) for name, e in (point.split(":") for point in given.points)]
    kinds = [(size, rule) for size in SIZES for rule in (RULES if size > 1 else ("mixed",))]
    for way, epsilon in ways:
        for size, rule in kinds:
            persons = persons_of(dataset.train.labels, size, rule)
            began = time.process_time()
            found = [100 * way(dataset, persons, epsilon, seed) for seed in range(given.seeds)]
            rows.append(
                {
                    "method": way.__name__,
                    "epsilon": epsilon,
                    "records_a_person": size,
                    "persons": int(persons.max()) + 1,
                    "rule": rule,
                    "accuracy": round(statistics.mean(found), 2),
                    "deviation": round(statistics.stdev(found), 2) if len(found) > 1 else None,
                    "seeds": given.seeds,
                    "processor_seconds": round((time.process_time() - began) / given.seeds, 1),
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    said = {"data": given.data, "records": given.records, "tested": given.tested, "delta": DELTA}
    OUT.write_text(json.dumps({**said, "rows": rows}, indent=2) + "\n")
    put_between(PAGE, "persons", table({"rows": rows}))


if __name__ == "__main__":
    main()
