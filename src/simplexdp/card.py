"""The card of a model: for people in Markdown and HTML, for registries in YAML."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from simplexdp.rounding import rounded_up
from simplexdp.statement import PER_PERSON, Statement

PAGE = "card.html"
REGISTRY = "deployment.yaml"
UNSTATED = "not stated"
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem;
  color: #111; background: #fff; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 1.6rem; }
table { border-collapse: collapse; width: 100%; } td, th { border-bottom: 1px solid #ccc;
  padding: .25rem .5rem .25rem 0; text-align: left; vertical-align: top; }
th { width: 30%; font-weight: 600; } .claim { border-left: 4px solid; padding-left: .8rem; }
.no { color: #a40000; } .yes { color: #00600f; }
@media (max-width: 34rem) { th, td { display: block; width: auto; } th { border: 0;
  padding-bottom: 0; } }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #16181c; }
  .no { color: #ff8a80; } .yes { color: #8fd694; } td, th { border-color: #444; } }
@media print { body { margin: 0; max-width: none; font-size: 11pt; color: #000; background: #fff; }
  h2 { break-after: avoid; } tr, li { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Card:
    """What is told of a model.

    Attributes:
        name: The model's name.
        method: The method that trained it.
        covered: Whether the bound covers the weights in this run.
        statement: What is claimed.
        class_names: The classes.
        preprocessing: What turns records into inputs.
        metrics: Accuracy and recalls on test records; None where they are not told.
        licence: A licence by its name.
        intended_use: What the model is for.
        curators: Who holds the data.
    """

    name: str
    method: str
    covered: bool
    statement: Statement
    class_names: Sequence[str]
    preprocessing: Mapping[str, Any] | None = None
    metrics: Mapping[str, Any] | None = None
    licence: str = "unknown"
    intended_use: str | None = None
    curators: Sequence[str] = ()

    def front(self) -> dict[str, Any]:
        """Return what Hugging Face reads from the head of a card."""
        kind = (self.preprocessing or {}).get("kind")
        task = "image-classification" if kind == "images" else "tabular-classification"
        front: dict[str, Any] = {
            "license": self.licence,
            "library_name": "simplexdp",
            "pipeline_tag": task,
            "tags": ["differential-privacy", *([] if self.covered else ["not-private"])],
        }
        if self.metrics:
            accuracy = {"type": "accuracy", "value": self.metrics["accuracy"]}
            dataset = {"name": "held-out test records", "type": "private"}
            result = {"task": {"type": task}, "dataset": dataset, "metrics": [accuracy]}
            front["model-index"] = [{"name": self.name, "results": [result]}]
        return front

    def title(self) -> str:
        """Return the first line, which says whether the weights are covered."""
        if self.covered:
            return "The released weights are covered by a privacy bound"
        return "NOT COVERED: no privacy bound holds for the weights of this model"

    def sections(self) -> dict[str, Mapping[str, str] | Sequence[str]]:
        """Return headings with tables or bullets."""
        statement, recipe = self.statement, self.preprocessing or {}
        features = recipe.get("features") or {}
        return {
            "The claim": {
                "Model": self.name,
                "Unit of privacy": statement.unit,
                "Neighbouring relation": statement.neighbours(),
                "ε": _number(statement.epsilon),
                "δ": _number(statement.delta),
                "μ (Gaussian)": _number(statement.mechanism.get("mu")),
                "Computed by": statement.accountant,
                "Covers the released weights": "yes" if self.covered else "NO",
                "Public": ", ".join(statement.public),
                "Method": f"{statement.method} ({statement.steps:,} steps)",
                "Mechanism": _mechanism(statement),
                "Sampling": statement.sampling,
            },
            statement.what_is_covered(): list(statement.covers),
            "What it does not cover": list(statement.does_not_cover),
            "Assumptions": _assumptions(statement),
            "What goes in": {
                "Records": str(recipe.get("kind", "arrays")),
                "Shape": "×".join(str(side) for side in recipe.get("shape", ())) or UNSTATED,
                "Bounds": ", ".join(_pair(pair) for pair in recipe.get("bounds") or ()),
                "Window": _pair(recipe["window"]) if recipe.get("window") else "",
                "Columns": "; ".join(_column(column) for column in recipe.get("columns") or ()),
                "Features": features.get("name", "none: a network on the inputs"),
                "Features' provenance": features.get("provenance", "none"),
                "Features' checksum": str(features.get("checksum") or "none"),
                "Classes": ", ".join(self.class_names),
            },
            "Measured": self._measured(),
            "Licence and use": {
                "Licence": _said(None if self.licence == "unknown" else self.licence, "--licence"),
                "Intended use": _said(self.intended_use, "--intended-use"),
                "Data held by": _said(", ".join(self.curators), "--curator"),
                "Check it": "simplexdp verify FOLDER",
                "Use it": "simplexdp predict FOLDER NEW --out predictions.csv",
            },
            "Notes": list(statement.notes),
        }

    def _measured(self) -> Mapping[str, str] | Sequence[str]:
        if not self.metrics:
            return [
                "Not told: test accuracy is computed from records that may be private, and no "
                "bound covers it (release --with-metrics tells it)."
            ]
        low, high = self.metrics["accuracy_interval"]
        recalls = zip(self.class_names, self.metrics.get("recalls") or (), strict=False)
        return {
            "Accuracy": f"{100 * self.metrics['accuracy']:.2f} % (95 % interval "
            f"{100 * low:.1f} to {100 * high:.1f} %)",
            "Test records": f"{self.metrics['test_records']:,}; no bound covers these numbers",
            **{
                f"Recall of {name}": "no test records" if r is None else f"{100 * r:.1f} %"
                for name, r in recalls
            },
        }

    def markdown(self) -> str:
        """Return the card as Hugging Face reads it: a head in YAML, then Markdown."""
        parts = [f"---\n{as_yaml(self.front())}---", f"# {self.title()}", self.statement.headline()]
        for heading, content in self.sections().items():
            if isinstance(content, Mapping):
                rows = (f"| {_cell(k)} | {_cell(v)} |" for k, v in content.items() if v)
                parts.append("\n".join([f"## {heading}\n", "| | |", "|---|---|", *rows]))
            elif content:
                parts.append("\n".join([f"## {heading}\n", *(f"- {line}" for line in content)]))
        return "\n\n".join(parts) + "\n"

    def page(self) -> str:
        """Return the card as one page of HTML to read, print and file."""
        parts = []
        for heading, content in self.sections().items():
            if isinstance(content, Mapping):
                rows = (
                    f"<tr><th scope='row'>{_safe(k)}</th><td>{_safe(v)}</td></tr>"
                    for k, v in content.items()
                    if v
                )
                parts.append(f"<h2>{_safe(heading)}</h2><table>{''.join(rows)}</table>")
            elif content:
                lines = "".join(f"<li>{_safe(line)}</li>" for line in content)
                parts.append(f"<h2>{_safe(heading)}</h2><ul>{lines}</ul>")
        tone = "yes" if self.covered else "no"
        return (
            f"<!doctype html><html lang='en'><head><meta charset='utf-8'>"
            "<meta name='viewport' content='width=device-width, initial-scale=1'>"
            f"<title>{_safe(self.name)}: privacy card</title><style>{STYLE}</style></head><body>"
            f"<h1 class='{tone}'>{_safe(self.title())}</h1>"
            f"<p class='claim {tone}'>{_safe(self.statement.headline())}</p>{''.join(parts)}"
            "</body></html>\n"
        )

    def registry(self) -> str:
        """Return an entry in the form of OpenDP's registry of deployments."""
        statement = self.statement
        person = statement.unit == PER_PERSON
        claimed = {"epsilon": statement.epsilon, "delta": statement.delta}
        mu = statement.mechanism.get("mu")
        parameters = {k: v for k, v in {**claimed, "mu": mu}.items() if _finite(v)}
        entry = {
            "status": "Draft",
            "deployment": {
                "product": {
                    "name": self.name,
                    "data_curators": list(self.curators) or [UNSTATED],
                    "intended_use": self.intended_use or UNSTATED,
                    "data_product_type": "Machine learning model",
                    "description": f"A classifier trained with {statement.method} (simplexdp).",
                },
                "dp_flavor": {
                    "name": "Approximate DP" if self.covered else "None: not covered by a bound",
                    "input_metric": statement.neighbours(),
                    "unprotected_quantities": list(statement.public),
                },
                "privacy_loss": {
                    "privacy_unit": "user-level" if person else "record-level",
                    "privacy_unit_description": statement.unit,
                    "privacy_parameters": parameters,
                    "privacy_parameters_description": statement.headline(),
                },
                "model": {
                    "model_name": "Central",
                    "release_type": "One release",
                    "data_source_type": "Static",
                    "access_type": "Non-interactive",
                },
                "accounting": {
                    "composition": statement.accountant,
                    "post_processing": f"{statement.what_is_covered()}: "
                    + "; ".join(statement.covers),
                },
                "implementation": {
                    "mechanisms": _mechanism(statement),
                    "justification": " ".join(_assumptions(statement)),
                },
            },
        }
        return as_yaml(entry)


def as_yaml(content: Mapping[str, Any], indent: str = "") -> str:
    """Return YAML of nested dictionaries and lists; scalars are in the form of JSON, which it has.

    >>> print(as_yaml({"a": 1, "b": {"c": ["x: y", True]}}), end="")
    a: 1
    b:
      c: ["x: y", true]
    """
    lines = []
    for name, value in content.items():
        if isinstance(value, Mapping) and value:
            lines.append(f"{indent}{name}:\n{as_yaml(value, indent + '  ')}")
        else:
            lines.append(f"{indent}{name}: {_flow(value)}\n")
    return "".join(lines)


def _flow(value: Any) -> str:
    """Return a value on one line; YAML 1.1 takes 1e-05, without a point, for text."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(v) for v in value) + "]"
    text = json.dumps(value, ensure_ascii=False)
    pointless = isinstance(value, float) and "e" in text and "." not in text
    return text.replace("e", ".0e") if pointless else text


def _said(text: str | None, option: str) -> str:
    """Return what people said, or by which option of `release` they say it."""
    return text or f"{UNSTATED} (release {option} says it)"


def _finite(value: Any) -> bool:
    return isinstance(value, float | int) and math.isfinite(value)


def _number(value: Any) -> str:
    """Return a number rounded up, so that no bound looks smaller; other values as they are."""
    if isinstance(value, float):
        return rounded_up(value, 6) if math.isfinite(value) else "none"
    return "none" if value is None else str(value)


def _mechanism(statement: Statement) -> str:
    """Return the mechanism's name and numbers, without μ, which stands by itself."""
    rest = [(k, v) for k, v in statement.mechanism.items() if k not in ("name", "mu")]
    told = (f"{k} {v:.6g}" if isinstance(v, float) else f"{k} {v}" for k, v in rest)
    return ", ".join((str(statement.mechanism.get("name", "none")), *told))


def _assumptions(statement: Statement) -> list[str]:
    """Return the assumptions, each with whether it holds."""
    marks = {True: "holds", False: "BROKEN by this run", None: "not checked"}
    return [f"{a.text} ({marks[a.holds]})" for a in statement.assumptions]


def _pair(bounds: Sequence[float]) -> str:
    return f"{bounds[0]:g} to {bounds[1]:g}"


def _column(column: Mapping[str, Any]) -> str:
    """Return a column with its bounds or categories, and what stands for a missing value."""
    values = "|".join(column.get("categories") or ()) or _pair(column["bounds"])
    gap = f", missing: {column['missing']}" if column.get("missing") else ""
    return f"{column['name']} {values}{gap}"


def _safe(text: str) -> str:
    return html.escape(str(text))


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
