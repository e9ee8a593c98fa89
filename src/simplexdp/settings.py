"""Settings: one frozen record of everything that determines a training run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from simplexdp import typed
from simplexdp.accounting import NAMES as ACCOUNTANTS
from simplexdp.methods import DEFAULT

# Where a run is computed and how often it is looked at does not change what it is.
NOT_PART_OF_A_RUN = ("device", "threads", "workers", "evaluations")
MOST = {"threads": 1024, "workers": 1024, "lr": 1e30}  # more makes torch crash
MOST_NUMBER = 10**15  # of records, steps and the like, which stay exact as a float
SEED_BITS = 512  # what several processes can be told of a seed
ADAPTIVE = ("adam", "adamw", "rmsprop")
OPTIMIZERS = ("sgd", "momentum", "nesterov", "muon", *ADAPTIVE)


def setting(default: Any, help: str) -> Any:
    """Declare a field that the command line offers as an option, with its help text."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Settings:
    """A training run, as asked for; `None` means "chosen by rule".

    The command line offers every field that has a help text; `simplexdp train --help` explains
    them.

    Args:
        data: A data set's name, or a path to your own.
        method: A method's name, or "package.module:OBJECT" for one of your own.
        model: A network's name, or "package.module:factory".
        norm: "group", "batch" or "none".
        epsilon: Budget ε.
        delta: Budget δ.
        alpha: Concentration of the Dirichlet mechanism.
        batch_size: Expected records in a batch.
        steps: Number of steps.
        epochs: Passes over the data, instead of steps.
        lr: Learning rate.
        optimizer: One of `OPTIMIZERS`.
        accountant: One of `simplexdp.accounting.ACCOUNTANTS`.
        estimator: Gradient estimator of the Dirichlet mechanism: "marginal", "full" or "draw-only".
        augment: Names of augmentations.
        seed: Makes the run reproducible, and no longer private.
        device: One of torch's.
        threads: CPU threads.
        workers: Threads that prepare batches ahead.
        evaluations: How often the model is tested on the way.
        data_options: What `data.load` takes for this data set.
        options: The method's own options.

    Raises:
        ValueError: If a value is outside its range.

    Example:
        >>> from simplexdp import Settings
        >>> Settings(epsilon=2.0, steps=100).steps
        100
        >>> Settings(epsilon=0.0)
        Traceback (most recent call last):
        ...
        ValueError: epsilon is 0.0; give a positive budget, such as 1
    """

    data: str = setting("digits", "A data set's name, or a path to your own; digits unless given.")
    method: str = setting(
        DEFAULT,
        "A method's name (see `simplexdp methods`), or package.module:OBJECT; unless given the "
        "paper's, whose ε does NOT cover the weights.",
    )
    model: str | None = setting(None, "A network's name, or package.module:factory.")
    norm: str = setting("group", "Normalisation: group, batch or none.")
    epsilon: float = setting(1.0, "Budget ε; 1 unless given.")
    delta: float = setting(1e-5, "Budget δ; 1e-5 unless given.")
    alpha: float = setting(3.0, "Offset α of the Dirichlet mechanism; 3 unless given.")
    batch_size: int | None = setting(None, "Expected records in a batch.")
    steps: int | None = setting(None, "Number of steps.")
    epochs: float | None = setting(None, "Passes over the data, in the place of steps.")
    lr: float | None = setting(None, "Learning rate, or auto: by rule.")
    optimizer: str = setting("sgd", f"One of: {', '.join(OPTIMIZERS)}.")
    accountant: str = setting("theorem1", f"One of: {', '.join(ACCOUNTANTS)}.")
    estimator: str = setting("marginal", "Gradient estimator: marginal, full or draw-only.")
    augment: tuple[str, ...] = setting(
        (), "Augmentations, as random_crop,horizontal_flip; or none."
    )
    seed: int | None = setting(None, "Reproducible, and then NOT private: the seed is known.")
    device: str = setting("cpu", "cpu, cuda, …; cpu unless given.")
    threads: int | None = setting(None, "CPU threads.")
    workers: int = setting(0, "Threads that prepare batches ahead; none unless given.")
    evaluations: int = 20
    data_options: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, hint in typed.hints(Settings).items():
            _check_type(name, getattr(self, name), hint)
        if not self.epsilon > 0:
            raise ValueError(f"epsilon is {self.epsilon}; give a positive budget, such as 1")
        if not 0 < self.delta < 1:
            raise ValueError(
                f"delta is {self.delta}; it must lie strictly between 0 and 1, such as 1e-5"
            )
        if self.steps is not None and self.epochs is not None:
            raise ValueError("both steps and epochs are given; give one of them")
        if self.optimizer not in OPTIMIZERS:
            raise ValueError(
                f"unknown optimizer {self.optimizer!r}; use one of {', '.join(OPTIMIZERS)}"
            )
        if self.seed is not None and self.seed < 0:
            raise ValueError(f"seed is {self.seed}; give an integer of 0 or more")
        if self.seed is not None and self.seed.bit_length() > SEED_BITS:
            raise ValueError(f"the seed has more than {SEED_BITS} bits; give a smaller one")
        for name in ("batch_size", "steps", "epochs", "lr", "threads", "alpha"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ValueError(f"{name} is {value}; it must be positive")
        for name in ("workers", "evaluations"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; give 0 or more")
        for name, most in MOST.items():
            if (getattr(self, name) or 0) > most:
                raise ValueError(f"{name} is {getattr(self, name)}; give at most {most:g}")

    def code(self) -> dict[str, str]:
        """Return what the settings name that would be imported, by the option that names it."""
        named = {"--method": self.method, "--model": self.model}
        named |= {f"--option {name}": value for name, value in self.options.items()}
        return {k: name for k, name in named.items() if isinstance(name, str) and ":" in name}

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary; `from_json` is its inverse."""
        record = dataclasses.asdict(self)
        record["augment"] = list(self.augment)
        if math.isinf(self.epsilon):
            record["epsilon"] = "inf"
        return record

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Settings:
        """Rebuild settings, refusing keys that this version does not know."""
        unknown = sorted(set(record) - {f.name for f in dataclasses.fields(cls)})
        if unknown:
            raise ValueError(
                f"the configuration has unknown keys ({', '.join(unknown)}); "
                "it was written by another version"
            )
        values = dict(record)
        if values.get("epsilon") == "inf":
            values["epsilon"] = math.inf
        try:
            if isinstance(values.get("augment", []), list):
                values["augment"] = tuple(values.get("augment", ()))
            return cls(**values)
        except TypeError as error:  # text in the place of a number, and the like
            raise ValueError(f"the configuration is damaged or was edited: {error}") from error

    def key(self, revision: int) -> str:
        """Return a short name for exactly this configuration under a revision of its method.

        Only what differs from the defaults is hashed, so that a setting that is new, and not
        given, changes no key.
        """
        named = {"revision": revision, "data": self.data, "method": self.method}
        given = {
            name: value
            for name, value in self.to_json().items()
            if name not in NOT_PART_OF_A_RUN and value != _USUAL[name]
        }
        options = {k: v for k, v in self.data_options.items() if k != "data_dir"}
        given.pop("data_options", None)
        if options:
            given["data_options"] = options
        text = json.dumps({**given, **named}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_type(name: str, value: Any, hint: Any) -> None:
    """Refuse a value that is not of a field's type; a whole number serves as a number."""
    if not typed.fits(value, hint):
        wanted = " or ".join(_KINDS[kind] for kind in typed.kinds(hint))
        raise TypeError(f"{name} is {_shown(value)}; give {wanted}")
    if isinstance(value, tuple) and not all(isinstance(one, str) for one in value):
        raise TypeError(f"{name} has something in it that is no text; give names")
    if isinstance(value, int) and name != "seed" and abs(value) > MOST_NUMBER:
        raise ValueError(f"{name} is too large to compute with; give a usual number")


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str | float | bool | None) else type(value).__name__


_KINDS: dict[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    tuple: "a tuple of names",
    Mapping: "a mapping",
    types.NoneType: "None",
}
DEFAULTS = Settings()
_USUAL = DEFAULTS.to_json()
