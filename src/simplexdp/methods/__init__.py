"""How is a model trained?  A registry of methods, and the one way to run them into a folder."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any, Protocol

import torch

from simplexdp import data, distributed, progress, runs
from simplexdp.data.augment import check as check_augmentation
from simplexdp.ledger import Ledger
from simplexdp.methods.outcome import Outcome, has_pixels, refuse_unused
from simplexdp.settings import Settings
from simplexdp.statement import large_delta

__all__ = ["METHODS", "Outcome", "method", "run", "summary"]

# Imported when used: DP-SGD brings Opacus along, which takes seconds to load.
METHODS = {
    "dirichlet": "dirichlet",
    "dpsgd": "dpsgd",
    "certified": "certified",
    "gaussian-features": "gaussian_features",
    "plain": "plain",
}

SEVERAL_PROCESSES = ("dirichlet", "dpsgd", "plain")  # what torchrun can train

# What every other method would ignore, and therefore refuses.
OF_ALGORITHM_1 = ("alpha", "accountant", "estimator")

_ON_FEATURES = ("certified", "gaussian-features")


class Method(Protocol):
    """What every method's module offers under the name `train`."""

    def __call__(
        self,
        settings: Settings,
        dataset: data.Dataset,
        run: runs.RunFolder | None,
        show_progress: bool = False,
    ) -> Outcome: ...


def method(name: str) -> Method:
    """The training function of a method."""
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; use one of {', '.join(METHODS)}")
    train: Method = importlib.import_module(f"{__name__}.{METHODS[name]}").train
    return train


def run(
    settings: Settings,
    out: Path | None = None,
    resume: bool = False,
    show_progress: bool = False,
    dataset: data.Dataset | None = None,
    ledger: Ledger | None = None,
) -> tuple[Outcome, runs.RunFolder]:
    """Train into a run folder, or go on with an unfinished one.

    With a ledger, the run's whole cost is reserved before its first step, and a run that would
    exceed the data set's budget is refused.
    """
    check_used(settings)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    asked = settings
    settings = dataclasses.replace(settings, device=distributed.local_device(settings.device))
    _check_device(settings.device)
    if dataset is None:
        dataset = data.load(settings.data, **settings.data_options)
    check_augmentation(settings.augment, dataset.input_shape)
    with distributed.group(settings.device):
        folder = _folder(asked, out, resume)
        with folder.held():
            return _train(settings, folder, resume, show_progress, dataset, ledger), folder


def on_features(settings: Settings) -> bool:
    """Whether the model is linear on fixed features, and so has no network and no batches.

    Noise that is trained below (gaussian-features, form=trained) has both.
    """
    return settings.method in _ON_FEATURES and settings.options.get("form") != "trained"


def check_used(settings: Settings) -> None:
    """Refuse an unknown method, and a setting that a known one would ignore."""
    method(settings.method)
    if settings.method != "dirichlet":
        refuse_unused(settings, OF_ALGORITHM_1)


def _check_device(device: str) -> None:
    try:
        torch.zeros(1, device=device).item()  # the device meta has no numbers
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"no device {device!r} here; use cpu, or another one of torch's"
        ) from error


def _folder(settings: Settings, out: Path | None, resume: bool) -> runs.RunFolder:
    """The folder to go on with, or a new one."""
    if distributed.world() > 1 and (out is None or settings.method not in SEVERAL_PROCESSES):
        raise ValueError(
            f"training in {distributed.world()} processes needs --out, a folder that all of them "
            f"see, and a method that can: {', '.join(SEVERAL_PROCESSES)}"
        )
    if resume:
        if out is None:
            raise ValueError("--resume needs the run folder; give it with --out")
        return runs.RunFolder.open(out)
    if distributed.is_first() or out is None:
        return runs.RunFolder.create(out or runs.fresh_path(settings), settings)
    return runs.RunFolder(out)  # the first process makes it


def _train(
    settings: Settings,
    folder: runs.RunFolder,
    resume: bool,
    show_progress: bool,
    dataset: data.Dataset,
    ledger: Ledger | None,
) -> Outcome:
    train = method(settings.method)
    if resume:
        if folder.finished():
            folder.forget_seed()
            raise ValueError(f"{folder.path} is finished; there is nothing to resume")
        folder.check_begun_as(settings)
    if resume and distributed.is_first():
        if folder.checkpoint.exists():
            folder.go_on_here()
        else:  # it begins with another seed
            folder.begin_anew()
            progress.warn(f"{folder.path} has no checkpoint: it begins anew and is counted anew")
    if settings.method != "plain" and distributed.is_first():
        for note in large_delta(settings.delta, len(dataset.train.labels)):
            progress.warn(note)
    try:
        if ledger is not None and distributed.is_first():
            folder.count_in(ledger)
        outcome = train(settings, dataset, folder, show_progress)
    except BaseException:
        # Stopped before anything was spent: nothing is left behind.
        begun = folder.checkpoint.exists() or folder.counted
        if not resume and distributed.is_first() and not begun:
            folder.discard()
        raise
    if distributed.is_first():
        folder.save_model(
            outcome.model,
            {
                "method": settings.method,
                "model": outcome.model_name,
                "norm": settings.norm,
                "options": dict(settings.options),
                "on_features": on_features(settings),
                "shape": list(dataset.input_shape),
                "pixels": has_pixels(dataset),
                "class_names": list(dataset.class_names),
            },
        )
        folder.save_outcome(summary(settings, outcome, folder), dataset.checksums)
        folder.save_statement(outcome.statement)
        folder.forget_seed()
    return outcome


def summary(settings: Settings, outcome: Outcome, folder: runs.RunFolder) -> dict[str, Any]:
    """What `simplexdp train --json` prints, and what run.json keeps as the outcome."""
    statement = outcome.statement.to_json()
    return {
        "accuracy": outcome.accuracy,
        "validation_accuracy": outcome.validation_accuracy,
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
