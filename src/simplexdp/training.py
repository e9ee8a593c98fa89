"""The loop: steps, evaluation, checkpoints, resume, progress.

Every iterative method runs on `train`; what a method adds is an `Update`, which takes one batch
and changes the model.  All randomness of step t is a function of (seed, t), so a run that is
resumed from a checkpoint repeats exactly the steps that came after it: nothing is drawn anew and
no step is spent twice.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from simplexdp import data, distributed, progress, sampling
from simplexdp.data.augment import augment
from simplexdp.runs import RunFolder, checkpoint, version
from simplexdp.schedule import lopsided
from simplexdp.settings import Settings

SECONDS_BETWEEN_CHECKPOINTS = 60.0
EVALUATED_TOGETHER = 1000
NAMED = 5  # lost classes in a warning
out_of_time = threading.Event()  # set where the time is up: `train` stops after the step in hand


class OutOfTime(Exception):
    """The budget of minutes is spent; the run in hand goes on from its checkpoint next time."""


class Update(Protocol):
    """One step of a method; returns the loss if it may be logged under the method's claim."""

    def __call__(self, inputs: Tensor, labels: Tensor, step: int) -> float | None: ...


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
    reserve: Callable[[], None] = lambda: None  # counts the run in the ledger
    channels_last: bool = True  # off for Opacus, whose per-example gradients it falsifies
    evaluated: nn.Module | None = None  # averaged weights, where they are what is released

    @property
    def extra(self) -> Mapping[str, Tensor]:
        """The state beside that of the model, changed in place: the averaged weights."""
        return {} if self.evaluated is None else dict(self.evaluated.named_parameters())

    @cached_property
    def fingerprint(self) -> str:
        """Of the training records: those of a checkpoint must be those of the run."""
        split = self.dataset.train
        return checkpoint.fingerprint_of(self.seed, split.inputs, split.labels)


@dataclass(frozen=True)
class Trained:
    """What the loop has found."""

    accuracy: float
    validation_accuracy: float | None
    steps: int
    seconds: float


def train(job: Job, run: RunFolder | None, show_progress: bool = False) -> Trained:
    """Run the steps that are left, from the start or from the run's checkpoint."""
    refuse_not_finite(job.dataset)
    distributed.check_same(job.fingerprint)
    start, seconds_before = _restore(job, run)
    settings = job.settings
    own = distributed.own_seed(job.seed)  # dropout shared between ranks would tie their records
    evaluate_every = math.ceil(job.steps / max(1, settings.evaluations))
    began = saved = time.monotonic()
    accuracy: float | None = None
    losses: deque[float] = deque(maxlen=50)

    def elapsed() -> float:
        return seconds_before + time.monotonic() - began

    with progress.steps(job.steps, start, show_progress and distributed.is_first()) as bar:
        for step, (inputs, labels) in enumerate(_batches(job, start), start):
            seed_torch(own, "torch", step)
            job.model.train()
            loss = job.update(inputs, labels, step)
            if loss is not None:
                losses.append(loss)
            done = step + 1
            if done % evaluate_every == 0 and done < job.steps:
                accuracy = evaluate(job.evaluated or job.model, job.dataset.test, settings)
                _log(run, job, done, losses, accuracy, elapsed())
            bar.advance(losses, accuracy, job.epsilon_spent if done % evaluate_every == 0 else None)
            if run is not None and time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS:
                _save(job, run, done, elapsed())
                saved = time.monotonic()
            if out_of_time.is_set() and done < job.steps:
                if run is not None:
                    _save(job, run, done, elapsed())
                raise OutOfTime
    final = predictions(job.evaluated or job.model, job.dataset.test, settings)
    _warn_of_failure(job, final, kept=run is not None)
    accuracy = float((final == job.dataset.test.labels).mean())
    validation = job.dataset.validation
    _log(run, job, job.steps, losses, accuracy, elapsed())
    return Trained(
        accuracy=accuracy,
        validation_accuracy=(
            None
            if validation is None
            else evaluate(job.evaluated or job.model, validation, settings)
        ),
        steps=job.steps,
        seconds=elapsed(),
    )


def _warn_of_failure(job: Job, final: NDArray[np.int64], kept: bool) -> None:
    """Say that a training diverged or, of one that is kept, that it lost classes."""
    if not all(bool(p.isfinite().all()) for p in job.model.parameters()):
        progress.warn("the training diverged: its weights are not finite; a smaller --lr may help")
    lost = np.setdiff1d(job.dataset.test.labels, final)
    if not kept or not len(lost):  # a few steps are trained for their time alone
        return
    if len(np.unique(final)) == 1:
        what = "gives every test record the same class"
    else:
        names = [job.dataset.class_names[k] for k in lost[:NAMED]] + ["…"] * (len(lost) > NAMED)
        what = (
            f"never predicts {len(lost)} of the {job.dataset.classes} classes, of which there are "
            f"test records ({', '.join(names)})"
        )
    settings = job.settings
    weighable = settings.method in ("dirichlet", "plain")
    uneven = lopsided(np.bincount(job.dataset.train.labels, minlength=job.dataset.classes))
    unweighted = weighable and uneven and "class_weights" not in settings.options
    weights = ", --option class_weights=balanced" if unweighted else ""
    progress.warn(
        f"the model {what}; what may help: another --lr or --optimizer, more steps, a larger "
        f"--epsilon{weights}"
    )


def seed_torch(seed: int, purpose: str, step: int) -> None:
    """Key torch's own generators, from which weights and dropout are drawn.

    Not `torch.manual_seed`: before a GPU is in use, that keeps a note of every call for later.
    """
    key = int(sampling.stream(seed, purpose, step).integers(2**63))
    torch.default_generator.manual_seed(key)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(key)


def predictions(model: nn.Module, split: data.Split, settings: Settings) -> NDArray[np.int64]:
    """The class that the model gives to each record."""
    model.eval()
    found = []
    with torch.no_grad():
        for first in range(0, len(split.labels), EVALUATED_TOGETHER):
            inputs, _ = _tensors(split, slice(first, first + EVALUATED_TOGETHER), settings.device)
            found.append(model(to_network(inputs)).argmax(1).cpu().numpy())
    return np.concatenate(found)


def evaluate(model: nn.Module, split: data.Split, settings: Settings) -> float:
    """The share of records that the model classifies correctly."""
    return float((predictions(model, split, settings) == split.labels).mean())


def make_optimizer(name: str, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """The optimizers of `Settings.optimizer`."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=lr)
    if name == "momentum":
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    if name == "adam":
        return torch.optim.Adam(parameters, lr=lr)
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=lr)
    if name == "rmsprop":
        return torch.optim.RMSprop(parameters, lr=lr)
    raise ValueError(f"unknown optimizer {name!r}")


def set_rate(optimizer: torch.optim.Optimizer, lr: float, step: int, warmup: int) -> None:
    """The learning rate of a step: it grows linearly to `lr` over the first `warmup` steps."""
    for group in optimizer.param_groups:
        group["lr"] = lr * min(1.0, (step + 1) / max(warmup, 1))


def refuse_not_finite(dataset: data.Dataset) -> None:
    """Refuse inputs with NaN or infinity before anything is spent; a statement names that."""
    splits = {"training": dataset.train, "test": dataset.test, "validation": dataset.validation}
    for name, split in splits.items():
        if split is None or split.inputs.dtype.kind != "f":
            continue
        if not bool(np.isfinite(split.inputs).all()):
            raise ValueError(f"the {name} inputs hold NaN or infinity; clean them first")


def _batches(job: Job, start: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The prepared batches in order; with workers, the next ones are prepared meanwhile."""
    split, settings = job.dataset.train, job.settings

    def prepare(step: int) -> tuple[Tensor, Tensor]:
        batch = sampling.batch_of_step(len(split.labels), job.sample_rate, job.seed, step)
        indices = distributed.shard(batch)
        inputs, labels = _tensors(split, indices, settings.device)
        if settings.augment:  # before scaling, so that a crop is padded with black
            rng = sampling.stream(distributed.own_seed(job.seed), "augment", step)
            inputs = augment(inputs, settings.augment, rng)
        return to_network(inputs, job.channels_last), labels

    if settings.workers < 1:
        yield from map(prepare, range(start, job.steps))
        return
    with ThreadPoolExecutor(settings.workers) as pool:
        waiting: deque[Future[tuple[Tensor, Tensor]]] = deque()
        for step in range(start, job.steps):
            waiting.append(pool.submit(prepare, step))
            if len(waiting) > 2 * settings.workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _tensors(
    split: data.Split, rows: sampling.Indices | slice, device: str
) -> tuple[Tensor, Tensor]:
    inputs = torch.from_numpy(split.inputs[rows].copy()).to(device)
    return inputs, torch.from_numpy(split.labels[rows].copy()).to(device)


def to_network(inputs: Tensor, channels_last: bool = True) -> Tensor:
    """Scaled inputs in the layout that convolutions are fastest with."""
    inputs = data.to_model_input(inputs)
    if inputs.ndim == 4 and channels_last:
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    return inputs


def _restore(job: Job, run: RunFolder | None) -> tuple[int, float]:
    if run is None:
        return 0, 0.0
    if not run.checkpoint.exists():
        _save(job, run, 0, 0.0)
        try:
            job.reserve()
        except BaseException:
            run.forget_seed()
            raise
        return 0, 0.0
    saved = checkpoint.read(run.checkpoint, job.settings.key(version()))
    if saved.fingerprint != job.fingerprint:
        raise ValueError(
            f"the training data are not those that {run.path} began with, so that its figure would "
            "hold for neither; resume with the data as they were, or train anew in another folder"
        )
    job.reserve()
    try:
        job.model.load_state_dict(dict(saved.model))
    except RuntimeError as error:
        raise ValueError(f"{run.checkpoint} does not fit the model; it is damaged") from error
    job.optimizer.load_state_dict(dict(saved.optimizer))
    with torch.no_grad():  # averaged weights are parameters
        for name, value in saved.extra.items():
            job.extra[name].copy_(value)
    if distributed.is_first():
        run.cut_metrics(min(saved.step, job.steps - 1))  # the last one is measured again
    job.on_resume(saved.step)
    return saved.step, saved.seconds


def _save(job: Job, run: RunFolder, step: int, seconds: float) -> None:
    if not distributed.is_first():
        return
    checkpoint.write(
        run.checkpoint,
        step=step,
        seed=job.seed,
        key=job.settings.key(version()),
        seconds=seconds,
        fingerprint=job.fingerprint,
        model=job.model,
        optimizer=job.optimizer,
        extra=job.extra,
    )


def _log(
    run: RunFolder | None,
    job: Job,
    step: int,
    losses: deque[float],
    accuracy: float,
    seconds: float,
) -> None:
    if run is None or not distributed.is_first():
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
    run.append_metrics(record)
