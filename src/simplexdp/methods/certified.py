"""A linear classifier on fixed features, trained so that its weights may be released.

    features (fixed, per record) → private mean and moments → full-batch noisy descent → weights

Formal guarantee
    The released weights are (ε, δ)-differentially private for one training input under zero-out,
    with labels and the number of records public: see ``simplexdp.linear``.
"""

from __future__ import annotations

import time
from typing import Any

import torch

from simplexdp import data, features, ledger, linear, noise, progress
from simplexdp.methods import fixed_features
from simplexdp.methods.outcome import (
    BESIDE_THE_WEIGHTS,
    Outcome,
    has_pixels,
    number_of,
    refuse_options,
    reserve,
)
from simplexdp.runs import RunFolder
from simplexdp.settings import Settings
from simplexdp.statement import Statement, large_delta
from simplexdp.training import refuse_not_finite

OPTIONS = ("features", "clip", "mean_share", "moment_share", "ridge")
RULE_NOTE = (
    "Steps, clip, rate and the shares of the budget follow a rule from n, μ and the shape of the "
    "features, whose constants were set by accuracy on held-out training records of FashionMNIST "
    "and MNIST, with a part for DermaMNIST's validation set and for accuracies on digits; three "
    "were set or added after test accuracies had been seen (docs/certified.md)."
)


def train(
    settings: Settings, dataset: data.Dataset, run: RunFolder | None, show_progress: bool = False
) -> Outcome:
    """Train with the budget of the settings; everything else by rule unless given."""
    began = time.monotonic()
    options = checked_options(settings)
    refuse_not_finite(dataset)
    name = str(options.pop("features", "auto"))
    feature_map = features.build(name, dataset.input_shape)
    model = fixed_features.FeatureLinear(feature_map, dataset.classes, has_pixels(dataset))
    shape = (feature_map.channels, feature_map.positions)
    rule, cost = linear.planned(
        len(dataset.train.labels),
        settings.epsilon,
        settings.delta,
        shape,
        steps=settings.steps,
        lr=settings.lr,
        **options,
    )
    keep = run is not None  # the thousand small trainings of an audit leave nothing behind
    rows = fixed_features.compute(dataset, feature_map, keep)
    linear.check(rows.train, dataset.train.labels, dataset.classes, shape, rule)
    reserve(settings, run, cost.event(), ledger.WEIGHTS, dataset.computed_from_data)
    with progress.steps(rule.schedule.steps, 0, show_progress) as bar:
        fitted = linear.fit(
            rows.train,
            dataset.train.labels,
            dataset.classes,
            shape,
            rule,
            cost,
            fixed_features.noise_bits(settings.seed),
            lambda step: bar.advance((), None, None),
        )
    with torch.no_grad():
        model.linear.weight.copy_(torch.from_numpy(fitted.weights.T))
        model.linear.bias.copy_(torch.from_numpy(fitted.bias))
    accuracy = score(fitted, rows.test, dataset.test.labels)
    validation = None
    if dataset.validation is not None:
        validation = score(fitted, rows.validation, dataset.validation.labels)
    seconds = time.monotonic() - began
    fixed_features.log(run, rule.schedule.steps, accuracy, cost.epsilon, seconds)
    return Outcome(
        model=model,
        model_name=f"{feature_map.name}+linear",
        statement=statement(
            feature_map,
            fitted,
            len(dataset.train.labels),
            settings.seed is not None,
            dataset.computed_from_data,
            dataset.provenance,
        ),
        accuracy=accuracy,
        validation_accuracy=validation,
        steps=rule.schedule.steps,
        seconds=seconds,
        chosen=fitted.chosen(),
    )


def checked_options(settings: Settings) -> dict[str, Any]:
    """The method's own options; anything that would be ignored is refused."""
    refuse_options(settings, OPTIONS)
    fixed_features.refuse_network(settings, "certified")
    for name in settings.options:
        if name != "features":
            number_of(settings.options, name, 0.0)
    return dict(settings.options)


def score(fitted: linear.Fitted, rows: Any, labels: Any) -> float:
    """The share of records that are classified correctly."""
    right = sum(
        int((fitted.logits(rows[at : at + 4096]).argmax(1) == labels[at : at + 4096]).sum())
        for at in range(0, len(labels), 4096)
    )
    return right / len(labels)


def statement(
    feature_map: features.FeatureMap,
    fitted: linear.Fitted,
    records: int,
    seed_known: bool,
    computed_from_data: tuple[str, ...] = (),
    provenance: tuple[str, ...] = (),
) -> Statement:
    """What may be claimed of the weights."""
    cost, schedule = fitted.spending, fitted.rule.schedule
    return Statement(
        method="certified (linear on fixed features, full-batch noisy gradient descent)",
        mechanism={
            "name": "Gaussian",
            "noise": noise.SAMPLER,
            "mu": cost.mu,
            "mu_mean": cost.mu_mean,
            "mu_moments": cost.mu_moments,
            "mu_steps": cost.mu_steps,
            "noise_multiplier": cost.noise_multiplier,
            "clip": schedule.clip,
            "features": feature_map.name,
        },
        epsilon=cost.epsilon,
        delta=cost.delta,
        accountant="Gaussian, exact (Balle and Wang 2018; composition in μ², Dong et al. 2022)",
        relation="zero-out",
        sampling="none: every step uses every record",
        steps=schedule.steps,
        covers_draws=False,
        covers_weights=True,
        covers=(
            "the released weights and bias, and what is computed from them and no training input",
            "the private mean and second moments of the features, and every iterate",
        ),
        does_not_cover=(
            fixed_features.REPLACED,
            fixed_features.CACHED,
            *BESIDE_THE_WEIGHTS,
        ),
        assumptions=fixed_features.assumptions(feature_map, seed_known, computed_from_data),
        notes=(RULE_NOTE, *provenance, *large_delta(cost.delta, records)),
        proviso=fixed_features.proviso(feature_map),
    )
