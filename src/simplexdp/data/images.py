"""Image files as arrays of bytes: PNG, JPEG, TIFF and DICOM, by class and perhaps by person."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from simplexdp import files
from simplexdp.data import medical
from simplexdp.data.dataset import Array, DataError
from simplexdp.data.schema import Bounds, checked_bounds, to_unit

SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", *medical.SUFFIXES)
FORMATS = ("PNG", "JPEG", "TIFF")
UNREAD = (".bmp", ".gif", ".webp", ".jp2", ".npy", ".nii", ".gz")  # images all the same
# What Pillow raises for files that are damaged.
DAMAGED = (OSError, SyntaxError, ValueError, KeyError, TypeError, struct.error,
           Image.DecompressionBombError)  # fmt: skip
MOST_PIXELS = 10_000  # on a side
MOST_STRETCH = 1.02
Size = tuple[int, int, int]


@dataclass(frozen=True)
class Form:
    """How every image is brought to bytes of one size.

    Attributes:
        size: Height, width and channels.
        window: Values that become 0 and 255, for images of more than 8 bits a channel.
    """

    size: Size
    window: Bounds | None = None


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


def parse_window(option: str | tuple[float, float] | None) -> Bounds | None:
    """Parse "-160:240": the values that become black and white."""
    if option is None:
        return None
    low, _, high = option.partition(":") if isinstance(option, str) else (option[0], "", option[1])
    return checked_bounds("the window", low, high)


def class_folders(root: Path) -> dict[str, list[Path]]:
    """Return the image files of each class, by folder name."""
    folders = _folders(root)
    if len(folders) < 2:
        raise DataError(f"{root} needs one folder of images for each of at least two classes")
    return {folder.name: files_in(folder) for folder in folders}


def persons(files: dict[str, list[Path]], root: Path) -> list[str] | None:
    """Return whose each image is, by the name of its folder; None without folders of persons."""
    deep = [path.parent.parent != root for paths in files.values() for path in paths]
    if not any(deep):
        return None
    if not all(deep):
        raise DataError(f"{root} has folders of persons in some classes alone; give all of them")
    return [path.parent.name for paths in files.values() for path in paths]


def _folders(root: Path) -> list[Path]:
    listed = sorted(root.iterdir())
    return [path for path in listed if path.is_dir() and not path.name.startswith(".")]


def files_in(folder: Path) -> list[Path]:
    """Return the image files of one folder, by name, or of the folders of persons in it.

    What cannot be read is refused.
    """
    listed, persons = sorted(folder.iterdir()), _folders(folder)
    where = f"the folder {folder.name} in {folder.parent.name}"
    there = [path for path in listed if not path.is_dir()]
    listed = [*there, *(path for person in persons for path in sorted(person.iterdir()))]
    if unread := sum(path.suffix.lower() in UNREAD for path in listed):
        raise DataError(
            f"{where} holds {unread} images that are not PNG, JPEG, TIFF or DICOM: convert them, "
            "or take them away"
        )
    found = [path for path in listed if path.suffix.lower() in SUFFIXES]
    for path in found:
        files.check_ordinary(path, "take it away")
    if not found:
        raise DataError(f"{where} holds no {', '.join(s[1:] for s in SUFFIXES)} images")
    if persons and any(path.parent == folder for path in found):
        raise DataError(
            f"{where} holds images both beside and in folders: give every person a folder, or none"
        )
    return found


def to_bytes(picture: Image.Image, form: Form, where: str, seen: Counter[str]) -> Array:
    """Return a picture as uint8 (C, H, W), and count in `seen` what had to be converted."""
    height, width, channels = form.size
    picture = _eight_bits(ImageOps.exif_transpose(picture), form.window, where, seen)
    if "A" in picture.getbands() or "transparency" in picture.info:
        seen["freed of transparency"] += 1
    if picture.mode not in ("1", "L", "LA"):
        picture = picture.convert("RGB")
    grey = picture.mode in ("1", "L", "LA")
    if grey != (channels == 1):
        seen["turned from gray to color" if grey else "turned from color to gray"] += 1
    picture = picture.convert("L" if channels == 1 else "RGB")
    if picture.size != (width, height):
        stretch = picture.width * height / (picture.height * width)
        if max(stretch, 1 / stretch) > MOST_STRETCH:
            seen["stretched to other proportions"] += 1
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    array = np.asarray(picture, dtype=np.uint8)
    return array[None] if channels == 1 else array.transpose(2, 0, 1)


def _eight_bits(
    picture: Image.Image, window: Bounds | None, where: str, seen: Counter[str]
) -> Image.Image:
    """Return deep gray values as bytes: by the window, else those of 16 bits by their range."""
    if not picture.mode.startswith(("I", "F")):
        return picture
    sixteen = picture.mode.startswith("I;16") or picture.format == "PNG"  # it has no more
    if window is None and not sixteen:
        raise DataError(
            f"{where} has numbers of more than 16 bits: give the values that become black and "
            "white with --window low:high"
        )
    seen["brought from 16 or more bits to 8"] += 1
    values = np.asarray(picture, dtype=np.float64)
    if not np.isfinite(values).all():
        raise DataError(f"{where} holds values that are no finite numbers: mend or remove it")
    return Image.fromarray(_windowed(values, window or (0.0, 65535.0)))


def _windowed(values: Array, window: Bounds) -> Array:
    return np.rint(255.0 * to_unit(values, *window)).astype(np.uint8)


def read_file(path: Path, form: Form, where: str, seen: Counter[str]) -> Array:
    """Return one image file as uint8 (C, H, W); an error says `where` and shows no name."""
    if path.suffix.lower() in medical.SUFFIXES:
        values, grey, inverted = medical.read(path, where)
        if not grey:
            return to_bytes(Image.fromarray(values), form, where, seen)
        if form.window is None:
            raise DataError(
                f"{where} is a gray DICOM image: give the values that become black and white "
                "with --window low:high, such as -160:240"
            )
        pixels = _windowed(values, form.window)
        return to_bytes(Image.fromarray(255 - pixels if inverted else pixels), form, where, seen)
    try:
        with Image.open(path, formats=FORMATS) as picture:
            if (pages := getattr(picture, "n_frames", 1)) > 1:
                raise DataError(f"{where} has {pages} pages: give one image a file")
            return to_bytes(picture, form, where, seen)
    except DataError:
        raise
    except DAMAGED as error:
        raise DataError(
            f"{where} is not a complete PNG, JPEG or TIFF ({type(error).__name__})"
        ) from None


def suggested_size(path: Path) -> str:
    """Return size and channels of a file, as the option takes them, where it can be read."""
    try:
        if path.suffix.lower() in medical.SUFFIXES:
            values, grey, _ = medical.read(path, "the first image")
            return f"{values.shape[0]}x{values.shape[1]}x{1 if grey else 3}"
        with Image.open(path, formats=FORMATS) as picture:
            grey = picture.mode in ("1", "L", "LA") or picture.mode.startswith(("I", "F"))
            return f"{picture.height}x{picture.width}x{1 if grey else 3}"
    except DAMAGED:
        return "28x28x1"


def read_images(files: dict[str, list[Path]], form: Form, seen: Counter[str]) -> Array:
    """Return the images of each class in order, uint8 (N, C, H, W)."""
    return np.stack(
        [
            read_file(path, form, f"image {k} of class {name} (by file name)", seen)
            for name, paths in files.items()
            for k, path in enumerate(paths, 1)
        ]
    )


def told(seen: Counter[str]) -> str:
    """Return one sentence that counts what was converted."""
    return "converted: " + ", ".join(f"{n:,} {what}" for what, n in sorted(seen.items()))


def by_name(paths: Iterable[Path]) -> list[Path]:
    """Return the image files among paths and below folders, by name."""
    found: list[Path] = []
    for path in paths:
        below = sorted(path.rglob("*")) if path.is_dir() else [path]
        found += [p for p in below if p.is_file() and p.suffix.lower() in SUFFIXES]
    return found
