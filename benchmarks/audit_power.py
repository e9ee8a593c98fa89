"""How often each attack notices that some of the noise is missing.

Transcript, canary, one-run and membership attacks are made on the shipped methods, trained on the
digits with the noise of every release multiplied by a factor. The bounds behind the canary and
one-run attacks are also rated on the scores that the best attack on one Gaussian release would see,
where many runs cost little.

    python benchmarks/audit_power.py                # goes on where it was stopped
    python benchmarks/audit_power.py --minutes 2    # begins nothing after so long
    python benchmarks/audit_power.py --anew         # from the beginning

Writes results/benchmarks/audit_power.json after every cell, and the table in results/tables.md when
it is whole.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

from simplexdp import __version__, data, files, methods, noise, runs
from simplexdp.accounting import events
from simplexdp.accounting.gaussian import calibrate_mu, gaussian_epsilon
from simplexdp.audit import (
    attacks,
    bounds,
    canary,
    claims,
    crafting,
    membership,
    schedules,
    tradeoff,
    transcript,
)
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
# Of the canary attack: trainings an audit. Of membership: models, and records in their halves.
TRAININGS = {"certified": 240, "dpsgd": 160}
MODELS = 12


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


def one_run(dataset: data.Dataset, rng: np.random.Generator) -> dict[str, list[Any]]:
    """Return whether either bound of a one-run audit of `certified` exceeds its claim."""
    job = attacks.Job(
        Settings(method="certified"), dataset, CANARIES, CONFIDENCE, rng, True, None, claims.PAIR
    )
    found = attacks.make("one-run", job, lambda: None)
    claim = found["claim"]["epsilon"]
    bounded = {"any mechanism": found, "by its curve": found["by_curve"]}
    return {
        f"one run, {what}: certified": [one["epsilon_lower"] > claim, one["epsilon_lower"]]
        for what, one in bounded.items()
    }


def simulated(factor: float, rng: np.random.Generator) -> dict[str, list[Any]]:
    """Return whether each bound rejects the claim, and the bound itself, on ideal scores."""
    mu = 2.0 * calibrate_mu(EPSILON, DELTA)
    curves, claim = tradeoff.family(events.gaussian(1.0 / mu), DELTA, False), 0.0
    assert curves is not None
    claim = gaussian_epsilon(mu, DELTA)
    inside, outside = rng.normal(mu / factor, 1.0, TRIALS), rng.normal(0.0, 1.0, TRIALS)
    coins = rng.random(CANARIES) < 0.5
    scores = rng.normal(np.where(coins, mu / factor, 0.0), 1.0)
    found = {
        "canary, any mechanism: ideal scores": bounds.threshold_bound(
            inside, outside, DELTA, CONFIDENCE
        ),
        "canary, by its curve: ideal scores": tradeoff.threshold_bound(
            inside, outside, curves, CONFIDENCE
        ),
        "one run, any mechanism: ideal scores": bounds.one_run(scores, coins, DELTA, CONFIDENCE),
        "one run, by its curve: ideal scores": tradeoff.one_run(scores, coins, curves, CONFIDENCE),
    }
    return {name: [bound.epsilon > claim, bound.epsilon] for name, bound in found.items()}


def canaries(method: str, dataset: data.Dataset, rng: np.random.Generator) -> dict[str, list[Any]]:
    """Return whether either bound of a canary audit exceeds the claim, and the bound itself."""
    found = canary.audit(Settings(method=method), dataset, rng, TRAININGS[method], CONFIDENCE)
    claim = found["claim"]["epsilon"]
    bounded = {"any mechanism": found, "by its curve": found["by_curve"]}
    return {
        f"canary, {what}: {method}": [one["epsilon_lower"] > claim, one["epsilon_lower"]]
        for what, one in bounded.items()
    }


def memberships(
    method: str, dataset: data.Dataset, rng: np.random.Generator
) -> dict[str, list[Any]]:
    """Return whether more members are found at 1 % false positives than the claim's curve allows.

    It is one if the interval over models lies above; beside it the AUC.
    """
    settings = schedules.membership(Settings(method=method))
    found = membership.audit(settings, dataset, rng, MODELS, CONFIDENCE, len(dataset.train))
    half = crafting.subset(dataset, len(dataset.train) // 2, rng)
    curves = tradeoff.family(methods.prepare(settings, half, 0).event, DELTA, False)
    assert curves is not None
    most = float(np.ravel(curves(1.0).power(0.01))[0])
    return {
        f"membership, {name}: {method}": [
            of["true_positive_rate_at_1_percent_interval"][0] > most,
            of["auc"],
        ]
        for name, of in (("LiRA", found), ("RMIA", found["rmia"]))
    }


Found = dict[str, list[Any]]  # of each bound: whether it caught it, and what it said


def cells(
    small: data.Dataset, pool: data.Dataset
) -> dict[str, tuple[int, Callable[[np.random.Generator], Found]]]:
    """Return what is done for each factor: how often, and what one of them finds."""
    found: dict[str, tuple[int, Callable[[np.random.Generator], Found]]] = {}
    for method in PAIRS:
        found[f"transcript of {method}"] = (
            REPEATED,
            lambda rng, m=method: {f"transcript of {m}": [heard(m, small, rng)]},
        )
    for method in TRAININGS:
        found[f"canary of {method}"] = (REPEATED, lambda rng, m=method: canaries(m, pool, rng))
        found[f"membership of {method}"] = (
            REPEATED,
            lambda rng, m=method: memberships(m, pool, rng),
        )
    found["one run"] = (ONE_RUNS, lambda rng: one_run(small, rng))
    return found


def measured(record: dict[str, Any], minutes: float) -> bool:
    """Fill the rows of a record that are not there yet; return whether all of them are."""
    digits, began = data.load("digits"), time.monotonic()
    small = crafting.subset(digits, schedules.SMALL_RECORDS, np.random.default_rng(1))
    pool = crafting.subset(digits, 2 * schedules.SMALL_RECORDS, np.random.default_rng(2))
    todo = cells(small, pool)
    for number, factor in enumerate(FACTORS):
        sample = {"ideal scores": (SIMULATED, lambda rng, f=factor: simulated(f, rng))}
        for place, (cell, (times, once)) in enumerate({**sample, **todo}.items()):
            key = f"{cell} at {factor:g}"
            if key in record["cells"]:
                continue
            if time.monotonic() - began > 60.0 * minutes:
                return False
            busy, rng = time.process_time(), np.random.default_rng([SEED, number, place])
            with weaker(factor):
                found = [once(rng) for _ in range(times)]
            for name in found[0]:
                caught, *values = zip(*(one[name] for one in found), strict=True)
                row = {"caught": int(sum(caught)), "of": times}
                if values:
                    row["median"] = float(np.median(values[0]))
                record["rows"].setdefault(name, {})[f"{factor:g}"] = row
                print(name, factor, row, flush=True)
            record["cells"][key] = round(time.process_time() - busy, 1)
            files.write_json(OUT, record)
    return True


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


def begun(anew: bool) -> dict[str, Any]:
    """Return what an earlier call has found at these settings, or an empty record."""
    asked = {
        "made_by": "python benchmarks/audit_power.py",
        "data": "digits",
        "records": schedules.SMALL_RECORDS,
        "epsilon": EPSILON,
        "delta": DELTA,
        "confidence": CONFIDENCE,
        "seed": SEED,
        "pairs": PAIRS,
        "trials_a_side": TRIALS,
        "canaries": CANARIES,
        "canary_trainings": TRAININGS,
        "membership_models": MODELS,
        "version": __version__,
        "revisions": {name: methods.lookup(name).revision for name in PAIRS},
        "machine": runs.machine(),
    }
    told = json.loads(OUT.read_text("utf-8")) if OUT.exists() and not anew else {}
    if asked.items() <= told.items():
        return dict(told)
    return {**asked, "cells": {}, "rows": {}}


def main() -> None:
    """Measure, write, renew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--anew", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    record = begun(given.anew)
    if measured(record, given.minutes):
        files.put_between(PAGE, "audit power", f"\n{table(record['rows'])}\n")
        print(f"whole; {sum(record['cells'].values()):.0f} seconds of one processor")


if __name__ == "__main__":
    main()
