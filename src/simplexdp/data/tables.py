"""A .csv or .parquet table as numbers: scaled columns and one-hot categories."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from simplexdp.data.dataset import Array, DataError
from simplexdp.data.schema import ALL, Schema, data_bounds, refuse_missing, scale

SUFFIXES = (".csv", ".parquet")
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")  # what exports write for no value


@dataclass(frozen=True)
class Encoder:
    """How one column is turned into features; `computed` says what was read from the data."""

    column: str
    encode: Callable[[Any], Array]
    computed: str | None = None


def is_csv(path: Path) -> bool:
    """Return whether the table is text, whatever the case of its suffix."""
    return path.suffix.lower() == ".csv"


def read_table(path: Path) -> Any:
    """Read the table; every csv column is text, so no type is guessed from private values.

    pyarrow's messages quote the offending row, so they are not passed on.
    """
    try:
        if not is_csv(path):
            table = pyarrow.parquet.read_table(path)
        else:
            names = pyarrow.csv.open_csv(path).schema.names
            options = pyarrow.csv.ConvertOptions(column_types={n: pa.string() for n in names})
            table = pyarrow.csv.read_csv(path, convert_options=options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError):
        raise DataError(
            f"{path.name} is not a well-formed {path.suffix} table (UTF-8, one header row, "
            "as many fields in every row)"
        ) from None
    names = table.column_names
    if len(set(names)) != len(names):
        raise DataError(f"{path.name} has two columns of the same name")
    if table.num_rows == 0:
        raise DataError(f"{path.name} has no records")
    return table


def _values(column: Any, name: str) -> list[Any]:
    """Return a column's values; what cannot be read is refused without quoting it."""
    found = None
    with contextlib.suppress(ValueError):  # raised below, where no traceback shows this one
        found = column.to_pylist()
    if found is None:
        raise DataError(
            f"column {name} holds text that is not UTF-8, or times finer than microseconds; "
            "convert it first, or --drop it"
        )
    return list(found)


def _texts(column: Any, name: str, categories: tuple[str, ...] = ()) -> list[str]:
    """Return a column as text without spaces around it; NA is a value only as a category."""
    texts = ["" if value is None else str(value).strip() for value in _values(column, name)]
    missing = sum(text in MISSING and text not in categories for text in texts)
    if missing:
        raise DataError(
            f"column {name} has {missing} missing values: fill or remove those records first"
        )
    return texts


def label_texts(table: Any, label: str, path: Path) -> list[str]:
    """Return the public labels as text."""
    if label not in table.column_names:
        raise DataError(
            # Without a header the first record stands in its place: its values are not shown.
            f"{path.name} has {len(table.column_names)} column(s), none called {label!r} (--label);"
            " the first line must name the columns"
            + (", with a comma between them" if is_csv(path) else "")
        )
    return _texts(table.column(label), label)


def group_texts(table: Any, group: str, path: Path) -> list[str]:
    """Return whose each record is, as text."""
    if group not in table.column_names:
        raise DataError(f"{path.name} has no column {group!r}, which --group names")
    return _texts(table.column(group), group)


def _as_float(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def _floats(column: Any, name: str) -> Array:
    """Return a column as float64, NaN where it is no number."""
    # pyarrow's message quotes a value, so nothing is raised while it is handled.
    with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # Whole numbers above 2^53 are rounded, as those in a text are.
        exact = not pa.types.is_integer(column.type)
        return np.asarray(column.cast(pa.float64(), safe=exact).to_numpy(), dtype=np.float64)
    if not _is_text(column):
        raise DataError(f"column {name} is neither numbers nor text; --drop it")
    return np.array([_as_float(text) for text in _values(column, name)], dtype=np.float64)


def numbers(column: Any, name: str) -> Array:
    """Return a column as float64; what is not a finite number is refused by count alone."""
    values = _floats(column, name)
    refuse_missing(values, f"column {name}")
    return values


def one_hot(texts: list[str], categories: tuple[str, ...], name: str) -> Array:
    """Return one feature a category; a value outside is refused by count unless "*" takes it."""
    place = {category: k for k, category in enumerate(categories)}
    codes = np.array([place.get(text, place.get(ALL, -1)) for text in texts], dtype=np.int64)
    outside = int(np.count_nonzero(codes < 0))
    if outside:
        raise DataError(
            f"column {name} has {outside} of {len(texts)} values outside its categories: "
            "name them, or add the category * for all others"
        )
    return np.eye(len(categories), dtype=np.float32)[codes]


def _numeric(name: str, bounds: tuple[float, float], computed: str | None = None) -> Encoder:
    return Encoder(name, lambda c: scale(numbers(c, name), *bounds)[:, None], computed)


def _categorical(name: str, categories: tuple[str, ...], computed: str | None = None) -> Encoder:
    return Encoder(name, lambda c: one_hot(_texts(c, name, categories), categories, name), computed)


def _is_text(column: Any) -> bool:
    kind = column.type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
    )


def _public(name: str, column: Any, from_csv: bool) -> Encoder:
    """Compute bounds or categories of a column declared public from the training records."""
    numeric = not _is_text(column)
    if from_csv:
        numeric = not np.isnan(_floats(column, name)).any()
    if numeric:
        return _numeric(
            name,
            data_bounds(numbers(column, name)),
            f"the bounds of column {name} (minimum and maximum of the training records)",
        )
    categories = tuple(sorted(set(_texts(column, name))))
    if len(categories) < 2:
        raise DataError(f"column {name} has a single category in the training records: drop it")
    return _categorical(
        name, (*categories, ALL), f"the categories of column {name} (those of the training records)"
    )


def encoders(table: Any, schema: Schema, from_csv: bool) -> list[Encoder]:
    """Return one encoder a column, from the user's declarations and the training records.

    Features stand in the order of the columns' names, so that a table with its columns in another
    order gives the same.
    """
    schema.check_names(table.column_names)
    columns = sorted(n for n in table.column_names if n != schema.label and n not in schema.drop)
    if not columns:
        raise DataError("the table has no column beside the label")
    found: list[Encoder] = []
    undeclared: list[str] = []
    for name in columns:
        column = table.column(name)
        if name in schema.categories:
            found.append(_categorical(name, schema.categories[name]))
        elif name in schema.bounds:
            found.append(_numeric(name, schema.bounds[name]))
        elif schema.is_public(name):
            found.append(_public(name, column, from_csv))
        elif pa.types.is_boolean(column.type):
            found.append(_numeric(name, (0.0, 1.0)))
        elif (bounds := schema.bounds_of(name)) is not None:
            found.append(_numeric(name, bounds))
        elif pa.types.is_uint8(column.type):
            found.append(_numeric(name, (0.0, 255.0)))
        else:
            undeclared.append(name)
    if undeclared:
        shown = ", ".join(undeclared[:8]) + (" …" if len(undeclared) > 8 else "")
        raise DataError(
            f"{len(undeclared)} columns have neither bounds nor categories ({shown}): give "
            "--bounds column=lo:hi or --categories column=a|b, or declare --public-columns"
        )
    return found


def encode(table: Any, plan: list[Encoder], path: Path) -> Array:
    """Return the features, float32 (N, F)."""
    if missing := [e.column for e in plan if e.column not in table.column_names]:
        raise DataError(f"{path.name} lacks the column {', '.join(missing[:8])}")
    return np.concatenate([e.encode(table.column(e.column)) for e in plan], axis=1)


def take(table: Any, rows: Array) -> Any:
    """Return some records of a table."""
    return table.take(pa.array(rows))
