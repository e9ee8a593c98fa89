"""The card of a released model as a picture, for docs/officers.md, by a Chromium that is there.

python benchmarks/officers_page.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from simplexdp import methods, seal
from simplexdp.settings import Settings

PICTURE = Path(__file__).parent.parent / "docs/images/card.png"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--hide-scrollbars", "--window-size=820,900")  # fmt: skip


def main() -> None:
    """Train on the digits, release, and take the picture of the head of the card."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit("no Chromium found; install one")
    with tempfile.TemporaryDirectory() as folder:
        methods.run(Settings(method="certified"), Path(folder, "run"))
        told = {"licence": "cc-by-4.0", "intended_use": "reading digits", "curators": ["A post"]}
        seal.release(Path(folder, "run"), Path(folder, "digits"), **told)  # type: ignore[arg-type]
        page = Path(folder, "digits/card.html").as_uri()
        profile = f"--user-data-dir={folder}/profile"
        subprocess.run(
            [browser, *FLAGS, profile, f"--screenshot={PICTURE}", page],
            check=True,
            capture_output=True,
            timeout=300,
        )
    print(PICTURE)


if __name__ == "__main__":
    main()
