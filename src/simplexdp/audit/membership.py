"""Membership inference: LiRA and RMIA on real records, with the models as targets in turn.

Shadow models are trained on random halves of a pool, so that every record is in exactly half of
them.  For a target model the others give, for each record, the mean logit-scaled confidence with
and without it; LiRA's score is the logarithm of the likelihood ratio of two normal laws (Carlini et
al. 2022).  With few shadow models the variances are shared by all records, as they propose.
RMIA compares a record with records that nobody trained on: the share of them whose confidence,
over its mean in the other models, is not above the record's own (Zarifzadeh et al. 2024, γ = 1).

What comes out is how well these attacks do.  It is evidence and not a bound: a stronger attack
may exist, and the records' scores under one model are not independent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from simplexdp import data, files
from simplexdp.audit import claims, crafting, schedules, shadow
from simplexdp.settings import Settings

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MODELS = 16
POOL = 800
RESAMPLES = 400
POPULATION = 1000  # held-out records to which RMIA compares
RATES = {"true_positive_rate_at_1_percent": 0.01, "true_positive_rate_at_0.1_percent": 0.001}


def audit(
    settings: Settings,
    dataset: data.Dataset,
    rng: np.random.Generator,
    models: int = MODELS,
    confidence: float = 0.95,
    pool: int | None = POOL,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Train the shadow models, attack each of them with the others, and rate the attack."""
    if models < 4 or models % 2:
        raise ValueError(
            f"{models} models will not do: they come in pairs, attacked with the other pairs; "
            "give an even --trials of 4 or more"
        )
    size = len(dataset.train) if pool is None else min(pool, len(dataset.train))
    records = crafting.subset(dataset, size, rng)
    others = crafting.as_float(dataset.test, np.arange(min(POPULATION, len(dataset.test))))
    members = halves(size, models, rng)
    values, population = np.empty((models, size)), np.empty((models, len(others)))
    last: shadow.Shadow | None = None
    for k, seed in enumerate(shadow.seeds(models, rng)):
        chosen = np.flatnonzero(members[k])
        half = data.Split(records.train.inputs[chosen], records.train.labels[chosen])
        last = shadow.train(settings, dataclasses.replace(records, train=half), seed)
        values[k] = shadow.confidences(last.final, records.train.inputs, records.train.labels)
        population[k] = shadow.confidences(last.final, others.inputs, others.labels)
        advance()
    assert last is not None
    scores = likelihood_ratios(values, members)
    relative = ranks(special.expit(values), special.expit(population))
    return {
        "epsilon_lower": None,
        "trials": models,
        "pool": size,
        **rated(scores, members, confidence, rng),
        "roc": curve(scores, members),
        "rmia": {**rated(relative, members, confidence, rng), "roc": curve(relative, members)},
        **schedules.told(last, claims.in_or_out(last.statement, settings.delta), size // 2),
    }


def halves(records: int, models: int, rng: np.random.Generator) -> Bools:
    """Choose which record is in which model: 2k and 2k+1 have opposite halves of the records."""
    members = np.zeros((models, records), dtype=bool)
    for k in range(0, models, 2):
        members[k, rng.permutation(records)[: records // 2]] = True
        members[k + 1] = ~members[k]
    return members


def likelihood_ratios(values: Array, members: Bools) -> Array:
    """Score each record under each model, from the models of all other pairs.

    Leaving out a target's partner too keeps as many models with as without each record.  Means
    over unequal numbers would score members and non-members differently even if nothing leaked.
    """
    inside, outside = (_others_mean(values, mask) for mask in (members, ~members))
    residuals = np.where(members, values - inside, values - outside)
    var_in = float(residuals[members].var()) + 1e-12
    var_out = float(residuals[~members].var()) + 1e-12
    return np.asarray(
        0.5 * np.log(var_out / var_in)
        + (values - outside) ** 2 / (2 * var_out)
        - (values - inside) ** 2 / (2 * var_in)
    )


def ranks(values: Array, population: Array) -> Array:
    """Return, by model and record, the share of the population that is not above the record.

    Both are probabilities of the true class, by model, and are taken relative to their mean over
    the models of all other pairs, half of which have the record.
    """
    found = np.empty_like(values)
    for k in range(len(values)):
        others = np.ones(len(values), dtype=bool)
        others[[k, k ^ 1]] = False
        own, held_out = (
            part[k] / np.maximum(part[others].mean(axis=0), 1e-12) for part in (values, population)
        )
        found[k] = np.searchsorted(np.sort(held_out), own, side="right") / len(held_out)
    return found


def _others_mean(values: Array, mask: Bools) -> Array:
    """Return, by model and record, the mean over the models of `mask` in the other pairs."""
    masked = values * mask
    pairs = masked[0::2] + masked[1::2]  # of each pair exactly one model has the record
    rest = (masked.sum(axis=0) - pairs) / (len(pairs) - 1)
    return np.asarray(np.repeat(rest, 2, axis=0))


def rate_at(scores_in: Array, scores_out: Array, false_positive_rate: float) -> float:
    """Return the largest true-positive rate of a threshold with at most so many false positives."""
    ordered = np.sort(scores_out)[::-1]
    allowed = int(false_positive_rate * len(ordered))
    # A score must lie above the first non-member that may not be let through.
    return float((scores_in > ordered[min(allowed, len(ordered) - 1)]).mean())


def area(scores_in: Array, scores_out: Array) -> float:
    """Return P[member above non-member] + ½ P[equal]: the area under the ROC curve."""
    ordered = np.sort(scores_out)
    below = np.searchsorted(ordered, scores_in, side="left")
    upto = np.searchsorted(ordered, scores_in, side="right")
    return float((below + upto).mean() / (2 * len(ordered)))


def rated(
    scores: Array, members: Bools, confidence: float, rng: np.random.Generator
) -> dict[str, Any]:
    """Return AUC and true-positive rates, with their spread when pairs of models are resampled.

    Scores under one model depend on one another, so models and not records are resampled. With the
    few pairs of an audit the spread is narrower than a confidence interval would be.
    """

    def measure(rows: npt.NDArray[np.int64]) -> list[float]:
        inside, outside = scores[rows][members[rows]], scores[rows][~members[rows]]
        rates = [rate_at(inside, outside, rate) for rate in RATES.values()]
        return [area(inside, outside), *rates]

    models = len(scores)
    point = measure(np.arange(models))
    picks = rng.integers(models // 2, size=(RESAMPLES, models // 2))
    draws = np.array([measure(np.concatenate([2 * pick, 2 * pick + 1])) for pick in picks])
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(draws, [tail, 100 - tail], axis=0)
    names = ["auc", *RATES]
    found: dict[str, Any] = {}
    for k, name in enumerate(names):
        found[name] = point[k]
        found[f"{name}_interval"] = [float(low[k]), float(high[k])]
    return found


def curve(scores: Array, members: Bools) -> list[list[float]]:
    """Return (false-, true-positive rate) at rates evenly spaced on a logarithmic axis."""
    inside, outside = scores[members], scores[~members]
    least = max(1.0 / len(outside), 1e-4)
    rates = np.geomspace(least, 1.0, 60)
    return [[float(rate), rate_at(inside, outside, float(rate))] for rate in rates]


def plot(results: dict[str, dict[str, Any]], path: Path, title: str) -> None:
    """Draw the ROC curves of several methods on logarithmic axes."""
    figure = files.figure(figsize=(4.5, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, result in results.items():
        rates = np.array(result["roc"])
        axes.plot(rates[:, 0], np.maximum(rates[:, 1], 1e-5), label=name)
    line = np.geomspace(1e-4, 1.0, 50)
    axes.plot(line, line, color="grey", linestyle=":", label="guessing")
    axes.set(
        xscale="log",
        yscale="log",
        xlim=(1e-4, 1),
        ylim=(1e-4, 1),
        xlabel="false-positive rate",
        ylabel="true-positive rate",
        title=title,
    )
    axes.legend(fontsize="small")
    files.write_picture(figure, path, dpi=150, metadata={"Software": None})
