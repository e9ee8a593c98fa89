"""Which runs fill which table?  The paper's tables and figures as data.

An experiment is a list of cells; a cell is a `Settings` without a seed, the labels of its row
and column, and what the paper prints there.  Tables that need no training are in `computed`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from simplexdp.paper import identity, recipes
from simplexdp.paper.labels import DATA_TITLES, epsilon_label, row_label
from simplexdp.settings import Settings

Published = tuple[float, float | None]  # percent: mean, and standard deviation where printed


@dataclass(frozen=True)
class Cell:
    """One entry of a table, to be filled by the mean over its seeds."""

    settings: Settings
    row: str
    column: str
    published: Published | None = None


@dataclass(frozen=True)
class Experiment:
    """A table or figure whose cells are trainings, in the order in which they are worth running."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    # The size of training set that the experiment is defined on; None: any.
    records: int | None = None
    study: bool = False  # it varies more than method and budget: not for an accuracy table
    head: str = "the paper"  # of the column with what the paper prints


# The studies that the paper makes with CIFAR10 and ResNet-18, at a size that a CPU can do.
STUDY_DATA = "fashion-mnist"
STUDY_MODEL = "tanh-cnn"
STUDY_STEPS = 960  # four epochs of FashionMNIST in batches of 250
IN_PLACE = (
    "FashionMNIST with a small tanh network and 960 steps, in the place of the paper's CIFAR10 "
    "with ResNet-18 and 20,000 steps: neither the numbers nor the best rates need agree.",
    "Every point is calibrated for exactly its own steps and sampling rate.",
)
WARMED_UP = (
    "lr auto grows to the rule's rate over the first tenth of the steps, which was made so with "
    "this data set in view; options warmup=0: the whole rate from the first step on."
)
# The paper's 40 epochs of SVHN at its sampling rate; a quarter of them on the part at hand.
SVHN_PART_RECORDS = 8_000
SVHN_PART_STEPS = 2_930


def names() -> tuple[str, ...]:
    """The experiments that train."""
    return tuple(_experiments())


def experiment(name: str) -> Experiment:
    """The experiment of this name."""
    return _experiments()[name]


def studies() -> tuple[str, ...]:
    """The experiments that vary more than method and budget, in the order of the page."""
    return tuple(e.name for e in _experiments().values() if e.study)


def home(settings: Settings) -> str | None:
    """The experiment that a run belongs to, or None: the one that asks for it, or its data's."""
    found = _homes().get(identity.cell(settings))
    return found or (settings.data if settings.data in ACCURACY_TABLES else None)


def _table_cell(name: str, epsilon: float | None, **given: Any) -> Cell:
    """A cell of an accuracy table; no epsilon means training without privacy."""
    usual = recipes.settings(name)
    method = given.pop("method", usual.method if epsilon is not None else "plain")
    budget = float("inf") if epsilon is None else epsilon
    settings = recipes.settings(name, epsilon=budget, method=method, **given)
    base = recipes.recipe(name)
    settings = identity.canonical(settings)
    return Cell(
        settings=settings,
        row=row_label(settings, usual),
        column=epsilon_label(budget),
        published=recipes.published_accuracy(base.data, base.method, base.model, epsilon),
    )


# data set → its recipes: Algorithm 1's, and the baseline's where the paper trained one with it.
ACCURACY_TABLES: dict[str, tuple[str, ...]] = {
    "cifar10": ("cifar10",),
    "mnist": ("mnist",),
    "fashion-mnist": ("fashion-mnist", "dpsgd-fashion-mnist"),
    "dermamnist": ("dermamnist", "dpsgd-dermamnist"),
    "svhn": ("svhn", "dpsgd-svhn"),
}


def _accuracy_table(name: str) -> Experiment:
    """Rule's learning rate first, then the paper's, then what we add to it, then the baseline."""
    main, *baselines = ACCURACY_TABLES[name]
    budgets: tuple[float | None, ...] = (*recipes.recipe(main).epsilons, None)
    cells = [_table_cell(main, epsilon, lr=None) for epsilon in budgets]
    cells += [_table_cell(main, epsilon) for epsilon in budgets]
    if name == "fashion-mnist":
        cells += [_table_cell(main, epsilon, lr=None, accountant="pld") for epsilon in budgets[:2]]
    if name == "dermamnist":  # one class is two thirds of it
        balanced, at_once = {"class_weights": "balanced"}, {"warmup": 0}
        ours = [_table_cell(main, epsilon, options=balanced) for epsilon in budgets]
        ours += [_table_cell(main, e, lr=None, options=at_once) for e in budgets if e is not None]
        cells += [dataclasses.replace(cell, published=None) for cell in ours]
    cells += [_table_cell(b, epsilon) for b in baselines for epsilon in recipes.recipe(b).epsilons]
    notes = tuple(note for r in (main, *baselines) if (note := recipes.recipe(r).note))
    if name == "dermamnist":
        notes = (*notes, WARMED_UP)
    return Experiment(name, f"{DATA_TITLES[name]}: accuracy by budget", tuple(cells), notes)


def _svhn_part() -> Experiment:
    """SVHN's recipe on the part of its test set that can be had where the training set cannot."""
    rate = recipes.recipe("svhn").sample_rate
    given = {"batch_size": round(rate * SVHN_PART_RECORDS), "steps": SVHN_PART_STEPS, "lr": None}
    cells = [_table_cell("svhn", epsilon, **given) for epsilon in (4.0, 1.0, None)]
    return Experiment(
        "svhn-part",
        "SVHN's recipe on 8,000 of its test images",
        tuple(dataclasses.replace(c, row="Dirichlet, lr auto") for c in cells),
        (
            "ResNet-18, trained on 8,000 and tested on 2,000 of SVHN's test images, at the paper's "
            "sampling rate, in a quarter of its 40 epochs unless the row says otherwise: an "
            "exercise of the recipe and not a result on SVHN.",
        ),
        records=SVHN_PART_RECORDS,
        study=True,
        head="the paper, whole SVHN, lr 0.1",
    )


def _study(on: str | None, **given: Any) -> Settings:
    """A point of a study: with the paper's own recipe `on`, or on what stands in its place."""
    if on is not None:
        return recipes.settings(on, **given)
    usual: dict[str, Any] = {
        "data": STUDY_DATA,
        "model": STUDY_MODEL,
        "norm": "none",
        "batch_size": 250,
        "steps": STUDY_STEPS,
    }
    return Settings(**{**usual, **given})


def _coarse_first(points: Sequence[Cell]) -> list[list[Cell]]:
    """Every fourth point first, then those between: a sweep that is cut off covers the range."""
    return [[p for i, p in enumerate(points) if i % 4 == k] for k in (0, 2, 1, 3)]


def _name(study: str, on: str | None) -> str:
    return study if on is None else f"{on}-{study}"


def _learning_rate(on: str | None = None) -> Experiment:
    """Nine curves; a point that the recipe's accuracy table has too stays there."""
    figure = recipes.published()["learning_rate_figure"]
    in_table = None if on is None else (recipes.recipe(on).alpha, recipes.recipe(on).lr)
    rounds: list[list[Cell]] = [[], [], [], []]
    for curve in figure["curves"]:
        alpha = float(curve["alpha"])
        points = [
            Cell(
                settings=_study(on, epsilon=figure["epsilon"], alpha=alpha, lr=point["lr"]),
                row=f"α = {alpha:g}",
                column=f"γ = {point['lr']:g}",
                published=(point["accuracy"], None),
            )
            for point in curve["points"]
            if (alpha, point["lr"]) != in_table
        ]
        for cells, part in zip(rounds, _coarse_first(points), strict=True):
            cells += part
    return Experiment(
        _name("learning-rate", on),
        "Accuracy over learning rate and over effective learning rate, nine α, ε = 1",
        tuple(cell for cells in rounds for cell in cells),
        IN_PLACE if on is None else (),
        study=True,
        head="the paper, CIFAR10" if on is None else "the paper",
    )


def _sampling_rate(on: str | None = None) -> Experiment:
    study = recipes.published()["sampling_rate_study"]
    records = recipes.recipe(on or STUDY_DATA).records
    notes = IN_PLACE if on is None else ()
    cells = [
        Cell(
            settings=_study(
                on,
                epsilon=study["epsilon"],
                batch_size=round(point["sample_rate"] * records),
                lr=lr,
            ),
            row="lr auto" if lr is None else f"lr {lr:g}",
            column=f"q = {point['sample_rate']:g}",
            published=(point["mean"], point["std"]),
        )
        for lr in (None, recipes.recipe(study["recipe"]).lr)
        for point in study["points"]
    ]
    return Experiment(
        _name("sampling-rate", on),
        "Accuracy by sampling rate, ε = 4",
        tuple(cells),
        notes,
        study=True,
        head="the paper, CIFAR10, lr 0.1" if on is None else "the paper, lr 0.1",
    )


def _adam(on: str | None = None) -> Experiment:
    """Adam's row, and in the stand-in SGD's, which the paper's own data has in its own table."""
    base = recipes.recipe("cifar10-adam")
    published = {
        (row["recipe"], row["epsilon"]): (row["mean"], row["std"])
        for row in recipes.published()["accuracy"]
        if row["data"] == base.data and row["method"] == "dirichlet"
    }
    rows: list[tuple[str, str, str, float | None]]
    rows = [("Adam, lr 0.001", "cifar10-adam", "adam", base.lr)]
    if on is None:
        rows.append(("SGD, lr auto", "cifar10", "sgd", None))
    cells = [
        Cell(
            settings=identity.canonical(
                _study(
                    on,
                    method="dirichlet" if epsilon is not None else "plain",
                    epsilon=float("inf") if epsilon is None else epsilon,
                    optimizer=optimizer,
                    lr=lr,
                )
            ),
            row=row,
            column=epsilon_label(float("inf") if epsilon is None else epsilon),
            published=published.get((recipe, epsilon)),
        )
        for row, recipe, optimizer, lr in rows
        for epsilon in (*base.epsilons, None)
    ]
    both = "the paper, CIFAR10 (Adam at 0.001, SGD at 0.1)"
    return Experiment(
        _name("adam", on),
        "Adam beside SGD by budget" if on is None else "Adam by budget",
        tuple(cells),
        IN_PLACE if on is None else (),
        study=True,
        head=both if on is None else "the paper",
    )


def _digits() -> Experiment:
    """Every method as it is without options, and Algorithm 1 with the paper's other optimizer."""
    rows: dict[str, dict[str, Any]] = {"dirichlet": {}, "dirichlet, Adam": {"optimizer": "adam"}}
    rows |= {m: {"method": m} for m in ("certified", "dpsgd", "gaussian-features", "plain")}
    cells = [
        Cell(
            identity.canonical(Settings(data="digits", **given)),
            row,
            epsilon_label(math.inf if row == "plain" else 1.0),
        )
        for row, given in rows.items()
    ]
    return Experiment(
        "digits",
        "The built-in digits: every method with its defaults",
        tuple(cells),
        ("1,437 training records; the paper has no such table.",),
    )


CERTIFIED_BUDGETS = {
    "fashion-mnist": (0.5, 1.0, 2.0, 4.0),
    "mnist": (0.5, 1.0, 2.0, 4.0),
    "cifar10": (1.0, 2.0, 4.0, 8.0),
    "dermamnist": (1.0, 4.0, 7.42),
}


def _certified() -> Experiment:
    """The certified method beside the best DP-SGD figure that the paper prints."""
    cells = [
        Cell(
            Settings(data=data, method="certified", epsilon=epsilon),
            data,
            epsilon_label(epsilon),
            _best_dpsgd(data, epsilon),
        )
        for data, budgets in CERTIFIED_BUDGETS.items()
        for epsilon in budgets
    ]
    return Experiment(
        "certified",
        "The certified linear method by budget",
        tuple(cells),
        (
            "The last column is the best DP-SGD figure that the paper prints for that budget or a "
            "smaller one: of its own training (FashionMNIST up to ε = 2), or one that it cites "
            "(the others).",
        ),
        head="best DP-SGD in the paper within the budget",
    )


def _best_dpsgd(data: str, epsilon: float) -> Published | None:
    """The best test accuracy of DP-SGD in the paper; a run within ε is also one within more."""
    found = [
        (row["mean"], row["std"])
        for row in recipes.published()["accuracy"]
        if (row["data"], row["method"], row["split"]) == (data, "dpsgd", "test")
        and row["epsilon"] is not None
        and row["epsilon"] <= epsilon
    ]
    return max(found, key=lambda one: one[0], default=None)


@cache
def _homes() -> dict[str, str]:
    return {identity.cell(c.settings): e.name for e in _experiments().values() for c in e.cells}


@cache
def _experiments() -> dict[str, Experiment]:
    tables = [_accuracy_table(name) for name in ACCURACY_TABLES]
    varied = [_learning_rate(), _sampling_rate(), _adam(), _svhn_part()]
    varied += [make("cifar10") for make in (_learning_rate, _sampling_rate, _adam)]
    found = [*tables, *varied, _digits(), _certified()]
    return {e.name: e for e in found}
