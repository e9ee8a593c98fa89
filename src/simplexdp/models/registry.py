"""Which networks are there, and how is one built from its name?"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable

from torch import nn

from simplexdp.models.cnn import cnn
from simplexdp.models.layers import NORMS
from simplexdp.models.logistic import logistic
from simplexdp.models.mlp import mlp
from simplexdp.models.resnet9 import resnet9
from simplexdp.models.resnet18 import resnet18
from simplexdp.paper.networks.dpnas import dpnas, dpnas_fashion_mnist
from simplexdp.paper.networks.inception import inception
from simplexdp.paper.networks.tanh_cnn import tanh_cnn
from simplexdp.paper.networks.wrn import wrn_16_4, wrn_40_4

Factory = Callable[[tuple[int, ...], int, str], nn.Module]

REGISTRY: dict[str, Factory] = {
    "cnn": cnn,
    "dpnas": dpnas,
    "dpnas-fashion-mnist": dpnas_fashion_mnist,
    "inception": inception,
    "logistic": logistic,
    "mlp": mlp,
    "resnet18": resnet18,
    "resnet9": resnet9,
    "tanh-cnn": tanh_cnn,
    "wrn-16-4": wrn_16_4,
    "wrn-40-4": wrn_40_4,
}


def names() -> tuple[str, ...]:
    """The names `build` knows, sorted."""
    return tuple(sorted(REGISTRY))


def build(name: str, input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """The network called `name`, with PyTorch's default initialisation, giving logits.

    `name` may be "package.module:factory": then factory(input_shape, classes) builds it, and
    `norm` is the factory's own business. The weights are contiguous. Laying them out
    channels-last makes convolutions on a CPU up to 1.7 times as fast, but Opacus computes wrong
    per-example gradients on that layout, so it is left to the method that trains.
    """
    if ":" in name:
        return _user_model(name, input_shape, classes)
    if name not in REGISTRY:
        raise ValueError(_unknown(name))
    if norm not in NORMS:
        raise ValueError(f"no normalisation {norm!r}: use one of {', '.join(NORMS)}")
    return REGISTRY[name](input_shape, classes, norm)


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, names(), n=1, cutoff=0.4)
    meant = f" (closest: {close[0]})" if close else ""
    return f"no model {name!r}{meant}: use {', '.join(names())}, or your own package.module:factory"


def _user_model(name: str, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    module_name, _, attribute = name.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"cannot load the model {name!r}: {error}") from error
    if not callable(factory):
        raise ValueError(f"{name!r} is not callable: it must be factory(input_shape, classes)")
    try:
        model = factory(input_shape, classes)
    except TypeError as error:
        raise ValueError(
            f"{name!r} cannot be called as factory(input_shape, classes): {error}"
        ) from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"{name!r} gave a {type(model).__name__}, not a torch.nn.Module")
    return model
