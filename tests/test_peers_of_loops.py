"""The blocks of docs/own-loop.md for loops and loggers of others, where these are installed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import simplexdp

PAGE = Path(__file__).parent.parent / "docs/own-loop.md"
LIBRARIES = ("lightning", "accelerate", "transformers", "tensorboard", "mlflow")


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_loop_of_a_library(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(library, exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # the others need a database
    (block,) = re.findall(
        rf"<!-- not run: needs {library} -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.S
    )
    torch.manual_seed(0)
    model = torch.nn.Linear(20, 3)
    before = model.weight.detach().clone()
    plan = simplexdp.DPSGDPlan(epsilon=2.0, delta=1e-5, records=1000, batch_size=50, steps=6)
    taken: list[int] = []
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
    gradient = plan.gradient

    def counted(*given: Any) -> None:
        gradient(*given)
        taken.append(plan.steps_done)

    monkeypatch.setattr(plan, "gradient", counted)
    exec(block, names)
    assert taken == [1, 2, 3, 4, 5, 6]
    assert not torch.equal(model.weight.cpu(), before)
    written = {path.name for path in tmp_path.rglob("*")}
    expected = {"lightning": "statement.md", "tensorboard": "logs", "mlflow": "mlruns"}
    assert expected.get(library, "") in {"", *written}
    if library == "tensorboard":
        logged = b"".join(path.read_bytes() for path in (tmp_path / "logs").iterdir())
        assert b"epsilon of the whole schedule" in logged
        assert b"loss" not in logged
