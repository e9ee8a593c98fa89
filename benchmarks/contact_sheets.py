"""Contact sheets for the guide: a row of training images a class.

    python benchmarks/contact_sheets.py FOLDER [--allow-unverified]

writes one PNG for each set that is present, and says "not present" for the others.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from simplexdp.data.catalog import describe, load_named, names
from simplexdp.data.dataset import Array, Dataset

PER_CLASS = 8
SMALL = 16


def contact_sheet(dataset: Dataset, per_class: int = PER_CLASS) -> Array:
    """The first images of each class, one class a row: uint8 (height, width, channels)."""
    channels, height, width = dataset.input_shape
    rows = []
    for label in range(dataset.classes):
        chosen = np.flatnonzero(dataset.train.labels == label)[:per_class]
        row = np.zeros((per_class, channels, height, width), dtype=np.uint8)
        row[: len(chosen)] = _as_bytes(dataset.train.inputs[chosen])
        rows.append(row.transpose(2, 0, 3, 1).reshape(height, per_class * width, channels))
    return np.concatenate(rows)


def _as_bytes(images: Array) -> Array:
    """Bytes as they are; floats in [-1, 1] as bytes."""
    if images.dtype == np.uint8:
        return images
    levels: Array = np.rint((np.clip(images, -1.0, 1.0) + 1.0) * 127.5).astype(np.uint8)
    return levels


def write_sheet(dataset: Dataset, path: Path) -> None:
    """A contact sheet as PNG; tiny images are enlarged pixel by pixel."""
    sheet = contact_sheet(dataset)
    picture = Image.fromarray(sheet[:, :, 0] if sheet.shape[2] == 1 else sheet)
    if dataset.input_shape[1] < SMALL:
        picture = picture.resize((3 * picture.width, 3 * picture.height), Image.Resampling.NEAREST)
    picture.save(path, optimize=True)


def main(arguments: list[str] | None = None) -> None:
    """One sheet a set, into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--allow-unverified", action="store_true")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in names():
        status = describe(name)["status"]
        if status in ("built in", "present") or (
            status == "present, not verified" and options.allow_unverified
        ):
            dataset = load_named(name, allow_unverified=options.allow_unverified)
            write_sheet(dataset, options.folder / f"{name}.png")
            print(f"{name}: {'; '.join(dataset.provenance)}")
        else:
            print(f"{name}: {status}")


if __name__ == "__main__":
    main()
