"""The paper's tables that need no training: r*, κ and their behaviour in α.

Formal guarantee: none of its own; r* is what `accounting.calibrate` returns, which never costs
more than the budget, and κ and the variance are the closed forms of Theorem 2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from simplexdp import accounting, mechanism
from simplexdp.paper import recipes
from simplexdp.paper.table import Table, Value, columns
from simplexdp.schedule import TYPICAL_TRUE_CLASS_PROBABILITY

CLASSES = 10  # of CIFAR10, on which the paper makes its studies in α
ALPHAS = tuple(10.0 ** (exponent / 2) for exponent in range(-6, 9))


@cache
def calibrated(recipe: str, epsilon: float, alpha: float) -> accounting.Calibration:
    """Return the paper's r* by the paper's theorem, for a recipe's schedule."""
    return accounting.calibrate("theorem1", epsilon=epsilon, alpha=alpha, **_schedule(recipe))


def _schedule(recipe: str) -> dict[str, Any]:
    base = recipes.recipe(recipe)
    if base.steps is None:
        raise ValueError(f"the recipe {recipe} has no number of steps")
    return {"delta": base.delta, "sample_rate": base.sample_rate, "steps": base.steps}


def r_star() -> Table:
    """Return r* by data set and budget beside the published value."""
    common = recipes.published()["source"]["alpha"]
    first: dict[tuple[str, float], dict[str, Value]] = {}
    for row in recipes.published()["r_star"]:
        if row["alpha"] == common:
            # CIFAR10 at ε = 1 is printed twice, with three digits and with four.
            first.setdefault((row["data"], row["epsilon"]), _r_row(**row))
    heads = columns(
        data="data set",
        epsilon="ε",
        r="r*",
        published="r* published",
        cost=("cost of r*", 5),
        published_cost="cost of the published r*",
    )
    notes = (
        "α = 3, δ = 1e-5. r* is the largest r whose cost is within the budget.",
        "A published r* that costs more than its budget was rounded up, or stands on the far "
        "side of a jump of the cost.",
    )
    title = "r* by data set and budget, Theorem 1 as published"
    return Table("r-star", title, heads, tuple(first.values()), notes)


def r_star_by_alpha() -> Table:
    """Return r* by α at ε = 1 on CIFAR10's schedule, and its ratio to α."""
    published = {
        row["alpha"]: row
        for row in recipes.published()["r_star"]
        if row["data"] == "cifar10" and row["epsilon"] == 1.0
    }
    rows = [
        {**_r_row(**row), "alpha": alpha, "ratio": calibrated("cifar10", 1.0, alpha).r / alpha}
        for alpha, row in sorted(published.items())
    ]
    heads = columns(
        alpha="α", r="r*", published="r* published", ratio=("r*/α", 3), cost=("cost of r*", 5)
    )
    return Table("r-star-alpha", "r* by α at ε = 1, CIFAR10's schedule", heads, tuple(rows))


def kappa() -> Table:
    """Return κ at s_y = 0.9 by α, beside the ratio of the two axes of the paper's figure."""
    figure = recipes.published()["learning_rate_figure"]
    rows: list[dict[str, Value]] = []
    for curve in figure["curves"]:
        alpha, published = float(curve["alpha"]), curve["kappa"]
        r = calibrated("cifar10", figure["epsilon"], alpha).r
        value = float(mechanism.attenuation(figure["kappa_at"], r, alpha))
        row = {"alpha": alpha, "r": r, "kappa": value, "published": published}
        rows.append({**row, "ratio": value / published})
    heads = columns(
        alpha="α",
        r="r*",
        kappa="κ",
        published="κ in the paper's figure",
        ratio=("ours / published", 3),
    )
    notes = ("Published: the ratio of the right axis to the left in the learning-rate figure.",)
    title = "κ at s_y = 0.9 by α, ε = 1, CIFAR10's schedule"
    return Table("kappa", title, heads, tuple(rows), notes)


def asymptotics() -> Table:
    """Return κ and the loss's variance over α, with r as the paper has it and as calibrated."""
    ratio = calibrated("cifar10", 1.0, 3.0).r / 3.0
    rows = [
        {"alpha": alpha, **_moments("linear", alpha, lambda a: ratio * a)}
        | _moments("calibrated", alpha, lambda a: calibrated("cifar10", 1.0, a).r)
        for alpha in ALPHAS
    ]
    heads = columns(
        alpha=("α", 3),
        linear_kappa=("κ, r = cα", 3),
        linear_kappa_slope=("slope", 2),
        linear_variance=("variance, r = cα", 3),
        linear_variance_slope=("slope", 2),
        calibrated_r=("r*", 3),
        calibrated_kappa=("κ, r = r*", 3),
        calibrated_kappa_slope=("slope", 2),
        calibrated_variance=("variance, r = r*", 3),
        calibrated_variance_slope=("slope", 2),
    )
    notes = (
        f"s_y = 0.9, {CLASSES} classes; slopes are d log / d log α; c = r*/α at α = 3.",
        "The paper's regimes, with r = cα: κ falls like 1/α at small α and saturates at large "
        "α; the variance falls like 1/α² and like 1/α.",
        "With r calibrated at each α, r* grows like √α and not like α at large α, so κ does "
        "not saturate: it goes on falling like 1/√α.",
    )
    title = "κ and the variance of the loss over α, ε = 1, CIFAR10's schedule"
    return Table("asymptotics", title, heads, tuple(rows), notes)


def _r_row(data: str, epsilon: float, alpha: float, r: float) -> dict[str, Value]:
    """Return our r* and its cost beside a published one and what that costs."""
    found = calibrated(data, epsilon, alpha)
    cost = accounting.account("theorem1", r=r, alpha=alpha, **_schedule(data))
    ours: dict[str, Value] = {"data": data, "epsilon": epsilon, "r": found.r, "published": r}
    return ours | {"cost": found.epsilon, "published_cost": cost.epsilon}


def _moments(name: str, alpha: float, r_of: Callable[[float], float]) -> dict[str, Value]:
    """Return κ and variance at α, and their slopes on doubly logarithmic axes."""
    s_y = TYPICAL_TRUE_CLASS_PROBABILITY

    def at(a: float) -> dict[str, float]:
        r = r_of(a)
        return {
            "kappa": float(mechanism.attenuation(s_y, r, a)),
            "variance": float(mechanism.loss_variance(s_y, r, a, CLASSES)),
        }

    step = 1.05
    low, here, high = at(alpha / step), at(alpha), at(alpha * step)
    found: dict[str, Value] = {f"{name}_r": r_of(alpha)}
    for what, value in here.items():
        slope = math.log(high[what] / low[what]) / (2 * math.log(step))
        found |= {f"{name}_{what}": value, f"{name}_{what}_slope": slope}
    return found


TABLES: dict[str, Callable[[], Table]] = {
    "r-star": r_star,
    "r-star-alpha": r_star_by_alpha,
    "kappa": kappa,
    "asymptotics": asymptotics,
}
