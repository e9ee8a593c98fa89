"""The tanh networks of "Tempered Sigmoid Activations" (Papernot et al., 2021).

26,010 parameters on 28×28×1, 550,570 on 32×32×3. They have no normalisation.
"""

from __future__ import annotations

from torch import nn

from simplexdp.models.layers import image_shape


def tanh_cnn(input_shape: tuple[int, ...], classes: int, norm: str = "none") -> nn.Module:
    """Build the CIFAR10 network from 32×32 up, the MNIST one below; `norm` changes nothing."""
    channels, height, width = image_shape("tanh-cnn", input_shape, 16)
    if min(height, width) >= 32:
        return _cifar(channels, height, width, classes)
    return _mnist(channels, height, width, classes)


def _mnist(channels: int, height: int, width: int, classes: int) -> nn.Module:
    # What 8×8 and 4×4 convolutions of stride 2, each pooled by one, leave: 28 -> 4.
    rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, width))
    return nn.Sequential(
        nn.Conv2d(channels, 16, 8, stride=2, padding=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.Tanh(),
        nn.MaxPool2d(2, stride=1),
        nn.Flatten(),
        nn.Linear(32 * rows * columns, 32),
        nn.Tanh(),
        nn.Linear(32, classes),
    )


def _cifar(channels: int, height: int, width: int, classes: int) -> nn.Module:
    layers: list[nn.Module] = []
    inputs = channels
    for outputs in (32, 64, 128):
        layers += [
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.Tanh(),
            nn.Conv2d(outputs, outputs, 3, padding=1),
            nn.Tanh(),
            nn.MaxPool2d(2),
        ]
        inputs = outputs
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(128 * (height // 8) * (width // 8), 128),
        nn.Tanh(),
        nn.Linear(128, classes),
    )
