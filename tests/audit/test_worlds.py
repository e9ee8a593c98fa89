"""A canary that is out contributes nothing, and all public numbers stay what they are."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from simplexdp import data, methods, sampling
from simplexdp.audit import crafting, shadow
from simplexdp.linear import exact_sums
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
    canaries = shadow.in_or_out(settings, planted(images))
    everyone = np.arange(120)
    monkeypatch.setattr(sampling, "poisson_batch", lambda n, *_: everyone[:n])

    def silent(model: Any, totals: Any, chosen: dpsgd_step.StepParameters, rng: Any) -> None:
        none = dataclasses.replace(chosen, noise_multiplier=0.0)
        dpsgd_step.set_noisy_gradient(model, totals, none, rng)

    monkeypatch.setattr(dpsgd, "set_noisy_gradient", silent)
    inside, outside = (
        shadow.train_on(settings, canaries, [coin], seed=1) for coin in (True, False)
    )
    assert canaries.without([False]) == {canaries.pairs[0].record}
    assert canaries.without([True]) == frozenset()
    assert inside.statement.steps == outside.statement.steps == 1
    for name in ("sample_rate", "noise_multiplier", "clip"):
        assert inside.chosen[name] == pytest.approx(outside.chosen[name], rel=1e-12)
    look = shadow.parameters
    pair = canaries.pairs[0]
    gradient = shadow.gradient(inside.initial, pair.first, pair.label, look)
    share = -0.5 / 30 * gradient / gradient.norm().clamp_min(1.0)  # lr/(n·q) of a clipped gradient
    moved = shadow.movement(inside, look) - shadow.movement(outside, look)
    assert torch.allclose(moved, share, atol=1e-6)


@pytest.mark.parametrize("method", ["certified", "gaussian-features"])
def test_a_record_that_is_out_is_in_no_sum(images: data.Dataset, method: str) -> None:
    """Every exact sum before its noise is that of the data without it; labels and n stay."""
    settings = Settings(method=method, options=dict(methods.lookup(method).audited.heard))
    canaries = shadow.in_or_out(settings, planted(images))
    record = canaries.pairs[0].record
    sums: dict[bool, list[Any]] = {True: [], False: []}
    for garbage in (False, True):  # whatever its input is, once it is out

        def hear(name: str, exact: Any, released: Any, sigma: float, to: bool = garbage) -> Any:
            sums[to].append(np.array(exact))
            return released

        dataset = canaries.with_coins([not garbage])
        shadow.train(settings, dataset, 1, frozenset({record}), hear)
    assert len(sums[True]) == len(sums[False]) > 0
    for one, other in zip(sums[True], sums[False], strict=True):
        assert (one == other).all()
    if method == "gaussian-features":
        assert not sums[True][0][record].any()
        return
    others = np.delete(canaries.dataset.train.inputs.reshape(120, -1), record, axis=0)
    rows = torch.from_numpy((others * 0.5 + 0.5) / 6.0 if canaries.dataset.pixels else others / 6.0)
    assert (sums[True][0] == exact_sums.row_sum(exact_sums.quantize(rows, 1.01))).all()


def test_what_has_no_null_record_is_refused(images: data.Dataset) -> None:
    settings = Settings(method="gaussian-features", options={"form": "trained"})
    with pytest.raises(ValueError, match="no null record"):
        shadow.in_or_out(settings, planted(images))
