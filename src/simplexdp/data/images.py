"""A folder of images by class as arrays: `root/<class>/*.png`, or `root/<class>/<person>/*.png`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from simplexdp import files
from simplexdp.data.dataset import Array, DataError

SUFFIXES = (".png", ".jpg", ".jpeg")
UNREAD = (".tif", ".tiff", ".dcm", ".bmp", ".gif", ".webp", ".jp2", ".npy")  # images all the same
MOST_PIXELS = 10_000  # on a side
Size = tuple[int, int, int]


def parse_size(option: int | str | tuple[int, ...]) -> Size:
    """Parse 28, "28", "28x32" or "28x32x1": height, width and channels (3 unless said)."""
    parts = option if isinstance(option, tuple) else tuple(str(option).lower().split("x"))
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) == 1:
        numbers *= 2
    if len(numbers) == 2:
        numbers.append(3)
    there = len(numbers) == 3 and numbers[2] in (1, 3)
    if not there or not 1 <= min(numbers) <= max(numbers) <= MOST_PIXELS:
        raise DataError(
            f"cannot read the image size {option!r}: write 28, 28x32 or 28x32x1 (1 or 3 channels, "
            f"sides of at most {MOST_PIXELS})"
        )
    return numbers[0], numbers[1], numbers[2]


def class_folders(root: Path) -> dict[str, list[Path]]:
    """Return the image files of each class, by folder name."""
    folders = [
        folder
        for folder in sorted(root.iterdir())
        if folder.is_dir() and not folder.name.startswith(".")
    ]
    if len(folders) < 2:
        raise DataError(f"{root} needs one folder of images for each of at least two classes")
    return {folder.name: _of_class(folder) for folder in folders}


def _of_class(folder: Path) -> list[Path]:
    """Return the image files of a class: its own, or those in its folders, one a person."""
    people = [f for f in sorted(folder.iterdir()) if f.is_dir() and not f.name.startswith(".")]
    if not people or any(f.suffix.lower() in SUFFIXES for f in folder.iterdir()):
        return files_in(folder)
    return [file for person in people for file in files_in(person)]


def persons(files: dict[str, list[Path]], root: Path) -> list[str] | None:
    """Return whose each image is, by the name of its folder; None without folders of persons."""
    deep = [path.parent.parent != root for paths in files.values() for path in paths]
    if not any(deep):
        return None
    if not all(deep):
        raise DataError(f"{root} has folders of persons in some classes alone; give all of them")
    return [path.parent.name for paths in files.values() for path in paths]


def files_in(folder: Path) -> list[Path]:
    """Return the image files of one folder, by name; refuse what cannot be read."""
    listed = sorted(folder.iterdir())
    where = f"the folder {folder.name} in {folder.parent.name}"
    if unread := sum(file.suffix.lower() in UNREAD for file in listed):
        raise DataError(
            f"{where} holds {unread} images that are neither PNG nor JPEG: convert them, or take "
            "them away"
        )
    found = [file for file in listed if file.suffix.lower() in SUFFIXES]
    for file in found:
        files.check_ordinary(file, "take it away")
    if not found:
        raise DataError(f"{where} holds no {', '.join(s[1:] for s in SUFFIXES)} images")
    return found


def _where(name: str, position: int) -> str:
    return f"image {position + 1} of class {name} (by file name)"


def _open(path: Path, where: str, size: Size, resize: bool) -> Array:
    height, width, channels = size
    try:
        with Image.open(path, formats=["PNG", "JPEG"]) as picture:
            if picture.mode.startswith(("I", "F")):
                raise DataError(f"{where} has more than 8 bits a channel: convert it first")
            if not resize and picture.size != (width, height):
                raise DataError(
                    f"{where} differs in size from the first image: "
                    "give --image-size to scale all to one size"
                )
            pixels = picture.convert("L" if channels == 1 else "RGB")
            if pixels.size != (width, height):
                pixels = pixels.resize((width, height), Image.Resampling.BILINEAR)
            array = np.asarray(pixels, dtype=np.uint8)
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise DataError(f"{where} is not a complete PNG or JPEG ({type(error).__name__})") from None
    return array[None] if channels == 1 else array.transpose(2, 0, 1)


def size_of_first(files: dict[str, list[Path]]) -> Size:
    """Return size and channels of the first file, where the user names none."""
    name, paths = next(iter(files.items()))
    first = paths[0]
    try:
        with Image.open(first, formats=["PNG", "JPEG"]) as picture:
            grey = picture.mode in ("1", "L")
            return picture.height, picture.width, 1 if grey else 3
    except (OSError, SyntaxError, Image.DecompressionBombError):
        raise DataError(f"{_where(name, 0)} is not a complete PNG or JPEG") from None


def read_images(files: dict[str, list[Path]], size: Size, resize: bool) -> tuple[Array, list[str]]:
    """Return the images, uint8 (N, C, H, W), with the class of each."""
    pictures = [
        _open(path, _where(name, position), size, resize)
        for name, paths in files.items()
        for position, path in enumerate(paths)
    ]
    labels = [name for name, paths in files.items() for _ in paths]
    return np.stack(pictures), labels
