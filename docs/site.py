"""A hook of mkdocs: results/tables.md and pictures below results/ are part of the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent


def on_files(files: Files, config: Any) -> Files:
    """Add the tables and the pictures of the audits."""
    for path in (ROOT / "results" / "tables.md", *sorted((ROOT / "results").rglob("*.png"))):
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Link inside the site where a page, read as a file, links out of its folder."""
    return markdown.replace("](../results/", "](results/").replace("](../docs/", "](../")
