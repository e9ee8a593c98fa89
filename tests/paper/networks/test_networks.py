"""The paper's networks: parameter counts by hand, and what they promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from simplexdp import data, methods, models
from simplexdp.paper import recipes
from simplexdp.paper.networks.wrn import StandardisedConv2d

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


def inception_module(
    inputs: int, one: int, to_three: int, three: int, to_five: int, five: int, pooled: int
) -> int:
    return (
        normed(inputs, one, 1)
        + normed(inputs, to_three, 1)
        + normed(to_three, three, 3)
        + normed(inputs, to_five, 1)
        + normed(to_five, five, 5)
        + normed(inputs, pooled, 1)
    )


def inception_count(channels: int) -> int:
    return (
        normed(channels, 16, 3)
        + normed(16, 32, 3)
        + inception_module(32, 24, 24, 32, 8, 16, 8)
        + inception_module(80, 40, 40, 64, 8, 24, 16)
        + inception_module(144, 48, 48, 64, 12, 32, 16)
        + dense(160, 10)
    )


def wrn_count(depth: int, width: int) -> int:
    """Each standardised convolution adds a gain and a bias, each norm a scale and a shift."""

    def standardised(inputs: int, outputs: int, kernel: int) -> int:
        return conv(inputs, outputs, kernel) + 2 * outputs

    total, inputs = standardised(3, 16, 3), 16
    for outputs in (16 * width, 32 * width, 64 * width):
        total += 2 * inputs + standardised(inputs, outputs, 1)
        for _ in range((depth - 4) // 6):
            total += 2 * inputs + standardised(inputs, outputs, 3)
            total += 2 * outputs + standardised(outputs, outputs, 3)
            inputs = outputs
    return total + 2 * inputs + dense(inputs, 10)


def dpnas_count(channels: int, widths: tuple[int, ...], convolutions: int, cells: int) -> int:
    """`convolutions` depthwise edges a cell; the group norms have no parameters."""
    total, inputs = conv(channels, widths[0], 3), widths[0]
    for width in widths:
        total += conv(inputs, width, 1) + convolutions * conv(width, width, 3, groups=width)
        inputs = 5 * width
    return total + conv(inputs, 128, 1) + dense(128 * cells, 128) + dense(128, 10)


TANH_MNIST = (64 * 16 + 16) + (16 * 16 * 32 + 32) + dense(4 * 4 * 32, 32) + dense(32, 10)
TANH_CIFAR = (
    (3 * 9 * 32 + 32)
    + (32 * 9 * 32 + 32)
    + (32 * 9 * 64 + 64)
    + (64 * 9 * 64 + 64)
    + (64 * 9 * 128 + 128)
    + (128 * 9 * 128 + 128)
    + dense(4 * 4 * 128, 128)
    + dense(128, 10)
)


@pytest.mark.parametrize(
    ("name", "shape", "wanted"),
    [
        ("inception", GREY, inception_count(1)),
        ("inception", COLOUR, inception_count(3)),
        ("wrn-16-4", COLOUR, wrn_count(16, 4)),
        ("wrn-40-4", COLOUR, wrn_count(40, 4)),
        ("tanh-cnn", GREY, TANH_MNIST),
        ("tanh-cnn", COLOUR, TANH_CIFAR),
        # Depthwise edges: MNIST 5 1 5 4 6 4 -> 6; FashionMNIST 7; CIFAR10 8.
        ("dpnas", GREY, dpnas_count(1, (32, 32, 64), 6, 9)),
        ("dpnas-fashion-mnist", GREY, dpnas_count(1, (32, 32, 64), 7, 9)),
        ("dpnas", COLOUR, dpnas_count(3, (48, 96, 192), 8, 16)),
    ],
)
def test_parameter_counts_by_hand(name: str, shape: tuple[int, ...], wanted: int) -> None:
    assert count(models.build(name, shape, 10)) == wanted


def test_counts_that_the_literature_gives() -> None:
    # Zagoruyko and Komodakis print 8.9M for WRN-40-4; Papernot et al. have 26,010 on MNIST and
    # Tramèr and Boneh 551K on CIFAR10. Gain and bias add under one per cent.
    assert count(models.build("wrn-40-4", COLOUR, 10)) == pytest.approx(8.9e6, rel=0.01)
    assert count(models.build("wrn-16-4", COLOUR, 10)) == pytest.approx(2.75e6, rel=0.01)
    assert TANH_MNIST == 26_010
    assert pytest.approx(551_000, rel=0.001) == TANH_CIFAR


def test_the_layout_does_not_change_the_numbers() -> None:
    torch.manual_seed(2)
    model = models.build("inception", GREY, 10)
    batch = torch.randn((4, *GREY))
    plain = model(batch)
    assert all(parameter.is_contiguous() for parameter in model.parameters())
    model = model.to(memory_format=torch.channels_last)
    torch.testing.assert_close(model(batch), plain, rtol=1e-4, atol=1e-5)


def test_initialisation_is_pytorchs_default() -> None:
    # Uniform on ±1/√fan-in. The last layer of inception has 160 inputs and 1600 weights: all lie
    # inside, and the largest is beyond 0.98 of the bound but with probability 0.98^1600 < 1e-14.
    torch.manual_seed(3)
    last = models.build("inception", GREY, 10)[-1]
    bound = 160**-0.5
    assert last.weight.abs().max() <= bound
    assert last.weight.abs().max() > 0.98 * bound


def test_standardised_kernels_have_mean_zero_and_norm_gain() -> None:
    torch.manual_seed(4)
    layer = StandardisedConv2d(5, 6, 3)
    with torch.no_grad():
        layer.weight.add_(3.0)
        layer.gain.copy_(torch.arange(1.0, 7.0))
        # Unit impulses in each input channel read the kernel off; the bias goes first.
        layer.bias.zero_()
        impulse = torch.zeros((5, 5, 5, 5))
        impulse[torch.arange(5), torch.arange(5), 2, 2] = 1
        kernel = layer(impulse)[:, :, 1:4, 1:4]
    by_output = kernel.transpose(0, 1).reshape(6, -1)
    torch.testing.assert_close(by_output.mean(dim=1), torch.zeros(6), rtol=0, atol=1e-6)
    torch.testing.assert_close(by_output.norm(dim=1), torch.arange(1.0, 7.0), rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", ["de2022-wrn-16-4-eps1", "de2022-wrn-40-4-eps1"])
def test_the_recipe_of_de_et_al_at_a_small_size(name: str) -> None:
    """The whole network with all options of the recipe; fewer records, copies and steps."""
    images = np.random.default_rng(0).integers(0, 256, (40, 3, 16, 16), dtype=np.uint8)
    split = data.Split(images, (np.arange(40) % 10).astype(np.int64))
    small = data.Dataset("images", split, split, None, tuple("abcdefghij"))
    settings = recipes.settings(
        name, batch_size=4, steps=2, seed=1, options={"augmentation_multiplicity": 2}
    )
    outcome = methods.train(settings, small)
    before = models.build(str(settings.model), (3, 16, 16), 10, settings.norm)
    assert [p.shape for p in outcome.model.parameters()] == [p.shape for p in before.parameters()]
    assert all(bool(torch.isfinite(p).all()) for p in outcome.model.parameters())
    assert outcome.statement.mechanism["augmentation_multiplicity"] == 2
    assert outcome.statement.epsilon is not None
    assert outcome.statement.epsilon <= settings.epsilon
    # Noise of σ/4 = 2.5 a step at a rate of 2: the biases of the last layer, which begin at most
    # 1/√256 from 0, are far away now.
    assert float(list(outcome.model.parameters())[-1].detach().abs().max()) > 0.5


def test_the_papers_networks_are_known() -> None:
    assert {"inception", "wrn-16-4", "wrn-40-4", "tanh-cnn", "dpnas"} <= set(models.names())
    assert "dpnas-fashion-mnist" in models.names()
    with pytest.raises(ValueError, match=r"'resnet-18' \(closest: resnet18\).*inception"):
        models.build("resnet-18", (3, 32, 32), 10)


@pytest.mark.parametrize("name", ["inception", "wrn-16-4", "dpnas"])
def test_an_image_network_refuses_a_table(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} takes images.*shape \(30,\)"):
        models.build(name, (30,), 2)


@pytest.mark.parametrize("name", ["inception", "tanh-cnn", "dpnas"])
def test_our_own_networks_are_not_taken_for_coupled(name: str) -> None:
    model = models.build(name, (1, 28, 28), 10, "group")
    assert not models.couples_records(model, (1, 28, 28))
    assert not models.writes_buffers(model, (1, 28, 28))
