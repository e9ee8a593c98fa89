"""The 2-D scattering transform of images (Bruna and Mallat, 2013).

Morlet wavelets at ``J`` scales and ``L`` angles, a modulus, and a low-pass filter, twice over. The
filters are Kymatio's: the same formulas, the same reflected border, the same order of the
channels, so that published figures on "ScatterNet features" are on these features. With J = 2 and
L = 8, a 28x28 image becomes (81, 7, 7) and a 32x32 colour image (243, 8, 8).

Formal guarantee
    The map is a function of one image alone: no statistic of any other record enters it. Whatever
    is private about a record's input is as private about its features, and no budget is spent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F

VERSION = "scattering2d-2"


def padded_side(side: int, scales: int) -> int:
    """Return the side after the reflected border: a multiple of 2^J with a cell or more to drop."""
    step = 2**scales
    return int(((side + step) // step + 1) * step)


def output_side(side: int, scales: int) -> int:
    """Return the transform's side: the padded side in cells of 2^J but its first and last."""
    return int(padded_side(side, scales) // 2**scales - 2)


def gabor(
    height: int, width: int, sigma: float, theta: float, xi: float, slant: float
) -> np.ndarray:
    """Return a Gabor function made periodic on the grid, as if tiled over the plane."""
    rotation = np.array([[math.cos(theta), -math.sin(theta)], [math.sin(theta), math.cos(theta)]])
    curvature = rotation @ np.diag([1.0, slant**2]) @ rotation.T / (2 * sigma**2)
    total = np.zeros((height, width), dtype=np.complex128)
    for row in range(-2, 3):
        for column in range(-2, 3):
            x, y = np.mgrid[
                row * height : (row + 1) * height, column * width : (column + 1) * width
            ]
            envelope = (
                curvature[0, 0] * x * x + 2 * curvature[0, 1] * x * y + curvature[1, 1] * y * y
            )
            total += np.exp(-envelope + 1j * xi * (x * math.cos(theta) + y * math.sin(theta)))
    return np.asarray(total * slant / (2 * math.pi * sigma**2))


def morlet(
    height: int, width: int, sigma: float, theta: float, xi: float, slant: float
) -> np.ndarray:
    """Return a Gabor function less the multiple of its envelope that makes its sum zero."""
    wave = gabor(height, width, sigma, theta, xi, slant)
    envelope = gabor(height, width, sigma, theta, 0.0, slant)
    return np.asarray(wave - wave.sum() / envelope.sum() * envelope)


def periodize(spectrum: torch.Tensor, factor: int) -> torch.Tensor:
    """Return the spectrum of a signal sampled every ``factor`` cells: the mean of its aliases."""
    if factor == 1:
        return spectrum
    *lead, height, width = spectrum.shape
    cells = spectrum.reshape(*lead, factor, height // factor, factor, width // factor)
    return cells.mean(dim=(-4, -2))


def lowpass_matrix(side: int, stride: int, sigma: float, drop: int) -> torch.Tensor:
    """Return the Gaussian low-pass along one axis, sampled every ``stride``, less border cells.

    The 2-D low-pass is isotropic, so it is this matrix on the rows and on the columns.
    """
    offsets = np.arange(-2 * side, 3 * side)
    bell = np.exp(-(offsets**2) / (2 * sigma**2)) / (math.sqrt(2 * math.pi) * sigma)
    kernel = bell.reshape(5, side).sum(axis=0)
    centres = np.arange(0, side, stride)[drop : side // stride - drop]
    return torch.from_numpy(kernel[(centres[:, None] - np.arange(side)[None, :]) % side])


@dataclass(frozen=True)
class FilterBank:
    """What is multiplied with: the means over aliases are in the wavelets.

    ``first[j]`` are the wavelets of scale j in the Fourier domain of the padded image,
    ``second[j][k]`` those of scale k for an image that is sampled every 2^j, and ``lowpass[j]``
    the low-pass of such an image, as one matrix on its cells.
    """

    first: tuple[torch.Tensor, ...]
    second: tuple[tuple[torch.Tensor, ...], ...]
    lowpass: tuple[torch.Tensor, ...]


@lru_cache(maxsize=8)
def filter_bank(height: int, width: int, scales: int, angles: int) -> FilterBank:
    """Return the filters for a padded height and width, in single precision."""
    wavelets = []
    for j in range(scales):
        bank = [
            morlet(
                height,
                width,
                0.8 * 2**j,
                (int(angles - angles / 2 - 1) - k) * math.pi / angles,
                0.75 * math.pi / 2**j,
                4.0 / angles,
            )
            for k in range(angles)
        ]
        wavelets.append(torch.from_numpy(np.real(np.fft.fft2(np.stack(bank)))))
    sigma = 0.8 * 2 ** (scales - 1)

    def lowpass(side: int, j: int) -> torch.Tensor:
        # Kymatio low-passes the signal sampled every 2^j with the filter's aliased spectrum, which
        # in space is the filter sampled every 2^j and scaled by 4^j: 2^j along each axis.
        full = lowpass_matrix(side, 2**scales, sigma, 1)
        return torch.as_tensor((full[:, :: 2**j] * 2**j).float())

    return FilterBank(
        tuple((wave / 4**j).float() for j, wave in enumerate(wavelets)),
        tuple(
            tuple((periodize(wavelets[k], 2**j) * 4 ** (2 * j - k)).float() for k in range(scales))
            for j in range(scales)
        ),
        tuple(
            torch.kron(lowpass(height, j), lowpass(width, j)).T.contiguous()
            for j in range(scales + 1)
        ),
    )


def _average(maps: torch.Tensor, bank: FilterBank, j: int) -> torch.Tensor:
    """Return the low-passed maps (…, cells): one product with the Kronecker product of two axes."""
    return maps.flatten(-2) @ bank.lowpass[j]


def _modulus(spectrum: torch.Tensor, wavelets: torch.Tensor, factor: int) -> torch.Tensor:
    """Return |image ⋆ wavelet| sampled every ``factor`` cells, from the spectrum of the image.

    The aliases are multiplied and added one by one: no product of full size is ever held.
    """
    height, width = (side // factor for side in spectrum.shape[-2:])
    total: torch.Tensor | None = None
    for row in range(factor):
        for column in range(factor):
            where = (
                ...,
                slice(row * height, (row + 1) * height),
                slice(column * width, (column + 1) * width),
            )
            alias = spectrum[where].unsqueeze(-3) * wavelets[where]
            total = alias if total is None else total.add_(alias)
    return torch.as_tensor(torch.fft.ifft2(total).abs())


def scatter(images: torch.Tensor, scales: int = 2, angles: int = 8) -> torch.Tensor:
    """Return the scattering transform of float images (N, C, H, W), as (N, C·paths, h, w).

    There are 1 + J·L + L²·J(J−1)/2 paths. They come in Kymatio's order: the zeroth, the first by
    scale and angle, the second by first scale, first angle, second scale, second angle.
    """
    count, _, height, width = images.shape
    tall, wide = padded_side(height, scales), padded_side(width, scales)
    top, left = (tall - height) // 2, (wide - width) // 2
    border = (left, wide - width - left, top, tall - height - top)
    padded = F.pad(images.float(), border, mode="reflect")
    bank = filter_bank(tall, wide, scales, angles)
    spectrum = torch.fft.fft2(padded)
    first: list[torch.Tensor] = []
    second: list[torch.Tensor] = []
    for j in range(scales):
        wave = _modulus(spectrum, bank.first[j], 2**j)
        first.append(_average(wave, bank, j))
        if j + 1 < scales:
            finer = torch.fft.fft2(wave)
            deeper = [
                _average(_modulus(finer, bank.second[j][k], 2 ** (k - j)), bank, k)
                for k in range(j + 1, scales)
            ]
            second.append(torch.stack(deeper, dim=3).flatten(2, 4))
    paths = torch.cat([_average(padded, bank, 0).unsqueeze(2), *first, *second], dim=2)
    return paths.reshape(count, -1, output_side(height, scales), output_side(width, scales))
