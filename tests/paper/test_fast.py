"""The fast recipes: every cell can be calibrated, trained and found again."""

from __future__ import annotations

import math

import pytest

from simplexdp import methods, models
from simplexdp.methods.base import Options
from simplexdp.paper import fast, grid, identity, recipes

RECORDS = {
    "fashion-mnist": 60_000,
    "mnist": 60_000,
    "cifar10": 50_000,
    "dermamnist": 7_007,
    "svhn": 8_000,
}


@pytest.mark.parametrize("name", fast.RECIPES)
def test_a_recipe_is_the_link_at_every_budget_and_plain_without(name: str) -> None:
    private = recipes.settings(name, epsilon=1.0)
    plain = recipes.settings(name, method="plain")
    assert private.options == {**plain.options, "link": "log"}
    assert (private.accountant, private.delta, private.norm) == ("theorem1", 1e-5, "group")
    for settings in (private, plain):
        options: Options = methods.lookup(settings.method).options(settings)
        assert options
        assert settings.model in models.names()


@pytest.mark.parametrize("name", fast.RECIPES)
def test_every_budget_leaves_an_r_for_the_steps_of_the_recipe(name: str) -> None:
    """`Plan` refuses a budget without one; the largest rate is at the smallest budget."""
    from simplexdp import Plan

    base, records = fast.RECIPES[name], RECORDS[fast.RECIPES[name].data]
    steps = round(base.epochs * records / base.batch_size)
    for epsilon in base.epsilons:
        plan = Plan(float(epsilon), 1e-5, records, batch_size=base.batch_size, steps=steps)
        assert plan.epsilon <= epsilon


def test_the_table_holds_every_budget_beside_the_papers_number() -> None:
    cells = grid.experiment("fast").cells
    assert len(cells) == sum(len(base.epsilons) + 2 for base in fast.RECIPES.values())
    assert sum(c.settings.norm == "batch" for c in cells) == len(fast.RECIPES)
    found = {(c.row, c.column): c.published for c in cells}
    # typed from the paper
    assert found["FashionMNIST", "ε = 1"] == (86.35, 3.79)
    assert found["DermaMNIST", "ε = 7.42"][0] == 76.31
    assert found["SVHN, 8,000 records", "ε = 1"] == (85.08, 5.43)
    assert found["CIFAR10", "ε = 8"][0] == 88.61
    assert {c.settings.method for c in cells if math.isinf(c.settings.epsilon)} == {"plain"}
    assert {c.records for c in cells if c.settings.data == "svhn"} == {8000}
    assert all(grid.home(c.settings) == "fast" for c in cells)


def test_a_given_rate_takes_the_place_of_the_recipes() -> None:
    settings = recipes.settings("fast-mnist", epsilon=1.0, lr=3.0, steps=7)
    assert "effective_lr" not in settings.options
    assert (settings.lr, settings.steps, settings.epochs) == (3.0, 7, None)
    assert identity.cell(settings) != identity.cell(recipes.settings("fast-mnist", epsilon=1.0))
