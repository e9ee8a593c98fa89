"""The fast recipes: Algorithm 1 with the link, on networks and schedules made for processors."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from simplexdp.paper import identity, recipes
from simplexdp.paper.cells import Cell, Experiment
from simplexdp.paper.labels import DATA_TITLES, epsilon_label
from simplexdp.paper.studies import SVHN_PART_RECORDS
from simplexdp.settings import Settings

NAME = "fast"
PREFIX = f"{NAME}-"
CROPPED, MIRRORED = ("random_crop",), ("horizontal_flip",)
MOVED = ("random_shift", "horizontal_flip")
TURNED = ("random_crop", "dihedral")
LINK = {"link": "log"}
USUAL: dict[str, Any] = {"schedule": "triangular", "effective_lr": 0.2, "weight_decay": 5e-4}


@dataclasses.dataclass(frozen=True)
class Fast:
    """A fast recipe; its epochs are those of the whole schedule, for which r is calibrated."""

    data: str
    model: str
    batch_size: int
    epochs: float
    augment: tuple[str, ...]
    epsilons: tuple[float, ...]
    published: str  # the network of the paper's row
    records: int | None = None  # where it is made for a part of the data set


RECIPES = {
    PREFIX + fast.data: fast
    for fast in (
        Fast("fashion-mnist", "fast-mirrored", 250, 6, MIRRORED, (0.5, 1, 2, 4), "inception"),
        Fast("dermamnist", "fast-turned", 70, 60, TURNED, (1, 4, 7.42), "resnet9"),
        Fast("svhn", "fast", 80, 60, CROPPED, (1, 4), "resnet18", SVHN_PART_RECORDS),
        Fast("mnist", "fast", 250, 6, CROPPED, (0.5, 1, 2, 4), "inception"),
        Fast("cifar10", "fast-wide", 250, 16, MOVED, (1, 2, 3, 4, 6, 8), "resnet18"),
    )
}


def settings(name: str, **given: Any) -> Settings:
    """Return the run of a fast recipe, with what is `given` put over it."""
    base = RECIPES[name]
    private = given.get("method", "dirichlet") == "dirichlet"
    usual = {k: v for k, v in USUAL.items() if k != "effective_lr" or given.get("lr") is None}
    options = {**usual, **(LINK if private else {}), **given.pop("options", {})}
    values: dict[str, Any] = {
        "data": base.data,
        "method": "dirichlet",
        "model": base.model,
        "batch_size": base.batch_size,
        "optimizer": "muon",
        "augment": base.augment,
    }
    if "steps" not in given:
        values["epochs"] = base.epochs
    return Settings(**{**values, **given, "options": options})


def experiment() -> Experiment:
    """Return the tables of all fast recipes: every budget and none, then ε = 1 with batch norm."""
    cells = [
        _cell(name, epsilon)
        for name, base in RECIPES.items()
        for epsilon in (*base.epsilons, math.inf)
    ]
    cells += [_cell(name, 1.0, norm="batch") for name in RECIPES]
    return Experiment(NAME, "Fast recipes by budget", tuple(cells), study=True)


def _cell(name: str, epsilon: float, **given: Any) -> Cell:
    base, none = RECIPES[name], math.isinf(epsilon)
    method = "plain" if none else "dirichlet"
    run = settings(name, epsilon=float(epsilon), method=method, **given)
    wanted = (base.data, "dirichlet", base.published, None if none else epsilon)
    published = recipes.published_accuracy(*wanted)
    title = DATA_TITLES[base.data] + (f", {base.records:,} records" if base.records else "")
    title += ", batch norm" if run.norm == "batch" else ""
    return Cell(identity.canonical(run), title, epsilon_label(epsilon), published, base.records)
