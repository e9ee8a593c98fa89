"""Tables: named columns and rows of plain values, shown the same way everywhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simplexdp import files

Value = str | float | int | None
ROWS_ON_A_PAGE = 40  # a longer table is one that LaTeX may break
_LATEX = {
    "ε": r"$\varepsilon$",
    "∞": r"$\infty$",
    "α": r"$\alpha$",
    "γ": r"$\gamma$",
    "κ": r"$\kappa$",
    "δ": r"$\delta$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "≤": r"$\leq$",
    "⁎": r"$^*$",
    "–": "--",
    "%": r"\%",
    "&": r"\&",
    "_": r"\_",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "√": r"$\surd$",
    "²": "$^2$",
    "½": r"$\frac{1}{2}$",
    "≥": r"$\geq$",
    "·": r"$\cdot$",
    "→": r"$\to$",
}


@dataclass(frozen=True)
class Column:
    """A column: its key in the rows, its head, and how many significant digits are shown."""

    key: str
    head: str
    digits: int = 4


def columns(**heads: str | tuple[str, int]) -> tuple[Column, ...]:
    """Return columns by their keys, each with its head or with head and digits."""
    both = {key: (head,) if isinstance(head, str) else head for key, head in heads.items()}
    return tuple(Column(key, *head) for key, head in both.items())


@dataclass(frozen=True)
class Table:
    """A table with a title and notes; rows hold values, not text."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Value], ...]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON-ready data."""
        return {
            "name": self.name,
            "title": self.title,
            "columns": [dataclasses.asdict(column) for column in self.columns],
            "rows": [dict(row) for row in self.rows],
            "notes": list(self.notes),
        }

    def cells(self) -> list[list[str]]:
        """Return the rows as they are shown."""
        return [[shown(row.get(c.key), c.digits) for c in self.columns] for row in self.rows]


def shown(value: Value, digits: int) -> str:
    """Return a value as text; what is missing is a dash."""
    if value is None:
        return "–"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def to_markdown(table: Table) -> str:
    """Return the table and its notes in Markdown."""
    heads = [c.head for c in table.columns]
    lines = [heads, ["---"] * len(heads), *table.cells()]
    body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    notes = "\n".join(f"- {note}" for note in table.notes)
    return body + (f"\n\n{notes}" if notes else "")


def to_latex(table: Table) -> str:
    """Return the table in LaTeX, for the packages booktabs and, where it is long, longtable."""
    heads = " & ".join(_latex(c.head) for c in table.columns)
    rows = [" & ".join(_latex(cell) for cell in row) + r" \\" for row in table.cells()]
    columns = f"l{'c' * (len(table.columns) - 1)}"
    caption = rf"\caption{{{_latex(' '.join([f'{table.title}.', *table.notes]))}}}"
    label = rf"\label{{tab:{table.name}}}"
    body = [r"\toprule", rf"{heads} \\", r"\midrule", *rows, r"\bottomrule"]
    if len(rows) > ROWS_ON_A_PAGE:
        body.insert(3, r"\endhead")
        lines = [rf"\begin{{longtable}}{{{columns}}}", *body, caption + label]
        return "\n".join([*lines, r"\end{longtable}", ""])
    tabular = [rf"\begin{{tabular}}{{{columns}}}", *body, r"\end{tabular}"]
    lines = [r"\begin{table}[t]", r"\centering", *tabular, caption, label]
    return "\n".join([*lines, r"\end{table}", ""])


def save(table: Table, folder: Path) -> list[Path]:
    """Write a table as JSON, Markdown and LaTeX."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{table.name}.{ending}" for ending in ("json", "md", "tex")]
    files.write_json(paths[0], table.to_json())
    markdown = f"# {table.title}\n\n{to_markdown(table)}\n"
    files.write_atomically(paths[1], markdown.encode())
    files.write_atomically(paths[2], to_latex(table).encode())
    return paths


def _latex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in text)
