"""Data sets known by name, and the user's own files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from simplexdp import files
from simplexdp.data.catalog import check, describe, fetch, load_named, names, present
from simplexdp.data.dataset import Array, DataError, Dataset, Split, to_model_input
from simplexdp.data.schema import (
    BoundsOption,
    CategoriesOption,
    MissingOption,
    NamesOption,
    declared,
)
from simplexdp.data.split import SPLIT_SEED

__all__ = [
    "DataError",
    "Dataset",
    "Split",
    "check",
    "describe",
    "fetch",
    "load",
    "names",
    "present",
    "read_inputs",
    "to_model_input",
]


def load(
    name_or_path: str | Path,
    *,
    data_dir: str | Path | None = None,
    allow_unverified: bool = False,
    label: str | None = None,
    test: str | Path | None = None,
    bounds: BoundsOption = None,
    categories: CategoriesOption = None,
    public_columns: NamesOption = None,
    drop: NamesOption = None,
    schema: str | Path | None = None,
    image_size: int | str | tuple[int, ...] | None = None,
    window: str | tuple[float, float] | None = None,
    missing: MissingOption = None,
    test_fraction: float | None = None,
    split_seed: int = SPLIT_SEED,
    group: str | None = None,
    features_from: str | None = None,
) -> Dataset:
    """Load a data set by name, or your own by path.

    Args:
        name_or_path: One of `data.names()`, or a folder of images by class, an .npz, .csv or
            .parquet.
        data_dir: By name: a folder to look in where the cache has nothing.
        allow_unverified: By name: take a DermaMNIST or SVHN file that is not the original.
        label: By path: the label column of a table.
        test: By path: test records in a file or folder of their own.
        bounds: By path: public ranges of numeric columns, as "age=0:120".
        categories: By path: public categories, as "sex=f|m"; "*" takes every other value.
        public_columns: By path: columns whose bounds or categories may be computed from the data,
            which `Dataset.computed_from_data` then names.
        drop: By path: columns to leave out.
        schema: By path: a JSON file with all of these.
        image_size: By path: height, width and channels of images, as "28x28x1".
        window: By path: the values of deep gray images that become black and white, as "-160:240".
        missing: By path: what stands for missing values of a column, as "age=50", or
            "age=indicator" for a feature of its own; "indicator" alone is for all columns.
        test_fraction: By path: the share of each class to hold out.
        split_seed: By path: the seed of that split.
        group: By path: the column of a table, or the array of an .npz, that says whose a record
            is; the unit of privacy is then the person.
        features_from: What made the vectors of an .npz, or trained the encoder of the features:
            the statement says so, and without it has to say "if".

    Returns:
        Inputs with public labels, split into training, test and perhaps validation records.

    Raises:
        DataError: If the data are missing, damaged or not described well enough.

    Example:
        >>> from simplexdp import data
        >>> digits = data.load("digits")
        >>> digits.classes, digits.train
        (10, Split(1437 records of shape (1, 8, 8), float32))
    """
    of_files = (image_size, window, missing)
    own = (label, test, bounds, categories, public_columns, drop, schema, *of_files)
    if str(name_or_path) in names():
        if any(option is not None for option in (*own, test_fraction, group)):
            raise DataError(
                f"{name_or_path} is known by name and takes no option of one's own data; "
                "for a file or folder of that name write ./" + str(name_or_path)
            )
        named = load_named(str(name_or_path), data_dir, allow_unverified)
        return replace(named, features_from=features_from)
    path = files.expanded(name_or_path)
    if not path.exists():
        raise DataError(
            f"{name_or_path} is neither a file or folder nor a known data set "
            f"({', '.join(names())})"
        )
    if data_dir is not None or allow_unverified:
        raise DataError(
            f"{name_or_path} is a path; leave out --data-dir and --allow-unverified, which are "
            "for data sets known by name"
        )
    from simplexdp.data.own import Options, load_path

    options = Options(
        schema=declared(
            label, bounds, categories, public_columns, drop, schema, missing, group, features_from
        ),
        test=None if test is None else files.expanded(test),
        test_fraction=test_fraction,
        split_seed=split_seed,
        image_size=image_size,
        window=window,
    )
    return load_path(path, options)


def read_inputs(
    path: str | Path,
    *,
    label: str | None = None,
    bounds: BoundsOption = None,
    categories: CategoriesOption = None,
    public_columns: NamesOption = None,
    drop: NamesOption = None,
    schema: str | Path | None = None,
    image_size: int | str | tuple[int, ...] | None = None,
    window: str | tuple[float, float] | None = None,
    missing: MissingOption = None,
    features_from: str | None = None,
) -> Array:
    """Read new records, which have no labels, with the options of the training data.

    Args:
        path: An image or a folder of images (no folders by class), an .npz with X, or a table.
        label: The label column, passed over where there is one.
        bounds: As `load`.
        categories: As `load`.
        public_columns: As `load`.
        drop: As `load`.
        schema: As `load`.
        image_size: As `load`.
        window: As `load`.
        missing: As `load`.
        features_from: As `load`.

    Returns:
        Inputs as a loaded model takes them.

    Raises:
        DataError: If there is no such file, or it does not fit the options.
    """
    from simplexdp.data.own import Options, read_path

    found = files.expanded(path)
    if not found.exists():
        raise DataError(f"there is no file or folder {path}")
    declarations = declared(
        label,
        bounds,
        categories,
        public_columns,
        drop,
        schema,
        missing,
        features_from=features_from,
    )
    return read_path(found, Options(declarations, image_size=image_size, window=window))
