"""Lower bounds on ε with a stated confidence, from how well an attack guessed.

Two kinds of evidence: many trainings of which each holds one of two inputs (`threshold_bound`),
and one training with many canaries, each placed by a fair coin (`one_run_bound`).  Nothing here
knows how the scores came about; the larger score means "the first of the two".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

Array = npt.NDArray[np.float64]

# One training: how many of the m canaries to guess, as shares of m; the rest are abstentions.
GUESSED_SHARES = (1.0, 0.5, 0.25)
MOST = 50.0


@dataclass(frozen=True)
class Bound:
    """ε is at least `epsilon`, with `confidence`; what was counted to say so."""

    epsilon: float
    delta: float
    confidence: float
    trials: int
    true_positive_rate: float
    false_positive_rate: float
    threshold: float


@dataclass(frozen=True)
class OneRunBound:
    """As `Bound`, from the guesses on the canaries of one training."""

    epsilon: float
    delta: float
    confidence: float
    canaries: int
    guesses: int
    right: int


def threshold_bound(
    scores_in: npt.ArrayLike,
    scores_out: npt.ArrayLike,
    delta: float,
    confidence: float,
    threshold: float | None = None,
) -> Bound:
    """Return a lower bound on ε from the scores of trainings with and without a record.

    Formal guarantee
        Statement: if the trainings are independent and satisfy (ε, δ)-DP for the two data sets,
        the returned bound exceeds ε with probability at most 1 − confidence.
        Argument: DP gives TPR ≤ e^ε·FPR + δ and TNR ≤ e^ε·FNR + δ for every event.  Both follow
        from a lower limit of the TPR and an upper limit of the FPR, each exact (Clopper and
        Pearson, 1934) at (1 − confidence)/2.  A threshold that is not given is chosen on the
        first half of the trials, and only the second half is counted.
        Source: Nasr et al. 2021, "Adversary instantiation"; Jagielski et al. 2020.
    """
    _check(delta, confidence)
    inside, outside = scores(scores_in), scores(scores_out)
    if threshold is None:
        if min(len(inside), len(outside)) < 2:
            raise ValueError("a threshold is chosen on half of the trials; give at least 2 a side")
        chosen_in, inside = np.array_split(inside, 2)
        chosen_out, outside = np.array_split(outside, 2)
        threshold = _best_threshold(chosen_in, chosen_out, delta, confidence)
    hits, alarms = int((inside >= threshold).sum()), int((outside >= threshold).sum())
    epsilon = _epsilon(hits, len(inside), alarms, len(outside), delta, confidence)
    return Bound(
        epsilon=float(epsilon),
        delta=delta,
        confidence=confidence,
        trials=len(inside) + len(outside),
        true_positive_rate=hits / len(inside),
        false_positive_rate=alarms / len(outside),
        threshold=float(threshold),
    )


def one_run_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return how likely so many right guesses are, at most, if the training is (ε, δ)-DP.

    Formal guarantee
        Statement: m canaries are placed by independent fair coins; the auditor guesses k coins
        and abstains on the rest.  If the training is (ε, δ)-DP in each coin, then
        P[right ≥ v] ≤ P[B ≥ v] + 2·m·δ·max_i P[v > B ≥ v − i]/i, B ~ Binomial(k, e^ε/(1+e^ε)).
        Source: Steinke, Nasr and Jagielski 2023, Theorem 5.2.
    """
    if not 0 <= right <= guesses <= canaries:
        raise ValueError(
            f"{right} right of {guesses} guesses on {canaries} canaries cannot be; "
            "give 0 ≤ right ≤ guesses ≤ canaries"
        )
    p = 1.0 / (1.0 + math.exp(-epsilon))
    tail = float(special.bdtrc(right - 1, guesses, p)) if right else 1.0
    if delta == 0.0 or right == 0:
        return min(1.0, tail)
    # P[v > B ≥ v − i] = P[B ≤ v − 1] − P[B ≤ v − i − 1], for i up to v; more i only divide more.
    at_most = special.bdtr(np.arange(right), guesses, p)
    below = at_most[-1] - np.append(at_most[-2::-1], 0.0)
    worst = float(np.max(below / np.arange(1, right + 1)))
    return min(1.0, tail + 2.0 * canaries * delta * worst)


def one_run_bound(
    canaries: int, guesses: int, right: int, delta: float, confidence: float
) -> OneRunBound:
    """Return the first ε, from 0 upwards, that is not rejected at this confidence.

    Formal guarantee
        Statement: under the assumptions of `one_run_p_value`, with the number of guesses fixed
        before the scores were seen, the bound exceeds ε with probability at most 1 − confidence.
        Argument: it exceeds the true ε only if the true ε is itself rejected.
    """
    _check(delta, confidence)

    def rejected(epsilon: float) -> bool:
        return one_run_p_value(canaries, guesses, right, epsilon, delta) <= 1.0 - confidence

    return OneRunBound(last_rejected(rejected), delta, confidence, canaries, guesses, right)


def one_run(
    values: npt.ArrayLike,
    coins: npt.ArrayLike,
    delta: float,
    confidence: float,
    shares: Sequence[float] = GUESSED_SHARES,
) -> OneRunBound:
    """Return the best one-run bound over several numbers of guesses.

    Formal guarantee
        That of `one_run_bound`: each number of guesses is tried at 1 − (1 − confidence)/(number
        of tries), so the best of them holds at the confidence asked (union bound).
    """
    each = 1.0 - (1.0 - confidence) / len(shares)
    found = [
        one_run_bound(np.size(values), *guessed(values, coins, share), delta, each)
        for share in shares
    ]
    return replace(max(found, key=lambda bound: bound.epsilon), confidence=confidence)


def guessed(values: npt.ArrayLike, coins: npt.ArrayLike, share: float) -> tuple[int, int]:
    """Guess the coins of the largest and the smallest scores; return how many, and how many right.

    `share` is that of the canaries that are guessed; the rest are abstentions.
    """
    ordered, truth = scores(values), np.asarray(coins, dtype=bool)
    if ordered.shape != truth.shape:
        raise ValueError(f"{ordered.size} scores for {truth.size} coins; give one score a canary")
    order = np.argsort(ordered, kind="stable")
    half = max(1, round(share * len(order) / 2))
    low, high = order[:half], order[len(order) - half :]
    if 2 * half > len(order):
        low = low[:-1]
    return len(low) + len(high), int(truth[high].sum() + (~truth[low]).sum())


def trials_needed(epsilon: float, delta: float, confidence: float) -> int:
    """Return how many trainings a side a perfect attack needs to show more than `epsilon`."""
    return _first(lambda n: float(_epsilon(n, n, 0, n, delta, confidence)) > epsilon)


def canaries_needed(epsilon: float, delta: float, confidence: float) -> int:
    """Return how many canaries a perfect attack needs to show more than `epsilon`."""
    each = 1.0 - (1.0 - confidence) / len(GUESSED_SHARES)
    _check(delta, each)
    limit = 1.0 - each
    return _first(lambda m: one_run_p_value(m, m, m, epsilon, delta) <= limit, largest=1_000_000)


def require_trials(
    trials: int, epsilon: float, delta: float, confidence: float, held_out: bool = True
) -> None:
    """Refuse an audit that could not show more than the claim even if every guess were right.

    `trials` counts all trainings.  Half of them have the record; where a threshold is chosen on
    held-out trials, only half of each are counted.
    """
    needed = (4 if held_out else 2) * trials_needed(epsilon, delta, confidence)
    if trials < needed:
        raise ValueError(
            f"{trials} trials are too few to show more than epsilon = {epsilon:.3g} at confidence "
            f"{confidence:g}; give --trials {needed} or more"
        )


def require_canaries(canaries: int, epsilon: float, delta: float, confidence: float) -> None:
    """Do as `require_trials`, for the canaries of one training."""
    needed = canaries_needed(epsilon, delta, confidence)
    if canaries < needed:
        raise ValueError(
            f"{canaries} canaries are too few to show more than epsilon = {epsilon:.3g} at "
            f"confidence {confidence:g}; give --trials {needed} or more, or a lower confidence"
        )


def interval(hits: int, trials: int, confidence: float) -> tuple[float, float]:
    """Return the two-sided Clopper–Pearson interval of a rate."""
    tail = (1.0 - confidence) / 2.0
    return float(_lower(hits, trials, tail)), float(_upper(hits, trials, tail))


def _epsilon(
    hits: npt.ArrayLike,
    inside: int,
    alarms: npt.ArrayLike,
    outside: int,
    delta: float,
    confidence: float,
) -> Array:
    tail = (1.0 - confidence) / 2.0
    tpr, fpr = _lower(hits, inside, tail), _upper(alarms, outside, tail)
    with np.errstate(divide="ignore", invalid="ignore"):
        forward = np.log(np.maximum(tpr - delta, 0.0) / fpr)
        mirror = np.log(np.maximum(1.0 - fpr - delta, 0.0) / (1.0 - tpr))
    best = np.fmax(np.fmax(forward, mirror), 0.0)
    return np.asarray(best, dtype=np.float64)


def _best_threshold(inside: Array, outside: Array, delta: float, confidence: float) -> float:
    """Return the threshold with the best bound on these trials, in the middle of its gap."""
    both = np.unique(np.concatenate([inside, outside]))
    if len(both) == 1:
        return float(both[0])
    candidates = (both[:-1] + both[1:]) / 2.0
    hits = len(inside) - np.searchsorted(np.sort(inside), candidates)
    alarms = len(outside) - np.searchsorted(np.sort(outside), candidates)
    found = _epsilon(hits, len(inside), alarms, len(outside), delta, confidence)
    return float(candidates[int(np.argmax(found))])


def _lower(hits: npt.ArrayLike, trials: int, tail: float) -> Array:
    hits = np.asarray(hits)
    limit = special.betaincinv(np.maximum(hits, 1), trials - hits + 1, tail)
    return np.asarray(np.where(hits == 0, 0.0, limit), dtype=np.float64)


def _upper(hits: npt.ArrayLike, trials: int, tail: float) -> Array:
    hits = np.asarray(hits)
    limit = special.betaincinv(hits + 1, np.maximum(trials - hits, 1), 1.0 - tail)
    return np.asarray(np.where(hits == trials, 1.0, limit), dtype=np.float64)


def last_rejected(
    rejected: Callable[[float], bool], most: float = MOST, precision: float = 1e-5
) -> float:
    """Go up from 0 to the first value that is not rejected, then bisect that step."""
    step, low = 0.25, 0.0
    if not rejected(low):
        return 0.0
    while rejected(low + step):
        low += step
        if low > most:
            return low
    high = low + step
    while high - low > precision:
        middle = (low + high) / 2.0
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def _first(holds: Callable[[int], bool], largest: int = 10**9) -> int:
    """Return the smallest count at which a condition holds that, once true, stays true."""
    high = 1
    while not holds(high):
        high *= 2
        if high > largest:
            raise ValueError(
                "no number of trials can show so large an epsilon at this delta; ask for less"
            )
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def scores(values: npt.ArrayLike) -> Array:
    """Return scores as an array; refuse none at all, and what is not finite."""
    found = np.asarray(values, dtype=np.float64).ravel()
    if found.size == 0:
        raise ValueError("there are no scores; run at least one trial a side")
    if not np.isfinite(found).all():
        raise ValueError("a score is not finite; the training diverged, lower the learning rate")
    return found


def _check(delta: float, confidence: float) -> None:
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta is {delta}; it must be at least 0 and below 1")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"the confidence is {confidence}; give a number between 0 and 1")
