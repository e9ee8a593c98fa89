"""Augmentation of image batches: crop, shift and flip, one gather for the batch."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

PADDING = {"random_crop": 4, "random_shift": 2}
AUGMENTATIONS = (*PADDING, "horizontal_flip", "dihedral")


def augment(batch: torch.Tensor, names: tuple[str, ...], rng: np.random.Generator) -> torch.Tensor:
    """Return the batch (n, channels, height, width), each image changed by its own draw.

    random_crop pads by four black pixels on each side (0 in bytes, -1 in numbers from -1 to 1) and
    takes a window of the image's size, uniformly among the 81; random_shift does the same with two
    pixels; horizontal_flip mirrors with probability one half; dihedral takes one of the eight
    symmetries of the square. The window comes first, whatever the order of `names`. The draws are
    independent of the pixels.
    """
    check(names, tuple(batch.shape[1:]))
    if not names or len(batch) == 0:
        return batch
    n, channels, height, width = batch.shape
    rows, columns = np.arange(height)[None, :], np.arange(width)[None, :]
    padding = max(PADDING.get(name, 0) for name in names)
    if padding:
        top, left = rng.integers(0, 2 * padding + 1, size=(2, n, 1))
        black = -1.0 if batch.is_floating_point() else 0
        batch = functional.pad(batch, (padding,) * 4, value=black)
        rows, columns = rows + top, columns + left
    if "horizontal_flip" in names:
        columns = np.where(rng.random((n, 1)) < 0.5, columns[:, ::-1], columns)
    if "dihedral" in names:
        which = rng.integers(0, 8, size=(n, 1))
        rows = np.where(which & 1, rows[:, ::-1], rows)
        columns = np.where(which & 2, columns[:, ::-1], columns)
    positions = rows[:, :, None] * batch.shape[3] + columns[:, None, :]
    if "dihedral" in names:
        positions = np.where(which[:, :, None] & 4, positions.swapaxes(1, 2), positions)
    index = torch.from_numpy(np.broadcast_to(positions, (n, height, width)).copy())
    index = index.to(batch.device).view(n, 1, height * width).expand(-1, channels, -1)
    return batch.flatten(2).gather(2, index).view(n, channels, height, width)


def check(names: tuple[str, ...], input_shape: tuple[int, ...]) -> None:
    """Refuse what could not be done to inputs of this shape."""
    for name in names:
        if name not in AUGMENTATIONS:
            raise ValueError(f"no augmentation {name!r}: use {' or '.join(AUGMENTATIONS)}")
    if "dihedral" in names and input_shape[1:2] != input_shape[2:]:
        raise ValueError("dihedral turns square images; give horizontal_flip for others")
    if set(PADDING) <= set(names):
        raise ValueError("random_crop and random_shift both move the image; give one of them")
    if names and len(input_shape) != 3:
        raise ValueError(
            f"{', '.join(names)} need images (n, channels, height, width), "
            f"not inputs of shape {input_shape}: leave the augmentation out"
        )
