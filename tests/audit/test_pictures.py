"""Pictures of reconstruction, and the counts beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simplexdp import audit, data
from simplexdp.settings import Settings


def test_every_method_is_drawn_and_counted(
    images: data.Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(data, "load", lambda name, **options: images)
    asked = Settings(data="images", epsilon=8.0)
    record = audit.pictures(asked, tmp_path / "out", seed=3)
    assert record["pictures"] == ["images-one.png", "images-batch.png"]
    assert all((tmp_path / "out" / name).stat().st_size > 1000 for name in record["pictures"])
    assert (record["epsilon"], record["seed"]) == (8.0, 3)
    assert json.loads((tmp_path / "out" / "images-reconstruct.json").read_text()) == record
    found = {(row["method"], row["trials"]): row["recovered"] for row in record["results"]}
    for method in ("dirichlet", "plain"):
        assert found.pop((method, 1)) == 1
        assert found.pop((method, 8)) >= 6
    assert set(found.values()) == {0}
