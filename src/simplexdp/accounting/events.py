"""Provide the events that a run is charged, their composition and their JSON form.

An event is a `DpEvent` of dp-accounting's. Beside its own there are two of the Dirichlet mechanism:

    DirichletDpEvent(r, alpha)                                a draw from every record
    PoissonSampledDpEvent(q, DirichletDpEvent(r, alpha))      a Poisson batch, participation hidden
    VisiblySampledDpEvent(q, DirichletDpEvent(r, alpha))      a batch, participation visible

Importing this module loads dp-accounting, which takes a second; whoever may do without imports it
where it is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import attr
from dp_accounting import (
    ComposedDpEvent,
    DpEvent,
    GaussianDpEvent,
    NonPrivateDpEvent,
    PoissonSampledDpEvent,
    SelfComposedDpEvent,
)

from simplexdp.accounting.gaussian import composed_mu, gaussian_epsilon
from simplexdp.accounting.inputs import check_delta, check_r, check_schedule, check_steps


@attr.s(frozen=True, slots=True, auto_attribs=True)
class DirichletDpEvent(DpEvent):  # type: ignore[misc]
    """One draw from Dir(r·g(x) + α·1) for every record, at parameters free of the records."""

    r: float
    alpha: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class VisiblySampledDpEvent(DpEvent):  # type: ignore[misc]
    """An event in which each record takes part with probability q, and it is visible which do."""

    sampling_probability: float
    event: DpEvent


_KNOWN: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        ComposedDpEvent,
        DirichletDpEvent,
        GaussianDpEvent,
        NonPrivateDpEvent,
        PoissonSampledDpEvent,
        SelfComposedDpEvent,
        VisiblySampledDpEvent,
    )
}


def dirichlet(
    r: float, alpha: float, sample_rate: float, steps: int, participation: str = "hidden"
) -> DpEvent:
    """Return the event of a run of Algorithm 1: its draws, not its weights.

    Args:
        r: Scale of the mechanism, between 0 and `alpha`.
        alpha: Concentration of the mechanism.
        sample_rate: Probability with which a record enters a batch.
        steps: Number of batches.
        participation: "hidden", or "visible" if it may be known who was in which batch.

    Raises:
        ValueError: A parameter is outside its range.
    """
    if participation not in ("hidden", "visible"):
        raise ValueError(f"participation is hidden or visible, got {participation!r}")
    sampled = PoissonSampledDpEvent if participation == "hidden" else VisiblySampledDpEvent
    return _repeated(sampled(sample_rate, DirichletDpEvent(r, alpha)), steps)


def gaussian(noise_multiplier: float, steps: int = 1) -> DpEvent:
    """Return the event of full-batch Gaussian releases.

    Args:
        noise_multiplier: Standard deviation of the noise over the sensitivity.
        steps: Number of releases.

    Raises:
        ValueError: A parameter is outside its range.
    """
    return _repeated(GaussianDpEvent(noise_multiplier), steps)


def sampled_gaussian(noise_multiplier: float, sample_rate: float, steps: int) -> DpEvent:
    """Return the event of DP-SGD: Gaussian releases of Poisson batches.

    Args:
        noise_multiplier: Standard deviation of the noise over the sensitivity.
        sample_rate: Probability with which a record enters a batch.
        steps: Number of batches.

    Raises:
        ValueError: A parameter is outside its range.
    """
    return _repeated(PoissonSampledDpEvent(sample_rate, GaussianDpEvent(noise_multiplier)), steps)


def no_guarantee() -> DpEvent:
    """Return the event of a run without a bound, such as plain training: its cost is infinite."""
    return NonPrivateDpEvent()


def steps_of(event: DpEvent) -> list[tuple[DpEvent, int]]:
    """Return the steps that an event is composed of, each with how often it is taken."""
    if isinstance(event, ComposedDpEvent):
        return [step for one in event.events for step in steps_of(one)]
    if isinstance(event, SelfComposedDpEvent):
        return [(step, count * event.count) for step, count in steps_of(event.event)]
    return [(event, 1)]


def mechanism_of(step: DpEvent) -> DpEvent:
    """Return what is done to the records of a step that take part."""
    sampled = isinstance(step, PoissonSampledDpEvent | VisiblySampledDpEvent)
    return step.event if sampled else step


def compose(events: Sequence[DpEvent], delta: float) -> float:
    """Return ε of all events together under zero-out.

    Args:
        events: What was run; none of them costs 0, one without a guarantee makes it infinite.
        delta: The δ of the total.

    Raises:
        ValueError: δ is below what the events can be composed at.

    Formal guarantee
        Statement: full-batch Gaussian events alone are composed exactly. Otherwise the bound is
        that of `compose_by_distribution`, and covers draws only where an event is Dirichlet.
        Assumptions: all events were fixed before the first result was seen. Parameters chosen by
        earlier results are fully adaptive composition, where a bound for the parameters that were
        chosen can be too small (Rogers, Roth, Ullman and Vadhan, 2016). A budget over full-batch
        Gaussian events alone holds there too: it bounds Σμ², which is a privacy filter
        (Smith and Thakurta, 2022). Dirichlet events rest on hidden participation, where they are
        sampled so, and on dominance of the vertex pair (docs/dominance.md).
        Source: `composed_mu` and `gaussian_epsilon`; `composed.epsilon_of_kinds`.
    """
    check_delta(delta)
    steps = [step for event in events for step in steps_of(event)]
    if not steps:
        return 0.0
    if any(isinstance(step, NonPrivateDpEvent) for step, _ in steps):
        return math.inf
    if all(isinstance(step, GaussianDpEvent) for step, _ in steps):
        mus = [composed_mu(step.noise_multiplier, count) for step, count in steps]
        return gaussian_epsilon(math.hypot(*mus), delta)
    from simplexdp.accounting.simplex_accountant import compose_by_distribution

    return compose_by_distribution(events, delta)


def to_json(event: DpEvent) -> dict[str, Any]:
    """Return an event as JSON: the name of its class and its fields, nested as the event is.

    >>> to_json(gaussian(2.0, steps=3))["event"]
    {'class': 'GaussianDpEvent', 'noise_multiplier': 2.0}

    Raises:
        ValueError: It is no event that `from_json` reads.
    """
    with _one_refusal():
        record = _written(event)
        _read(record)
    return record


def from_json(record: Any) -> DpEvent:
    """Return the event of a record of `to_json`, or of a ledger of version 0.1.0.

    Raises:
        ValueError: The record is damaged, or of an event that this version does not know.
    """
    with _one_refusal():
        return _old(record) if "type" in record else _read(record)


@contextmanager
def _one_refusal() -> Iterator[None]:
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise ValueError(
            "this version does not know an event of this form; make it with the functions of "
            "simplexdp.accounting.events"
        ) from None


def _written(event: DpEvent) -> dict[str, Any]:
    record = {"class": type(event).__name__, **attr.asdict(event, recurse=False)}
    if "event" in record:
        record["event"] = _written(event.event)
    if "events" in record:
        record["events"] = [_written(one) for one in event.events]
    return record


def _read(record: Mapping[str, Any]) -> DpEvent:
    fields = dict(record)
    kind = _KNOWN[fields.pop("class")]
    for name, value in record.items():
        if name == "event":
            fields[name] = _read(value)
        elif name == "events":
            fields[name] = [_read(one) for one in value]
        elif name != "class":
            _number(value)
    return _checked(kind(**fields))


def _old(record: Mapping[str, Any]) -> DpEvent:
    """Read the form of version 0.1.0; its marks are the ledger's."""
    make, names = _OLD[record["type"]]
    if record.keys() - {"type", "broken"} != set(names):
        raise ValueError(names)
    values = [record[name] for name in names]
    return make(*(value if isinstance(value, str) else _number(value) for value in values))


_OLD: dict[str, tuple[Callable[..., DpEvent], tuple[str, ...]]] = {
    dirichlet.__name__: (dirichlet, ("r", "alpha", "sample_rate", "steps", "participation")),
    "gaussian": (gaussian, ("noise_multiplier", "steps")),
    "sampled-gaussian": (sampled_gaussian, ("noise_multiplier", "sample_rate", "steps")),
    "none": (no_guarantee, ()),
}


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(value)
    return value


def _repeated(step: DpEvent, steps: int) -> DpEvent:
    check_steps(steps)
    return _checked(SelfComposedDpEvent(step, int(steps)))


def _checked(event: DpEvent) -> DpEvent:
    """Return the event; refuse a step without a theorem and parameters outside their range."""
    steps = steps_of(event)
    if event == nothing():
        return event
    if not steps or not all(isinstance(count, int) for _, count in steps):
        raise ValueError(f"no whole number of steps is in the event {event}; give at least one")
    for step, count in steps:
        check_steps(count)
        mechanism = mechanism_of(step)
        if mechanism is not step:
            check_schedule(step.sampling_probability, count)
        if isinstance(mechanism, DirichletDpEvent):
            check_r(mechanism.r, mechanism.alpha)
        elif isinstance(mechanism, GaussianDpEvent) and not isinstance(step, VisiblySampledDpEvent):
            composed_mu(mechanism.noise_multiplier, count)
        elif not isinstance(step, NonPrivateDpEvent):
            raise ValueError(
                f"no bound is known for the event {step}; use those of accounting.events"
            )
    return event


def nothing() -> DpEvent:
    """Return the event of no release at all, which costs nothing."""
    return ComposedDpEvent([])


def is_dirichlet(event: DpEvent) -> bool:
    """Return whether draws of the Dirichlet mechanism are among the steps of an event."""
    return any(isinstance(mechanism_of(step), DirichletDpEvent) for step, _ in steps_of(event))


def gaussian_mu(event: DpEvent) -> float | None:
    """Return μ of an event of full-batch Gaussian releases alone, which are one; else None."""
    steps = steps_of(event)
    if not steps or not all(isinstance(step, GaussianDpEvent) for step, _ in steps):
        return None
    return math.hypot(*(composed_mu(step.noise_multiplier, count) for step, count in steps))
