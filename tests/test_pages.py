"""The card and the page of one's own runs in a browser: wide and narrow, light, dark, printed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simplexdp import methods, seal
from simplexdp.settings import Settings

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update",
         "--disable-sync")  # fmt: skip
LOOK = """
const seen = (node) => node.getClientRects().length > 0;
const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
const light = (color) => {
  const [r, g, b] = rgb(color).map((v) => v / 255)
    .map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (node) => {
  for (; node; node = node.parentElement) {
    const color = getComputedStyle(node).backgroundColor;
    if (rgb(color)[3] !== 0) return color;
  }
  return "rgb(255, 255, 255)";
};
const contrast = (node) => {
  const [a, b] = [light(getComputedStyle(node).color), light(behind(node))].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
};
const texts = [...document.querySelectorAll("h1, h2, p, li, th, td, pre")].filter(seen);
const reached = [...document.querySelectorAll("a, button, summary, [tabindex]")].filter(seen);
const boxes = [...document.querySelectorAll(".scroll")].filter(seen);
const found = {
  wide: document.documentElement.scrollWidth - window.innerWidth,
  contrast: Math.min(...texts.map(contrast)),
  dark: light(behind(document.body)) < 0.2,
  unreachable: boxes.filter((box) => box.scrollWidth > box.clientWidth && box.tabIndex < 0).length,
  focused: reached.filter((node) => { node.focus(); return document.activeElement === node; })
    .length === reached.length,
  narrow: texts.filter((node) => node.tagName === "TH" && node.scrollWidth > node.clientWidth)
    .length,
  headings: document.querySelectorAll("h1").length,
};
document.body.innerHTML = `<i id="found">${JSON.stringify(found)}</i>`;
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A released card, one that is not covered, and the page of the two runs."""
    base = tmp_path_factory.mktemp("pages")
    methods.run(Settings(method="certified"), base / "runs/first")
    methods.run(Settings(steps=3, batch_size=8), base / "runs/second")
    seal.release(base / "runs/first", base / "m", intended_use="a" * 90)
    seal.release(base / "runs/second", base / "n", although_not_covered=True)
    found = {"card": base / "m/card.html", "not covered": base / "n/card.html"}
    try:
        from simplexdp.paper.report import own
    except ImportError:
        return found
    own.write([base / "runs"], base / "report.html")
    return {**found, "report": base / "report.html"}


@pytest.fixture
def browser(tmp_path: Path) -> Callable[..., str]:
    name = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if name is None:
        pytest.skip("no Chromium found")

    def call(page: Path, *options: str) -> str:
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        done = subprocess.run(
            [name, *FLAGS, profile, *options, page.as_uri()],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        return done.stdout

    return call


@pytest.mark.parametrize(
    ("name", "width", "dark"),
    [("card", 1100, False), ("not covered", 390, True), ("report", 390, True),
     ("report", 1200, False)],
)  # fmt: skip
def test_a_page_fits_its_window_and_can_be_read(
    pages: dict[str, Path],
    browser: Callable[..., str],
    tmp_path: Path,
    name: str,
    width: int,
    dark: bool,
) -> None:
    if name not in pages:
        pytest.skip("no page of runs without paper/")
    shown = tmp_path / "shown.html"
    shown.write_text(f"{pages[name].read_text()}<script>{LOOK}</script>")
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    dom = browser(shown, f"--window-size={width},1600", scheme, "--dump-dom")
    (text,) = re.findall(r'<i id="found">(.*?)</i>', dom)
    found: dict[str, Any] = json.loads(text)
    assert found["contrast"] >= 4.5, found
    assert found["wide"] <= 0, found
    assert found["dark"] == dark
    assert found["focused"]
    assert (found["unreachable"], found["narrow"], found["headings"]) == (0, 0, 1), found


def test_a_card_is_filed_on_three_sheets_at_most(
    pages: dict[str, Path], browser: Callable[..., str], tmp_path: Path
) -> None:
    browser(pages["card"], f"--print-to-pdf={tmp_path / 'card.pdf'}", "--no-pdf-header-footer")
    content = (tmp_path / "card.pdf").read_bytes()
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 3
