"""The page of a person's own runs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from simplexdp import methods
from simplexdp.ledger import Ledger
from simplexdp.paper.report import own
from simplexdp.settings import Settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A finished run of a ledger, one that says what it should not, and one that was cut off."""
    path = tmp_path_factory.mktemp("runs")
    settings = Settings(data="digits", method="certified", options={"features": "columns"})
    methods.run(settings, path / "mine", ledger=Ledger(path / "ledger.jsonl"))
    plain = Settings(data="digits", method="plain", steps=4)
    methods.run(plain, path / "<!--<script>")
    (path / "cut").mkdir()
    (path / "cut/run.json").write_bytes((path / "mine/run.json").read_bytes())
    return path


def test_a_folder_of_runs_is_on_one_page(folder, tmp_path):
    done = own.write([folder], tmp_path / "mine.html")
    assert done["runs"] == 3
    text = (tmp_path / "mine.html").read_text()
    outcome = json.loads((folder / "mine/run.json").read_text())["outcome"]
    accuracy = outcome["accuracy"]
    assert f"<span>{100 * accuracy:.2f} (" in text
    worst, name = min((r, str(k)) for k, r in enumerate(outcome["recalls"]))
    assert f"<span>{name} {100 * worst:.0f}, " in text
    assert "covers the released weights." in text
    assert "No privacy guarantee: this run has no privacy mechanism." in text
    assert f"Not finished: go on with it by --resume --out {folder / 'cut'}" in text
    assert "digits: 1 run\n" in text
    assert "step 4:" in text
    assert "<!--<script>" not in text
    assert "&lt;!--&lt;script&gt;" in text


def test_one_run_is_on_a_page_of_its_own(folder, tmp_path):
    assert own.write([folder / "mine"], tmp_path / "one.html")["runs"] == 1


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        own.write([tmp_path], tmp_path / "page.html")


def test_two_names_of_one_account_are_told_once(tmp_path):
    rng, book = np.random.default_rng(0), Ledger(tmp_path / "ledger.jsonl")
    for name in ("a", "b"):  # the second is a copy of the first
        path = tmp_path / f"{name}.npz"
        if name == "a":
            np.savez(path, X=rng.uniform(size=(60, 4)), y=np.arange(60) % 2)
        else:
            path.write_bytes((tmp_path / "a.npz").read_bytes())
        settings = Settings(
            data=str(path),
            method="certified",
            data_options={"bounds": ["0:1"]},
            options={"features": "columns"},
        )
        methods.run(settings, tmp_path / "runs" / name, ledger=book)
    own.write([tmp_path / "runs"], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert text.count(": 2 runs\n") == 1
    assert text.count("one account of: ") == 1
