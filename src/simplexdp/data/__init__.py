"""Data sets known by name, and the user's own files."""

from __future__ import annotations

from pathlib import Path

from simplexdp import files
from simplexdp.data.catalog import check, describe, fetch, load_named, names, present
from simplexdp.data.dataset import Array, DataError, Dataset, Split, to_model_input
from simplexdp.data.own import Options, load_path
from simplexdp.data.schema import BoundsOption, CategoriesOption, NamesOption, declared
from simplexdp.data.split import SPLIT_SEED
from simplexdp.data.unlabelled import read_path

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
    test_fraction: float | None = None,
    split_seed: int = SPLIT_SEED,
) -> Dataset:
    """Load a data set by name, or the user's own by path.

    By name, `data_dir` is a folder to look in where the cache has nothing, and `allow_unverified`
    takes a DermaMNIST or SVHN file that is not the original. By path, the other options say what
    the preprocessing may assume without reading private values: `bounds` ("age=0:120"),
    `categories` ("sex=f|m"), `public_columns` (those whose bounds or categories may be computed
    from the data, which `Dataset.computed_from_data` then names), `drop`, or a `schema` file with
    all of these.
    """
    own = (label, test, bounds, categories, public_columns, drop, schema, image_size, test_fraction)
    if str(name_or_path) in names():
        if any(option is not None for option in own):
            raise DataError(
                f"{name_or_path} is known by name and takes no option of one's own data; "
                "for a file or folder of that name write ./" + str(name_or_path)
            )
        return load_named(str(name_or_path), data_dir, allow_unverified)
    path = files.expanded(name_or_path)
    if not path.exists():
        raise DataError(
            f"{name_or_path} is neither a file or folder nor a known data set "
            f"({', '.join(names())})"
        )
    if data_dir is not None or allow_unverified:
        raise DataError(
            f"{name_or_path} is a path, and a folder of original files or an unverified copy is "
            "of a data set known by name: leave out --data-dir and --allow-unverified"
        )
    options = Options(
        schema=declared(label, bounds, categories, public_columns, drop, schema),
        test=None if test is None else files.expanded(test),
        test_fraction=test_fraction,
        split_seed=split_seed,
        image_size=image_size,
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
) -> Array:
    """Read new records, which have no labels, with the options of the training data.

    An image or a folder of images (no folders by class), X of an .npz, or a table; a label column
    is passed over where there is one. The training records are not needed.
    """
    found = files.expanded(path)
    if not found.exists():
        raise DataError(f"there is no file or folder {path}")
    declarations = declared(label, bounds, categories, public_columns, drop, schema)
    return read_path(found, Options(declarations, image_size=image_size))
