"""Tensors and data sets give the same batches."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import TensorDataset

from simplexdp import Plan


@pytest.mark.parametrize("workers", [0, 2])
def test_data_sets_and_tensors_give_the_same_batches(workers):
    inputs = torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    pair = (inputs, torch.arange(400))

    def plan() -> Plan:
        return Plan(epsilon=4.0, delta=1e-5, records=400, batch_size=1, steps=30, seed=1)

    fast = list(plan().batches(pair))
    slow = list(plan().batches(TensorDataset(*pair), workers=workers))
    assert len(fast) == len(slow) == 30
    assert any(len(labels) == 0 for _, labels in slow)
    for (a, b), (c, d) in zip(fast, slow, strict=True):
        assert torch.equal(a, c)
        assert torch.equal(b, d)
