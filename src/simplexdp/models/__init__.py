"""The networks that can be trained: a registry of factories, one architecture a file.

>>> from simplexdp import models
>>> model = models.build("logistic", input_shape=(1, 8, 8), classes=10)
>>> sum(p.numel() for p in model.parameters())
650
"""

from __future__ import annotations

from simplexdp.models.probe import check, couples_records, has_batch_norm, writes_buffers
from simplexdp.models.registry import build, names

__all__ = ["build", "check", "couples_records", "has_batch_norm", "names", "writes_buffers"]
