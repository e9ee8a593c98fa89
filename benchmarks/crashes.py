"""Kill, cut the power and fail at every file operation, and count what went wrong.

    python benchmarks/crashes.py            # writes results/faults/crashes.json
    python benchmarks/crashes.py --every 10 # a tenth of it

Every method, `reproduce`, two fetches, two writers of a ledger, the cache of features and a report
are begun in a forked process, cut off, and gone on with (tests/faults/campaign.py says how). In the
rounds after the first there are no errors, and what goes on is killed as well. A run that was
stopped goes on with the pieces that its file lacks.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "faults"))
OUT = ROOT / "results" / "faults" / "crashes.json"
KINDS = ("kills", "losses_of_power", "errors")


def add(kept: dict[str, Any], found: dict[str, dict[str, Any]]) -> None:
    """Add what a piece found, scenario by scenario, to what there is."""
    for name, of in found.items():
        before = kept.setdefault(name, {"operations": 0, **dict.fromkeys(KINDS, 0), "wrong": []})
        before["operations"] = of["operations"]
        for key in (*KINDS, "wrong"):
            before[key] += of[key]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--pieces", type=int, default=40, help="of a round; each is kept")
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
        "pieces": asked.pieces,
        "rounds": asked.rounds,
        "done": 0,
        "of": {},
    }
    if asked.out.exists():
        kept = json.loads(asked.out.read_text())
        same = all(kept[key] == record[key] for key in ("every", "pieces", "rounds"))
        if same and "signals" not in kept:
            record = kept
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    for number, piece in itertools.product(range(asked.rounds), range(asked.pieces)):
        if number * asked.pieces + piece < record["done"]:
            continue
        every, offset = asked.every * asked.pieces, piece * asked.every
        add(record["of"], campaign.campaign(every, "", number or None, offset))
        record["done"] += 1
        there = record["of"].values()
        record["total"] = {kind: sum(of[kind] for of in there) for kind in KINDS}
        record["total"]["wrong"] = sum(len(of["wrong"]) for of in there)
        files.write_json(asked.out, record)
        print(number, piece, record["total"], flush=True)
    record["signals"] = campaign.signalled(asked.signals)
    files.write_json(asked.out, record)
    print(json.dumps(record["total"]))
    return 1 if record["total"]["wrong"] or record["signals"]["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
