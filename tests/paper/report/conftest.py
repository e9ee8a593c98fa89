"""Made-up records, so that the page and its tables can be tested without training."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from simplexdp import methods
from simplexdp.paper import grid, identity, records

JPEG = "JPEG copy, not MedMNIST's own file: dermamnist.npz (sha256 abc); results on it are not"


def made_up(settings, experiment, accuracy, seed=0, **more):
    """A record with this accuracy, in the form that the sweep writes."""
    settings = dataclasses.replace(identity.canonical(settings), seed=seed)
    private = settings.method != "plain"
    return {
        "key": identity.key(settings),
        "experiment": experiment,
        "revision": methods.lookup(settings.method).revision,
        "configuration": settings.to_json(),
        "seed": seed,
        "accuracy": accuracy,
        "validation_accuracy": None,
        "model": settings.model,
        "epsilon": settings.epsilon if private else None,
        "seconds": 100.0,
        "steps": settings.steps or 40,
        "r": 0.25,
        "lr": 0.5,
        "evaluations": [[step, accuracy - 0.01 * (step % 2)] for step in range(1, 21)],
        "covers_weights": settings.method == "dpsgd",
        "provenance": [],
        "machine": {},
        "versions": {},
        **more,
    }


@pytest.fixture
def make_record():
    return made_up


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two seeds of FashionMNIST's first row, DermaMNIST on a copy, part of a study, an audit.

    One row of the classes is of a run that has a record, and one of a run that has none.
    """
    folder = tmp_path / "results"
    found = []
    for number, cell in enumerate(grid.experiment("fashion-mnist").cells):
        for seed in range(2 if cell.row == "Dirichlet, inception, lr auto" else 1):
            value = 0.8 + 0.01 * number + 0.004 * seed
            found.append(made_up(cell.settings, "fashion-mnist", value, seed))
    for cell in grid.experiment("dermamnist").cells[:4]:
        more = {"validation_accuracy": 0.75, "provenance": [JPEG]}
        found.append(made_up(cell.settings, "dermamnist", 0.74, **more))
    lost = {"experiment": "dermamnist", "epsilon": 1.0, "lr": None, "accountant": "theorem1"}
    lost |= {"class_weights": False, "warmup": 601, "steps": 6006, "seed": 0, "accuracy": 0.74}
    lost |= {"recall": [0.9, 0.0, 0.0], "never_predicted": ["melanoma", "nevi"]}
    first = grid.experiment("dermamnist").cells[0].settings
    keys = [made_up(first, "dermamnist", 0.74)["key"], "without-a-record"]
    rows = [lost | {"key": key, "seed": seed} for seed, key in enumerate(keys)]
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "benchmarks/classes.json").write_text(json.dumps({"rows": rows}))
    for number, cell in enumerate(grid.experiment("learning-rate").cells[:60]):
        found.append(made_up(cell.settings, "learning-rate", 0.5 + 0.005 * number))
    for cell in grid.experiment("sampling-rate").cells[:3]:
        found.append(made_up(cell.settings, "sampling-rate", 0.8))
    for cell in grid.experiment("digits").cells:
        found.append(made_up(cell.settings, "digits", 0.97) | {"model": "mlp"})
    for record in found:
        records.write(record, folder)
    found = {"canary": {"epsilon_lower": 4.5}, "membership": {"epsilon_lower": None, "auc": 0.514}}
    row = {"method": "dirichlet", "claimed_epsilon": 1.0, "covers_weights": False, **found}
    pairs = {"canary": {"epsilon_lower": 1.5, "claim": {"epsilon": 2.15, "delta": 3.7041e-5}}}
    linear = {"method": "certified", "claimed_epsilon": 1.0, "covers_weights": True, **pairs}
    none = {"canary": {"epsilon_lower": 3.01, "claim": {"epsilon": None}}}
    plain = {"method": "plain", "claimed_epsilon": None, "covers_weights": False, **none}
    (folder / "audit").mkdir()
    audit = {"data": "digits", "delta": 1e-5, "confidence": 0.95, "rows": [row, linear, plain]}
    audit |= {
        "revisions": {
            row["method"]: methods.lookup(row["method"]).revision for row in audit["rows"]
        }
    }
    (folder / "audit/digits.json").write_text(json.dumps(audit))
    alone = {"attack": "canary", "data": "digits", "method": "dirichlet", "confidence": 0.95}
    alone |= {"relation": "in or out (its input zeroed)", "covers_weights": False}
    alone |= {"epsilon_lower": 3.259, "claim": {"epsilon": 1.001}}
    together = {"attack": "all", "audits": [alone], "revisions": {"dirichlet": 1}}
    (folder / "audit/digits-in-out.json").write_text(json.dumps(together))
    (folder / "audit/unsigned.json").write_text(json.dumps({**audit, "revisions": None}))
    old = {**audit, "revisions": {"dirichlet": 0}, "data": "an-old-audit"}
    (folder / "audit/old.json").write_text(json.dumps(old))
    return folder
