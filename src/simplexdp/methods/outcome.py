"""What does a training give back?  And the few steps that every iterative method begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from simplexdp import data, models, sampling
from simplexdp.accounting import totals
from simplexdp.ledger import Event, identity, marked
from simplexdp.plan import balanced_weights
from simplexdp.runs import RunFolder, checkpoint, version
from simplexdp.settings import DEFAULTS, Settings
from simplexdp.statement import Statement
from simplexdp.training import Trained, seed_torch

EPOCHS = 20  # where a run gives neither steps nor epochs, and Algorithm 1's rule is not its own
CLASS_WEIGHTS, BALANCED = "class_weights", "balanced"

# What no figure about released weights covers.
BESIDE_THE_WEIGHTS = (
    "Any use of the labels, the number of records or the class counts: these are public.",
    "The test and validation accuracies, where those records are private too.",
    "Predictions on the training records: each depends on its own input beside the weights.",
    "The time that training takes.",
    "Whether every input is as declared: NaN and infinity, values outside the categories and "
    "images of another form are refused, and the refusal tells that, and how many, there are.",
)


@dataclass(frozen=True)
class Outcome:
    """A trained model, what it scores and what may be claimed of it."""

    model: nn.Module
    model_name: str
    statement: Statement
    accuracy: float
    validation_accuracy: float | None
    steps: int
    seconds: float
    chosen: dict[str, Any]  # what was chosen by rule: learning rate, batch size, …

    @classmethod
    def of(
        cls,
        trained: Trained,
        model: nn.Module,
        model_name: str,
        statement: Statement,
        chosen: dict[str, Any],
    ) -> Outcome:
        """What the loop has found, with the number of parameters among what was chosen."""
        return cls(
            model=model,
            model_name=model_name,
            statement=statement,
            accuracy=trained.accuracy,
            validation_accuracy=trained.validation_accuracy,
            steps=trained.steps,
            seconds=trained.seconds,
            chosen={**chosen, "parameters": sum(p.numel() for p in model.parameters())},
        )


def seed_of(settings: Settings, run: RunFolder | None) -> int:
    """The seed that was asked for, that of an unfinished run, or a fresh secret one."""
    if run is not None and run.checkpoint.exists():
        return checkpoint.read(run.checkpoint, settings.key(version())).seed
    return sampling.fresh_seed() if settings.seed is None else settings.seed


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


def number_of(options: Mapping[str, Any], name: str, default: float, whole: bool = False) -> Any:
    """An option that is a number, or an error that names it."""
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise ValueError(
            f"the option {name} is {value!r}; give a {'whole ' if whole else ''}number"
        )
    return value


def class_weights_of(settings: Settings, dataset: data.Dataset) -> Tensor | None:
    """The weight of each class in the loss, if the option asks for `balanced` ones."""
    if CLASS_WEIGHTS not in settings.options:
        return None
    asked = settings.options[CLASS_WEIGHTS]
    if asked != BALANCED:
        raise ValueError(f"the option {CLASS_WEIGHTS} is {asked!r}; leave it out or use {BALANCED}")
    return balanced_weights(dataset.train.labels, dataset.classes)


def has_pixels(dataset: data.Dataset) -> bool:
    """Whether inputs are stored as uint8, which `data.to_model_input` scales."""
    return dataset.train.inputs.dtype == np.uint8


def is_separate(name: str, model: nn.Module, input_shape: tuple[int, ...]) -> bool | None:
    """Whether a record's output depends on that record alone: seen not to, or known of our own.

    A probe at one point proves a coupling and not its absence, so that of a network of the
    user's own, named package.module:factory, nothing is claimed.
    """
    if models.has_batch_norm(model) or models.couples_records(model, input_shape):
        return False
    return None if ":" in name else True


def steps_from_epochs(settings: Settings, records: int, batch_size: int | None) -> int | None:
    """Steps from epochs, where epochs were given and the batch size is known."""
    if settings.epochs is None:
        return settings.steps
    if batch_size is None:
        raise ValueError("epochs need a batch size; give --batch-size, or --steps instead")
    return max(1, round(settings.epochs * records / batch_size))


def by_epochs(settings: Settings, records: int, usual_batch: int) -> tuple[int, int]:
    """Batch size and steps of a method that by rule goes through the records so many times."""
    batch_size = settings.batch_size or max(2, usual_batch)
    sample_rate = batch_size / records
    sampling.check_sampling(records, sample_rate)
    steps = steps_from_epochs(settings, records, batch_size)
    return batch_size, steps or max(1, round(EPOCHS / sample_rate))


def reserve(
    settings: Settings,
    run: RunFolder | None,
    event: Event,
    covers: str,
    computed_from_data: Sequence[str] = (),
    separate: bool | None = None,
) -> None:
    """Count a run in the ledger, where it has one, before its first step.

    The entry is marked with what this run breaks of the assumptions in its statement: a secret
    seed, public preprocessing, and outputs that depend on their own record alone. That Algorithm 1
    and trained features reach the inputs past their draws is said of all such runs.
    """
    if run is None:
        return
    marks = {
        totals.SEED_KNOWN: settings.seed is not None,
        totals.COMPUTED: bool(computed_from_data),
        totals.COUPLED: separate is False,
    }
    event = marked(event, [mark for mark, broken in marks.items() if broken])
    run.reserve(identity(settings.data), settings.method, event, covers)


def refuse_options(settings: Settings, known: Sequence[str] = ()) -> None:
    """Refuse an option that the method would ignore."""
    for name in settings.options:
        if name not in known:
            there = f"use one of {', '.join(known)}" if known else "it has none of its own"
            raise ValueError(f"{settings.method} does not know the option {name!r}; {there}")


def refuse_unused(settings: Settings, names: Sequence[str], who: str | None = None) -> None:
    """Refuse a setting that the method would ignore, so that nobody believes it had an effect."""
    for name in names:
        if getattr(settings, name) != getattr(DEFAULTS, name):
            raise ValueError(
                f"{who or settings.method} has no use for --{name.replace('_', '-')} "
                f"{getattr(settings, name)}; leave it out"
            )
