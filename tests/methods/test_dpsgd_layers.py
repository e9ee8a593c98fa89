"""Gradients by record against torch.func, one layer at a time and in networks."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from simplexdp.methods.dpsgd import layers
from simplexdp.methods.dpsgd.probe import check_by_record, hooked
from simplexdp.methods.dpsgd.step import _add_clipped, gradients, trainable

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")

CLASSES = 3


class Twice(nn.Module):
    """Uses one dense layer twice, and one convolution's weight in two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(2, 2, 3, padding=1) for _ in range(2))
        self.second.weight = self.first.weight
        self.dense, self.head = nn.Linear(32, 32), nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.second(self.first(x).tanh()).flatten(1)
        out: Tensor = self.head(self.dense(self.dense(rows).tanh()))
        return out


class Scaled(nn.Module):
    """Has a parameter of its own, which is Opacus' to differentiate."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(32))
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x.flatten(1) * self.scale)
        return out


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.GroupNorm(2, 6), nn.ReLU(inplace=True),
        nn.Conv2d(6, 40, 3, stride=2, dilation=2, padding=2), nn.GELU(),
        nn.Conv2d(40, 8, 1), nn.GroupNorm(1, 8), nn.Flatten(), nn.Linear(32, CLASSES),
    )  # fmt: skip


NETWORKS = {
    "dense": lambda: nn.Sequential(nn.Flatten(), nn.Linear(32, 50), nn.ReLU(), nn.Linear(50, 3)),
    "convolutions": convolutions,
    "positions": lambda: nn.Sequential(
        nn.Flatten(2), nn.Linear(16, 24), nn.LayerNorm(24), nn.Flatten(), nn.Linear(48, CLASSES)
    ),
    "strange": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, groups=2), nn.Conv2d(4, 4, 3, padding="same"),
        nn.Flatten(), nn.Linear(16, CLASSES),
    ),
    "twice": Twice,
    "scaled": lambda: nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), Scaled()),
}  # fmt: skip


@contextmanager
def with_hooks(model: nn.Module) -> Iterator[nn.Module]:
    hooks = hooked(model)
    try:
        yield model
    finally:
        hooks.remove_hooks()


def batch(count: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    inputs = torch.randn(count, 2, 4, 4, generator=generator)
    return inputs, torch.randint(0, CLASSES, (count,), generator=generator)


def by_vmap(model: nn.Module, inputs: Tensor, labels: Tensor) -> list[Tensor]:
    """The gradients of the records' losses by torch.func."""
    values = {name: p.detach() for name, p in model.named_parameters()}

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, values, (x[None],)), y[None])

    found = vmap(grad(loss), (None, 0, 0))(values, inputs, labels)
    return [found[name] for name, _ in model.named_parameters()]


def check(found: layers.ByRecord, true: Tensor) -> None:
    """The gradients of a parameter by record are these."""
    torch.testing.assert_close(found.gradients().reshape(true.shape), true, atol=1e-5, rtol=1e-4)


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    return NETWORKS[name]()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("count", [1, 5])
@pytest.mark.parametrize("ghosts", [True, False])
def test_gradients_norms_and_sums(
    name: str, count: int, ghosts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By either way of computing them, whatever the layers' shapes would choose."""
    monkeypatch.setattr(layers, "TERMS_A_NUMBER", 10**9 if ghosts else 0)
    model, (inputs, labels) = network(name), batch(count)
    wanted = by_vmap(model, inputs, labels)
    with with_hooks(model):
        found = gradients(model, inputs, labels, count)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in wanted]).norm(dim=0)
    clip = float(norms.median())
    totals = [torch.zeros_like(p) for p in trainable(model)]
    _add_clipped(totals, found, clip)
    factors = (clip / norms).clamp_max(1.0)
    for p, one, true, total in zip(trainable(model), found, wanted, totals, strict=True):
        assert isinstance(one, layers.Explicit) or ghosts
        check(one, true)
        squares = true.flatten(1).square().sum(1)
        assert bool((one.squares() >= squares * (1 - 1e-5)).all())
        torch.testing.assert_close(one.squares(), squares, atol=1e-6, rtol=2e-3)
        mean = torch.tensordot(factors, true, dims=1)
        torch.testing.assert_close(total, mean, atol=1e-5, rtol=2e-3)
        assert p.grad is None
        assert not total.requires_grad
        assert not one.gradients().requires_grad


def test_a_network_is_as_it_was_when_its_hooks_are_gone() -> None:
    model, (inputs, labels) = network("convolutions"), batch(4)
    plain = copy.deepcopy(model)
    with with_hooks(model):
        gradients(model, inputs, labels, 4)
        torch.testing.assert_close(model(inputs), plain(inputs))
    for one in (model, plain):
        functional.cross_entropy(one(inputs), labels).backward()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)
    assert all("forward" not in vars(module) for module in model.modules())


def test_channels_last_is_the_same() -> None:
    model, (inputs, labels) = network("convolutions"), batch(4)
    wanted = by_vmap(model, inputs, labels)
    last = model.to(memory_format=torch.channels_last)
    with with_hooks(last):
        found = gradients(last, inputs.to(memory_format=torch.channels_last), labels, 4)
    for one, true in zip(found, wanted, strict=True):
        check(one, true)


def test_dropout_is_that_of_the_pass_forward() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(32, 20), nn.Dropout(0.5), nn.Linear(20, CLASSES))
    inputs, labels = batch(4)
    torch.manual_seed(5)
    with with_hooks(model):
        found = gradients(model, inputs, labels, 4)
    torch.manual_seed(5)
    losses = functional.cross_entropy(model(inputs), labels, reduction="none")
    for record, loss in enumerate(losses):
        wanted = torch.autograd.grad(loss, list(model.parameters()), retain_graph=True)
        for p, one, true in zip(model.parameters(), found, wanted, strict=True):
            torch.testing.assert_close(one.gradients().reshape(-1, *p.shape)[record], true)


@pytest.mark.parametrize("ghosts", [True, False])
@pytest.mark.parametrize("name", ["dense", "convolutions", "twice"])
def test_copies_are_averaged(name: str, ghosts: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "TERMS_A_NUMBER", 10**9 if ghosts else 0)
    model, (inputs, labels) = network(name), batch(6)
    labels = labels[::2].repeat_interleave(2)
    wanted = [
        true.reshape(3, 2, *true.shape[1:]).mean(1) for true in by_vmap(model, inputs, labels)
    ]
    with with_hooks(model):
        found = gradients(model, inputs, labels, 3, copies=2)
    totals = [torch.zeros_like(p) for p in trainable(model)]
    _add_clipped(totals, found, 1e6)
    for one, true, total in zip(found, wanted, totals, strict=True):
        squares = true.flatten(1).square().sum(1)
        torch.testing.assert_close(one.squares(), squares, atol=1e-6, rtol=2e-3)
        torch.testing.assert_close(total, true.sum(0), atol=1e-5, rtol=1e-4)


def test_a_frozen_weight_beside_a_trained_bias() -> None:
    model, (inputs, labels) = network("convolutions"), batch(4)
    for p in list(model.parameters())[::2]:
        p.requires_grad_(False)
    wanted = [
        true
        for p, true in zip(model.parameters(), by_vmap(model, inputs, labels), strict=True)
        if p.requires_grad
    ]
    with with_hooks(model):
        found = gradients(model, inputs, labels, 4)
    for one, true in zip(found, wanted, strict=True):
        check(one, true)


def test_padding_that_opacus_does_not_know_is_refused() -> None:
    """It takes every padding for zeros."""
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(64, CLASSES)
    )
    with pytest.raises(ValueError, match="not those of single records"):
        check_by_record(model, (2, 4, 4), CLASSES)


class Around(nn.Module):
    """Uses a layer's weight outside of the layer, where nothing sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(1)
        out: Tensor = self.head(rows) + functional.linear(rows, self.head.weight)
        return out


def test_a_weight_used_outside_of_its_layer_is_refused() -> None:
    model, (inputs, labels) = Around(), batch(4)
    with with_hooks(model), pytest.raises(ValueError, match="outside of the layer"):
        gradients(model, inputs, labels, 4)


@pytest.mark.parametrize("ghosts", [True, False])
def test_a_record_without_finite_gradients_contributes_nothing(
    ghosts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "TERMS_A_NUMBER", 10**9 if ghosts else 0)
    model, (inputs, labels) = network("convolutions"), batch(6)
    inputs[2] = torch.inf
    kept = torch.tensor([0, 1, 3, 4, 5])
    sums = []
    with with_hooks(model):
        for at in (torch.arange(6), kept):
            totals = [torch.zeros_like(p) for p in trainable(model)]
            _add_clipped(totals, gradients(model, inputs[at], labels[at], len(at)), 0.3)
            sums.append(totals)
    for a, b in zip(*sums, strict=True):
        assert bool(torch.isfinite(a).all())
        torch.testing.assert_close(a, b)


def test_a_norm_whose_positions_cancel_is_never_too_small() -> None:
    """Σ_s g_s a_sᵀ is a thousandth of its parts; without what is added, norms are short."""
    generator = torch.Generator().manual_seed(0)
    seen, sent = torch.randn(400, 60, 16, generator=generator), torch.randn(400, 30, 8)
    other = seen[:, :, :8] + 1e-4 * torch.randn(400, 60, 8, generator=generator)
    inputs = torch.cat([seen[:, :, :8], other], 2)
    outputs = torch.cat([sent, -sent], 2)
    found = layers.Ghost(inputs, outputs, (inputs, outputs), lambda x, g: g)
    true = torch.bmm(outputs.double(), inputs.double().mT).flatten(1).square().sum(1)
    plain = (torch.bmm(inputs.mT, inputs) * torch.bmm(outputs.mT, outputs)).sum((1, 2))
    assert bool((plain < true * 0.999).any())
    assert bool((found.squares() >= true).all())


def test_a_layer_that_sees_other_rows_than_the_records_is_refused() -> None:
    """Rows in the first dimension that are no records would be clipped one by one."""
    model = nn.Sequential(nn.Flatten(0, 1), nn.Flatten(), nn.Linear(16, CLASSES))
    inputs, labels = batch(4)
    with with_hooks(model), pytest.raises(ValueError, match="8 rows where there are 4 records"):
        gradients(model, inputs, labels.repeat_interleave(2), 4)


def test_norms_of_mixed_precision_are_of_single_precision() -> None:
    """The gradients are those that single precision makes of the rounded inputs and outputs."""
    model, (inputs, labels) = network("dense"), batch(5)
    with with_hooks(model), torch.autocast("cpu", torch.bfloat16):
        found = gradients(model, inputs, labels, 5)
        squares = [one.squares() for one in found]
    assert {one.gradients().dtype for one in found} == {torch.float32}
    for one, square in zip(found, squares, strict=True):
        true = one.gradients().double().flatten(1).square().sum(1)
        torch.testing.assert_close(square.double(), true, rtol=1e-5, atol=1e-9)
