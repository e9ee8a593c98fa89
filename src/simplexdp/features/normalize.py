"""Normalisation of one record's features to a bounded size, from that record alone.

Formal guarantee
    Every function here maps each row by itself, so neighbouring data sets stay neighbouring and
    no budget is spent. After ``unit`` a row has norm 1 (or is zero), up to rounding; the clipping
    of the mechanism does not rely on it.
"""

from __future__ import annotations

import torch

# The groups of Tramèr and Boneh (2021) for scattering features: 27 of 3 channels each.
CHANNELS_PER_GROUP = 3
VARIANCE_FLOOR = 1e-5


def group(maps: torch.Tensor, groups: int) -> torch.Tensor:
    """Zero mean and unit variance within each group of channels of each record (N, C, h, w)."""
    if maps.shape[1] % groups:
        raise ValueError(
            f"{maps.shape[1]} channels do not divide into {groups} groups; choose a divisor"
        )
    parts = maps.reshape(len(maps), groups, -1)
    parts = parts - parts.mean(dim=2, keepdim=True)
    variance = parts.square().mean(dim=2, keepdim=True)
    return (parts / (variance + VARIANCE_FLOOR).sqrt()).reshape(maps.shape)


def unit(rows: torch.Tensor) -> torch.Tensor:
    """Each row divided by its norm; a zero row stays zero."""
    norms = rows.norm(dim=1, keepdim=True)
    return torch.where(norms > 0, rows / norms.clamp_min(1e-30), rows)
