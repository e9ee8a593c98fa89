"""One training gives Algorithm 1's canaries away, and those of certified not."""

from __future__ import annotations

import numpy as np
import pytest

from simplexdp import data
from simplexdp.audit import one_run, schedules
from simplexdp.settings import Settings


def test_algorithm_1_is_above_its_figure_in_one_training(images: data.Dataset) -> None:
    settings = Settings(method="dirichlet", model="logistic", batch_size=10, steps=60)
    result = one_run.audit(settings, images, np.random.default_rng(0), canaries=64)
    assert result["trials"] == 64
    assert result["views"]["white box"]["epsilon_lower"] > 1.0
    assert result["epsilon_lower"] > result["claim"]["epsilon"]
    assert not result["covers_weights"]


def test_certified_stays_below_its_claim(images: data.Dataset) -> None:
    settings = Settings(method="certified", options={"features": "columns"})
    result = one_run.audit(settings, images, np.random.default_rng(1), canaries=64)
    assert result["claim"]["relation"] == "replace-input"
    assert 2.0 < result["claim"]["epsilon"] < 2.5
    assert result["epsilon_lower"] < result["claim"]["epsilon"]
    assert result["covers_weights"]


@pytest.mark.parametrize(
    ("method", "relation"), [("certified", "zero-out"), ("dpsgd", "add/remove")]
)
def test_canaries_in_or_out_stay_below_the_claim_itself(
    images: data.Dataset, method: str, relation: str
) -> None:
    settings = schedules.one_run(Settings(method=method), "in-out")
    rng = np.random.default_rng(3)
    result = one_run.audit(settings, images, rng, canaries=100, relation="in-out")
    assert result["claim"]["relation"] == f"in or out ({relation})"
    assert 0.9 < result["claim"]["epsilon"] <= 1.0
    assert result["epsilon_lower"] < result["claim"]["epsilon"]


def test_algorithm_1_gives_away_who_is_in(images: data.Dataset) -> None:
    settings = Settings(method="dirichlet", model="logistic", batch_size=10, steps=60)
    rng = np.random.default_rng(4)
    result = one_run.audit(settings, images, rng, canaries=64, relation="in-out")
    assert result["epsilon_lower"] > result["claim"]["epsilon"]


def test_too_few_canaries_are_refused_before_a_long_training(
    images: data.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(*given: object) -> None:
        raise AssertionError("trained first")

    monkeypatch.setattr(one_run.shadow, "train_on", trained)
    with pytest.raises(ValueError, match="5 canaries are too few"):
        one_run.audit(
            Settings(model="logistic", batch_size=10, steps=2),
            images,
            np.random.default_rng(2),
            canaries=5,
        )
