"""The claim of an audited statement, in the relation that the audit tests.

An audit with pairs tests replace-input: the same data set, with one input or another.  A claim
under zero-out or add/remove says less about that and is converted before it is compared.  An audit
with canaries that are in or out is held against the claim itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from simplexdp.accounting.relations import REPLACE_INPUT, replaced
from simplexdp.audit import tradeoff
from simplexdp.methods.base import Prepared
from simplexdp.statement import Statement

PAIR, IN_OUT = RELATIONS = ("pair", "in-out")
IN_OR_OUT = "in or out"


@dataclass(frozen=True)
class Claim:
    """(ε, δ) under `relation`, or no claim at all (ε is None), and where it comes from."""

    epsilon: float | None
    delta: float
    relation: str
    basis: str


def held(statement: Statement, delta: float, relation: str) -> Claim:
    """Return the claim in the relation of the audit."""
    return (for_pairs if relation == PAIR else in_or_out)(statement, delta)


def curves(prepared: Prepared, delta: float, relation: str) -> tradeoff.Family | None:
    """Return the trade-off curves of the claim in the relation of the audit, where it has some."""
    pairs = relation == PAIR and not prepared.coverage.relation.startswith(REPLACE_INPUT)
    return tradeoff.family(prepared.event, delta, pairs)


def for_pairs(statement: Statement, delta: float) -> Claim:
    """Return the claim under replace-input, by `accounting.relations.replaced`."""
    if statement.epsilon is None or math.isinf(statement.epsilon):
        return Claim(None, delta, REPLACE_INPUT, "the method claims nothing")
    epsilon = max(0.0, statement.epsilon)  # numerical accountants go below 0 where δ is large
    claimed = statement.delta if statement.delta is not None else delta
    found = replaced(statement.event, epsilon, claimed, statement.relation)
    return Claim(found.epsilon, found.delta, REPLACE_INPUT, found.basis)


def in_or_out(statement: Statement, delta: float) -> Claim:
    """Return the claim itself, for canaries that are in the data or not.

    Where the claim is under another relation than zero-out or add/remove (Algorithm 1), the input
    is zeroed, which replaces it, and the bound is taken as printed, as in `for_pairs`.
    """
    own = statement.relation in ("zero-out", "add/remove")
    relation = f"{IN_OR_OUT} ({statement.relation if own else 'its input zeroed'})"
    if statement.epsilon is None or math.isinf(statement.epsilon):
        return Claim(None, delta, relation, "the method claims nothing")
    claimed_delta = statement.delta if statement.delta is not None else delta
    return Claim(max(0.0, statement.epsilon), claimed_delta, relation, "as printed")
