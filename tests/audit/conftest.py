"""What the audit's tests share: small images in which some pixels are never lit."""

from __future__ import annotations

import numpy as np
import pytest

from simplexdp import data


@pytest.fixture
def images() -> data.Dataset:
    """Float images of 1×6×6 in [-1, 1] with a dark border, 120 training records, 4 classes."""
    rng = np.random.default_rng(0)
    patterns = rng.choice([-1.0, 1.0], size=(4, 4, 4))

    def split(records: int) -> data.Split:
        labels = np.arange(records) % 4
        inner = np.clip(patterns[labels] + 0.7 * rng.normal(size=(records, 4, 4)), -1, 1)
        inputs = np.full((records, 1, 6, 6), -1.0)
        inputs[:, 0, 1:5, 1:5] = inner
        return data.Split(inputs.astype(np.float32), labels.astype(np.int64))

    return data.Dataset("images", split(120), split(40), None, ("a", "b", "c", "d"))
