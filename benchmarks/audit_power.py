"""How often each attack notices that some of the noise is missing.

Transcripts and one-run audits attack the shipped methods on the digits, with the noise of every
release multiplied by a factor. The bounds behind the canary and one-run attacks are also rated on
the scores that the best attack on one Gaussian release would see, where many runs cost little.

    python benchmarks/audit_power.py

About two minutes of one processor. Writes results/benchmarks/audit_power.json and the table on
results/tables.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from simplexdp import __version__, data, files, methods, noise, runs
from simplexdp.accounting import events
from simplexdp.accounting.gaussian import calibrate_mu, gaussian_epsilon
from simplexdp.audit import attacks, bounds, claims, crafting, schedules, tradeoff, transcript
from simplexdp.linear import noisy_gd, whitening
from simplexdp.methods import dpsgd
from simplexdp.settings import Settings

ROOT = Path(__file__).parents[1]
OUT, PAGE = ROOT / "results" / "benchmarks" / "audit_power.json", ROOT / "results" / "tables.md"
FACTORS = (1.0, 0.95, 0.9, 0.8, 0.5)
EPSILON, DELTA, CONFIDENCE, SEED = 1.0, 1e-5, 0.95, 0
# Pairs of trainings, and how often the audit of them is repeated.
PAIRS = {"certified": 16, "dpsgd": 4, "gaussian-features": 2}
REPEATED, ONE_RUNS, SIMULATED = 3, 6, 40
TRIALS, CANARIES = 1000, 300


@contextmanager
def weaker(factor: float) -> Iterator[None]:
    """Multiply the noise of every release, and leave what is claimed and told as it is."""
    release, add = noise.release, dpsgd.set_noisy_gradient

    def released(total: Any, sigma: float, bits: Any) -> Any:
        return release(total, factor * sigma, bits)

    def added(model: Any, totals: Any, chosen: Any, rng: Any) -> None:
        less = dataclasses.replace(chosen, noise_multiplier=factor * chosen.noise_multiplier)
        add(model, totals, less, rng)

    with (
        mock.patch.object(noisy_gd, "release", released),
        mock.patch.object(whitening, "release", released),
        mock.patch.object(noise, "release", released),
        mock.patch.object(dpsgd, "set_noisy_gradient", added),
    ):
        yield


def heard(method: str, dataset: data.Dataset, rng: np.random.Generator) -> bool:
    """Return whether a transcript audit contradicts the claim."""
    settings = schedules.transcript(Settings(method=method), len(dataset.train))
    return transcript.contradicts(
        transcript.audit(settings, dataset, rng, PAIRS[method], CONFIDENCE)
    )


def one_run(dataset: data.Dataset, rng: np.random.Generator) -> tuple[bool, bool]:
    """Return whether either bound of a one-run audit of `certified` exceeds its claim."""
    job = attacks.Job(
        Settings(method="certified"), dataset, CANARIES, CONFIDENCE, rng, True, None, claims.PAIR
    )
    found = attacks.make("one-run", job, lambda: None)
    claim = found["claim"]["epsilon"]
    return found["epsilon_lower"] > claim, found["by_curve"]["epsilon_lower"] > claim


def simulated(factor: float, rng: np.random.Generator) -> dict[str, list[float]]:
    """Return whether each bound rejects the claim, and the bound itself, on ideal scores."""
    mu = 2.0 * calibrate_mu(EPSILON, DELTA)
    curves, claim = tradeoff.family(events.gaussian(1.0 / mu), DELTA, False), 0.0
    assert curves is not None
    claim = gaussian_epsilon(mu, DELTA)
    inside, outside = rng.normal(mu / factor, 1.0, TRIALS), rng.normal(0.0, 1.0, TRIALS)
    coins = rng.random(CANARIES) < 0.5
    scores = rng.normal(np.where(coins, mu / factor, 0.0), 1.0)
    found = {
        "canary, any mechanism": bounds.threshold_bound(inside, outside, DELTA, CONFIDENCE),
        "canary, by its curve": tradeoff.threshold_bound(inside, outside, curves, CONFIDENCE),
        "one run, any mechanism": bounds.one_run(scores, coins, DELTA, CONFIDENCE),
        "one run, by its curve": tradeoff.one_run(scores, coins, curves, CONFIDENCE),
    }
    return {name: [bound.epsilon > claim, bound.epsilon] for name, bound in found.items()}


def rate(caught: list[bool]) -> dict[str, Any]:
    """Return how many of how many."""
    return {"caught": int(sum(caught)), "of": len(caught)}


def measured(dataset: data.Dataset) -> dict[str, dict[str, Any]]:
    """Return the catch rates by attack and factor."""
    rows: dict[str, dict[str, Any]] = {}

    def note(name: str, factor: float, caught: list[bool], **more: Any) -> None:
        rows.setdefault(name, {})[f"{factor:g}"] = {**rate(caught), **more}
        print(name, factor, rows[name][f"{factor:g}"], flush=True)

    for factor in FACTORS:
        rng = np.random.default_rng(SEED)
        sample = [simulated(factor, rng) for _ in range(SIMULATED)]
        for name in sample[0]:
            caught, values = zip(*(found[name] for found in sample), strict=True)
            note(f"{name}: ideal scores", factor, list(caught), median=float(np.median(values)))
        with weaker(factor):
            for method in PAIRS:
                found = [heard(method, dataset, rng) for _ in range(REPEATED)]
                note(f"transcript of {method}", factor, found)
            both = [one_run(dataset, rng) for _ in range(ONE_RUNS)]
            for k, what in enumerate(("any mechanism", "by its curve")):
                note(f"one run, {what}: certified", factor, [found[k] for found in both])
    return rows


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Return the catch rates for the page."""
    shown = [f"{factor:g}" for factor in FACTORS]
    lines = [
        "| attack | " + " | ".join("as shipped" if f == "1" else f"× {f}" for f in shown) + " |",
        "|---" * (1 + len(shown)) + "|",
    ]
    for name in sorted(rows, key=lambda name: (not name.startswith("transcript"), name)):
        cells = [f"{rows[name][f]['caught']} of {rows[name][f]['of']}" for f in shown]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, write, renew."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    small = crafting.subset(data.load("digits"), schedules.SMALL_RECORDS, np.random.default_rng(1))
    rows = measured(small)
    files.write_json(
        OUT,
        {
            "data": "digits",
            "records": schedules.SMALL_RECORDS,
            "epsilon": EPSILON,
            "delta": DELTA,
            "confidence": CONFIDENCE,
            "seed": SEED,
            "pairs": PAIRS,
            "trials_a_side": TRIALS,
            "canaries": CANARIES,
            "rows": rows,
            "seconds": round(time.monotonic() - began),
            "version": __version__,
            "revisions": {name: methods.lookup(name).revision for name in PAIRS},
            "machine": runs.machine(),
        },
    )
    files.put_between(PAGE, "audit power", f"\n{table(rows)}\n")


if __name__ == "__main__":
    main()
