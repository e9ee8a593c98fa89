"""The paper's tables and charts as data: which runs fill them, and the accuracy tables' cells.

Tables that need no training are in `computed`.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

from simplexdp.paper import fast, identity, recipes, studies
from simplexdp.paper.cells import Cell, Experiment, Published, table_cell
from simplexdp.paper.labels import DATA_TITLES, epsilon_label
from simplexdp.settings import Settings

# data set → its recipes: Algorithm 1's, and the baseline's where the paper trained one with it.
ACCURACY_TABLES: dict[str, tuple[str, ...]] = {
    "cifar10": ("cifar10",),
    "mnist": ("mnist",),
    "fashion-mnist": ("fashion-mnist", "dpsgd-fashion-mnist"),
    "dermamnist": ("dermamnist", "dpsgd-dermamnist"),
    "svhn": ("svhn", "dpsgd-svhn"),
}
# data set → recipes of the systems that the paper cites beside its own, in the order of cost.
CITED: dict[str, tuple[str, ...]] = {
    "cifar10": (
        *(f"de2022-wrn-16-4-eps{epsilon}" for epsilon in (1, 2, 3, 4, 6)),
        *(f"de2022-wrn-40-4-eps{epsilon}" for epsilon in (1, 2, 4, 6, 8)),
    ),
    "mnist": ("dpsgd-mnist-mlp", "papernot2021-tanh-mnist", "dpnas-mnist"),
    "fashion-mnist": ("papernot2021-tanh-fashion-mnist",),
}
CERTIFIED_BUDGETS = {
    "fashion-mnist": (0.5, 1.0, 2.0, 4.0),
    "mnist": (0.5, 1.0, 2.0, 4.0),
    "cifar10": (1.0, 2.0, 4.0, 8.0),
    "dermamnist": (1.0, 4.0, 7.42),
    "svhn": (1.0, 4.0),
    "digits": (1.0,),
}
# Chosen on held-out training records; skin has no up or down. The others take the default.
CERTIFIED_FEATURES = {
    "fashion-mnist": "patches+scattering",
    "dermamnist": "patches-d4",
    "digits": "scattering+columns",
}
WARMED_UP = (
    "lr auto grows to the rule's rate over the first tenth of the steps, which was made so with "
    "this data set in view; options warmup=0: the whole rate from the first step on."
)


def names() -> tuple[str, ...]:
    """Return the names of the experiments that train."""
    return tuple(_experiments())


def experiment(name: str) -> Experiment:
    """Return the experiment of this name."""
    return _experiments()[name]


def study_names() -> tuple[str, ...]:
    """Return the experiments that vary more than method and budget, in the order of the page."""
    return tuple(e.name for e in _experiments().values() if e.study)


def home(settings: Settings) -> str | None:
    """Return the experiment that asks for a run, or its data set's accuracy table, or None."""
    found = _homes().get(identity.cell(settings))
    return found or (settings.data if settings.data in ACCURACY_TABLES else None)


def recipe_of(settings: Settings) -> Settings | None:
    """Return the recipe in the tables for these data, method and network, or None.

    One for the same budget is preferred; training without privacy is Algorithm 1's at ε = ∞.
    """
    family = "dirichlet" if settings.method == "plain" else settings.method
    fits = [
        name
        for name in (*ACCURACY_TABLES.get(settings.data, ()), *CITED.get(settings.data, ()))
        if (recipes.recipe(name).method, recipes.recipe(name).model) == (family, settings.model)
    ]
    fits.sort(key=lambda name: settings.epsilon not in recipes.recipe(name).epsilons)
    return recipes.settings(fits[0]) if fits else None


def _accuracy_table(name: str) -> Experiment:
    """Order the rule's learning rate, the paper's, what we add, the baseline, what is cited."""
    main, *baselines = ACCURACY_TABLES[name]
    budgets: tuple[float | None, ...] = (*recipes.recipe(main).epsilons, None)
    cells = [table_cell(main, epsilon, lr=None) for epsilon in budgets]
    cells += [table_cell(main, epsilon) for epsilon in budgets]
    if name == "fashion-mnist":
        cells += [table_cell(main, epsilon, lr=None, accountant="pld") for epsilon in budgets[:2]]
    if name == "dermamnist":  # one class is two thirds of it
        balanced, at_once = {"class_weights": "balanced"}, {"warmup": 0}
        ours = [table_cell(main, epsilon, options=balanced) for epsilon in budgets]
        ours += [table_cell(main, e, lr=None, options=at_once) for e in budgets if e is not None]
        cells += [dataclasses.replace(cell, published=None) for cell in ours]
    beside = (*baselines, *CITED.get(name, ()))
    cells += [table_cell(b, epsilon) for b in beside for epsilon in recipes.recipe(b).epsilons]
    notes = tuple(note for r in (main, *baselines) if (note := recipes.recipe(r).note))
    if name == "dermamnist":
        notes = (*notes, WARMED_UP)
    return Experiment(name, f"{DATA_TITLES[name]}: accuracy by budget", tuple(cells), notes)


def _digits() -> Experiment:
    """Return every method without options, and Algorithm 1 with the paper's other optimizer."""
    rows: dict[str, dict[str, Any]] = {"dirichlet": {}, "dirichlet, Adam": {"optimizer": "adam"}}
    rows |= {m: {"method": m} for m in ("certified", "dpsgd", "gaussian-features", "plain")}
    cells = []
    for row, given in rows.items():
        run = identity.canonical(Settings(data="digits", **given))
        cells.append(Cell(run, row, epsilon_label(run.epsilon)))
    title = "The built-in digits: every method with its defaults"
    notes = ("1,437 training records; the paper has no such table.",)
    return Experiment("digits", title, tuple(cells), notes)


def _certified() -> Experiment:
    """Return the certified method beside the best DP-SGD figure that the paper prints."""
    features = CERTIFIED_FEATURES
    cells = [
        Cell(
            Settings(
                data=data,
                method="certified",
                epsilon=epsilon,
                options={"features": features[data]} if data in features else {},
            ),
            data,
            epsilon_label(epsilon),
            _best_dpsgd(data, epsilon),
            studies.SVHN_PART_RECORDS if data == "svhn" else None,
        )
        for data, budgets in CERTIFIED_BUDGETS.items()
        for epsilon in budgets
    ]
    notes = (
        "The last column is the best DP-SGD figure that the paper prints for that budget or a "
        "smaller one: of its own training (FashionMNIST up to ε = 2), or one that it cites (the "
        "others).",
        "Features: "
        + ", ".join(f"{name} on {data}" for data, name in CERTIFIED_FEATURES.items())
        + ", and the default elsewhere: patches on colour images, scattering on grey ones.",
        f"svhn: trained on {studies.SVHN_PART_RECORDS:,} and tested on 2,000 of its test images.",
    )
    title, head = (
        "The certified linear method by budget",
        "best DP-SGD in the paper within the budget",
    )
    return Experiment("certified", title, tuple(cells), notes, head=head)


def _best_dpsgd(data: str, epsilon: float) -> Published | None:
    """Return DP-SGD's best test accuracy in the paper; a run within ε is also one within more."""
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
    alike = (studies.learning_rate, studies.sampling_rate, studies.adam)
    varied = [
        *(make() for make in alike),
        studies.svhn_part(),
        *(make("cifar10") for make in alike),
    ]
    return {e.name: e for e in (*tables, *varied, fast.experiment(), _digits(), _certified())}
