"""Makes the helper module beside the tests importable, and gives every test its own cache."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no data folder from the environment."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("SIMPLEXDP_CACHE", str(folder))
    monkeypatch.delenv("SIMPLEXDP_DATA_DIR", raising=False)
    return folder
