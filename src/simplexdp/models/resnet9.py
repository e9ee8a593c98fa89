"""ResNet-9: the eight-convolution residual network of fast CIFAR10 training, for small images.

The paper names ResNet-9 without widths; these are the usual 64, 128, 256, 512.
"""

from __future__ import annotations

import torch
from torch import nn

from simplexdp.models.layers import conv_norm_relu, image_shape


class Residual(nn.Module):
    """x plus two convolutions of x."""

    def __init__(self, channels: int, norm: str) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_norm_relu(channels, channels, 3, norm),
            conv_norm_relu(channels, channels, 3, norm),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x plus two convolutions of x."""
        y: torch.Tensor = self.body(x)
        return x + y


def resnet9(input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """Build four convolutions, three pooled, and two residual pairs; the paper's norm is batch.

    The maximum over all positions ends it, so 28×28 and 32×32 have the same parameters.
    """
    channels, _, _ = image_shape("resnet9", input_shape, 8)
    return nn.Sequential(
        conv_norm_relu(channels, 64, 3, norm),
        conv_norm_relu(64, 128, 3, norm),
        nn.MaxPool2d(2),
        Residual(128, norm),
        conv_norm_relu(128, 256, 3, norm),
        nn.MaxPool2d(2),
        conv_norm_relu(256, 512, 3, norm),
        nn.MaxPool2d(2),
        Residual(512, norm),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(512, classes),
    )
