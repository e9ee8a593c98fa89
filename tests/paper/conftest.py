"""A small experiment on the built-in digits, so that a sweep takes seconds."""

from __future__ import annotations

import pytest

from simplexdp.paper import grid
from simplexdp.settings import Settings


@pytest.fixture
def small() -> grid.Experiment:
    """Two budgets of Algorithm 1 and one training without privacy."""
    base = {"data": "digits", "model": "logistic", "batch_size": 8, "steps": 30}
    cells = [
        grid.Cell(Settings(epsilon=1.0, **base), "Dirichlet", "ε = 1", (80.0, 1.0)),
        grid.Cell(Settings(epsilon=4.0, **base), "Dirichlet", "ε = 4"),
        grid.Cell(Settings(method="plain", epsilon=float("inf"), **base), "plain", "ε = ∞"),
    ]
    return grid.Experiment("small", "A small experiment", tuple(cells))
