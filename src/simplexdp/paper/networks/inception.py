"""A simplified Inception (after Szegedy et al., 2015) for 28×28 images.

The paper gives no widths. These are ours: 110,930 parameters for one input channel and ten
classes, chosen so that the forty epochs of FashionMNIST fit two CPU cores. As in the original, a
module runs four branches side by side (1×1; 1×1 then 3×3; 1×1 then 5×5; 3×3 max-pool then 1×1)
and concatenates them, the resolution falls early (28 -> 14 -> 7), and an average over all
positions replaces the dense head. norm="batch" is the paper's.
"""

from __future__ import annotations

import torch
from torch import nn

from simplexdp.models.layers import conv_norm_relu, image_shape


class Module(nn.Module):
    """Four branches side by side; its output has `sum` = one + three + five + pooled channels."""

    def __init__(
        self,
        inputs: int,
        *,
        one: int,
        reduce_three: int,
        three: int,
        reduce_five: int,
        five: int,
        pooled: int,
        norm: str,
    ) -> None:
        super().__init__()
        self.one = conv_norm_relu(inputs, one, 1, norm)
        self.three = nn.Sequential(
            conv_norm_relu(inputs, reduce_three, 1, norm),
            conv_norm_relu(reduce_three, three, 3, norm),
        )
        self.five = nn.Sequential(
            conv_norm_relu(inputs, reduce_five, 1, norm),
            conv_norm_relu(reduce_five, five, 5, norm),
        )
        self.pooled = nn.Sequential(
            nn.MaxPool2d(3, stride=1, padding=1), conv_norm_relu(inputs, pooled, 1, norm)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the four branches side by side."""
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(x)], dim=1)


def inception(input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """Build two 3×3 convolutions, three modules, two halvings, an average and a dense layer."""
    channels, _, _ = image_shape("inception", input_shape, 8)
    return nn.Sequential(
        conv_norm_relu(channels, 16, 3, norm),
        nn.MaxPool2d(2),
        conv_norm_relu(16, 32, 3, norm),
        Module(32, one=24, reduce_three=24, three=32, reduce_five=8, five=16, pooled=8, norm=norm),
        nn.MaxPool2d(2),
        Module(80, one=40, reduce_three=40, three=64, reduce_five=8, five=24, pooled=16, norm=norm),
        Module(
            144, one=48, reduce_three=48, three=64, reduce_five=12, five=32, pooled=16, norm=norm
        ),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(160, classes),
    )
