"""Seconds of a step with Dirichlet, DP-SGD (Opacus) and without privacy, side by side in one run.

    python benchmarks/cost.py                      # adds rounds until every network has 36
    python benchmarks/cost.py --networks mlp --rounds 3 --budget-minutes 2

Writes results/benchmarks/cost.json after every twelve rounds, so that it may be stopped
and started again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from simplexdp.experiments import cost

RESULTS = Path(__file__).resolve().parent.parent / "results" / "benchmarks"


def main() -> None:
    """Measure, and print the summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", default=",".join(cost.NETWORKS))
    parser.add_argument("--rounds", type=int, default=cost.ROUNDS)
    parser.add_argument("--budget-minutes", type=float)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    path = cost.run(
        given.out,
        networks=given.networks.split(","),
        rounds=given.rounds,
        budget_minutes=given.budget_minutes,
    )
    print(json.dumps(json.loads(path.read_text())["networks"], indent=1))


if __name__ == "__main__":
    main()
