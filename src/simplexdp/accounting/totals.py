"""What does a total over several runs rest on? Sentences, for whoever reads the total."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    "hidden participation is assumed of the Dirichlet runs: the null record and every unsampled "
    "record emit a dummy draw, and the batches stay secret"
)
DRAWS_ONLY = (
    "of the Dirichlet runs at most the draws are covered, and only where every update touches the "
    "inputs through earlier draws alone; Algorithm 1's updates do not"
)


def accountant(events: Sequence[Mapping[str, Any]]) -> str | None:
    """By which accountant these events are composed; None where there is nothing to compose."""
    kinds = {event["type"] for event in events}
    if not kinds:
        return None
    if "none" in kinds:
        return INFINITE
    return EXACT if kinds == {"gaussian"} else COMPOSED


def caveats(events: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What a total over these events assumes, and what it is not."""
    draws = [event for event in events if event["type"] == "dirichlet"]
    found = []
    if any(event["participation"] == "hidden" for event in draws):
        found.append(HIDDEN)
    if draws:
        found.append(DRAWS_ONLY)
        proved = all(ACCOUNTANTS["pld"].proved_at(event["alpha"]) for event in draws)
        found.append(DOMINANCE_PROVED if proved else DOMINANCE_VERIFIED)
    if events:
        found.append(NOT_A_SUM)
    return tuple(found)
