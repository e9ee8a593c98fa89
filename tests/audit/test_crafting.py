"""What is planted is what the tests of the attacks rely on."""

from __future__ import annotations

import numpy as np
import pytest

from simplexdp import data
from simplexdp.audit import crafting


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def test_a_subset_is_in_the_models_scale_and_keeps_labels(images: data.Dataset) -> None:
    small = crafting.subset(images, 50, rng())
    assert len(small.train) == 50
    assert small.train.inputs.dtype == np.float32
    pool = images.train.inputs.reshape(120, -1)
    for x, y in zip(small.train.inputs.reshape(50, -1), small.train.labels, strict=True):
        match = np.flatnonzero((pool == x).all(axis=1))
        assert y in images.train.labels[match]
    with pytest.raises(ValueError, match="121 records"):
        crafting.subset(images, 121, rng())


def test_bytes_are_scaled_as_for_training() -> None:
    bytes_ = np.array([0, 255, 51], dtype=np.uint8).reshape(3, 1, 1, 1)
    split = data.Split(bytes_, np.zeros(3, dtype=np.int64))
    small = crafting.subset(data.Dataset("b", split, split, None, ("a", "b")), None, rng())
    assert small.train.inputs.ravel() == pytest.approx([-1.0, 1.0, -0.6])


def test_only_the_first_input_tells_the_two_pixels_apart(images: data.Dataset) -> None:
    planted = crafting.unlit_pixel(images, rng())
    (pair,) = planted.pairs
    i, j = pair.pixels
    without, with_it = (
        planted.with_coins([coin]).train.inputs.reshape(120, -1) for coin in (False, True)
    )
    assert (without[:, i] == without[:, j]).all()
    differs = with_it[:, i] != with_it[:, j]
    assert np.flatnonzero(differs).tolist() == [pair.record]
    assert pair.label == images.train.labels[pair.record]
    # All other records keep everything but the two pixels.
    kept = np.setdiff1d(np.arange(36), [i, j])
    others = np.arange(120) != pair.record
    assert (with_it[others][:, kept] == images.train.inputs.reshape(120, -1)[others][:, kept]).all()


def test_opposites_have_pixels_of_their_own_or_labels_of_their_own(images: data.Dataset) -> None:
    planted = crafting.opposites(images, 30, rng())
    assert len(planted.pairs) == 30
    assert len({pair.record for pair in planted.pairs}) == 30
    assert len({(pair.pixels, pair.label) for pair in planted.pairs}) == 30
    background = planted.dataset.train.inputs.reshape(120, -1)
    for pair in planted.pairs:
        assert (pair.first == -pair.second).all()
        assert np.count_nonzero(pair.first) == 2
        i, j = pair.pixels
        assert (background[:, i] == background[:, j]).all()
    coins = rng().random(30) < 0.5
    trained = planted.with_coins(coins).train
    assert (trained.labels == images.train.labels).all()
    for pair, coin in zip(planted.pairs, coins, strict=True):
        assert (trained.inputs[pair.record] == (pair.first if coin else pair.second)).all()


def test_more_canaries_than_there_is_room_for_are_refused(images: data.Dataset) -> None:
    with pytest.raises(ValueError, match="room for 72"):
        crafting.opposites(images, 73, rng())


@pytest.mark.parametrize("removed", [True, False])
def test_a_canary_that_is_out_is_zeroed_or_removed(images: data.Dataset, removed: bool) -> None:
    planted = crafting.contrasts(images, 2, rng()).in_or_out(removed)
    inside, outside = planted.pairs
    train = planted.with_coins([True, False]).train
    assert (train.labels == images.train.labels).all()
    assert (train.inputs[inside.record] == inside.first).all()
    assert not train.inputs[outside.record].any()
    assert planted.without([True, False]) == ({outside.record} if removed else set())
    assert planted.without([True, True]) == set()


def test_blank_images_are_zero_but_for_the_canary(images: data.Dataset) -> None:
    planted = crafting.blank_images(images, rng())
    inputs = planted.with_coins([True]).train.inputs
    assert np.flatnonzero(np.abs(inputs).reshape(120, -1).sum(axis=1)).tolist() == [
        planted.pairs[0].record
    ]
    assert not planted.with_coins([False]).train.inputs.any()
