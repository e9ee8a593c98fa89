"""Make up inputs at random, many of them, and count those that end otherwise than they should.

    python benchmarks/fuzz.py                  # writes results/faults/fuzz.json
    python benchmarks/fuzz.py --cases 1000     # so many of each kind

The kinds are those of tests/faults/fuzz.py. A kind ends at its first failure, which is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "faults"))
OUT = ROOT / "results" / "faults" / "fuzz.json"
CASES = 6250  # of each of eight kinds


def counted(target: Callable[[Any], None], cases: int, seconds: float) -> dict[str, Any]:
    """Run one kind; return how many cases there were and what failed."""
    from hypothesis import HealthCheck, given, seed, settings
    from hypothesis import strategies as st

    ends = time.monotonic() + seconds
    made = 0
    failed = ""
    while made < cases and time.monotonic() < ends and not failed:

        @seed(made)
        @settings(
            max_examples=min(100, cases - made),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(st.data())
        def one(data: Any) -> None:
            nonlocal made
            made += 1
            target(data.draw)

        try:
            one()
        except BaseException:
            failed = traceback.format_exc()
    return {"cases": made, "failed": failed[-2000:]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=CASES)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=1e9, help="for each kind")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    import fuzz
    import torch

    from simplexdp import files, runs

    torch.set_num_threads(1)
    began = time.monotonic()
    found = {
        name: counted(target, asked.cases, asked.seconds)
        for name, target in fuzz.TARGETS.items()
        if asked.only in name
    }
    total = sum(of["cases"] for of in found.values())
    failed = sum(bool(of["failed"]) for of in found.values())
    record = {
        "command": "python benchmarks/fuzz.py",
        "machine": runs.machine(),
        "seconds": round(time.monotonic() - began),
        "total": {"cases": total, "failed": failed},
        "of": found,
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(asked.out, record)
    print(json.dumps(record["total"]))
    for name, of in found.items():
        if of["failed"]:
            print(name, of["failed"], file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
