"""Which data? Sets known by name, and the user's own files."""

from __future__ import annotations

from pathlib import Path

from simplexdp.data.catalog import check, describe, fetch, load_named, names, present
from simplexdp.data.dataset import DataError, Dataset, Split, to_model_input

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
    "to_model_input",
]


def load(
    name_or_path: str | Path,
    *,
    data_dir: str | Path | None = None,
    allow_unverified: bool = False,
) -> Dataset:
    """A data set by name."""
    return load_named(str(name_or_path), data_dir, allow_unverified)
