"""What the methods share that train a network in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from simplexdp import data, models, sampling
from simplexdp.methods.base import Method, Run, Trained
from simplexdp.optimizers import seed_torch
from simplexdp.plan import balanced_weights
from simplexdp.settings import Settings
from simplexdp.training import Job
from simplexdp.training import train as loop

if TYPE_CHECKING:
    from simplexdp.bundle import Description

EPOCHS = 20  # where a run gives neither steps nor epochs, and the method has no rule of its own
BALANCED = "balanced"
WEIGHTS_HELP = "Let all classes weigh alike in the loss, by the public labels: balanced."


class NetworkMethod(Method):
    """A method whose model is a network of `simplexdp.models` or of the user's own."""

    several_processes = True

    def rebuild(self, description: Description) -> nn.Module:
        """Return the untrained network that a bundle describes."""
        return models.build(
            description.model, description.shape, len(description.class_names), description.norm
        )


def start(job: Job, run: Run) -> Trained:
    """Run the loop, and return what it reached."""
    reached = loop(job, run)
    return Trained(
        model=job.model if job.evaluated is None else job.evaluated,
        accuracy=reached.accuracy,
        validation_accuracy=reached.validation_accuracy,
        seconds=reached.seconds,
    )


def model_for(
    settings: Settings, dataset: data.Dataset, seed: int, channels_last: bool = True
) -> tuple[str, nn.Module]:
    """Build the network asked for, or the default for this kind of input, and check that it fits.

    A multilayer perceptron serves tables and images of up to 16×16, a small CNN larger images.
    """
    shape = dataset.input_shape
    small = len(shape) == 1 or shape[-1] <= 16
    name = settings.model or ("mlp" if small else "cnn")
    seed_torch(seed, "weights", 0)  # the initial weights follow from the run's seed
    model = models.build(name, shape, dataset.classes, settings.norm)
    models.check(model, shape, dataset.classes)
    model = model.to(settings.device)
    if len(shape) == 3 and channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return name, model


def class_weights(asked: str | None, dataset: data.Dataset) -> Tensor | None:
    """Return the weight of each class in the loss, where the option asks for balanced ones."""
    if asked is None:
        return None
    return balanced_weights(dataset.train.labels, dataset.classes)


def is_separate(name: str, model: nn.Module, input_shape: tuple[int, ...]) -> bool | None:
    """Return False where a coupling of records is seen, True for our own networks, else None.

    A probe at one point proves a coupling and not its absence, so that of a network of the
    user's own, named package.module:factory, nothing is claimed.
    """
    if models.has_batch_norm(model) or models.couples_records(model, input_shape):
        return False
    return None if ":" in name else True


def steps_from_epochs(settings: Settings, records: int, batch_size: int | None) -> int | None:
    """Return the steps of so many epochs, where epochs were given and the batch size is known."""
    if settings.epochs is None:
        return settings.steps
    if batch_size is None:
        raise ValueError("epochs need a batch size; give --batch-size, or --steps instead")
    return max(1, round(settings.epochs * records / batch_size))


def by_epochs(settings: Settings, records: int, usual_batch: int) -> tuple[int, int]:
    """Return batch size and steps of a method that by rule makes so many epochs."""
    batch_size = settings.batch_size or max(2, usual_batch)
    sample_rate = batch_size / records
    sampling.check_sampling(records, sample_rate)
    steps = steps_from_epochs(settings, records, batch_size)
    return batch_size, steps or max(1, round(EPOCHS / sample_rate))
