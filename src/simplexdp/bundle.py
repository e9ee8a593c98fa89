"""The model folder that is handed out: what describes it, and how it is read back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from simplexdp import data, files
from simplexdp.runs import DESCRIPTION, HANDED_OUT, MODEL, STATEMENT
from simplexdp.settings import Settings
from simplexdp.statement import Statement, from_json

if TYPE_CHECKING:
    from simplexdp.methods.base import Method, Prepared

BLOCK = 1000


@dataclass(frozen=True)
class Description:
    """What it takes to build a model and give it inputs; model.json holds it.

    Attributes:
        method: The method that trained it.
        model: The network's name.
        norm: Its normalisation.
        options: The method's own options.
        on_features: Whether it is linear on a fixed feature map, and no network.
        shape: The shape of one input.
        pixels: Whether inputs are bytes, and not scaled numbers.
        class_names: The classes, in the order of the logits.
    """

    method: str
    model: str
    norm: str
    options: Mapping[str, Any]
    on_features: bool
    shape: tuple[int, ...]
    pixels: bool
    class_names: tuple[str, ...]

    @property
    def features(self) -> str:
        """The name of the fixed feature map."""
        return str(self.options.get("features", "auto"))


def describe(settings: Settings, prepared: Prepared, dataset: data.Dataset) -> dict[str, Any]:
    """Return the description of a run's model, as JSON-ready data."""
    from simplexdp.methods import lookup

    return {
        "method": settings.method,
        "model": prepared.model_name,
        "norm": settings.norm,
        "options": dict(settings.options),
        "on_features": not lookup(settings.method).trains_network(settings),
        "shape": list(dataset.input_shape),
        "pixels": dataset.pixels,
        "class_names": list(dataset.class_names),
    }


@dataclass(frozen=True)
class LoadedModel:
    """A trained model with its classes, and the statement that says what its bound covers.

    Where the statement does not cover the weights, it does not cover predictions either.

    Attributes:
        model: The network, on the CPU and in evaluation mode.
        class_names: The classes, in the order of the logits.
        input_shape: The shape of one input.
        pixels: Whether inputs are bytes (images) or scaled numbers.
        statement: What may be claimed of the weights.
    """

    model: nn.Module
    class_names: tuple[str, ...]
    input_shape: tuple[int, ...]
    pixels: bool
    statement: Statement

    def predict(self, inputs: ArrayLike) -> NDArray[np.int64]:
        """Return the class of each record, as a number; inputs as `data.load` gives them."""
        found = [logits.argmax(1).numpy() for logits in self._logits(inputs)]
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    def predict_proba(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return the softmax of each record: one row a record, one column a class.

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


def load_model(
    folder: str | Path, model: nn.Module | None = None, method: Method | None = None
) -> LoadedModel:
    """Read back the model of a finished run, on the CPU and ready to predict.

    Of the run folder it needs model.json, model.safetensors and statement.json, and no more.
    Code of one's own (package.module:NAME) is not imported because a folder names it.

    Args:
        folder: The run folder, or those three files of it.
        model: The network, where it is one of your own: build it and pass it.
        method: The method, where it is one of your own.

    Returns:
        The model with its statement.

    Raises:
        ValueError: If the folder holds no finished model, or one that is damaged.

    Example:
        >>> import tempfile
        >>> from simplexdp import Settings, data, load_model, methods
        >>> asked = Settings(steps=3, batch_size=8)
        >>> _, run = methods.run(asked, Path(tempfile.mkdtemp()) / "run")
        >>> load_model(run.path).predict(data.load("digits").test.inputs[:5]).shape
        (5,)
    """
    path = Path(folder)
    if missing := [name for name in HANDED_OUT if not (path / name).is_file()]:
        raise ValueError(
            f"{folder} has no {missing[0]}, so it holds no finished model; an unfinished run goes "
            f"on with --resume --out {folder}"
        )
    try:
        record = files.read_json(path / DESCRIPTION)
        description = Description(
            method=str(record["method"]),
            model=str(record["model"]),
            norm=str(record["norm"]),
            options=dict(record["options"]),
            on_features=bool(record["on_features"]),
            shape=tuple(int(side) for side in record["shape"]),
            pixels=bool(record["pixels"]),
            class_names=tuple(str(name) for name in record["class_names"]),
        )
        statement = from_json(files.read_json(path / STATEMENT))
        if model is None:
            model = _build(description, method)
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
    return LoadedModel(
        model.eval(), description.class_names, description.shape, description.pixels, statement
    )


def _build(description: Description, method: Method | None) -> nn.Module:
    """Return the untrained model; code that only the folder names is not imported."""
    from simplexdp.methods import lookup

    for name in (description.model, description.features):
        if ":" in name:
            raise ValueError(f"the model is made by {name}; build it and pass it as model=")
    if method is None:
        if ":" in description.method:
            raise ValueError(
                f"the model was trained by {description.method}; import it and pass it as method="
            )
        method = lookup(description.method)
    return method.rebuild(description)
