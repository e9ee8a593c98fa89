"""ResNet-9: the eight-convolution residual network of fast CIFAR10 training, for small images.

The paper names ResNet-9 without widths; these are the usual 64, 128, 256, 512.
"""

from __future__ import annotations

from torch import nn

from simplexdp.models.layers import Residual, conv_norm_relu, image_shape


def _pair(channels: int, norm: str) -> nn.Module:
    return Residual(*(conv_norm_relu(channels, channels, 3, norm) for _ in range(2)))


def resnet9(input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """Build four convolutions, three pooled, and two residual pairs; the paper's norm is batch.

    The maximum over all positions ends it, so 28×28 and 32×32 have the same parameters.
    """
    channels, _, _ = image_shape("resnet9", input_shape, 8)
    return nn.Sequential(
        conv_norm_relu(channels, 64, 3, norm),
        conv_norm_relu(64, 128, 3, norm),
        nn.MaxPool2d(2),
        _pair(128, norm),
        conv_norm_relu(128, 256, 3, norm),
        nn.MaxPool2d(2),
        conv_norm_relu(256, 512, 3, norm),
        nn.MaxPool2d(2),
        _pair(512, norm),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(512, classes),
    )
