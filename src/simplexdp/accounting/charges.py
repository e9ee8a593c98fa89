"""What is a run charged?  Events, one a run, and ε of several together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from simplexdp.accounting import totals
from simplexdp.accounting.gaussian import composed_mu, gaussian_epsilon
from simplexdp.accounting.inputs import check_delta, check_r, check_schedule

Event = dict[str, Any]
# What an event of each type holds; one with less is damaged.
_EVENT_FIELDS = {
    "dirichlet": frozenset({"r", "alpha", "sample_rate", "steps", "participation"}),
    "gaussian": frozenset({"noise_multiplier", "steps"}),
    "sampled-gaussian": frozenset({"noise_multiplier", "sample_rate", "steps"}),
    "none": frozenset(),
}
_NUMBERS = frozenset({"r", "alpha", "noise_multiplier", "sample_rate", "steps"})


def dirichlet(
    r: float, alpha: float, sample_rate: float, steps: int, participation: str = "hidden"
) -> Event:
    """The draws of a run of Algorithm 1."""
    check_r(r, alpha)
    check_schedule(sample_rate, steps)
    if participation not in ("hidden", "visible"):
        raise ValueError(f"participation is hidden or visible, got {participation!r}")
    return {
        "type": "dirichlet",
        "r": r,
        "alpha": alpha,
        "sample_rate": sample_rate,
        "steps": int(steps),
        "participation": participation,
    }


def gaussian(noise_multiplier: float, steps: int = 1) -> Event:
    """Full-batch Gaussian releases; the multiplier is relative to the sensitivity."""
    composed_mu(noise_multiplier, steps)
    return {"type": "gaussian", "noise_multiplier": noise_multiplier, "steps": int(steps)}


def sampled_gaussian(noise_multiplier: float, sample_rate: float, steps: int) -> Event:
    """DP-SGD: Gaussian releases of Poisson batches."""
    composed_mu(noise_multiplier, steps)
    check_schedule(sample_rate, steps)
    return {
        "type": "sampled-gaussian",
        "noise_multiplier": noise_multiplier,
        "sample_rate": sample_rate,
        "steps": int(steps),
    }


def no_guarantee() -> Event:
    """A run without a figure, such as plain training: its cost is infinite."""
    return {"type": "none"}


def marked(event: Event, broken: Sequence[str]) -> Event:
    """The event of a run that breaks these assumptions of its figure, by their marks."""
    return {**event, "broken": list(broken)} if broken else event


def _as_dp_event(event: Event) -> Any:
    import dp_accounting

    from simplexdp.accounting.events import dirichlet_event

    kind = event["type"]
    if kind == "dirichlet":
        return dirichlet_event(
            event["r"], event["alpha"], event["sample_rate"], event["steps"], event["participation"]
        )
    noise = dp_accounting.GaussianDpEvent(event["noise_multiplier"])
    if kind == "sampled-gaussian":
        noise = dp_accounting.PoissonSampledDpEvent(event["sample_rate"], noise)
    return dp_accounting.SelfComposedDpEvent(noise, event["steps"])


def compose(events: list[Event], delta: float) -> float:
    """ε of all events together under zero-out.

    Formal guarantee
        Full-batch Gaussian events alone are composed exactly. Otherwise dp-accounting composes
        privacy loss distributions, pessimistic in every rounding to the grid, with what floating
        point may move set aside from δ; Dirichlet events rest on hidden participation and on
        dominance of the vertex pair (docs/dominance.md) and cover draws only.
        Composition is of events whose parameters were fixed before the first result was seen.
        Parameters chosen by earlier results are fully adaptive composition, where a figure for the
        parameters that were chosen can be too small (Rogers, Roth, Ullman and Vadhan, 2016). A
        budget over full-batch Gaussian events alone holds there too: it bounds Σμ², which is a
        privacy filter (Smith and Thakurta, 2022).
    """
    check_delta(delta)
    if not events:
        return 0.0
    kinds = {event["type"] for event in events}
    if "none" in kinds:
        return math.inf
    if kinds == {"gaussian"}:
        mus = [composed_mu(event["noise_multiplier"], event["steps"]) for event in events]
        return gaussian_epsilon(math.hypot(*mus), delta)
    from simplexdp.accounting.events import compose_epsilon

    return compose_epsilon([_as_dp_event(event) for event in events], delta)


def is_event(event: Any) -> bool:
    """Whether an event's type and marks are known, and its parameters are there and are numbers."""
    return (
        isinstance(event, dict)
        and str(event.get("type")) in _EVENT_FIELDS
        and _EVENT_FIELDS[event["type"]] <= set(event)
        and all(_is_positive(event[name]) for name in _EVENT_FIELDS[event["type"]] & _NUMBERS)
        and set(totals.marks(event)) <= set(totals.BROKEN)
    )


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def same(first: Event, second: Event) -> bool:
    """Whether two events have the same parameters, whatever their marks."""
    return {**first, "broken": []} == {**second, "broken": []}
