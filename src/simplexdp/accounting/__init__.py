"""Bounds on what the Dirichlet mechanism's draws cost; imports nothing else of ours, nor torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simplexdp.accounting.accountants import (
        ACCOUNTANTS,
        DOMINANCE_PROVED,
        DOMINANCE_VERIFIED,
        POISSON,
        SECRET_BATCHES,
        SEPARATE,
        THROUGH_DRAWS,
        Accountant,
        account,
        lookup,
    )
    from simplexdp.accounting.calibration import (
        BudgetTooSmall,
        Calibration,
        calibrate,
        largest_sample_rate,
    )
    from simplexdp.accounting.renyi import Cost

# The accountants' names: a help text need not load scipy.
NAMES = ("theorem1", "exact", "visible", "pld", "visible-pld")
_HOMES = {
    "ACCOUNTANTS": "accountants",
    "DOMINANCE_PROVED": "accountants",
    "DOMINANCE_VERIFIED": "accountants",
    "POISSON": "accountants",
    "SECRET_BATCHES": "accountants",
    "SEPARATE": "accountants",
    "THROUGH_DRAWS": "accountants",
    "Accountant": "accountants",
    "account": "accountants",
    "lookup": "accountants",
    "BudgetTooSmall": "calibration",
    "Calibration": "calibration",
    "calibrate": "calibration",
    "largest_sample_rate": "calibration",
    "Cost": "renyi",
}
__all__ = [
    "ACCOUNTANTS",
    "DOMINANCE_PROVED",
    "DOMINANCE_VERIFIED",
    "NAMES",
    "POISSON",
    "SECRET_BATCHES",
    "SEPARATE",
    "THROUGH_DRAWS",
    "Accountant",
    "BudgetTooSmall",
    "Calibration",
    "Cost",
    "account",
    "calibrate",
    "largest_sample_rate",
    "lookup",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
