"""How does a Dirichlet run compose with other mechanisms in one ledger?

dp-accounting describes a mechanism as a `DpEvent` and composes events in a `PrivacyAccountant`.
Here are the events of this mechanism and the accountant that understands them beside
dp-accounting's own:

    DirichletDpEvent(r, alpha)                                a draw from every record
    PoissonSampledDpEvent(q, DirichletDpEvent(r, alpha))      a Poisson batch, participation hidden
    VisiblySampledDpEvent(q, DirichletDpEvent(r, alpha))      a batch, participation visible
"""

from __future__ import annotations

import math
from typing import Any

import attr
import dp_accounting
from dp_accounting import NeighboringRelation
from dp_accounting.pld import PLDAccountant

from simplexdp.accounting.composed import (
    HIDDEN,
    VISIBLE,
    Step,
    check_allowance,
    grid,
    rounding_allowance,
    step_distribution,
)
from simplexdp.accounting.inputs import check_delta, check_r, check_schedule
from simplexdp.accounting.loss_distribution import loss_range


@attr.s(frozen=True, slots=True, auto_attribs=True)
class DirichletDpEvent(dp_accounting.DpEvent):  # type: ignore[misc]
    """One draw from Dir(r·g(x) + α·1) for every record, at parameters free of the records."""

    r: float
    alpha: float


@attr.s(frozen=True, slots=True, auto_attribs=True)
class VisiblySampledDpEvent(dp_accounting.DpEvent):  # type: ignore[misc]
    """Each record takes part with probability q, and it is visible which ones do."""

    sampling_probability: float
    event: dp_accounting.DpEvent


def dirichlet_event(
    r: float, alpha: float, sample_rate: float, steps: int, participation: str = HIDDEN
) -> Any:
    """A whole run of Algorithm 1's draws as one event."""
    check_r(r, alpha)
    check_schedule(sample_rate, steps)
    draw = DirichletDpEvent(r, alpha)
    sampled = (
        dp_accounting.PoissonSampledDpEvent(sample_rate, draw)
        if participation == HIDDEN
        else VisiblySampledDpEvent(sample_rate, draw)
    )
    return dp_accounting.SelfComposedDpEvent(sampled, steps)


def _step_of(event: Any) -> Step | None:
    """The step an event stands for, None if it is not one of this mechanism's."""
    if isinstance(event, DirichletDpEvent):
        return Step(VISIBLE, 1.0, event.r, event.alpha)
    inner = getattr(event, "event", None)
    if isinstance(inner, DirichletDpEvent):
        if isinstance(event, dp_accounting.PoissonSampledDpEvent):
            return Step(HIDDEN, event.sampling_probability, inner.r, inner.alpha)
        if isinstance(event, VisiblySampledDpEvent):
            return Step(VISIBLE, event.sampling_probability, inner.r, inner.alpha)
    return None


def _refusal(step: Step, relation: NeighboringRelation) -> str | None:
    """Why a step has no theorem under a relation; None if it has one."""
    if not 0 < step.r < step.alpha:
        return f"r must lie strictly between 0 and alpha = {step.alpha}, got {step.r}"
    if step.participation == HIDDEN and relation == NeighboringRelation.REPLACE_ONE:
        return (
            "amplification of the Dirichlet mechanism by hidden sampling has no theorem under "
            "REPLACE_ONE; use REPLACE_SPECIAL (zero-out) or ADD_OR_REMOVE_ONE with a dummy draw"
        )
    if step.participation == VISIBLE and relation == NeighboringRelation.ADD_OR_REMOVE_ONE:
        return (
            "a draw that is visibly there or not tells a record's presence; under "
            "ADD_OR_REMOVE_ONE it has no finite bound, use REPLACE_ONE or REPLACE_SPECIAL"
        )
    return None


class SimplexAccountant(PLDAccountant):  # type: ignore[misc]
    """dp-accounting's PLD accountant, with the events of the Dirichlet mechanism.

    Formal guarantee
        The figure bounds the composition of all events under the neighbouring relation. For
        Dirichlet events it covers the draws and not the weights trained with them, REPLACE_SPECIAL
        means that the null record emits the draw of some fixed softmax output, and dominance of
        the vertex pair is proved for α ≥ ½ and verified numerically below (docs/dominance.md).
        Every rounding and truncation is pessimistic.
    """

    _pld: Any

    def __init__(
        self,
        neighboring_relation: NeighboringRelation = NeighboringRelation.REPLACE_SPECIAL,
        value_discretization_interval: float = 1e-4,
        delta: float = 1e-6,
    ) -> None:
        super().__init__(neighboring_relation, value_discretization_interval)
        check_delta(delta)
        self._smallest_delta = delta
        self._interval = value_discretization_interval

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        step = _step_of(event)
        if step is None:
            return super()._maybe_compose(event, count, do_compose)
        reason = _refusal(step, self.neighboring_relation)
        if reason is not None:
            return self.CompositionErrorDetails(invalid_event=event, error_message=reason)
        if do_compose and step.sample_rate > 0:
            tail = 1e-3 * self._smallest_delta
            low, high = loss_range(
                tail / count,
                step.sample_rate if step.participation == HIDDEN else 1.0 - 1e-16,
                step.r,
                step.alpha,
            )
            single = step_distribution(step, self._interval, low, high)
            self._pld = self._pld.compose(single.self_compose(count, tail), tail)
        return None

    def get_epsilon(self, target_delta: float) -> float:
        """ε at this δ; refused below the δ the accountant was made for."""
        if target_delta < self._smallest_delta:
            raise ValueError(
                f"this accountant was made for delta of at least {self._smallest_delta:g}, "
                f"got {target_delta:g}; make one with a smaller delta"
            )
        return float(super().get_epsilon(target_delta))


def suggested_interval(events: list[Any], delta: float) -> float:
    """A grid fine enough for every Dirichlet event of the list, 1e-4 if there is none."""
    intervals = [1e-4]
    for event in events:
        inner, count = event, 1
        while isinstance(inner, dp_accounting.SelfComposedDpEvent):
            inner, count = inner.event, count * inner.count
        step = _step_of(inner)
        if step is not None:
            intervals.append(grid(step, count, delta, 16.0)[0])
    return max(min(intervals), 2e-6)


def _steps_of(event: Any) -> int:
    """How many steps an event composes numerically; full-batch Gaussian steps count once."""
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        inner = _steps_of(event.event)
        single = isinstance(event.event, dp_accounting.GaussianDpEvent)
        return inner if single else inner * int(event.count)
    return 1


def compose_epsilon(events: list[Any], delta: float) -> float:
    """ε of all the events together under zero-out, by `SimplexAccountant`.

    Formal guarantee
        That of `SimplexAccountant`; what the Fourier transform's rounding may move is charged
        against δ, and refused where it is more than a tenth of it.
    """
    check_delta(delta)
    if not events:
        return 0.0
    steps = sum(_steps_of(event) for event in events)
    allowance = rounding_allowance(steps, 1 << 20, 50.0 / (1 << 20))
    check_allowance(allowance, delta, steps)
    accountant = SimplexAccountant(
        value_discretization_interval=suggested_interval(events, delta), delta=0.9 * delta
    )
    for event in events:
        accountant.compose(event)
    epsilon = float(accountant.get_epsilon(delta - allowance))
    if math.isnan(epsilon):
        raise ValueError("the composition could not be computed; check the ledger's events")
    return epsilon
