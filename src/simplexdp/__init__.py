"""Training classifiers when the inputs are private and the labels are public."""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simplexdp.loading import load_model as load_model
    from simplexdp.plan import Plan as Plan
    from simplexdp.plan import balanced_weights as balanced_weights
    from simplexdp.settings import Settings as Settings

__version__ = metadata.version("simplexdp")

# Loaded when asked for, so that accounting alone does not load torch.
_HOMES = {
    "Plan": "plan",
    "balanced_weights": "plan",
    "Settings": "settings",
    "CertifiedClassifier": "estimator",
    "load_model": "loading",
}
__all__ = [
    "CertifiedClassifier",
    "Plan",
    "Settings",
    "__version__",
    "balanced_weights",
    "load_model",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'simplexdp' has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
