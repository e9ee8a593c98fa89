"""Schedules, averages, weight decay and Muon, for every method that trains a network."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from simplexdp import data, methods, optimizers, training
from simplexdp.evaluation import recalls
from simplexdp.methods import _network
from simplexdp.settings import Settings

DIGITS = Settings(data="digits", batch_size=8, steps=12, epsilon=8.0, seed=3, model="fast")
FALLING = {"schedule": "triangular", "effective_lr": 0.1, "weight_decay": 5e-4}
NETWORKS: dict[str, dict[str, Any]] = {
    "dirichlet": {"link": "log"},
    "plain": {},
    "dpsgd": {},
    "gaussian-features": {"form": "trained"},
}


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([value.detach().double().flatten() for value in model.state_dict().values()])


def descent(steps: int = 10, **given: Any) -> tuple[_network.Descent, nn.Module]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(16, 2))
    settings = Settings(optimizer=given.pop("optimizer", "sgd"), lr=given.pop("lr", None))
    kappa = given.pop("attenuation", 1.0)
    options = _network.NetworkOptions.of("a method", given)
    return _network.Descent(settings, options, model, steps, 0.5, kappa), model


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, [0.5] * 10),
        ({"warmup": 2}, [0.25, *[0.5] * 9]),
        # by hand: a fifth of ten steps up, then down a line that would be 0 at the next step
        ({"schedule": "triangular"}, [0.25, 0.5, *[0.5 * k / 9 for k in range(8, 0, -1)]]),
        (
            {"schedule": "cosine", "warmup": 0},
            [0.25 * (1 + math.cos(math.pi * k / 11)) for k in range(1, 11)],
        ),
    ],
)
def test_the_rate_of_every_step_by_hand(given: dict[str, Any], wanted: list[float]) -> None:
    one, _ = descent(**given)
    seen = []
    for step in range(10):
        one.set_rate(step)
        seen.append(one.optimizer.param_groups[0]["lr"])
    assert seen == pytest.approx(wanted)


def test_an_effective_rate_is_divided_by_what_is_left_of_the_gradient() -> None:
    one, _ = descent(effective_lr=0.2, attenuation=0.01)
    assert one.lr == pytest.approx(20.0)


def test_decay_is_as_of_cross_entropy_and_of_matrices_alone() -> None:
    """A step of gradient 0: weights shrink by the effective rate times the decay, biases stay."""
    one, model = descent(effective_lr=0.2, weight_decay=0.05, attenuation=0.01)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    one.optimizer.step()
    for name, p in model.named_parameters():
        kept = 1.0 if name.endswith("bias") else 1.0 - 0.2 * 0.05
        torch.testing.assert_close(p.detach(), before[name] * kept)


def test_nesterov_is_torchs_own() -> None:
    one, model = descent(optimizer="nesterov", lr=0.1)
    other, again = descent(optimizer="sgd", lr=0.1)
    peer = torch.optim.SGD(again.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for optimizer, net in ((one.optimizer, model), (peer, again)):
        for _ in range(3):
            optimizer.zero_grad()
            net(torch.ones(2, 1, 4, 4)).square().sum().backward()
            optimizer.step()
    assert torch.equal(weights(model), weights(again))
    assert other.lr == 0.1


@pytest.mark.parametrize("shape", [(6, 40), (40, 6)])
def test_muon_makes_a_matrix_about_orthogonal(shape: tuple[int, int]) -> None:
    torch.manual_seed(1)
    matrix = torch.randn(shape) @ torch.diag(torch.logspace(0, -1, shape[1]))
    near = torch.linalg.svdvals(optimizers.orthogonalised(matrix))
    assert 0.6 < float(near.min()) <= float(near.max()) < 1.3
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)
    made = u.T @ optimizers.orthogonalised(matrix) @ v.T  # its singular vectors are the matrix's
    torch.testing.assert_close(made, torch.diag(torch.diag(made)), atol=1e-4, rtol=0)


def test_muon_is_torchs_own_on_the_matrix_of_filters() -> None:
    """Beside torch.optim.Muon on a matrix, which computes in bfloat16; and scale drops out."""
    torch.manual_seed(2)
    gradients = [torch.randn(4, 3, 3, 3) for _ in range(3)]
    start = torch.randn(4, 3, 3, 3)
    moved = []
    for scale in (1.0, 1e-3):
        p = nn.Parameter(start.clone())
        ours = optimizers.Muon([p], 1.0, 0.0, 0.1)
        for gradient in gradients:
            p.grad = scale * gradient
            ours.step()
        moved.append(p.detach() - start)
    torch.testing.assert_close(moved[0], moved[1], atol=1e-4, rtol=0)
    q = nn.Parameter(start.flatten(1).clone())
    peer = torch.optim.Muon([q], lr=0.1, weight_decay=0.0, momentum=0.9)
    for gradient in gradients:
        q.grad = gradient.flatten(1).clone()
        peer.step()
    theirs = (q.detach() - start.flatten(1)).view_as(start)
    assert float(nn.functional.cosine_similarity(moved[0].ravel(), theirs.ravel(), 0)) > 0.99


def test_the_average_of_constant_weights_is_those_weights() -> None:
    one, _ = descent(steps=2000, weight_average=0.99)
    assert one.averaged is not None
    with torch.no_grad():
        for p in one.averaged.parameters():
            p.zero_()
    for step in range(2000):
        one.average(step)
    torch.testing.assert_close(weights(one.averaged), weights(one.model), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", NETWORKS)
@pytest.mark.parametrize("optimizer", ["muon", "nesterov"])
def test_resume_gives_the_same_weights(tmp_path, monkeypatch, killed, method, optimizer) -> None:
    """Of every method, in the middle of a falling rate, with an average that is released."""
    options = {**FALLING, **NETWORKS[method], "weight_average": 0.8}
    settings = replace(DIGITS, method=method, optimizer=optimizer, options=options)
    digits = data.load("digits")
    whole, _ = methods.run(settings, tmp_path / "whole", dataset=digits)
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    with killed(training, "_save", lambda job, run, step, _: step == 7, after=True):
        methods.run(settings, tmp_path / "cut", dataset=digits)
    cut, _ = methods.run(settings, tmp_path / "cut", resume=True, dataset=digits)
    assert torch.equal(weights(whole.model), weights(cut.model))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"schedule": "triangular", "warmup": 12}, "leaves none of 12"),
        ({"schedule": "linear"}, "use constant or triangular or cosine"),
        ({"weight_average": 0.99}, "there are 12"),
        ({"weight_average": 1.0}, r"must lie in \[0, 1\)"),
        ({"warmup": -1}, "0 for none"),
        ({"weight_decay": -0.1}, "give 0 or more"),
        ({"effective_lr": 0.0}, "must be positive"),
        ({"muon_lr": -1.0}, "must be positive"),
    ],
)
@pytest.mark.parametrize("method", ["dirichlet", "plain"])
def test_bad_schedules_are_refused_before_anything_is_spent(method, given, says) -> None:
    with pytest.raises(ValueError, match=says):
        methods.prepare(replace(DIGITS, method=method, options=given), data.load("digits"))


def test_two_rates_are_refused() -> None:
    settings = replace(DIGITS, method="plain", lr=0.1, options={"effective_lr": 0.1})
    with pytest.raises(ValueError, match="give one of them"):
        methods.prepare(settings, data.load("digits"))


def test_the_worst_recall_by_hand() -> None:
    digits = data.load("digits")
    outcome = methods.train(replace(DIGITS, method="plain"), digits)
    found = outcome.model(data.to_model_input(torch.from_numpy(digits.test.inputs)))
    right = (found.argmax(1).numpy() == digits.test.labels).astype(float)
    each = [right[digits.test.labels == k].mean() for k in range(10)]
    assert outcome.worst_recall == pytest.approx(min(each))
    assert outcome.recalls == pytest.approx(each)
    assert recalls(digits.test.labels, digits.test.labels, 11) == (*[1.0] * 10, None)
