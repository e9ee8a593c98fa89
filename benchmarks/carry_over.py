"""Carry the results of 0.1.0, keyed by the package's version, over to keys by method's revision.

    python benchmarks/carry_over.py results

Every record must have the key and the digest that 0.1.0 gave it. Then "version" becomes
"revision": 1, since no method has trained something else since; key, file name and digest are
computed anew, and nothing else changes. Measurements get the revisions of the methods they name,
and rows that point to a record its new key. A second call changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from simplexdp import files, methods
from simplexdp.paper import identity, records
from simplexdp.settings import NOT_PART_OF_A_RUN, Settings

OLD = "0.1.0"
REVISION = 1


def old_key(configuration: dict[str, Any]) -> str:
    """Return the key that 0.1.0 gave to a configuration."""
    kept = {k: v for k, v in configuration.items() if k not in NOT_PART_OF_A_RUN}
    kept["data_options"] = {k: v for k, v in kept["data_options"].items() if k != "data_dir"}
    text = json.dumps({"version": OLD, **kept}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def carry_record(path: Path) -> tuple[str, str] | None:
    """Rewrite one record; return its old key and its new one, or None where it was carried over."""
    record = files.read_json(path)
    if "version" not in record:
        return None
    key = old_key(record["configuration"])
    if (record["version"], record["key"], path.stem) != (OLD, key, key):
        sys.exit(f"{path} does not have the key that {OLD} gave it")
    if record[records.DIGEST] != records.digest(record):
        sys.exit(f"{path} does not have the digest that {OLD} gave it")
    new_key = identity.key(Settings.from_json(record["configuration"]), REVISION)
    carried = {
        ("revision" if name == "version" else name): (REVISION if name == "version" else value)
        for name, value in {**record, "key": new_key}.items()
        if name != records.DIGEST
    }
    new = path.with_stem(new_key)
    if new.exists():
        sys.exit(f"{new} is there already")
    files.write_json(new, {**carried, records.DIGEST: records.digest(carried)})
    path.unlink()
    return key, new_key


def methods_in(content: Any) -> set[str]:
    """Return the built-in methods that a measurement names, as a value or as a key."""
    if isinstance(content, dict):
        inner = set().union(*map(methods_in, content.values())) if content else set()
        return inner | (set(content) & set(methods.names()))
    if isinstance(content, list):
        return set().union(*map(methods_in, content)) if content else set()
    return {content} & set(methods.names()) if isinstance(content, str) else set()


def carry_measurement(path: Path) -> None:
    """Put the revisions of its methods beside a measurement's version."""
    content = files.read_json(path)
    if content.get("version") == OLD and "revisions" not in content:
        revisions = dict.fromkeys(sorted(methods_in(content)), REVISION)
        files.write_json(path, {**content, "revisions": revisions})


def main(results: Path) -> None:
    """Carry over all below a results folder."""
    carried = [carry_record(path) for path in sorted((results / "runs").glob("*/*.json"))]
    keys = dict(pair for pair in carried if pair is not None)
    for path in (results / "benchmarks").glob("*.json"):
        content = files.read_json(path)
        rows = content.get("rows", [])
        if any(row.get("key") in keys for row in rows):
            moved = [{**row, "key": keys.get(row["key"], row["key"])} for row in rows]
            files.write_json(path, {**content, "rows": moved})
    measured = [*(results / "audit").rglob("*.json"), results / "benchmarks" / "cost.json"]
    for path in measured:
        carry_measurement(path)
    print(f"{len(keys)} records carried over")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
