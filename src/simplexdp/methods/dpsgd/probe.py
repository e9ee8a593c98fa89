"""A probe that the gradients DP-SGD clips are those of single records.

The first dimension of each layer's input is taken for the record. A network that reshapes its
records into patches, or puts positions before records, has something else there, and clipping that
bounds nothing about a record.

Formal guarantee
    Statement: a network that passes has, at a few random records, at its weights and at others
    beside them, the same gradients by Opacus' hooks as by one backward pass for each record's own
    loss, to a thousandth of their norm.
    Not covered: other records and other weights. A refusal is a proof, passing is not.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from simplexdp.methods.dpsgd.layers import KEEP_RECORDS_FIRST, Book
from simplexdp.methods.dpsgd.step import gradients, trainable
from simplexdp.models.probe import moved, unchanged

PROBES = 3
# Rounding in single precision, as a share of a parameter's gradient and of the whole one.
RELATIVE, OF_THE_WHOLE = 1e-3, 1e-5


def check_by_record(model: nn.Module, input_shape: tuple[int, ...], classes: int) -> int:
    """Refuse a model whose gradients by hooks are not those of single records.

    Returns:
        How many numbers a step keeps for a record, roughly.
    """
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(0)
    inputs = 2.0 * torch.rand((PROBES, *input_shape), generator=generator) - 1.0
    labels = torch.arange(PROBES) % classes
    probes = inputs.to(device), labels.to(device)
    with warnings.catch_warnings():
        # The first layer's inputs need no gradient; torch remarks on that once a layer.
        warnings.filterwarnings("ignore", message="Full backward hook is firing")
        for weights in (moved, unchanged):  # as training may change them, and as they are
            with weights(model):
                model.train()
                with same_draws():
                    wanted = _one_by_one(model, *probes)
                hooks = hooked(model)
                try:
                    with same_draws():
                        found = _by_hooks(model, *probes)
                    _compare(found, wanted)
                    held = hooks.held
                finally:
                    hooks.remove_hooks()
    return math.ceil(held / PROBES)


@contextmanager
def same_draws() -> Iterator[None]:
    """Let both ways of differentiating see the same dropout."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


def hooked(model: nn.Module) -> Book:
    """Return hooks on a model, by which a backward pass leaves gradients by record."""
    return Book(model)


def _one_by_one(model: nn.Module, inputs: Tensor, labels: Tensor) -> list[Tensor]:
    """Return, by parameter, the gradients of the records' losses, one backward pass each."""
    parameters = trainable(model)
    losses = functional.cross_entropy(model(inputs), labels, reduction="none")
    rows = [
        torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
        for loss in losses
    ]
    return [torch.stack(gradients) for gradients in zip(*rows, strict=True)]


def _by_hooks(model: nn.Module, inputs: Tensor, labels: Tensor) -> list[Tensor]:
    """Return the same from hooks, which leave nothing behind."""
    try:
        found = gradients(model, inputs, labels, len(labels))
    except (RuntimeError, TypeError, IndexError) as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise ValueError(f"this model has no gradients by record: {reason}") from error
    return [
        one.gradients().reshape(-1, *p.shape)
        for one, p in zip(found, trainable(model), strict=True)
    ]


def _compare(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
    whole = float(torch.stack([gradient.norm() for gradient in wanted]).norm())
    for ours, theirs in zip(wanted, found, strict=True):
        allowed = RELATIVE * float(ours.norm()) + OF_THE_WHOLE * whole
        if not float((ours - theirs).norm()) <= allowed:  # true for NaN too
            raise ValueError(
                "the gradients found for this model are not those of single records; "
                f"{KEEP_RECORDS_FIRST}"
            )
