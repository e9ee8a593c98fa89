"""The trainings with a canary out, by the null record of the method's own relation.

Formal guarantee
    Statement: for canaries that are in or out, the two sides of each coin are neighbours under
    the relation of the method's claim, and nothing else differs between them.
    certified, gaussian-features (zero-out): the input becomes 0.  Where features of 0 are 0 and
    rows are not centred, its row is 0 and adds nothing to any sum; label and n stay.  Anything
    else is refused.
    dpsgd (add/remove): the record is removed.  The sampling rate and the normaliser n·q are public
    and stay: n − 1 records at a batch size of q·(n − 1) have the same rate, and a learning rate of
    (n − 1)/n of the other undoes the smaller normaliser, up to rounding, for plain and momentum
    descent.  The noise multiplier is the same number in both.
    dirichlet, plain: the input becomes 0, which is one replacement of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from simplexdp import methods
from simplexdp.audit import crafting, shadow
from simplexdp.settings import Settings

SCALED_BY_THE_RATE = ("sgd", "momentum")


def in_or_out(settings: Settings, planted: crafting.Planted) -> tuple[Settings, crafting.Planted]:
    """Return settings and canaries under which a canary that is out is a null record."""
    method = methods.lookup(settings.method)
    method.check_null(settings, planted.dataset.input_shape)
    removed = method.audited.removes
    if removed:
        settings = _with_public_numbers(settings, planted)
    return settings, planted.in_or_out(removed)


def train(
    settings: Settings,
    planted: crafting.Planted,
    coins: Sequence[bool] | npt.NDArray[np.bool_],
    seed: int,
) -> shadow.Shadow:
    """Train once on what the coins pick, at one sampling rate and one normaliser."""
    dataset = planted.with_coins(coins)
    share = len(dataset.train) / len(planted.dataset.train)
    if share < 1.0:
        assert settings.batch_size is not None
        assert settings.lr is not None
        # A batch size is an expectation here, and need not be whole.
        changes: dict[str, Any] = {
            "batch_size": settings.batch_size * share,
            "lr": settings.lr * share,
        }
        settings = dataclasses.replace(settings, **changes)
    return shadow.train(settings, dataset, seed)


def _with_public_numbers(settings: Settings, planted: crafting.Planted) -> Settings:
    """Fix all that the method's rules would compute from n at the full number of records."""
    if settings.batch_size is None:
        raise ValueError(
            "records that are in or out need a sampling rate that does not follow their number; "
            "give a batch size, or use --relation pair"
        )
    if settings.optimizer not in SCALED_BY_THE_RATE:
        raise ValueError(
            f"the normaliser cannot be kept under {settings.optimizer} when a record is removed; "
            f"use {' or '.join(SCALED_BY_THE_RATE)}, or --relation pair"
        )
    resolved = methods.prepare(settings, planted.dataset, 0).resolved
    by_rule = [f.name for f in fields(methods.lookup(settings.method).Options) if f.default is None]
    pinned = {name: resolved[name] for name in by_rule if name in resolved}
    return dataclasses.replace(settings, lr=resolved["lr"], options={**pinned, **settings.options})
