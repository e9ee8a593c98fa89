"""What the methods share that train a network in batches."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from simplexdp import data, models, optimizers, sampling, training
from simplexdp.loss import balanced_weights
from simplexdp.methods.base import Method, Options, option, positive
from simplexdp.optimizers import seed_torch
from simplexdp.settings import Settings

if TYPE_CHECKING:
    from simplexdp.bundle import Description

EPOCHS = 20  # where a run gives neither steps nor epochs, and the method has no rule of its own
BALANCED = "balanced"
WEIGHTS_HELP = "Let all classes weigh alike in the loss, by the public labels: balanced."


@dataclass(frozen=True)
class NetworkOptions(Options):
    """The options of every method that trains a network in batches."""

    effective_lr: float | None = option(
        None, "The learning rate as for the cross entropy; divided by the attenuation κ."
    )
    schedule: str = option(
        "constant", "The rate after its warm-up: constant, or falling.", optimizers.SCHEDULES
    )
    warmup: int | None = option(
        None, "Steps over which the rate grows; a fifth of them where it falls, unless given."
    )
    weight_decay: float | None = option(None, "Weight decay, as for the cross entropy.")
    weight_average: float = option(0.0, "Decay of the weights' average, which is released.")
    muon_lr: float = option(optimizers.MUON_RATE, "The rate of filters, with the optimizer muon.")

    def __post_init__(self) -> None:
        if not 0 <= self.weight_average < 1:
            raise ValueError("weight_average must lie in [0, 1), such as 0.999")
        if self.warmup is not None and self.warmup < 0:
            raise ValueError(
                f"the option warmup is {self.warmup}; give a number of steps, 0 for none"
            )
        if self.weight_decay is not None and not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay is {self.weight_decay}; give 0 or more, such as 5e-4")
        if self.effective_lr is not None:
            positive("effective_lr", self.effective_lr)
        positive("muon_lr", self.muon_lr)


class Descent:
    """How a method's steps are taken: optimizer, schedule and the average of the weights.

    Args:
        settings: The run's settings.
        options: Its method's options.
        model: What is trained.
        steps: How many steps there will be.
        lr: The rate by the method's rule.
        attenuation: What is left of the gradient of the cross entropy, 1 without draws.
        warmup: Steps of growth by the method's rule, where the rate does not fall.

    Raises:
        ValueError: If the schedule or the average does not fit the steps.
    """

    def __init__(
        self,
        settings: Settings,
        options: NetworkOptions,
        model: nn.Module,
        steps: int,
        lr: float,
        attenuation: float = 1.0,
        warmup: int = 0,
    ) -> None:
        if options.effective_lr is not None:
            if settings.lr is not None:
                raise ValueError("both --lr and effective_lr are given; give one of them")
            lr = options.effective_lr / attenuation
        self.lr = lr if settings.lr is None else settings.lr
        falls = options.schedule != optimizers.SCHEDULES[0]
        by_rule = math.ceil(optimizers.RISE * steps) if falls else warmup
        self.warmup = by_rule if options.warmup is None else options.warmup
        if falls and self.warmup >= steps:
            raise ValueError(
                f"a warm-up of {self.warmup} steps leaves none of {steps} to fall; give fewer"
            )
        self.steps, self.schedule, self.decay = steps, options.schedule, options.weight_average
        decay = options.weight_decay
        self.optimizer = optimizers.make(
            settings.optimizer,
            model,
            self.lr,
            None if decay is None else decay * attenuation,
            options.muon_lr,
        )
        self.model, self.settings = model, settings
        self.averaged = copy.deepcopy(model) if self.decay else None

    def check_average(self) -> None:
        """Refuse an average over more steps than there are."""
        if self.decay and 1 / (1 - self.decay) > self.steps:
            raise ValueError(
                f"weight_average {self.decay} is over {1 / (1 - self.decay):.0f} steps and there "
                f"are {self.steps}; give at most {1 - 1 / self.steps:.4g}"
            )

    def job(
        self,
        update: training.Update,
        dataset: data.Dataset,
        sample_rate: float,
        seed: int,
        **more: Any,
    ) -> training.Job:
        """Return what the loop needs to know; `more` are other fields of `training.Job`."""
        return training.Job(
            model=self.model,
            update=update,
            dataset=dataset,
            sample_rate=sample_rate,
            steps=self.steps,
            seed=seed,
            settings=self.settings,
            optimizer=self.optimizer,
            evaluated=self.averaged,
            **more,
        )

    def set_rate(self, step: int) -> None:
        """Set the rate of a step."""
        share = optimizers.share_of_rate(self.schedule, step, self.steps, self.warmup)
        optimizers.set_rate(self.optimizer, share)

    def average(self, step: int) -> None:
        """Average the weights exponentially; early on it forgets faster (De et al., 2022)."""
        if self.averaged is None:
            return
        decay = min(self.decay, (1.0 + step) / (10.0 + step))
        with torch.no_grad():
            for mean, now in zip(self.averaged.parameters(), self.model.parameters(), strict=True):
                mean.mul_(decay).add_(now, alpha=1.0 - decay)
            for kept, new in zip(self.averaged.buffers(), self.model.buffers(), strict=True):
                kept.copy_(new)


class NetworkMethod(Method):
    """A method whose model is a network of `simplexdp.models` or of the user's own."""

    several_processes = True

    def rebuild(self, description: Description) -> nn.Module:
        """Return the untrained network that a bundle describes."""
        return models.build(
            description.model, description.shape, len(description.class_names), description.norm
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
