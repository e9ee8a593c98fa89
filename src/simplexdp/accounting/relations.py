"""Conversion of a bound from one neighbouring relation to another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from simplexdp.accounting.gaussian import gaussian_epsilon

if TYPE_CHECKING:
    from dp_accounting import DpEvent

REPLACE_INPUT = "replace-input"


class Converted(NamedTuple):
    """(ε, δ) under another relation, and by which argument."""

    epsilon: float
    delta: float
    basis: str


def replaced(event: DpEvent, epsilon: float, delta: float, relation: str) -> Converted:
    """Return what a bound says under replace-input.

    Args:
        event: What the run was charged.
        epsilon: ε of its claim.
        delta: δ of its claim.
        relation: The relation of its claim.

    Returns:
        (ε, δ) under replace-input.

    Formal guarantee
        Statement: a mechanism that satisfies the claim satisfies the returned one under
        replace-input.
        Argument: through the null record, replacing is two zero-out steps. For full-batch Gaussian
        releases the sensitivity doubles, so they are 2μ-GDP (Dong, Roth and Su, 2022); for any
        other (ε, δ) claim, group privacy of size two gives (2ε, (1 + e^ε)·δ).
        Not covered by this argument: the bound of Algorithm 1, which is taken as printed although
        its subsampling bound is add/remove (by `pld` zero-out). Its lemma for one draw is about
        replaced inputs.
    """
    from simplexdp.accounting import events

    if events.is_dirichlet(event):
        return Converted(epsilon, delta, "as printed: its lemma is replace-input")
    if relation.startswith(REPLACE_INPUT):
        return Converted(epsilon, delta, "as printed")
    mu = events.gaussian_mu(event)
    if mu is not None:
        doubled = gaussian_epsilon(2.0 * mu, delta)
        return Converted(doubled, delta, f"one Gaussian mechanism, μ = {mu:.4g} doubled")
    return Converted(
        2.0 * epsilon,
        (1.0 + math.exp(epsilon)) * delta,
        "group privacy of size two: (2ε, (1 + e^ε)·δ)",
    )
