"""Kill, cut the power and fail at every file operation, and count what went wrong.

    python benchmarks/crashes.py            # writes results/faults/crashes.json
    python benchmarks/crashes.py --every 10 # a tenth of it

Every method, `reproduce`, two fetches, two writers of a ledger, the cache of features and a report
are begun in a forked process, cut off, and gone on with (tests/faults/campaign.py says how).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "faults"))
OUT = ROOT / "results" / "faults" / "crashes.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=1e9, help="then it stops where it is")
    parser.add_argument("--out", type=Path, default=OUT)
    asked = parser.parse_args()
    import campaign
    import torch

    from simplexdp import files, runs

    torch.set_num_threads(1)
    began = time.monotonic()
    found = campaign.campaign(asked.every, asked.only, seconds=asked.seconds)
    kinds = ("kills", "losses_of_power", "errors")
    total = {kind: sum(of[kind] for of in found.values()) for kind in kinds}
    record = {
        "command": "python benchmarks/crashes.py",
        "machine": runs.machine(),
        "every": asked.every,
        "seconds": round(time.monotonic() - began),
        "total": {**total, "wrong": sum(len(of["wrong"]) for of in found.values())},
        "of": found,
    }
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(asked.out, record)
    print(json.dumps(record["total"]))
    return 1 if record["total"]["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
