"""ResNet-18 (He et al., 2016) for 32×32 images: a 3×3 stem of stride 1 and no first pooling."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from simplexdp.models.layers import conv_norm_relu, image_shape, norm_layer


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a shortcut, which is a 1×1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()
        bias = norm == "none"
        self.first = conv_norm_relu(inputs, outputs, 3, norm, stride)
        self.second = nn.Sequential(
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=bias), norm_layer(norm, outputs)
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=bias), norm_layer(norm, outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        return functional.relu(self.second(self.first(x)) + self.shortcut(x))


def resnet18(input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """Build 11,173,962 parameters for three channels and ten classes; the paper's norm is batch."""
    channels, _, _ = image_shape("resnet18", input_shape, 8)
    stages: list[nn.Module] = [conv_norm_relu(channels, 64, 3, norm)]
    inputs = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        stages += [BasicBlock(inputs, outputs, stride, norm), BasicBlock(outputs, outputs, 1, norm)]
        inputs = outputs
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))
