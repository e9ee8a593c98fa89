"""Patch features (after Coates and Ng 2011) whose constants come from images of a public seed.

A patch is compared with a dictionary by a convolution, divided by the root mean square of all
comparisons at that place; what stands above a threshold, of either sign, is averaged over cells
and over a group of symmetries, under which the features then do not change at all. Square root,
less the mean of synthetic images, norm 1, and whitening by their Kronecker covariance to the power
−0.38 in place of −1/2. `make` computes dictionary, mean and covariance; `load` reads them from the
file that ships with the package.

Formal guarantee
    The map is a function of one image alone and of constants in which no private record has a
    part, so no budget is spent on mean or covariance.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cache
from importlib import resources

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load as load_tensors

from simplexdp.features import normalize, scattering, synthetic

Tensors = dict[str, torch.Tensor]
VERSION = 1  # in the name of a map: raised with a checksum
SEED = 20250101
FLOOR = 0.1  # added to the patches' covariance before they are whitened
DISTINCT = 0.6  # cosine of two atoms at most
RIDGE = 1e-4
IMAGES_OF_DICTIONARY, IMAGES_OF_MOMENTS, PATCHES_OF_IMAGE = 1500, 2000, 60


@dataclass(frozen=True)
class Scale:
    """What one scale does: constants that were chosen on held-out training records.

    Attributes:
        averaged: By how much the image is averaged down first.
        size: The side of a patch.
        stride: Pixels between patches.
        border: Zeros around the image.
        atoms: Atoms, each with its orbit under the group.
        group: 1 (none), 2 (mirror) or 8 (the square's symmetries).
        cells: Cells along each axis.
        soft: Whether cells are overlapping raised cosines, and not boxes.
        threshold: What a comparison must exceed.
        small: Added to the root mean square, in units of its mean.
        energy: Whether the root mean square itself is a channel too.
        power: Of the whitening.
        kept: Coordinates after whitening.
    """

    averaged: int = 1
    size: int = 6
    stride: int = 2
    border: int = 0
    atoms: int = 256
    group: int = 2
    cells: int = 3
    soft: bool = False
    threshold: float = 1.0
    small: float = 3e-4
    energy: bool = False
    power: float = 0.38
    kept: int = 768

    @property
    def channels(self) -> int:
        """Return the channels before whitening."""
        return 2 * self.atoms + self.energy


@dataclass(frozen=True)
class Kind:
    """A patch map: its scales, the channels of its images, and the side that it was made for."""

    scales: tuple[Scale, ...]
    colours: int
    side: int


CHECKSUMS = {
    "patches": "bc1156744810b50e9805ded7a61a45816c9419bdaaebe955a77e0572e5a3557f",
    "patches-d4": "738c895e751c3466bbb2cbee94a5130b620be14d141cdd00783a93dc29ddf884",
    "patches-grey": "d01f1822b490dcfd3e95e14a24fdfe7c6dce626c959353441d7b5b424c2eca64",
    "scattering-grey": "607b94c38fc021a7002804d7c6f6933a044ba0e89e5514c9cc783d8cd8f5bef9",
}
KINDS = {
    "patches": Kind(
        (Scale(atoms=512, kept=1024), Scale(averaged=2, stride=1, kept=512)),
        3,
        32,
    ),
    "patches-d4": Kind(
        (
            Scale(atoms=128, group=8, kept=512),
            Scale(averaged=2, stride=1, atoms=64, group=8, kept=256),
        ),
        3,
        32,
    ),
    "patches-grey": Kind(
        (
            Scale(
                size=5,
                stride=1,
                border=2,
                atoms=48,
                group=1,
                cells=7,
                soft=True,
                threshold=0.8,
                small=0.03,
                energy=True,
                power=0.5,
                kept=1024,
            ),
        ),
        1,
        28,
    ),
    # No patches: the scattering maps of 28×28 pixels, whitened by the same silhouettes.
    "scattering-grey": Kind((), 1, 28),
}


def orbit(patches: torch.Tensor, group: int) -> list[torch.Tensor]:
    """Return the images of (N, C, s, s) under each element of a group; `undone` inverts each."""
    if group == 1:
        return [patches]
    mirrored = patches.flip(-1)
    if group == 2:
        return [patches, mirrored]
    return [torch.rot90(p, k, (-2, -1)) for p in (patches, mirrored) for k in range(4)]


def undone(maps: torch.Tensor, element: int, group: int) -> torch.Tensor:
    """Return maps (…, h, w) under the inverse of an element of the group."""
    if group < 8:
        return maps.flip(-1) if element else maps
    turned = torch.rot90(maps, -(element % 4), (-2, -1))
    return turned.flip(-1) if element >= 4 else turned


@cache
def pooling(rows: int, columns: int, cells: int, soft: bool) -> torch.Tensor:
    """Return the weights (rows·columns, cells²) of the cells, each of which is a mean."""
    return torch.kron(_along(rows, cells, soft), _along(columns, cells, soft)).float()


def _along(places: int, cells: int, soft: bool) -> torch.Tensor:
    at = torch.arange(places, dtype=torch.float64)[:, None]
    which = torch.arange(cells)
    if soft:
        far = (at - ((which + 0.5) * places / cells - 0.5)).abs() * cells / places
        weights = torch.where(far < 1, 0.5 + 0.5 * torch.cos(math.pi * far), 0.0)
    else:
        first, last = which * places // cells, -(-(which + 1) * places // cells)
        weights = ((at >= first) & (at < last)).double()
    return weights / weights.sum(0)


def scaled(images: torch.Tensor, scale: Scale) -> torch.Tensor:
    """Return images averaged down to a scale."""
    return F.avg_pool2d(images, scale.averaged) if scale.averaged > 1 else images


def pooled(images: torch.Tensor, filters: torch.Tensor, scale: Scale) -> torch.Tensor:
    """Return roots of the cell means (N, channels, cells²) of what exceeds the threshold."""
    found = F.conv2d(scaled(images, scale), filters, stride=scale.stride, padding=scale.border)
    size = found.square().mean(1, keepdim=True).sqrt_()
    weights = pooling(*size.shape[-2:], scale.cells, scale.soft)
    found = found.div_(size + scale.small).flatten(2)
    parts = []
    for sign in (1.0, -1.0):
        means = (found * sign).sub_(scale.threshold).relu_() @ weights
        cells = means.view(len(images), scale.group, scale.atoms, scale.cells, scale.cells)
        aligned = [undone(cells[:, g], g, scale.group) for g in range(scale.group)]
        parts.append(torch.stack(aligned).mean(0).flatten(2))
    if scale.energy:
        parts.append(size.flatten(2) @ weights)
    return torch.cat(parts, 1).sqrt_()


def whitened(maps: torch.Tensor, constants: Tensors, prefix: str) -> torch.Tensor:
    """Return unit rows from maps (N, channels, cells): centred, norm 1, whitened, norm 1."""
    mean, axes, turns, kept, gain = (
        constants[prefix + name] for name in ("mean", "axes", "turns", "kept", "gain")
    )
    rows = normalize.unit((maps - mean).flatten(1))
    turned = axes.T @ rows.view(maps.shape) @ turns
    return normalize.unit(turned.flatten(1)[:, kept] * gain)


def apply(images: torch.Tensor, kind: Kind, constants: Tensors) -> torch.Tensor:
    """Return unit rows of images (N, colours, H, W) in [0, 1]."""
    if not kind.scales:
        return whitened(scattered(images).flatten(2), constants, "0.")
    larger = min(images.shape[-2:]) // kind.side
    if larger > 1:  # patches are of the size of details, whatever the resolution
        images = F.avg_pool2d(images, larger)
    parts = [
        whitened(pooled(images, constants[f"{s}.filters"], scale), constants, f"{s}.")
        for s, scale in enumerate(kind.scales)
    ]
    return torch.cat(parts, 1) / math.sqrt(len(parts))


def scattered(images: torch.Tensor) -> torch.Tensor:
    """Return the scattering maps of images, normalised in groups."""
    maps = scattering.scatter(images)
    return normalize.group(maps, maps.shape[1] // normalize.CHANNELS_PER_GROUP)


def smallest_side(kind: Kind) -> int:
    """Return the least height and width of an image."""
    if not kind.scales:
        return kind.side
    return max((s.size + s.cells - 2 * s.border) * s.averaged for s in kind.scales)


@cache
def load(name: str) -> tuple[Tensors, float]:
    """Return the constants of a kind, and the largest eigenvalue of their moments.

    Raises:
        ValueError: If the file is not the one that the package ships.
    """
    raw = resources.files(__package__).joinpath(f"{name}.safetensors").read_bytes()
    if hashlib.sha256(raw).hexdigest() != CHECKSUMS[name]:
        raise ValueError(f"the constants of {name} are damaged; install simplexdp again")
    constants = {
        key: value.float() if value.is_floating_point() else value.clone()
        for key, value in load_tensors(raw).items()
    }
    return constants, max(float(v) for key, v in constants.items() if key.endswith("largest"))


def make(name: str) -> Tensors:
    """Compute the constants of a kind from the public seed."""
    kind = KINDS[name]
    rng = np.random.Generator(np.random.Philox(SEED))
    draw = synthetic.leaves if kind.colours == 3 else synthetic.silhouettes
    images = torch.from_numpy(draw(IMAGES_OF_DICTIONARY + IMAGES_OF_MOMENTS, rng, kind.side))
    first, second = images.split([IMAGES_OF_DICTIONARY, IMAGES_OF_MOMENTS])
    constants: Tensors = {}
    if not kind.scales:
        maps = torch.cat([scattered(block).flatten(2) for block in second.split(32)])
        return {f"0.{key}": value for key, value in moments(maps, 0.5, 1024).items()}
    for s, scale in enumerate(kind.scales):
        filters = dictionary(scaled(first, scale), scale, rng)
        made = {"filters": filters}
        blocks = [pooled(block, filters, scale) for block in second.split(64)]
        made |= moments(torch.cat(blocks), scale.power, scale.kept)
        constants |= {f"{s}.{key}": value for key, value in made.items()}
    return constants


def dictionary(images: torch.Tensor, scale: Scale, rng: np.random.Generator) -> torch.Tensor:
    """Return filters (group·atoms, C, size, size) that compare whitened patches with atoms.

    The atoms are whitened patches, drawn at random, as far as they are distinct from all before
    and from what the group makes of those. A filter is an atom times the whitening, so that it
    applies to a raw patch, and it sums to 0. The mean root mean square is brought to 1.
    """
    patches = _drawn(images, scale.size, rng)
    size = patches[0].numel()
    covariance = torch.zeros(size, size, dtype=torch.float64)
    turned = orbit(patches, 8)
    for one in turned:  # symmetric under the group, so that whitening commutes with it
        flat = one.flatten(1).double()
        covariance += flat.T @ flat / (len(flat) * len(turned))
    values, axes = torch.linalg.eigh(covariance)
    whitening = ((axes / (values.clamp_min(0) + FLOOR).sqrt()) @ axes.T).float()
    candidates = normalize.unit(patches.flatten(1) @ whitening)
    chosen: list[torch.Tensor] = []
    taken = torch.empty(0, size)
    for k in rng.permutation(len(candidates)):
        atom = candidates[int(k)]
        if len(taken) and float((taken @ atom).abs().max()) >= DISTINCT:
            continue
        chosen.append(torch.cat(orbit(atom.view(1, *patches.shape[1:]), scale.group)).flatten(1))
        taken = torch.cat([taken, chosen[-1]])
        if len(chosen) == scale.atoms:
            break
    else:
        raise ValueError("too few distinct patches; draw more images")
    filters = torch.stack(chosen, 1).flatten(0, 1) @ whitening
    filters = (filters - filters.mean(1, keepdim=True)).view(-1, *patches.shape[1:])
    found = F.conv2d(images[:256], filters, stride=scale.stride, padding=scale.border)
    return torch.as_tensor(filters / float(found.square().mean(1).sqrt().mean()))


def _drawn(images: torch.Tensor, size: int, rng: np.random.Generator) -> torch.Tensor:
    """Return random patches with mean 0 and variance 1; flat ones are left out."""
    places = images.shape[-1] - size + 1
    windows = images.unfold(2, size, 1).unfold(3, size, 1)
    every = torch.arange(len(images))
    drawn = []
    for _ in range(PATCHES_OF_IMAGE):
        row, column = (torch.from_numpy(rng.integers(0, places, len(images))) for _ in "yx")
        drawn.append(windows[every, :, row, column])
    patches = torch.cat(drawn)
    patches = patches - patches.mean((1, 2, 3), keepdim=True)
    variance = patches.square().mean((1, 2, 3), keepdim=True)
    return (patches / (variance + 1.5e-4).sqrt())[variance.flatten() > 4e-4]


def moments(maps: torch.Tensor, power: float, kept: int) -> Tensors:
    """Return what whitens maps (N, channels, cells): mean, Kronecker axes and gains."""
    mean = maps.mean(0)
    rows = normalize.unit((maps - mean).flatten(1)).view(maps.shape).double()
    by_channel = torch.einsum("nck,ndk->cd", rows, rows) / len(rows)
    by_cell = torch.einsum("nck,ncl->kl", rows, rows) / len(rows)
    values, axes = torch.linalg.eigh(by_channel)
    cell_values, turns = torch.linalg.eigh(by_cell)
    cell_values = cell_values.clamp_min(0) / cell_values.clamp_min(0).sum()
    products = torch.outer(values.clamp_min(0), cell_values).flatten()
    best = products.argsort(descending=True)[:kept].sort().values
    gain = (products[best] + RIDGE) ** -power
    energy = products[best] * gain**2
    cells = len(turns)
    used, place = (best // cells).unique(return_inverse=True)
    found = {
        "mean": mean,
        "axes": axes[:, used].half(),
        "turns": turns.float(),
        "kept": place * cells + best % cells,
        "gain": gain.float(),
        "largest": (energy.max() / energy.sum()).float(),
    }
    return {name: value.contiguous() for name, value in found.items()}
