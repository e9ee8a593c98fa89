"""What does the audited statement claim, in the relation that the audit tests?

An audit with pairs tests replace-input: the same data set, with one input or another.  A claim
under zero-out or add/remove says less about that and is converted before it is compared.  An audit
with canaries that are in or out is held against the claim itself.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from simplexdp.accounting.gaussian import gaussian_epsilon
from simplexdp.statement import Statement

PAIR, IN_OUT = RELATIONS = ("pair", "in-out")
PAIRS = "replace-input"
IN_OR_OUT = "in or out"


@dataclass(frozen=True)
class Claim:
    """(ε, δ) under `relation`, or no claim at all (ε is None), and where it comes from."""

    epsilon: float | None
    delta: float
    relation: str
    basis: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def held(statement: Statement, delta: float, relation: str) -> Claim:
    """The claim in the relation of the audit."""
    return (for_pairs if relation == PAIR else in_or_out)(statement, delta)


def for_pairs(statement: Statement, delta: float) -> Claim:
    """The claim under replace-input.

    Formal guarantee
        Statement: a mechanism that satisfies the statement's claim satisfies the returned one
        under replace-input.
        Argument: through the null record, replacing is two zero-out steps.  For one Gaussian
        mechanism of μ the sensitivity doubles, so it is 2μ-GDP (Dong, Roth and Su, 2022);
        for any other (ε, δ) claim, group privacy of size two gives (2ε, (1 + e^ε)·δ).
        Assumption: the statement is true.
        Not covered by this argument: the figure of Algorithm 1, which is taken as printed although
        its subsampling bound is add/remove (by `pld` zero-out).  Its lemma for one draw is about
        replaced inputs.
    """
    if statement.epsilon is None or math.isinf(statement.epsilon):
        return Claim(None, delta, PAIRS, "the method claims nothing")
    epsilon = max(0.0, statement.epsilon)  # numerical accountants go below 0 where δ is large
    claimed_delta = statement.delta if statement.delta is not None else delta
    if str(statement.mechanism.get("name", "")).startswith("Dirichlet"):
        return Claim(epsilon, claimed_delta, PAIRS, "as printed: its lemma is replace-input")
    if statement.relation.startswith(PAIRS):
        return Claim(epsilon, claimed_delta, PAIRS, "as printed")
    # Only full batches with Gaussian noise have a μ, and their claim is exactly that of one.
    mu = statement.mechanism.get("mu")
    if mu is not None:
        doubled = gaussian_epsilon(2.0 * mu, claimed_delta)
        return Claim(doubled, claimed_delta, PAIRS, f"one Gaussian mechanism, μ = {mu:.4g} doubled")
    return Claim(
        2.0 * epsilon,
        (1.0 + math.exp(epsilon)) * claimed_delta,
        PAIRS,
        "group privacy of size two: (2ε, (1 + e^ε)·δ)",
    )


def in_or_out(statement: Statement, delta: float) -> Claim:
    """The claim itself, for canaries that are in the data or not.

    Where the claim is under another relation than zero-out or add/remove (Algorithm 1), the input
    is zeroed, which replaces it, and the figure is taken as printed, as in `for_pairs`.
    """
    own = statement.relation in ("zero-out", "add/remove")
    relation = f"{IN_OR_OUT} ({statement.relation if own else 'its input zeroed'})"
    if statement.epsilon is None or math.isinf(statement.epsilon):
        return Claim(None, delta, relation, "the method claims nothing")
    claimed_delta = statement.delta if statement.delta is not None else delta
    return Claim(max(0.0, statement.epsilon), claimed_delta, relation, "as printed")
