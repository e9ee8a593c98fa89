"""Provide running totals of a ledger, one a name, so that a total does not need every line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from simplexdp import typed
from simplexdp.ledger_lines import (
    COVERS,
    PERSON,
    WEIGHTS,
    Budget,
    Entry,
    Known,
    Line,
    Policy,
    known_from,
)

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass
class Charges:
    """What runs whose bounds cover the same cost together.

    Attributes:
        runs: How many.
        mu_squared: Σμ² of full-batch Gaussian releases, rounded up.
        unbounded: How many have no bound at all.
        steps: How often each other step is taken, by its JSON.
    """

    runs: int = 0
    mu_squared: float = 0.0
    unbounded: int = 0
    steps: dict[str, int] = field(default_factory=dict)

    def add(self, event: DpEvent) -> None:
        """Add a run.

        Full-batch Gaussian releases are one of μ² = Σ1/σ². Each operation is rounded up, so that
        the sum of any number of them is not below its true value.
        """
        from dp_accounting import GaussianDpEvent, NonPrivateDpEvent

        from simplexdp.accounting.events import steps_of, to_json

        self.runs += 1
        for step, count in steps_of(event):
            if isinstance(step, NonPrivateDpEvent):
                self.unbounded += 1
            elif isinstance(step, GaussianDpEvent):
                squared = _up(float(step.noise_multiplier) ** 2, -math.inf)
                more = _up(count / squared) if squared > 0.0 else math.inf
                self.mu_squared = _up(self.mu_squared + more)
            else:
                name = json.dumps(to_json(step))
                self.steps[name] = self.steps.get(name, 0) + count

    def merge(self, other: Charges) -> None:
        """Add the runs of another sum."""
        self.runs += other.runs
        self.unbounded += other.unbounded
        if other.mu_squared > 0.0:
            self.mu_squared = _up(self.mu_squared + other.mu_squared)
        for name, count in other.steps.items():
            self.steps[name] = self.steps.get(name, 0) + count

    def events(self) -> list[DpEvent]:
        """Return events that cost what all runs do: one of each kind of step."""
        from simplexdp.accounting.events import gaussian, no_guarantee

        found = [no_guarantee()] if self.unbounded else []
        if self.mu_squared > 0.0:
            found.append(gaussian(_up(1.0 / _up(math.sqrt(self.mu_squared)), -math.inf)))
        return [*found, *(_repeated(name, count) for name, count in self.steps.items())]


def _up(value: float, towards: float = math.inf) -> float:
    """Return the next number above a result that was rounded to nearest, or below it."""
    return math.nextafter(value, towards)


@lru_cache(maxsize=4096)
def _repeated(name: str, count: int) -> DpEvent:
    from dp_accounting import SelfComposedDpEvent

    from simplexdp.accounting.events import from_json

    return SelfComposedDpEvent(from_json(json.loads(name)), count)


@dataclass
class Tally:
    """What the lines about one name add up to.

    Attributes:
        last: The number of its last line.
        charges: What its runs cost, by what their bounds cover.
        uncovered: Runs whose released weights are not covered.
        persons: Runs whose bound is per person.
        broken: Runs that break an assumption, by its mark.
        budget: The latest (ε, δ) that was set.
        budget_line: The line that set it.
        covered_only: Whether runs are refused whose weights nothing bounds.
        policy_line: The line that said so.
        known: What its records were known by, the latest last; sketches stay in the file.
        sketches: Where in the file the lines with sketches begin.
    """

    last: int = 0
    charges: dict[str, Charges] = field(default_factory=lambda: {c: Charges() for c in COVERS})
    uncovered: int = 0
    persons: int = 0
    broken: dict[str, int] = field(default_factory=dict)
    budget: tuple[float, float] | None = None
    budget_line: int = 0
    covered_only: bool = False
    policy_line: int = 0
    known: list[Known] = field(default_factory=list)
    sketches: list[int] = field(default_factory=list)

    @property
    def runs(self) -> int:
        """Return how many runs there are."""
        return sum(charges.runs for charges in self.charges.values())

    def add(self, line: Line, number: int, offset: int) -> None:
        """Add a line of the file."""
        from dataclasses import replace

        self.last = number
        match line:
            case Entry():
                self.charges[line.covers].add(line.event)
                self.uncovered += line.covers != WEIGHTS or bool(line.broken)
                self.persons += line.unit == PERSON
                for mark in set(line.broken):
                    self.broken[mark] = self.broken.get(mark, 0) + 1
            case Budget():
                self.budget, self.budget_line = (line.epsilon, line.delta), number
            case Policy():
                self.covered_only, self.policy_line = line.covered_only, number
            case Known():
                self.known.append(replace(line, sketch=""))
                if line.sketch:
                    self.sketches.append(offset)

    def merge(self, other: Tally) -> None:
        """Add the runs of another name of the same records; budgets are for the caller."""
        for covers, charges in other.charges.items():
            self.charges[covers].merge(charges)
        self.uncovered += other.uncovered
        self.persons += other.persons
        for mark, runs in other.broken.items():
            self.broken[mark] = self.broken.get(mark, 0) + runs
        self.known += other.known

    @classmethod
    def of(cls, tallies: Iterable[Tally]) -> Tally:
        """Return the sum over all names of the same records."""
        total = cls()
        for tally in tallies:
            total.merge(tally)
        return total

    def events(self, *covers: str) -> list[DpEvent]:
        """Return events that cost what the runs do whose bounds cover these."""
        total = Charges()
        for one in covers:
            total.merge(self.charges[one])
        return total.events()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON-ready data; `from_json` is the inverse."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Tally:
        """Return what `to_json` gave."""
        values = dict(record)
        values["charges"] = {c: typed.read(Charges, values["charges"][c]) for c in COVERS}
        values["known"] = [known_from(one) for one in values["known"]]
        values["budget"] = None if values["budget"] is None else tuple(values["budget"])
        return cls(**values)
