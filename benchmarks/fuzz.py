"""Make up inputs at random, many of them, and count those that end otherwise than they should.

    python benchmarks/fuzz.py                  # writes results/faults/fuzz.json
    python benchmarks/fuzz.py --cases 1000     # so many of each kind

The kinds are those of tests/faults/fuzz.py. A kind ends at its first failure, which is printed. A
run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "faults"))
OUT = ROOT / "results" / "faults" / "fuzz.json"
CASES = 6250  # of each of eight kinds


def more(target: Callable[[Any], None], made: int, cases: int) -> dict[str, Any]:
    """Run so many more cases of a kind; return how many there are then, and what failed."""
    from hypothesis import HealthCheck, given, seed, settings
    from hypothesis import strategies as st

    @seed(made)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def one(data: Any) -> None:
        nonlocal made
        made += 1
        target(data.draw)

    failed = ""
    try:
        one()
    except BaseException:
        failed = traceback.format_exc()
    return {"cases": made, "failed": failed[-2000:]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    import fuzz
    import torch

    from simplexdp import files, runs

    torch.set_num_threads(1)
    record: dict[str, Any] = {
        "command": "python benchmarks/fuzz.py",
        "machine": runs.machine(),
        "cases": asked.cases,
        "of": {},
    }
    if asked.out.exists():
        kept = json.loads(asked.out.read_text())
        if kept["cases"] == asked.cases and kept["total"]["cases"] < asked.cases * len(
            fuzz.TARGETS
        ):
            record = kept
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = record["of"]
    for name, target in fuzz.TARGETS.items():
        of = found.setdefault(name, {"cases": 0, "failed": ""})
        while asked.only in name and of["cases"] < asked.cases and not of["failed"]:
            of.update(more(target, of["cases"], min(100, asked.cases - of["cases"])))
            record["total"] = {
                "cases": sum(of["cases"] for of in found.values()),
                "failed": sum(bool(of["failed"]) for of in found.values()),
            }
            files.write_json(asked.out, record)
        print(name, of["cases"], of["failed"], flush=True)
    print(json.dumps(record["total"]))
    return 1 if record["total"]["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
