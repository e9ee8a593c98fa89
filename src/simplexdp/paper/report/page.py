"""How do the results become one page?  A template, its style and script, and the data as JSON.

The page is a single file without a request to anywhere: pictures are embedded, and the charts
are drawn by its own script from the JSON inside it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from simplexdp import __version__, files
from simplexdp.accounting import ACCOUNTANTS
from simplexdp.paper import computed, grid, labels
from simplexdp.paper.report import figures, gather, measured, measured_tables, tables
from simplexdp.paper.table import Column, Table

ACCOUNTANTS_NOTE = (
    "ε at the paper's own r. All but the visible ones assume hidden participation; pld and "
    "visible-pld rest on a dominance that this project proves for α ≥ ½, not yet peer reviewed. "
    "None covers weights."
)

PICTURED = {"one": "one record", "batch": "a batch"}  # how the names of our own pictures end


def write(results: Path, out: Path, pictures: Path | None = None) -> dict[str, Any]:
    """Write the page; says where, from how many runs, and what was left out."""
    content = gathered(results, pictures)
    out.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomically(out, render(content).encode())
    return {"page": str(out), "runs": content["runs"], "left_out": content["left_out"]}


def gathered(results: Path, pictures: Path | None = None) -> dict[str, Any]:
    """Everything that the page shows."""
    found = gather.load(results)
    audits = measured.audits(results)
    with_runs = [g.data for g in found.groups if not g.of_study]
    return {
        "version": __version__,
        "runs": sum(len(group.runs) for group in found.groups),
        "titles": {**labels.by_title(), **labels.DATA_TITLES},
        "methods_known": list(labels.by_title()),
        "first_data": "fashion-mnist"
        if "fashion-mnist" in with_runs
        else (with_runs or ["cifar10"])[0],
        "near_hundred": figures.NEAR_HUNDRED,
        "accuracy": gather.accuracy_series(found.groups),
        "learning_rate": gather.learning_rates(found.groups),
        "methods": gather.methods_side_by_side(found.groups),
        "classes": _shown(measured_tables.classes(found)),
        "covers": tables.covers(found).to_json(),
        "audits": audits,
        "other_deltas": measured.other_deltas(audits),
        "pictures": _pictures(results, pictures),
        "asymptotics": [dict(row) for row in computed.compute("asymptotics").rows],
        "tables": [_shown(table) for table in _tables(found)],
        "left_out": list(found.left_out),
    }


def render(content: Mapping[str, Any]) -> str:
    """The template with style, script and data put into it."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False)
    parts = {
        "/*STYLE*/": _part("page.css"),
        "/*CHARTS*/": _part("charts.js"),
        "/*SCRIPT*/": _part("page.js"),
        # "</" would end the script element wherever it stands in a string
        "/*CONTENT*/": text.replace("</", "<\\/"),
    }
    page = _part("page.html")
    for mark, part in parts.items():
        page = page.replace(mark, part)
    return page


def _tables(found: gather.Results) -> list[Table]:
    made = [
        tables.accuracy(name, found.groups, split)
        for name in grid.ACCURACY_TABLES
        for split in ("test", "validation")
    ]
    made += [computed.compute(name) for name in computed.names()]
    rows = measured.epsilon_at_published_r(found.folder)
    if rows:
        first = {"data": "data set", "epsilon": "paper's ε", "r": "r"}
        columns = tuple(Column(name, first.get(name, name), 3) for name in rows[0])
        title = f"ε by {len(ACCOUNTANTS)} accountants at the paper's r"
        made.append(Table("accountants-at-r", title, columns, tuple(rows), (ACCOUNTANTS_NOTE,)))
    made += [
        tables.study(name, found.groups) for name in grid.study_names() if "learning" not in name
    ]
    made += [tables.accountants(found)]
    made += [measured_tables.peers(found), measured_tables.cost(found)]
    return [table for table in made if table.rows]


def _shown(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "heads": [column.head for column in table.columns],
        "cells": table.cells(),
        "notes": list(table.notes),
    }


def _pictures(results: Path, folder: Path | None) -> list[dict[str, str]]:
    """The folder's PNG pictures, embedded, or those of the results; a file name is a caption."""
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


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
