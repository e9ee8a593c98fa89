"""The training loop: steps, evaluation, checkpoints, resume, progress.

Every method that trains a network runs on `train`; what a method adds is an `Update`, which takes
one batch and changes the model. All randomness of step t is a function of (seed, t), so a run that
is resumed from a checkpoint repeats exactly the steps that came after it: nothing is drawn anew
and no step is spent twice.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from simplexdp import batches, data, distributed, heap, progress, sampling
from simplexdp.data.augment import augment
from simplexdp.evaluation import (
    evaluate,
    predictions,
    recalls,
    refuse_not_finite,
    warn_of_failure,
)
from simplexdp.methods.base import Run, Trained
from simplexdp.optimizers import seed_torch
from simplexdp.runs import checkpoint
from simplexdp.settings import Settings

SECONDS_BETWEEN_CHECKPOINTS = 60.0


class OutOfTime(Exception):
    """The run was told to stop; it goes on from its checkpoint next time."""


class Update(Protocol):
    """One step of a method; returns the loss if it may be logged under the method's claim."""

    def __call__(self, inputs: Tensor, labels: Tensor, step: int) -> float | None:
        """Take a batch, change the model, and return the loss or None."""
        ...


@dataclass
class Job:
    """What the loop needs to know of one training."""

    model: nn.Module
    update: Update
    dataset: data.Dataset
    sample_rate: float
    steps: int
    seed: int
    settings: Settings
    optimizer: torch.optim.Optimizer
    epsilon_spent: Callable[[int], float | None] = lambda step: None
    on_resume: Callable[[int], None] = lambda step: None
    augments: bool = True  # off where the method augments in its own step
    channels_last: bool = True  # off for Opacus, whose per-example gradients it falsifies
    evaluated: nn.Module | None = None  # averaged weights, where they are what is released
    weighable: bool = False  # class weights might help and were not asked for

    @property
    def extra(self) -> Mapping[str, Tensor]:
        """The state beside that of the model, changed in place: the averaged weights."""
        return {} if self.evaluated is None else dict(self.evaluated.state_dict())

    @cached_property
    def fingerprint(self) -> str:
        """Of the training records: those of a checkpoint must be those of the run."""
        split = self.dataset.train
        return checkpoint.fingerprint_of(self.seed, *split.arrays())

    @cached_property
    def members(self) -> list[sampling.Indices] | None:
        """The records of each person, where the training records are grouped by person."""
        groups = self.dataset.train.groups
        if groups is None:
            return None
        counts = np.unique(groups, return_counts=True)[1]
        return np.split(np.argsort(groups, kind="stable"), counts.cumsum()[:-1])

    def rows(self, step: int, without: frozenset[int] = frozenset()) -> sampling.Indices:
        """Return the records of this process's part of a step's batch: those of whole persons."""
        units = len(self.dataset.train) if self.members is None else len(self.members)
        drawn = sampling.batch_of_step(units, self.sample_rate, self.seed, step)
        drawn = distributed.shard(drawn)
        if self.members is not None:
            drawn = np.concatenate([drawn[:0], *(self.members[person] for person in drawn)])
        return drawn[~np.isin(drawn, list(without))] if without else drawn

    def batch(self, step: int, without: frozenset[int] = frozenset()) -> batches.Batch:
        """Return this process's part of a step's batch, without some records."""
        split, settings = self.dataset.train, self.settings
        inputs, labels = batches.tensors(split, self.rows(step, without), settings.device)
        if settings.augment and self.augments:  # before scaling, so that a crop's edge is black
            rng = sampling.stream(distributed.own_seed(self.seed), "augment", step)
            inputs = augment(inputs, settings.augment, rng)
        return batches.to_network(inputs, self.channels_last), labels


@heap.kept()
def train(job: Job, run: Run) -> Trained:
    """Run the steps that are left, from the start or from the run's checkpoint.

    Args:
        job: The training.
        run: Where it leaves what it trains, and who is told.

    Returns:
        The trained model, its accuracies and the time.

    Raises:
        OutOfTime: If `run.stop` said so before the last step.
        ValueError: If the data or the checkpoint do not fit; nothing is spent then.
    """
    refuse_not_finite(job.dataset)
    distributed.check_same(job.fingerprint)
    start, seconds_before = _restore(job, run)
    settings, dataset = job.settings, job.dataset
    own = distributed.own_seed(job.seed)  # dropout shared between ranks would tie their records
    evaluate_every = math.ceil(job.steps / max(1, settings.evaluations))
    evaluated = job.evaluated or job.model
    began = saved = time.monotonic()
    accuracy: float | None = None
    losses: deque[float] = deque(maxlen=50)

    def elapsed() -> float:
        return seconds_before + time.monotonic() - began

    def prepare(step: int) -> batches.Batch:
        run.on_step(step)
        return job.batch(step, run.without)

    ahead = batches.ahead(prepare, range(start, job.steps), settings.workers)
    with progress.steps(job.steps, start, run.show_progress and distributed.is_first()) as bar:
        for step, (inputs, labels) in enumerate(ahead, start):
            seed_torch(own, "torch", step)
            if not job.model.training:  # at first, and after a test or an empty batch
                job.model.train()
            loss = job.update(inputs, labels, step)
            if loss is not None:
                losses.append(loss)
            done = step + 1
            if done % evaluate_every == 0 and done < job.steps:
                accuracy = evaluate(evaluated, dataset.test, settings.device)
                _log(run, job, done, losses, accuracy, elapsed())
            bar.advance(losses, accuracy, job.epsilon_spent if done % evaluate_every == 0 else None)
            stopped = run.stop() and done < job.steps
            if stopped or time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                _save(job, run, done, elapsed())
                saved = time.monotonic()
            if stopped:
                begun = f"; go on with --resume --out {run.folder.path}" if run.folder else ""
                raise OutOfTime(f"stopped after step {done} of {job.steps}{begun}")
    final = predictions(evaluated, dataset.test, settings.device)
    warn_of_failure(job.model, dataset, final, run.folder is not None, job.weighable)
    accuracy = float((final == dataset.test.labels).mean())
    _log(run, job, job.steps, losses, accuracy, elapsed())
    held_out = dataset.validation
    validation = None if held_out is None else evaluate(evaluated, held_out, settings.device)
    shares = recalls(final, dataset.test.labels, dataset.classes)
    return Trained(evaluated, accuracy, validation, elapsed(), shares)


def _restore(job: Job, run: Run) -> tuple[int, float]:
    """Pay for a run; return the steps that are done and the seconds that they took."""
    folder = run.folder
    if folder is None:
        return 0, 0.0
    if not folder.checkpoint.exists():
        _save(job, run, 0, 0.0)
        try:
            run.pay()
        except BaseException:
            folder.forget_seed()
            raise
        return 0, 0.0
    saved = checkpoint.read(folder.checkpoint, run.key)
    if saved.fingerprint != job.fingerprint:
        raise ValueError(
            f"the training data are not those that {folder.path} began with; "
            "resume with the data as they were, or train in another folder"
        )
    run.pay()
    try:
        job.model.load_state_dict(dict(saved.model))
    except RuntimeError as error:
        raise ValueError(f"{folder.checkpoint} does not fit the model; it is damaged") from error
    job.optimizer.load_state_dict(dict(saved.optimizer))
    with torch.no_grad():  # averaged weights are parameters
        for name, value in saved.extra.items():
            job.extra[name].copy_(value)
    if distributed.is_first():
        folder.cut_metrics(min(saved.step, job.steps - 1))  # the last one is measured again
    job.on_resume(saved.step)
    return saved.step, saved.seconds


def _save(job: Job, run: Run, step: int, seconds: float) -> None:
    """Write the checkpoint, where the run has a folder and this is its first process."""
    if run.folder is None or not distributed.is_first():
        return
    checkpoint.write(
        run.folder.checkpoint,
        step=step,
        seed=job.seed,
        key=run.key,
        seconds=seconds,
        fingerprint=job.fingerprint,
        model=job.model,
        optimizer=job.optimizer,
        extra=job.extra,
    )


def _log(
    run: Run, job: Job, step: int, losses: deque[float], accuracy: float, seconds: float
) -> None:
    """Append what was measured at a step to the run's metrics."""
    if run.folder is None or not distributed.is_first():
        return
    record: dict[str, float | None] = {
        "step": step,
        "test_accuracy": accuracy,
        "epsilon": job.epsilon_spent(step),
        "seconds": round(seconds, 3),
    }
    if losses:
        loss = sum(losses) / len(losses)
        record["loss"] = loss if math.isfinite(loss) else None  # JSON has no NaN
    run.folder.append_metrics(record)
