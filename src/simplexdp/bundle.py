"""The model folder that is handed out: what describes it, and how it is read back."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from simplexdp import data, files, seal, typed
from simplexdp.data.preprocessing import Preprocessing, from_json, is_raw
from simplexdp.seal import DESCRIPTION, MODEL, PREPROCESSING
from simplexdp.settings import Settings
from simplexdp.statement import Statement

if TYPE_CHECKING:
    from simplexdp.methods.base import Method, Prepared

BLOCK = 1000
LARGEST_SIDE = 2**24  # of an input


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
        probabilities: Whether the softmax may be read as probabilities.
    """

    method: str
    model: str
    norm: str
    options: Mapping[str, Any]
    on_features: bool
    shape: tuple[int, ...]
    pixels: bool
    class_names: tuple[str, ...]
    probabilities: bool = False

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
        "probabilities": lookup(settings.method).probabilities,
    }


def preprocessing_of(prepared: Prepared, dataset: data.Dataset) -> dict[str, Any] | None:
    """Return what turns a record into what the model computes with; None where that is not known.

    It is for people, and for `LoadedModel.inputs`.
    """
    if dataset.preprocessing is None:
        return None
    feature_map = getattr(prepared.model, "feature_map", None)
    features = None
    if feature_map is not None:
        known = feature_map.provenance
        features = {
            "name": feature_map.name,
            "provenance": known.describe(),
            "trained_on": known.trained_on,
            "checksum": known.checksum,
        }
    return {
        **dataset.preprocessing.to_json(),
        "class_names": list(dataset.class_names),
        "features": features,
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
        preprocessing: What turns a record into an input; None where that is not known.
        probabilities: Whether the softmax may be read as probabilities.

    Example:
        >>> import simplexdp
        >>> model = simplexdp.load_model("runs/scans-1")  # doctest: +SKIP
        >>> model.predict("new-scans")  # doctest: +SKIP
    """

    model: nn.Module
    class_names: tuple[str, ...]
    input_shape: tuple[int, ...]
    pixels: bool
    statement: Statement
    preprocessing: Preprocessing | None = None
    probabilities: bool = False

    def inputs(self, records: Any) -> NDArray[Any]:
        """Return inputs for raw records, by the preprocessing that is kept with the model.

        Args:
            records: A path or several, images of PIL, a data frame, or an array of raw values.

        Returns:
            What `predict` takes.

        Raises:
            ValueError: If no preprocessing is kept, or the records are not as it says.
        """
        return self._preprocessing().inputs(records)

    def _preprocessing(self) -> Preprocessing:
        if self.preprocessing is None:
            raise ValueError(
                "the model has no preprocessing of its own; give arrays as data.load gives them"
            )
        return self.preprocessing

    def table(self, records: Any) -> dict[str, list[Any]]:
        """Return predictions by columns: record, class, and probabilities where they mean that.

        Args:
            records: As `inputs` takes them.

        Returns:
            Columns by name.
        """
        names, inputs = self._preprocessing().named(records)
        shares = self.predict_proba(inputs)
        columns: dict[str, list[Any]] = {
            "record": names,
            "class": [self.class_names[k] for k in shares.argmax(axis=1)],
        }
        if self.probabilities:
            for name, column in zip(self.class_names, shares.T, strict=True):
                columns[f"probability of {name}"] = [round(float(p), 6) for p in column]
        return columns

    def predict(self, inputs: Any) -> NDArray[np.int64]:
        """Return the class of each record, as a number.

        Args:
            inputs: A path or several, images of PIL or a data frame, which are preprocessed; or
                an array as `data.load` gives it (`inputs` makes one of raw values).

        Returns:
            One number a record; `class_names` has their names.

        Raises:
            ValueError: If the inputs do not fit the model.
        """
        found = [logits.argmax(1).numpy() for logits in self._logits(inputs)]
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)

    def predict_proba(self, inputs: Any) -> NDArray[np.float32]:
        """Return the softmax of each record: one row a record, one column a class.

        Algorithm 1's loss asks for decisions: do not read what it trained as probabilities.
        """
        found = [logits.softmax(1).numpy() for logits in self._logits(inputs)]
        empty = np.empty((0, len(self.class_names)), dtype=np.float32)
        return np.concatenate(found) if found else empty

    def _logits(self, inputs: Any) -> Iterator[torch.Tensor]:
        records = self.inputs(inputs) if is_raw(inputs) else np.asarray(inputs)
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
        kept = self.preprocessing
        bounded = kept is not None and not self.pixels and not kept.vectors
        if bounded and len(records) and float(np.abs(records).max()) > 1.0 + 1e-6:
            raise ValueError(
                "the inputs lie outside [-1, 1], so they are raw; give model.inputs(records), or "
                "their file"
            )
        with torch.no_grad():
            for first in range(0, len(records), BLOCK):
                block = records[first : first + BLOCK]
                block = block.copy() if self.pixels else block.astype(np.float32)
                yield self.model(data.to_model_input(torch.from_numpy(block)))


def load_model(
    folder: str | Path,
    model: nn.Module | None = None,
    method: Method | None = None,
    trust: Collection[str] = (),
) -> LoadedModel:
    """Read back the model of a finished run, on the CPU and ready to predict.

    The folder is checked as `simplexdp verify` does: every file against the manifest, and the
    statement's claim against its event. Code of one's own (package.module:NAME) is not imported
    because a folder names it.

    Args:
        folder: The run folder, or one that `simplexdp release` made.
        model: The network, where it is one of your own: build it and pass it.
        method: The method, where it is one of your own.
        trust: Names of code (package.module:NAME) to import if the folder names it.

    Returns:
        The model with its statement.

    Raises:
        ValueError: If the folder holds no finished model, or one that was damaged or edited.

    Example:
        >>> import tempfile
        >>> from simplexdp import Settings, data, load_model, methods
        >>> asked = Settings(steps=3, batch_size=8)
        >>> _, run = methods.run(asked, Path(tempfile.mkdtemp()) / "run")
        >>> load_model(run.path).predict(data.load("digits").test.inputs[:5]).shape
        (5,)
    """
    from simplexdp.methods import lookup

    sealed = seal.verify(folder)
    description = _description(sealed)
    if model is None:
        _refuse_code(description, method, trust)
        with files.well_formed(sealed.folder / DESCRIPTION, "restore it"):
            model = (method or lookup(description.method)).rebuild(description)
    weights = sealed.folder / MODEL
    try:
        model.load_state_dict(load(sealed.read(MODEL)))
    except RuntimeError as error:
        raise ValueError(f"{weights} does not fit the model; restore it or train anew") from error
    except SafetensorError as error:
        raise ValueError(f"{weights} is damaged; restore it or train anew") from error
    return LoadedModel(
        model.eval(),
        description.class_names,
        description.shape,
        description.pixels,
        sealed.statement,
        _kept_preprocessing(sealed, description),
        description.probabilities,
    )


def _kept_preprocessing(sealed: seal.Sealed, description: Description) -> Preprocessing | None:
    """Return what preprocessing.json says; refuse one that does not fit the model."""
    if PREPROCESSING not in sealed.digests:
        return None
    with files.well_formed(sealed.folder / PREPROCESSING, "restore it"):
        found = from_json(json.loads(sealed.read(PREPROCESSING)))
        if found.shape != description.shape:
            raise ValueError(f"its shape is not that of {DESCRIPTION}")
        return found


def _description(sealed: seal.Sealed) -> Description:
    """Return what model.json says; refuse values that no model has."""
    path = sealed.folder / DESCRIPTION
    with files.well_formed(path, "restore it"):
        found = typed.read(Description, json.loads(sealed.read(DESCRIPTION)))
        if not all(0 < side <= LARGEST_SIDE for side in found.shape):
            raise ValueError("shape is no list of positive whole numbers")
        return found


def _refuse_code(description: Description, method: Method | None, trust: Collection[str]) -> None:
    """Refuse to import code that only the folder names."""
    named = [description.model, description.features]
    if method is None:
        named.append(description.method)
    for name in named:
        if ":" in name and name not in trust:
            raise ValueError(
                f"the model needs code, {name}; if you trust it, give --trust {name} "
                "(load_model: trust=[...])"
            )
