"""Wide residual networks as De et al. (2022) train them privately.

Group normalisation of 16 groups, convolutions with scaled weight standardisation (gain and bias),
and, as in their published code, the activation before the normalisation before the convolution.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from simplexdp.models.layers import image_shape, norm_layer

EPSILON = 1e-4


class StandardisedConv2d(nn.Conv2d):
    """A convolution whose kernel is (w − mean)·gain/√(fan-in · variance), per output channel."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, kernel // 2)
        self.gain = nn.Parameter(torch.ones(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the convolution with the standardised kernel."""
        var, mean = torch.var_mean(self.weight, dim=(1, 2, 3), correction=0, keepdim=True)
        fan_in = self.weight[0].numel()
        scale = self.gain.view(-1, 1, 1, 1) * torch.rsqrt((var * fan_in).clamp(min=EPSILON))
        kernel = (self.weight - mean) * scale
        return functional.conv2d(x, kernel, self.bias, self.stride, self.padding)


def _norm(norm: str, channels: int) -> nn.Module:
    return nn.GroupNorm(16, channels) if norm == "group" else norm_layer(norm, channels)


def _unit(inputs: int, outputs: int, kernel: int, stride: int, norm: str) -> nn.Sequential:
    conv = StandardisedConv2d(inputs, outputs, kernel, stride)
    return nn.Sequential(nn.ReLU(), _norm(norm, inputs), conv)


class WideBlock(nn.Module):
    """Two 3×3 units and a shortcut, which is a 1×1 unit in a stage's first block."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str, first: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _unit(inputs, outputs, 3, stride, norm), _unit(outputs, outputs, 3, 1, norm)
        )
        self.shortcut = _unit(inputs, outputs, 1, stride, norm) if first else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        y: torch.Tensor = self.body(x) + self.shortcut(x)
        return y


def wrn(depth: int, width: int, input_shape: tuple[int, ...], classes: int, norm: str) -> nn.Module:
    """Build WRN-depth-width: three stages of (depth − 4)/6 blocks, 16, 32 and 64 times as wide."""
    channels, _, _ = image_shape(f"wrn-{depth}-{width}", input_shape, 8)
    layers: list[nn.Module] = [StandardisedConv2d(channels, 16, 3)]
    inputs = 16
    for outputs, stride in ((16 * width, 1), (32 * width, 2), (64 * width, 2)):
        for block in range((depth - 4) // 6):
            first = block == 0
            layers.append(WideBlock(inputs, outputs, stride if first else 1, norm, first))
            inputs = outputs
    return nn.Sequential(
        *layers,
        nn.ReLU(),
        _norm(norm, inputs),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(inputs, classes),
    )


def wrn_16_4(input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """Build WRN-16-4: two blocks a stage."""
    return wrn(16, 4, input_shape, classes, norm)


def wrn_40_4(input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """Build WRN-40-4: six blocks a stage."""
    return wrn(40, 4, input_shape, classes, norm)
