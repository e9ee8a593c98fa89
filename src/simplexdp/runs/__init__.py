"""Run folders: what was asked for, the checkpoint while it trains, and what came out."""

from __future__ import annotations

from simplexdp.runs.folder import (
    CHECKPOINT,
    CHECKSUMS,
    CONFIGURATION,
    EARLIER_MACHINES,
    METRICS,
    RunFolder,
    fresh_path,
)
from simplexdp.runs.machine import machine
from simplexdp.seal import STATEMENT

__all__ = [
    "CHECKPOINT",
    "CHECKSUMS",
    "CONFIGURATION",
    "EARLIER_MACHINES",
    "METRICS",
    "STATEMENT",
    "RunFolder",
    "fresh_path",
    "machine",
]
