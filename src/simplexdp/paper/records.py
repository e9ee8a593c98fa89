"""Records of runs: small JSON files, written once and never merged across revisions.

A record lies in results/runs/<experiment>/<key>.json. Its key is the run's whole configuration
with the revision of its method, so what another revision trained is another record, and `load`
leaves it out and says so. A digest over the whole of it tells a careless edit.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simplexdp import files, runs
from simplexdp.claims import SECRET_SEED
from simplexdp.paper import grid, identity
from simplexdp.settings import Settings

DIGEST = "digest"
# Not of the result:
OF_THE_OCCASION = (DIGEST, "seconds", "machine", runs.EARLIER_MACHINES, "versions", "processes")
ALSO_FROM_RUN = (runs.CHECKSUMS, runs.EARLIER_MACHINES)
BROKEN = "broken_assumptions"  # of a run that would cover its weights, but for a known seed
MAKE_AGAIN = "delete this folder and train it again"
MADE_AGAIN = "delete it and reproduce it again"
UNLISTED = "unlisted"  # the home of a run that no experiment asks for
FROM_OUTCOME = (
    "accuracy",
    "validation_accuracy",
    "worst_recall",
    "model",
    "epsilon",
    "delta",
    "seconds",
    "steps",
    "batch_size",
    "sample_rate",
    "lr",
    "warmup",
    "r",
    "order",
    "noise_multiplier",
    "parameters",
)


@dataclass(frozen=True)
class Loaded:
    """The records of the methods' revisions, and what was left out and why."""

    records: tuple[dict[str, Any], ...]
    left_out: tuple[str, ...] = ()


def record_of_run(folder: runs.RunFolder, experiment: str | None = None) -> dict[str, Any]:
    """Return the record of a finished run; refuse an unfinished one."""
    if not folder.finished():
        raise ValueError(
            f"{folder.path} is not finished; go on with it by --resume --out {folder.path}"
        )
    with files.well_formed(folder.path, MAKE_AGAIN):
        return _record(folder, experiment)


def _record(folder: runs.RunFolder, experiment: str | None) -> dict[str, Any]:
    configuration = folder.configuration()
    settings = identity.canonical(folder.settings())
    outcome = configuration["outcome"]
    if not 0.0 <= outcome["accuracy"] <= 1.0:
        raise ValueError("an accuracy is a share")
    statement = outcome["statement"]
    broken = [said for said in statement["broken_assumptions"] if not said.startswith(SECRET_SEED)]
    machine = dict(configuration["machine"])
    versions = {"simplexdp": configuration["version"]}
    versions |= {name: machine.pop(name) for name in ("python", "torch") if name in machine}
    return {
        "key": identity.key(settings, configuration["revision"]),
        "experiment": experiment or grid.home(settings) or UNLISTED,
        "revision": configuration["revision"],
        "configuration": settings.to_json(),
        "seed": settings.seed,
        **{name: outcome.get(name) for name in FROM_OUTCOME if name in outcome},
        "evaluations": [[m["step"], m["test_accuracy"]] for m in folder.metrics()],
        "covers_weights": statement["covers_weights"],
        **({BROKEN: broken} if statement["covers_weights"] and broken else {}),
        "accountant": statement["accountant"],
        "provenance": list(statement["notes"]),
        "processes": folder.processes(),
        "machine": machine,
        **{k: configuration[k] for k in ALSO_FROM_RUN if k in configuration},
        "versions": versions,
    }


def digest(record: Mapping[str, Any]) -> str:
    """Return the digest of a record's content."""
    content = {name: value for name, value in record.items() if name != DIGEST}
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def path_of(record: Mapping[str, Any], results: Path) -> Path:
    """Return where a record lies."""
    return results / "runs" / str(record["experiment"]) / f"{record['key']}.json"


def write(record: Mapping[str, Any], results: Path) -> Path:
    """Write a record, whole or not at all; one that is there already stays as it is."""
    path = path_of(record, results)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, {**record, DIGEST: digest(record)})
    elif (problem := _problem(files.read_json(path, MADE_AGAIN), path)) is not None:
        raise ValueError(f"{problem}; it is in the way of this run's record, so move it away")
    return path


def import_run(folder: Path, results: Path) -> Path:
    """File a run that `simplexdp train` finished under the key that the sweep would give it."""
    run = runs.RunFolder.open(folder)
    with files.well_formed(folder, MAKE_AGAIN):
        configuration = run.configuration()
        method = configuration["settings"]["method"]
        problem = identity.other_revision(method, configuration["revision"])
    if problem is not None:
        raise ValueError(f"{folder} is {problem}: train it again")
    record = record_of_run(run)
    if record["processes"] > 1 and record["configuration"]["norm"] == "batch":
        raise ValueError(
            f"{folder} was trained in {record['processes']} processes with batch normalisation, "
            "which then sees a part of each batch: it is another model than the table's"
        )
    path = path_of(record, results)
    if path.exists() and _result(files.read_json(path)) != _result(record):
        raise ValueError(
            f"{path} holds another result of the same settings"
            + (
                "; runs without a known seed cannot be told apart, so train with --seed and a "
                "number that is not there yet"
                if record["seed"] is None
                else " and the same seed, perhaps of another machine; keep one of them"
            )
        )
    return write(record, results)


def load(results: Path, experiment: str = "*") -> Loaded:
    """Return the records below a results folder, of one experiment or of all."""
    records: list[dict[str, Any]] = []
    left_out: Counter[str] = Counter()
    for path in sorted((results / "runs").glob(f"{experiment}/*.json")):
        record = files.read_json(path, MADE_AGAIN)
        problem = _problem(record, path)
        if problem is None:
            records.append(record)
        else:
            left_out[f"in {path.parent} {problem}"] += 1
    said = tuple(f"{'1 record' if n == 1 else f'{n} records'} {p}" for p, n in left_out.items())
    return Loaded(tuple(records), said)


def _result(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in OF_THE_OCCASION}


def _problem(record: Any, path: Path) -> str | None:
    """Say why a file is not a result of its method's revision, or return None."""
    if not isinstance(record, dict) or not {"key", "revision", "configuration"} <= set(record):
        raise ValueError(f"{path} is not a record of a run; {MADE_AGAIN}")
    with files.well_formed(path, MADE_AGAIN):
        method, revision = record["configuration"]["method"], record["revision"]
        if (problem := identity.other_revision(method, revision)) is not None:
            return f"{problem}, and results of different revisions are not merged"
        key = identity.key(Settings.from_json(record["configuration"]), revision)
    if path.stem != record["key"] or key != record["key"]:
        raise ValueError(
            f"{path} does not have the key of its own configuration; it was edited by hand, "
            f"so {MADE_AGAIN}"
        )
    if record.get(DIGEST) != digest(record):
        raise ValueError(
            f"{path} is not as it was written: its digest is another; restore it, or {MADE_AGAIN}"
        )
    return None
