"""Parameter counts by hand from each architecture's definition, and output shapes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from simplexdp import models
from simplexdp.models.fast import whitening

GREY, COLOUR = (1, 28, 28), (3, 32, 32)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def conv(inputs: int, outputs: int, kernel: int, groups: int = 1) -> int:
    """Weights of a convolution without bias."""
    return inputs // groups * outputs * kernel * kernel


def normed(inputs: int, outputs: int, kernel: int) -> int:
    """A convolution without bias and its affine normalisation."""
    return conv(inputs, outputs, kernel) + 2 * outputs


def dense(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def resnet9_count(channels: int) -> int:
    return (
        normed(channels, 64, 3)
        + normed(64, 128, 3)
        + 2 * normed(128, 128, 3)
        + normed(128, 256, 3)
        + normed(256, 512, 3)
        + 2 * normed(512, 512, 3)
        + dense(512, 10)
    )


@pytest.mark.parametrize(
    ("name", "shape", "wanted"),
    [
        ("logistic", GREY, 7850),
        ("mlp", GREY, dense(784, 1000) + dense(1000, 10)),
        ("cnn", GREY, normed(1, 32, 3) + normed(32, 64, 3) + dense(1024, 10)),
        ("cnn", (1, 8, 8), normed(1, 32, 3) + normed(32, 64, 3) + dense(1024, 10)),
        ("resnet9", COLOUR, resnet9_count(3)),
        ("resnet9", GREY, resnet9_count(1)),
        # The count everyone reports for the CIFAR form of ResNet-18.
        ("resnet18", COLOUR, 11_173_962),
    ],
)
def test_parameter_counts_by_hand(name: str, shape: tuple[int, ...], wanted: int) -> None:
    assert count(models.build(name, shape, 10)) == wanted


@pytest.mark.parametrize(
    ("shape", "norm"), [(GREY, "group"), (GREY, "batch"), (GREY, "none"), (COLOUR, "group")]
)
@pytest.mark.parametrize("name", [name for name in models.names() if name != "wrn-40-4"])
def test_each_gives_finite_logits_and_gradients(
    name: str, shape: tuple[int, ...], norm: str
) -> None:
    torch.manual_seed(0)
    model = models.build(name, shape, 7, norm)
    logits = model(torch.randn((2, *shape)))
    assert logits.shape == (2, 7)
    logits.square().mean().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)
    assert models.has_batch_norm(model) == any(
        isinstance(module, nn.BatchNorm2d) for module in model.modules()
    )


@pytest.mark.parametrize("name", [name for name in models.names() if name != "wrn-40-4"])
def test_a_network_without_batch_norm_treats_each_record_alone(name: str) -> None:
    torch.manual_seed(1)
    model = models.build(name, GREY, 10, "group")
    batch = torch.randn((3, *GREY))
    with torch.no_grad():
        together = model(batch)
        alone = torch.cat([model(batch[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(together, alone, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("channels", "groups"), [(8, 2), (16, 4), (12, 3), (64, 16), (512, 16), (3, 1), (28, 7)]
)
def test_groups_hold_at_least_four_channels(channels: int, groups: int) -> None:
    from simplexdp.models.layers import groups_for

    assert groups_for(channels) == groups


@pytest.mark.parametrize("name", [name for name in models.names() if name != "wrn-40-4"])
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_opacus_gradients_are_those_of_each_record(name: str) -> None:
    """Per-example gradients of the private library against one backward pass a record.

    They are right for contiguous weights and inputs; on the channels-last layout Opacus reads the
    padded activations by the wrong strides.
    """
    from opacus import GradSampleModule

    torch.manual_seed(5)
    shape = (1, 16, 16)
    model = models.build(name, shape, 3, "group")
    batch, labels = torch.randn((2, *shape)), torch.tensor([0, 2])
    alone = []
    for i in range(2):
        model.zero_grad()
        nn.functional.cross_entropy(model(batch[i : i + 1]), labels[i : i + 1]).backward()
        alone.append([parameter.grad.clone() for parameter in model.parameters()])
    model.zero_grad()
    wrapped = GradSampleModule(model, loss_reduction="sum")
    nn.functional.cross_entropy(wrapped(batch), labels, reduction="sum").backward()
    for k, parameter in enumerate(model.parameters()):
        for i in range(2):
            torch.testing.assert_close(parameter.grad_sample[i], alone[i][k], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("fast-mirrored", lambda x: x.flip(3)),
        ("fast-turned", lambda x: x.rot90(1, (2, 3))),
        ("fast-turned", lambda x: x.flip(2)),
    ],
)
def test_views_make_a_network_the_same_for_an_image_and_its_likes(
    name: str, same: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    torch.manual_seed(0)
    model, x = models.build(name, (3, 16, 16), 4), torch.randn(5, 3, 16, 16)
    assert not torch.allclose(model(x), model(same(x)), atol=1e-3)  # in training it is one view
    model.eval()
    assert torch.allclose(model(x), model(same(x)), atol=1e-5)


def test_the_wide_network_looks_at_three_places() -> None:
    torch.manual_seed(0)
    model, x = models.build("fast-wide", (3, 16, 16), 4).eval(), torch.randn(2, 3, 16, 16)
    edge = torch.cat([x[..., :1], x, x[..., -1:]], 3)
    edge = torch.cat([edge[:, :, :1], edge, edge[:, :, -1:]], 2)
    places = [edge[:, :, k : k + 16, k : k + 16] for k in range(3)]
    seen = [model.network(v).log_softmax(1) for p in places for v in (p, p.flip(3))]
    assert torch.allclose(model(x), torch.stack(seen).mean(0), atol=1e-5)


def test_whitening_filters_whiten_what_correlates_as_they_suppose() -> None:
    filters = whitening(3, 4).double().flatten(1)
    pixels = [(c, y, x) for c in range(3) for y in range(4) for x in range(4)]
    supposed = torch.tensor(
        [
            [
                math.exp(-abs(a - d) / 20 - math.hypot(b - e, 1.05 * (c - f)) / 8)
                for d, e, f in pixels
            ]
            for a, b, c in pixels
        ],
        dtype=torch.float64,
    )
    response = filters @ supposed @ filters.T
    variances = response.diagonal()
    assert float((response - variances.diag()).abs().max()) < 1e-4
    assert float(variances.max()) < 1.0 + 1e-4
    assert float(variances[0]) > 0.999
    assert float(variances.min()) > 0.2  # damped by 0.002, as the smallest eigenvalues are noise
    sizes = filters.square().sum(1).sort().values
    assert float((sizes.diff() / sizes[1:]).min()) > 1e-6  # no two alike, whose order would vary
