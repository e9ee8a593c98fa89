"""Optimizers by name, the rate of a step, and the seeds of torch's own generators."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from simplexdp import sampling
from simplexdp.settings import OPTIMIZERS

SCHEDULES = ("constant", "triangular", "cosine")
RISE = 0.2  # the share of the steps in which a schedule's rate grows, unless given
MOMENTUM = 0.9
MUON_RATE = 0.1  # how far a step moves every direction of a convolution's matrix


def make(
    name: str,
    model: nn.Module,
    lr: float,
    weight_decay: float | None = None,
    muon_lr: float = MUON_RATE,
) -> torch.optim.Optimizer:
    """Return the optimizer of `Settings.optimizer` for a model's trainable parameters.

    Weight decay, where given, is of matrices and filters alone: biases and the scales of
    normalisation keep their size.
    """
    parameters: list[Any] = [p for p in model.parameters() if p.requires_grad]
    if name == "muon":
        return Muon(parameters, lr, weight_decay or 0.0, muon_lr)
    if weight_decay is not None:
        flat = [p for p in parameters if p.ndim < 2]
        decayed = [p for p in parameters if p.ndim >= 2]
        parameters = [
            {"params": decayed, "weight_decay": weight_decay},
            {"params": flat, "weight_decay": 0.0},
        ]
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=lr)
    if name in ("momentum", "nesterov"):
        return torch.optim.SGD(parameters, lr=lr, momentum=MOMENTUM, nesterov=name == "nesterov")
    if name == "adam":
        return torch.optim.Adam(parameters, lr=lr)
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=lr)
    if name == "rmsprop":
        return torch.optim.RMSprop(parameters, lr=lr)
    raise ValueError(f"unknown optimizer {name!r}; use one of {', '.join(OPTIMIZERS)}")


class Muon(torch.optim.SGD):
    """Muon (Jordan, 2024) for convolutions, Nesterov's SGD for everything else.

    torch's own Muon takes matrices alone. A convolution is the matrix of its flattened filters; its
    step has the singular vectors of the gradient's momentum and singular values near 1, so that
    the gradient's scale, and with it κ, drops out.
    """

    def __init__(
        self, parameters: list[Tensor], lr: float, weight_decay: float, muon_lr: float
    ) -> None:
        filters = [p for p in parameters if p.ndim == 4]
        others = [p for p in parameters if p.ndim in (2, 3)]
        flat = [p for p in parameters if p.ndim < 2]
        groups: list[dict[str, Any]] = [
            {"params": filters, "lr": muon_lr, "momentum": 0.0, "nesterov": False},
            {"params": others, "weight_decay": weight_decay},
            {"params": flat},
        ]
        groups = [group for group in groups if group["params"]]
        super().__init__(groups, lr=lr, momentum=MOMENTUM, nesterov=True)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take a step, of filters along the orthogonalised momentum."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.ndim == 4 and p.grad is not None:
                    pace = self.state[p].setdefault("momentum_buffer", torch.zeros_like(p))
                    pace.mul_(MOMENTUM).add_(p.grad)
                    ahead = p.grad.add(pace, alpha=MOMENTUM).flatten(1)
                    tall = max(1.0, ahead.shape[0] / ahead.shape[1]) ** 0.5
                    p.grad = (tall * orthogonalised(ahead)).view_as(p)
        return super().step(closure)


def orthogonalised(matrix: Tensor) -> Tensor:
    """Return about U·Vᵀ of a matrix U·S·Vᵀ, by five of Muon's Newton-Schulz steps."""
    x: Tensor = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (2.0315 * gram @ gram - 4.7750 * gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def set_rate(optimizer: torch.optim.Optimizer, share: float) -> None:
    """Set the rate of a step to a share of each group's own."""
    for group in optimizer.param_groups:
        group["lr"] = group.setdefault("whole_lr", group["lr"]) * share


def share_of_rate(schedule: str, step: int, steps: int, warmup: int) -> float:
    """Return the share of the full rate that a step has.

    It grows linearly over `warmup` steps; then it stays, or falls to zero along a line
    (triangular) or half a cosine.

    >>> [share_of_rate("triangular", step, 5, 2) for step in range(5)]
    [0.5, 1.0, 0.75, 0.5, 0.25]
    """
    if step < warmup:
        return (step + 1) / warmup
    left = 1.0 - (step - warmup + 1) / (steps - warmup + 1)
    if schedule == "triangular":
        return left
    return 0.5 - 0.5 * math.cos(math.pi * left) if schedule == "cosine" else 1.0


def seed_torch(seed: int, purpose: str, step: int) -> None:
    """Key torch's own generators, from which weights and dropout are drawn.

    Not `torch.manual_seed`: before a GPU is in use, that keeps a note of every call for later.
    """
    key = sampling.first_word(seed, purpose, step) >> 1  # a generator's integers(2**63)
    torch.default_generator.manual_seed(key)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(key)
