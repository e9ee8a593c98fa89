"""What does a total over several runs rest on? Sentences, for whoever reads the total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from simplexdp.accounting.accountants import ACCOUNTANTS, DOMINANCE_PROVED, DOMINANCE_VERIFIED

ZERO_OUT = "zero-out (one input is replaced by a null record, its label stays)"
EXACT = "exact composition of Gaussian releases"
COMPOSED = "composition of privacy loss distributions"
INFINITE = "a run without any figure is among them"
NOT_A_SUM = (
    "a total is not the sum of the figures in the runs' statements: every run is charged anew from "
    "its parameters, so a run planned for epsilon = 1 by theorem1 is charged at its pld figure"
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
    "result was seen; runs chosen by earlier results can cost more than it says. For those holds "
    "the budget, not the total, if it was set before the first run, never changed, and all runs "
    "are full-batch Gaussian"
)


class Sentences(NamedTuple):
    """What is said of one run, of several, and of one that a budget admits."""

    one: str
    several: str
    admitted: str


# The assumptions of its figure that a run can break and be charged for all the same, by mark.
SEED_KNOWN, COMPUTED, COUPLED = "seed", "computed", "coupled"
BROKEN = {
    SEED_KNOWN: Sentences(
        "1 run was made with a known seed: its figure holds only against those who do not know "
        "it, and only if no other run has the same",
        "{} runs were made with a known seed: their figures hold only against those who do not "
        "know it, and only if no two runs have the same",
        "at a figure that holds only against those who do not know its seed, if no other run has "
        "the same",
    ),
    COMPUTED: Sentences(
        "1 run used values computed from the private inputs: its figure does not count them",
        "{} runs used values computed from the private inputs: their figures do not count them",
        "at a figure that does not count the values computed from the private inputs",
    ),
    COUPLED: Sentences(
        "in 1 run a record's output depends on other records of its batch: its figure is not for "
        "such a network",
        "in {} runs a record's output depends on other records of its batch: their figures are not "
        "for such networks",
        "at a figure that is not for a network that couples records",
    ),
}


def marks(event: Mapping[str, Any]) -> tuple[str, ...]:
    """Of which assumptions an event is marked that its run breaks them."""
    return tuple(event.get("broken", ()))


def broken(events: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """How many runs break each of the assumptions."""
    return {mark: sum(mark in marks(event) for event in events) for mark in BROKEN}


def unbounded(runs: int) -> tuple[str, ...]:
    """What a budget leaves open about so many runs whose figure covers draws only."""
    if runs == 0:
        return ()
    whose = "1 run" if runs == 1 else f"{runs} runs"
    return (
        f"the budget counts the draws of {whose}; nothing bounds the weights trained with them",
    )


def accepted(data: str, draws_only: bool, broken_by_it: Sequence[str]) -> tuple[str, ...]:
    """What the budget does not bound about a run that it admits."""
    found = [f"the budget of {data} counts this run {BROKEN[m].admitted}" for m in broken_by_it]
    if draws_only:
        found.append(f"the budget of {data} counts this run's draws; nothing bounds its weights")
    return tuple(found)


def accountant(events: Sequence[Mapping[str, Any]]) -> str | None:
    """By which accountant these events are composed; None where there is nothing to compose."""
    kinds = {event["type"] for event in events}
    if not kinds:
        return None
    if "none" in kinds:
        return INFINITE
    return EXACT if kinds == {"gaussian"} else COMPOSED


def caveats(
    events: Sequence[Mapping[str, Any]], draws: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """What a total over these events assumes, of which `draws` cover draws only; what it is not."""
    dirichlet = [event for event in draws if event["type"] == "dirichlet"]
    found = [
        BROKEN[mark].one if runs == 1 else BROKEN[mark].several.format(runs)
        for mark, runs in broken(events).items()
        if runs > 0
    ]
    if any(event.get("participation", "hidden") == "hidden" for event in draws):
        found.append(HIDDEN)
    if any(event["type"] == "sampled-gaussian" for event in events):
        found.append(SAMPLED)
    if any(event.get("participation") == "visible" for event in draws):
        found.append(VISIBLE)
    if draws:
        found.append(DRAWS_ONLY)
    if dirichlet:
        proved = all(ACCOUNTANTS["pld"].proved_at(event["alpha"]) for event in dirichlet)
        found.append(DOMINANCE_PROVED if proved else DOMINANCE_VERIFIED)
    if accountant(events) != INFINITE and len(events) > 1:
        found.append(FIXED_BEFOREHAND)
    if events:
        found.append(NOT_A_SUM)
    return tuple(found)
