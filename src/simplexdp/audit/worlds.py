"""The trainings with a canary out, by the null record of the method's own relation.

Formal guarantee
    Statement: for canaries that are in or out, the two sides of each coin are neighbours under
    the relation of the method's claim, and nothing else differs between them.
    Methods that remove (zero-out, or add/remove at a fixed rate and divisor): the record adds
    nothing to any sum, while labels, n and with them sampling rate, divisor and noise stay.
    All others: the input becomes 0, which is one replacement of it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from simplexdp import methods
from simplexdp.audit import crafting, shadow
from simplexdp.settings import Settings


def in_or_out(settings: Settings, planted: crafting.Planted) -> crafting.Planted:
    """Return canaries of which one that is out is a null record."""
    method = methods.lookup(settings.method)
    method.check_null(settings, planted.dataset.input_shape)
    return planted.in_or_out(method.audited.removes)


def train(
    settings: Settings,
    planted: crafting.Planted,
    coins: Sequence[bool] | npt.NDArray[np.bool_],
    seed: int,
) -> shadow.Shadow:
    """Train once on what the coins pick."""
    return shadow.train(settings, planted.with_coins(coins), seed, planted.without(coins))
