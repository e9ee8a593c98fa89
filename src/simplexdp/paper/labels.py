"""Titles of methods and data sets, and labels of rows and columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simplexdp import methods
from simplexdp.settings import Settings

DATA_TITLES = {
    "cifar10": "CIFAR10",
    "mnist": "MNIST",
    "fashion-mnist": "FashionMNIST",
    "dermamnist": "DermaMNIST",
    "svhn": "SVHN",
    "digits": "digits",
}


def title(method: str) -> str:
    """Return how a table calls a method; one of somebody's own keeps its name."""
    return methods.lookup(method).title if method in methods.names() else method


def by_title() -> dict[str, str]:
    """Return the titles of the built-in methods, those of the paper's tables first."""
    first = ("dirichlet", "dpsgd")
    return {name: title(name) for name in sorted(methods.names(), key=lambda n: n not in first)}


def epsilon_label(epsilon: float) -> str:
    """Return the head of a column of an accuracy table."""
    return "ε = ∞" if epsilon == float("inf") else f"ε = {epsilon:g}"


def row_label(settings: Settings, usual: Settings) -> str:
    """Return a method with what sets it apart from the recipe that is usual for it."""
    names = {"dirichlet": "Dirichlet", "plain": "Dirichlet", "dpsgd": "DP-SGD"}
    parts = [names.get(settings.method, settings.method), settings.model or "default model"]
    parts.append("lr auto" if settings.lr is None else f"lr {settings.lr:g}")
    return ", ".join([*parts, *apart(settings, usual)])


def apart(settings: Settings, usual: Settings) -> list[str]:
    """Return what sets a run apart from others of its method, network and learning rate."""
    parts = []
    if settings.optimizer != usual.optimizer:
        parts.append(settings.optimizer)
    if settings.accountant != "theorem1":
        parts.append(f"accountant {settings.accountant}")
    if settings.norm != usual.norm:
        parts.append({"none": "no norm"}.get(settings.norm, f"{settings.norm} norm"))
    if settings.batch_size != usual.batch_size:
        parts.append(f"batch size {settings.batch_size}")
    if settings.epochs is not None:
        parts.append(f"{settings.epochs:g} epochs")
    elif settings.steps != usual.steps:
        of_usual = "" if usual.steps is None else f" of {usual.steps}"
        parts.append(f"{settings.steps}{of_usual} steps")
    for name in ("alpha", "delta", "estimator", "augment", "options"):
        value = getattr(settings, name)
        if value != getattr(usual, name):
            parts.append(f"{name} {_shown(value)}")
    return parts


def _shown(value: Any) -> str:
    """Return a setting's value in a label."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={value[name]}" for name in sorted(value)) or "none"
    if isinstance(value, tuple):
        return "+".join(value) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
