"""Provide dp-accounting's PLD accountant with the events of the Dirichlet mechanism, and totals."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import dp_accounting
from dp_accounting import DpEvent, NeighboringRelation
from dp_accounting.pld import PLDAccountant

from simplexdp.accounting import composed, rounding
from simplexdp.accounting.composed import HIDDEN, VISIBLE, Step, masses_of, step_distribution
from simplexdp.accounting.events import (
    DirichletDpEvent,
    mechanism_of,
    steps_of,
)
from simplexdp.accounting.gaussian import composed_mu
from simplexdp.accounting.inputs import check_delta
from simplexdp.accounting.loss_distribution import GaussianPair, VertexPair, loss_range

_CONTAINERS = (
    dp_accounting.SelfComposedDpEvent,
    dp_accounting.ComposedDpEvent,
    dp_accounting.NoOpDpEvent,
    dp_accounting.NonPrivateDpEvent,
)


def _step_of(event: DpEvent, relation: NeighboringRelation) -> Step | None:
    """Return the step that an event stands for; None for one that is left to dp-accounting."""
    mechanism = mechanism_of(event)
    sampled = isinstance(event, dp_accounting.PoissonSampledDpEvent)
    rate = 1.0 if mechanism is event else event.sampling_probability
    if isinstance(mechanism, DirichletDpEvent):
        pair = VertexPair(mechanism.r, mechanism.alpha)
        return Step(HIDDEN if sampled else VISIBLE, rate, pair)
    noisy = isinstance(mechanism, dp_accounting.GaussianDpEvent) and sampled and 0 < rate < 1
    if not noisy or relation == NeighboringRelation.REPLACE_ONE or mechanism.noise_multiplier <= 0:
        return None
    return Step(HIDDEN, rate, GaussianPair(mechanism.noise_multiplier))


def _refusal(step: Step, relation: NeighboringRelation) -> str | None:
    """Return why a step has no theorem under a relation; None if it has one."""
    if not isinstance(step.pair, VertexPair):
        return None
    if not 0 < step.pair.r < step.pair.alpha:
        return f"r must lie strictly between 0 and alpha = {step.pair.alpha}, got {step.pair.r}"
    if not 0 < step.sample_rate <= 1 or (step.participation == HIDDEN and step.sample_rate == 1):
        return f"the sampling probability must lie strictly between 0 and 1, got {step.sample_rate}"
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
        the vertex pair is a proof of this project's, not yet peer reviewed
        (docs/dominance.md). Every rounding to the
        grid and truncation is pessimistic; what floating point may have moved is estimated
        (rounding.py) and set aside from δ, and a figure is refused where that is more than a tenth
        of δ. Events must have been fixed before the first result was seen; if later ones are chosen
        by earlier results, the composition is fully adaptive and the figure is no bound.
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
        self._allowance = 0.0
        self._steps = 0

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        step = _step_of(event, self.neighboring_relation)
        if step is None:
            return self._maybe_compose_other(event, count, do_compose)
        reason = _refusal(step, self.neighboring_relation)
        if reason is not None:
            return self.CompositionErrorDetails(invalid_event=event, error_message=reason)
        if do_compose and step.sample_rate > 0:
            moved = step.pair.moved(count)
            rounding.check(
                self._allowance + moved + rounding.least(count),
                self._smallest_delta,
                self._steps + count,
            )
            tail = 1e-3 * self._smallest_delta
            low, high = loss_range(
                tail / count,
                step.sample_rate if step.participation == HIDDEN else 1.0 - 1e-16,
                step.pair,
            )
            single = step_distribution(step, self._interval, low, high)
            self._allowance += moved
            self._add(single.self_compose(count, tail), count, single._pmf_remove.size, tail)
        return None

    def _maybe_compose_other(self, event: Any, count: int, do_compose: bool) -> Any:
        """Compose an event of dp-accounting's own, apart so that its rounding can be seen."""
        if not do_compose or isinstance(event, _CONTAINERS):
            return super()._maybe_compose(event, count, do_compose)
        alone = PLDAccountant(self.neighboring_relation, self._interval)
        alone.compose(event, count)
        if math.isinf(alone.get_epsilon(0.5)):
            self._contains_non_dp_event = True
            return None
        # Full-batch Gaussian steps are one Gaussian in closed form, not a transform.
        steps = 1 if isinstance(event, dp_accounting.GaussianDpEvent) else count
        self._add(alone._pld, steps, 0, 0.0)
        return None

    def _add(self, new: Any, steps: int, length: int, tail: float) -> None:
        """Compose T steps' distribution with the rest, and set aside what rounding may move."""
        self._allowance += max(
            rounding.self_composition(steps, masses_of(pmf), length)
            + rounding.composition(masses_of(pmf), masses_of(rest))
            for pmf, rest in (
                (new._pmf_remove, self._pld._pmf_remove),
                (new._pmf_add, self._pld._pmf_add),
            )
        )
        self._steps += steps
        self._pld = self._pld.compose(new, tail)

    def get_epsilon(self, target_delta: float) -> float:
        """Return ε at this δ less the allowance; far below the δ it was made for, infinity."""
        if self._contains_non_dp_event:
            return math.inf
        if self._steps == 0 or target_delta >= 1:
            return 0.0
        if target_delta <= 0:
            return math.inf
        rounding.check(self._allowance, target_delta, self._steps)
        return float(super().get_epsilon(target_delta - self._allowance))

    def get_delta(self, target_epsilon: float) -> float:
        """Return δ at this ε, the allowance added."""
        if self._contains_non_dp_event:
            return 1.0
        if self._steps == 0:
            return 0.0
        return min(1.0, float(super().get_delta(target_epsilon)) + self._allowance)


def compose_by_distribution(events: Sequence[DpEvent], delta: float) -> float:
    """Return ε of all the events together under zero-out.

    Formal guarantee
        Steps of one kind cost what their own accountant says, `pld`, `visible-pld` or
        `sampled_gaussian.cost`. Of several kinds, each is composed as there, and their sum bounded
        on a grid that only enlarges it; the assumptions are those of `SimplexAccountant`.

    Raises:
        ValueError: An event has no bound, or δ is below what rounding leaves.
    """
    zero_out = NeighboringRelation.REPLACE_SPECIAL
    counts: Counter[Step] = Counter()
    mus = []
    for event in events:
        for inner, count in steps_of(event):
            if isinstance(inner, dp_accounting.GaussianDpEvent):
                mus.append(composed_mu(inner.noise_multiplier, count))
                continue
            step = _step_of(inner, zero_out)
            if step is None or _refusal(step, zero_out):
                raise ValueError(f"no bound is known for the event {inner}")
            counts[step] += count
    if len(counts) == 1 and not mus:
        ((step, count),) = counts.items()
        return composed.epsilon(step, count, delta)
    return composed.epsilon_of_kinds(counts, math.hypot(*mus), delta)
