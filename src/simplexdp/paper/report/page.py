"""The page of all results: one file with its charts, tables and pictures, and no request.

Charts are SVG that `figures` draws; the script of the page fills in its tables and hides what a
filter leaves out.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from simplexdp import __version__, files
from simplexdp.accounting import ACCOUNTANTS
from simplexdp.paper import computed, grid, labels
from simplexdp.paper.report import figures, gather, inline, measured, measured_tables, tables
from simplexdp.paper.table import Column, Table

ACCOUNTANTS_NOTE = (
    "ε at the paper's own r. All but the visible ones assume hidden participation; pld and "
    "visible-pld rest on a dominance that this project proves, not yet peer reviewed. "
    "None covers weights."
)

PICTURED = {"one": "one record", "batch": "a batch"}  # how the names of our own pictures end


def write(results: Path, out: Path, pictures: Path | None = None) -> dict[str, Any]:
    """Write the page; say where, from how many runs, and what was left out."""
    found = gather.load(results)
    content = gathered(found, pictures)
    out.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomically(out, render(content, charts(found)).encode())
    return {"page": str(out), "runs": content["runs"], "left_out": content["left_out"]}


def gathered(found: gather.Results, pictures: Path | None = None) -> dict[str, Any]:
    """Return everything that the page's script shows."""
    audits = measured.audits(found.folder)
    series = gather.accuracy_series(found.groups)
    rows = gather.methods_side_by_side(found.groups)
    with_runs = [g.data for g in found.groups if not g.of_study]
    known = dict.fromkeys([*labels.by_title(), *(one["method"] for one in (*series, *audits))])
    return {
        "version": __version__,
        "runs": sum(len(group.runs) for group in found.groups),
        "titles": {name: labels.title(name) for name in known} | labels.DATA_TITLES,
        "colours": {name: figures.colour_number(name) for name in known},
        "first_data": "fashion-mnist"
        if "fashion-mnist" in with_runs
        else (with_runs or ["cifar10"])[0],
        "data": _by_data(series),
        "learning_rate_notes": gather.learning_rates(found.groups)["notes"],
        "as_published": gather.AS_PUBLISHED,
        "methods": rows,
        "classes": _shown(measured_tables.classes(found)),
        "covers": _shown(tables.covers(found)),
        "audits": audits,
        "other_deltas": measured.other_deltas(audits),
        "pictures": _pictures(found.folder, pictures),
        "tables": [_shown(table) for table in _tables(found)],
        "left_out": list(found.left_out),
    }


def _by_data(series: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[str]]]:
    """Return by data set the methods that a filter offers, and the copies our runs used."""
    found: dict[str, dict[str, list[str]]] = {}
    for one in series:
        of = found.setdefault(one["data"], {"methods": [], "copies": []})
        of["methods"].append(one["method"])
        of["copies"] += [p["provenance"] for p in one["points"] if p.get("provenance")]
    return found


def charts(found: gather.Results) -> dict[str, str]:
    """Return every chart as HTML with the place of its numbers, by its place on the page."""
    wide, narrow = figures.WIDE, figures.NARROW
    accuracy = []
    drawn = figures.by_data(gather.accuracy_series(found.groups))
    for number, ((name, split), series) in enumerate(drawn.items()):
        both = {"broad": wide, "slim": narrow}
        draw = {kind: figures.accuracy(series, split, size) for kind, size in both.items()}
        title = f"{split} accuracy against ε on {labels.DATA_TITLES.get(name, name)}"
        about = {"data-data": name, "data-table": f"{name}-{split}"}
        accuracy.append(_figure(inline.chart(draw, f"accuracy-{number}", title), about))
    pair = {"broad": (wide[0], 3.2), "slim": (narrow[0], 5.6)}
    rates, by_rate = gather.learning_rates(found.groups), []
    for source, table in (("ours", "collapse"), ("published", "collapse-published")):
        if rates[source]:
            draw = {k: figures.learning_rate(rates[source], "", size) for k, size in pair.items()}
            chart = inline.chart(draw, f"rates-{source}", "accuracy over the learning rates γ, γκ")
            by_rate.append(_figure(chart, {"data-source": source, "data-table": table}))
    draw = {kind: figures.asymptotics(size) for kind, size in pair.items()}
    mechanism = inline.chart(draw, "asymptotics", "κ and the variance of the loss over α")
    return {
        "accuracy": "".join(accuracy),
        "learning-rate": "".join(by_rate),
        "mechanism": _figure(mechanism, {"data-table": "asymptotics"}),
    }


def _figure(chart: str, about: Mapping[str, str]) -> str:
    marks = "".join(f' {name}="{html.escape(value)}"' for name, value in about.items())
    return f'<figure class="chart"{marks}>{chart}</figure>'


def render(content: Mapping[str, Any], charts: Mapping[str, str]) -> str:
    """Return the template with style, script, charts and data put into it."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    page = part("page.html")
    parts = {f"<!--{place}-->": chart for place, chart in charts.items()} | {
        "/*STYLE*/": part("page.css"),
        "/*SCRIPT*/": part("page.js"),
        # Any "<" could end the script element, or begin a comment that hides its end.
        "/*CONTENT*/": text.replace("<", "\\u003c"),
    }
    for mark, filled in parts.items():
        page = page.replace(mark, filled)
    return page


def _tables(found: gather.Results) -> list[Table]:
    series = gather.accuracy_series(found.groups)
    made = [
        tables.accuracy(name, found.groups, split)
        for name, split in dict.fromkeys((one["data"], one["split"]) for one in series)
    ]
    made += [tables.collapse(found, source) for source in ("ours", "published")]
    made += [make() for make in computed.TABLES.values()]
    rows = measured.epsilon_at_published_r(found.folder)
    if rows:
        first = {"data": "data set", "epsilon": "paper's ε", "r": "r"}
        heads = tuple(Column(name, first.get(name, name), 3) for name in rows[0])
        title = f"ε by {len(ACCOUNTANTS)} accountants at the paper's r"
        made.append(Table("accountants-at-r", title, heads, tuple(rows), (ACCOUNTANTS_NOTE,)))
    made += [
        tables.study(name, found.groups) for name in grid.study_names() if "learning" not in name
    ]
    made += [tables.accountants(found)]
    made += [measured_tables.peers(found), measured_tables.cost(found)]
    return [table for table in made if table.rows]


def _shown(table: Table) -> dict[str, Any]:
    return {
        "name": table.name,
        "title": table.title,
        "heads": [column.head for column in table.columns],
        "cells": table.cells(),
        "notes": list(table.notes),
    }


def _pictures(results: Path, folder: Path | None) -> list[dict[str, str]]:
    """Return a folder's PNG pictures, embedded, or the results'; a file name is a caption."""
    if folder is None:
        folder = results / "audit" / "pictures"
    elif not folder.is_dir():
        raise ValueError(f"there is no folder of pictures {folder}; name it with --pictures")
    return [
        {
            "caption": _caption(path.stem),
            "source": "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode(),
        }
        for path in sorted(folder.glob("*.png"))
    ]


def _caption(stem: str) -> str:
    name, _, what = stem.rpartition("-")
    if name in labels.DATA_TITLES and what in PICTURED:
        return f"{labels.DATA_TITLES[name]}, {PICTURED[what]}"
    return stem.replace("-", " ").replace("_", " ")


def part(name: str) -> str:
    """Return a file of the page's template."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
