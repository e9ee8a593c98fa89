"""Declarations about columns: bounds and categories, given or declared public.

Nothing about a private column is read from its values unless the user declares it public; what
was then computed is named in `Dataset.computed_from_data`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from simplexdp import files
from simplexdp.data.dataset import Array, DataError

ALL = "*"
INDICATOR = "indicator"  # a missing value becomes a feature of its own
Bounds = tuple[float, float]
BoundsOption = Mapping[str, Sequence[float]] | Sequence[str] | str | None
CategoriesOption = Mapping[str, Sequence[str]] | Sequence[str] | str | None
MissingOption = Mapping[str, float | str] | Sequence[str] | str | None
NamesOption = Sequence[str] | str | None


@dataclass(frozen=True)
class Schema:
    """The user's declarations, by column name; "*" stands for every column not named.

    `group` is the column, or the array of an .npz, that says whose a record is; `features_from`
    what made the vectors of an .npz.
    """

    label: str | None = None
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    public: frozenset[str] = frozenset()
    drop: frozenset[str] = frozenset()
    missing: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    features_from: str | None = None

    def missing_of(self, column: str) -> str | None:
        """Return what stands for a column's missing values; None where they are refused."""
        return self.missing.get(column, self.missing.get(ALL))

    def bounds_of(self, column: str) -> Bounds | None:
        """Return the bounds of a column; None where none were given."""
        return self.bounds.get(column, self.bounds.get(ALL))

    def is_public(self, column: str) -> bool:
        """Return whether a column was declared public."""
        return column in self.public or ALL in self.public

    def check_names(self, columns: Iterable[str]) -> None:
        """Refuse a declaration of a column that is not there."""
        known = {*columns, ALL}
        declared = {*self.bounds, *self.categories, *self.public, *self.drop, *self.missing}
        if unknown := sorted(declared - known):
            raise DataError(
                f"no column {', '.join(unknown)} in the table; check --bounds, --categories, "
                "--public-columns, --missing and the schema"
            )


def checked_bounds(column: str, low: Any, high: Any) -> Bounds:
    """Return finite bounds with low < high."""
    try:
        bounds = (float(low), float(high))
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"the bounds of {column} are not numbers: write {column}=lo:hi") from None
    if not (math.isfinite(bounds[0]) and math.isfinite(bounds[1]) and bounds[0] < bounds[1]):
        raise DataError(f"the bounds of {column} need finite lo < hi")
    return bounds


def _texts(option: Sequence[str] | str) -> list[str]:
    """Return the items of a text separated by commas, or of several such texts."""
    texts = [option] if isinstance(option, str) else option
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise DataError("bounds and names of columns are given as text, such as 'age=0:120'")
    return [item.strip() for text in texts for item in text.split(",") if item.strip()]


def parse_bounds(option: BoundsOption) -> dict[str, Bounds]:
    """Parse `{"age": (0, 120)}`, or "age=0:120" texts; "0:1" alone is for every column."""
    if option is None:
        return {}
    if isinstance(option, Mapping):
        return {name: checked_bounds(name, *_pair(name, pair)) for name, pair in option.items()}
    parsed: dict[str, Bounds] = {}
    for text in _texts(option):
        name, _, values = text.rpartition("=")
        name = name or ALL
        low, colon, high = values.partition(":")
        if not colon:
            raise DataError(f"cannot read the bounds {text!r}: write column=lo:hi")
        parsed[name] = checked_bounds(name, low, high)
    return parsed


def _pair(name: str, pair: Sequence[float]) -> Sequence[float]:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise DataError(f"the bounds of {name} need two numbers, lo and hi")
    return pair


def parse_categories(option: CategoriesOption) -> dict[str, tuple[str, ...]]:
    """Parse `{"sex": ["f", "m"]}`, or "sex=f|m" texts; category "*" takes every other value."""
    if option is None:
        return {}
    if isinstance(option, Mapping):
        for name, values in option.items():
            if not isinstance(values, list | tuple):
                raise DataError(f"the categories of {name} need a list, such as ['f', 'm']")
        found = {name: tuple(str(v).strip() for v in values) for name, values in option.items()}
    else:
        found = {}
        for text in [option] if isinstance(option, str) else option:
            name, equals, listed = text.partition("=")
            if not equals:
                raise DataError(f"cannot read the categories {text!r}: write column=a|b|c")
            found[name.strip()] = tuple(value.strip() for value in listed.split("|"))
    for name, values in found.items():
        if len(values) < 2 or len(set(values)) != len(values):
            raise DataError(f"the categories of {name} need at least two different values")
    return found


def parse_missing(option: MissingOption) -> dict[str, str]:
    """Parse `{"age": 50}`, or "age=50" texts; "indicator" alone is for every column."""
    if option is None:
        return {}
    if isinstance(option, Mapping):
        return {name: str(value) for name, value in option.items()}
    found = [text.rpartition("=") for text in _texts(option)]
    return {name or ALL: value for name, _, value in found}


def read_schema(path: str | Path) -> Schema:
    """Read a JSON file: {"label": "y", "columns": {"age": {"bounds": [0, 120]}, …}}.

    Each column has one of "bounds": [lo, hi], "categories": [...], "public": true, "drop": true,
    and perhaps "missing": what stands for its missing values.
    """
    files.check_ordinary(Path(path), "name the schema's file")
    try:
        content = json.loads(Path(path).read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(f"the schema {path} is not UTF-8 text; save it as that") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"the schema {path} is not JSON: {error}") from error
    if isinstance(content, dict) and not isinstance(content.get("label", ""), str):
        raise DataError(f"the label of the schema {path} is no text; give a column's name")
    columns = content.get("columns", {}) if isinstance(content, dict) else None
    if not isinstance(columns, dict) or not all(isinstance(v, dict) for v in columns.values()):
        raise DataError(f'the schema {path} needs {{"columns": {{name: {{"bounds": [lo, hi]}}}}}}')
    if unknown := sorted(set(content) - {"label", "columns"}):
        raise DataError(
            f"the schema {path} has the key {unknown[0]!r}; it takes label and columns, and each "
            "column has one of bounds, categories, public, drop"
        )
    for name, rules in columns.items():
        kinds = set(rules) - {"missing"}
        if len(kinds) != 1 or not kinds <= {"bounds", "categories", "public", "drop"}:
            raise DataError(
                f"the schema's column {name} needs exactly one of bounds, categories, public, drop "
                "(and perhaps missing)"
            )
    return Schema(
        label=content.get("label"),
        bounds=parse_bounds({n: r["bounds"] for n, r in columns.items() if "bounds" in r}),
        categories=parse_categories(
            {n: r["categories"] for n, r in columns.items() if "categories" in r}
        ),
        public=frozenset(n for n, r in columns.items() if r.get("public")),
        drop=frozenset(n for n, r in columns.items() if r.get("drop")),
        missing=parse_missing({n: r["missing"] for n, r in columns.items() if "missing" in r}),
    )


def declared(
    label: str | None = None,
    bounds: BoundsOption = None,
    categories: CategoriesOption = None,
    public_columns: NamesOption = None,
    drop: NamesOption = None,
    schema: str | Path | None = None,
    missing: MissingOption = None,
    group: str | None = None,
    features_from: str | None = None,
) -> Schema:
    """Merge the options and the schema file; an option wins over the file."""
    base = Schema() if schema is None else read_schema(schema)
    return Schema(
        label=label or base.label,
        bounds={**base.bounds, **parse_bounds(bounds)},
        categories={**base.categories, **parse_categories(categories)},
        public=base.public | frozenset(_texts(public_columns or ())),
        drop=base.drop | frozenset(_texts(drop or ())),
        missing={**base.missing, **parse_missing(missing)},
        group=group,
        features_from=features_from,
    )


def to_unit(values: Array, low: Array | float, high: Array | float) -> Array:
    """Clip to the bounds and map them to [0, 1].

    By halves, since the distance of two bounds can be above the largest float.
    """
    clipped = np.clip(np.asarray(values, dtype=np.float64), low, high)
    lowest, highest = np.divide(low, 2), np.divide(high, 2)
    return np.asarray((clipped / 2 - lowest) / (highest - lowest))


def scale(values: Array, low: Array | float, high: Array | float) -> Array:
    """Clip to the bounds and map them to [-1, 1] in float32."""
    return np.asarray(2.0 * to_unit(values, low, high) - 1.0, dtype=np.float32)


def unit_rows(values: Array) -> Array:
    """Bring each row to a root mean square of 1, by its own norm; a zero row stays zero."""
    rows = np.asarray(values, dtype=np.float64)
    # By the largest entry first: squares of large numbers overflow.
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows / np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms, 1.0) * math.sqrt(rows.shape[1]), np.float32)


def data_bounds(values: Array) -> Bounds:
    """Return minimum and maximum of a column declared public; a constant one gets width 1."""
    low, high = float(np.min(values)), float(np.max(values))
    return (low, high) if low < high else (low - 0.5, low + 0.5)


def refuse_missing(values: Array, what: str) -> None:
    """Refuse NaN and infinity, which have no place in [lo, hi]; only their number is said."""
    bad = int(np.size(values) - np.count_nonzero(np.isfinite(values)))
    if bad:
        raise DataError(
            f"{what} has {bad} values that are missing, infinite or no numbers: "
            "fill or remove those records first"
        )
