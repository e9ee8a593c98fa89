"""The unlit pixel separates trainings of Algorithm 1 perfectly; rounding does not fool it."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from simplexdp import data
from simplexdp.audit import bounds, canary, crafting, schedules, shadow
from simplexdp.settings import Settings


@pytest.mark.parametrize(
    ("model", "relation", "trials"),
    [
        ("logistic", "pair", 40),
        ("logistic", "in-out", 40),
        ("mlp", "pair", 40),
        ("cnn", "pair", 24),
    ],
)
def test_algorithm_1_is_told_apart_without_error(
    images: data.Dataset, model: str, relation: str, trials: int
) -> None:
    """For the convolutional first layer all other images are 0 and the test is on its kernel.

    That is a worst case: 0 is mid-grey in the model's scale, float inputs can hold it and bytes
    cannot, and no real images are like that.  It shows that no (ε, δ) holds for all data sets.
    """
    settings = Settings(method="dirichlet", model=model)
    result = canary.audit(
        settings, images, np.random.default_rng(0), trials=trials, relation=relation
    )
    assert ("kernel" in result["distinguisher"]) is (model == "cnn")
    assert result["true_positive_rate"] == 1.0
    assert result["false_positive_rate"] == 0.0
    # Perfect separation: the bound is what so many trials can show at all, and above the claim.
    limit = 0.025 ** (2 / trials)
    expected = math.log((limit - 1e-5) / (1 - limit))
    assert result["epsilon_lower"] == pytest.approx(expected, rel=1e-6)
    assert result["claim"]["epsilon"] <= 1.0 < result["epsilon_lower"]


def test_a_convolution_moves_only_with_the_record(images: data.Dataset) -> None:
    dataset = dataclasses.replace(
        images,
        train=data.Split(np.tile(images.train.inputs, (1, 1, 2, 2)), images.train.labels),
        test=data.Split(np.tile(images.test.inputs, (1, 1, 2, 2)), images.test.labels),
    )
    settings = schedules.canary(Settings(method="dirichlet", model="cnn"), 100)
    rng = np.random.default_rng(1)
    small = crafting.subset(dataset, 100, rng)
    planted = canary.plant(settings, small, rng)
    for coin in (True, False):
        result = shadow.train(settings, planted.with_coins([coin]), seed=5)
        assert (canary.moved(result, planted.pairs[0]) > 1.0) is coin


def test_the_true_positive_rate_is_that_of_being_sampled(images: data.Dataset) -> None:
    """In T = 2 steps at q = 0.3 the record is in some batch with probability 1 − 0.7² = 0.51."""
    settings = dataclasses.replace(schedules.canary(Settings(method="dirichlet"), 100), steps=2)
    rng = np.random.default_rng(2)
    planted = canary.plant(settings, crafting.subset(images, 100, rng), rng)
    pair = planted.pairs[0]
    trials = 60
    hits = 0
    for seed in range(trials):
        result = shadow.train(settings, planted.with_coins([True]), seed)
        hits += canary.moved(result, pair) >= 1.0
    low, high = bounds.interval(hits, trials, 1 - 1e-4)
    assert low <= 1 - 0.7**2 <= high


def test_rounding_stays_far_below_the_threshold(images: data.Dataset) -> None:
    settings = dataclasses.replace(
        schedules.canary(Settings(method="plain", model="mlp"), 100), steps=40
    )
    rng = np.random.default_rng(3)
    planted = canary.plant(settings, crafting.subset(images, 100, rng), rng)
    result = shadow.train(settings, planted.with_coins([False]), seed=1)
    assert canary.moved(result, planted.pairs[0]) < 0.5
    result = shadow.train(settings, planted.with_coins([True]), seed=1)
    assert canary.moved(result, planted.pairs[0]) > 20.0


def test_too_few_trials_are_refused_with_the_number_needed(images: data.Dataset) -> None:
    with pytest.raises(ValueError, match=r"20 trials are too few.* give --trials 24 or more"):
        canary.audit(Settings(), images, np.random.default_rng(0), trials=20)
