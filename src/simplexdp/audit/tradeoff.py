"""Lower bounds on ε for claims that are a whole trade-off curve, and not one pair (ε, δ).

A claim of Gaussian releases, sampled or not, is a curve: the largest true-positive rate at every
false-positive rate. Its family are the curves of the same releases with the noise divided by a
scale. An attack rejects small scales; the first that it cannot reject is a lower bound on the true
one, and its ε one on ε. That sees far more than a test of (ε, δ), which must allow for a δ that no
attack can see, and assumes more: `ASSUMES`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from dp_accounting import DpEvent, GaussianDpEvent, PoissonSampledDpEvent
from scipy import special

from simplexdp.accounting import composed, events
from simplexdp.accounting.gaussian import gaussian_epsilon
from simplexdp.accounting.loss_distribution import GaussianPair
from simplexdp.audit import bounds
from simplexdp.audit.bounds import Array

Power = Callable[[npt.ArrayLike], Array]

ASSUMES = "the true trade-off curve is that of the claimed releases with some other noise"
# Of the trials, to choose a threshold on; near the best one the bound hardly depends on it.
PILOT = 0.2
# One training: the share of canaries that is guessed.
GUESSED = 0.25
# The share of the error that goes to bounding the unknown false-positive rate.
NUISANCE, NUISANCE_POINTS = 0.02, 21
LARGEST_SCALE = 64.0
# Of the numerical composition: the grid of losses, and the ε at which the curve is taken.
LOSS_TAIL, CELLS_PER_DEVIATION = 1e-9, 16.0
TANGENTS = np.linspace(0.0, 20.0, 801)
RATES = np.geomspace(1e-12, 0.5, 1000)


@dataclass(frozen=True)
class Curve:
    """A trade-off curve, symmetric in its two kinds of error.

    Attributes:
        power: The largest true-positive rate at a false-positive rate.
        epsilon: ε at the δ of the claim.
    """

    power: Power
    epsilon: float


# The curves of a claim by scale: 1 is the claim itself, 2 is half its noise, 0 is no leak at all.
Family = Callable[[float], Curve]


@dataclass(frozen=True)
class CurveBound:
    """The noise is at most 1/`scale` of the claimed, so ε at least `epsilon`, if `ASSUMES`."""

    epsilon: float
    scale: float
    confidence: float
    counted: int

    def to_json(self) -> dict[str, Any]:
        """Return the bound as JSON-ready data, with what it assumes."""
        found = {"epsilon_lower": self.epsilon, "scale_lower": self.scale}
        return {**found, "counted": self.counted, "assumes": ASSUMES}


def family(event: DpEvent, delta: float, pairs: bool) -> Family | None:
    """Return the curves of a claim by scale, or None where it is no curve of Gaussian releases.

    Args:
        event: What the run was charged, under zero-out or add/remove.
        delta: The δ at which ε is wanted.
        pairs: Whether the audit replaces a record by another instead of taking it out.

    Formal guarantee
        Statement: a mechanism that satisfies the claim satisfies the curve of scale 1.
        Argument: Gaussian releases of all records are one of μ (Dong, Roth and Su, 2022), whose
        sensitivity doubles when a record is replaced. For sampled ones every (ε, δ(ε)) of
        dp-accounting's composition, pessimistic and the worse of both directions, is a tangent
        above the curve, and so is its mirror image; replacing is taking out and putting in, so
        the curve is applied twice.
    """
    mu = events.gaussian_mu(event)
    if mu is not None:
        return functools.partial(_gaussian, mu * (2.0 if pairs else 1.0), delta)
    steps = events.steps_of(event)
    if len(steps) != 1 or not isinstance(steps[0][0], PoissonSampledDpEvent):
        return None
    (step, count), mechanism = steps[0], events.mechanism_of(steps[0][0])
    if not isinstance(mechanism, GaussianDpEvent):
        return None
    return functools.partial(
        _sampled, mechanism.noise_multiplier, step.sampling_probability, count, delta, pairs
    )


def _gaussian(mu: float, delta: float, scale: float) -> Curve:
    def power(rate: npt.ArrayLike) -> Array:
        return np.asarray(special.ndtr(special.ndtri(np.asarray(rate, float)) + scale * mu))

    return Curve(power, gaussian_epsilon(scale * mu, delta) if scale * mu > 0 else 0.0)


def _sampled(
    noise: float, rate: float, steps: int, delta: float, pairs: bool, scale: float
) -> Curve:
    if scale == 0.0:
        return Curve(np.asarray, 0.0)
    step = composed.Step(composed.HIDDEN, rate, GaussianPair(noise / scale))
    interval, low, high = composed.grid(step, steps, LOSS_TAIL, CELLS_PER_DEVIATION)
    both = composed.step_pmfs(step, interval, low, high)
    deltas = np.max(
        [pmf.self_compose(steps, LOSS_TAIL).get_delta_for_epsilon(TANGENTS) for pmf in both], axis=0
    )

    def once(at: npt.ArrayLike) -> Array:
        rates = np.atleast_1d(np.asarray(at, dtype=np.float64))[:, None]
        above = np.exp(TANGENTS) * rates + deltas
        mirrored = 1.0 - np.exp(-TANGENTS) * (1.0 - deltas - rates)
        return np.asarray(np.clip(np.minimum(above, mirrored).min(axis=1), 0.0, 1.0))

    power: Power = (lambda at: once(once(at))) if pairs else once
    with np.errstate(divide="ignore"):
        losses = np.log(np.maximum(power(RATES) - delta, 0.0) / RATES)
    return Curve(power, max(0.0, float(losses.max())))


def threshold_bound(
    scores_in: npt.ArrayLike,
    scores_out: npt.ArrayLike,
    claimed: Family,
    confidence: float,
    threshold: float | None = None,
) -> CurveBound:
    """Return a lower bound on scale and ε from trainings with and without a record.

    Formal guarantee
        Statement: if the trainings are independent and the two data sets obey the curve of some
        scale, the returned scale exceeds it with probability at most 1 − confidence.
        Argument: `rate_p_value`, inverted. A threshold that is not given is chosen on the first
        fifth of the trials, which is not counted: half-way between the medians of both sides.
    """
    inside, outside = bounds.scores(scores_in), bounds.scores(scores_out)
    if threshold is None:
        if min(len(inside), len(outside)) < 2:
            raise ValueError("a threshold is chosen on a part of the trials; give 2 a side or more")
        held_in, held_out = (max(1, round(PILOT * len(side))) for side in (inside, outside))
        medians = np.median(inside[:held_in]), np.median(outside[:held_out])
        threshold = float(sum(medians)) / 2.0
        inside, outside = inside[held_in:], outside[held_out:]
    hits, alarms = int((inside >= threshold).sum()), int((outside >= threshold).sum())

    def rejected(curve: Curve) -> bool:
        found = rate_p_value(hits, len(inside), alarms, len(outside), curve.power, 1.0 - confidence)
        return found <= 1.0 - confidence

    return _bound(claimed, rejected, confidence, len(inside) + len(outside))


def rate_p_value(
    hits: int, inside: int, alarms: int, outside: int, power: Power, level: float
) -> float:
    """Return how likely rates so far apart are, at most, under a trade-off curve.

    Formal guarantee
        Statement: with hits ~ Binomial(inside, t) and alarms ~ Binomial(outside, x), independent,
        and t ≤ power(x), the result is a p-value: at most `level` with probability ≤ `level`.
        Argument: the distance of the two probits grows in hits and falls in alarms, so its tail is
        largest at t = power(x). The unknown x is searched over its Clopper–Pearson interval, and
        the chance that it lies outside is added (Berger and Boos, 1994). The search is on a grid
        of `NUISANCE_POINTS`; the tail is smooth in x.
    """
    outer = NUISANCE * level
    low, high = bounds.interval(alarms, outside, 1.0 - outer)
    ends = special.ndtri(np.clip([low, high], 1e-12, 1.0 - 1e-12))
    rates = special.ndtr(np.linspace(ends[0], ends[1], NUISANCE_POINTS))[:, None]
    others = np.arange(outside + 1)
    shift = _probit(alarms, outside) - _probit(hits, inside)
    # For each number of alarms, the fewest hits that are as far apart as those that were seen.
    wanted = (inside + 1) * special.ndtr(_probit(others, outside) - shift) - 0.5
    fewest = np.ceil(wanted - 1e-7)
    log_mass = (
        special.gammaln(outside + 1) - special.gammaln(others + 1)
        - special.gammaln(outside - others + 1)
        + others * np.log(rates) + (outside - others) * np.log1p(-rates)
    )  # fmt: skip
    tail = np.where(
        fewest <= 0, 1.0, special.bdtrc(fewest - 1, inside, power(rates[:, 0])[:, None])
    )
    tail = np.where(fewest > inside, 0.0, tail)
    return min(1.0, float((np.exp(log_mass) * tail).sum(axis=1).max()) + outer)


def _probit(count: npt.ArrayLike, trials: int) -> Array:
    return np.asarray(special.ndtri((np.asarray(count) + 0.5) / (trials + 1)))


def one_run_mass(canaries: int, guesses: int, right: int, power: Power, tail: float) -> float:
    """Return the least probability mass with which P[right guesses ≥ `right`] can be `tail`.

    Above 1 it cannot be so large.

    Formal guarantee
        Statement: m canaries are placed by independent fair coins and k of them are guessed. If
        the training obeys the trade-off curve in each coin, then the law p of the number of right
        guesses has Σ_{t≥j} t·p_t/m ≤ power(Σ_{t≥j−1} (k − t)·p_t/m) for every j ≥ 1, and no law
        with P[right ≥ v] = tail that obeys this for j ≤ v has less mass than what is returned.
        Argument: for each coin, given the others, compare the event "guessed as it fell, and at
        least j − 1 other guesses right" under both sides of that coin; averaging over coins and
        canaries is Jensen's inequality, as the curve is concave. The least mass puts all of the
        tail at v, and below it adds mass as late as the inequalities allow: further down a mass
        is more on the right-hand side and less on the left.
        Source: Mahloujifar, Melis and Chaudhuri 2024, "Auditing f-Differential Privacy in One
        Run".
    """
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(
            f"{right} right of {guesses} guesses on {canaries} canaries cannot be; "
            "give 0 ≤ right ≤ guesses ≤ canaries"
        )
    correct, wrong = tail * right / canaries, tail * (guesses - right) / canaries
    for count in range(right - 1, -1, -1):
        needed = 1.0 - float(np.ravel(power(1.0 - correct))[0])  # the curve is its own mirror image
        added = max(0.0, needed - wrong)
        wrong += added
        correct += added * count / (guesses - count)
        if correct + wrong > guesses / canaries:
            break
    return (correct + wrong) * canaries / guesses


def one_run(
    values: npt.ArrayLike, coins: npt.ArrayLike, claimed: Family, confidence: float
) -> CurveBound:
    """Return a lower bound on scale and ε from the canaries of one training.

    Formal guarantee
        Statement: under the assumptions of `one_run_mass`, with the number of guesses fixed
        before the scores were seen, the scale exceeds the true one with probability at most
        1 − confidence.
        Argument: a scale is rejected where so many right guesses would have to be less likely.
    """
    guesses, right = bounds.guessed(values, coins, GUESSED)
    canaries = np.size(values)

    def rejected(curve: Curve) -> bool:
        return one_run_mass(canaries, guesses, right, curve.power, 1.0 - confidence) > 1.0

    return _bound(claimed, rejected, confidence, canaries)


def _bound(
    claimed: Family, rejected: Callable[[Curve], bool], confidence: float, trials: int
) -> CurveBound:
    """Return the last scale, from 0 upwards, that is rejected."""
    scale = bounds.last_rejected(lambda s: rejected(claimed(s)), LARGEST_SCALE, 1e-3)
    return CurveBound(claimed(scale).epsilon, scale, confidence, trials)
