"""The statement of a run: its claim, what that covers and what it does not.

The layers follow NIST SP 800-226 (unit and trust model first) and "How to DP-fy ML" (setting,
unit, relation, release, accountant, sampling).
"""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simplexdp import typed
from simplexdp.claims import DRAWS, PERSON, WEIGHTS, Assumption, Coverage, described
from simplexdp.rounding import rounded_down, rounded_up

WITHOUT_NOISE = "The audit's figures, which are computed from the private records without noise."
# Of two data sets that may differ by this, no one can tell which was used, up to (ε, δ).
RELATIONS = {
    "zero-out": "zero-out: one input is replaced by a null record, its label stays",
    "add/remove": "add/remove at a fixed rate and divisor: what one record contributes is there "
    "or not; its label and the number of records are public",
    "replace-input": "replace-input: one input is replaced by any other, its label stays",
}
OF_PERSONS = {
    "zero-out": "zero-out: all inputs of one person are replaced by null records, their "
    "labels stay",
    "add/remove": "add/remove at a fixed rate and divisor: what one person contributes is there "
    "or not; their labels and the number of records are public",
}

PER_PERSON = "all training inputs of one person together; their labels stay"
OF_A_PERSON: Mapping[str, Any] = {
    "unit": PER_PERSON,
    "public": (
        "the labels",
        "the number of records",
        "the class counts",
        "which records are of the same person",
    ),
}


@dataclass(frozen=True)
class Statement:
    """What one run protects, by how much, under which assumptions, and what it leaves open.

    `Statement.of` makes one from a run's event and coverage, which its ledger entry follows from
    too.

    Attributes:
        method: The method's title.
        mechanism: Name and parameters of the mechanism.
        epsilon: ε of the bound; None without a privacy mechanism.
        delta: δ of the bound.
        accountant: What computed the bound.
        relation: The neighbouring relation.
        sampling: How batches were drawn.
        steps: Steps taken.
        covers_draws: Whether the bound covers the draws in this run.
        covers_weights: Whether the bound covers the released weights where every assumption holds.
        covers: What the bound covers, in sentences.
        does_not_cover: What it does not.
        assumptions: What it rests on; each holds, is broken by the run, or was not checked.
        notes: What else a reader should know.
        unit: The unit of privacy.
        public: What is taken as public.
        audited: What an audit of the run found, if one was made.
        proviso: What coverage rests on that the software cannot know, such as a network of your
            own.
        event: What the run is charged.

    Example:
        >>> from simplexdp import Plan
        >>> statement = Plan(1.0, 1e-5, records=1000, batch_size=4, steps=200).statement()
        >>> statement.covers_weights
        False
        >>> statement  # doctest: +ELLIPSIS
        <Statement: ε = 0, δ = 1e-05 (...)...>
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
    event: Any = None

    @classmethod
    def of(cls, event: Any, coverage: Coverage, steps: int, notes: Sequence[str] = ()) -> Statement:
        """Return the statement of an event that is covered so."""
        broken = any(assumption.holds is False for assumption in coverage.assumptions)
        return cls(
            method=coverage.method,
            mechanism={**coverage.mechanism, **described(event)},
            epsilon=coverage.epsilon(event),
            delta=coverage.delta,
            accountant=coverage.accountant,
            relation=coverage.relation,
            sampling=coverage.sampling,
            steps=steps,
            covers_draws=coverage.draws_too or (coverage.covers == DRAWS and not broken),
            covers_weights=coverage.covers == WEIGHTS,
            covers=tuple(coverage.covered),
            does_not_cover=tuple(coverage.not_covered),
            assumptions=tuple(coverage.assumptions),
            notes=tuple(notes),
            proviso=coverage.proviso,
            event=event,
            **(OF_A_PERSON if coverage.unit == PERSON else {}),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the statement as JSON-ready data."""
        from simplexdp.accounting import events

        plain = dataclasses.replace(self, event=None)
        record = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in dataclasses.asdict(plain).items()
        }
        if self.epsilon is not None and math.isinf(self.epsilon):
            record["epsilon"] = None
        record["broken_assumptions"] = self.broken()
        record["event"] = None if self.event is None else events.to_json(self.event)
        return record

    def broken(self) -> list[str]:
        """Return the assumptions that this run breaks; with one, its bound covers nothing."""
        return [assumption.text for assumption in self.assumptions if assumption.holds is False]

    def without_audit(self) -> Statement:
        """Return the statement as training left it: no bound covers an audit's numbers."""
        outside = tuple(said for said in self.does_not_cover if said != WITHOUT_NOISE)
        return dataclasses.replace(self, audited=None, does_not_cover=outside)

    def headline(self) -> str:
        """Return one line: the bound and what it covers in this run."""
        if self.epsilon is None or math.isinf(self.epsilon):
            return "No privacy guarantee: this run has no privacy mechanism."
        epsilon, delta = rounded_up(self.epsilon), rounded_up(self.delta or 0.0, 3)
        per = " per person" if self.unit == PER_PERSON else ""
        bound = f"ε = {epsilon}, δ = {delta}{per} ({self.accountant})"
        if self.covers_weights and self.broken():
            return (
                f"{bound}; would cover the released weights, but this run breaks an assumption: "
                "NOT private as it stands."
            )
        if self.covers_weights:
            return f"{bound}; covers the released weights{self.proviso and ', ' + self.proviso}."
        if self.covers_draws and not self.broken():
            return f"{bound}; covers the draws only, NOT the weights."
        return (
            f"{bound}; a bound on the draws under assumptions that this run breaks, "
            "NOT on the weights."
        )

    def what_is_covered(self) -> str:
        """Return the heading of the list of what is covered, which a broken assumption changes."""
        return f"What the bound {'would cover' if self.broken() else 'covers'}"

    def neighbours(self) -> str:
        """Return which two data sets no one can tell apart, in words."""
        named = RELATIONS | (OF_PERSONS if self.unit == PER_PERSON else {})
        return named.get(self.relation, self.relation)

    def __repr__(self) -> str:
        return f"<Statement: {self.headline()}>"

    def _repr_html_(self) -> str:
        return f"<p><b>{html.escape(self.headline())}</b></p>"

    def to_markdown(self) -> str:
        """Return the statement for a person, in Markdown."""
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
                    "Neighbouring relation": self.neighbours(),
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
            _bullets(self.what_is_covered(), self.covers),
            _bullets("What it does not cover", self.does_not_cover),
            _bullets("Assumptions", [_assumption(a) for a in self.assumptions]),
            _bullets("Notes", self.notes),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"


def from_json(record: Mapping[str, Any]) -> Statement:
    """Return the statement that `Statement.to_json` gave.

    Args:
        record: JSON as a dictionary.

    Returns:
        The statement.

    Raises:
        ValueError: A field is missing, unknown or of another type.
    """
    from simplexdp.accounting import events

    try:
        values = {k: v for k, v in record.items() if k != "broken_assumptions"}
        if values.get("event") is not None:
            values["event"] = events.from_json(values["event"])
        return typed.read(Statement, values)
    except (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        said = f" ({error})" if isinstance(error, TypeError) else ""
        raise ValueError(f"the statement is damaged or was edited{said}; restore it") from error


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
