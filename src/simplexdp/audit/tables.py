"""The table of audits: all methods under attack, its file, its text and its place in the docs."""

from __future__ import annotations

import dataclasses
import math
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from simplexdp import data, files, methods, progress, sampling
from simplexdp.audit import (
    attacks,
    claims,
    crafting,
    membership,
    one_run,
    schedules,
    tradeoff,
    transcript,
)
from simplexdp.rounding import rounded_up
from simplexdp.settings import DEFAULTS, Settings

MODELS = 12
MOST_RECORDS = 2000


def table(
    asked: Settings = DEFAULTS,
    names: Sequence[str] | None = None,
    confidence: float = 0.95,
    trials: int | None = None,
    models: int = MODELS,
    seed: int = 0,
    out: Path | None = None,
    show_progress: bool = True,
) -> dict[str, Any]:
    """Attack every method on one data set at one claimed budget; unless asked, the digits part.

    Of what is asked for, only the data and the budget are used.
    The whole table is a function of `seed`.  With `out`, it is written there with the ROC curves.
    """
    if out is not None:
        files.check_drawing()
    began, cpu = time.monotonic(), time.process_time()
    attacks.check(trials, confidence)
    names = methods.names() if names is None else names
    rng = sampling.stream(seed, "audit-table", 0)
    dataset = data.load(asked.data, **asked.data_options)
    if len(dataset.train) > MOST_RECORDS:
        dataset = crafting.subset(dataset, MOST_RECORDS, rng)
    counts = {method: trials or methods.lookup(method).audited.trials for method in names}
    total = sum(counts.values()) + len(names) * (models + one_run.CANARIES // 10)
    total += transcript.PAIRS * sum(methods.lookup(name).audited.adds_noise for name in names)
    rows = []
    with progress.bars(show_progress) as bar:
        task = bar.add_task("audit", total=total)
        for method in names:
            settings = Settings(
                data=asked.data,
                method=method,
                epsilon=asked.epsilon,
                delta=asked.delta,
                data_options=asked.data_options,
            )

            def step(method: str = method) -> None:
                bar.update(task, advance=1, description=f"auditing {method}")

            # A row is a function of the seed and the method alone, whichever others are asked for.
            own = sampling.stream(seed, f"audit-table-{method}", 0)
            job = attacks.Job(settings, dataset, None, confidence, own, True, None, claims.PAIR)
            rows.append(_row(job, counts[method], models, step))
            bar.advance(task, one_run.CANARIES // 10)
    record = {
        "data": asked.data,
        "records": len(dataset.train),
        "epsilon": asked.epsilon,
        "delta": asked.delta,
        "confidence": confidence,
        "seed": seed,
        "rows": rows,
        "seconds": round(time.monotonic() - began, 1),
        "cpu_seconds": round(time.process_time() - cpu, 1),
        **schedules.made_by(*names),
    }
    if out is not None:
        write(record, out)
    return record


def _row(job: attacks.Job, trials: int, models: int, step: Callable[[], None]) -> dict[str, Any]:
    in_out = dataclasses.replace(job, relation=claims.IN_OUT)
    noisy = methods.lookup(job.settings.method).audited.adds_noise
    heard = attacks.make("transcript", job, step) if noisy else None
    found = {
        "canary": attacks.make("canary", dataclasses.replace(job, trials=trials), step),
        "one_run": attacks.make("one-run", job, lambda: None),
        "one_run_in_out": attacks.make("one-run", in_out, lambda: None),
        "membership": attacks.make("membership", dataclasses.replace(job, trials=models), step),
    }
    claims_nothing = found["membership"]["claim"]["epsilon"] is None
    return {
        "method": job.settings.method,
        "claimed_epsilon": None if claims_nothing else job.settings.epsilon,
        "claimed_for_pairs": found["canary"]["claim"],
        "covers_weights": found["canary"]["covers_weights"],
        "transcript": heard,
        **found,
    }


HEAD = (
    "| method | claimed ε | covers the weights | transcript: ε ≥ | claim for pairs | canary: ε ≥ "
    "| one run: ε ≥ | one run, in or out: ε ≥ | TPR at 1 % FPR: LiRA, RMIA | AUC |"
)


def to_markdown(record: dict[str, Any]) -> str:
    """Return the table for a page, with what a reader needs to redo it."""
    lines = [HEAD, "|---|---|---|---|---|---|---|---|---|---|"]
    for row in record["rows"]:
        member = row["membership"]
        pairs, in_out = row["claimed_for_pairs"]["epsilon"], row["one_run_in_out"]
        both = (member, member["rmia"])
        rates = ", ".join(f"{100 * m['true_positive_rate_at_1_percent']:.1f} %" for m in both)
        areas = ", ".join(f"{m['auc']:.3f}" for m in both)
        lines.append(
            f"| {row['method']} | {_number(row['claimed_epsilon'])} "
            f"| {'yes' if row['covers_weights'] else '**no**'} | {_heard(row['transcript'])} "
            f"| {_number(pairs)} "
            f"| {_bound(row['canary'], pairs)} | {_bound(row['one_run'], pairs)} "
            f"| {_bound(in_out, in_out['claim']['epsilon'])} "
            f"| {rates} | {areas} |"
        )
    percent = f"{100 * record['confidence']:g} %"
    trials = ", ".join(f"{row['method']} {row['canary']['trials']}" for row in record["rows"])
    first = record["rows"][0]
    cut = record["records"] == MOST_RECORDS
    part = f" ({MOST_RECORDS:,} of its records)" if cut else ""
    others = "".join(
        f"{row['method']}'s claim for pairs, and the bounds held against it, are at "
        f"δ = {rounded_up(row['claimed_for_pairs']['delta'], 3)}. "
        for row in record["rows"]
        if row["claimed_for_pairs"]["delta"] != record["delta"]
    )
    lines += [
        "",
        f"{record['data']}{part}, δ = {record['delta']:g}, confidence {percent} for each bound "
        f"by itself. {others}"
        f"Two bounds in a cell: of any (ε, δ) mechanism, and if {tradeoff.ASSUMES}. "
        f"Transcript: pairs of trainings until each release drew {transcript.NUMBERS:,} numbers. "
        f"Canary trainings: {trials}. "
        f"One run: {first['one_run']['trials']} canaries. "
        f"Membership: {first['membership']['trials']} models on halves of "
        f"{first['membership']['pool']} records. {record['cpu_seconds']:.0f} s of one processor in "
        "all. Bold: above the claim in that relation.",
    ]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "none" if value is None else rounded_up(value, 3)


def _heard(found: dict[str, Any] | None) -> str:
    if found is None:
        return "–"
    text = _down(found["epsilon_lower"])
    return f"**{text}**" if attacks.above(found) else text


def _bound(found: dict[str, Any], claim: float | None) -> str:
    bounds = [found] if found["by_curve"] is None else [found, found["by_curve"]]
    values = [bound["epsilon_lower"] for bound in bounds]
    return ", ".join(
        f"**{_down(value)}**" if claim is not None and value > claim else _down(value)
        for value in values
    )


def _down(value: float) -> str:
    return f"{math.floor(100 * value) / 100:.2f}"  # never above what was found


def write(record: dict[str, Any], out: Path) -> None:
    """Write results/audit/digits.json or fashion-subset.json, and the ROC curves as a picture."""
    out.mkdir(parents=True, exist_ok=True)
    name = file_name(record["data"])
    files.write_json(out / f"{name}.json", record)
    curves = {row["method"]: row["membership"] for row in record["rows"]}
    membership.plot(curves, out / f"{name}-roc.png", f"Membership inference on {record['data']}")


def file_name(data_name: str) -> str:
    """Return the stem of the table's file."""
    return "fashion-subset" if data_name == "fashion-mnist" else Path(data_name).stem


def place(page: Path, record: dict[str, Any]) -> None:
    """Put the table between its markers on a page of the guide."""
    mark = f"audit table: {file_name(record['data'])}"
    files.put_between(page, mark, f"\n{to_markdown(record)}\n")


def as_text(record: dict[str, Any]) -> str:
    """Return the table for a terminal."""
    shown = re.sub(r"\*\*([\d.]+)\*\*", r"\1 !", to_markdown(record))
    return shown.replace("**", "").replace("Bold:", "Marked with !:")
