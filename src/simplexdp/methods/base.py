"""The contract of a training method, and what it says before it trains."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self

from numpy.typing import NDArray
from torch import nn

from simplexdp import claims, typed
from simplexdp.claims import Coverage
from simplexdp.noise import unheard
from simplexdp.settings import DEFAULTS, Settings
from simplexdp.statement import Statement

if TYPE_CHECKING:
    from dp_accounting import DpEvent

    from simplexdp.bundle import Description
    from simplexdp.data import Dataset
    from simplexdp.runs import RunFolder

# The settings that not every method uses; one that a method has no use for is refused.
OF_A_NETWORK = frozenset(
    {"model", "norm", "batch_size", "steps", "epochs", "lr", "optimizer", "augment"}
)
OF_DRAWS = frozenset({"alpha", "accountant", "estimator"})
OPTIONAL = tuple(f.name for f in dataclasses.fields(Settings) if f.name in OF_A_NETWORK | OF_DRAWS)

OnRelease = Callable[[str, NDArray[Any], NDArray[Any], float], NDArray[Any]]


def option(default: Any, help: str, choices: tuple[str, ...] = ()) -> Any:
    """Declare a field of `Options`: its default, its help text, and its values where few."""
    return field(default=default, metadata={"help": help, "choices": choices})


@dataclass(frozen=True)
class Options:
    """A method's own settings; a subclass declares a field for each with `option`."""

    @classmethod
    def of(cls, method: str, given: Mapping[str, Any]) -> Self:
        """Return the options of a run, or refuse one that is unknown or of another type."""
        known = {f.name: f for f in dataclasses.fields(cls)}
        for name, value in given.items():
            if name not in known:
                there = f"use one of {', '.join(known)}" if known else "it has none of its own"
                raise ValueError(f"{method} does not know the option {name!r}; {there}")
            _check_type(name, value, typed.hints(cls)[name])
            choices = known[name].metadata["choices"]
            if choices and value not in choices:
                raise ValueError(
                    f"the option {name} is {value!r}; leave it out or use {' or '.join(choices)}"
                )
        return cls(**given)


def _check_type(name: str, value: Any, hint: Any) -> None:
    """Refuse a value that is not of an option's type; a whole number serves as a number."""
    if not typed.fits(value, hint):
        known = {bool: "true or false", str: "text", float: "a number", int: "a whole number"}
        wanted = next(known[kind] for kind in known if kind in typed.kinds(hint))
        raise ValueError(f"the option {name} is {value!r}; give {wanted}")


@dataclass(frozen=True)
class Run:
    """What a training is given when it starts.

    Attributes:
        folder: Where it leaves what it trains; None for a training in memory.
        key: The name of exactly this run, which its checkpoint carries.
        show_progress: Whether a bar is shown.
        pay: Counts the run in its ledger. Called once, after everything that can be refused
            before, and before any private input moves a weight.
        stop: Asked after every step; where it says True the training saves itself and ends
            with `training.OutOfTime`.
        on_step: Called with the number of a step before its batch is read.
        on_release: Told of a release: its name, the exact sum, what came out, and the standard
            deviation that the noise should have. The training goes on with what it returns,
            which is what came out unless an audit replays another training.
        without: Records that contribute nothing to any sum, while n and the labels stay: the null
            record of an audit. Only methods with `Audited.removes` know it.

    Example:
        >>> from simplexdp.methods.base import Run
        >>> Run().folder is None, Run().stop()
        (True, False)
    """

    folder: RunFolder | None = None
    key: str = ""
    show_progress: bool = False
    pay: Callable[[], None] = lambda: None
    stop: Callable[[], bool] = lambda: False
    on_step: Callable[[int], None] = lambda step: None
    on_release: OnRelease = unheard
    without: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Trained:
    """What a training reached; accuracies are shares, and so are the test classes' recalls."""

    model: nn.Module
    accuracy: float
    validation_accuracy: float | None
    seconds: float
    recalls: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Prepared:
    """A training of which everything is known and nothing is spent.

    Attributes:
        event: What a ledger is charged, a `dp_accounting.DpEvent`.
        coverage: What the bound of that event covers.
        model: The model before its first step.
        model_name: Its name, as a table shows it.
        steps: How many steps there will be.
        resolved: All settings that were left to rules.
        start: Trains.
        notes: What a statement says beside the claim.
        releases: What `Run.on_release` is told of, by name, each with the μ of all releases of
            that name in one training, where no step samples. Empty where nothing is told.

    Raises:
        ValueError: If event and coverage contradict each other, or the releases the event.

    Example:
        >>> from simplexdp import Settings, data, methods
        >>> prepared = methods.prepare(Settings(epsilon=1.0, steps=20), data.load("digits"))
        >>> prepared.steps, prepared.statement().covers_weights
        (20, False)
    """

    event: DpEvent
    coverage: Coverage
    model: nn.Module
    model_name: str
    steps: int
    resolved: Mapping[str, Any]
    start: Callable[[Run], Trained]
    notes: tuple[str, ...] = ()
    releases: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        claims.check(self.event, self.coverage.covers)
        claims.check_bound(self.event, self.coverage)
        claims.check_releases(self.event, self.releases)

    def statement(self) -> Statement:
        """Return what may be claimed of the whole run."""
        return Statement.of(self.event, self.coverage, self.steps, self.notes)

    @property
    def parameters(self) -> int:
        """Return the number of trained parameters."""
        return sum(p.numel() for p in self.model.parameters())


@dataclass(frozen=True)
class Audited:
    """What attacks need to know of a method.

    Attributes:
        adds_noise: Whether its updates carry noise; without, whatever of an input is in a
            gradient stays in the weights.
        removes: Whether a record that is out is left out of every sum (`Run.without`); else its
            input is zeroed.
        rate: The sampling rate of a small training that is repeated hundreds of times.
        steps: The steps of such a training.
        trials: How many such trainings a table makes.
        visible: Options under which an attack sees its input.
        pairs: The same for an attack with pairs of inputs.
        in_out: The same where a record is in or out.
        heard: Options under which it makes all of its releases.
    """

    adds_noise: bool = True
    removes: bool = False
    rate: float = 0.3
    steps: int = 10
    trials: int = 160
    visible: Mapping[str, Any] = field(default_factory=dict)
    pairs: Mapping[str, Any] = field(default_factory=dict)
    in_out: Mapping[str, Any] = field(default_factory=dict)
    heard: Mapping[str, Any] = field(default_factory=dict)


class Method(ABC):
    """A way to train a classifier.

    One object knows everything about itself, and nobody else asks for its name. A method of your
    own subclasses this, and `--method package.module:OBJECT` names an instance.

    Attributes:
        name: How it is asked for.
        title: How a table calls it.
        bound: What computes its bound, in a table of methods.
        covers_draws: Whether its bound covers draws, in a table of methods.
        covers_weights: Whether its bound covers the released weights, in a table of methods.
        revision: Raised when the same settings would train something else; records and
            checkpoints of another revision are not merged with its own.
        Options: Its own settings, a frozen dataclass.
        audited: What attacks need to know.
        probabilities: Whether the softmax of its models may be read as probabilities.
        several_processes: Whether torchrun can train it.
        persons: Whether its unit can be a person with several records.

    Example:
        >>> from simplexdp import methods
        >>> for name in methods.names():
        ...     print(name, methods.lookup(name).covers_weights)
        certified yes
        dirichlet no
        dpsgd yes
        gaussian-features yes, with fixed features
        plain no
    """

    name: ClassVar[str]
    title: ClassVar[str]
    bound: ClassVar[str] = "–"
    covers_draws: ClassVar[str] = "–"
    covers_weights: ClassVar[str] = "yes"
    revision: ClassVar[int] = 1
    Options: ClassVar[type[Options]] = Options
    audited: ClassVar[Audited] = Audited()
    probabilities: ClassVar[bool] = True
    several_processes: ClassVar[bool] = False
    persons: ClassVar[bool] = False

    def takes(self, settings: Settings) -> frozenset[str]:
        """Return which of the `OPTIONAL` settings it uses."""
        return OF_A_NETWORK

    def trains_network(self, settings: Settings) -> bool:
        """Return whether it trains a network in batches, and not a model on fixed features."""
        return "model" in self.takes(settings)

    def called(self, settings: Settings) -> str:
        """Return how errors name it."""
        return self.name

    def options(self, settings: Settings) -> Any:
        """Return its own options, with their defaults; refuse what it would ignore.

        Raises:
            ValueError: If a setting or an option would have no effect, or makes no sense.
        """
        used = self.takes(settings)
        for name in OPTIONAL:
            value = getattr(settings, name)
            if name not in used and value != getattr(DEFAULTS, name):
                raise ValueError(
                    f"{self.called(settings)} has no use for --{name.replace('_', '-')} {value}; "
                    f"{self.instead(name)}"
                )
        return self.Options.of(self.name, settings.options)

    def instead(self, setting: str) -> str:
        """Return what to do about a setting that it has no use for."""
        return "leave it out"

    @abstractmethod
    def prepare(self, settings: Settings, dataset: Dataset, seed: int) -> Prepared:
        """Settle everything about a training and spend nothing.

        Args:
            settings: What was asked for; what is None is chosen by rule.
            dataset: The data.
            seed: The run's seed, which is secret unless `settings.seed` gives it.

        Returns:
            The training, ready to start.

        Raises:
            ValueError: If something would be refused.
        """

    @abstractmethod
    def rebuild(self, description: Description) -> nn.Module:
        """Return the model that a bundle describes, before its weights are read."""

    def check_null(self, settings: Settings, input_shape: tuple[int, ...]) -> None:  # noqa: B027
        """Refuse an audit in whose trainings an input of zeros would not be the null record."""


def positive(name: str, value: float) -> None:
    """Refuse a number that is not positive and finite."""
    if not 0 < value < math.inf:
        raise ValueError(f"the {name} is {value}; it must be positive")
