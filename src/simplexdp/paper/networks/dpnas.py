"""DPNASNet (Cheng et al., 2022): the cells an architecture search found for DP-SGD.

A block has five nodes; node t sums an operation on each earlier node, node 0 is the block's input,
and the block's output concatenates nodes 1 to 5. Group normalisation has 8 groups and no
parameters. The authors initialise convolutions from a He normal; here PyTorch's default stands.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from simplexdp.models.layers import image_shape

Edge = tuple[int, int, int]
NODES = 5
ZERO = 0

# (operation, from, to); operations as in `_operation`.
MNIST_CELL: tuple[Edge, ...] = (
    *((5, 0, 1), (6, 0, 2), (3, 1, 2), (0, 0, 3), (5, 1, 3), (4, 2, 3), (0, 0, 4), (6, 1, 4)),
    *((0, 2, 4), (3, 3, 4), (1, 0, 5), (0, 1, 5), (1, 2, 5), (1, 3, 5), (4, 4, 5)),
)
FASHION_MNIST_CELL: tuple[Edge, ...] = (
    *((3, 0, 1), (0, 0, 2), (5, 1, 2), (4, 0, 3), (5, 1, 3), (3, 2, 3), (0, 0, 4), (0, 1, 4)),
    *((6, 2, 4), (3, 3, 4), (5, 0, 5), (6, 1, 5), (1, 2, 5), (4, 3, 5), (1, 4, 5)),
)
CIFAR10_CELL: tuple[Edge, ...] = (
    *((5, 0, 1), (1, 0, 2), (5, 1, 2), (6, 0, 3), (1, 1, 3), (0, 2, 3), (5, 0, 4), (0, 1, 4)),
    *((0, 2, 4), (3, 3, 4), (5, 0, 5), (5, 1, 5), (6, 2, 5), (1, 3, 5), (6, 4, 5)),
)


@dataclass(frozen=True)
class Layout:
    """A cell, the widths of the three blocks, and whether the head's activation is SELU."""

    cell: tuple[Edge, ...]
    widths: tuple[int, int, int]
    selu_head: bool


MNIST = Layout(MNIST_CELL, (32, 32, 64), selu_head=False)
FASHION_MNIST = Layout(FASHION_MNIST_CELL, (32, 32, 64), selu_head=False)
CIFAR10 = Layout(CIFAR10_CELL, (48, 96, 192), selu_head=True)


def _norm(norm: str, channels: int) -> nn.Module:
    if norm == "group":
        return nn.GroupNorm(8, channels, affine=False)
    return nn.BatchNorm2d(channels, affine=False) if norm == "batch" else nn.Identity()


def _conv(inputs: int, outputs: int, kernel: int, norm: str, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(
        inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=norm == "none"
    )
    return nn.Sequential(conv, _norm(norm, outputs))


def _operation(index: int, channels: int, norm: str) -> nn.Module:
    """Build 1 max-pool, 2 average-pool, 3 identity, 4–7 depthwise 3×3 with ReLU, SELU, tanh, -."""
    pools = {1: nn.MaxPool2d(3, 1, 1), 2: nn.AvgPool2d(3, 1, 1), 3: nn.Identity()}
    if index in pools:
        return pools[index]
    activation = {4: nn.ReLU(), 5: nn.SELU(), 6: nn.Tanh(), 7: nn.Identity()}[index]
    return nn.Sequential(_conv(channels, channels, 3, norm, groups=channels), activation)


class Block(nn.Module):
    """A 1×1 convolution to `channels`, then the cell; 5·channels come out."""

    def __init__(self, cell: tuple[Edge, ...], inputs: int, channels: int, norm: str) -> None:
        super().__init__()
        # A zero operation adds nothing, so its edge is left out.
        edges = [edge for edge in cell if edge[0] != ZERO]
        self.entry = _conv(inputs, channels, 1, norm)
        self.ends = [(source, target) for _, source, target in edges]
        self.operations = nn.ModuleList(_operation(index, channels, norm) for index, _, _ in edges)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return nodes 1 to 5 side by side."""
        nodes: dict[int, torch.Tensor] = {0: self.entry(x)}
        for (source, target), operation in zip(self.ends, self.operations, strict=True):
            term: torch.Tensor = operation(nodes[source])
            nodes[target] = nodes[target] + term if target in nodes else term
        return torch.cat([nodes[node] for node in range(1, NODES + 1)], dim=1)


def _network(layout: Layout, shape: tuple[int, int, int], classes: int, norm: str) -> nn.Module:
    channels, height, width = shape
    layers: list[nn.Module] = [_conv(channels, layout.widths[0], 3, norm)]
    inputs = layout.widths[0]
    for outputs in layout.widths:
        layers += [Block(layout.cell, inputs, outputs, norm), nn.MaxPool2d(2)]
        inputs = NODES * outputs
    return nn.Sequential(
        *layers,
        _conv(inputs, 128, 1, norm),
        nn.Flatten(),
        nn.Linear(128 * (height // 8) * (width // 8), 128),
        nn.SELU() if layout.selu_head else nn.Tanh(),
        nn.Linear(128, classes),
    )


def dpnas(input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """Build the CIFAR10 network from 32×32 up, the MNIST one below."""
    shape = image_shape("dpnas", input_shape, 8)
    return _network(CIFAR10 if min(shape[1:]) >= 32 else MNIST, shape, classes, norm)


def dpnas_fashion_mnist(
    input_shape: tuple[int, ...], classes: int, norm: str = "group"
) -> nn.Module:
    """Build the network whose cell was searched on FashionMNIST."""
    shape = image_shape("dpnas-fashion-mnist", input_shape, 8)
    return _network(FASHION_MNIST, shape, classes, norm)
