"""A canary that is out contributes nothing, and all public numbers stay what they are."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from simplexdp import data, sampling
from simplexdp.audit import crafting, schedules, shadow, worlds
from simplexdp.linear import classifier, exact_sums, noisy_gd
from simplexdp.methods import dpsgd
from simplexdp.methods.dpsgd import step as dpsgd_step
from simplexdp.settings import Settings


def planted(dataset: data.Dataset) -> crafting.Planted:
    return crafting.contrasts(dataset, 1, np.random.default_rng(0))


def test_dpsgd_keeps_rate_noise_and_normaliser(
    images: data.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without noise, and with every other record sampled alike, only the record's share differs."""
    settings = Settings(
        method="dpsgd", model="logistic", batch_size=30, steps=1, optimizer="momentum"
    )
    settings, canaries = worlds.in_or_out(settings, planted(images))
    everyone = np.arange(120)
    monkeypatch.setattr(sampling, "poisson_batch", lambda n, *_: everyone[:n])

    def silent(model: Any, totals: Any, chosen: dpsgd_step.StepParameters, rng: Any) -> None:
        none = dataclasses.replace(chosen, noise_multiplier=0.0)
        dpsgd_step.set_noisy_gradient(model, totals, none, rng)

    monkeypatch.setattr(dpsgd, "set_noisy_gradient", silent)
    inside, outside = (worlds.train(settings, canaries, [coin], seed=1) for coin in (True, False))
    assert len(canaries.with_coins([False]).train) == 119
    assert inside.statement.steps == outside.statement.steps == 1
    for name in ("sample_rate", "noise_multiplier", "clip"):
        assert inside.chosen[name] == pytest.approx(outside.chosen[name], rel=1e-12)
    look = shadow.parameters
    pair = canaries.pairs[0]
    gradient = shadow.gradient(inside.initial, pair.first, pair.label, look)
    share = -0.5 / 30 * gradient / gradient.norm().clamp_min(1.0)  # lr/(n·q) of a clipped gradient
    moved = shadow.movement(inside, look) - shadow.movement(outside, look)
    assert torch.allclose(moved, share, atol=1e-6)


def test_certified_sums_do_not_see_an_input_of_zeros(images: data.Dataset) -> None:
    """Every sum is that of the data without the record."""
    settings = schedules.canary(Settings(method="certified"), 120, "in-out")
    settings, canaries = worlds.in_or_out(settings, planted(images))
    outside = canaries.with_coins([False]).train
    record = canaries.pairs[0].record
    rows = exact_sums.quantize(
        torch.from_numpy(outside.inputs.reshape(120, -1)), classifier.WHITENED_ROW_BOUND
    )
    fewer = exact_sums.Rows(
        torch.from_numpy(np.delete(rows.integers.numpy(), record, axis=0)),
        torch.from_numpy(np.delete(rows.norms.numpy(), record)),
        rows.bound,
    )
    weights = np.random.default_rng(1).normal(size=(4, 36))
    labels = torch.from_numpy(outside.labels)
    others = torch.from_numpy(np.delete(outside.labels, record))
    prior = torch.zeros(4)
    whole = exact_sums.gradient_sum(rows, noisy_gd._residuals(weights, labels, prior), 0.5)
    part = exact_sums.gradient_sum(fewer, noisy_gd._residuals(weights, others, prior), 0.5)
    assert (whole == part).all()
    assert whole.any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (Settings(method="certified"), "mean_share=0 and moment_share=0"),
        (
            Settings(method="gaussian-features", options={"features": "random"}),
            "features random.* of an input of zeros are not 0",
        ),
        (Settings(method="gaussian-features", options={"form": "trained"}), "no null record"),
        (Settings(method="dpsgd"), "give a batch size"),
        (Settings(method="dpsgd", batch_size=10, optimizer="adam"), "cannot be kept under adam"),
    ],
)
def test_what_has_no_null_record_is_refused(
    images: data.Dataset, settings: Settings, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        worlds.in_or_out(settings, planted(images))
