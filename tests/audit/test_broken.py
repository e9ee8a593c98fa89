"""Deliberately broken mechanisms are caught, where theory says that they can be; right ones not.

The reference is DP-SGD for logistic regression, written out in numpy and run for many trainings
at once.  One record, of large norm in a direction of its own, is in the data or contributes
nothing (zero-out), so the bound is held against the claim itself.  The shipped DP-SGD is broken in
test_broken_dpsgd.py.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from simplexdp import data, noise
from simplexdp.accounting.gaussian import gaussian_epsilon
from simplexdp.audit import bounds, canary
from simplexdp.linear import noisy_gd, whitening
from simplexdp.settings import Settings

DELTA, CONFIDENCE = 1e-5, 0.999
RECORDS = 8


def train(
    present: bool,
    models: int,
    rng: np.random.Generator,
    *,
    steps: int,
    noise_multiplier: float,
    sampling: str = "full",
    clip: bool = True,
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The final weight of the last feature, which only the last record has, in each training."""
    fixed = np.random.default_rng(0)
    inputs = fixed.normal(size=(RECORDS, 4))
    inputs[:, 3] = 0.0
    inputs[-1] = [0.0, 0.0, 0.0, 100.0]
    labels = fixed.choice([-1.0, 1.0], size=RECORDS)
    labels[-1] = 1.0
    norms = np.linalg.norm(inputs, axis=1)
    weights = np.zeros((models, 4))
    turn = rng.permuted(np.tile(np.arange(RECORDS), (models, 1)), axis=1) * steps // RECORDS
    for step in range(steps):
        size = labels / (1.0 + np.exp(labels * (weights @ inputs.T)))
        if clip:
            size = size / np.maximum(1.0, np.abs(size) * norms)
        if sampling == "poisson":
            size = size * (rng.random((models, RECORDS)) < 1.0 / steps)
        elif sampling == "shuffled":
            size = size * (turn == step)
        size[:, -1] *= present
        weights += 1e-4 * (size @ inputs + noise_multiplier * rng.normal(size=weights.shape))
    return weights[:, 3] * 1e4


def bound(models: int, seed: int, delta: float = DELTA, **mechanism: Any) -> float:
    rng = np.random.default_rng(seed)
    inside, outside = (train(present, models, rng, **mechanism) for present in (True, False))
    return bounds.threshold_bound(inside, outside, delta, CONFIDENCE).epsilon


STEPS, NOISE = 4, 4.0
CLAIM = gaussian_epsilon(math.sqrt(STEPS) / NOISE, DELTA)


def test_the_right_mechanism_is_not_above_its_claim() -> None:
    found = bound(40_000, 1, steps=STEPS, noise_multiplier=NOISE)
    assert 0.2 < found < CLAIM


def test_half_the_noise_is_caught() -> None:
    assert bound(100_000, 2, steps=STEPS, noise_multiplier=NOISE / 2) > CLAIM


def test_clipping_left_out_is_caught() -> None:
    assert bound(2_000, 3, steps=STEPS, noise_multiplier=NOISE, clip=False) > CLAIM


def test_shuffled_batches_are_caught() -> None:
    """A Poisson-sampled record is in no batch with probability (1 − q)^T, whatever the noise.

    So with Poisson batches training is (0, 1 − (1 − q)^T)-DP under zero-out.  Shuffled batches
    use every record, and with little noise they are far from that.
    """
    steps = 4
    delta = 1.0 - (1.0 - 1.0 / steps) ** steps
    mechanism: dict[str, Any] = {"steps": steps, "noise_multiplier": 0.15}
    assert bound(4_000, 4, delta, sampling="poisson", **mechanism) == 0.0
    assert bound(4_000, 4, delta, sampling="shuffled", **mechanism) > 1.0


@pytest.mark.parametrize("relation", ["pair", "in-out"])
def test_certified_is_below_its_claim_and_caught_without_its_noise(
    images: data.Dataset, monkeypatch: pytest.MonkeyPatch, relation: str
) -> None:
    """The whole way through the shipped method and the audit."""
    settings = Settings(method="certified", steps=4)

    def attacked() -> dict[str, Any]:
        rng = np.random.default_rng(5)
        return canary.audit(settings, images, rng, 136, 0.95, relation=relation)

    right = attacked()
    assert right["epsilon_lower"] < right["claim"]["epsilon"]

    def weak(total: noise.Integers, sigma: float, *rest: Any) -> noise.Integers:
        return noise.release(total, sigma / 40.0, *rest)

    for module in (noisy_gd, whitening):
        monkeypatch.setattr(module, "release", weak)
    broken = attacked()
    assert broken["epsilon_lower"] > broken["claim"]["epsilon"]
