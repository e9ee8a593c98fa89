"""A multilayer perceptron with one hidden layer of 1000 ReLU, the width of Abadi et al. (2016).

Their network reads 60 privately computed principal components; this one reads the input itself.
"""

from __future__ import annotations

from math import prod

from torch import nn

HIDDEN = 1000


def mlp(input_shape: tuple[int, ...], classes: int, norm: str = "none") -> nn.Module:
    """Build flatten, dense 1000, ReLU, dense; without normalisation, so `norm` changes nothing."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(prod(input_shape), HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, classes),
    )
