"""Small residual networks made for processors: a strided stem, few channels, two poolings.

They train well with Muon, in few epochs: convolutions begin as the identity where they can (Jordan,
2024), logits begin small, and groups of group normalisation have sixteen channels.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from simplexdp.models.layers import Residual, image_shape, norm_layer

Widths = tuple[int, int, int]
Views = Callable[[torch.Tensor], list[torch.Tensor]]
SMALL: Widths = (32, 64, 128)
WIDE: Widths = (48, 96, 192)
GROUP = 16  # channels
LOGITS = 1 / 9  # so that no class is all but given up before training begins


def _layer(inputs: int, outputs: int, norm: str, kernel: int = 3, stride: int = 1) -> nn.Module:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, 1, bias=norm == "none")
    if kernel == 3:
        nn.init.dirac_(conv.weight[:inputs])
    return nn.Sequential(conv, norm_layer(norm, outputs, outputs // GROUP), nn.ReLU())


class TwoPools(nn.Module):
    """The mean and the maximum of every channel, side by side."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return both poolings of every channel."""
        return torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1)


class Scale(nn.Module):
    """Multiplies by a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the product."""
        return x * self.factor


class Viewed(nn.Module):
    """A network that in evaluation averages its log-probabilities over views of an image."""

    def __init__(self, network: nn.Module, views: Views) -> None:
        super().__init__()
        self.network = network
        self.views = views

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return logits, or in evaluation the mean log-probabilities."""
        if self.training:
            logits: torch.Tensor = self.network(x)
            return logits
        seen = self.views(x)
        total = sum(self.network(view).log_softmax(1) for view in seen)
        return torch.as_tensor(total / len(seen))


def mirrored(x: torch.Tensor) -> list[torch.Tensor]:
    """Return images and their mirrors."""
    return [x, x.flip(3)]


def moved(x: torch.Tensor) -> list[torch.Tensor]:
    """Return images where they are and a pixel away along either diagonal, and their mirrors."""
    wide = functional.pad(x, (1, 1, 1, 1), mode="replicate")
    return [v for at in (x, wide[..., :-2, :-2], wide[..., 2:, 2:]) for v in mirrored(at)]


def turned(x: torch.Tensor) -> list[torch.Tensor]:
    """Return images under the symmetries of the rectangle, or the eight of the square."""
    flipped = [v for at in (x, x.flip(2)) for v in mirrored(at)]
    square = x.shape[2] == x.shape[3]
    return flipped + [v.transpose(2, 3) for v in flipped if square]


def fast(
    input_shape: tuple[int, ...], classes: int, norm: str = "group", widths: Widths = SMALL
) -> nn.Module:
    """Return a 4×4 stem of stride 2 and three stages of a 3×3 convolution and a residual one.

    A stage begins at half the resolution of the one before; the stem is the first one's.
    """
    channels, _, _ = image_shape("fast", input_shape, 8)
    layers = [_layer(channels, widths[0], norm, 4, 2), Residual(_layer(widths[0], widths[0], norm))]
    for before, width in pairwise(widths):
        layers += [nn.MaxPool2d(2), _layer(before, width, norm)]
        layers += [Residual(_layer(width, width, norm))]
    head = nn.Linear(2 * widths[-1], classes, bias=False)
    return nn.Sequential(*layers, TwoPools(), head, Scale(LOGITS))


def fast_mirrored(input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """Return `fast`, for images whose mirror has the same label."""
    return Viewed(fast(input_shape, classes, norm), mirrored)


def fast_turned(input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """Return `fast`, for images without an up or down: skin, cells, satellites."""
    return Viewed(fast(input_shape, classes, norm), turned)


def fast_wide(input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """Return `fast` with more channels, for colour images, tested at three places."""
    return Viewed(fast(input_shape, classes, norm, WIDE), moved)
