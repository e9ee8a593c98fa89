"""Parameter counts by hand from each architecture's definition, and output shapes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from simplexdp import models

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
        ("logistic", GREY, 7850),
        ("mlp", GREY, dense(784, 1000) + dense(1000, 10)),
        ("cnn", GREY, normed(1, 32, 3) + normed(32, 64, 3) + dense(1024, 10)),
        ("cnn", (1, 8, 8), normed(1, 32, 3) + normed(32, 64, 3) + dense(1024, 10)),
        ("inception", GREY, inception_count(1)),
        ("inception", COLOUR, inception_count(3)),
        ("resnet9", COLOUR, resnet9_count(3)),
        ("resnet9", GREY, resnet9_count(1)),
        # The count everyone reports for the CIFAR form of ResNet-18.
        ("resnet18", COLOUR, 11_173_962),
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
    from simplexdp.paper.networks.wrn import StandardisedConv2d

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
