"""Compute the claim of a statement anew from its event, and refuse one that does not fit."""

from __future__ import annotations

import math

from simplexdp import claims
from simplexdp.accounting import ACCOUNTANTS
from simplexdp.rounding import rounded_up
from simplexdp.statement import Statement

# Numerical accountants of other releases may differ in the last digits.
TOLERANCE = 1e-3


def check_claim(statement: Statement) -> None:
    """Compute the claim of a statement anew from its event.

    Raises:
        ValueError: The event costs more than the statement claims, or cannot cover what it says.
    """
    from simplexdp.accounting import events

    event, epsilon, delta = statement.event, statement.epsilon, statement.delta
    nothing = event == events.no_guarantee()
    if event is None:
        raise ValueError("it names no event to compute its claim from")
    covers = claims.WEIGHTS if statement.covers_weights else claims.DRAWS
    if nothing and not (statement.covers_weights or statement.covers_draws):
        covers = claims.NOTHING
    claims.check(event, covers)
    if nothing or epsilon is None:
        if epsilon is not None or statement.covers_weights or statement.covers_draws:
            raise ValueError("it covers something without a bound")
        return
    if delta is None or not 0 < delta < 1:
        raise ValueError(f"its delta is {delta}")
    cost = _cost(statement, delta)
    if not cost <= epsilon * (1.0 + TOLERANCE):
        raise ValueError(
            f"it claims epsilon = {epsilon:g}, and its event costs {rounded_up(cost)} at "
            f"delta = {delta:g}"
        )
    for name, value in claims.described(event).items():
        if not math.isclose(statement.mechanism.get(name, math.nan), value, rel_tol=1e-9):
            raise ValueError(f"its {name} is not that of its event")


def _cost(statement: Statement, delta: float) -> float:
    """Return ε of a statement's event by the accountant that it names, if that is one of ours."""
    from dp_accounting import PoissonSampledDpEvent

    from simplexdp.accounting import account, events

    steps = events.steps_of(statement.event)
    step, count = steps[0]
    named = [known for known in ACCOUNTANTS.values() if known.title == statement.accountant]
    if named and len(steps) == 1 and events.is_dirichlet(step):
        draw = events.mechanism_of(step)
        hidden = isinstance(step, PoissonSampledDpEvent)
        if named[0].participation == "hidden" and not hidden:
            raise ValueError("its accountant needs hidden batches, and those of its event are not")
        rate = getattr(step, "sampling_probability", 1.0)
        run = {"r": draw.r, "alpha": draw.alpha, "sample_rate": rate, "steps": count}
        return account(named[0].name, **run, delta=delta).epsilon
    return events.compose([statement.event], delta)
