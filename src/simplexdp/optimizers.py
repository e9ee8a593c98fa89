"""Optimizers by name, the rate of a step, and the seeds of torch's own generators."""

from __future__ import annotations

import torch
from torch import nn

from simplexdp import sampling
from simplexdp.settings import OPTIMIZERS


def make(name: str, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """Return the optimizer of `Settings.optimizer` for a model's trainable parameters."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=lr)
    if name == "momentum":
        return torch.optim.SGD(parameters, lr=lr, momentum=0.9)
    if name == "adam":
        return torch.optim.Adam(parameters, lr=lr)
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=lr)
    if name == "rmsprop":
        return torch.optim.RMSprop(parameters, lr=lr)
    raise ValueError(f"unknown optimizer {name!r}; use one of {', '.join(OPTIMIZERS)}")


def set_rate(optimizer: torch.optim.Optimizer, lr: float, step: int, warmup: int) -> None:
    """Set the learning rate of a step: it grows linearly to `lr` over the first `warmup` steps."""
    for group in optimizer.param_groups:
        group["lr"] = lr * min(1.0, (step + 1) / max(warmup, 1))


def seed_torch(seed: int, purpose: str, step: int) -> None:
    """Key torch's own generators, from which weights and dropout are drawn.

    Not `torch.manual_seed`: before a GPU is in use, that keeps a note of every call for later.
    """
    key = int(sampling.stream(seed, purpose, step).integers(2**63))
    torch.default_generator.manual_seed(key)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(key)
