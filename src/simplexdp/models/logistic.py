"""Logistic regression: one linear layer on the flattened input."""

from __future__ import annotations

from math import prod

from torch import nn


def logistic(input_shape: tuple[int, ...], classes: int, norm: str = "none") -> nn.Module:
    """Build one linear layer; there is nothing to normalise, so `norm` changes nothing."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(input_shape), classes))
