"""A page of a person's own runs: accuracies, claims, audits, and what the ledger counts."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simplexdp import __version__, files, ledger, runs, seal, statement
from simplexdp.paper import labels
from simplexdp.paper.report import figures, inline, page
from simplexdp.paper.table import Table, Value, columns

ABOUT = (
    "This page is for yourself. No bound covers an accuracy on private records, a path or a seed: "
    "hand out a run's statement and model, and not this page."
)
COLUMNS = columns(
    run="run",
    data="data",
    method="method",
    accuracy="test accuracy, %",
    recalls="recall by class, %",
    seconds="seconds",
    claim="what may be claimed",
    audit="audit",
)


def write(paths: Sequence[Path], out: Path) -> dict[str, Any]:
    """Write the page of these run folders, or of those inside these folders.

    Raises:
        ValueError: If there is no run in one of them.
    """
    found = [folder for path in paths for folder in _folders(path)]
    table = Table("runs", "Runs", COLUMNS, tuple(_row(folder) for folder in found))
    curves = [(_name(f), f.settings().method, f.metrics()) for f in found]
    scroll = '<div class="scroll" tabindex="0" role="region" aria-label="Runs">'
    parts = {
        "<!--runs-->": f"{scroll}{_html(table)}</div>",
        "<!--about-->": ABOUT,
    }
    parts |= {"/*STYLE*/": page.part("page.css"), "<!--version-->": __version__}
    parts["<!--ledger-->"] = html.escape("\n".join(_spent(found)) or "No ledger counts them.")
    sizes = {"broad": figures.WIDE, "slim": figures.NARROW}
    draw = {kind: figures.progress(curves, size) for kind, size in sizes.items()}
    parts["<!--chart-->"] = inline.chart(draw, "progress", "test accuracy over steps, run by run")
    text = page.part("own.html")
    for mark, part in parts.items():
        text = text.replace(mark, part)
    out.parent.mkdir(parents=True, exist_ok=True)
    files.write_atomically(out, text.encode())
    return {"page": str(out), "runs": len(found), "left_out": []}


def _folders(path: Path) -> list[runs.RunFolder]:
    configurations = [path / runs.CONFIGURATION, *sorted(path.glob(f"*/{runs.CONFIGURATION}"))]
    found = [runs.RunFolder.open(one.parent) for one in configurations if one.is_file()]
    if not found:
        raise ValueError(f"{path} holds no run; name a folder that train --out made, or one above")
    return found


def _name(folder: runs.RunFolder) -> str:
    return folder.path.resolve().name


def _row(folder: runs.RunFolder) -> dict[str, Value]:
    settings = folder.settings()
    row: dict[str, Value] = {
        "run": _name(folder),
        "data": Path(settings.data).name,
        "method": labels.title(settings.method),
    }
    if not folder.finished():
        return row | {"claim": f"Not finished: go on with it by --resume --out {folder.path}"}
    path = folder.path / runs.STATEMENT
    with files.well_formed(folder.path, "train it again"):
        outcome = folder.configuration()["outcome"]
        claim = statement.from_json(files.read_json(path))
        names = files.read_json(folder.path / seal.DESCRIPTION)["class_names"]
        return row | {
            "accuracy": _with_interval(outcome),
            "recalls": _recalls(outcome, names),
            "seconds": float(outcome["seconds"]),
            "claim": claim.headline(),
            "audit": (claim.audited or {}).get("summary"),
        }


def _with_interval(outcome: Mapping[str, Any]) -> str:
    """Return the accuracy with its 95 % interval."""
    shown, (low, high) = f"{100 * outcome['accuracy']:.2f}", outcome["accuracy_interval"]
    return f"{shown} ({100 * low:.1f} to {100 * high:.1f}; {outcome['test_records']:,} records)"


def _recalls(outcome: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """Return the recall of each class, the worst first."""
    found = zip(outcome.get("recalls") or (), names, strict=False)
    known = sorted((share, name) for share, name in found if share is not None)
    return ", ".join(f"{name} {100 * share:.0f}" for share, name in known) or None


def _spent(found: Sequence[runs.RunFolder]) -> list[str]:
    """Return what the runs' ledgers say of their data, each account once."""
    asked = {
        (path, ledger.identity(folder.settings().data), folder.settings().delta)
        for folder in found
        if (path := folder.ledger_path()) is not None and path.exists()
    }
    totals, said = [], set()
    for path, data, delta in sorted(asked):
        total = ledger.Ledger(path).spent(data, delta)
        if (account := (path, total.names, delta)) not in said:
            said.add(account)
            totals.append(total)
    return [
        re.sub(r"(?<=\S) {2,}", " ", line)  # which line up in a terminal alone
        for total in totals
        for line in ledger.describe(total)
    ]


def _html(table: Table) -> str:
    heads = [html.escape(column.head) for column in table.columns]
    rows = "".join(
        "<tr>"
        + "".join(
            f'<td data-head="{head}"><span>{html.escape(cell)}</span></td>'
            for head, cell in zip(heads, row, strict=True)
        )
        + "</tr>"
        for row in table.cells()
    )
    shown = "".join(f'<th scope="col">{head}</th>' for head in heads)
    return f"<table><thead><tr>{shown}</tr></thead><tbody>{rows}</tbody></table>"
