"""Published settings by name, as data: the paper's runs and its baselines.

The numbers live in published.json beside this file: recipes, the paper's r*, every accuracy of its
tables and figures. A recipe says in `unchecked` which of its values rest on a recollection of the
source or on a choice of ours.

>>> recipe("fashion-mnist").steps
9600
>>> settings("fashion-mnist", epsilon=2.0).model
'inception'
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from typing import Any

from simplexdp.settings import Settings


@dataclass(frozen=True)
class Recipe:
    """One published training run; `None` where the source gives no value.

    `epsilons` are the budgets the source reports, `unchecked` the fields and options known
    to be recollections or choices of ours. The other values of the DP-SGD recipes come from a
    summary of their sources and were not compared with the articles.
    """

    name: str
    data: str
    method: str
    model: str
    norm: str
    records: int
    batch_size: int
    steps: int | None
    optimizer: str
    lr: float
    augment: tuple[str, ...]
    alpha: float | None
    delta: float
    epsilons: tuple[float, ...]
    source: str
    epochs: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    unchecked: tuple[str, ...] = ()
    note: str | None = None

    @property
    def sample_rate(self) -> float:
        """Return the probability with which a record enters a batch."""
        return self.batch_size / self.records


@cache
def published() -> dict[str, Any]:
    """Return all of published.json: every number the paper reports, with its source."""
    text = resources.files(__package__).joinpath("published.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


def names() -> tuple[str, ...]:
    """Return the names that `recipe` knows, the paper's own first."""
    return tuple(published()["recipes"])


def recipe(name: str) -> Recipe:
    """Return the recipe of this name."""
    known = published()["recipes"]
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        meant = f" (closest: {close[0]})" if close else ""
        raise ValueError(f"no recipe {name!r}{meant}: use one of {', '.join(known)}")
    values = dict(known[name])
    for key in ("augment", "epsilons", "unchecked"):
        values[key] = tuple(values[key])
    return Recipe(name=name, **values)


def settings(name: str, **given: Any) -> Settings:
    """Return a recipe's run, with what is `given` over it; `lr=None` asks for the rule's rate.

    Without an epsilon the run takes the recipe's only one, or 1. Given options are merged with
    the recipe's, and given epochs replace its steps.
    """
    from simplexdp.paper import fast  # whose tables look up what is published

    if name in fast.RECIPES:
        return fast.settings(name, **given)
    base = recipe(name)
    shared = {f.name for f in fields(Settings)} & {f.name for f in fields(Recipe)}
    by_rule = {"alpha", "steps", "epochs", "options"}
    values: dict[str, Any] = {name: getattr(base, name) for name in shared - by_rule}
    values["epsilon"] = base.epsilons[0] if len(base.epsilons) == 1 else 1.0
    if base.alpha is not None:
        values["alpha"] = base.alpha
    if "epochs" not in given:
        values["steps"] = base.steps
    options = {**base.options, **given.pop("options", {})}
    return Settings(**{**values, **given, "options": options})


def published_accuracy(
    data: str, method: str, model: str, epsilon: float | None
) -> tuple[float, float | None] | None:
    """Return mean and deviation on the test set in percent, as the paper prints them, or None.

    `epsilon=None` is training without privacy. The paper's Adam runs are not looked up here.
    """
    wanted = (data, "test", method, model, epsilon)
    for row in published()["accuracy"]:
        found = (row["data"], row["split"], row["method"], row["model"], row["epsilon"])
        if found == wanted and row["recipe"] != "cifar10-adam":
            return row["mean"], row["std"]
    return None
