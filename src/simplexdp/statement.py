"""What may be claimed?  One record per run: the figure, what it covers and what it does not.

The layers follow NIST SP 800-226 (unit and trust model first) and "How to DP-fy ML" (setting,
unit, relation, release, accountant, sampling).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

WEIGHTS_NOT_COVERED = (
    "The released weights.  Back-propagation is not post-processing of the draws: the gradient "
    "contains the derivative of the logits with respect to the weights, which is evaluated at "
    "the raw input.  In a linear first layer the input is exactly the ratio of the weight "
    "gradient to the bias gradient, whatever r is."
)

# Of two data sets that may differ by this, no one can tell which was used, up to (ε, δ).
RELATIONS = {
    "zero-out": "zero-out: one input is replaced by a null record, its label stays",
    "add/remove": "add/remove at a fixed rate and divisor: what one record contributes is there "
    "or not; its label and the number of records are public",
    "replace-input": "replace-input: one input is replaced by any other, its label stays",
}


@dataclass(frozen=True)
class Assumption:
    """A condition of the figure; `holds` is False where this run breaks it, None where unknown."""

    text: str
    holds: bool | None = None


@dataclass(frozen=True)
class Statement:
    """What one run protects, by how much, under which assumptions, and what it leaves open.

    `covers_weights` says what the method's figure is about where every assumption holds; whether
    they do in this run, `broken` says, and `headline` says both, with the `proviso` where coverage
    rests on something of the user's own that the software cannot know.
    """

    method: str
    mechanism: Mapping[str, Any]
    epsilon: float | None
    delta: float | None
    accountant: str
    relation: str
    sampling: str
    steps: int
    covers_draws: bool
    covers_weights: bool
    covers: Sequence[str]
    does_not_cover: Sequence[str]
    assumptions: Sequence[Assumption] = ()
    notes: Sequence[str] = ()
    unit: str = "one training input; its label stays"
    public: Sequence[str] = ("the labels", "the number of records", "the class counts")
    audited: Mapping[str, Any] | None = field(default=None)
    proviso: str = ""

    def to_json(self) -> dict[str, Any]:
        """The statement as JSON-ready data."""
        record = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in dataclasses.asdict(self).items()
        }
        if self.epsilon is not None and math.isinf(self.epsilon):
            record["epsilon"] = None
        record["broken_assumptions"] = self.broken()
        return record

    def broken(self) -> list[str]:
        """The assumptions that this run breaks; if there is one, its figure covers nothing."""
        return [assumption.text for assumption in self.assumptions if assumption.holds is False]

    def headline(self) -> str:
        """One line: the figure and what it covers in this run."""
        if self.epsilon is None or math.isinf(self.epsilon):
            return "No privacy guarantee: this run has no privacy mechanism."
        epsilon, delta = rounded_up(self.epsilon), rounded_up(self.delta or 0.0, 3)
        figure = f"ε = {epsilon}, δ = {delta} ({self.accountant})"
        if self.covers_weights and self.broken():
            return (
                f"{figure}; would cover the released weights, but this run breaks an assumption: "
                "NOT private as it stands."
            )
        if self.covers_weights:
            return f"{figure}; covers the released weights{self.proviso and ', ' + self.proviso}."
        if self.covers_draws and not self.broken():
            return f"{figure}; covers the draws only, NOT the weights."
        return (
            f"{figure}; a bound on the draws under assumptions that this run breaks, "
            "NOT on the weights."
        )

    def to_markdown(self) -> str:
        """The statement for a person."""
        audited = self.audited or {}
        broken = bool(self.broken())
        open_draws = self.covers_draws and not self.covers_weights and not broken
        draws = {
            "Covers the draws": _covered(self.covers_draws, broken)
            + (", subject to the assumptions below" if open_draws else "")
        }
        if self.covers_weights and not self.covers_draws:
            draws = {}  # a method that makes none
        parts = [
            "# Privacy statement",
            f"**{self.headline()}**",
            _table(
                {
                    "Method": self.method,
                    "Unit of privacy": self.unit,
                    "Neighbouring relation": RELATIONS.get(self.relation, self.relation),
                    "Public": ", ".join(self.public),
                    "Mechanism": ", ".join(
                        f"{k} = {_show(k, v)}" for k, v in self.mechanism.items()
                    ),
                    "Sampling": self.sampling,
                    "Steps": self.steps,
                    "Accountant": self.accountant,
                    **draws,
                    "Covers the released weights": _covered(self.covers_weights, broken),
                    "Audited": audited.get("summary", "no audit was run on this model"),
                }
            ),
            _bullets(f"What the figure {'would cover' if broken else 'covers'}", self.covers),
            _bullets("What it does not cover", self.does_not_cover),
            _bullets("Assumptions", [_assumption(a) for a in self.assumptions]),
            _bullets("Notes", self.notes),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"


def from_json(record: Mapping[str, Any]) -> Statement:
    """The inverse of `Statement.to_json`."""
    values = {k: v for k, v in record.items() if k != "broken_assumptions"}
    values["assumptions"] = tuple(Assumption(**a) for a in values["assumptions"])
    return Statement(**values)


def large_delta(delta: float, records: int) -> tuple[str, ...]:
    """A note where a δ of this size says nothing about one of so many records."""
    if delta * records < 1.0:
        return ()
    return (
        f"δ = {rounded_up(delta, 3)} is not below 1 / {records}, the number of records: to publish "
        "some record whole, chosen at random, would satisfy such a δ. Choose one far below.",
    )


SECRET_SEED = "The random seed is secret."


def common_assumptions(seed_known: bool, computed_from_data: Sequence[str]) -> list[Assumption]:
    """What every private run needs: a secret seed and nothing else read from the inputs."""
    assumptions = [
        Assumption(
            SECRET_SEED
            + (" It was given by the user, so every draw can be recomputed." if seed_known else ""),
            holds=not seed_known,
        ),
        Assumption(
            "Architecture, learning rate, schedule and stopping were chosen without looking at "
            "the private inputs or at results on them.",
        ),
    ]
    computed = "; ".join(computed_from_data)
    assumptions.append(
        Assumption(
            "Preprocessing uses public facts only: bounds, categories and sizes were not read from "
            "the private inputs."
            + (f" Computed from the private inputs here: {computed}." if computed else ""),
            holds=False if computed else None,
        )
    )
    return assumptions


def rounded_up(value: float, digits: int = 4) -> str:
    """A cost for print, never below what it is."""
    return _rounded(value, digits, ROUND_CEILING)


def rounded_down(value: float, digits: int = 4) -> str:
    """A parameter whose growth costs privacy, for print, never above what it is."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, direction: str) -> str:
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    exact = Decimal(repr(float(value)))  # as it was typed: 0.1 is 0.1 and not a little more
    shown = exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), rounding=direction)
    return f"{float(shown):.{digits}g}"


def _show(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return rounded_down(value, 6) if name == "r" else f"{value:.6g}"


def _covered(value: bool, broken: bool) -> str:
    if value and broken:
        return "**no**: this run breaks an assumption"
    return "yes" if value else "**no**"


def _assumption(assumption: Assumption) -> str:
    mark = {True: "holds", False: "**BROKEN by this run**", None: "not checked by the software"}
    return f"{assumption.text} ({mark[assumption.holds]})"


def _table(rows: Mapping[str, Any]) -> str:
    lines = [f"| {name} | {value} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines])


def _bullets(title: str, items: Sequence[str]) -> str:
    return f"## {title}\n\n" + "\n".join(f"- {item}" for item in items) if items else ""
