"""The blocks of docs/own-loop.md for Lightning and Accelerate, where these are installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import simplexdp

PAGE = Path(__file__).parent.parent / "docs/own-loop.md"


@pytest.mark.parametrize("library", ["lightning", "accelerate"])
def test_a_loop_of_a_library(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(
        rf"<!-- not run: needs {library} -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.S
    )
    torch.manual_seed(0)
    model = torch.nn.Linear(20, 3)
    before = model.weight.detach().clone()
    plan = simplexdp.DPSGDPlan(epsilon=2.0, delta=1e-5, records=1000, batch_size=50, steps=6)
    names: dict[str, Any] = {
        "torch": torch,
        "cross_entropy": cross_entropy,
        "model": model,
        "net": model,
        "plan": plan,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.5),
        "inputs": torch.randn(1000, 20),
        "labels": torch.randint(0, 3, (1000,)),
        "loss": lambda module, batch: cross_entropy(module(batch[0]), batch[1]),
    }
    exec(block, names)
    assert plan.steps_done == 6
    assert not torch.equal(model.weight.cpu(), before)
