"""Models as ONNX files, with their preprocessing inside, checked against torch."""

from __future__ import annotations

import json
import logging
import os
import secrets
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from simplexdp import plugins
from simplexdp.bundle import LoadedModel
from simplexdp.data import to_model_input
from simplexdp.data.preprocessing import Preprocessing
from simplexdp.data.schema import INDICATOR

CHECKED = 16  # records of noise on which an export is checked
TOLERANCE = 1e-3


class Raw(nn.Module):
    """A model that takes raw records: bytes of images, or numbers before they are scaled.

    Of a table each column is a number: a category is its place in the list of categories (from 0),
    and a missing value is NaN.
    """

    def __init__(self, model: nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.model = model
        self.preprocessing = preprocessing

    def forward(self, records: Tensor) -> Tensor:
        """Return logits."""
        if self.preprocessing.kind == "images":
            inputs = to_model_input(records)
        elif self.preprocessing.kind == "arrays":
            low, high = torch.tensor(self.preprocessing.bounds, dtype=torch.float64).T
            one = records.ndim > 2  # pair of bounds for all of an image
            inputs = _scaled(records, low[0] if one else low, high[0] if one else high)
        else:
            inputs = torch.cat(
                [part for k in range(records.shape[1]) for part in self._column(records, k)], dim=1
            )
        logits: Tensor = self.model(inputs)
        return logits

    def _column(self, records: Tensor, k: int) -> list[Tensor]:
        column, values = self.preprocessing.columns[k], records[:, k : k + 1]
        gone = torch.isnan(values)
        if column.categories:
            fill = -1.0
            if column.missing not in (None, INDICATOR):
                fill = float(column.categories.index(str(column.missing)))
            codes = torch.where(gone, torch.full_like(values, fill), values)
            places = torch.arange(len(column.categories), dtype=torch.float64)
            found = [(codes == places).to(torch.float32)]
        else:
            low, high = column.bounds or (0.0, 1.0)
            fill = low / 2 + high / 2
            if column.missing not in (None, INDICATOR):
                fill = float(str(column.missing))
            filled = torch.where(gone, torch.full_like(values, fill), values)
            ends = torch.tensor([low, high], dtype=torch.float64)
            found = [_scaled(filled, ends[0], ends[1])]
        return [*found, gone.to(torch.float32)] if column.missing == INDICATOR else found


def _scaled(values: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return values clipped to their bounds and mapped to [-1, 1], as `schema.scale`."""
    clipped = torch.minimum(torch.maximum(values, low), high)
    return (2.0 * ((clipped / 2 - low / 2) / (high / 2 - low / 2)) - 1.0).to(torch.float32)


def to_onnx(model: LoadedModel, path: str | Path) -> Path:
    """Write a model as ONNX with its preprocessing inside, and check it against torch.

    The input `records` is a batch of raw records, the output `logits`. What images of another size
    or format become bytes by is not inside; preprocessing.json, which is in the file's metadata,
    says it.

    Args:
        model: A loaded model with its preprocessing.
        path: The file, which must not exist.

    Returns:
        The file.

    Raises:
        ValueError: If the model has no preprocessing, ONNX is not installed, or the file computes
            something else than torch.

    Example:
        >>> import simplexdp
        >>> from simplexdp import export
        >>> export.to_onnx(simplexdp.load_model("run"), "model.onnx")  # doctest: +SKIP
    """
    target = Path(path)
    if target.exists():
        raise ValueError(f"{target} exists; name another file with --out")
    if model.preprocessing is None or model.preprocessing.vectors:
        raise ValueError(
            "the model has no preprocessing of its own to export; use its predict method"
        )
    onnx: Any = plugins.extra("onnx", "onnx")
    plugins.extra("onnxscript", "onnx")
    runtime: Any = plugins.extra("onnxruntime", "onnx")
    raw = Raw(model.model, model.preprocessing).eval()
    example = torch.from_numpy(noise(model.preprocessing))
    building = target.with_name(f".{target.name}.{secrets.token_hex(4)}.onnx")
    try:
        proto = _proto(raw, example)
        told = {
            "preprocessing": json.dumps(model.preprocessing.to_json()),
            "class_names": json.dumps(list(model.class_names)),
            "statement": model.statement.headline(),
        }
        onnx.helper.set_model_props(proto, told)
        onnx.save(proto, building)
        session = runtime.InferenceSession(building, providers=["CPUExecutionProvider"])
        with torch.no_grad():
            expected = raw(example).numpy()
        found = session.run(["logits"], {"records": example.numpy()})[0]
        if not np.allclose(found, expected, atol=TOLERANCE, rtol=TOLERANCE):
            raise ValueError("the exported model computes something else than torch; use predict")
        os.replace(building, target)
    finally:
        building.unlink(missing_ok=True)
    return target


def _proto(raw: Raw, example: Tensor) -> Any:
    """Return the model in ONNX's form, or refuse one that has no such form."""
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            made: Any = torch.onnx.export(
                raw,
                (example,),
                input_names=["records"],
                output_names=["logits"],
                dynamic_shapes={"records": {0: torch.export.Dim("batch", min=1)}},
                dynamo=True,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise ValueError(
            "the model has steps that ONNX lacks (scattering has: it computes with complex "
            "numbers); use simplexdp predict, or train on other features"
        ) from error
    return made.model_proto


def noise(preprocessing: Preprocessing, records: int = CHECKED) -> NDArray[Any]:
    """Return made-up raw records, of which some table values are missing."""
    rng = np.random.default_rng(0)
    if preprocessing.kind == "images":
        return rng.integers(0, 256, (records, *preprocessing.shape), dtype=np.uint8)
    if preprocessing.kind == "arrays":
        low, high = np.array(preprocessing.bounds, dtype=np.float64).T
        if len(preprocessing.shape) > 1:
            low, high = low[0], high[0]
        return rng.uniform(low, high, (records, *preprocessing.shape))
    columns = []
    for column in preprocessing.columns:
        low, high = column.bounds or (0.0, 1.0)
        values = rng.uniform(low, high, records)
        if column.categories:
            values = rng.integers(0, len(column.categories), records).astype(np.float64)
        if column.missing is not None:
            values[::3] = np.nan
        columns.append(values)
    return np.stack(columns, axis=1)
