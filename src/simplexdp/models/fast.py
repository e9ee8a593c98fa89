"""Small residual networks made for processors: a strided stem, few channels, two poolings.

They train well with Muon, in few epochs: convolutions begin as the identity where they can and a
stem for colour whitens patches (Jordan, 2024), logits begin small, and groups of group
normalisation have sixteen channels.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
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


def whitening(channels: int, side: int) -> torch.Tensor:
    """Return filters that whiten patches of photographs, the smoothest first.

    No image is used: pixels at distance d are taken to correlate by exp(−d/8), and neighbouring
    ones of the three colours by exp(−1/20), about as in photographs. The filters are that
    covariance's eigenvectors over root eigenvalues. Rows are a little nearer than columns, so that
    no two eigenvalues are the same and every machine gets the same filters.
    """
    row, column = np.divmod(np.arange(side * side), side)
    distance = np.hypot(row[:, None] - row, 1.05 * (column[:, None] - column))
    apart = np.abs(np.subtract.outer(np.arange(channels), np.arange(channels)))
    values, vectors = np.linalg.eigh(np.kron(np.exp(-apart / 20), np.exp(-distance / 8)))
    signs = np.sign(vectors[np.abs(vectors).argmax(0), np.arange(len(values))])
    filters = (vectors * signs / np.sqrt(values + 0.002)).T[::-1]
    return torch.from_numpy(filters.astype(np.float32)).view(-1, channels, side, side)


def _layer(inputs: int, outputs: int, norm: str, kernel: int = 3, stride: int = 1) -> nn.Sequential:
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
    input_shape: tuple[int, ...],
    classes: int,
    norm: str = "group",
    widths: Widths = SMALL,
    whitened: bool = False,
) -> nn.Module:
    """Return a 4×4 stem of stride 2 and three stages of a 3×3 convolution and a residual one.

    A stage begins at half the resolution of the one before; the stem is the first one's, and may
    begin as `whitening` filters.
    """
    channels, _, _ = image_shape("fast", input_shape, 8)
    stem = _layer(channels, widths[0], norm, 4, 2)
    if whitened:
        filters = whitening(channels, 4)[: widths[0] // 2]
        with torch.no_grad():
            weight = stem.get_parameter("0.weight")
            weight[: 2 * len(filters)] = torch.cat([filters, -filters])
    layers = [stem, Residual(_layer(widths[0], widths[0], norm))]
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
    return Viewed(fast(input_shape, classes, norm, WIDE, whitened=True), moved)
