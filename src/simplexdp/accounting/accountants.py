"""The accountants by name, and what each of them rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from simplexdp.accounting import renyi
from simplexdp.accounting.inputs import check_delta, check_r, check_schedule
from simplexdp.accounting.renyi import Cost, Setting


@dataclass(frozen=True)
class Accountant:
    """What the ε of one accountant means, and what it rests on.

    Attributes:
        name: How it is asked for.
        title: How a statement names it.
        relation: The neighbouring relation of its bound.
        assumptions: What the bound assumes.
        has_order: Whether ε comes from a Rényi order.
        proved_from_alpha: The least α for which a second reader has checked its proof. Above 0
            it rests on dominance too, which `assumptions_at` adds.
    """

    name: str
    title: str
    relation: str
    assumptions: tuple[str, ...]
    has_order: bool
    proved_from_alpha: float = 0.0

    @property
    def participation(self) -> str:
        """Return "hidden", or "visible" if others may see who is in a batch."""
        return "hidden" if _HIDDEN in self.assumptions else "visible"

    @property
    def has_floor(self) -> bool:
        """Return whether its subsampling bound leaves a cost that no r lowers."""
        return self.has_order and self.participation == "hidden"

    def proved_at(self, alpha: float) -> bool:
        """Return whether ε is a theorem at this α, under the assumptions named."""
        return alpha >= self.proved_from_alpha

    def assumptions_at(self, alpha: float) -> tuple[str, ...]:
        """Return the assumptions, with what is known of dominance at this α where ε needs it."""
        if self.proved_from_alpha == 0.0:
            return self.assumptions
        return (
            *self.assumptions,
            DOMINANCE_PROVED if self.proved_at(alpha) else DOMINANCE_VERIFIED,
        )


THROUGH_DRAWS = (
    "Every update touches the private inputs only through earlier draws. Back-propagation through "
    "the raw input breaks this: the next parameters then carry the input itself, so that replacing "
    "it moves later draws by more than is charged. Where this is broken, as in Algorithm 1, the "
    "figure bounds neither the later draws nor the weights."
)
POISSON = "Every record enters every batch independently with probability q."
SECRET_BATCHES = "Which records each batch holds stays secret."
_HIDDEN = (
    "Hidden participation: an unsampled record is not told apart from a sampled one by the "
    "absence of its draw."
)
_VISIBLE = "Participation is visible: the figure holds even if it is known who was in which batch."
SEPARATE = (
    "The softmax output of a record does not depend on other records of its batch "
    "(no batch normalisation)."
)
DOMINANCE_PROVED = (
    "The vertex pair dominates every pair of softmax outputs in every hockey-stick divergence: a "
    "proof by this project for alpha of at least 1/2, not yet peer reviewed (docs/dominance.md)."
)
DOMINANCE_VERIFIED = (
    "The vertex pair dominates every pair of softmax outputs in every hockey-stick divergence: "
    "for alpha below 1/2 by a proof of this project's that no second reader has checked yet; "
    "scans found no counterexample (docs/dominance.md)."
)

_LEMMA_RELATION = (
    "the RDP lemma is replace-input; its amplification by sampling is add/remove and needs a dummy "
    "draw from an absent record"
)

ACCOUNTANTS: dict[str, Accountant] = {
    record.name: record
    for record in (
        Accountant(
            name="theorem1",
            title="Theorem 1, as published",
            relation=_LEMMA_RELATION,
            assumptions=(THROUGH_DRAWS, POISSON, SECRET_BATCHES, _HIDDEN, SEPARATE),
            has_order=True,
        ),
        Accountant(
            name="exact",
            title="Theorem 1 with the exact Rényi divergence of the vertex pair",
            relation=_LEMMA_RELATION,
            assumptions=(THROUGH_DRAWS, POISSON, SECRET_BATCHES, _HIDDEN, SEPARATE),
            has_order=True,
        ),
        Accountant(
            name="visible",
            title="visible participation (Rényi)",
            relation="replace-input",
            assumptions=(THROUGH_DRAWS, POISSON, _VISIBLE, SEPARATE),
            has_order=True,
        ),
        Accountant(
            name="pld",
            title="privacy loss distribution of the vertex pair",
            relation="zero-out, where the null record and every absent record emit a dummy draw",
            assumptions=(THROUGH_DRAWS, POISSON, SECRET_BATCHES, _HIDDEN, SEPARATE),
            has_order=False,
            proved_from_alpha=0.5,
        ),
        Accountant(
            name="visible-pld",
            title="visible participation (privacy loss distribution)",
            relation="replace-input",
            assumptions=(THROUGH_DRAWS, POISSON, _VISIBLE, SEPARATE),
            has_order=False,
            proved_from_alpha=0.5,
        ),
    )
}


class Compute(Protocol):
    """The cost of a setting by one accountant."""

    def __call__(self, setting: Setting, target: float | None = None) -> Cost:
        """Return ε; with `target`, the value only has to be on the right side of it."""


def _pld(setting: Setting, target: float | None = None) -> Cost:
    # dp-accounting takes a second to import, and the Rényi accountants do without it.
    from simplexdp.accounting import composed

    return composed.pld(setting, target)


def _visible_pld(setting: Setting, target: float | None = None) -> Cost:
    from simplexdp.accounting import composed

    return composed.visible_pld(setting, target)


COMPUTE: dict[str, Compute] = {
    "theorem1": renyi.theorem1,
    "exact": renyi.exact,
    "visible": renyi.visible,
    "pld": _pld,
    "visible-pld": _visible_pld,
}


def lookup(name: str) -> Accountant:
    """Return the accountant of this name.

    Args:
        name: One of `ACCOUNTANTS`.

    Returns:
        What its ε means and rests on.

    Raises:
        ValueError: If there is none of this name.

    Example:
        >>> from simplexdp import accounting
        >>> accounting.lookup("visible").relation
        'replace-input'
    """
    if name not in ACCOUNTANTS:
        raise ValueError(f"unknown accountant {name!r}; choose one of {', '.join(ACCOUNTANTS)}")
    return ACCOUNTANTS[name]


def account(
    accountant: str, *, r: float, alpha: float, sample_rate: float, steps: int, delta: float
) -> Cost:
    """Return ε of `steps` draws-only steps at this r, by the named accountant.

    Args:
        accountant: One of `ACCOUNTANTS`.
        r: Scale of the mechanism, between 0 and `alpha`.
        alpha: Concentration of the mechanism.
        sample_rate: Probability with which a record enters a batch.
        steps: Number of batches.
        delta: δ at which ε is asked for.

    Returns:
        ε, and the Rényi order that gave it for accountants that have one.

    Raises:
        ValueError: If a parameter is outside its range, or rounding could take too much of δ.

    Formal guarantee:
        That of the accountant: `ACCOUNTANTS[accountant]` names the relation and the assumptions,
        the function of its name in renyi.py or composed.py the source. No accountant of the
        Dirichlet mechanism covers the released weights.

    Example:
        >>> from simplexdp.accounting import account
        >>> run = {"alpha": 3.0, "sample_rate": 0.005, "steps": 20_000, "delta": 1e-5}
        >>> round(account("theorem1", r=0.2349, **run).epsilon, 2)
        1.0
    """
    lookup(accountant)
    check_r(r, alpha)
    check_schedule(sample_rate, steps)
    check_delta(delta)
    setting = Setting(float(r), float(alpha), float(sample_rate), int(steps), float(delta))
    return COMPUTE[accountant](setting)
