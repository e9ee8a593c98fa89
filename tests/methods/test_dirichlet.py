"""Algorithm 1's own rules; what it shares with other methods is tested with those."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from simplexdp import data, methods, runs, schedule, training
from simplexdp.settings import Settings

SETTINGS = Settings(
    data="blobs", model="logistic", epsilon=8.0, batch_size=10, steps=30, seed=3, lr=0.5
)


@pytest.fixture
def lopsided(blobs: data.Dataset) -> data.Dataset:
    """A hundred records of two classes, ten of the third."""
    kept = np.flatnonzero((blobs.train.labels < 2) | (np.arange(300) < 30))
    return replace(blobs, train=data.Split(blobs.train.inputs[kept], blobs.train.labels[kept]))


@pytest.fixture
def rates(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The rate of every step that is taken, as the optimizer has it."""
    seen: list[float] = []
    step = torch.optim.SGD.step

    def watched(self: torch.optim.SGD, *given: Any, **named: Any) -> Any:
        seen.append(self.param_groups[0]["lr"])
        return step(self, *given, **named)

    monkeypatch.setattr(torch.optim.SGD, "step", watched)
    return seen


def train(settings: Settings, dataset: data.Dataset) -> methods.Outcome:
    return methods.train(settings, dataset)


def test_the_rule_warms_up_over_a_tenth_of_the_steps_where_one_class_is_rare(lopsided, rates):
    outcome = train(replace(SETTINGS, lr=None), lopsided)
    full = outcome.chosen["lr"]
    assert rates == pytest.approx([full / 3, 2 * full / 3, *[full] * 28])
    assert outcome.chosen["warmup"] == 3


def test_the_warmup_is_a_tenth_and_ten_times_is_lopsided():
    """By hand: a tenth of 95, rounded up; 90 records are ten times 9 and not ten times 10."""
    assert schedule.warmup_steps(np.array([90, 50, 9]), 95) == 10
    assert schedule.warmup_steps(np.array([90, 50, 9]), 100) == 10
    assert schedule.warmup_steps(np.array([90, 50, 10]), 100) == 0


def test_the_rate_is_constant_for_classes_of_like_size_or_where_it_is_given(lopsided, blobs, rates):
    assert "warmup" not in train(replace(SETTINGS, lr=None), blobs).chosen
    assert len(set(rates)) == 1
    rates.clear()
    assert "warmup" not in train(SETTINGS, lopsided).chosen
    assert set(rates) == {0.5}
    # the rate of adaptive methods is not the rule's γ_eff / κ
    assert "warmup" not in train(replace(SETTINGS, lr=None, optimizer="adam"), lopsided).chosen
    rates.clear()
    train(replace(SETTINGS, lr=None, options={"warmup": 0}), lopsided)
    assert len(set(rates)) == 1


def test_half_the_rate_is_half_the_step(lopsided):
    """The first of two warm-up steps, beside the same step without: the start is the same."""
    one = replace(SETTINGS, steps=1)
    models = [
        train(replace(one, lr=lr, options={"warmup": warmup}), lopsided).model
        for lr, warmup in ((1e-12, 0), (0.5, 0), (0.5, 2))
    ]
    start, whole, half = (torch.cat([p.detach().ravel() for p in m.parameters()]) for m in models)
    assert float((whole - start).abs().max()) > 1e-3
    torch.testing.assert_close(half - start, (whole - start) / 2, rtol=1e-4, atol=1e-6)


def test_a_run_that_was_killed_goes_on_with_the_rate_of_its_step(
    tmp_path, lopsided, rates, killed, monkeypatch
):
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", -1.0)
    settings = replace(SETTINGS, options={"warmup": 20})
    methods.run(settings, tmp_path / "whole", dataset=lopsided)
    whole = list(rates)
    assert whole[:20] == pytest.approx([0.5 * (step + 1) / 20 for step in range(20)])
    with killed(runs.RunFolder, "append_metrics", lambda _, record: record["step"] > 10):
        methods.run(settings, tmp_path / "cut", dataset=lopsided)
    rates.clear()
    methods.run(settings, tmp_path / "cut", dataset=lopsided, resume=True)
    assert 15 < len(rates) < 25
    assert rates == whole[-len(rates) :]


@pytest.mark.parametrize(("given", "said"), [(-1, "0 for none"), (0.5, "a whole number")])
def test_a_warmup_that_is_no_number_of_steps_is_refused(lopsided, given, said):
    with pytest.raises(ValueError, match=said):
        train(replace(SETTINGS, options={"warmup": given}), lopsided)
