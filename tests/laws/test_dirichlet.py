"""The draws of Algorithm 1, at the loss as a plan gives it: their concentrations and their law.

The concentrations that the loss asks its generator for are read off exactly and must be those of
the plan's event. The law of the draws is tested by Kolmogorov's test on 100,000 or more, at a
level of one in a million and with fixed seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from simplexdp import Plan, mechanism

CLASSES, RECORDS = 4, 1000


class Spy:
    """A generator of numpy's that keeps the shapes of the Gamma variables it was asked for."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.asked: list[np.ndarray] = []

    def standard_gamma(self, shape: np.ndarray) -> Any:
        self.asked.append(np.array(shape))
        return self.rng.standard_gamma(shape)

    def standard_exponential(self, shape: tuple[int, ...]) -> Any:
        return self.rng.standard_exponential(shape)


def softmax() -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    logits = 2.0 * torch.randn(6, CLASSES, generator=torch.Generator().manual_seed(0))
    return logits, torch.arange(6) % CLASSES, torch.softmax(logits.double(), 1).numpy()


@pytest.mark.parametrize("estimator", mechanism.ESTIMATORS)
@pytest.mark.parametrize("alpha", [3.0, 0.4])
def test_a_plan_asks_for_the_concentrations_of_its_event(
    estimator: mechanism.Estimator, alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan(
        50.0, 1e-5, RECORDS, batch_size=6, steps=3, alpha=alpha, estimator=estimator, seed=1
    )
    event = plan.event().event.event
    assert event.r > 0.2 * alpha  # large enough for every share of it to show
    spy = Spy(np.random.default_rng(0))
    monkeypatch.setattr(plan, "noise", lambda records: spy)
    plan.begin_step(6)
    logits, labels, s = softmax()
    plan.loss()(logits, labels)
    (asked,) = spy.asked
    if estimator == "marginal":
        at_y = s[np.arange(6), labels]
        want = np.stack([event.r * at_y, event.r * (1 - at_y)]) + event.alpha * np.array(
            [[1.0], [CLASSES - 1.0]]
        )
    else:
        want = event.r * s + event.alpha
    # Below 1 a concentration is asked for one higher, and brought down by U^(1/a).
    np.testing.assert_allclose(asked, want + (want < 1), rtol=1e-6)


@pytest.mark.parametrize(("alpha", "r"), [(3.0, 2.7), (0.4, 0.36)])
@pytest.mark.parametrize("estimator", mechanism.ESTIMATORS)
def test_the_draws_are_beta_variables(
    alpha: float, r: float, estimator: mechanism.Estimator
) -> None:
    logits, labels, s = softmax()
    many = logits[:1].expand(200_000, CLASSES)
    losses = mechanism.perturbed_nll(
        many, labels[:1].expand(200_000), r, alpha, np.random.default_rng(2), estimator
    )
    at_y = s[0, int(labels[0])]
    law = stats.beta(r * at_y + alpha, r * (1 - at_y) + (CLASSES - 1) * alpha)
    assert stats.kstest(law.cdf(np.exp(-losses.numpy())), "uniform").pvalue > 1e-6


def test_a_published_draw_has_the_concentrations_of_its_parameters() -> None:
    spy = Spy(np.random.default_rng(0))
    s = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64)
    mechanism.draw(s, 2.7, 3.0, spy)  # type: ignore[arg-type]
    np.testing.assert_allclose(spy.asked[0], 2.7 * s.numpy() + 3.0, rtol=1e-12)


def test_the_gradient_of_draw_only_is_the_stated_function_of_the_draw() -> None:
    logits, labels, s = softmax()
    logits.requires_grad_()
    r, alpha = 2.7, 3.0
    rng, same = (np.random.default_rng(4) for _ in range(2))
    mechanism.perturbed_nll(logits, labels, r, alpha, rng, "draw-only").sum().backward()
    log_g = mechanism.log_gamma_draw(torch.from_numpy(r * s + alpha), same)
    p = torch.softmax(log_g, 1).numpy()
    want = (p * (r + CLASSES * alpha) - alpha) / r - np.eye(CLASSES)[labels]
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad.numpy(), want, atol=1e-5)


def test_a_plan_samples_at_the_rate_of_its_event_and_draws_anew_in_every_step() -> None:
    """800,000 chances to be in a batch, at 4.9 standard errors: one run in a million fails."""
    records, steps = 2000, 400
    plan = Plan(50.0, 1e-5, records, batch_size=200, steps=steps, seed=5)
    event = plan.event()
    rate = event.event.sampling_probability
    assert (rate, event.count) == (0.1, steps)
    logits, labels = torch.zeros(3, CLASSES), torch.zeros(3, dtype=torch.long)
    taken, losses = 0, set()
    for numbers, _ in plan.batches((np.arange(records), np.zeros(records, dtype=np.int64))):
        taken += len(numbers)
        losses.add(float(plan.loss()(logits, labels)))
    assert len(losses) == plan.steps_done == steps
    error = 4.9 * np.sqrt(rate * (1 - rate) / (records * steps))
    assert taken / (records * steps) == pytest.approx(rate, abs=error)


def test_every_coordinate_of_a_published_draw_is_a_beta_variable() -> None:
    s = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    draws = mechanism.draw(s.expand(100_000, 3), 2.7, 3.0, np.random.default_rng(0)).numpy()
    for k, share in enumerate(s.tolist()):
        law = stats.beta(2.7 * share + 3.0, 2.7 * (1 - share) + 6.0)
        assert stats.kstest(law.cdf(draws[:, k]), "uniform").pvalue > 1e-6
