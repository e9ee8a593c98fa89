"""Records without labels, read as the training inputs were, by what was declared."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from simplexdp import files
from simplexdp.data import arrays, images, own, tables
from simplexdp.data.dataset import Array, DataError
from simplexdp.data.preprocessing import Preprocessing


def read_path(path: Path, options: own.Options) -> Array:
    """Read new records: one image or a folder of them, X of an .npz, or a table."""
    schema, image_size = options.schema, options.image_size
    files.check_ordinary(path)
    own.check_used(path, options)
    if schema.public:
        raise DataError(
            "the scale of a public column was computed from the training records: read new ones "
            "beside those, with data.load and test="
        )
    suffix = path.suffix.lower()
    if path.is_dir() or suffix in images.SUFFIXES:
        if image_size is None:
            raise DataError("give the image size that the model was trained with (image_size)")
        height, width, channels = images.parse_size(image_size)
        window = images.parse_window(options.window)
        return Preprocessing((channels, height, width), window=window).inputs(path)
    if suffix == ".npz":
        values = arrays.read_inputs(path, arrays.WHOLE)
        bounds, _ = arrays.bounds_of(values, schema, path)
        return arrays.scaled(values, bounds, arrays.of_unit_length(values, schema))
    if suffix in tables.SUFFIXES:
        table = tables.read_table(path)
        here = dataclasses.replace(schema, drop=schema.drop & frozenset(table.column_names))
        columns, _ = tables.columns_of(table, here, tables.is_csv(path))
        return Preprocessing((), columns=columns).inputs(table)
    raise DataError(
        f"{path.name} is none of: an image or a folder of images, .npz, "
        f"{', '.join(tables.SUFFIXES)}"
    )
