"""Training classifiers when the inputs are private and the labels are public."""

from __future__ import annotations

import os
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simplexdp import (
        accounting,
        audit,
        data,
        features,
        ledger,
        linear,
        mechanism,
        methods,
        models,
        noise,
        sampling,
    )
    from simplexdp.bundle import load_model
    from simplexdp.estimator import CertifiedClassifier
    from simplexdp.loss import balanced_weights
    from simplexdp.methods.dpsgd.plan import DPSGDPlan
    from simplexdp.pipeline import private_pipeline
    from simplexdp.plan import Plan
    from simplexdp.settings import Settings
    from simplexdp.statement import Statement

# Poisson batches have many sizes, and torch's oneDNN keeps 1,024 compiled kernels, fewer than a
# deep network needs for them. It reads this when torch loads; what is set already stays.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8192")

__version__ = metadata.version("simplexdp")

# Loaded when asked for, so that accounting alone does not load torch.
_HOMES = {
    "CertifiedClassifier": "estimator",
    "DPSGDPlan": "methods.dpsgd.plan",
    "Plan": "plan",
    "Settings": "settings",
    "Statement": "statement",
    "balanced_weights": "loss",
    "load_model": "bundle",
    "private_pipeline": "pipeline",
}
__all__ = [
    "CertifiedClassifier",
    "DPSGDPlan",
    "Plan",
    "Settings",
    "Statement",
    "__version__",
    "accounting",
    "audit",
    "balanced_weights",
    "data",
    "features",
    "ledger",
    "linear",
    "load_model",
    "mechanism",
    "methods",
    "models",
    "noise",
    "private_pipeline",
    "sampling",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
