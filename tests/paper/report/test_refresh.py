"""Markers filled on a page, and the committed pages against the results."""

from __future__ import annotations

from pathlib import Path

import pytest

from simplexdp.paper.report import gather, tables

ROOT = Path(__file__).parents[3]
PAGES = sorted([ROOT / "README.md", ROOT / "results" / "tables.md", *(ROOT / "docs").rglob("*.md")])


@pytest.fixture(scope="module")
def committed():
    return gather.load(ROOT / "results")


def test_refresh_fills_between_the_markers_and_nothing_else(results, tmp_path):
    page = tmp_path / "page.md"
    text = "before\n<!-- table:covers -->\nold\n<!-- /table -->\nafter <!-- table:x\n"
    page.write_text(text)
    assert tables.refresh([page], results) == [page]
    new = page.read_text()
    assert new.startswith("before\n<!-- table:covers -->\n\n| method |")
    assert new.endswith("<!-- /table -->\nafter <!-- table:x\n")
    assert "| DP-SGD | privacy loss distribution | – | yes |" in new
    assert tables.refresh([page], results) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_the_committed_tables_are_those_of_the_results(page, committed):
    text = page.read_text(encoding="utf-8")
    assert tables.refreshed(text, committed) == text, f"run: simplexdp report --refresh {page}"
