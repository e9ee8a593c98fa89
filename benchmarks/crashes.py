"""Kill, cut the power and fail at every file operation, and count what went wrong.

    python benchmarks/crashes.py            # writes results/faults/crashes.json
    python benchmarks/crashes.py --every 10 # a tenth of it

Every method, `reproduce`, two fetches, two writers of a ledger, the cache of features and a report
are begun in a forked process, cut off, and gone on with (tests/faults/campaign.py says how). In the
rounds after the first there are no errors, and what goes on is killed as well. A run that was
stopped goes on with the scenarios that its file lacks.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "faults"))
OUT = ROOT / "results" / "faults" / "crashes.json"
KINDS = ("kills", "losses_of_power", "errors")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--signals", type=int, default=200, help="sent at random moments")
    asked = parser.parse_args()
    import campaign
    import torch

    from simplexdp import files, runs

    torch.set_num_threads(1)
    record: dict[str, Any] = {
        "command": "python benchmarks/crashes.py",
        "machine": runs.machine(),
        "every": asked.every,
        "rounds": [],
    }
    if asked.out.exists():
        kept = json.loads(asked.out.read_text())
        if "signals" not in kept and kept["every"] == asked.every:
            record = kept
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    rounds: list[dict[str, Any]] = record["rounds"]
    for number in range(asked.rounds):
        if number == len(rounds):
            rounds.append({})
        for scenario in campaign.SCENARIOS:
            if scenario.name in rounds[number]:
                continue
            rounds[number] |= campaign.campaign(asked.every, scenario.name, number or None)
            record["total"] = {
                kind: sum(of[kind] for one in rounds for of in one.values()) for kind in KINDS
            }
            record["wrong"] = sum(len(of["wrong"]) for one in rounds for of in one.values())
            files.write_json(asked.out, record)
            print(number, scenario.name, record["total"], record["wrong"], flush=True)
    record["signals"] = campaign.signalled(asked.signals)
    files.write_json(asked.out, record)
    print(json.dumps(record["total"]))
    return 1 if record["wrong"] or record["signals"]["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
