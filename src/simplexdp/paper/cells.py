"""The entries of the paper's tables: a run to make, where it stands, and what the paper prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simplexdp.paper import identity, recipes
from simplexdp.paper.labels import epsilon_label, row_label
from simplexdp.settings import Settings

Published = tuple[float, float | None]  # percent: mean, and standard deviation where printed


@dataclass(frozen=True)
class Cell:
    """One entry of a table: a run without its seed, filled by the mean over its seeds."""

    settings: Settings
    row: str
    column: str
    published: Published | None = None
    records: int | None = None  # of the training set it is defined on; None: any


@dataclass(frozen=True)
class Experiment:
    """A table or chart whose cells are trainings, in the order in which they are worth running."""

    name: str
    title: str
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    records: int | None = None  # as of a cell, for all of them
    study: bool = False  # it varies more than method and budget: not for an accuracy table
    head: str = "the paper"  # of the column with what the paper prints


def table_cell(name: str, epsilon: float | None, **given: Any) -> Cell:
    """Return a recipe's cell of its accuracy table; no epsilon means training without privacy."""
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
