"""What turns a new record into a model's input: declared facts, which are kept with the model."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from simplexdp import files, typed
from simplexdp.data import arrays, images, tables
from simplexdp.data.dataset import Array, DataError
from simplexdp.data.schema import Bounds
from simplexdp.progress import warn

Named = tuple[list[str], Array]  # what each record is called, and the inputs


@dataclass(frozen=True)
class Preprocessing:
    """How records become inputs of a model; one of images, arrays or tables.

    Attributes:
        shape: The shape of one input.
        bounds: Of the values of arrays: one pair for all, or one for each feature.
        window: Of images of more than 8 bits a channel: what becomes black and white.
        columns: Of tables.
        vectors: Whether each vector is divided by its own norm.

    Example:
        >>> import numpy as np
        >>> from simplexdp.data.preprocessing import Preprocessing
        >>> Preprocessing((2,), bounds=((0.0, 10.0),)).inputs(np.array([[0.0, 5.0]])).tolist()
        [[-1.0, 0.0]]
    """

    shape: tuple[int, ...]
    bounds: tuple[Bounds, ...] = ()
    window: Bounds | None = None
    columns: tuple[tables.Column, ...] = ()
    vectors: bool = False

    def __post_init__(self) -> None:
        """Let one pair of bounds be that of every feature."""
        if len(self.shape) == 1 and len(self.bounds) == 1:
            object.__setattr__(self, "bounds", self.bounds * self.shape[0])

    @property
    def kind(self) -> str:
        """Return what the records are: a table, arrays or images."""
        return "table" if self.columns else "arrays" if self.bounds or self.vectors else "images"

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready data; `from_json` is its inverse."""
        record: dict[str, Any] = {"kind": self.kind, "shape": list(self.shape)}
        if self.columns:
            record["columns"] = [
                {k: v for k, v in dataclasses.asdict(column).items() if v not in (None, ())}
                for column in self.columns
            ]
        elif self.bounds:
            every = set(self.bounds)
            record["bounds"] = [list(b) for b in (every if len(every) == 1 else self.bounds)]
        elif self.vectors:
            record["vectors"] = True
        elif self.window:
            record["window"] = list(self.window)
        return record

    def inputs(self, records: Any) -> Array:
        """Return the model's inputs for records as they come.

        Args:
            records: A path or several, images of PIL, a table (a data frame or of pyarrow), or an
                array with raw values.

        Returns:
            The inputs, one a record.

        Raises:
            DataError: If the records are not as the training data were declared.
        """
        return self.named(records)[1]

    def named(self, records: Any) -> Named:
        """Return the inputs, and what each record is called: its file or its number."""
        seen: Counter[str] = Counter()
        if isinstance(records, str | Path):
            found = self._of_path(files.expanded(records), seen)
        elif isinstance(records, Image.Image):
            found = self._of_pictures([records], seen)
        elif _is_table(records):
            found = self._of_table(_table(records), "the table", seen)
        elif isinstance(records, list | tuple) and records:
            found = self._of_list(records, seen)
        else:
            found = self._of_array(np.asarray(records), "the array")
        if seen:
            warn(images.told(seen))
        return found

    def _of_path(self, path: Path, seen: Counter[str]) -> Named:
        suffix = path.suffix.lower()
        if not path.exists():
            raise DataError(f"there is no file or folder {path}; give one with records")
        if self.kind == "table" and suffix in tables.SUFFIXES:
            return self._of_table(tables.read_table(path), path.name, seen)
        if self.kind != "table" and suffix == ".npz":
            return self._of_array(
                arrays.read_inputs(path, arrays.WHOLE), f"{arrays.WHOLE} in {path.name}"
            )
        if self.kind == "images" and (path.is_dir() or suffix in images.SUFFIXES):
            found = images.by_name([path])
            if not found:
                raise DataError(f"the folder {path} holds no images that can be read; name another")
            root = path if path.is_dir() else path.parent
            return self._of_images([p.relative_to(root).as_posix() for p in found], found, seen)
        raise DataError(f"{path.name} does not fit: the model was trained on {self._wanted()}")

    def _wanted(self) -> str:
        return {
            "table": "tables (.csv, .parquet)",
            "arrays": "arrays (.npz with X)",
            "images": "images (a file, a folder, or .npz with X)",
        }[self.kind]

    def _of_list(self, records: Iterable[Any], seen: Counter[str]) -> Named:
        listed = list(records)
        if all(isinstance(one, Image.Image) for one in listed):
            return self._of_pictures(listed, seen)
        if not all(isinstance(one, str | Path) for one in listed):
            return self._of_array(np.asarray(listed), "the array")
        if self.kind != "images":
            raise DataError(f"several files do not fit: the model was trained on {self._wanted()}")
        paths = [files.expanded(one) for one in listed]
        return self._of_images([str(one) for one in listed], paths, seen)

    def _form(self) -> images.Form:
        channels, height, width = self.shape
        return images.Form((height, width, channels), self.window)

    def _of_images(self, names: list[str], paths: list[Path], seen: Counter[str]) -> Named:
        form = self._form()
        for path in paths:
            files.check_ordinary(path, "name another file")
        found = [images.read_file(p, form, str(p), seen) for p in paths]
        return names, np.stack(found)

    def _of_pictures(self, pictures: list[Image.Image], seen: Counter[str]) -> Named:
        if self.kind != "images":
            raise DataError(f"pictures do not fit: the model was trained on {self._wanted()}")
        form = self._form()
        found = [
            images.to_bytes(picture, form, f"picture {k}", seen)
            for k, picture in enumerate(pictures, 1)
        ]
        return _numbers(len(found)), np.stack(found)

    def _of_table(self, table: Any, what: str, seen: Counter[str]) -> Named:
        if self.kind != "table":
            raise DataError(f"{what} does not fit: the model was trained on {self._wanted()}")
        return _numbers(table.num_rows), tables.encode(table, self.columns, what, seen)

    def _of_array(self, values: Array, what: str) -> Named:
        if self.kind == "table":
            raise DataError(f"{what} does not fit: the model was trained on {self._wanted()}")
        values = arrays.checked(values, what)
        if values.shape[1:] != self.shape:
            raise DataError(
                f"{what} has records of shape {values.shape[1:]}; the model takes {self.shape}"
            )
        if self.kind == "images" and values.dtype != np.uint8:
            raise DataError(f"{what} is {values.dtype}; give images as bytes (uint8, 0 to 255)")
        return _numbers(len(values)), arrays.scaled(values, self.bounds, self.vectors)


def from_json(record: Mapping[str, Any]) -> Preprocessing:
    """Return the preprocessing that `Preprocessing.to_json` gave."""
    known = {field.name for field in dataclasses.fields(Preprocessing)}
    return typed.read(Preprocessing, {k: v for k, v in record.items() if k in known})


def _numbers(records: int) -> list[str]:
    return [str(k) for k in range(1, records + 1)]


def is_raw(records: Any) -> bool:
    """Return whether these are files, pictures or a table, and not an array of inputs."""
    if isinstance(records, list | tuple) and records:
        return all(isinstance(one, str | Path | Image.Image) for one in records)
    return isinstance(records, str | Path | Image.Image) or _is_table(records)


def _is_table(records: Any) -> bool:
    """Return whether these are a table: of pyarrow, or a data frame of some library."""
    return hasattr(records, "columns")


def _table(records: Any) -> Any:
    """Return a data frame as a table of pyarrow, by its columns alone."""
    pa = tables.arrow()
    if isinstance(records, pa.Table):
        return records
    columns = {}
    for name in records.columns:
        values = np.asarray(records[name])
        if values.dtype == object:
            values = np.array([None if v is None or v != v else v for v in values], dtype=object)
        columns[str(name)] = pa.array(values, from_pandas=True)
    return pa.table(columns)
