"""A hook of mkdocs: pictures below results/ are part of the site under the same name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent


def on_files(files: Files, config: Any) -> Files:
    """Add the pictures of the audits."""
    for path in sorted((ROOT / "results").rglob("*.png")):
        name = path.relative_to(ROOT).as_posix()
        files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Link to them where the page, read as a file, links out of its folder."""
    return markdown.replace("](../results/", "](results/")
