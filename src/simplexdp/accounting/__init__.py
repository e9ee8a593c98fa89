"""Bounds on what the Dirichlet mechanism's draws cost; imports nothing else of ours, nor torch."""

from __future__ import annotations

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

__all__ = [
    "ACCOUNTANTS",
    "DOMINANCE_PROVED",
    "DOMINANCE_VERIFIED",
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
