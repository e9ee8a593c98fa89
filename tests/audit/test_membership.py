"""LiRA and RMIA: right on scores of a known law, blind where there is nothing to see."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats
from sklearn.metrics import roc_auc_score

from simplexdp import data
from simplexdp.audit import membership
from simplexdp.settings import Settings


def test_every_record_is_in_half_of_the_models() -> None:
    members = membership.halves(101, 8, np.random.default_rng(0))
    assert (members.sum(axis=0) == 4).all()
    assert (members[0::2] ^ members[1::2]).all()


def test_nothing_to_see_gives_an_auc_of_one_half() -> None:
    """Also with few models, where means over unequal numbers would tilt the scores."""
    rng = np.random.default_rng(1)
    members = membership.halves(20_000, 4, rng)
    difficulty = rng.normal(0, 3, size=20_000)
    values = difficulty + rng.normal(size=members.shape)
    scores = membership.likelihood_ratios(values, members)
    population = special.expit(rng.normal(0, 3, size=500) + rng.normal(size=(4, 500)))
    relative = membership.ranks(special.expit(values), population)
    assert abs(membership.area(relative[members], relative[~members]) - 0.5) < 0.01
    auc = membership.area(scores[members], scores[~members])
    # Paired scores: the standard error of the AUC is below 0.3/√20000 = 0.002.
    assert abs(auc - 0.5) < 0.01


def test_a_known_shift_is_found_at_its_known_rate() -> None:
    """Members are shifted by 2 σ; with many models the attack is the likelihood-ratio test."""
    rng = np.random.default_rng(2)
    models, records = 64, 2000
    members = membership.halves(records, models, rng)
    values = rng.normal(0, 5, size=records) + rng.normal(size=members.shape) + 2.0 * members
    scores = membership.likelihood_ratios(values, members)
    inside, outside = scores[members], scores[~members]
    assert membership.area(inside, outside) == pytest.approx(
        stats.norm.cdf(2 / np.sqrt(2)), abs=0.02
    )
    at_least = stats.norm.cdf(2 / np.sqrt(2))
    # RMIA on the same: it has no variance to estimate, and the population none of the shift.
    population = special.expit(rng.normal(0, 5, size=1000) + rng.normal(size=(models, 1000)))
    relative = membership.ranks(special.expit(values), population)
    assert membership.area(relative[members], relative[~members]) > 0.7 * at_least
    at_1_percent = stats.norm.sf(stats.norm.isf(0.01) - 2.0)
    assert membership.rate_at(inside, outside, 0.01) == pytest.approx(at_1_percent, abs=0.04)


def test_area_and_rates_against_a_peer_and_by_hand() -> None:
    rng = np.random.default_rng(3)
    inside, outside = rng.integers(0, 9, 300).astype(float) + 1, rng.integers(0, 9, 400) * 1.0
    labels = np.repeat([1, 0], [300, 400])
    expected = roc_auc_score(labels, np.concatenate([inside, outside]))
    assert membership.area(inside, outside) == pytest.approx(expected)
    members, others = np.array([5.0, 3.0, 1.0, 0.0]), np.array([4.0, 2.0, 0.5, 0.1])
    assert membership.rate_at(members, others, 0.0) == 0.25  # only 5 lies above all others
    assert membership.rate_at(members, others, 0.25) == 0.5  # one false positive is allowed


def test_ranks_by_hand() -> None:
    """Two pairs of models: those of the other pair are the reference."""
    values = np.array([[0.8, 0.2], [0.5, 0.5], [0.4, 0.1], [0.4, 0.3]])
    population = np.array([[0.5, 0.9], [0.1, 0.1], [0.5, 0.5], [0.5, 0.5]])
    found = membership.ranks(values, population)
    # Model 0: 0.8/0.4 = 2 and 0.2/0.2 = 1 among 0.5/0.5 = 1 and 0.9/0.5 = 1.8.
    assert found[0].tolist() == [1.0, 0.5]
    # Model 2: 0.4/0.65 and 0.1/0.35 among 0.5/0.3 and 0.5/0.5.
    assert found[2].tolist() == [0.0, 0.0]


def test_intervals_hold_the_estimate() -> None:
    rng = np.random.default_rng(4)
    members = membership.halves(500, 12, rng)
    values = rng.normal(size=members.shape) + members
    found = membership.rated(membership.likelihood_ratios(values, members), members, 0.95, rng)
    for name in ("auc", *membership.RATES):
        low, high = found[f"{name}_interval"]
        assert 0.0 <= low <= found[name] <= high <= 1.0


def test_an_overfitted_model_is_seen_through(images: data.Dataset) -> None:
    """Plain training on labels at random: the model can only know members by heart."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 4, size=len(images.train))
    inputs = rng.normal(size=images.train.inputs.shape).astype(np.float32)
    noisy = data.Dataset("noise", data.Split(inputs, labels), images.test, None, images.class_names)
    settings = Settings(
        method="plain", model="logistic", batch_size=20, steps=60, lr=1.0, optimizer="sgd"
    )
    found = membership.audit(settings, noisy, rng, models=8, pool=None)
    assert found["auc_interval"][0] > 0.6
    assert found["rmia"]["auc_interval"][0] > 0.6
    assert len(found["roc"]) > 10


def test_a_number_of_models_that_cannot_be_paired_is_refused(images: data.Dataset) -> None:
    for models in (2, 5):
        with pytest.raises(ValueError, match="even --trials of 4 or more"):
            membership.audit(Settings(), images, np.random.default_rng(6), models=models)
