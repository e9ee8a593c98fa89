"""Checks, before anything is spent, that a network can be trained on this data."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

PROBE = 2
MOVED = 0.3  # of a weight's usual size is added to it, at random, for a second look


def check(model: nn.Module, input_shape: tuple[int, ...], classes: int) -> None:
    """Refuse a model that does not map (n, *input_shape) to finite logits (n, classes).

    A batch of zeros goes through it in training and in evaluation mode. The model's modes,
    parameters and buffers, and torch's random state, are afterwards what they were.
    """
    batch = torch.zeros((PROBE, *input_shape), device=_device(model))
    wanted = (PROBE, classes)
    for training in (True, False):
        output = _probe(model, batch, training)
        if not isinstance(output, torch.Tensor):
            raise ValueError(
                f"the model gives a {type(output).__name__}: return a tensor of logits"
            )
        if tuple(output.shape) != wanted:
            raise ValueError(
                f"the model's output has shape {tuple(output.shape)} for {PROBE} inputs of shape "
                f"{tuple(input_shape)}, wanted {wanted}: its last layer must have {classes} outputs"
            )
        if not bool(torch.isfinite(output).all()):
            raise ValueError(
                "the model gives NaN or infinite logits on an input of zeros: mend its layers"
            )


def has_batch_norm(model: nn.Module) -> bool:
    """Return whether some layer is a batch normalisation, which couples the records of a batch."""
    return any(isinstance(module, _BatchNorm) for module in model.modules())


def couples_records(model: nn.Module, input_shape: tuple[int, ...]) -> bool:
    """Return whether, in training, one record's logits move when another of its batch changes.

    This finds couplings that `has_batch_norm` cannot see, such as a functional batch_norm inside
    a user's forward, also behind weights that begin at zero. It is a probe at a few points: True is
    a proof, False is not.
    """
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn((4, *input_shape), generator=generator).to(_device(model))
    other = batch.clone()
    other[1:] = 1.0 - 2.0 * other[1:]
    for weights in (unchanged, moved):
        with weights(model):
            first, second = (_probe(model, x, training=True)[0] for x in (batch, other))
        if not torch.allclose(first, second, rtol=1e-4, atol=1e-6, equal_nan=True):
            return True
    return False


def writes_buffers(model: nn.Module, input_shape: tuple[int, ...]) -> bool:
    """Return whether a pass writes into the model, such as the running mean of its inputs.

    Buffers are looked at, and all that `state_dict` saves: a frozen parameter can hold statistics
    as well as a buffer, and no noise is added to either. A pass has nothing to write into trained
    parameters. Like `couples_records` it is a probe: True is a proof, False is not.
    """
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn((4, *input_shape), generator=generator).to(_device(model))
    with moved(model):
        before = _state(model)
        with torch.no_grad(), torch.random.fork_rng():
            for training in (True, False):
                model.train(training)
                model(batch)
        after = _state(model)
    return before.keys() != after.keys() or any(
        not _equal(value, after[name]) for name, value in before.items()
    )


@contextmanager
def moved(model: nn.Module) -> Iterator[None]:
    """Hold other weights for a while, as training might reach them: none stays at its zero."""
    generator = torch.Generator().manual_seed(1)
    with unchanged(model):
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.is_floating_point():
                    step = torch.randn(parameter.shape, generator=generator).to(parameter)
                    parameter.add_(MOVED * _size(parameter) * step)
        yield


def _size(parameter: torch.Tensor) -> float:
    """Return the usual size of such a weight: its own, or what keeps a layer's outputs near 1."""
    usual = parameter[0].numel() ** -0.5 if parameter.ndim > 1 and len(parameter) else 0.1
    return max(usual, float(parameter.square().mean().sqrt()) if parameter.numel() else 0.0)


def _state(model: nn.Module) -> dict[str, Any]:
    """Return a copy of what is saved, and of the buffers that are not."""
    state = {**dict(model.named_buffers()), **model.state_dict()}
    detached = {k: getattr(v, "detach", lambda v=v: v)() for k, v in state.items()}
    return copy.deepcopy(detached)


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor):
        return torch.equal(first, second)
    return bool(first == second)


def _device(model: nn.Module) -> torch.device:
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def _probe(model: nn.Module, batch: torch.Tensor, training: bool) -> torch.Tensor:
    """Return the output on `batch`, with every call seeing the same random state."""
    with unchanged(model), torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        model.train(training)
        try:
            output: torch.Tensor = model(batch)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
            raise ValueError(
                f"the model cannot take inputs of shape {tuple(batch.shape[1:])}: {reason}"
            ) from error
    return output


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Put the modes, the parameters and the buffers back to what they were."""
    modes = [(module, module.training) for module in model.modules()]
    tensors = [*model.parameters(), *model.buffers()]
    saved = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        with torch.no_grad():
            for tensor, value in zip(tensors, saved, strict=True):
                tensor.copy_(value)
