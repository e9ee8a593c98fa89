"""One attack on one method: a record with the lower bound beside the claim."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simplexdp import data, files, methods, progress, runs, sampling, seal
from simplexdp.audit import (
    canary,
    claims,
    crafting,
    membership,
    one_run,
    reconstruct,
    schedules,
    tradeoff,
    transcript,
)
from simplexdp.rounding import rounded_down, rounded_up
from simplexdp.settings import Settings
from simplexdp.statement import WITHOUT_NOISE

ATTACKS = ("transcript", "canary", "one-run", "membership", "reconstruct")
PLANTED = ("canary", "one-run")  # these plant pairs of inputs, or inputs that are in or out
BOUNDED = ("transcript", *PLANTED)  # these bound ε; the others show how well an attack does
Advance = Callable[[], None]


@dataclass(frozen=True)
class Job:
    """One attack as asked for; `small` lets it choose a cheap schedule where none is given."""

    settings: Settings
    dataset: data.Dataset
    trials: int | None
    confidence: float
    rng: np.random.Generator
    small: bool
    out: Path | None
    relation: str


def run(
    settings: Settings,
    attack: str = "canary",
    trials: int | None = None,
    confidence: float = 0.95,
    *,
    folder: Path | None = None,
    out: Path | None = None,
    dataset: data.Dataset | None = None,
    seed: int | None = None,
    show_progress: bool = False,
    relation: str = claims.PAIR,
) -> dict[str, Any]:
    """Attack a method, or with `folder` the method, model and budget of a finished run.

    On a run, transcript and one-run train its whole schedule on its data, membership its schedule
    on halves of the records, canary few steps on at most 100 records, and reconstruct one step; all
    but membership train without augmentation.  The result is written into the run's statement,
    which says whether the schedule was the run's own.

    The canaries of canary and one-run are pairs of inputs, or in or out (`relation` in-out).
    `trials` are pairs of trainings (transcript), trainings (canary), canaries (one-run), shadow
    models (membership) or records of a batch (reconstruct). With the attack `all`, each bound on ε
    has its share of the error, so that all of them hold together at the confidence asked. Pictures
    go to `out`.
    The seed is the audit's own; it decides nothing about anybody's privacy.
    """
    names: tuple[str, ...] = ATTACKS if attack == "all" else (attack,)
    if attack != "all" and attack not in ATTACKS:
        raise ValueError(f"unknown attack {attack!r}; use one of {', '.join(ATTACKS)}, all")
    if out is not None and {"membership", "reconstruct"} & set(names):
        files.check_drawing()
    if relation not in claims.RELATIONS:
        raise ValueError(f"unknown relation {relation!r}; use {' or '.join(claims.RELATIONS)}")
    if relation != claims.PAIR and attack not in (*PLANTED, "all"):
        raise ValueError(f"{attack} has no use for --relation {relation}; leave it out")
    check(trials, confidence)
    if folder is not None:
        attacked = runs.RunFolder.open(folder)
        if not attacked.finished():
            raise ValueError(f"{folder} is not finished; go on with it by --resume first")
        seal.verify(folder)  # its statement is written anew at the end
        # The attacks look at weights where the records are.
        named = settings.code()
        settings = dataclasses.replace(attacked.settings(), device="cpu")
        for option, name in settings.code().items():
            if named.get(option) != name:
                raise ValueError(
                    f"{folder} names {name}, which is code; it is attacked from Python alone, with "
                    "settings that name it too"
                )
    if dataset is None:
        dataset = _data(settings, folder)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    if attack == "all" and not methods.prepare(settings, dataset, 0).releases:
        names = tuple(name for name in names if name != "transcript")
    rng = sampling.stream(sampling.fresh_seed() if seed is None else seed, "audit", 0)
    results = []
    for name in names:
        level = shared(confidence, names) if name in BOUNDED else confidence
        job = Job(settings, dataset, trials, level, rng, folder is None, out, relation)
        results.append(_with_bar(name, job, show_progress))
        record = results[0] if len(names) == 1 else {"attack": "all", "audits": results}
        record = {**record, **schedules.made_by(settings.method)}
        if out is not None:  # after each attack, so that a failure of the next loses none
            suffix = attack if relation == claims.PAIR else f"{attack}-{relation}"
            files.write_json(out / f"{dataset.name}-{settings.method}-{suffix}.json", record)
    if folder is not None:
        attach(folder, strongest(results, confidence))
    return record


def check(trials: int | None, confidence: float) -> None:
    """Refuse what no attack could be made with, before anything is trained."""
    if trials is not None and trials < 1:
        raise ValueError(f"the number of trials is {trials}; give at least 1, or leave it out")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"the confidence is {confidence}; give a number between 0 and 1")


def _with_bar(attack: str, job: Job, show_progress: bool) -> dict[str, Any]:
    counts = {
        "transcript": transcript.PAIRS,
        "canary": canary.TRIALS,
        "membership": membership.MODELS,
    }
    total = counts.get(attack, 1)
    with progress.bars(show_progress) as bar:
        label = f"{attack} on {job.settings.method}"
        task = bar.add_task(label, total=(job.trials or total) if total > 1 else 1)
        return make(attack, job, lambda: bar.advance(task))


def make(attack: str, job: Job, advance: Advance) -> dict[str, Any]:
    """Make one attack; return the fields that every result has, the one-line summary among them."""
    began = time.monotonic()
    found = ATTACK[attack](job, advance)
    claim = found.get("claim") or {}
    record: dict[str, Any] = {
        "attack": attack,
        "method": job.settings.method,
        "data": job.dataset.name,
        "confidence": job.confidence,
        "relation": claim.get("relation", "none"),
        "seconds": round(time.monotonic() - began, 2),
        **found,
    }
    return {**record, "summary": summarise(record)}


def summarise(record: dict[str, Any]) -> str:
    """Return one line: what was done, what came out, and how it stands to the claim."""
    percent = f"{100 * record['confidence']:g} %"
    if record["attack"] == "reconstruct":
        return (
            f"reconstruct: {record['recovered']} of {record['trials']} inputs of a batch were "
            "read off one update"
        )
    if record["attack"] == "membership":
        rates = " and ".join(
            f"{name}: AUC {found['auc']:.3f}, true-positive rate at 1 % false positives "
            f"{100 * found['true_positive_rate_at_1_percent']:.1f} %"
            for name, found in (("LiRA", record), ("RMIA", record["rmia"]))
        )
        return f"membership ({record['trials']} models): {rates}"
    what = {"canary": "trainings", "one-run": "canaries"}.get(record["attack"], "pairs")
    about = "releases" if record["attack"] == "transcript" else "released weights"
    text = (
        f"{record['attack']} ({record['trials']} {what}): "
        f"ε ≥ {rounded_down(record['epsilon_lower'], 3)} for the {about} "
        f"at {percent} confidence, {record['relation']}"
    )
    epsilon = record["claim"]["epsilon"]
    if epsilon is None:
        return text + "; nothing is claimed"
    verdict = "above" if above(record) else "not above"
    scope = "" if record["covers_weights"] else ", which does not cover the weights"
    text += f"; {verdict} the bound of {rounded_up(epsilon, 3)} in that relation{scope}"
    if record["attack"] == "transcript":
        return f"{text}; {transcript.described(record)}"
    if record.get("by_curve"):
        shown = rounded_down(record["by_curve"]["epsilon_lower"], 3)
        text += f"; ε ≥ {shown} if {tradeoff.ASSUMES}"
    return text


def above(record: dict[str, Any]) -> bool:
    """Return whether a result contradicts the claim that it is held against."""
    epsilon = record["claim"]["epsilon"]
    if epsilon is None:
        return False
    if record["attack"] == "transcript":
        return transcript.contradicts(record)
    bounds = [record, record.get("by_curve") or record]
    return any(bound["epsilon_lower"] > epsilon for bound in bounds)


def shared(confidence: float, names: Sequence[str]) -> float:
    """Return the confidence of each bound with which all of them hold together (union bound)."""
    return 1.0 - (1.0 - confidence) / max(1, sum(name in BOUNDED for name in names))


def strongest(results: Sequence[dict[str, Any]], confidence: float) -> dict[str, Any]:
    """Return the result with the largest lower bound, or the first where none has one.

    Formal guarantee
        Statement: if each of the bounds holds at `shared(confidence, …)`, the largest holds at
        `confidence`, which is what the returned result says.
        Argument: it is wrong only if one of them is; their errors add up to 1 − confidence.
    """
    bounded = [result for result in results if result["epsilon_lower"] is not None]
    if not bounded:
        return results[0]
    largest = max(bounded, key=lambda result: result["epsilon_lower"])
    chosen = {**largest, "confidence": confidence}
    return {**chosen, "summary": summarise(chosen)}


def attach(folder: Path, result: dict[str, Any]) -> None:
    """Write an audit's result into the statement of a finished run."""
    run_folder = runs.RunFolder.open(folder)
    sealed = seal.verify(folder)
    statement = sealed.statement
    names = ("attack", "epsilon_lower", "confidence", "trials", "relation", "seconds", "summary")
    audited = {name: result[name] for name in names}
    schedule = result.get("schedule") or {}
    planned = {"steps": statement.steps, "sampling": statement.sampling}
    own = (
        result["attack"] in ("transcript", "one-run")  # these train the run's whole schedule
        and planned.items() <= schedule.items()
        and not run_folder.settings().augment
    )
    audited["schedule"] = schedule or None
    audited["summary"] += f"; {trained(schedule, own)}"
    outside = tuple(dict.fromkeys([*statement.does_not_cover, WITHOUT_NOISE]))
    run_folder.save_statement(
        dataclasses.replace(statement, audited=audited, does_not_cover=outside), sealed.ledger_entry
    )


def trained(schedule: Mapping[str, Any], own: bool) -> str:
    """Return what the attack trained, seen from the run whose statement shows its result."""
    if own:
        return "trained on this run's own schedule"
    other = "trained on another schedule than this run's"
    if not schedule:
        return other
    return (
        f"{other}: {schedule['records']} records, {schedule['steps']} steps, "
        f"sampling: {schedule['sampling']}"
    )


def _data(settings: Settings, folder: Path | None) -> data.Dataset:
    try:
        return data.load(settings.data, **settings.data_options)
    except (ValueError, OSError) as error:
        if folder is None:
            raise
        raise ValueError(
            f"the data of {folder} ({settings.data}) is not at hand, and an audit trains on it: "
            f"{error}"
        ) from error


def _transcript(job: Job, advance: Advance) -> dict[str, Any]:
    settings, dataset = job.settings, job.dataset
    if job.small and schedules.is_open(settings):
        records = min(schedules.SMALL_RECORDS, len(dataset.train))
        settings = schedules.transcript(settings, records)
        dataset = crafting.subset(dataset, records, job.rng)
    settings = dataclasses.replace(settings, augment=())
    return transcript.audit(settings, dataset, job.rng, job.trials, job.confidence, advance)


def _canary(job: Job, advance: Advance) -> dict[str, Any]:
    trials = job.trials or canary.TRIALS
    return canary.audit(
        job.settings, job.dataset, job.rng, trials, job.confidence, advance, job.relation
    )


def _one_run(job: Job, advance: Advance) -> dict[str, Any]:
    settings, records = job.settings, None
    if job.small and schedules.is_open(settings):
        settings = schedules.one_run(settings, job.relation)
        records = min(schedules.SMALL_RECORDS, len(job.dataset.train))
    canaries = job.trials or one_run.CANARIES
    found = one_run.audit(
        settings, job.dataset, job.rng, canaries, job.confidence, records, job.relation
    )
    advance()
    return found


def _membership(job: Job, advance: Advance) -> dict[str, Any]:
    settings, pool = job.settings, len(job.dataset.train)
    if job.small and schedules.is_open(settings):
        settings = schedules.membership(settings)
        pool = min(2 * schedules.SMALL_RECORDS, pool)
    elif settings.batch_size is not None:
        # Half of the records at the same sampling rate.
        settings = dataclasses.replace(settings, batch_size=max(1, settings.batch_size // 2))
    models = job.trials or membership.MODELS
    found = membership.audit(settings, job.dataset, job.rng, models, job.confidence, pool, advance)
    if job.out is not None:
        path = job.out / f"{job.dataset.name}-{settings.method}-roc.png"
        membership.plot({settings.method: found}, path, f"LiRA on {job.dataset.name}")
    return found


def _reconstruct(job: Job, advance: Advance) -> dict[str, Any]:
    settings = job.settings
    if settings.model is None and schedules.trains_network(settings):
        settings = dataclasses.replace(settings, model="mlp")
    found = reconstruct.attack(settings, job.dataset, job.trials or reconstruct.BATCH, job.rng)
    advance()
    if job.out is not None:
        path = job.out / f"{job.dataset.name}-{settings.method}.png"
        reconstruct.draw([found], job.dataset.input_shape, path)
    return reconstruct.summary(found)


ATTACK: dict[str, Callable[[Job, Advance], dict[str, Any]]] = {
    "transcript": _transcript,
    "canary": _canary,
    "one-run": _one_run,
    "membership": _membership,
    "reconstruct": _reconstruct,
}
