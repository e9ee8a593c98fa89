"""The canary attack: many small trainings, each with one or the other of two inputs.

Algorithm 1 and everything else that adds no noise to its updates is tested with the unlit pixel:
two pixels are unlit in every record but one.  In a linear first layer both weight columns then
get equal updates in every step, unless the one record that lights the first is in the batch:

    ΔW_i − ΔW_j = −γ·Σ_t δ_t·(x_i − x_j) = 0 for all other records.

The test "do the columns differ" has no false positive (up to rounding, which the threshold
allows for) and a true-positive rate of 1 − (1 − q)^T, whatever r is.  For a convolutional first
layer all other images are 0, and the test is "did the kernel move".

Noisy updates are tested with the projection of the movement on the gradient by which the two
inputs of a pair differ, or on that of a record that is in or out.  All other inputs are 0, so that
in a first layer nothing but the noise is added to it.  The threshold is chosen on half of the
trials.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from simplexdp import data, methods
from simplexdp.audit import bounds, claims, crafting, schedules, shadow, tradeoff
from simplexdp.settings import Settings

TRIALS = 400


def audit(
    settings: Settings,
    dataset: data.Dataset,
    rng: np.random.Generator,
    trials: int = TRIALS,
    confidence: float = 0.95,
    advance: Callable[[], None] = lambda: None,
    relation: str = claims.PAIR,
) -> dict[str, Any]:
    """Train `trials` times, half of them with the first input of a pair, and bound ε.

    With the relation in-out, the other half is without it, and the claim itself is tested.
    """
    exact = not methods.lookup(settings.method).audited.adds_noise
    records = min(schedules.CANARY_RECORDS, len(dataset.train))
    small = schedules.canary(settings, records, relation)
    planted = plant(small, crafting.subset(dataset, records, rng), rng)
    if relation == claims.IN_OUT:
        planted = shadow.in_or_out(small, planted)
    score = moved if exact else projection
    scores: dict[bool, list[float]] = {True: [], False: []}
    for trial, seed in enumerate(shadow.seeds(max(1, trials), rng)):
        coin = trial % 2 == 0
        last = shadow.train_on(small, planted, [coin], seed)
        claim = claims.held(last.statement, settings.delta, relation)
        if trial == 0:  # the first training says what is claimed, and so how many are needed
            bounds.require_trials(trials, claim.epsilon or 0.0, claim.delta, confidence, not exact)
        scores[coin].append(score(last, planted.pairs[0]))
        advance()
    bound = bounds.threshold_bound(
        scores[True], scores[False], claim.delta, confidence, 1.0 if exact else None
    )
    curves = claims.curves(last.prepared, claim.delta, relation)
    return {
        "epsilon_lower": bound.epsilon,
        "by_curve": curves
        and tradeoff.threshold_bound(scores[True], scores[False], curves, confidence).to_json(),
        "trials": trials,
        "counted": bound.trials,
        "true_positive_rate": bound.true_positive_rate,
        "false_positive_rate": bound.false_positive_rate,
        "distinguisher": _name(exact, last.initial),
        **schedules.told(last, claim, len(planted.dataset.train)),
    }


def plant(settings: Settings, dataset: data.Dataset, rng: np.random.Generator) -> crafting.Planted:
    """Return the pair that suits the method and the model's first layer."""
    if methods.lookup(settings.method).audited.adds_noise:
        return crafting.contrasts(crafting.zeroed(dataset), 1, rng)
    if isinstance(shadow.first_layer(methods.prepare(settings, dataset, 0).model), nn.Conv2d):
        return crafting.blank_images(dataset, rng)
    return crafting.unlit_pixel(dataset, rng)


def moved(result: shadow.Shadow, pair: crafting.Pair) -> float:
    """Return how far two columns moved apart, or the kernel at all, in units of rounding."""
    before, after = (
        shadow.first_layer(model).weight.detach().double()
        for model in (result.initial, result.final)
    )
    change = after - before
    if change.ndim == 2:
        change = change[:, pair.pixels[0]] - change[:, pair.pixels[1]]
    steps = result.statement.steps
    # Each step rounds a weight once, by at most 2^-24 of its size, and the update's own sum by
    # as little; the factor 8 covers both columns.
    rounding = 8.0 * max(1, steps) * 2.0**-24 * float(before.abs().max() + after.abs().max())
    return float(change.abs().max()) / rounding


def projection(result: shadow.Shadow, pair: crafting.Pair) -> float:
    """Return how far the weights went against the gradient of the first input, not the second."""
    look = shadow.first_weights
    direction = shadow.direction(result.initial, pair, look)
    return -float(torch.dot(shadow.movement(result, look), direction) / direction.norm())


def _name(exact: bool, model: nn.Module) -> str:
    if not exact:
        return "projection of the movement on the canary's gradient (white box)"
    if isinstance(shadow.first_layer(model), nn.Conv2d):
        return "did the kernel move, all other images being blank (white box)"
    return "the unlit pixel: do two weight columns differ (white box)"
