"""Feature maps from encoders: of timm, torchvision, transformers, an ONNX file, or one's own code.

The libraries are used where they are installed. An encoder sees images at its own resolution and in
its own normalisation, in evaluation mode and without gradients, and gives one vector a record.
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from simplexdp import files, plugins
from simplexdp.features import normalize
from simplexdp.features.provenance import Provenance, checksum

Apply = Callable[[torch.Tensor], torch.Tensor]
LARGEST_SIDE = 1024
INSTALLED_BY = {
    "timm": '"simplexdp[timm]"',
    "torchvision": '"simplexdp[timm]"',
    "onnxruntime": '"simplexdp[onnx]"',
}


@dataclass(frozen=True)
class Encoder:
    """What makes the features: a map of batches, its name with a checksum, and its provenance."""

    name: str
    apply: Apply
    provenance: Provenance


def load(name: str, shape: tuple[int, ...], trained_on: str | None = None) -> Encoder:
    """Return the encoder "timm:NAME", "torchvision:NAME", "hf:NAME", "onnx:FILE" or one's own.

    "@SIDE" after the name of one of the first three sets the resolution.

    Args:
        name: The encoder.
        shape: The shape of one record.
        trained_on: What the user declares that it was trained on.

    Raises:
        ValueError: If a library or the weights are missing, or records do not fit.
    """
    kind, _, what = name.partition(":")
    if kind in _LIBRARIES:
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise ValueError(
                f"{name} takes images of 1 or 3 channels, not records of shape {shape}; "
                "use features columns or random"
            )
        what, _, side = what.partition("@")
        return _LIBRARIES[kind](what, _side(side), trained_on)
    if kind == "onnx":
        return _onnx(what, trained_on)
    return _own(name, plugins.own(name, f"the features {name!r} cannot be imported"), trained_on)


def own(function: Any, trained_on: str | None = None) -> Encoder:
    """Return a function or a torch module of one's own as an encoder."""
    return _own(getattr(function, "__qualname__", type(function).__name__), function, trained_on)


def _library(module: str, kind: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except (ImportError, RuntimeError, OSError) as error:  # of a build for another torch, too
        raise ValueError(
            f"features {kind}: need {module}, which is not installed here, or does not fit this "
            f"torch; pip install {INSTALLED_BY.get(module, module)}"
        ) from error


def _side(text: str) -> int | None:
    if not text:
        return None
    if not (text.isdigit() and 8 <= int(text) <= LARGEST_SIDE):
        raise ValueError(
            f"the resolution @{text} makes no sense; give one number from 8 to {LARGEST_SIDE}"
        )
    return int(text)


def _had(name: str, make: Callable[[], Any]) -> Any:
    """Return what a library loads, or say in one line that it could not."""
    try:
        return make()
    except Exception as error:  # each library has errors of its own for a name and for a network
        said = (str(error).strip() or type(error).__name__).splitlines()[0][:120]
        raise ValueError(
            f"{name} cannot be loaded ({said}); check the name, and download its weights once"
        ) from error


def _image_encoder(
    name: str,
    module: nn.Module,
    side: tuple[int, int],
    mean: Sequence[float],
    std: Sequence[float],
    told: Provenance,
    forward: Apply | None = None,
) -> Encoder:
    """Return an encoder of images in [0, 1], scaled to its resolution and normalisation."""
    module.eval().requires_grad_(False)
    centre = torch.tensor(mean).view(-1, 1, 1)
    scale = torch.tensor(std).view(-1, 1, 1)
    call = forward or module

    def apply(batch: torch.Tensor) -> torch.Tensor:
        colour = batch.expand(-1, len(centre), -1, -1) if batch.shape[1] == 1 else batch
        seen = F.interpolate(colour, size=side, mode="bicubic", antialias=True, align_corners=False)
        return _pooled(call((seen.clamp(0, 1) - centre) / scale))

    digest = checksum(module.state_dict())
    told = Provenance(told.source, told.trained_on, told.licence, digest, side, told.fixed)
    return Encoder(f"{name}@{side[0]}x{side[1]}#{digest[:16]}", apply, told)


def _pooled(out: torch.Tensor) -> torch.Tensor:
    """Return one vector a record: maps are averaged over their positions."""
    return out.mean(dim=(2, 3)) if out.ndim == 4 else out.flatten(1)


def _timm(what: str, side: int | None, trained_on: str | None) -> Encoder:
    timm = _library("timm", "timm")
    model = _had(f"timm:{what}", lambda: timm.create_model(what, pretrained=True, num_classes=0))
    usual = timm.data.resolve_model_data_config(model)
    config = getattr(model, "pretrained_cfg", {})
    height, width = usual["input_size"][1:]
    tag = config.get("tag")
    told = Provenance(
        source=f"timm:{what}",
        trained_on=trained_on or (f"the data of timm's tag {tag}" if tag else None),
        licence=str(config.get("license") or ""),
    )
    square = (side, side) if side else (height, width)
    return _image_encoder(f"timm:{what}", model, square, usual["mean"], usual["std"], told)


def _torchvision(what: str, side: int | None, trained_on: str | None) -> Encoder:
    models = _library("torchvision", "torchvision").models
    weights = _had(f"torchvision:{what}", lambda: models.get_model_weights(what).DEFAULT)
    model = _had(f"torchvision:{what}", lambda: models.get_model(what, weights=weights))
    classes = len(weights.meta["categories"])
    heads = [n for n, m in model.named_modules() if getattr(m, "out_features", None) == classes]
    for head in heads:
        model.set_submodule(head, nn.Identity())
    usual = weights.transforms()
    told = Provenance(
        source=f"torchvision:{what} {weights.name}",
        trained_on=trained_on or f"the data of torchvision's weights {weights.name}",
        licence=str(weights.meta.get("license", "")),
    )
    square = (side or usual.crop_size[0],) * 2
    return _image_encoder(f"torchvision:{what}", model, square, usual.mean, usual.std, told)


def _hf(what: str, side: int | None, trained_on: str | None) -> Encoder:
    transformers = _library("transformers", "hf")
    usual = _had(
        f"hf:{what}",
        lambda: transformers.AutoImageProcessor.from_pretrained(what, trust_remote_code=False),
    )
    # Weights in safetensors alone: others are pickles, and run code.
    model = _had(
        f"hf:{what}",
        lambda: transformers.AutoModel.from_pretrained(
            what, trust_remote_code=False, use_safetensors=True
        ),
    )
    size: dict[str, int] = dict(getattr(usual, "crop_size", None) or usual.size)
    edge = size.get("shortest_edge", 224)
    square = (side, side) if side else (size.get("height", edge), size.get("width", edge))

    def forward(batch: torch.Tensor) -> torch.Tensor:
        if hasattr(model, "get_image_features"):  # CLIP and its like: the image tower
            out = model.get_image_features(pixel_values=batch)
        else:
            out = model(pixel_values=batch)
        if torch.is_tensor(out):
            return out
        pooled = getattr(out, "pooler_output", None)
        return torch.as_tensor(out.last_hidden_state[:, 0] if pooled is None else pooled)

    told = Provenance(source=f"hf:{what}", trained_on=trained_on)
    return _image_encoder(
        f"hf:{what}", model, square, usual.image_mean, usual.image_std, told, forward
    )


_LIBRARIES = {"timm": _timm, "torchvision": _torchvision, "hf": _hf}


def _onnx(what: str, trained_on: str | None) -> Encoder:
    """Return a model of an ONNX file: its first output, of pixels in [0, 1]."""
    path = files.expanded(what)
    if not path.is_file():
        raise ValueError(f"there is no file {what}; give onnx:FILE")
    runtime = _library("onnxruntime", "onnx")
    content = path.read_bytes()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = _had(
        f"onnx:{what}",
        lambda: runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"]),
    )
    entry = session.get_inputs()[0]
    batched = not isinstance(entry.shape[0], int) if entry.shape else True

    def apply(batch: torch.Tensor) -> torch.Tensor:
        blocks = [batch] if batched else batch.split(entry.shape[0])
        try:
            out = [session.run(None, {entry.name: block.numpy()})[0] for block in blocks]
        except Exception as error:  # onnxruntime's own classes, for inputs of another shape
            raise ValueError(
                f"onnx:{what} takes inputs of shape {entry.shape}, not {tuple(batch.shape)}; "
                "rescale the images with --image-size"
            ) from error
        return _pooled(torch.from_numpy(np.concatenate(out)))

    digest = hashlib.sha256(content).hexdigest()
    told = Provenance(
        source=f"onnx:{Path(what).name}",
        trained_on=trained_on,
        checksum=digest,
        fixed=trained_on is not None,
    )
    return Encoder(f"onnx:{Path(what).name}#{digest[:16]}", apply, told)


def _own(name: str, made: Any, trained_on: str | None) -> Encoder:
    """Return a function of arrays, or a torch module, as an encoder."""
    if not callable(made):
        raise ValueError(f"the features {name!r} are no function and no torch module; give one")
    told = Provenance(name, trained_on, fixed=trained_on is not None)
    if not isinstance(made, nn.Module):
        return Encoder(name, lambda batch: torch.as_tensor(np.asarray(made(batch.numpy()))), told)
    made.eval().requires_grad_(False)
    digest = checksum(made.state_dict())
    told = Provenance(name, trained_on, "", digest, None, told.fixed)
    return Encoder(name, lambda batch: _pooled(made(batch)), told)


def probed(encoder: Encoder, shape: tuple[int, ...]) -> int:
    """Return how many features there are; refuse what does not map a record by itself.

    Made-up records are used: width and coupling are found without reading any.

    Raises:
        ValueError: If there is not one row for each record, or a row changes with the others.
    """
    rng = torch.Generator().manual_seed(0)
    block = torch.rand((4, *shape), generator=rng)
    other = torch.cat([block[:1], 1.0 - block[1:]])
    with torch.no_grad():
        first = rows(encoder, block)
        for beside in (other, block[:1]):
            again = rows(encoder, beside)
            if not torch.allclose(first[0], again[0], rtol=1e-3, atol=1e-5, equal_nan=True):
                raise ValueError(
                    f"the features {encoder.name!r} of a record change when the records beside it "
                    "change, or at every call; use a fixed function of one record"
                )
    return first.shape[1]


def rows(encoder: Encoder, batch: torch.Tensor) -> torch.Tensor:
    """Return one row of norm 1 for each record."""
    out = encoder.apply(batch)
    if out.ndim != 2 or len(out) != len(batch):
        raise ValueError(
            f"the features {encoder.name!r} turned {len(batch)} records into an array of shape "
            f"{tuple(out.shape)}; they must give one row for each record"
        )
    # By the largest entry first: squares of large numbers overflow, those of small ones vanish.
    real = out.float()
    largest = real.abs().amax(dim=1, keepdim=True)
    return normalize.unit(torch.where(largest > 0, real / largest.clamp_min(1e-38), real))
