from __future__ import annotations

import numpy as np
import pytest
import torch

from simplexdp.data.augment import augment

BOTH = ("random_crop", "horizontal_flip")
SHIFT = ("random_shift", "horizontal_flip")


def one_by_one(
    batch: torch.Tensor, names: tuple[str, ...], rng: np.random.Generator
) -> torch.Tensor:
    """The oracle: each image by slicing, with the same draws in the same order."""
    n, channels, height, width = batch.shape
    by = 2 if "random_shift" in names else 4
    top, left = np.full(n, by), np.full(n, by)
    if {"random_crop", "random_shift"} & set(names):
        top, left = (offsets[:, 0] for offsets in rng.integers(0, 2 * by + 1, size=(2, n, 1)))
    flip = rng.random((n, 1))[:, 0] < 0.5 if "horizontal_flip" in names else np.zeros(n, bool)
    images = []
    for i in range(n):
        black = 0 if batch.dtype == torch.uint8 else -1.0
        canvas = torch.full((channels, height + 2 * by, width + 2 * by), black, dtype=batch.dtype)
        canvas[:, by : by + height, by : by + width] = batch[i]
        window = canvas[:, top[i] : top[i] + height, left[i] : left[i] + width]
        images.append(torch.flip(window, dims=(2,)) if flip[i] else window)
    return torch.stack(images)


def pictures(n: int, channels: int, height: int, width: int) -> torch.Tensor:
    shape = (n, channels, height, width)
    return torch.from_numpy(np.random.default_rng(1).integers(1, 256, shape, dtype=np.uint8))


@pytest.mark.parametrize("names", [BOTH, BOTH[:1], BOTH[1:], BOTH[::-1], SHIFT, SHIFT[:1], ()])
@pytest.mark.parametrize("shape", [(7, 3, 32, 32), (5, 1, 28, 28), (3, 2, 6, 9), (1, 1, 1, 1)])
def test_agrees_with_a_loop_over_the_images(
    names: tuple[str, ...], shape: tuple[int, int, int, int]
) -> None:
    batch = pictures(*shape)
    got = augment(batch, names, np.random.default_rng(5))
    wanted = one_by_one(batch, names, np.random.default_rng(5))
    assert got.dtype == torch.uint8
    assert torch.equal(got, wanted)


def test_float_images_keep_their_type_and_their_black() -> None:
    batch = pictures(4, 3, 8, 8).double() / 127.5 - 1.0
    got = augment(batch, BOTH, np.random.default_rng(0))
    assert got.dtype == torch.float64
    assert torch.equal(got, one_by_one(batch, BOTH, np.random.default_rng(0)))


def test_the_given_batch_is_left_alone() -> None:
    batch = pictures(4, 3, 8, 8)
    before = batch.clone()
    augment(batch, BOTH, np.random.default_rng(0))
    assert torch.equal(batch, before)


def test_every_window_and_both_directions_are_equally_likely() -> None:
    # One bright pixel in the middle of 9×9: where it lands tells the offset; a marker beside it
    # tells the direction. 81·2 cells, 32,400 images: mean 200 a cell, six standard deviations is
    # 84.6, so each cell fails with probability below 4e-9 and any of 162 below 1e-6.
    n = 32_400
    batch = torch.zeros((n, 2, 9, 9), dtype=torch.uint8)
    batch[:, 0, 4, 4] = 1
    batch[:, 1, :, :] = torch.arange(1, 10, dtype=torch.uint8)
    got = augment(batch, BOTH, np.random.default_rng(11))
    place = got[:, 0].reshape(n, 81).argmax(dim=1)
    # Channel 1 grows along the row, up to the padding's zeros; flipped, it falls.
    steps = got[:, 1].to(torch.int64).diff(dim=2)
    flipped = (steps == -1).sum(dim=(1, 2)) > (steps == 1).sum(dim=(1, 2))
    counts = np.bincount((place * 2 + flipped).numpy(), minlength=162)
    assert counts.size == 162
    assert np.abs(counts - 200).max() < 85


def test_the_eight_symmetries_of_the_square_are_equally_likely() -> None:
    # 8,000 images: 1,000 a symmetry, six standard deviations are 178.
    n = 8000
    corner = torch.arange(9, dtype=torch.uint8).reshape(1, 1, 3, 3)
    got = augment(corner.repeat(n, 1, 1, 1), ("dihedral",), np.random.default_rng(3))
    turned = [torch.rot90(m, k, (2, 3)) for m in (corner, corner.flip(3)) for k in range(4)]
    counts = [int((got == one).flatten(1).all(1).sum()) for one in turned]
    assert sum(counts) == n
    assert max(abs(count - 1000) for count in counts) < 178


@pytest.mark.parametrize(
    ("names", "match"),
    [(("random_crop", "random_shift"), "both move"), (("dihedral",), "square images")],
)
def test_what_does_not_fit_is_refused(names: tuple[str, ...], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        augment(pictures(1, 1, 8, 6), names, np.random.default_rng(0))


def test_an_empty_batch_passes() -> None:
    batch = torch.zeros((0, 3, 32, 32), dtype=torch.uint8)
    assert augment(batch, BOTH, np.random.default_rng(0)).shape == batch.shape


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'cutout'.*random_crop or random_shift or"):
        augment(pictures(1, 1, 8, 8), ("cutout",), np.random.default_rng(0))


def test_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match=r"need images.*shape \(5,\)"):
        augment(torch.zeros((3, 5)), ("random_crop",), np.random.default_rng(0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_gives_the_same() -> None:
    batch = pictures(6, 3, 32, 32)
    on_gpu = augment(batch.cuda(), BOTH, np.random.default_rng(2)).cpu()
    assert torch.equal(on_gpu, augment(batch, BOTH, np.random.default_rng(2)))
