"""A small convolutional network for small images: 8×8 digits, 28×28, 32×32."""

from __future__ import annotations

from torch import nn

from simplexdp.models.layers import conv_norm_relu, image_shape


def cnn(input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """Build two 3×3 convolutions (32, 64) with 2×2 max-pooling, a 4×4 average and a dense layer.

    Below 16×16 the pooling is left out: an 8×8 image has no resolution to give away twice.
    """
    channels, height, width = image_shape("cnn", input_shape, 4)
    pool = 2 if min(height, width) >= 16 else 1
    return nn.Sequential(
        conv_norm_relu(channels, 32, 3, norm),
        nn.MaxPool2d(pool),
        conv_norm_relu(32, 64, 3, norm),
        nn.MaxPool2d(pool),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, classes),
    )
