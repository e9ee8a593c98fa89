"""What was asked for?  One frozen record of everything that determines a training run."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Where a run is computed and how often it is looked at does not change what it is.
NOT_PART_OF_A_RUN = ("device", "threads", "workers", "evaluations")
MOST = {"threads": 1024, "workers": 1024, "lr": 1e30}  # more makes torch crash
ADAPTIVE = ("adam", "adamw", "rmsprop")
OPTIMIZERS = ("sgd", "momentum", *ADAPTIVE)


@dataclass(frozen=True)
class Settings:
    """A training run, as asked for; `None` means "chosen by rule"."""

    data: str = "digits"
    method: str = "dirichlet"
    model: str | None = None
    norm: str = "group"
    epsilon: float = 1.0
    delta: float = 1e-5
    alpha: float = 3.0
    batch_size: int | None = None
    steps: int | None = None
    epochs: float | None = None
    lr: float | None = None
    optimizer: str = "sgd"
    accountant: str = "theorem1"
    estimator: str = "marginal"
    augment: tuple[str, ...] = ()
    seed: int | None = None
    device: str = "cpu"
    threads: int | None = None
    workers: int = 0
    evaluations: int = 20
    data_options: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (isinstance(self.data, str) and isinstance(self.method, str)):
            raise TypeError("the data set and the method are given by name")
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

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready dictionary; `from_json` is its inverse."""
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
            values["augment"] = tuple(values.get("augment", ()))
            return cls(**values)
        except TypeError as error:  # text in the place of a number, and the like
            raise ValueError("the configuration is damaged or was edited") from error

    def key(self, version: str) -> str:
        """A short name for exactly this configuration under this version of the package."""
        record = {k: v for k, v in self.to_json().items() if k not in NOT_PART_OF_A_RUN}
        record["data_options"] = {k: v for k, v in self.data_options.items() if k != "data_dir"}
        text = json.dumps({"version": version, **record}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


DEFAULTS = Settings()
