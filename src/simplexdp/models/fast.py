"""Small residual networks made for processors: few channels, a strided stem, two poolings.

Groups of group normalisation have eight channels each, and the networks train well with Muon.
"""

from __future__ import annotations

import torch
from torch import nn

from simplexdp.models.layers import Residual, conv_norm_relu, image_shape

Widths = tuple[int, int, int]
SMALL: Widths = (24, 48, 96)
WIDE: Widths = (48, 96, 192)


def _layer(inputs: int, outputs: int, norm: str, kernel: int = 3, stride: int = 1) -> nn.Module:
    return conv_norm_relu(inputs, outputs, kernel, norm, stride, groups=outputs // 8)


class TwoPools(nn.Module):
    """The mean and the maximum of every channel, side by side."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return both poolings of every channel."""
        return torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1)


class Mirrored(nn.Module):
    """A network that in evaluation adds its log-probabilities of an image and of its mirror."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits, or in evaluation the mean log-probabilities."""
        logits: torch.Tensor = self.network(x)
        if self.training:
            return logits
        mirror: torch.Tensor = self.network(x.flip(3))
        return 0.5 * (logits.log_softmax(1) + mirror.log_softmax(1))


def fast(
    input_shape: tuple[int, ...], classes: int, norm: str = "group", widths: Widths = SMALL
) -> nn.Module:
    """Return a 5×5 stem and two 3×3 convolutions, all of stride 2, each with a residual one.

    The small form has none after the last, where they have the most parameters.
    """
    channels, _, _ = image_shape("fast", input_shape, 8)
    first, second, third = widths
    return nn.Sequential(
        _layer(channels, first, norm, 5, 2),
        Residual(_layer(first, first, norm)),
        _layer(first, second, norm, stride=2),
        Residual(_layer(second, second, norm)),
        _layer(second, third, norm, stride=2),
        *([] if widths == SMALL else [Residual(_layer(third, third, norm))]),
        TwoPools(),
        nn.Linear(2 * third, classes),
    )


def fast_mirrored(input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """Return `fast`, for images whose mirror has the same label."""
    return Mirrored(fast(input_shape, classes, norm))


def fast_wide(input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """Return `fast_mirrored` with more channels, for colour images such as CIFAR10's."""
    return Mirrored(fast(input_shape, classes, norm, WIDE))
