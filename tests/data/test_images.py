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
    dataset = data.load(write(tmp_path / "pets"), image_size="6x4x1")
    assert dataset.class_names == ("cat", "dog", "owl")
    assert dataset.input_shape == (1, 6, 4)
    assert dataset.train.inputs.dtype == np.uint8
    assert (len(dataset.train), len(dataset.test)) == (24, 6)
    for split in (dataset.train, dataset.test):
        assert np.array_equal(split.inputs[:, 0, 0, 0], split.labels)
    assert dataset.computed_from_data == ()


def test_the_size_is_asked_for_and_nothing_is_read(tmp_path: Path) -> None:
    root = write(tmp_path / "pets")
    Image.new("RGB", (50, 70)).save(root / "cat" / "large.jpg")
    with pytest.raises(ValueError, match=r"pets needs the size .* --image-size 6x4x1 \(that of"):
        data.load(root)
    dataset = data.load(root, image_size="8x5")
    assert dataset.input_shape == (3, 8, 5)
    assert dataset.computed_from_data == ()
    assert data.load(root, image_size="8x5x1").input_shape == (1, 8, 5)


def test_folders_train_and_test_are_a_split(tmp_path: Path) -> None:
    write(tmp_path / "pets" / "train")
    write(tmp_path / "pets" / "test", per_class=4, seed=1)
    dataset = data.load(tmp_path / "pets", image_size="6x4x1")
    assert (len(dataset.train), len(dataset.test)) == (30, 12)
    other = write(tmp_path / "other", per_class=2, seed=2)
    assert len(data.load(tmp_path / "pets", image_size="6x4x1", test=other).test) == 6


def test_a_broken_image_is_named_by_place(tmp_path: Path) -> None:
    root = write(tmp_path / "pets")
    target = root / "dog" / "003.png"
    target.write_bytes(target.read_bytes()[:40])
    with pytest.raises(ValueError, match=r"image 4 of class dog .*not a complete PNG"):
        data.load(root, image_size=8)


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
    Image.fromarray(np.zeros((6, 4), dtype=np.uint8)).save(root / "owl" / "Anna.BMP", "BMP")
    with pytest.raises(ValueError, match="owl in pets holds 1 images that are not PNG") as found:
        data.load(root, image_size="6x4x1")
    assert "Anna" not in str(found.value)


def grown(root: Path, **files: Image.Image) -> Path:
    """Add one file a class to the folder; `cat__png` is cat/zz.png."""
    for name, picture in files.items():
        folder, _, suffix = name.partition("__")
        picture.save(root / folder / f"zz.{suffix}", **picture.info)
    return root


def last(dataset: data.Dataset, root: Path) -> np.ndarray:
    """The pixels of cat/zz, read as the data set's images were."""
    assert dataset.preprocessing is not None
    (path,) = (root / "cat").glob("zz.*")
    return dataset.preprocessing.inputs(path)[0]


def test_sixteen_bits_by_their_range_or_by_a_window(tmp_path: Path) -> None:
    values = np.array([[0, 1000, 2000, 65535]] * 6, dtype=np.uint16)
    for suffix in ("png", "tif"):
        root = grown(write(tmp_path / suffix), **{f"cat__{suffix}": Image.fromarray(values)})
        whole = last(data.load(root, image_size="6x4x1"), root)
        assert whole[0, 0].tolist() == [0, 4, 8, 255]  # x · 255 / 65535
        window = last(data.load(root, image_size="6x4x1", window="1000:2000"), root)
        assert window[0, 0].tolist() == [0, 0, 255, 255]
        assert window[0, 5].tolist() == [0, 0, 255, 255]


def test_numbers_of_32_bits_need_a_window(tmp_path: Path) -> None:
    values = np.array([[-1.5, 0.0, 0.5, 1.5]] * 6, dtype=np.float32)
    root = grown(write(tmp_path / "pets"), cat__tif=Image.fromarray(values))
    with pytest.raises(ValueError, match=r"image 11 of class cat .* with --window low:high"):
        data.load(root, image_size="6x4x1")
    found = last(data.load(root, image_size="6x4x1", window=(-1.0, 1.0)), root)
    assert found[0, 0].tolist() == [0, 128, 191, 255]
    values[2, 2] = np.nan
    grown(root, cat__tif=Image.fromarray(values))
    with pytest.raises(ValueError, match="no finite numbers"):
        data.load(root, image_size="6x4x1", window="-1:1")
    with pytest.raises(ValueError, match="the bounds of the window need finite lo < hi"):
        data.load(root, image_size="6x4x1", window="1:-1")


def test_a_file_of_several_pages_is_refused(tmp_path: Path) -> None:
    pages = [Image.new("L", (4, 6), k) for k in range(2)]
    pages[0].info.update(save_all=True, append_images=pages[1:])
    root = grown(write(tmp_path / "pets"), cat__tiff=pages[0])
    with pytest.raises(ValueError, match=r"image 11 of class cat .* has 2 pages: give one"):
        data.load(root, image_size="6x4x1")


def test_one_warning_counts_what_was_converted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write(tmp_path / "pets")
    data.load(root, image_size="6x4x1")
    assert capsys.readouterr().err == ""
    grown(
        root,
        cat__png=Image.new("RGB", (4, 6)),
        dog__png=Image.new("RGBA", (8, 6)),
        owl__tif=Image.fromarray(np.zeros((6, 4), dtype=np.uint16)),
    )
    data.load(root, image_size="6x4x1")
    assert capsys.readouterr().err == (
        "simplexdp: converted: 1 brought from 16 or more bits to 8, 1 freed of transparency, "
        "1 stretched to other proportions, 2 turned from color to gray\n"
    )
    data.load(root, image_size="6x4")
    assert "31 turned from gray to color" in capsys.readouterr().err  # 30, and the deep one


def test_a_photograph_stands_upright(tmp_path: Path) -> None:
    lying = Image.fromarray(np.arange(24, dtype=np.uint8).reshape(4, 6))
    exif = lying.getexif()
    exif[0x0112] = 6  # turn by 90° clockwise to see it
    lying.info["exif"] = exif
    root = grown(write(tmp_path / "pets"), cat__png=lying)
    found = last(data.load(root, image_size="6x4x1"), root)
    assert np.array_equal(found[0], np.rot90(np.arange(24).reshape(4, 6), -1))


def people(root: Path, per_person: int = 3) -> Path:
    """Two classes; persons 0 to 4 in one, 3 to 9 in the other, their pixels all their number."""
    for name, numbers in (("ill", range(5)), ("well", range(3, 10))):
        for person in numbers:
            folder = root / name / f"p{person}"
            folder.mkdir(parents=True)
            for k in range(per_person):
                Image.fromarray(np.full((4, 4), person, dtype=np.uint8)).save(folder / f"{k}.png")
    return root


def test_folders_of_persons_are_groups_that_no_split_divides(tmp_path: Path) -> None:
    dataset = data.load(people(tmp_path / "scans"), image_size="4x4x1")
    assert dataset.class_names == ("ill", "well")
    assert len(dataset.train) + len(dataset.test) == 36
    sides = []
    for split in (dataset.train, dataset.test):
        assert split.groups is not None
        pixels = split.inputs[:, 0, 0, 0]
        assert len(set(zip(pixels, split.groups, strict=True))) == len(set(pixels))
        assert set(split.labels) == {0, 1}
        sides.append(set(split.groups))
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 10  # p3 and p4 are one person each, though in two classes
    assert "no person divided" in dataset.provenance[0]


def test_persons_are_everywhere_or_nowhere(tmp_path: Path) -> None:
    root = people(tmp_path / "scans")
    Image.new("L", (4, 4)).save(root / "ill" / "Anna.png")
    with pytest.raises(ValueError, match="ill in scans holds images both beside and in folders"):
        data.load(root, image_size="4x4x1")
    (root / "ill" / "Anna.png").unlink()
    (root / "new").mkdir()
    Image.new("L", (4, 4)).save(root / "new" / "0.png")
    with pytest.raises(ValueError, match="folders of persons in some classes alone"):
        data.load(root, image_size="4x4x1")
