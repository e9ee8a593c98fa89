from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simplexdp import data
from simplexdp.data.images import parse_size


def write(root: Path, per_class: int = 10, size: tuple[int, int] = (6, 4), seed: int = 0) -> Path:
    """Grey PNGs whose first pixel tells the class."""
    rng = np.random.default_rng(seed)
    for value, name in enumerate(("cat", "dog", "owl")):
        folder = root / name
        folder.mkdir(parents=True)
        for k in range(per_class):
            pixels = rng.integers(0, 256, size, dtype=np.uint8)
            pixels[0, 0] = value
            Image.fromarray(pixels).save(folder / f"{k:03}.png")
    return root


def test_a_folder_by_class(tmp_path: Path) -> None:
    dataset = data.load(write(tmp_path / "pets"))
    assert dataset.class_names == ("cat", "dog", "owl")
    assert dataset.input_shape == (1, 6, 4)
    assert dataset.train.inputs.dtype == np.uint8
    assert (len(dataset.train), len(dataset.test)) == (24, 6)
    for split in (dataset.train, dataset.test):
        assert np.array_equal(split.inputs[:, 0, 0, 0], split.labels)
    assert dataset.computed_from_data == ("the image size 6×4×1 (that of the first image)",)


def test_a_given_size_reads_nothing(tmp_path: Path) -> None:
    root = write(tmp_path / "pets")
    Image.new("RGB", (50, 70)).save(root / "cat" / "large.jpg")
    with pytest.raises(ValueError, match=r"image 11 of class cat .* differs in size"):
        data.load(root)
    dataset = data.load(root, image_size="8x5")
    assert dataset.input_shape == (3, 8, 5)
    assert dataset.computed_from_data == ()
    assert data.load(root, image_size="8x5x1").input_shape == (1, 8, 5)


def test_folders_train_and_test_are_a_split(tmp_path: Path) -> None:
    write(tmp_path / "pets" / "train")
    write(tmp_path / "pets" / "test", per_class=4, seed=1)
    dataset = data.load(tmp_path / "pets")
    assert (len(dataset.train), len(dataset.test)) == (30, 12)
    other = write(tmp_path / "other", per_class=2, seed=2)
    assert len(data.load(tmp_path / "pets", test=other).test) == 6


def test_a_broken_image_is_named_by_place(tmp_path: Path) -> None:
    root = write(tmp_path / "pets")
    target = root / "dog" / "003.png"
    target.write_bytes(target.read_bytes()[:40])
    with pytest.raises(ValueError, match=r"image 4 of class dog .*not a complete PNG"):
        data.load(root, image_size=8)


def test_deep_images_are_not_cut_silently(tmp_path: Path) -> None:
    root = write(tmp_path / "pets")
    Image.fromarray(np.full((6, 4), 40_000, dtype=np.uint16)).save(root / "owl" / "zz.png")
    with pytest.raises(ValueError, match=r"image 11 of class owl .*more than 8 bits"):
        data.load(root, image_size="6x4x1")


def test_folders_that_are_no_classes(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(ValueError, match="at least two classes"):
        data.load(tmp_path / "one")
    root = write(tmp_path / "pets")
    (root / "empty").mkdir()
    with pytest.raises(ValueError, match="the folder empty in pets holds no"):
        data.load(root)


def test_sizes() -> None:
    assert parse_size(28) == parse_size("28") == parse_size("28x28x3") == (28, 28, 3)
    assert parse_size((4, 5, 1)) == parse_size("4x5x1") == (4, 5, 1)
    for wrong in ("a", "0", "4x5x2", "1x2x3x4", "-3", "99999999"):
        with pytest.raises(ValueError, match="cannot read the image size"):
            parse_size(wrong)


def test_images_of_another_format_are_not_skipped(tmp_path: Path) -> None:
    root = write(tmp_path / "pets")
    Image.fromarray(np.zeros((6, 4), dtype=np.uint8)).save(root / "owl" / "Anna.TIF", "TIFF")
    with pytest.raises(ValueError, match="owl in pets holds 1 images that are neither") as found:
        data.load(root, image_size="6x4x1")
    assert "Anna" not in str(found.value)
