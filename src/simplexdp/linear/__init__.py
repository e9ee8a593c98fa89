"""The certified core: a linear classifier on given features whose weights may be released.

Needs numpy, scipy and torch, and of this package `noise` and `accounting` alone.

>>> import numpy as np
>>> from simplexdp import linear, noise
>>> rng = np.random.default_rng(0)
>>> features = rng.normal(size=(500, 4)) / 4
>>> labels = (features[:, 0] > 0).astype(np.int64)
>>> rule, cost = linear.planned(500, epsilon=1.0, delta=1e-5, shape=(4, 1))
>>> fitted = linear.fit(features, labels, 2, (4, 1), rule, cost, noise.system_bits)
>>> fitted.weights.shape, round(fitted.spending.epsilon, 6)
((4, 2), 1.0)
"""

from __future__ import annotations

from simplexdp.linear.classifier import (
    Fitted,
    Spending,
    check,
    chosen,
    fit,
    planned,
    public_log_prior,
    spending,
)
from simplexdp.linear.noisy_gd import Schedule
from simplexdp.linear.rule import Rule

__all__ = [
    "Fitted",
    "Rule",
    "Schedule",
    "Spending",
    "check",
    "chosen",
    "fit",
    "planned",
    "public_log_prior",
    "spending",
]
