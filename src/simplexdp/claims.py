"""What a run claims: what its bound covers, under which relation and which assumptions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simplexdp.accounting import totals
from simplexdp.ledger_lines import DRAWS as DRAWS
from simplexdp.ledger_lines import NOTHING as NOTHING
from simplexdp.ledger_lines import PERSON as PERSON
from simplexdp.ledger_lines import RECORD as RECORD
from simplexdp.ledger_lines import WEIGHTS as WEIGHTS
from simplexdp.rounding import rounded_up

if TYPE_CHECKING:
    from dp_accounting import DpEvent

SECRET_SEED = "The random seed is secret."
LABELS_ARE_PUBLIC = (
    "Any use of the labels, the number of records or the class counts: these are public."
)
# What no bound on released weights covers.
BESIDE_A_LOOP = (
    LABELS_ARE_PUBLIC,
    "The test and validation accuracies, where those records are private too.",
    "Predictions on the training records: each depends on its own input beside the weights.",
    "The time that training takes.",
)
BESIDE_THE_WEIGHTS = (  # where the library reads the records
    *BESIDE_A_LOOP,
    "Whether every input is as declared: NaN and infinity, values outside the categories and "
    "images of another form are refused, and the refusal tells that, and how many, there are.",
)


TOLERANCE = 1e-3  # of ε, for rounding


@dataclass(frozen=True)
class Assumption:
    """A condition of a claim.

    Attributes:
        text: The condition in a sentence.
        holds: False where this run breaks it, None where that is not known.
        mark: The name under which a ledger notes that a run breaks it, if it does so.
    """

    text: str
    holds: bool | None = None
    mark: str = ""


@dataclass(frozen=True)
class Coverage:
    """What a bound covers; the claim of a run is its event together with this.

    Attributes:
        method: The method, as a statement names it.
        covers: "weights", "draws" or "nothing".
        accountant: What computes the bound, by its title.
        epsilon: ε of an event at `delta`, by that accountant.
        delta: δ of the claim, None where nothing is claimed.
        relation: The neighbouring relation.
        sampling: Which records each step uses.
        covered: What is covered, in sentences.
        not_covered: What is not, in sentences.
        assumptions: What the bound rests on.
        mechanism: Details of the mechanism beside those that the event holds.
        proviso: What coverage of weights rests on that the software cannot know.
        draws_too: Whether noised outputs are covered beside the weights.
        unit: Whether one record is protected, or all records of one person.
    """

    method: str
    covers: str
    accountant: str
    epsilon: Callable[[DpEvent], float | None]
    delta: float | None
    relation: str
    sampling: str
    covered: Sequence[str] = ()
    not_covered: Sequence[str] = ()
    assumptions: Sequence[Assumption] = ()
    mechanism: Mapping[str, Any] = field(default_factory=dict)
    proviso: str = ""
    draws_too: bool = False
    unit: str = RECORD

    def __post_init__(self) -> None:
        """Refuse a broken assumption that a ledger would not hear of."""
        if self.covers == WEIGHTS and any(
            a.holds is False and not a.mark for a in self.assumptions
        ):
            raise ValueError(
                "a broken assumption of a claim on weights has no mark; give one of "
                f"{', '.join(totals.BROKEN)}"
            )

    def broken(self) -> tuple[str, ...]:
        """Return the marks of the assumptions that the run breaks, as a ledger keeps them."""
        return tuple(a.mark for a in self.assumptions if a.holds is False and a.mark)


def check(event: DpEvent, covers: str) -> None:
    """Refuse an event and what it is said to cover, where they contradict each other.

    Raises:
        ValueError: If an event without a mechanism is claimed to cover something, an event with
            one to cover nothing, or draws of the Dirichlet mechanism to cover weights.
    """
    from dp_accounting import NonPrivateDpEvent

    from simplexdp.accounting import events

    if covers not in (WEIGHTS, DRAWS, NOTHING):
        raise ValueError(f"covers is {covers!r}; use weights, draws or nothing")
    unbounded = any(isinstance(step, NonPrivateDpEvent) for step, _ in events.steps_of(event))
    if unbounded != (covers == NOTHING):
        raise ValueError(
            f"the claim covers {covers} and its event is {event}; "
            "a run without a mechanism covers nothing, and no other run does"
        )
    if covers == WEIGHTS and events.is_dirichlet(event):
        raise ValueError("a Dirichlet bound covers the draws, never the released weights")


def check_bound(event: DpEvent, coverage: Coverage) -> None:
    """Refuse a coverage of weights whose ε is not what a ledger would charge for the event.

    Raises:
        ValueError: If it has no bound, or a smaller one.
    """
    from simplexdp.accounting import events

    if coverage.covers != WEIGHTS:
        return
    claimed, delta = coverage.epsilon(event), coverage.delta
    if claimed is None or delta is None:
        raise ValueError("the claim covers weights without a bound; give its epsilon and delta")
    charged = events.compose([event], delta)
    if not charged <= claimed * (1.0 + TOLERANCE):
        raise ValueError(
            f"the claim covers weights with epsilon = {claimed:g}, and its event costs {charged:g}"
        )


def check_releases(event: DpEvent, releases: Mapping[str, float]) -> None:
    """Refuse named releases that are not what the event charges.

    Raises:
        ValueError: If their μ together is not that of the event's Gaussian steps, unsampled.
    """
    from simplexdp.accounting import events

    if not releases:
        return
    named = math.hypot(*releases.values())
    noises = [(events.mechanism_of(step), count) for step, count in events.steps_of(event)]
    charged = math.hypot(*(math.sqrt(count) / step.noise_multiplier for step, count in noises))
    if not math.isclose(named, charged, rel_tol=1e-9):
        raise ValueError(f"the releases have μ = {named:.6g} and the event charges {charged:.6g}")


def described(event: DpEvent) -> dict[str, Any]:
    """Return the parameters that an event of one kind of step holds, as a statement names them."""
    from simplexdp.accounting import events

    steps = events.steps_of(event)
    if len(steps) != 1:
        return {}
    step, count = steps[0]
    mechanism = events.mechanism_of(step)
    if isinstance(mechanism, events.DirichletDpEvent):
        return {"r": mechanism.r, "alpha": mechanism.alpha}
    noise = getattr(mechanism, "noise_multiplier", None)
    if noise is None:
        return {}
    # Releases of all records are one of a μ; sampled ones are not.
    return {"mu": math.sqrt(count) / noise} if mechanism is step else {"noise_multiplier": noise}


def common_assumptions(
    seed_known: bool, computed_from_data: Sequence[str] = ()
) -> tuple[Assumption, ...]:
    """Return what every private run needs: a secret seed and nothing else read from the inputs."""
    known = " It was given by the user, so every draw can be recomputed." if seed_known else ""
    computed = "; ".join(computed_from_data)
    read = f" Computed from the private inputs here: {computed}." if computed else ""
    return (
        Assumption(SECRET_SEED + known, not seed_known, totals.SEED_KNOWN),
        Assumption(
            "Architecture, learning rate, schedule and stopping were chosen without looking at "
            "the private inputs or at results on them.",
        ),
        Assumption(
            "Preprocessing uses public facts only: bounds, categories and sizes were not read from "
            f"the private inputs.{read}",
            False if computed else None,
            totals.COMPUTED,
        ),
    )


def refuse_large_delta(delta: float, records: int) -> None:
    """Refuse a δ that would permit publishing some record whole."""
    if delta * records >= 1.0:
        raise ValueError(
            f"delta is {delta:g}, not below 1/{records}, so some record may be published whole: "
            "give a far smaller one (or --allow-large-delta)"
        )


def large_delta(delta: float | None, records: int) -> tuple[str, ...]:
    """Return a note where a δ of this size says nothing about one of so many records."""
    if delta is None or math.isinf(delta) or delta * records < 1.0:
        return ()
    return (
        f"δ = {rounded_up(delta, 3)} is not below 1 / {records}, the number of records: to publish "
        "some record whole, chosen at random, would satisfy such a δ. Choose one far below.",
    )
