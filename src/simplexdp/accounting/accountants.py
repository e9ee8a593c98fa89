"""Which accountants are there, and what does each of them rest on?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from simplexdp.accounting import renyi
from simplexdp.accounting.inputs import check_delta, check_r, check_schedule
from simplexdp.accounting.renyi import Cost, Setting


@dataclass(frozen=True)
class Accountant:
    """What a figure by this accountant means, and what it rests on.

    `proved` says whether the bound is a theorem at every α, under the assumptions named;
    `proved_at` whether it is one at a given α.
    """

    name: str
    title: str
    relation: str
    source: str
    assumptions: tuple[str, ...]
    proved: bool
    has_order: bool
    proved_from_alpha: float | None = None

    @property
    def participation(self) -> str:
        """Whether it stays hidden who is in a batch, or is visible."""
        return "hidden" if _HIDDEN in self.assumptions else "visible"

    @property
    def has_floor(self) -> bool:
        """Whether its subsampling bound leaves a cost that no r lowers."""
        return self.has_order and self.participation == "hidden"

    def proved_at(self, alpha: float) -> bool:
        """Whether the figure is a theorem at this α, under the assumptions named."""
        return self.proved or (
            self.proved_from_alpha is not None and alpha >= self.proved_from_alpha
        )

    def assumptions_at(self, alpha: float) -> tuple[str, ...]:
        """The assumptions, with what is known of dominance at this α and not at others."""
        known = DOMINANCE_PROVED if self.proved_at(alpha) else DOMINANCE_VERIFIED
        return tuple(known if text == _DOMINANCE else text for text in self.assumptions)


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
_DOMINANCE = (
    "The vertex pair dominates every pair of softmax outputs in every hockey-stick divergence: for "
    "alpha of at least 1/2 by a proof of this project's that is not yet peer reviewed "
    "(docs/dominance.md); for a smaller alpha not proved, and no counterexample is known."
)
DOMINANCE_PROVED = (
    "The vertex pair dominates every pair of softmax outputs in every hockey-stick divergence: a "
    "proof by this project for alpha of at least 1/2, not yet peer reviewed (docs/dominance.md)."
)
DOMINANCE_VERIFIED = (
    "The vertex pair dominates every pair of softmax outputs in every hockey-stick divergence: "
    "not proved for alpha below 1/2, where scans found no counterexample, most of them at "
    "divergences far above a usual delta (docs/dominance.md)."
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
            source="the paper, Theorem 1: the RDP lemma, the Poisson subsampling bound of Zhu and "
            "Wang 2019, the conversion of Canonne, Kamath and Steinke 2020",
            assumptions=(THROUGH_DRAWS, POISSON, SECRET_BATCHES, _HIDDEN, SEPARATE),
            proved=True,
            has_order=True,
        ),
        Accountant(
            name="exact",
            title="Theorem 1 with the exact Rényi divergence of the vertex pair",
            relation=_LEMMA_RELATION,
            source="docs/dominance.md: the vertex pair is the worst pair for orders up to α/r; "
            "subsampling and conversion as in Theorem 1",
            assumptions=(THROUGH_DRAWS, POISSON, SECRET_BATCHES, _HIDDEN, SEPARATE),
            proved=True,
            has_order=True,
        ),
        Accountant(
            name="visible",
            title="visible participation (Rényi)",
            relation="replace-input",
            source="the RDP lemma, mixed with the identity; the conversion of Canonne, Kamath and "
            "Steinke 2020",
            assumptions=(THROUGH_DRAWS, POISSON, _VISIBLE, SEPARATE),
            proved=True,
            has_order=True,
        ),
        Accountant(
            name="pld",
            title="privacy loss distribution of the vertex pair",
            relation="zero-out, where the null record and every absent record emit a dummy draw",
            source="docs/accounting.md: Beta(α+r, α) against Beta(α, α+r), Poisson-subsampled in "
            "both directions, composed by dp-accounting with pessimistic rounding",
            assumptions=(THROUGH_DRAWS, POISSON, SECRET_BATCHES, _HIDDEN, SEPARATE, _DOMINANCE),
            proved=False,
            has_order=False,
            proved_from_alpha=0.5,
        ),
        Accountant(
            name="visible-pld",
            title="visible participation (privacy loss distribution)",
            relation="replace-input",
            source="docs/accounting.md: the vertex pair mixed with the identity, composed by "
            "dp-accounting with pessimistic rounding",
            assumptions=(THROUGH_DRAWS, POISSON, _VISIBLE, SEPARATE, _DOMINANCE),
            proved=False,
            has_order=False,
            proved_from_alpha=0.5,
        ),
    )
}


class Compute(Protocol):
    """ε of a setting; with a target, only whether it is at most that need be right."""

    def __call__(self, setting: Setting, target: float | None = None) -> Cost: ...


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
    """The record of an accountant, or an error that lists the names there are."""
    if name not in ACCOUNTANTS:
        raise ValueError(f"unknown accountant {name!r}; choose one of {', '.join(ACCOUNTANTS)}")
    return ACCOUNTANTS[name]


def account(
    accountant: str, *, r: float, alpha: float, sample_rate: float, steps: int, delta: float
) -> Cost:
    """ε of `steps` draws-only steps at this r, by the named accountant.

    Formal guarantee
        That of the accountant: `ACCOUNTANTS[accountant]` names the relation, the source and the
        assumptions. No accountant of the Dirichlet mechanism covers the released weights.
    """
    lookup(accountant)
    check_r(r, alpha)
    check_schedule(sample_rate, steps)
    check_delta(delta)
    return COMPUTE[accountant](Setting(r, alpha, sample_rate, int(steps), delta))
