"""Run folders: what was asked for, the checkpoint while it trains, and what came out."""

from __future__ import annotations

from simplexdp.runs.folder import (
    CHECKPOINT,
    CHECKSUMS,
    CONFIGURATION,
    DESCRIPTION,
    EARLIER_MACHINES,
    HANDED_OUT,
    METRICS,
    MODEL,
    STATEMENT,
    RunFolder,
    fresh_path,
)
from simplexdp.runs.machine import machine

__all__ = [
    "CHECKPOINT",
    "CHECKSUMS",
    "CONFIGURATION",
    "DESCRIPTION",
    "EARLIER_MACHINES",
    "HANDED_OUT",
    "METRICS",
    "MODEL",
    "STATEMENT",
    "RunFolder",
    "fresh_path",
    "machine",
]
