"""Tables put between their markers on the pages of the guide.

A page says `<!-- table:NAME -->` and `<!-- /table -->`; `refresh` puts the table of that name
between them, and a test compares what is committed with what the results give.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from simplexdp import files
from simplexdp.paper.report import gather, tables
from simplexdp.paper.report.gather import Results
from simplexdp.paper.table import to_markdown

MARKED = re.compile(r"(<!-- table:(?P<name>[\w-]+) -->\n).*?(<!-- /table -->)", re.S)
NOTHING_YET = "No results yet."


def refreshed(text: str, found: Results) -> str:
    """Return a page with every marked table made anew."""

    def fill(match: re.Match[str]) -> str:
        table = tables.make(match["name"], found)
        body = to_markdown(table) if table.rows else NOTHING_YET
        return f"{match[1]}\n{body}\n\n{match[3]}"

    return MARKED.sub(fill, text)


def refresh(pages: Sequence[Path], results: Path) -> list[Path]:
    """Rewrite the pages whose tables are not those of the results; says which."""
    found = gather.load(results)
    changed = []
    for page in pages:
        before = page.read_text(encoding="utf-8")
        after = refreshed(before, found)
        if after != before:
            files.write_atomically(page, after.encode())
            changed.append(page)
    return changed
