"""One training gives Algorithm 1's canaries away, and those of certified not."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from simplexdp import data
from simplexdp.audit import bounds, crafting, one_run, schedules, shadow, tradeoff
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


def test_scores_of_both_views_are_those_of_definition() -> None:
    """Weights moved by known shares of five gradients that overlap; losses by hand."""
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    initial = torch.nn.Linear(12, 3)
    firsts, seconds = rng.normal(1.0, 0.4, (2, 5, 12)).astype(np.float32)
    for out in (False, True):
        pairs = tuple(
            crafting.Pair(k, k % 3, firsts[k], None if out else seconds[k], (0, 1))
            for k in range(5)
        )
        final, shares = copy.deepcopy(initial), np.array([1.0, -1.0, 1.0, 0.0, 2.0])
        for pair, share in zip(pairs, shares, strict=True):
            moved = shadow.direction(initial, pair, shadow.first_weights)
            final.weight.data -= float(share) * moved.reshape(3, 12).float()
        result = shadow.Shadow(initial, final, None)  # type: ignore[arg-type]
        assert one_run.white_box(result, pairs) == pytest.approx(shares, abs=0.25)
        labels = torch.tensor([0, 1, 2, 0, 1])

        def loss(model: Any, inputs: Any, labels: Any = labels) -> Any:
            with torch.no_grad():
                found = functional.cross_entropy(
                    model(torch.tensor(inputs)), labels, reduction="none"
                )
            return found.numpy()

        other = loss(initial, firsts) if out else loss(final, seconds)
        wanted = other - loss(final, firsts)
        assert one_run.black_box(result, pairs) == pytest.approx(wanted, abs=1e-5)


def test_each_view_and_bound_gets_its_share_of_the_error(
    images: data.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    fair: list[float] = []
    for module in (bounds, tradeoff):
        real = module.one_run

        def heard(values: Any, coins: Any, claimed: Any, level: float, real: Any = real) -> Any:
            asked.append(level)
            fair.append(float(np.mean(coins)))
            return real(values, coins, claimed, level)

        monkeypatch.setattr(module, "one_run", heard)
    settings = Settings(method="certified", steps=4, options={"features": "columns"})
    result = one_run.audit(settings, images, np.random.default_rng(1), canaries=64)
    assert asked == [pytest.approx(0.975)] * 4
    assert fair == [pytest.approx(0.5, abs=0.12)] * 4
    views = {name: view["epsilon_lower"] for name, view in result["views"].items()}
    assert result["epsilon_lower"] == views[result["view"]] == max(views.values())
    assert result["by_curve"]["epsilon_lower"] >= 0.0
