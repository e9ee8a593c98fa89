"""The noise of both forms of Gaussian features, at the release as the method makes it.

The fixed form's noise is made of bits that are spread evenly (conftest.py): no chance. That of the
trained form is numpy's: 12 million draws, of which the standard deviation is off by 0.1 % in one
case of a million; the seed is fixed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from simplexdp import data, methods
from simplexdp.methods import _on_features, gaussian_features
from simplexdp.methods.base import Run
from simplexdp.settings import Settings

RECORDS = 120


def dataset(inputs: np.ndarray) -> data.Dataset:
    split = data.Split(inputs.astype(np.float32), np.arange(len(inputs)) % 3)
    return data.Dataset("made", split, split, None, ("a", "b", "c"))


@pytest.mark.parametrize("relation", ["zero-out", "replace-input"])
@pytest.mark.parametrize("clip", [None, 0.3])
def test_the_fixed_form_releases_what_its_event_says(
    relation: str,
    clip: float | None,
    monkeypatch: pytest.MonkeyPatch,
    even_bits: Callable,
    scale_of: Callable,
) -> None:
    """One record's move over the noise is μ of the event, for either relation."""
    released: list[np.ndarray] = []
    real = gaussian_features.head

    def head(rows: np.ndarray, *arguments: Any) -> Any:
        released.append(rows.copy())
        return real(rows, *arguments)

    monkeypatch.setattr(gaussian_features, "head", head)
    monkeypatch.setattr(_on_features, "noise_bits", lambda seed: even_bits())
    options = {"features": "columns", "dimensions": 64, "relation": relation}
    settings = Settings(
        data="made",
        method="gaussian-features",
        options=options if clip is None else {**options, "clip": clip},
    )
    null = np.zeros((RECORDS, 80))
    worst, opposite = null.copy(), null.copy()
    worst[11], opposite[11] = 1e6, -1e6
    for inputs in (null, worst, opposite):
        prepared = methods.prepare(settings, dataset(inputs))
        prepared.start(Run())
    noise, first, second = released
    sigma = scale_of(noise)
    moved = np.linalg.norm(first - (noise if relation == "zero-out" else second), axis=1)
    assert np.flatnonzero(moved).tolist() == [11]
    mu = 1.0 / prepared.event.event.noise_multiplier
    assert moved[11] / sigma <= mu
    # In whole units of a thousandth a row of 64 numbers is up to 0.01 shorter.
    assert moved[11] / sigma == pytest.approx(mu, rel=0.02)
    bound = 1.01 if clip is None else clip
    assert bound * (1 if relation == "zero-out" else 2) / sigma == pytest.approx(mu, rel=1e-5)
    delta = stats.norm.cdf(mu / 2 - 1 / mu) - math.e * stats.norm.cdf(-mu / 2 - 1 / mu)
    assert delta == pytest.approx(1e-5, rel=1e-6)


def test_the_trained_form_adds_the_noise_of_its_event() -> None:
    """Features of null records are 0: what reaches the layer above is the noise alone."""
    records, width, steps = 100, 8_000, 30
    settings = Settings(
        data="made",
        method="gaussian-features",
        model="logistic",
        steps=steps,
        batch_size=50,
        seed=3,
        options={"form": "trained", "clip": 0.7},
    )
    prepared = methods.prepare(settings, dataset(np.zeros((records, width))), 3)
    layer = prepared.model[1]
    seen: list[np.ndarray] = []

    def see(module: torch.nn.Module, arguments: tuple[torch.Tensor, ...], out: object) -> None:
        if prepared.model.training:
            seen.append(arguments[0].detach().numpy().ravel())

    handle = layer.register_forward_hook(see)
    prepared.start(Run())
    handle.remove()
    assert len(seen) == steps
    noise = np.concatenate(seen)
    assert len(noise) > 11_000_000
    claimed = prepared.event.event.event.noise_multiplier
    # 4.9 standard errors of a standard deviation.
    assert noise.std() / (0.7 * claimed) == pytest.approx(1.0, abs=4.9 / math.sqrt(2 * len(noise)))
    assert abs(noise.mean()) < 4.9 * noise.std() / math.sqrt(len(noise))
    some = noise[:: len(noise) // 200_000]
    assert stats.kstest(some / (0.7 * claimed), "norm").pvalue > 1e-6
    # No two steps share their noise.
    size = min(map(len, seen))
    products = [float((a[:size] * b[:size]).mean()) for a, b in itertools.pairwise(seen)]
    assert max(map(abs, products)) < 6 * noise.var() / math.sqrt(size)
