"""How is a trained model used?  A run folder, read back with what may be said of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from simplexdp import data, features, files, models
from simplexdp.methods import gaussian_features
from simplexdp.methods.fixed_features import FeatureLinear
from simplexdp.runs import DESCRIPTION, HANDED_OUT, MODEL, STATEMENT
from simplexdp.statement import Statement, from_json

BLOCK = 1000


@dataclass(frozen=True)
class LoadedModel:
    """A trained network with its classes, and the statement that says what its figure covers.

    Where the statement does not cover the weights, it does not cover predictions either.
    """

    model: nn.Module
    class_names: tuple[str, ...]
    input_shape: tuple[int, ...]
    pixels: bool  # whether inputs are bytes (images) or scaled numbers
    statement: Statement

    def predict(self, inputs: ArrayLike) -> NDArray[np.int64]:
        """The class of each record, as a number; inputs as `data.load` gives them."""
        found = [logits.argmax(1).numpy() for logits in self._logits(inputs)]
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    def predict_proba(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """The softmax of each record: one row a record, one column a class.

        Algorithm 1's loss asks for decisions: do not read what it trained as probabilities.
        """
        found = [logits.softmax(1).numpy() for logits in self._logits(inputs)]
        empty = np.empty((0, len(self.class_names)), dtype=np.float32)
        return np.concatenate(found) if found else empty

    def _logits(self, inputs: ArrayLike) -> Iterator[torch.Tensor]:
        records = np.asarray(inputs)
        if records.shape[1:] != self.input_shape or records.ndim == 0:
            raise ValueError(
                f"the model takes records of shape {self.input_shape}, and these have "
                f"{records.shape[1:]}; load them with the options of the training data"
            )
        if (records.dtype == np.uint8) != self.pixels:
            expected = "bytes (uint8, 0 to 255)" if self.pixels else "scaled numbers (float32)"
            raise ValueError(
                f"the model takes {expected}, and these are {records.dtype}; load them with the "
                "options of the training data"
            )
        if not self.pixels and not np.isfinite(records).all():
            raise ValueError("the inputs hold NaN or infinity; clean them first")
        with torch.no_grad():
            for first in range(0, len(records), BLOCK):
                block = records[first : first + BLOCK]
                block = block.copy() if self.pixels else block.astype(np.float32)
                yield self.model(data.to_model_input(torch.from_numpy(block)))


def load_model(folder: str | Path, model: nn.Module | None = None) -> LoadedModel:
    """The model of a finished run, on the CPU and ready to predict.

    Of the run folder it needs model.json, model.safetensors and statement.json, and no more.
    A network of one's own (package.module:factory) is not imported because a folder names it: build
    it and pass it as `model`.
    """
    path = Path(folder)
    if missing := [name for name in HANDED_OUT if not (path / name).is_file()]:
        raise ValueError(
            f"{folder} has no {missing[0]}, so it holds no finished model; an unfinished run goes "
            f"on with --resume --out {folder}"
        )
    try:
        record = files.read_json(path / DESCRIPTION)
        shape = tuple(int(side) for side in record["shape"])
        names = tuple(str(name) for name in record["class_names"])
        pixels = bool(record["pixels"])
        if model is None:
            model = _build(record, shape, len(names))
        statement = from_json(files.read_json(path / STATEMENT))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{DESCRIPTION} or {STATEMENT} in {folder} is damaged or was edited; restore it"
        ) from error
    try:
        model.load_state_dict(load_file(path / MODEL))
    except RuntimeError as error:
        raise ValueError(f"the weights in {folder} do not fit the model") from error
    except SafetensorError as error:
        raise ValueError(
            f"the weights in {folder} are damaged; restore them or train anew"
        ) from error
    return LoadedModel(model.eval(), names, shape, pixels, statement)


def _build(record: Mapping[str, Any], shape: tuple[int, ...], classes: int) -> nn.Module:
    options = record["options"]
    for name in (str(record["model"]), str(options.get("features", ""))):
        if ":" in name:
            raise ValueError(f"the model is made by {name}; build it and pass it as model=")
    if record["on_features"]:
        feature_map = features.build(str(options.get("features", "auto")), shape)
        if record["method"] == "certified":
            return FeatureLinear(feature_map, classes, record["pixels"])
        kept = int(options.get("dimensions", gaussian_features.DIMENSIONS))
        basis = gaussian_features.projection(feature_map.width, kept)
        return gaussian_features.ProjectedLinear(feature_map, basis, classes, record["pixels"])
    network = models.build(str(record["model"]), shape, classes, record["norm"])
    if record["method"] == "dpsgd":
        from simplexdp.methods import dpsgd  # Opacus takes seconds to load

        network = dpsgd.without_batch_norm(network, bool(options.get("replace_batch_norm")))
    return network
