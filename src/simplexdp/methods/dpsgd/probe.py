"""A probe that the gradients DP-SGD clips are those of single records.

Opacus takes the first dimension of each layer's input for the record. A network that reshapes its
records into patches, or puts positions before records, has something else there, and clipping that
bounds nothing about a record.

Formal guarantee
    Statement: a network that passes has, at a few random records, at its weights and at others
    beside them, the same gradients by Opacus' hooks as by one backward pass for each record's own
    loss, to a thousandth of their norm.
    Not covered: other records and other weights. A refusal is a proof, passing is not.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from simplexdp.methods.dpsgd.step import per_record, trainable
from simplexdp.models.probe import moved, unchanged

if TYPE_CHECKING:
    from opacus.grad_sample import GradSampleModule

PROBES = 3
# Rounding in single precision, as a share of a parameter's gradient and of the whole one.
RELATIVE, OF_THE_WHOLE = 1e-3, 1e-5


def check_by_record(model: nn.Module, input_shape: tuple[int, ...], classes: int) -> None:
    """Refuse a model whose gradients by Opacus' hooks are not those of single records."""
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
                wanted = _one_by_one(model, *probes)
                hooks = hooked(model)
                try:
                    _compare(_by_hooks(model, *probes), wanted)
                finally:
                    hooks.remove_hooks()


def hooked(model: nn.Module) -> GradSampleModule:
    """Return Opacus' hooks on a model, by which a backward pass leaves gradients by record."""
    from opacus.grad_sample import GradSampleModule  # takes seconds to load

    try:
        return GradSampleModule(model, batch_first=True, loss_reduction="sum")
    except NotImplementedError as error:
        raise ValueError(f"Opacus does not take this model: {error}") from error


def _losses(model: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """Return each record's loss; both ways of differentiating see the same dropout."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return functional.cross_entropy(model(inputs), labels, reduction="none")


def _one_by_one(model: nn.Module, inputs: Tensor, labels: Tensor) -> list[Tensor]:
    """Return, by parameter, the gradients of the records' losses, one backward pass each."""
    parameters = trainable(model)
    rows = [
        torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
        for loss in _losses(model, inputs, labels)
    ]
    return [torch.stack(gradients) for gradients in zip(*rows, strict=True)]


def _by_hooks(model: nn.Module, inputs: Tensor, labels: Tensor) -> list[Tensor]:
    """Return the same from Opacus' hooks, which leave nothing behind."""
    try:
        _losses(model, inputs, labels).sum().backward()
    except (RuntimeError, TypeError, IndexError) as error:
        reason = (str(error).strip() or repr(error)).splitlines()[0]
        raise ValueError(f"Opacus does not take this model: {reason}") from error
    found = [per_record(p, len(labels)) for p in trainable(model)]
    for parameter in trainable(model):
        parameter.grad_sample = None  # type: ignore[attr-defined]
        parameter.grad = None
    return found


def _compare(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> None:
    whole = float(torch.stack([gradient.norm() for gradient in wanted]).norm())
    for ours, theirs in zip(wanted, found, strict=True):
        allowed = RELATIVE * float(ours.norm()) + OF_THE_WHOLE * whole
        if not float((ours - theirs).norm()) <= allowed:  # true for NaN too
            raise ValueError(
                "Opacus' gradients for this model are not those of single records; "
                "keep records, and nothing else, in the first dimension of every layer's input"
            )
