"""Layers that the networks share: the normalisation of a name, and conv-norm-ReLU."""

from __future__ import annotations

from torch import Tensor, nn

NORMS = ("group", "batch", "none")


def groups_for(channels: int) -> int:
    """Return the most groups, up to 16, that divide `channels` into at least 4 each.

    A group of one channel is instance normalisation, which erases the channel's mean.
    """
    fits = (g for g in range(min(16, channels // 4), 0, -1) if channels % g == 0)
    return next(fits, 1)


def norm_layer(norm: str, channels: int, groups: int | None = None) -> nn.Module:
    """Return the two-dimensional normalisation called `norm`, affine, on `channels` channels.

    Batch normalisation couples the records of a batch; group normalisation does not.
    """
    if norm == "group":
        return nn.GroupNorm(groups or groups_for(channels), channels)
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "none":
        return nn.Identity()
    raise ValueError(f"no normalisation {norm!r}: use one of {', '.join(NORMS)}")


def conv_norm_relu(
    inputs: int, outputs: int, kernel: int, norm: str, stride: int = 1, groups: int | None = None
) -> nn.Sequential:
    """Return a same-padded convolution, its normalisation, ReLU; a bias where no norm has one."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=norm == "none")
    return nn.Sequential(conv, norm_layer(norm, outputs, groups), nn.ReLU())


class Residual(nn.Module):
    """x plus what a body makes of it."""

    def __init__(self, *body: nn.Module) -> None:
        super().__init__()
        self.body = nn.Sequential(*body) if len(body) > 1 else body[0]

    def forward(self, x: Tensor) -> Tensor:
        """Return x and what the body makes of it, added."""
        y: Tensor = self.body(x)
        return x + y


def image_shape(model: str, input_shape: tuple[int, ...], smallest: int) -> tuple[int, int, int]:
    """Return (channels, height, width); refuse an input that the network cannot take."""
    if len(input_shape) != 3 or min(input_shape[1:]) < smallest:
        raise ValueError(
            f"{model} takes images (channels, height, width) of at least {smallest}×{smallest}, "
            f"not inputs of shape {input_shape}: choose mlp or logistic"
        )
    channels, height, width = input_shape
    return channels, height, width
