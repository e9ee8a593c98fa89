"""Provide the sentences that say what a total over several runs rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from simplexdp.accounting.accountants import DOMINANCE

if TYPE_CHECKING:
    from dp_accounting import DpEvent

ZERO_OUT = "zero-out (one input is replaced by a null record, its label stays)"
EXACT = "exact composition of Gaussian releases"
COMPOSED = "composition of privacy loss distributions"
INFINITE = "a run without any bound is among them"
NOT_A_SUM = (
    "a total is not the sum of the bounds in the runs' statements: every run is charged anew from "
    "its parameters, so a run planned for epsilon = 1 by theorem1 is charged at its pld cost"
)
HIDDEN = (
    "hidden participation is assumed where only draws are covered: the null record and every "
    "unsampled record emit a dummy draw, and the batches stay secret"
)
SAMPLED = (
    "where Gaussian noise is added to Poisson batches (DP-SGD, features that are trained), the "
    "batches must stay secret, and the rounding of floating-point noise is not accounted for"
)
VISIBLE = (
    "where participation is visible, the null record is sampled as any other and then emits a "
    "dummy draw; if its draw were missing instead, nothing would be bounded"
)
DRAWS_ONLY = (
    "of such runs at most the draws are covered (softmax outputs or features with noise), and only "
    "where every update touches the inputs through earlier draws alone; the updates of Algorithm 1 "
    "and of features that are trained do not"
)

FIXED_BEFOREHAND = (
    "the total holds if the parameters of all runs, and their number, were fixed before the first "
    "result was seen; runs chosen by earlier results can cost more than it says. The budget "
    "holds even then, if it was set before the first run and never changed, and all runs are "
    "full-batch Gaussian"
)


class Sentences(NamedTuple):
    """What is said of one run, of several, and of one that a budget admits."""

    one: str
    several: str
    admitted: str


# The assumptions of its bound that a run can break and be charged for all the same, by mark.
SEED_KNOWN, COMPUTED, COUPLED = "seed", "computed", "coupled"
BROKEN = {
    SEED_KNOWN: Sentences(
        "1 run was made with a known seed: its bound holds only against those who do not know "
        "it, and only if no other run has the same",
        "{} runs were made with a known seed: their bounds hold only against those who do not "
        "know it, and only if no two runs have the same",
        "at a bound that holds only against those who do not know its seed, if no other run has "
        "the same",
    ),
    COMPUTED: Sentences(
        "1 run used values computed from the private inputs: its bound does not count them",
        "{} runs used values computed from the private inputs: their bounds do not count them",
        "at a bound that does not count the values computed from the private inputs",
    ),
    COUPLED: Sentences(
        "in 1 run a record's output depends on other records of its batch: its bound is not for "
        "such a network",
        "in {} runs a record's output depends on other records of its batch: their bounds are not "
        "for such networks",
        "at a bound that is not for a network that couples records",
    ),
}


class Charged(Protocol):
    """What is looked at of a ledger's entries: an event, and what that covers."""

    @property
    def event(self) -> DpEvent:
        """Return what the run is charged."""

    @property
    def covers(self) -> str:
        """Return what its bound covers."""


def unbounded(runs: int) -> tuple[str, ...]:
    """Say what a budget leaves open about so many runs whose bound covers draws only."""
    if runs == 0:
        return ()
    whose = "1 run" if runs == 1 else f"{runs} runs"
    return (
        f"the budget counts the draws of {whose}; nothing bounds the weights trained with them",
    )


def accepted(data: str, draws_only: bool, broken_by_it: Sequence[str]) -> tuple[str, ...]:
    """Say what the budget does not bound about a run that it admits."""
    said = [f"the budget of {data} counts this run {BROKEN[m].admitted}" for m in broken_by_it]
    if draws_only:
        said.append(f"the budget of {data} counts this run's draws; nothing bounds its weights")
    return tuple(said)


def accountant(events: Sequence[DpEvent]) -> str | None:
    """Name what composes these events; None where there is nothing to compose."""
    from dp_accounting import GaussianDpEvent, NonPrivateDpEvent

    from simplexdp.accounting.events import steps_of

    kinds = {type(step) for event in events for step, _ in steps_of(event)}
    if not kinds:
        return None
    if NonPrivateDpEvent in kinds:
        return INFINITE
    return EXACT if kinds == {GaussianDpEvent} else COMPOSED


def caveats(entries: Sequence[Charged], runs: int, broken: Mapping[str, int]) -> tuple[str, ...]:
    """Say what a total over these entries assumes, and what it is not.

    Args:
        entries: What the runs are charged; equal steps of several runs may be one.
        runs: How many runs there are.
        broken: How many of them break each assumption, by mark.
    """
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent

    from simplexdp.accounting.events import (
        DirichletDpEvent,
        VisiblySampledDpEvent,
        mechanism_of,
        steps_of,
    )

    steps = [(step, e.covers) for e in entries for step, _ in steps_of(e.event)]
    draws = [step for step, covers in steps if covers == "draws"]
    seen = [isinstance(step, VisiblySampledDpEvent | DirichletDpEvent) for step in draws]
    dirichlet = [m for m in map(mechanism_of, draws) if isinstance(m, DirichletDpEvent)]
    said = [
        BROKEN[mark].one if by == 1 else BROKEN[mark].several.format(by)
        for mark, by in broken.items()
        if by > 0
    ]
    if not all(seen):
        said.append(HIDDEN)
    if any(
        isinstance(step, PoissonSampledDpEvent) and isinstance(step.event, GaussianDpEvent)
        for step, _ in steps
    ):
        said.append(SAMPLED)
    if any(seen):
        said.append(VISIBLE)
    if draws:
        said.append(DRAWS_ONLY)
    if dirichlet:
        said.append(DOMINANCE)
    if accountant([entry.event for entry in entries]) != INFINITE and runs > 1:
        said.append(FIXED_BEFOREHAND)
    if runs:
        said.append(NOT_A_SUM)
    return tuple(said)
