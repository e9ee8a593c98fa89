"""What was measured beside the runs, from its files: audits, accountants, classes, times."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from simplexdp import accounting, files
from simplexdp.paper import identity, labels
from simplexdp.rounding import rounded_up

COST = Path("benchmarks") / "cost.json"
OF_CLASSES = (  # what a row says of the classes that a network finds
    *("key", "experiment", "epsilon", "lr", "accountant", "class_weights", "steps", "seed"),
    *("accuracy", "recall", "never_predicted"),
)


def audits(results: Path) -> list[dict[str, Any]]:
    """Return what the attacks found beside the claims, where audits were run.

    A bound is held against the claim for its own neighbouring relation: two inputs in each
    other's place may differ by more than an input and none.
    """
    tables: list[dict[str, Any]] = []
    single: list[dict[str, Any]] = []
    for path in _audit_files(results):
        content = files.read_json(path, files.ANEW)
        if of_other_revision(content, path) is None:
            with files.well_formed(path):
                if "rows" in content:
                    tables += _of_table(content)
                else:
                    single += _alone(content.get("audits", [content]))
    rows = {(row["data"], row["method"]): row for row in tables}
    for found in single:  # one attack alone, beside those of the table where there is one
        row = rows.setdefault((found["data"], found["method"]), {**found, "bounds": {}})
        if row["confidence"] == found["confidence"]:
            row["bounds"] |= {n: b for n, b in found["bounds"].items() if n not in row["bounds"]}
    return list(rows.values())


def _of_table(table: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table of audits in which some attack gives a bound."""
    for row in table["rows"]:
        attacks = {n: f for n, f in row.items() if isinstance(f, dict) and "epsilon_lower" in f}
        if attacks:
            claimed = row.get("claimed_epsilon")
            made = _audited(table, row, claimed, table.get("delta"))
            made["auc"] = row.get("membership", {}).get("auc")
            made["bounds"] = {
                name: _bound(found, claimed)
                for name, found in attacks.items()
                if found["epsilon_lower"] is not None
            }
            yield made


def _alone(found: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield single attacks that give a bound."""
    for one in found:
        if one.get("epsilon_lower") is not None:
            claim = one.get("claim", {})
            made = _audited(one, one, claim.get("epsilon"), claim.get("delta"))
            in_out = "_in_out" if str(one.get("relation")).startswith("in or out") else ""
            name = one["attack"].replace("-", "_") + in_out
            made["bounds"] = {name: _bound(one, claim.get("epsilon"))}
            yield made


def _audited(
    on: Mapping[str, Any], row: Mapping[str, Any], claimed: float | None, delta: float | None
) -> dict[str, Any]:
    """Return a method's claim on some data, before the bounds that attacks give."""
    return {
        "data": on["data"],
        "method": row["method"],
        "claimed": claimed,
        "delta": delta,
        "covers_weights": row.get("covers_weights"),
        "confidence": on.get("confidence"),
        "bounds": {},
        "auc": None,
    }


def _bound(found: Mapping[str, Any], claimed: float | None) -> dict[str, Any]:
    return {
        "lower": found["epsilon_lower"],
        "claim": found.get("claim", {}).get("epsilon", claimed),
        "delta": found.get("claim", {}).get("delta"),
        "relation": found.get("relation"),
    }


def other_deltas(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return which claims are at another δ than the method's own, in a sentence."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for name, bound in row["bounds"].items():
            if bound["delta"] not in (None, row["delta"]):
                method = labels.title(row["method"])
                which = f"{row['data']}, {method}, {name.replace('_', ' ')}"
                found.setdefault(rounded_up(bound["delta"], 3), []).append(which)
    return " ".join(
        f"At δ = {delta}, claim and bound: {'; '.join(which)}." for delta, which in found.items()
    )


def of_other_revision(content: Mapping[str, Any], path: Path) -> str | None:
    """Say that a measurement does not tell its methods' revisions, or has other ones."""
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a file of measurements; delete it and make it again")
    if not isinstance(revisions := content.get("revisions"), dict):
        return f"{path}: without its methods' revisions, left out"
    said = (identity.other_revision(method, made_by) for method, made_by in revisions.items())
    return next((f"{path}: {problem}" for problem in said if problem is not None), None)


def epsilon_at_published_r(results: Path) -> list[dict[str, Any]]:
    """Return ε at the paper's r by every accountant, where the table was made."""
    path = results / "accounting" / "paper_table.json"
    if not path.exists():
        return []
    rows = entry(path, "rows")
    with files.well_formed(path):
        return [
            {
                "data": row["data"],
                "epsilon": row["epsilon"],
                "r": row["r"],
                **{name: row["epsilon_at_r"].get(name) for name in accounting.ACCOUNTANTS},
            }
            for row in rows
        ]


def entry(path: Path, name: str) -> Any:
    """Return one entry of a file of measurements, or raise an error that names the file."""
    content = files.read_json(path, files.ANEW)
    if not isinstance(content, dict) or name not in content:
        raise ValueError(f"{path} has no {name!r}; delete it and make it again")
    return content[name]


def classes(results: Path, keys: Collection[str]) -> list[dict[str, Any]]:
    """Return which classes the networks of these runs find, where that was measured."""
    path = results / "benchmarks" / "classes.json"
    if not path.exists():
        return []
    rows = entry(path, "rows")
    with files.well_formed(path):
        told = [
            {**{name: row[name] for name in OF_CLASSES}, "warmup": row.get("warmup")}
            for row in rows
        ]
        return [row for row in told if row["key"] in keys]


def on_an_encoder(results: Path) -> dict[str, list[float]]:
    """Return certified's accuracies in percent at ε = 1, on an ImageNet encoder, by data set."""
    path = results / "benchmarks" / "certified_features.json"
    found = files.read_json(path).values() if path.exists() else []
    with files.well_formed(path):
        return {
            row["data"]: [100 * fit["accuracy"] for fit in row["fits"]["1"].values()]
            for row in found
            if row["category"] == "ImageNet"
        }


def cost(results: Path) -> list[dict[str, Any]]:
    """Return the seconds of a step, where they were measured."""
    path = results / COST
    if not path.exists():
        return []
    content = files.read_json(path, files.ANEW)
    found: list[dict[str, Any]] = content.get("networks", [])
    return found if of_other_revision(content, path) is None else []


def left_out(results: Path) -> list[str]:
    """Say which audits and times another revision of a method made."""
    paths = [*_audit_files(results), results / COST]
    return [
        said
        for path in paths
        if path.exists() and (said := of_other_revision(files.read_json(path, files.ANEW), path))
    ]


def _audit_files(results: Path) -> list[Path]:
    return sorted((results / "audit").glob("*.json"))
