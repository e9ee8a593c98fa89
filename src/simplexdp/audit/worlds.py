"""What is trained when a canary is out?  The null record of the method's own relation.

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
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from simplexdp import features, methods
from simplexdp.audit import crafting, shadow
from simplexdp.settings import Settings

REMOVING = ("dpsgd",)
SCALED_BY_THE_RATE = ("sgd", "momentum")


def in_or_out(settings: Settings, planted: crafting.Planted) -> tuple[Settings, crafting.Planted]:
    """Settings and canaries under which a canary that is out is a null record."""
    if settings.options.get("form") == "trained":
        raise ValueError(
            "the trained form of gaussian-features has no null record; use --relation pair"
        )
    if methods.on_features(settings):
        _check_null(settings, planted.dataset.input_shape)
    removed = settings.method in REMOVING
    if removed:
        settings = _with_public_numbers(settings, len(planted.dataset.train))
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


def _with_public_numbers(settings: Settings, records: int) -> Settings:
    """DP-SGD with all that its rules would compute from n fixed at the full number of records."""
    from simplexdp.methods import dpsgd  # Opacus takes seconds to load

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
    options = dpsgd.checked_options(settings)
    return dataclasses.replace(
        settings,
        lr=settings.lr or dpsgd.default_rate(settings.optimizer, options),
        options=shadow.calibrated(settings, records),
    )


def _check_null(settings: Settings, input_shape: tuple[int, ...]) -> None:
    options = settings.options
    shares = [options.get(name) for name in ("mean_share", "moment_share")]
    if settings.method == "certified" and shares != [0.0, 0.0]:
        raise ValueError(
            "an input of zeros is certified's null record only where rows are not centred: that "
            "needs the options mean_share=0 and moment_share=0; or use --relation pair"
        )
    feature_map = features.build(str(options.get("features", "auto")), input_shape)
    if bool(feature_map.apply(torch.zeros(1, *input_shape)).any()):
        raise ValueError(
            f"the features {feature_map.name} of an input of zeros are not 0, so it is no null "
            "record; use --relation pair"
        )
