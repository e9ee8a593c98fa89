"""One attacked training: its weights before and after, and losses.

Every training here runs the shipped code of the method.  The auditor knows the initial weights,
as everyone does who starts from a published or a recomputable initialisation; no guarantee of
this package assumes them secret.  The seed of the noise is used by the training alone.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from simplexdp import data, methods
from simplexdp.audit.crafting import Pair, Planted
from simplexdp.methods.base import OnRelease, Prepared, Run
from simplexdp.noise import unheard
from simplexdp.settings import Settings
from simplexdp.statement import Statement

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shadow:
    """One trained model with its initial state and its claim."""

    initial: nn.Module
    final: nn.Module
    prepared: Prepared

    @cached_property
    def statement(self) -> Statement:
        """Return the claim."""
        return self.prepared.statement()

    @property
    def chosen(self) -> Mapping[str, Any]:
        """Return the settings that rules filled in."""
        return self.prepared.resolved


def train(
    settings: Settings,
    dataset: data.Dataset,
    seed: int,
    without: frozenset[int] = frozenset(),
    on_release: OnRelease = unheard,
) -> Shadow:
    """Train once with the shipped method, on its own seed."""
    prepared = methods.prepare(dataclasses.replace(settings, seed=seed, evaluations=1), dataset)
    initial = copy.deepcopy(prepared.model).eval()
    final = prepared.start(Run(without=without, on_release=on_release)).model.eval()
    return Shadow(initial, final, prepared)


def in_or_out(settings: Settings, planted: Planted) -> Planted:
    """Return canaries of which one that is out is a null record of the method's own relation.

    Formal guarantee
        Statement: the two sides of each coin are neighbours under the relation of the method's
        claim, and nothing else differs between them.
        Methods that remove (zero-out, or add/remove at a fixed rate and divisor): the record adds
        nothing to any sum, while labels, n and with them sampling rate, divisor and noise stay.
        All others: the input becomes 0, which is one replacement of it.
    """
    method = methods.lookup(settings.method)
    method.check_null(settings, planted.dataset.input_shape)
    return planted.in_or_out(method.audited.removes)


def train_on(
    settings: Settings, planted: Planted, coins: Sequence[bool] | npt.NDArray[np.bool_], seed: int
) -> Shadow:
    """Train once on what the coins pick."""
    return train(settings, planted.with_coins(coins), seed, planted.without(coins))


def seeds(count: int, rng: np.random.Generator) -> list[int]:
    """Return independent seeds for so many trainings."""
    return [int(value) for value in rng.integers(2**62, size=count)]


def losses(model: nn.Module, inputs: npt.NDArray[Any], labels: npt.ArrayLike) -> Array:
    """Return the cross entropy of each record: what a black-box attacker sees."""
    with torch.no_grad():
        logits = model(torch.from_numpy(np.asarray(inputs, dtype=np.float32))).double()
        found = functional.cross_entropy(
            logits, torch.as_tensor(np.asarray(labels)), reduction="none"
        )
    return np.asarray(found.numpy())


def confidences(model: nn.Module, inputs: npt.NDArray[Any], labels: npt.ArrayLike) -> Array:
    """Return log(p_y / (1 − p_y)): the loss on the scale on which it is close to normal (LiRA)."""
    with torch.no_grad():
        logits = model(torch.from_numpy(np.asarray(inputs, dtype=np.float32))).double()
        truth = torch.as_tensor(np.asarray(labels))[:, None]
        own = logits.gather(1, truth)[:, 0]
        others = logits.scatter(1, truth, -torch.inf).logsumexp(1)
    return np.asarray((own - others).numpy())


Look = Callable[[nn.Module], list[Tensor]]


def movement(shadow: Shadow, look: Look) -> Tensor:
    """Return θ_T − θ_0 of the parameters looked at, as one vector."""
    pairs = zip(look(shadow.final), look(shadow.initial), strict=True)
    return torch.cat([(after - before).detach().double().ravel() for after, before in pairs])


def gradient(model: nn.Module, inputs: npt.NDArray[Any], label: int, look: Look) -> Tensor:
    """Return the gradient of one record's cross entropy, in the order of `movement`."""
    batch = torch.from_numpy(np.asarray(inputs, dtype=np.float32))[None]
    loss = functional.cross_entropy(model(batch), torch.tensor([label]))
    return torch.cat([g.double().ravel() for g in torch.autograd.grad(loss, look(model))])


def direction(model: nn.Module, pair: Pair, look: Look) -> Tensor:
    """Return the gradient by which a coin's two sides differ; a null record has none."""
    first = gradient(model, pair.first, pair.label, look)
    if pair.second is None:
        return first
    return first - gradient(model, pair.second, pair.label, look)


def parameters(model: nn.Module) -> list[Tensor]:
    """Return the trained parameters; a model without any cannot be looked at from within."""
    found: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    if not found:
        raise ValueError(
            "this method's model has no trained parameters to look at, so it cannot be audited "
            "white-box; use a black-box attack"
        )
    return found


def first_weights(model: nn.Module) -> list[Tensor]:
    """Return the weights of a linear first layer alone, or all parameters of other models.

    Pairs differ in pixels that all other records leave unlit; in a linear first layer their
    gradients meet nothing else in these columns, while the bias moves for every record.
    """
    found = parameters(model)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            return [module.weight] if isinstance(module, nn.Linear) else found
    return found


def first_layer(model: nn.Module) -> nn.Linear | nn.Conv2d:
    """Return the first layer with weights, where it is linear or a convolution."""
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            return module
    raise ValueError(
        "the model has neither a linear nor a convolutional layer; the unlit-pixel test needs one "
        "as its first: use --attack one-run or membership"
    )
