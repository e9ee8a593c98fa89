"""Charts as SVG inside a page: colours that follow its theme, values to point at, and a legend."""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from simplexdp.paper.report import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SVG = "{http://www.w3.org/2000/svg}"
HREF = "{http://www.w3.org/1999/xlink}href"
# What stands on the page for a colour of the figures.
THEME = {colour: f"var(--m{number})" for number, colour in enumerate(figures.COLOURS)} | {
    figures.INK: "var(--soft)",
    figures.LINE: "var(--line)",
    figures.ACCENT: "var(--accent)",
    "#ffffff": "var(--card)",
    **{
        colour: f"color-mix(in oklab, var(--accent) {100 - 12.5 * number:g}%, var(--warn))"
        for number, colour in enumerate(figures.SHADES)
    },
}


def chart(draw: Mapping[str, Figure], name: str, title: str) -> str:
    """Return a chart as HTML: one SVG a width of the screen, and one legend.

    Args:
        draw: The same chart by the class of its SVG, as `figures` draws it.
        name: What no other chart of the page is called.
        title: What a reader who does not see the chart is told.
    """
    legend: dict[str, str] = {}
    drawn = [_svg(figure, f"{name}-{kind}", kind, title, legend) for kind, figure in draw.items()]
    return f'{"".join(drawn)}<p class="legend">{"".join(legend.values())}</p>'


def _svg(figure: Figure, name: str, kind: str, title: str, legend: dict[str, str]) -> str:
    from matplotlib import rc_context

    written = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({**figures.LOOK, "svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(written, format="svg", transparent=True, metadata=nothing)
    root = ElementTree.fromstring(written.getvalue())
    for old in [*root.findall(f"{SVG}metadata"), *root.findall(f"{SVG}defs")]:
        root.remove(old)
    for node in root.iter():
        if node.tag == f"{SVG}g" and (said := node.attrib.pop("id", "")).startswith("{"):
            _speak(node, json.loads(said), legend)
    root.attrib = {"class": kind, "viewBox": root.get("viewBox", ""), "role": "img"}
    heading = ElementTree.Element(f"{SVG}title")
    heading.text = title
    root.insert(0, heading)
    return _plain(root)


def _speak(node: ElementTree.Element, told: Mapping[str, str], legend: dict[str, str]) -> None:
    """Give the marks of a series their values, and the legend the look of its line."""
    if told["method"]:
        node.set("data-method", told["method"])
    marks = list(node.iter(f"{SVG}use")) if told["titles"] else []
    for mark, text in zip(marks, told["titles"], strict=True):
        ElementTree.SubElement(mark, f"{SVG}title").text = text
    if not marks or told["label"] in legend:
        return
    key = ElementTree.Element(f"{SVG}svg", {"viewBox": "0 0 30 12", "aria-hidden": "true"})
    line = node.find(f"{SVG}path")
    if line is not None:
        ElementTree.SubElement(key, f"{SVG}path", {"d": "M1 6H29", "style": line.get("style", "")})
    shape = node.find(f".//{SVG}defs/{SVG}path")
    if shape is not None:
        look = {"d": shape.get("d", ""), "style": marks[0].get("style", "")}
        ElementTree.SubElement(key, f"{SVG}path", look | {"transform": "translate(15 6)"})
    of = f' data-method="{html.escape(told["method"])}"' if told["method"] else ""
    legend[told["label"]] = f"<span{of}>{_plain(key)}{html.escape(told['label'])}</span>"


def _plain(root: ElementTree.Element) -> str:
    """Return SVG as it may stand in HTML: short, in the page's font and colours."""
    for node in root.iter():
        if HREF in node.attrib:
            node.set("href", node.attrib.pop(HREF))
        node.attrib.pop("clip-path", None)
        for name in ("d", "x", "y", "transform"):
            if name in node.attrib:
                short = re.sub(r"\d+\.\d+", lambda n: f"{float(n[0]):.1f}", node.attrib[name])
                node.set(name, re.sub(r"\s+", " ", short))
        if "style" in node.attrib:
            style = re.sub("#[0-9a-f]{6}", lambda c: THEME.get(c[0], c[0]), node.attrib["style"])
            node.set("style", re.sub(r"font[-a-z]*: [^;]*;? ?", "", style))
    ElementTree.register_namespace("", SVG[1:-1])
    text = ElementTree.tostring(root, encoding="unicode")
    return re.sub(r">\s+<", "><", text.replace("<g />", "").replace(" />", "/>"))
