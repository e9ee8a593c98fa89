"""The one-run attack: one training with hundreds of canaries, each placed by a fair coin.

The canaries replace records of the same label, so that labels, counts and the number of records
stay what they are.  Two views: white box, the weights' movement resolved into the gradients by
which the two inputs of each pair differ; black box, the difference of the two inputs' losses.
Canaries that are in or out have no second input: its gradient is 0, and the loss before training
takes the place of its loss.
Each view gets half of the allowed error, so the better of both holds at the confidence asked.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from simplexdp import data, methods
from simplexdp.audit import bounds, claims, crafting, schedules, shadow, tradeoff
from simplexdp.settings import Settings

Array = npt.NDArray[np.float64]

CANARIES = 300
# Tikhonov share of the mean squared gradient: keeps nearly parallel gradients from blowing up.
RIDGE = 1e-3


def audit(
    settings: Settings,
    dataset: data.Dataset,
    rng: np.random.Generator,
    canaries: int = CANARIES,
    confidence: float = 0.95,
    records: int | None = None,
    relation: str = claims.PAIR,
) -> dict[str, Any]:
    """Train once with planted canaries and bound ε from the guesses on their coins."""
    each = 1.0 - (1.0 - confidence) / 2.0  # of the two views
    small = crafting.subset(dataset, records, rng)
    noisy = methods.lookup(settings.method).audited.adds_noise
    plant = crafting.contrasts if noisy else crafting.opposites
    planted = plant(small, canaries, rng)
    coins = rng.random(len(planted.pairs)) < 0.5
    seed = shadow.seeds(1, rng)[0]
    settings = dataclasses.replace(settings, augment=())
    if relation == claims.IN_OUT:
        planted = shadow.in_or_out(settings, planted)
    before = methods.prepare(settings, planted.dataset, seed).statement()
    claim = claims.held(before, settings.delta, relation)
    bounds.require_canaries(canaries, claim.epsilon or 0.0, claim.delta, each)
    result = shadow.train_on(settings, planted, coins, seed)
    claim = claims.held(result.statement, settings.delta, relation)
    views = {
        "white box": white_box(result, planted.pairs),
        "black box": black_box(result, planted.pairs),
    }
    found = {
        name: bounds.one_run(scores, coins, claim.delta, each) for name, scores in views.items()
    }
    best = max(found, key=lambda name: found[name].epsilon)
    curves = claims.curves(result.prepared, claim.delta, relation)
    by_curve = curves and max(
        (tradeoff.one_run(scores, coins, curves, each) for scores in views.values()),
        key=lambda bound: bound.scale,
    )
    return {
        "epsilon_lower": found[best].epsilon,
        "by_curve": by_curve and dataclasses.replace(by_curve, confidence=confidence).to_json(),
        "trials": len(planted.pairs),
        "view": best,
        "views": {
            name: {"epsilon_lower": b.epsilon, "guesses": b.guesses, "right": b.right}
            for name, b in found.items()
        },
        **schedules.told(result, claim, len(small.train)),
    }


def white_box(result: shadow.Shadow, pairs: tuple[crafting.Pair, ...]) -> Array:
    """Return the least-squares share of each pair's gradient difference in the weights' movement.

    Plain inner products would mix up canaries whose gradients overlap; solving for all shares at
    once takes the overlap out.
    """
    look = shadow.first_weights
    directions = torch.stack([shadow.direction(result.initial, pair, look) for pair in pairs])
    gram = directions @ directions.T
    ridge = RIDGE * gram.diagonal().mean()
    gram = gram + ridge * torch.eye(len(pairs), dtype=gram.dtype)
    inner = directions @ shadow.movement(result, look)
    return np.asarray(-torch.linalg.solve(gram, inner).numpy())


def black_box(result: shadow.Shadow, pairs: tuple[crafting.Pair, ...]) -> Array:
    """Return how much smaller the loss is on the first input than on the second or untrained."""
    labels = [pair.label for pair in pairs]
    firsts = np.stack([pair.first for pair in pairs])
    seconds = [pair.second for pair in pairs if pair.second is not None]
    first = shadow.losses(result.final, firsts, labels)
    if not seconds:
        return shadow.losses(result.initial, firsts, labels) - first
    return shadow.losses(result.final, np.stack(seconds), labels) - first
