"""Pages and plots: what the results say, for people, for papers and for the guide."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write(results: Path, out: Path, pictures: Path | None = None) -> dict[str, Any]:
    """The page, self-contained, from the records below `results`; says what is on it."""
    from simplexdp.paper.report.page import write as write_page

    return write_page(results, out, pictures)
