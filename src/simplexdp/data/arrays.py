"""Arrays of an .npz as inputs, by their type's range or by declared bounds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from simplexdp.data.dataset import Array, DataError
from simplexdp.data.readers import npz_arrays
from simplexdp.data.schema import Bounds, Schema, data_bounds, refuse_missing, scale, unit_rows

WHOLE = "X"
BY_TYPE: dict[str, Bounds] = {"uint8": (0.0, 255.0), "bool": (0.0, 1.0)}


def channels_first(values: Array, name: str) -> Array:
    """Return (N, F) as it is, images of 1 or 3 channels (none, last or first) as (N, C, H, W)."""
    if values.ndim == 2:
        return values
    if values.ndim == 3:
        return values[:, None]
    if values.ndim == 4 and values.shape[1] in (1, 3):
        return values
    if values.ndim == 4 and values.shape[3] in (1, 3):
        return np.ascontiguousarray(values.transpose(0, 3, 1, 2))
    raise DataError(
        f"{name} has shape {values.shape}: give records × features, or images of 1 or 3 channels"
    )


def read_inputs(path: Path, name: str) -> Array:
    """Return the inputs by the name of their array, as they are stored."""
    return checked(npz_arrays(path, (name,))[name], f"{name} in {path.name}")


def checked(values: Array, what: str) -> Array:
    """Return inputs with channels first; refuse what is empty, no numbers or not finite."""
    values = channels_first(values, what)
    if values.size == 0:
        raise DataError(f"{what} has no records, or no values in them: give at least one of each")
    if values.dtype.kind not in "fiub":
        raise DataError(f"{what} is not numeric: give numbers, or text as columns of a table")
    if values.dtype.kind == "f":
        refuse_missing(values, what)
    return values


def read_pair(path: Path, inputs: str, labels: str) -> tuple[Array, list[str]]:
    """Return inputs and public labels, by the names of their arrays."""
    values = read_inputs(path, inputs)
    targets = npz_arrays(path, (labels,))[labels]
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim != 1 or len(targets) != len(values) or targets.dtype.kind not in "iubUS":
        raise DataError(f"{labels} in {path.name} needs one whole number or text for each record")
    if targets.dtype.kind == "S":
        try:
            targets = np.char.decode(targets, "utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{labels} in {path.name} is text that is not UTF-8") from None
    return values, [str(target) for target in targets.tolist()]


def groups(path: Path, name: str, records: int) -> list[str]:
    """Return whose each record is, as text, from the array of this name."""
    found = npz_arrays(path, (name,))[name]
    if found.shape != (records,) or found.dtype.kind not in "iubU":
        raise DataError(f"{name} in {path.name} needs one whole number or text for each record")
    return [str(one) for one in found.tolist()]


def _feature_bounds(inputs: Array, schema: Schema, path: Path) -> tuple[list[Bounds], list[str]]:
    """Return bounds of each feature: by its number, for the whole of X, or computed if public."""
    bounds: list[Bounds] = []
    computed: list[str] = []
    for k in range(inputs.shape[1]):
        given = schema.bounds.get(str(k), schema.bounds.get(WHOLE, schema.bounds_of(str(k))))
        given = given or BY_TYPE.get(inputs.dtype.name)
        if given is None and not (schema.is_public(str(k)) or WHOLE in schema.public):
            raise DataError(
                f"feature {k} of X in {path.name} ({inputs.dtype}) has no bounds: give "
                "--bounds lo:hi or --public-columns X, or --features-from TEXT for embeddings"
            )
        if given is None:
            computed.append(str(k))
        bounds.append(data_bounds(inputs[:, k]) if given is None else given)
    return bounds, computed


def _image_bounds(inputs: Array, schema: Schema, path: Path) -> tuple[Bounds, bool]:
    given = schema.bounds.get(WHOLE, schema.bounds_of(WHOLE)) or BY_TYPE.get(inputs.dtype.name)
    if given is not None:
        return given, False
    if schema.is_public(WHOLE):
        return data_bounds(inputs), True
    raise DataError(
        f"X in {path.name} is {inputs.dtype} and has no bounds: give --bounds lo:hi, "
        "or declare --public-columns X"
    )


def bounds_of(
    train: Array, schema: Schema, path: Path
) -> tuple[tuple[Bounds, ...], tuple[str, ...]]:
    """Return the bounds of inputs, and what of the training records went into them.

    There is one pair for each feature, one for all of an image, and none for images of bytes,
    which stay as they are (`to_model_input` scales them), nor for vectors whose making is declared:
    each is divided by its own norm.
    """
    features = [str(k) for k in range(train.shape[1])] if train.ndim == 2 else []
    schema.check_names([WHOLE, *features])
    what = "minimum and maximum of the training records"
    if train.dtype == np.uint8 and train.ndim == 4:
        if schema.bounds:
            raise DataError(f"X in {path.name} are images of bytes, 0 to 255: they take no bounds")
        return (), ()
    if train.ndim == 4:
        bounds, public = _image_bounds(train, schema, path)
        return (bounds,), ((f"the bounds of X ({what})",) if public else ())
    if of_unit_length(train, schema):
        return (), ()
    each, computed = _feature_bounds(train, schema, path)
    named = f"the bounds of {_shown(computed, features)} of X ({what})"
    return tuple(each), ((named,) if computed else ())


def of_unit_length(train: Array, schema: Schema) -> bool:
    """Return whether inputs are vectors of declared making, which need no bounds."""
    declared = schema.features_from is not None
    return train.ndim == 2 and declared and not schema.bounds and not schema.public


def scaled(values: Array, bounds: tuple[Bounds, ...], vectors: bool = False) -> Array:
    """Return inputs in [-1, 1] by their bounds, vectors by their own norms, others as they are."""
    if vectors:
        return unit_rows(values)
    if not bounds:
        return values
    low, high = np.array(bounds, dtype=np.float64).T
    return scale(values, low, high) if values.ndim == 2 else scale(values, low[0], high[0])


def _shown(computed: list[str], features: list[str]) -> str:
    return "every feature" if computed == features else f"features {', '.join(computed)}"
