"""Checkpoints: tensors in safetensors, the rest in its JSON header.

Because randomness is a function of (seed, step), a checkpoint needs no generator state.  It
holds the secret seed, so it is readable by its owner alone and is deleted when the run ends.
It also holds a fingerprint of the training records, keyed by that seed: a run that went on with
other records would have a figure for neither.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from simplexdp.files import write_atomically

ROWS_AT_ONCE = 4096  # of the training records, when they are read for their fingerprint


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a run needs to go on after `step` finished steps."""

    step: int
    seed: int
    key: str
    seconds: float
    fingerprint: str
    model: Mapping[str, Tensor]
    optimizer: Mapping[str, Any]
    extra: Mapping[str, Tensor]


def write(
    path: Path,
    *,
    step: int,
    seed: int,
    key: str,
    seconds: float,
    fingerprint: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    extra: Mapping[str, Tensor],
) -> None:
    """Write a checkpoint atomically."""
    tensors = {f"model/{name}": value for name, value in model.state_dict().items()}
    tensors |= {f"extra/{name}": value for name, value in extra.items()}
    scalars: dict[str, Any] = {}
    state = optimizer.state_dict()
    for index, entries in state["state"].items():
        for name, value in entries.items():
            slot = f"optimizer/{index}/{name}"
            if isinstance(value, Tensor):
                tensors[slot] = value
            else:
                scalars[slot] = value
    header = {
        "step": step,
        "seed": str(seed),
        "key": key,
        "seconds": seconds,
        "fingerprint": fingerprint,
    }
    text = json.dumps({**header, "groups": state["param_groups"], "scalars": scalars})
    owned = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    metadata = {"run": text, "digest": _digest(text, owned)}
    write_atomically(path, save(owned, metadata), mode=0o600)


def read(path: Path, key: str) -> Checkpoint:
    """Read a checkpoint of the run named by `key`; refuse anything else."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        text = metadata["run"]
        if metadata["digest"] != _digest(text, tensors):
            raise ValueError("its digest is another one")
        header = json.loads(text)
        found = header["key"]
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged; delete the run folder and train again in a new one"
        ) from error
    if found != key:
        raise ValueError(
            f"{path} belongs to a run with other settings or of another version; "
            "resume with the settings in its run.json"
        )
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "extra": {}}
    state: dict[int, dict[str, Any]] = {}
    for name, value in {**tensors, **header["scalars"]}.items():
        part, _, rest = name.partition("/")
        if part == "optimizer":
            index, _, slot = rest.partition("/")
            state.setdefault(int(index), {})[slot] = value
        else:
            parts[part][rest] = value
    return Checkpoint(
        step=header["step"],
        seed=int(header["seed"]),
        key=key,
        seconds=header["seconds"],
        fingerprint=header["fingerprint"],
        model=parts["model"],
        optimizer={"state": state, "param_groups": header["groups"]},
        extra=parts["extra"],
    )


def _digest(text: str, tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of all that a checkpoint holds: an edited one is told before it is used."""
    digest = hashlib.sha256(text.encode())
    for name, value in sorted(tensors.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)};".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def fingerprint_of(seed: int, *arrays: npt.NDArray[Any]) -> str:
    """Return a keyed digest of shapes, types and values, meaningless without the seed."""
    digest = hashlib.blake2b(digest_size=16, key=hashlib.sha256(str(seed).encode()).digest())
    for array in arrays:
        digest.update(f"{array.shape} {array.dtype.str};".encode())
        for first in range(0, len(array), ROWS_AT_ONCE):
            digest.update(np.ascontiguousarray(array[first : first + ROWS_AT_ONCE]).data)
    return digest.hexdigest()
