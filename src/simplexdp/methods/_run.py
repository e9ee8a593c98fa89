"""Trainings in a run folder or in memory: the one place that reserves a cost in a ledger."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from simplexdp import (
    bundle,
    claims,
    data,
    distributed,
    evaluation,
    files,
    progress,
    runs,
    sampling,
    seal,
)
from simplexdp.card import PAGE
from simplexdp.data.augment import check as check_augmentation
from simplexdp.ledger import Ledger, identity
from simplexdp.methods import lookup, names
from simplexdp.methods.base import Prepared, Run, Trained
from simplexdp.runs import checkpoint
from simplexdp.settings import Settings
from simplexdp.statement import Statement


@dataclass(frozen=True)
class Outcome:
    """A trained model, what it reaches and what may be claimed of it."""

    model: nn.Module
    model_name: str
    statement: Statement
    accuracy: float
    validation_accuracy: float | None
    steps: int
    seconds: float
    recalls: tuple[float | None, ...]
    tested: int  # records that the accuracy is of
    chosen: dict[str, Any]  # what was chosen by rule: learning rate, batch size, …

    @property
    def worst_recall(self) -> float | None:
        """Return the smallest recall of the test set's classes."""
        return min((share for share in self.recalls if share is not None), default=None)

    @classmethod
    def of(cls, prepared: Prepared, trained: Trained, dataset: data.Dataset) -> Outcome:
        """Return what came of a training."""
        return cls(
            model=trained.model,
            model_name=prepared.model_name,
            statement=prepared.statement(),
            accuracy=trained.accuracy,
            validation_accuracy=trained.validation_accuracy,
            steps=prepared.steps,
            seconds=trained.seconds,
            recalls=trained.recalls,
            tested=len(dataset.test.labels),
            chosen={**prepared.resolved, "parameters": prepared.parameters},
        )


def prepare(settings: Settings, dataset: data.Dataset, seed: int | None = None) -> Prepared:
    """Return the training that the settings ask for, with its cost; nothing is spent.

    Args:
        settings: What is asked for.
        dataset: The data.
        seed: The run's seed; that of the settings or a fresh secret one unless given.

    Returns:
        The training, which says what it will cost and cover.

    Raises:
        ValueError: If it would be refused.
    """
    if seed is None:
        seed = sampling.fresh_seed() if settings.seed is None else settings.seed
    method = lookup(settings.method)
    if dataset.train.groups is not None and not method.persons:
        able = [name for name in names() if lookup(name).persons]
        raise ValueError(
            f"{settings.method} protects records and not persons; use --method {' or '.join(able)}"
        )
    prepared = method.prepare(settings, dataset, seed)
    if (prepared.coverage.unit == claims.PERSON) != (dataset.train.groups is not None):
        raise ValueError(
            f"{settings.method} claims a bound per {prepared.coverage.unit}, and the records are "
            f"{'not ' if dataset.train.groups is None else ''}grouped by person"
        )
    return prepared


def train(settings: Settings, dataset: data.Dataset) -> Outcome:
    """Train in memory: nothing is written and no ledger counts it.

    Args:
        settings: What is asked for.
        dataset: The data.

    Returns:
        What came out.

    Raises:
        ValueError: If the training would be refused.
    """
    prepared = prepare(settings, dataset)
    return Outcome.of(prepared, prepared.start(Run()), dataset)


def run(
    settings: Settings,
    out: Path | None = None,
    resume: bool = False,
    show_progress: bool = False,
    dataset: data.Dataset | None = None,
    ledger: Ledger | None = None,
    stop: Callable[[], bool] = lambda: False,
    allow_large_delta: bool = False,
) -> tuple[Outcome, runs.RunFolder]:
    """Train into a run folder, or go on with an unfinished one.

    With a ledger, the run's whole cost is reserved before its first step, and a run that would
    exceed the data set's budget is refused.

    Args:
        settings: What is asked for.
        out: The folder; a new one below ./runs unless given.
        resume: Whether to go on with the run in `out`.
        show_progress: Whether a bar is shown.
        dataset: The data; loaded as the settings say unless given.
        ledger: What counts the run.
        stop: Asked after every step of a network's training; True ends it at a checkpoint.
        allow_large_delta: Whether a δ of 1 / records or more is taken, which protects no one.

    Returns:
        What came out, and the folder that holds it.

    Raises:
        ValueError: If the run is refused; nothing is spent then.
    """
    lookup(settings.method).options(settings)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    asked = settings
    settings = dataclasses.replace(settings, device=distributed.local_device(settings.device))
    _check_device(settings.device)
    if dataset is None:
        dataset = data.load(settings.data, **settings.data_options)
    check_augmentation(settings.augment, dataset.input_shape)
    if not allow_large_delta:
        claims.refuse_large_delta(settings.delta, len(dataset.train.labels))
    with distributed.group(settings.device):
        folder = _folder(asked, out, resume)
        with folder.held():
            if resume:
                _check_resumable(settings, folder)
            outcome = _train(settings, folder, resume, show_progress, dataset, ledger, stop)
            return outcome, folder


def _check_device(device: str) -> None:
    try:
        torch.zeros(1, device=device).item()  # the device meta has no numbers
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"no device {device!r} here; use cpu, or another one of torch's"
        ) from error


def _folder(settings: Settings, out: Path | None, resume: bool) -> runs.RunFolder:
    """Return the folder to go on with, or a new one."""
    if distributed.world() > 1 and (out is None or not lookup(settings.method).several_processes):
        able = [name for name in names() if lookup(name).several_processes]
        raise ValueError(
            f"training in {distributed.world()} processes needs --out, a folder that all of them "
            f"see, and a method that can: {', '.join(able)}"
        )
    if resume:
        if out is None:
            raise ValueError("--resume needs the run folder; give it with --out")
        return runs.RunFolder.open(out)
    if distributed.is_first() or out is None:
        revision = lookup(settings.method).revision
        return runs.RunFolder.create(out or runs.fresh_path(settings), settings, revision)
    return runs.RunFolder(out)  # the first process makes it


def _check_resumable(settings: Settings, folder: runs.RunFolder) -> None:
    """Refuse a folder that cannot be gone on with; one without a checkpoint begins anew."""
    if folder.finished():
        folder.forget_seed()
        raise ValueError(f"{folder.path} is finished; there is nothing to resume")
    folder.check_begun_as(settings, lookup(settings.method).revision)
    if distributed.is_first():
        if folder.checkpoint.exists():
            folder.go_on_here()
        else:  # it begins with another seed
            folder.begin_anew()
            progress.warn(f"{folder.path} has no checkpoint: it begins anew and is counted anew")


def _train(
    settings: Settings,
    folder: runs.RunFolder,
    resume: bool,
    show_progress: bool,
    dataset: data.Dataset,
    ledger: Ledger | None,
    stop: Callable[[], bool],
) -> Outcome:
    method = lookup(settings.method)
    key = settings.key(method.revision)
    entry: str | None = None
    try:
        seed = distributed.agree(_seed(settings, folder, key))
        prepared = prepare(settings, dataset, seed)
        if ledger is not None and distributed.is_first():
            folder.count_in(ledger.path)

        def pay() -> None:
            nonlocal entry
            if ledger is not None and distributed.is_first():
                entry = reserve(ledger, settings, prepared, folder, dataset)

        start = Run(folder, key, show_progress, pay, stop)
        outcome = Outcome.of(prepared, prepared.start(start), dataset)
    except BaseException:
        # Stopped before anything was spent: nothing is left behind.
        if not (resume or folder.checkpoint.exists() or entry) and distributed.is_first():
            folder.discard()
        raise
    if distributed.is_first():
        folder.save_model(
            outcome.model,
            bundle.describe(settings, prepared, dataset),
            bundle.preprocessing_of(prepared, dataset),
        )
        folder.save_outcome(summary(settings, outcome, folder), dataset.checksums)
        folder.save_statement(outcome.statement, entry)
        folder.forget_seed()
        told = seal.card_of(seal.verify(folder.path), folder.path.name, metrics=True)
        files.write_atomically(folder.path / PAGE, told.page().encode())
    return outcome


def reserve(
    ledger: Ledger,
    settings: Settings,
    prepared: Prepared,
    folder: runs.RunFolder,
    dataset: data.Dataset,
) -> str:
    """Count a run before its first step, and return its entry's id.

    A resumed one is found in the ledger by the id of the run.

    The entry says what the statement says: the event, what is covered, and the marks of the
    assumptions that the run breaks.
    """
    return ledger.reserve(
        identity(settings.data),
        settings.method,
        prepared.event,
        str(folder.path.resolve()),
        prepared.coverage.covers,
        run_id=folder.configuration().get("id"),
        broken=prepared.coverage.broken(),
        records=dataset.train.inputs,
        unit=prepared.coverage.unit,
    )


def _seed(settings: Settings, folder: runs.RunFolder, key: str) -> int:
    """Return the seed of an unfinished run, the one that was asked for, or a fresh secret one."""
    if folder.checkpoint.exists():
        return checkpoint.read(folder.checkpoint, key).seed
    return sampling.fresh_seed() if settings.seed is None else settings.seed


def summary(settings: Settings, outcome: Outcome, folder: runs.RunFolder) -> dict[str, Any]:
    """Return what `simplexdp train --json` prints, and what run.json keeps as the outcome."""
    statement = outcome.statement.to_json()
    return {
        "accuracy": outcome.accuracy,
        "validation_accuracy": outcome.validation_accuracy,
        "worst_recall": outcome.worst_recall,
        "recalls": list(outcome.recalls),
        "accuracy_interval": list(evaluation.interval(outcome.accuracy, outcome.tested)),
        "test_records": outcome.tested,
        "method": settings.method,
        "data": settings.data,
        "model": outcome.model_name,
        "epsilon": statement["epsilon"],
        "delta": statement["delta"],
        "seconds": round(outcome.seconds, 3),
        "steps": outcome.steps,
        "run": str(folder.path),
        **outcome.chosen,
        "statement": statement,
    }
