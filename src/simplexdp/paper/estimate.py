"""Estimates of how long a sweep takes, from a few timed steps of every kind of run."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable

from simplexdp import data, methods
from simplexdp.evaluation import evaluate
from simplexdp.methods._network import steps_from_epochs
from simplexdp.methods.base import Run
from simplexdp.settings import Settings

STEPS = 9  # of the timed training, whose first also pays for loading and for memory
TESTED = 200  # records on which it is evaluated


@dataclasses.dataclass(frozen=True)
class Pace:
    """Seconds of one step, of one evaluation on the whole test set, and of all that is neither."""

    step: float
    evaluation: float
    once: float = 0.0

    def seconds(self, steps: int, evaluations: int) -> float:
        """Return the seconds of a whole run."""
        return self.once + self.step * steps + self.evaluation * (min(steps, evaluations) + 1)


def kind(settings: Settings) -> tuple[str, ...]:
    """Return what the time of a step depends on."""
    return (
        settings.data,
        settings.method,
        str(settings.model),
        settings.norm,
        str(settings.batch_size),
        settings.optimizer,
        str(settings.augment),
        settings.device,
        str(settings.threads),
    )


def measure(settings: Settings, dataset: data.Dataset) -> Pace:
    """Time a short training, with the accountant that is quickest to calibrate.

    A method of few steps over all records is timed whole, with its features.
    """
    settings = dataclasses.replace(settings, seed=0)
    if not methods.lookup(settings.method).trains_network(settings):
        began = time.monotonic()
        methods.train(settings, dataset)
        return Pace(0.0, 0.0, time.monotonic() - began)
    test = dataset.test
    part = data.Split(test.inputs[:TESTED], test.labels[:TESTED])
    small = dataclasses.replace(dataset, test=part, validation=None)
    short = dataclasses.replace(
        settings, steps=STEPS, epochs=None, accountant="theorem1", evaluations=1
    )
    ended: list[float] = []

    def note() -> bool:
        ended.append(time.monotonic())
        return False

    model = methods.prepare(short, small).start(Run(stop=note)).model
    step = (ended[-1] - ended[0]) / (STEPS - 1)
    began = time.monotonic()
    evaluate(model, part, settings.device)
    return Pace(step, (time.monotonic() - began) * len(test.labels) / len(part.labels))


def steps_of(settings: Settings, dataset: data.Dataset) -> int:
    """Return the steps of a run: those given, or those of its epochs, or by its method's rule."""
    records = len(dataset.train.labels)
    by_rule = settings.epochs is not None and settings.batch_size is None
    steps = None if by_rule else steps_from_epochs(settings, records, settings.batch_size)
    return steps or methods.prepare(settings, dataset, 0).steps


def total(parts: Iterable[float]) -> str:
    """Say a sum of seconds as a person would."""
    seconds = sum(parts)
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
