"""The paper's studies: accuracy over learning rate, sampling rate and optimizer, and SVHN's part.

Each is made of CIFAR10 with ResNet-18, as the paper made it, or at a size that a CPU can do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from simplexdp.paper import identity, recipes
from simplexdp.paper.cells import Cell, Experiment, table_cell
from simplexdp.paper.labels import epsilon_label
from simplexdp.settings import Settings

STUDY_DATA = "fashion-mnist"
STUDY_MODEL = "tanh-cnn"
STUDY_STEPS = 960  # four epochs of FashionMNIST in batches of 250
IN_PLACE = (
    "FashionMNIST with a small tanh network and 960 steps, in the place of the paper's CIFAR10 "
    "with ResNet-18 and 20,000 steps: neither the numbers nor the best rates need agree.",
    "Every point is calibrated for exactly its own steps and sampling rate.",
)
# The paper's 40 epochs of SVHN at its sampling rate; a quarter of them on the part at hand.
SVHN_PART_RECORDS = 8_000
SVHN_PART_STEPS = 2_930


def svhn_part() -> Experiment:
    """Return SVHN's recipe on a part of its test set, for where the training set is not had."""
    rate = recipes.recipe("svhn").sample_rate
    given = {"batch_size": round(rate * SVHN_PART_RECORDS), "steps": SVHN_PART_STEPS, "lr": None}
    cells = [table_cell("svhn", epsilon, **given) for epsilon in (4.0, 1.0, None)]
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
    """Return a point of a study: with the paper's own recipe `on`, or on what stands in for it."""
    if on is not None:
        return recipes.settings(on, **given)
    usual: dict[str, Any] = {"data": STUDY_DATA, "model": STUDY_MODEL, "norm": "none"}
    return Settings(**{**usual, "batch_size": 250, "steps": STUDY_STEPS, **given})


def _experiment(
    study: str, on: str | None, title: str, cells: Sequence[Cell], lr: str = ""
) -> Experiment:
    """Return a study on the paper's own recipe `on`, or on what stands in for it."""
    stand_in = on is None
    name = study if stand_in else f"{on}-{study}"
    head = "the paper, CIFAR10" if stand_in else "the paper"
    notes = IN_PLACE if stand_in else ()
    return Experiment(name, title, tuple(cells), notes, study=True, head=head + lr)


def learning_rate(on: str | None = None) -> Experiment:
    """Return nine curves; a point that the recipe's accuracy table has too stays there."""
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
        for cells, k in zip(rounds, (0, 2, 1, 3), strict=True):
            cells += points[k::4]  # every fourth first: a sweep that is cut off covers the range
    title = "Accuracy over learning rate and over effective learning rate, nine α, ε = 1"
    return _experiment("learning-rate", on, title, [cell for cells in rounds for cell in cells])


def sampling_rate(on: str | None = None) -> Experiment:
    """Return accuracy by sampling rate, at the rule's learning rate and at the paper's."""
    study = recipes.published()["sampling_rate_study"]
    records = recipes.recipe(on or STUDY_DATA).records
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
    title = "Accuracy by sampling rate, ε = 4"
    return _experiment("sampling-rate", on, title, cells, ", lr 0.1")


def adam(on: str | None = None) -> Experiment:
    """Return Adam's row, and in the stand-in SGD's, which the paper's data has in its own table."""
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
    cells = []
    for row, recipe, optimizer, lr in rows:
        for epsilon in (*base.epsilons, None):
            budget = float("inf") if epsilon is None else epsilon
            method = "plain" if epsilon is None else "dirichlet"
            asked = _study(on, method=method, epsilon=budget, optimizer=optimizer, lr=lr)
            paper = published.get((recipe, epsilon))
            cells.append(Cell(identity.canonical(asked), row, epsilon_label(budget), paper))
    title = "Adam beside SGD by budget" if on is None else "Adam by budget"
    rates = " (Adam at 0.001, SGD at 0.1)" if on is None else ""
    return _experiment("adam", on, title, cells, rates)
