"""A .csv or .parquet table as numbers: scaled columns and one-hot categories."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simplexdp import plugins
from simplexdp.data.dataset import Array, DataError
from simplexdp.data.schema import (
    ALL,
    INDICATOR,
    Bounds,
    Schema,
    data_bounds,
    refuse_missing,
    scale,
)

SUFFIXES = (".csv", ".parquet")
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")  # what exports write for no value


@dataclass(frozen=True)
class Column:
    """How one column becomes features: by bounds, or one feature a category.

    Attributes:
        name: The column.
        bounds: Of a number.
        categories: Of a text; none for a number.
        missing: What stands for a missing value; None where one is refused.
    """

    name: str
    bounds: Bounds | None = None
    categories: tuple[str, ...] = ()
    missing: str | None = None

    def __post_init__(self) -> None:
        """Refuse a fill value that is no value of the column."""
        if self.missing in (None, INDICATOR):
            return
        if self.categories:
            fits = self.missing in self.categories or ALL in self.categories
        else:
            low, high = self.bounds or (0.0, 0.0)
            fits = low <= _as_float(self.missing) <= high
        if not fits:
            raise DataError(
                f"--missing {self.name}={self.missing} is no value of that column: give one "
                f"within its bounds or categories, or {INDICATOR}"
            )

    def encode(self, column: Any) -> tuple[Array, int]:
        """Return the features, and how many missing values were filled."""
        if self.categories:
            texts = _texts(column, self.name)
            gone = np.array([t in MISSING and t not in self.categories for t in texts])
            values = one_hot(
                [
                    self._fill(self.categories[0]) if no else t
                    for t, no in zip(texts, gone, strict=True)
                ],
                self.categories,
                self.name,
            )
        else:
            low, high = self.bounds or (0.0, 0.0)
            numbers, gone = _floats(column, self.name)
            numbers = np.where(gone, _as_float(self._fill(str(low / 2 + high / 2))), numbers)
            refuse_missing(numbers, f"column {self.name}")
            values = scale(numbers, low, high)[:, None]
        if gone.any() and self.missing is None:
            raise DataError(
                f"column {self.name} has {int(gone.sum())} missing values: say what stands for "
                f"them with --missing {self.name}=VALUE, or ={INDICATOR}"
            )
        if self.missing == INDICATOR:
            values[gone] = 0.0
            values = np.concatenate([values, gone[:, None].astype(np.float32)], axis=1)
        return values, int(gone.sum())

    def _fill(self, neutral: str) -> str:
        """Return the text that stands for a missing value; the indicator overrides `neutral`."""
        return neutral if self.missing in (None, INDICATOR) else str(self.missing)


def arrow(part: str = "") -> Any:
    """Return pyarrow, or a part of it such as ".csv"; the extra `tables` installs it."""
    return plugins.extra(f"pyarrow{part}", "tables")


def is_csv(path: Path) -> bool:
    """Return whether the table is text, whatever the case of its suffix."""
    return path.suffix.lower() == ".csv"


def read_table(path: Path) -> Any:
    """Read the table; every csv column is text, so no type is guessed from private values.

    pyarrow's messages quote the offending row, so they are not passed on.
    """
    pa, csv, parquet = arrow(), arrow(".csv"), arrow(".parquet")
    try:
        if not is_csv(path):
            table = parquet.read_table(path)
        else:
            names = csv.open_csv(path).schema.names
            options = csv.ConvertOptions(column_types={n: pa.string() for n in names})
            table = csv.read_csv(path, convert_options=options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError):
        raise DataError(
            f"{path.name} is not a well-formed {path.suffix} table (UTF-8, one header row, "
            "as many fields in every row)"
        ) from None
    names = table.column_names
    if len(set(names)) != len(names):
        raise DataError(f"{path.name} has two columns of the same name: rename one")
    if table.num_rows == 0:
        raise DataError(f"{path.name} has no records: give at least one line below the names")
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


def _texts(column: Any, name: str) -> list[str]:
    """Return a column as text without spaces around it; a missing value is empty."""
    return ["" if value is None else str(value).strip() for value in _values(column, name)]


def _without_missing(column: Any, name: str) -> list[str]:
    texts = _texts(column, name)
    if missing := sum(text in MISSING for text in texts):
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
    return _without_missing(table.column(label), label)


def group_texts(table: Any, group: str, path: Path) -> list[str]:
    """Return whose each record is, as text."""
    if group not in table.column_names:
        raise DataError(f"{path.name} has no column {group!r}: name another with --group")
    return _texts(table.column(group), group)


def _as_float(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def _floats(column: Any, name: str) -> tuple[Array, Array]:
    """Return a column as float64, NaN where it is no number, and where a value is missing."""
    # pyarrow's message quotes a value, so nothing is raised while it is handled.
    pa = arrow()
    if not _is_text(column):
        with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            # Whole numbers above 2^53 are rounded, as those in a text are.
            exact = not pa.types.is_integer(column.type)
            cast = column.cast(pa.float64(), safe=exact).to_numpy()
            found = np.asarray(cast, dtype=np.float64)
            return found, np.isnan(found)
        raise DataError(f"column {name} is neither numbers nor text; --drop it")
    texts = _texts(column, name)
    found = np.array([_as_float(text) for text in texts], dtype=np.float64)
    return found, np.array([text in MISSING for text in texts])


def one_hot(texts: list[str], categories: tuple[str, ...], name: str) -> Array:
    """Return one feature a category; a value outside is refused by count unless "*" takes it."""
    place = {category: k for k, category in enumerate(categories)}
    codes = np.array([place.get(text, place.get(ALL, -1)) for text in texts], dtype=np.int64)
    outside = int(np.count_nonzero(codes < 0))
    if outside:
        raise DataError(
            f"column {name} has {outside} of {len(texts)} values outside its categories: "
            "correct them, or train with more categories, or with * for all others"
        )
    return np.eye(len(categories), dtype=np.float32)[codes]


def _is_text(column: Any) -> bool:
    pa, kind = arrow(), column.type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind)
    )


def _public(name: str, column: Any, from_csv: bool, missing: str | None) -> tuple[Column, str]:
    """Compute bounds or categories of a column declared public from the training records."""
    if from_csv or not _is_text(column):
        values, gone = _floats(column, name)
        if not from_csv or not np.isnan(values[~gone]).any():
            there = values[~gone] if missing is not None else values
            refuse_missing(there, f"column {name}")
            bounds = data_bounds(there) if len(there) else (0.0, 1.0)
            why = f"the bounds of column {name} (minimum and maximum of the training records)"
            return Column(name, bounds, missing=missing), why
    texts = _texts(column, name) if missing is not None else _without_missing(column, name)
    categories = tuple(sorted(set(texts) - set(MISSING)))
    if len(categories) < 2:
        raise DataError(f"column {name} has a single category in the training records: drop it")
    why = f"the categories of column {name} (those of the training records)"
    return Column(name, categories=(*categories, ALL), missing=missing), why


def columns_of(
    table: Any, schema: Schema, from_csv: bool
) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Return how each column is encoded, and what of that was computed from the records.

    Features stand in the order of the columns' names, so that a table with its columns in another
    order gives the same.
    """
    pa = arrow()
    schema.check_names(table.column_names)
    names = sorted(n for n in table.column_names if n != schema.label and n not in schema.drop)
    if not names:
        raise DataError(
            "the table has no column beside the label: give at least one, or drop fewer"
        )
    found: list[Column] = []
    computed: list[str] = []
    undeclared: list[str] = []
    for name in names:
        column, missing = table.column(name), schema.missing_of(name)
        by_type = (0.0, 1.0) if pa.types.is_boolean(column.type) else schema.bounds_of(name)
        if by_type is None and pa.types.is_uint8(column.type):
            by_type = (0.0, 255.0)
        if name in schema.categories:
            found.append(Column(name, categories=schema.categories[name], missing=missing))
        elif name in schema.bounds:
            found.append(Column(name, schema.bounds[name], missing=missing))
        elif schema.is_public(name):
            public, why = _public(name, column, from_csv, missing)
            found.append(public)
            computed.append(why)
        elif by_type is not None:
            found.append(Column(name, by_type, missing=missing))
        else:
            undeclared.append(name)
    if undeclared:
        shown = ", ".join(undeclared[:8]) + (" …" if len(undeclared) > 8 else "")
        counted = "1 column has" if len(undeclared) == 1 else f"{len(undeclared)} columns have"
        raise DataError(
            f"{counted} neither bounds nor categories ({shown}): give "
            "--bounds column=lo:hi or --categories column=a|b, or declare --public-columns"
        )
    return tuple(found), tuple(computed)


def encode(table: Any, columns: tuple[Column, ...], where: str, seen: Counter[str]) -> Array:
    """Return the features, float32 (N, F); count in `seen` what was filled."""
    if missing := [c.name for c in columns if c.name not in table.column_names]:
        raise DataError(f"{where} lacks the column {', '.join(missing[:8])}: add it")
    encoded = [column.encode(table.column(column.name)) for column in columns]
    if filled := sum(count for _, count in encoded):
        seen["missing values filled as declared"] += filled
    return np.concatenate([features for features, _ in encoded], axis=1)


def take(table: Any, rows: Array) -> Any:
    """Return some records of a table."""
    return table.take(arrow().array(rows))
