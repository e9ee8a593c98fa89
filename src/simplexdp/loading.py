"""How is a trained model used?  A run folder, read back with what may be said of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from . import data, features, files, models
from .methods import certified, gaussian_features
from .runs import RunFolder
from .settings import Settings
from .statement import Statement, from_json

BLOCK = 1000


@dataclass(frozen=True)
class LoadedModel:
    """A trained network with its classes, and the statement that says what its figure covers.

    Where the statement does not cover the weights, it does not cover predictions either.
    """

    model: nn.Module
    class_names: tuple[str, ...]
    input_shape: tuple[int, ...]
    statement: Statement

    def predict(self, inputs: NDArray[Any]) -> NDArray[np.int64]:
        """The class of each record, as a number; inputs as `data.load` gives them."""
        found = [logits.argmax(1).numpy() for logits in self._logits(inputs)]
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    def predict_proba(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """The softmax of each record: one row a record, one column a class."""
        found = [logits.softmax(1).numpy() for logits in self._logits(inputs)]
        empty = np.empty((0, len(self.class_names)), dtype=np.float32)
        return np.concatenate(found) if found else empty

    def _logits(self, inputs: NDArray[Any]) -> Iterator[torch.Tensor]:
        if tuple(inputs.shape[1:]) != self.input_shape:
            raise ValueError(
                f"the model takes records of shape {self.input_shape}, and these have "
                f"{tuple(inputs.shape[1:])}; load them with the options of the training data"
            )
        with torch.no_grad():
            for first in range(0, len(inputs), BLOCK):
                block = torch.from_numpy(inputs[first : first + BLOCK].copy())
                yield self.model(data.to_model_input(block))


def load_model(folder: str | Path, model: nn.Module | None = None) -> LoadedModel:
    """The model of a finished run, on the CPU and ready to predict.

    A network of one's own (package.module:factory) is not imported because a folder names it: build
    it and pass it as `model`.
    """
    run = RunFolder.open(Path(folder))
    if not run.finished():
        raise ValueError(f"{folder} is not finished; go on with it by --resume --out {folder}")
    record = run.configuration()
    if "inputs" not in record:
        raise ValueError(f"{folder} does not say what its inputs were; train it again")
    shape = tuple(int(side) for side in record["inputs"]["shape"])
    names = tuple(str(name) for name in record["inputs"]["class_names"])
    if model is None:
        built = record["outcome"]["model"]
        model = _build(run.settings(), built, shape, len(names), record["inputs"]["pixels"])
    try:
        run.load_weights(model)
    except RuntimeError as error:
        raise ValueError(f"the weights in {folder} do not fit the model") from error
    statement = from_json(files.read_json(run.path / "statement.json"))
    return LoadedModel(model.eval(), names, shape, statement)


def _build(
    settings: Settings, name: str, shape: tuple[int, ...], classes: int, pixels: bool
) -> nn.Module:
    options = settings.options
    if settings.method == "certified":
        feature_map = features.build(str(options.get("features", "auto")), shape)
        return certified.FeatureLinear(feature_map, classes, pixels)
    if settings.method == "gaussian-features" and options.get("form") != "trained":
        feature_map = features.build(str(options.get("features", "auto")), shape)
        kept = int(options.get("dimensions", gaussian_features.DIMENSIONS))
        basis = gaussian_features.projection(feature_map.width, kept)
        return gaussian_features.ProjectedLinear(feature_map, basis, classes, pixels)
    if ":" in name:
        raise ValueError(f"the run's network is {name}; build it and pass it as model=")
    network = models.build(name, shape, classes, settings.norm)
    if settings.method == "dpsgd":
        from .methods import dpsgd  # Opacus takes seconds to load

        network = dpsgd.without_batch_norm(network, bool(options.get("replace_batch_norm")))
    return network
