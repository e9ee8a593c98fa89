"""How long will it take?  A few steps of every kind of run, timed before the sweep starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from simplexdp import data, methods
from simplexdp.methods.outcome import steps_from_epochs
from simplexdp.schedule import usual_steps
from simplexdp.settings import Settings

FEW, MORE = 2, 8  # steps of the two trainings whose difference is timed
TESTED = 200  # records on which the timed trainings are evaluated


@dataclasses.dataclass(frozen=True)
class Pace:
    """Seconds of one step, of one evaluation on the whole test set, and of all that is neither."""

    step: float
    evaluation: float
    once: float = 0.0

    def seconds(self, steps: int, evaluations: int) -> float:
        return self.once + self.step * steps + self.evaluation * (min(steps, evaluations) + 1)


def kind(settings: Settings) -> tuple[str, ...]:
    """What the time of a step depends on."""
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
    """Time two short trainings, with the accountant that is quickest to calibrate.

    A method of few steps over all records is timed whole, with its features.
    """
    train = methods.method(settings.method)
    if methods.on_features(settings):
        whole = train(dataclasses.replace(settings, seed=0), dataset, None)
        return Pace(0.0, 0.0, whole.seconds)
    test = dataset.test
    part = data.Split(test.inputs[:TESTED], test.labels[:TESTED])
    small = dataclasses.replace(dataset, test=part, validation=None)

    def seconds(steps: int) -> float:
        short = dataclasses.replace(
            settings, steps=steps, epochs=None, accountant="theorem1", evaluations=1, seed=0
        )
        return train(short, small, None).seconds

    seconds(1)  # the first training also pays for loading and for memory
    few, more = seconds(FEW), seconds(MORE)
    step = max(1e-6, (more - few) / (MORE - FEW))
    part_evaluation = max(0.0, few - FEW * step)
    return Pace(step, part_evaluation * len(test.labels) / len(part.labels))


def steps_of(settings: Settings, records: int) -> int:
    """The steps of a run: those given, or those of its epochs, or by its method's rule."""
    if settings.method == "dpsgd":
        from simplexdp.methods import dpsgd  # brings Opacus

        return dpsgd.schedule(settings, records)[1]
    return steps_from_epochs(settings, records, settings.batch_size) or usual_steps(records)


def total(parts: Iterable[float]) -> str:
    """A sum of seconds as a person says it."""
    seconds = sum(parts)
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
