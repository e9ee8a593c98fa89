"""The paper's runs by every accountant, and the time they take.

    python benchmarks/accounting.py [--skip-table] [--skip-times]

writes results/accounting/paper_table.json and results/accounting/times.json and renews the tables
of results/tables.md between their markers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from simplexdp.accounting import BudgetTooSmall, account, calibrate
from simplexdp.accounting.composed import HIDDEN, Step
from simplexdp.accounting.loss_distribution import VertexPair
from simplexdp.files import put_between
from simplexdp.paper.recipes import published, recipe

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "accounting"))
from lower_bounds import lower_epsilon  # noqa: E402

RESULTS = ROOT / "results" / "accounting"
PAGE = ROOT / "results" / "tables.md"
NAMES = ("theorem1", "exact", "pld", "visible", "visible-pld")
ALPHA, DELTA = 3.0, 1e-5
DATA = ("cifar10", "mnist", "fashion-mnist", "dermamnist", "svhn")


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and the seconds it took."""
    start = time.perf_counter()
    value = call()
    return value, time.perf_counter() - start


def machine() -> dict[str, Any]:
    """Where the numbers were taken."""
    packages = ("numpy", "scipy", "dp-accounting", "simplexdp")
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
        "versions": {name: version(name) for name in packages},
    }


def printed(data: str) -> dict[float, float]:
    """The paper's r* by budget; where it prints one twice, the one of its first table."""
    found = [row for row in published()["r_star"] if (row["data"], row["alpha"]) == (data, ALPHA)]
    first = {row["epsilon"]: row["r"] for row in reversed(found)}
    return dict(sorted(first.items()))


def row(data: str, epsilon: float, r: float) -> dict[str, Any]:
    """One of the paper's runs by every accountant."""
    run = recipe(data)
    q, steps = run.batch_size / run.records, run.steps
    where = {"alpha": ALPHA, "sample_rate": q, "steps": steps, "delta": DELTA}
    figures: dict[str, float] = {}
    largest: dict[str, float | None] = {}
    seconds: dict[str, float] = {}
    for name in NAMES:
        cost, seconds[f"{name} figure"] = timed(lambda name=name: account(name, r=r, **where))
        figures[name] = cost.epsilon
        start = time.perf_counter()
        try:
            largest[name] = calibrate(name, epsilon=epsilon, **where).r
        except BudgetTooSmall:
            largest[name] = None
        seconds[f"{name} calibration"] = time.perf_counter() - start
    bound = lower_epsilon(Step(HIDDEN, q, VertexPair(r, ALPHA)), steps, DELTA)
    return {
        "data": data,
        "epsilon": epsilon,
        "r": r,
        **where,
        "epsilon_at_r": figures,
        "pld_lower_bound": bound,
        "pld_gap": figures["pld"] / bound - 1,
        "r_at_epsilon": largest,
        "seconds": {key: round(value, 4) for key, value in seconds.items()},
    }


def plain_theorem1(r: float, q: float, steps: int) -> float:
    """Theorem 1 as a plain double loop in Python."""
    best, order = math.inf, 2
    while order < 1 + ALPHA / r:
        total = (1 - q) ** (order - 1) * (q * order - q + 1)
        for j in range(2, order + 1):
            moment = j * r**2 * float(special.polygamma(1, ALPHA - (j - 1) * r)) * (j - 1)
            term = math.comb(order, j) * (1 - q) ** (order - j) * q**j
            total += (1 if j == 2 else 3) * term * math.exp(min(moment, 700.0))
        figure = steps * math.log(total) / (order - 1) + math.log(order - 1)
        figure -= (math.log(DELTA) + order * math.log(order)) / (order - 1)
        best, order = min(best, figure), order + 1
    return best


def plain_calibration(epsilon: float, q: float, steps: int) -> float:
    """Bisection from (α/100, α) with the double loop, 40 halvings."""
    low, high = ALPHA / 100, ALPHA * (1 - 1e-9)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if plain_theorem1(middle, q, steps) <= epsilon else (low, middle)
    return low


def times() -> dict[str, Any]:
    """Calibration against the double loop; the pld accountant over T."""
    where = {"delta": DELTA, "alpha": ALPHA, "sample_rate": 0.005, "steps": 20_000}
    calibrate("theorem1", epsilon=1.0, **where)
    ours = min(timed(lambda: calibrate("theorem1", epsilon=1.0, **where))[1] for _ in range(5))
    plain_r, plain = timed(lambda: plain_calibration(1.0, 0.005, 20_000))
    exact = min(timed(lambda: account("exact", r=0.235, **where))[1] for _ in range(5))
    found, pld_calibration = timed(lambda: calibrate("pld", epsilon=1.0, **where))
    growth = []
    for steps in (100, 1_000, 10_000, 20_000, 100_000, 1_000_000):
        # r falls as 1/√T, so that the figure stays near the same ε.
        setting = where | {"steps": steps, "r": min(2.5, 0.235 * math.sqrt(20_000 / steps))}
        cost, seconds = timed(lambda setting=setting: account("pld", **setting))
        growth.append({"steps": steps, "r": setting["r"], "epsilon": cost.epsilon,
                       "seconds": round(seconds, 3)})  # fmt: skip
    return {
        "calibration_seconds": ours,
        "plain_loop_seconds": plain,
        "ratio": plain / ours,
        "plain_loop_r": plain_r,
        "exact_figure_seconds": exact,
        "pld_calibration_seconds": pld_calibration,
        "pld_calibration_r": found.r,
        "pld_over_steps": growth,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The paper's runs as two Markdown tables."""

    def number(value: float | None, digits: int) -> str:
        return "none" if value is None else f"{value:.{digits}f}"

    head = "| data | ε | r | " + " | ".join(NAMES) + " |\n|---|---|---|" + "---|" * len(NAMES)
    costs, sizes = ["ε at the paper's r:\n", head], ["\nThe largest r at the paper's ε:\n", head]
    for entry in rows:
        start = f"| {entry['data']} | {entry['epsilon']:g} | {entry['r']:.3f} | "
        figures, largest = entry["epsilon_at_r"], entry["r_at_epsilon"]
        costs.append(start + " | ".join(number(figures[name], 3) for name in NAMES) + " |")
        sizes.append(start + " | ".join(number(largest[name], 4) for name in NAMES) + " |")
    return "\n".join(costs + sizes)


def times_table(found: dict[str, Any]) -> str:
    """The measured times as Markdown."""
    lines = [
        f"- Theorem 1 calibrated in {1e3 * found['calibration_seconds']:.1f} ms, "
        f"{found['ratio']:.0f} times faster than a plain double loop in Python "
        f"({found['plain_loop_seconds']:.2f} s) to the same r.",
        f"- One `exact` figure in {1e3 * found['exact_figure_seconds']:.2f} ms.",
        f"- One `pld` calibration at T = 20,000 in {found['pld_calibration_seconds']:.1f} s.",
        "",
        "| T | r | ε by pld | seconds |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row['steps']:,} | {row['r']:.4f} | {row['epsilon']:.3f} | {row['seconds']:.2f} |"
        for row in found["pld_over_steps"]
    ]
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    """Measure, write, renew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--skip-table", action="store_true")
    parser.add_argument("--skip-times", action="store_true")
    chosen = parser.parse_args(arguments)
    RESULTS.mkdir(parents=True, exist_ok=True)
    if not chosen.skip_table:
        rows, seconds = timed(
            lambda: [row(data, eps, r) for data in DATA for eps, r in printed(data).items()]
        )
        found = {"machine": machine(), "seconds": round(seconds, 1), "rows": rows}
        (RESULTS / "paper_table.json").write_text(json.dumps(found, indent=1) + "\n")
        put_between(PAGE, "paper table", table(rows))
        print(f"largest gap of pld: {max(np.array([r['pld_gap'] for r in rows])):.4f}")
    if not chosen.skip_times:
        found = {"machine": machine(), **times()}
        (RESULTS / "times.json").write_text(json.dumps(found, indent=1) + "\n")
        put_between(PAGE, "times", times_table(found))


if __name__ == "__main__":
    main(sys.argv[1:])
