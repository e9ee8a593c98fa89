from __future__ import annotations

import pytest
import torch
from torch import nn

from simplexdp import models

SHAPE = (1, 8, 8)


class Functional(nn.Module):
    """A user's network that normalises over the batch without a BatchNorm module."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        return self.dense(x - x.mean(dim=0, keepdim=True))


class Pair(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x


def dense(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, outputs))


def test_a_model_that_fits_passes() -> None:
    models.check(dense(3), SHAPE, 3)


def test_the_wrong_number_of_classes_is_refused_with_both_shapes() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 5\).*wanted \(2, 3\)") as error:
        models.check(dense(5), SHAPE, 3)
    assert "\n" not in str(error.value)


def test_logits_of_another_rank_are_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 1, 8, 3\)"):
        models.check(nn.Linear(8, 3), SHAPE, 3)


def test_an_input_the_model_cannot_take_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"cannot take inputs of shape \(1, 9, 9\)") as error:
        models.check(dense(3), (1, 9, 9), 3)
    assert "\n" not in str(error.value)


def test_nan_is_refused() -> None:
    model = dense(3)
    with torch.no_grad():
        model[1].bias[0] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        models.check(model, SHAPE, 3)


def test_an_output_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(ValueError, match="gives a tuple"):
        models.check(Pair(), SHAPE, 3)


def test_modes_buffers_and_random_state_are_restored() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(), nn.Flatten(), nn.Linear(64, 3))
    model(torch.randn((4, *SHAPE)) + 2)
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    models.check(model, SHAPE, 3)
    assert models.couples_records(model, SHAPE)
    assert models.writes_buffers(model, SHAPE)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_they_are_restored_after_a_refusal_too() -> None:
    model = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 4)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match="wanted"):
        models.check(model, SHAPE, 3)
    assert not any(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("layer", "found"),
    [
        (nn.BatchNorm1d(3), True),
        (nn.BatchNorm2d(3), True),
        (nn.SyncBatchNorm(3), True),
        (nn.GroupNorm(1, 3), False),
        (nn.InstanceNorm2d(3), False),
        (nn.LayerNorm(3), False),
    ],
)
def test_batch_norm_is_found_at_any_depth(layer: nn.Module, found: bool) -> None:
    assert models.has_batch_norm(nn.Sequential(nn.Sequential(layer))) is found


def test_a_coupling_without_a_batch_norm_module_is_found() -> None:
    assert not models.has_batch_norm(Functional())
    assert models.couples_records(Functional(), SHAPE)


@pytest.mark.parametrize("tracked", [True, False])
def test_running_statistics_are_found(tracked: bool) -> None:
    norm = nn.InstanceNorm2d(SHAPE[0], track_running_stats=tracked)
    assert models.writes_buffers(nn.Sequential(norm, nn.Flatten()), SHAPE) is tracked


def test_dropout_alone_is_no_coupling() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 3))
    assert not models.couples_records(model, SHAPE)


class FrozenMean(nn.Module):
    """Keeps the mean of its inputs in a parameter that is not trained, in one of two modes."""

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.mode = mode
        self.mean = nn.Parameter(torch.zeros(64), requires_grad=False)
        self.dense = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training is self.mode:
            self.mean.data.copy_(x.flatten(1).mean(0))
        out: torch.Tensor = self.dense(x.flatten(1))
        return out


@pytest.mark.parametrize("mode", [True, False])
def test_statistics_in_a_frozen_parameter_are_found_and_put_back(mode: bool) -> None:
    model = FrozenMean(mode)
    assert not list(model.buffers())
    models.check(model, SHAPE, 3)
    assert models.writes_buffers(model, SHAPE)
    assert not models.couples_records(model, SHAPE)
    assert not bool(model.mean.any())


class Hidden(nn.Module):
    """A buffer that is not saved with the model."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(64), persistent=False)
        self.dense = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += x.detach().flatten(1).sum(0)
        out: torch.Tensor = self.dense(x.flatten(1))
        return out


def test_a_buffer_that_is_not_saved_counts_too() -> None:
    assert models.writes_buffers(Hidden(), SHAPE)
    assert not models.writes_buffers(dense(3), SHAPE)


class ZeroBranch(nn.Module):
    """Normalises by the batch behind weights that begin at zero, as residual branches do."""

    def __init__(self) -> None:
        super().__init__()
        self.straight, self.branch = nn.Linear(64, 3), nn.Linear(64, 3)
        nn.init.zeros_(self.branch.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(1)
        mixed = nn.functional.batch_norm(flat, None, None, training=True)
        out: torch.Tensor = self.straight(flat) + self.branch(mixed)
        return out


def test_a_coupling_behind_weights_of_zero_is_found_and_the_weights_stay() -> None:
    model = ZeroBranch()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert models.couples_records(model, SHAPE)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("name", ["mlp", "cnn", "resnet9"])
def test_our_own_networks_are_not_taken_for_coupled(name: str) -> None:
    model = models.build(name, (1, 28, 28), 10, "group")
    assert not models.couples_records(model, (1, 28, 28))
    assert not models.writes_buffers(model, (1, 28, 28))
