"""The networks that are known by name: our own, then those that plug-ins register."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from torch import nn

from simplexdp import plugins
from simplexdp.models.cnn import cnn
from simplexdp.models.fast import fast, fast_mirrored, fast_turned, fast_wide
from simplexdp.models.layers import NORMS
from simplexdp.models.logistic import logistic
from simplexdp.models.mlp import mlp
from simplexdp.models.resnet9 import resnet9
from simplexdp.models.resnet18 import resnet18

Factory = Callable[[tuple[int, ...], int, str], nn.Module]

GROUP = "simplexdp.models"
BUILT_IN: dict[str, Factory] = {
    "cnn": cnn,
    "fast": fast,
    "fast-mirrored": fast_mirrored,
    "fast-turned": fast_turned,
    "fast-wide": fast_wide,
    "logistic": logistic,
    "mlp": mlp,
    "resnet18": resnet18,
    "resnet9": resnet9,
}


def names() -> tuple[str, ...]:
    """Return the names that `build` knows, sorted."""
    return tuple(sorted({*BUILT_IN, *plugins.names(GROUP)}))


def build(name: str, input_shape: tuple[int, ...], classes: int, norm: str = "group") -> nn.Module:
    """Build a network with PyTorch's default initialisation; it gives logits.

    The weights are contiguous. Laying them out channels-last makes convolutions on a CPU up to
    1.7 times as fast, but Opacus computes wrong per-example gradients on that layout, so it is
    left to the method that trains.

    Args:
        name: One of `names()`, or "package.module:factory" for a factory(input_shape, classes)
            of one's own.
        input_shape: The shape of one record.
        classes: The number of classes.
        norm: Normalisation: group, batch or none; a factory of one's own does not get it.

    Raises:
        ValueError: If there is no such network or normalisation, or the network cannot take
            such inputs.
    """
    if ":" in name:
        return _user_model(name, input_shape, classes)
    if name not in names():
        close = difflib.get_close_matches(name, names(), n=1, cutoff=0.4)
        meant = f" (closest: {close[0]})" if close else ""
        raise ValueError(
            f"no model {name!r}{meant}: use {', '.join(names())}, or your own "
            "package.module:factory"
        )
    if norm not in NORMS:
        raise ValueError(f"no normalisation {norm!r}: use one of {', '.join(NORMS)}")
    factory: Factory = BUILT_IN.get(name) or plugins.load(GROUP, name)
    return factory(input_shape, classes, norm)


def _user_model(name: str, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    factory = plugins.own(name, f"cannot load the model {name!r}")
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
