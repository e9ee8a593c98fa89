"""A certified linear fit: mean, moments and steps under one budget, on given features.

Formal guarantee
    Statement: the weights and bias that ``fit`` returns, with every quantity behind them, are
    (ε, δ)-differentially private under zero-out, with labels and n public. The releases are
    Gaussian with μ_mean², μ_moments² and T/σ² adding to μ², and (ε, δ) is exact for that μ
    (Balle and Wang, 2018). Features must be a fixed function of each record alone.
    Assumptions: those of ``noise``, ``exact_sums`` and ``noisy_gd``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from simplexdp.accounting.gaussian import calibrate_mu, gaussian_epsilon
from simplexdp.linear import exact_sums, noisy_gd, whitening
from simplexdp.linear.exact_sums import Everywhere, Store, alone, in_memory
from simplexdp.linear.rule import Rule, choose
from simplexdp.noise import Bits, OnRelease, unheard

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Floats = NDArray[np.float64]
# A whitened row is scaled down to this multiple of its expected norm before it is quantised.
WHITENED_ROW_BOUND = 4.0


@dataclass(frozen=True)
class Spending:
    """What each release cost, in μ, and what it comes to.

    Attributes:
        mu_mean: μ of the private mean.
        mu_moments: μ of the second moments.
        mu_steps: μ of all gradient steps together.
        noise_multiplier: Noise of one step over its sensitivity.
        delta: δ of the budget.
    """

    mu_mean: float
    mu_moments: float
    mu_steps: float
    noise_multiplier: float
    delta: float

    @property
    def mu(self) -> float:
        """Return μ of everything released: squares add up."""
        return math.sqrt(self.mu_mean**2 + self.mu_moments**2 + self.mu_steps**2)

    @property
    def epsilon(self) -> float:
        """Return ε of everything released, at `delta`."""
        return gaussian_epsilon(self.mu, self.delta)

    def by_name(self) -> dict[str, float]:
        """Return μ by the name under which `fit` tells of releases, of those that are made."""
        shares = {"mean": self.mu_mean, "moments": self.mu_moments, "steps": self.mu_steps}
        return {name: mu for name, mu in shares.items() if mu > 0}

    def event(self) -> DpEvent:
        """Return what a ledger charges: one Gaussian release of the whole μ, of multiplier 1/μ."""
        from simplexdp.accounting import events  # dp-accounting takes a second to load

        return events.gaussian(1.0 / self.mu)


@dataclass(frozen=True)
class Fitted:
    """A linear classifier on raw features: logits = features @ weights + bias.

    Attributes:
        weights: Of shape (features, classes).
        bias: One a class.
        spending: What the fit cost.
        rule: What it was fitted by.
    """

    weights: Floats
    bias: Floats
    spending: Spending
    rule: Rule

    def logits(self, features: NDArray[Any]) -> Floats:
        """Return logits of a block of raw feature rows."""
        return np.asarray(features @ self.weights + self.bias)


def chosen(rule: Rule, cost: Spending) -> dict[str, Any]:
    """Return what a rule chose and how its budget is split, for the record.

    Args:
        rule: The rule.
        cost: Its split of the budget.

    Returns:
        Names and numbers, ready for JSON.
    """
    schedule = rule.schedule
    return {
        "clip": schedule.clip,
        "lr": schedule.lr,
        "averaged": schedule.averaged,
        "noise_multiplier": cost.noise_multiplier,
        "mu": cost.mu,
        "mu_mean": cost.mu_mean,
        "mu_moments": cost.mu_moments,
        "mu_steps": cost.mu_steps,
        "ridge": rule.ridge,
    }


def planned(
    records: int, epsilon: float, delta: float, shape: tuple[int, int], **given: Any
) -> tuple[Rule, Spending]:
    """Return the rule for a budget, with whatever the user fixed, and its split of that budget.

    Args:
        records: Number of records, which is public.
        epsilon: Budget ε.
        delta: Budget δ.
        shape: Channels and positions of the features.
        **given: What is fixed instead of chosen: `steps`, `clip`, `lr`, `mean_share`,
            `moment_share`, `ridge`; and `largest`, the largest eigenvalue of the second moment of
            rows that public data whitened.

    Returns:
        The rule, and what each release costs.

    Raises:
        ValueError: If something given makes no sense.

    Example:
        >>> from simplexdp import linear
        >>> rule, cost = linear.planned(1437, epsilon=1.0, delta=1e-5, shape=(64, 1))
        >>> rule.schedule.steps, cost.epsilon <= 1.0
        (240, True)
    """
    rule = choose(records, calibrate_mu(epsilon, delta), shape, **given)
    return rule, spending(epsilon, delta, rule)


def spending(epsilon: float, delta: float, rule: Rule) -> Spending:
    """Split the budget: shares of μ², never above the budget's μ.

    Args:
        epsilon: Budget ε.
        delta: Budget δ.
        rule: The rule with its shares.

    Returns:
        What each release costs.

    Raises:
        ValueError: If the noise would leave 64 bits.
    """
    # The last digits: sums of squares of rounded shares stay below μ².
    mu = calibrate_mu(epsilon, delta) * (1.0 - 1e-12)
    steps = mu * math.sqrt(rule.step_share)
    noise_multiplier = math.sqrt(rule.schedule.steps) / steps
    noisy_gd.noise_scale(rule.schedule.clip, noise_multiplier)
    return Spending(
        mu * math.sqrt(rule.mean_share),
        mu * math.sqrt(rule.moment_share),
        steps,
        noise_multiplier,
        delta,
    )


def fit(
    features: NDArray[Any],
    labels: NDArray[np.int64],
    classes: int,
    shape: tuple[int, int],
    rule: Rule,
    cost: Spending,
    bits: Bits,
    on_step: Callable[[int], None] = lambda step: None,
    on_release: OnRelease = unheard,
    persons: NDArray[np.int64] | None = None,
    everywhere: Everywhere = alone,
    store: Callable[[int, int], Store] = in_memory,
) -> Fitted:
    """Fit on raw features with the given rule and its cost.

    Args:
        features: Private rows of shape (records, channels·positions).
        labels: Public labels, whole numbers from 0.
        classes: Number of classes.
        shape: Channels and positions.
        rule: From `planned`.
        cost: From `planned`.
        bits: Source of random bits: `noise.system_bits`, or a seeded one for tests.
        on_step: Called with the number of each step.
        on_release: Told of each release before it is used, by its name: mean, moments or steps.
        persons: Whose each record is, by numbers from 0, each of which occurs; the unit of privacy
            is then the person. None where every record is a unit of its own.
        everywhere: Adds whole numbers over all processes, where each of them has a part of the rows
            and calls this function with the same ``bits``. A part is of whole persons. If it is of
            whole blocks of ``exact_sums.strides``, the weights are those that one process finds,
            to the last bit.
        store: Gives room for the transformed rows, of so many records and coordinates, which are
            whole numbers of less than 16 bits: in memory unless given.

    Returns:
        The released weights.

    Raises:
        ValueError: If `check` refuses; nothing is spent then.

    Formal guarantee:
        Weights, bias and every iterate are (ε, δ)-private under zero-out at `cost.epsilon`; labels,
        the number of records and who has which are public. With persons, all records of a person
        are zeroed out together: mean and moments see one record of each, its first, and in every
        step the gradients of a person are clipped together.
    """
    check(features, labels, classes, shape, rule, persons, everywhere)
    order = one_each = None
    if persons is not None:
        one_each = np.unique(persons, return_index=True)[1]
        order = np.argsort(persons, kind="stable")
        labels, persons = labels[order], persons[order]
    change = shaped(features, shape, rule, cost, bits, on_release, one_each, everywhere)
    rows = transformed(features, change, order, persons, store)
    rule = rule.stable(change.largest)
    log_prior = public_log_prior(labels, classes, everywhere)
    weights = noisy_gd.descend(
        rows,
        torch.from_numpy(labels),
        torch.from_numpy(log_prior).float(),
        rule.schedule,
        cost.noise_multiplier,
        bits,
        on_step,
        on_release,
        everywhere,
    )
    raw, offset = change.fold(weights)
    return Fitted(raw, offset + log_prior, cost, rule)


def shaped(
    features: NDArray[Any],
    shape: tuple[int, int],
    rule: Rule,
    cost: Spending,
    bits: Bits,
    on_release: OnRelease = unheard,
    one_each: NDArray[np.int64] | None = None,
    everywhere: Everywhere = alone,
) -> whitening.Transform:
    """Return the transform from the released mean and moments, as far as the rule pays for them.

    With ``one_each``, from those rows alone: one of each person.
    """
    mean = np.zeros(shape[0] * shape[1])
    if rule.step_share == 1.0:
        return whitening.identity(mean, *shape)
    total, by_channel, by_position = exact_sums.statistics(
        features, whitening.RAW_ROW_BOUND, *shape, moments=rule.moment_share > 0, order=one_each
    )
    total, by_channel, by_position = map(everywhere, (total, by_channel, by_position))
    units = int(everywhere(np.array([len(features) if one_each is None else len(one_each)]))[0])
    if rule.mean_share > 0:
        mean = whitening.release_mean(total, units, cost.mu_mean, bits, on_release)
    if rule.moment_share == 0:
        return whitening.identity(mean, *shape)
    moments = whitening.release_moments(
        by_channel, by_position, units, mean, cost.mu_moments, bits, on_release
    )
    return whitening.transform(moments, units, rule.ridge, rule.width)


def transformed(
    features: NDArray[Any],
    change: whitening.Transform,
    order: NDArray[np.int64] | None = None,
    persons: NDArray[np.int64] | None = None,
    store: Callable[[int, int], Store] = in_memory,
) -> exact_sums.Rows:
    """Return all rows, whitened and quantised, block by block, in an order by persons if any."""
    integers = store(len(features), len(change.kept))
    norms = torch.empty(len(features), dtype=torch.float64)
    whose = None if persons is None else torch.from_numpy(persons)
    rows = exact_sums.Rows(integers, norms, WHITENED_ROW_BOUND, whose)
    for where in rows.strides:
        block = change.apply(exact_sums.block_of(features, where, order))
        found = exact_sums.quantize(block, WHITENED_ROW_BOUND)
        integers[where], norms[where] = found.integers[:], found.norms
    return rows


def public_log_prior(
    labels: NDArray[np.int64], classes: int, everywhere: Everywhere = alone
) -> Floats:
    """Return log of the class shares, one record added to each: free, as labels are public.

    Args:
        labels: Public labels, whole numbers from 0.
        classes: Number of classes.
        everywhere: Adds whole numbers over all processes.

    Returns:
        One number a class.

    Example:
        >>> import numpy as np
        >>> from simplexdp import linear
        >>> np.exp(linear.public_log_prior(np.array([0, 0, 1]), 2)).round(2).tolist()
        [0.6, 0.4]
    """
    counts = everywhere(np.bincount(labels, minlength=classes)) + 1.0
    return np.asarray(np.log(counts / counts.sum()))


def check(
    features: NDArray[Any],
    labels: NDArray[np.int64],
    classes: int,
    shape: tuple[int, int],
    rule: Rule,
    persons: NDArray[np.int64] | None = None,
    everywhere: Everywhere = alone,
) -> None:
    """Refuse what cannot be trained on, before anything is spent.

    Only public facts are looked at: shapes, labels, settings and the machine. Values of features
    are not, since a refusal would tell something of a record; a row that is not finite counts as
    zero (``exact_sums.quantize``).

    Args:
        features: Rows of shape (records, channels·positions).
        labels: Public labels.
        classes: Number of classes.
        shape: Channels and positions.
        rule: The rule.
        persons: Whose each record is.
        everywhere: Adds whole numbers over all processes.

    Raises:
        ValueError: If shapes, labels, persons or the rule do not fit, or sums would not be exact.
    """
    exact_sums.check_clip(rule.schedule.clip, len(features))
    exact_sums.check_products()
    if not 0 <= rule.ridge < math.inf:
        raise ValueError(f"the ridge is {rule.ridge}; it must be a number of at least 0")
    if features.ndim != 2 or features.shape[1] != shape[0] * shape[1]:
        raise ValueError(
            f"the features have shape {features.shape}, not (records, {shape[0] * shape[1]})"
        )
    if len(features) != len(labels):
        raise ValueError(f"{len(features)} feature rows but {len(labels)} labels; they must match")
    if int(everywhere(np.array([len(labels)]))[0]) == 0:
        raise ValueError("there are no records to train on; give rows with labels")
    if classes < 2 or (labels < 0).any() or (labels >= classes).any():
        raise ValueError(f"labels must be whole numbers from 0 to {classes - 1}, of two or more")
    if persons is None:
        return
    if persons.shape != labels.shape or (persons < 0).any() or not np.bincount(persons).all():
        raise ValueError("persons must be whole numbers from 0 without a gap, one for each record")
    if int(everywhere(np.array([len(np.bincount(persons))]))[0]) < 2:
        raise ValueError("all records are of one person; there must be at least two")
