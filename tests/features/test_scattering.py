"""The scattering transform against a direct computation in space, pixel by pixel."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from simplexdp.features import scattering


def direct_gabor(side: int, sigma: float, theta: float, xi: float, slant: float) -> np.ndarray:
    """The filter from its definition: a rotated Gaussian with a wave along its short axis."""
    out = np.zeros((side, side), dtype=complex)
    for x in range(-2 * side, 3 * side):
        for y in range(-2 * side, 3 * side):
            along = x * math.cos(theta) + y * math.sin(theta)
            across = -x * math.sin(theta) + y * math.cos(theta)
            bell = math.exp(-(along**2 + slant**2 * across**2) / (2 * sigma**2))
            out[x % side, y % side] += bell * np.exp(1j * xi * along)
    return out * slant / (2 * math.pi * sigma**2)


def direct_morlet(side: int, sigma: float, theta: float, xi: float, slant: float) -> np.ndarray:
    wave = direct_gabor(side, sigma, theta, xi, slant)
    bell = direct_gabor(side, sigma, theta, 0.0, slant)
    return wave - wave.sum() / bell.sum() * bell


def circular(image: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Circular convolution as a sum of shifts, without any Fourier transform."""
    side = len(image)
    out = np.zeros((side, side), dtype=complex)
    for i in range(side):
        for j in range(side):
            out += kernel[i, j] * np.roll(image, (i, j), axis=(0, 1))
    return out


def direct_scatter(image: np.ndarray, angles: int) -> np.ndarray:
    """J = 2 scattering in space: filter at full size, take every second or fourth cell."""
    side = ((len(image) + 4) // 4 + 1) * 4
    before = (side - len(image)) // 2
    padded = np.pad(image, (before, side - len(image) - before), mode="reflect")
    low = direct_gabor(side, 1.6, 0.0, 0.0, 1.0).real
    half = np.zeros((side // 2, side // 2))
    half[:] = 4 * low[::2, ::2]
    turns = [(int(angles - angles / 2 - 1) - k) * math.pi / angles for k in range(angles)]

    def waves(source: np.ndarray, j: int) -> list[np.ndarray]:
        return [
            np.abs(
                circular(
                    source,
                    direct_morlet(side, 0.8 * 2**j, turn, 0.75 * math.pi / 2**j, 4 / angles),
                )
            )
            for turn in turns
        ]

    def inner(map_: np.ndarray) -> np.ndarray:
        return map_[1:-1, 1:-1]

    fine = waves(padded, 0)
    coarse = [wave[::2, ::2] for wave in waves(padded, 1)]
    out = [inner(circular(padded, low).real[::4, ::4])]
    out += [inner(circular(wave, low).real[::4, ::4]) for wave in fine]
    out += [inner(circular(wave, half).real[::2, ::2]) for wave in coarse]
    for wave in fine:
        out += [inner(circular(second[::2, ::2], half).real[::2, ::2]) for second in waves(wave, 1)]
    return np.stack(out)


def test_equals_direct_computation_in_space() -> None:
    image = np.random.default_rng(3).random((8, 8))
    want = direct_scatter(image, angles=3)
    got = scattering.scatter(torch.from_numpy(image)[None, None], scales=2, angles=3)[0].numpy()
    assert got.shape == want.shape == (1 + 6 + 9, 2, 2)
    np.testing.assert_allclose(got, want, atol=2e-6)


@pytest.mark.parametrize(("shape", "want"), [((1, 28, 28), (81, 7, 7)), ((3, 32, 32), (243, 8, 8))])
def test_shapes_are_those_of_kymatio(shape: tuple[int, ...], want: tuple[int, ...]) -> None:
    assert scattering.scatter(torch.zeros(2, *shape)).shape == (2, *want)


def test_a_constant_image_has_no_wavelet_response() -> None:
    out = scattering.scatter(torch.full((1, 1, 28, 28), 0.7))[0]
    assert torch.allclose(out[0], torch.full((7, 7), 0.7), atol=1e-3)
    assert float(out[1:].abs().max()) < 1e-5


def test_a_record_is_mapped_by_itself() -> None:
    rng = torch.Generator().manual_seed(0)
    images = torch.rand(3, 1, 28, 28, generator=rng)
    alone = scattering.scatter(images[:1])
    assert torch.allclose(scattering.scatter(images)[:1], alone, atol=1e-6)


def test_colour_channels_are_transformed_apart() -> None:
    rng = torch.Generator().manual_seed(0)
    image = torch.rand(1, 3, 16, 16, generator=rng)
    each = [scattering.scatter(image[:, c : c + 1]) for c in range(3)]
    assert torch.allclose(scattering.scatter(image), torch.cat(each, dim=1), atol=1e-6)
