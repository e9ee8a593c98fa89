"""Gaussian features: the sound form and the form whose weights are not covered."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from simplexdp import data, load_model, methods, noise
from simplexdp.accounting.gaussian import gaussian_delta
from simplexdp.linear.exact_sums import ROW_UNIT
from simplexdp.methods import gaussian_features
from simplexdp.methods.gaussian_features import trained as trained_features
from simplexdp.settings import Settings


def bits(seed: int = 0) -> noise.Bits:
    return noise.seeded_bits(np.random.default_rng(seed))


def silent(count: int) -> np.ndarray:
    """Bits whose Gaussian is 0 up to rounding."""
    return np.full(count, 2**64 - 2, dtype=np.uint64)


def settings(**changes: object) -> Settings:
    return Settings(data="digits", method="gaussian-features", **changes)  # type: ignore[arg-type]


def test_projection_is_orthonormal_and_public() -> None:
    basis = gaussian_features.projection(30, 8)
    torch.testing.assert_close(basis.T @ basis, torch.eye(8), atol=1e-5, rtol=0)
    assert torch.equal(basis, gaussian_features.projection(30, 8))


def test_released_rows_are_bounded_rows_plus_the_stated_noise() -> None:
    """KS on 40,000 differences at level 1e-5, and the bound on what lies under the noise."""
    rows = np.random.default_rng(0).standard_normal((1000, 60)).astype(np.float32) * 50
    basis = gaussian_features.projection(60, 40)
    bare = gaussian_features.noised(rows, basis, 1.01, 3.0, silent)
    assert np.linalg.norm(bare, axis=1).max() <= 1.01 + 40 * ROW_UNIT
    loud = gaussian_features.noised(rows, basis, 1.01, 3.0, bits(2))
    assert stats.kstest(((loud - bare) / (3.0 * 1.01)).ravel(), "norm").pvalue > 1e-5


def test_a_record_is_released_by_itself() -> None:
    rows = np.random.default_rng(0).standard_normal((5, 12)).astype(np.float32)
    basis = gaussian_features.projection(12, 6)
    other = rows.copy()
    other[1:] *= -3
    first = gaussian_features.noised(rows, basis, 1.01, 2.0, bits())
    second = gaussian_features.noised(other, basis, 1.01, 2.0, bits())
    np.testing.assert_array_equal(first[0], second[0])


def test_one_record_does_not_decide_whether_anything_is_released() -> None:
    """Features of 1e300 overflow: the run is that with an input of zeros, its null record."""
    digits = data.load("digits")
    runs = []
    for number in (1e300, 0.0):
        inputs = digits.train.inputs.astype(np.float64)
        inputs[5] = number
        chosen = settings(seed=3, options={"features": "columns", "dimensions": 16})
        changed = replace(digits, train=replace(digits.train, inputs=inputs))
        runs.append(methods.train(chosen, changed).model.state_dict())
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[1])


@pytest.mark.parametrize(("relation", "factor"), [("zero-out", 1.0), ("replace-input", 2.0)])
def test_cost_of_both_relations(relation: str, factor: float) -> None:
    outcome = methods.train(
        settings(epsilon=2.0, options={"relation": relation}, seed=0), data.load("digits")
    )
    mu = factor / outcome.chosen["noise_multiplier"]
    assert gaussian_delta(mu, 2.0) <= 1e-5
    assert outcome.statement.epsilon == pytest.approx(2.0, rel=1e-9)
    assert outcome.statement.relation == relation
    assert outcome.statement.covers_weights


def test_head_without_noise_is_linear_discriminant_analysis() -> None:
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 3000)
    rows = rng.standard_normal((3, 5))[labels] + rng.standard_normal((3000, 5))
    weights, bias = gaussian_features.head(rows, labels, 3, 0.0, 0.0)
    want = LinearDiscriminantAnalysis().fit(rows, labels).predict(rows)
    assert ((rows @ weights + bias).argmax(1) == want).mean() > 0.995


def test_head_takes_known_noise_out_of_the_covariance() -> None:
    """On noised rows with strongly unequal variances, correcting Σ beats ignoring the noise."""
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 2, 40_000)
    scale = np.array([0.1, 3.0])
    clean = np.array([[0.0, 0.0], [0.3, 3.0]])[labels] + rng.standard_normal((40_000, 2)) * scale
    noisy = clean + rng.standard_normal(clean.shape)
    weights, bias = gaussian_features.head(noisy, labels, 2, 1.0, 0.0)
    ignorant, flat = gaussian_features.head(noisy, labels, 2, 0.0, 0.0)
    right = ((clean @ weights + bias).argmax(1) == labels).mean()
    assert right > ((clean @ ignorant + flat).argmax(1) == labels).mean() + 0.05


def test_a_generous_budget_learns_digits_and_the_model_reloads(tmp_path: Path) -> None:
    outcome, folder = methods.run(settings(epsilon=50.0, seed=1), tmp_path / "run")
    assert outcome.accuracy > 0.85
    test = data.load("digits").test
    right = float((load_model(folder.path).predict(test.inputs) == test.labels).mean())
    assert right == pytest.approx(outcome.accuracy, abs=1e-9)
    (measured,) = folder.metrics()
    assert measured["test_accuracy"] == outcome.accuracy
    assert measured["epsilon"] == outcome.statement.epsilon


def test_a_clip_below_the_rows_changes_nothing_but_the_scale(tmp_path: Path) -> None:
    """Rows of norm 1 and noise in proportion to the clip: the same picture, smaller."""
    found = [
        methods.run(settings(epsilon=50.0, seed=1, options={"clip": clip}), tmp_path / f"{clip}")[0]
        for clip in (1.0, 0.2)
    ]
    assert found[1].accuracy == pytest.approx(found[0].accuracy, abs=0.02)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"options": {"form": "both"}},
            "the option form is 'both'; leave it out or use fixed or trained",
        ),
        (
            {"options": {"relation": "add/remove"}},
            "the option relation is 'add/remove'; leave it out or use zero-out",
        ),
        ({"options": {"clip": 0.0}}, "clip"),
        ({"options": {"clip": 70}}, "the clip is 70; it must be positive and at most 64"),
        ({"options": {"clip": True}}, "the option clip is True; give a number"),
        ({"options": {"dimensions": 0}}, "dimensions"),
        ({"options": {"dimensions": 2.5}}, "dimensions is 2.5; give a whole number"),
        ({"options": {"depth": 1}}, "does not know"),
        ({"options": {"penalty": "much"}}, "penalty"),
        ({"options": {"penalty": math.nan}}, "penalty"),
        ({"options": {"penalty": -1.0}}, "penalty"),
        ({"optimizer": "adam"}, "--optimizer"),
        ({"norm": "batch"}, "--norm"),
        ({"model": "mlp"}, "--model"),
        ({"lr": 0.1}, "--lr"),
        ({"steps": 10}, "the fixed form of gaussian-features has no use for --steps"),
        ({"options": {"layer": "0"}}, "trained form"),
        ({"options": {"form": "trained", "layer": "stem"}, "model": "mlp"}, "no layer 'stem'"),
        ({"options": {"form": "trained", "features": "auto"}}, "fixed form"),
        ({"options": {"form": "trained", "clip": 0.0}}, "clip"),
        ({"options": {"form": "trained", "clip": "wide"}}, "clip is 'wide'; give a number"),
        ({"options": {"form": "trained", "layer": 77}, "model": "mlp"}, "no layer '77'"),
        ({"options": {"form": "trained", "clip": math.inf}}, "clip"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        methods.train(settings(**change), data.load("digits"))


# --- the form that trains below the noise ----------------------------------------------------


def test_features_are_clipped_and_noised() -> None:
    rows = torch.randn(2000, 20, generator=torch.Generator().manual_seed(0)) * 9
    out = trained_features.noisy(rows, 2.0, 1.5, np.random.default_rng(3))
    bare = rows * (2.0 / rows.norm(dim=1, keepdim=True)).clamp_max(1.0)
    still = trained_features.noisy(rows, 2.0, 1e-12, np.random.default_rng(3))
    torch.testing.assert_close(still, bare)
    torch.testing.assert_close(
        trained_features.noisy(rows / 100, 2.0, 1e-12, np.random.default_rng(3)), rows / 100
    )
    assert stats.kstest(((out - bare) / 3.0).numpy().ravel(), "norm").pvalue > 1e-5


def test_a_model_without_a_linear_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="no linear layer"):
        trained_features.layer_above(nn.Sequential(nn.Conv2d(1, 1, 1)), None, (1, 4, 4))


def test_noise_goes_below_the_layer_that_is_named() -> None:
    """Images of features too: all numbers of a record are clipped and noised together."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 2, 3), nn.Flatten(), nn.Linear(32, 3))
    assert trained_features.layer_above(model, "1", (1, 8, 8)) is model[1]
    assert trained_features.layer_above(model, None, (1, 8, 8)) is model[3]
    maps = torch.randn(500, 4, 6, 6, generator=torch.Generator().manual_seed(1)) * 9
    out = trained_features.noisy(maps, 2.0, 1.5, np.random.default_rng(3))
    bare = maps * (2.0 / maps.flatten(1).norm(dim=1)).clamp_max(1.0).view(-1, 1, 1, 1)
    assert out.shape == maps.shape
    assert stats.kstest(((out - bare) / 3.0).numpy().ravel(), "norm").pvalue > 1e-5


class TwoBranches(nn.Module):
    """A head that is applied to two branches, and one that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.head, self.unused = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(self.left(x)) + self.head(self.right(x))
        return y


@pytest.mark.parametrize(("name", "uses"), [("head", 2), ("unused", 0), (None, 0)])
def test_a_layer_that_a_pass_does_not_use_once_is_refused(name: str | None, uses: int) -> None:
    """Two uses release twice what is charged once, with the same noise; none release no noise."""
    model = TwoBranches().eval()
    with pytest.raises(ValueError, match=f"{uses} times"):
        trained_features.layer_above(model, name, (4,))
    assert trained_features.layer_above(model, "left", (4,)) is model.left
    assert not model.training


def test_trained_form_does_not_claim_the_weights() -> None:
    outcome = methods.train(
        settings(epsilon=8.0, steps=40, batch_size=100, seed=0, options={"form": "trained"}),
        data.load("digits"),
    )
    assert not outcome.statement.covers_weights
    assert not outcome.statement.covers_draws
    assert "under assumptions that this run breaks" in outcome.statement.headline()
    assert any("Hidden participation" in a.text for a in outcome.statement.assumptions)
    assert any("released weights" in text for text in outcome.statement.does_not_cover)
    assert outcome.statement.epsilon is not None
    assert outcome.statement.epsilon <= 8.0
    assert math.isfinite(outcome.accuracy)


def test_the_figure_is_within_the_budget(blobs: data.Dataset) -> None:
    settings = Settings(data="blobs", method="gaussian-features", epsilon=1.0, seed=0)
    outcome = methods.train(settings, blobs)
    assert outcome.statement.epsilon is not None
    assert 0.999 < outcome.statement.epsilon <= 1.0
