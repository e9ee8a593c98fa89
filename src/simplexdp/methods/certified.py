"""A linear classifier on fixed features, trained so that its weights may be released.

    features (fixed, per record) → private mean and moments → full-batch noisy descent → weights

Formal guarantee
    The released weights are (ε, δ)-differentially private for one training input under zero-out,
    with labels and the number of records public: see ``simplexdp.methods.linear``.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn

from .. import data, distributed, features, ledger, noise, progress, sampling
from ..accounting.gaussian import calibrate_mu
from ..runs import RunFolder
from ..settings import Settings
from ..statement import Assumption, Statement, common_assumptions
from ..training import refuse_not_finite
from . import linear, linear_rule
from .outcome import (
    BESIDE_THE_WEIGHTS,
    Outcome,
    has_pixels,
    number_of,
    refuse_options,
    reserve,
)

OPTIONS = ("features", "clip", "mean_share", "moment_share", "ridge")
RULE_NOTE = (
    "Steps, clip, rate and the shares of the budget follow a rule from n, μ and the shape of the "
    "features, whose constants were set by accuracy on held-out training records of FashionMNIST "
    "and MNIST, with a part for DermaMNIST's validation set and for accuracies on digits; three "
    "were set or added after test accuracies had been seen (docs/certified.md)."
)


class FeatureLinear(nn.Module):
    """The released model: fixed features, then one linear layer."""

    def __init__(self, feature_map: features.FeatureMap, classes: int, pixels: bool) -> None:
        super().__init__()
        self.feature_map = feature_map
        self.pixels = pixels
        self.linear = nn.Linear(feature_map.width, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Logits for inputs as ``data.to_model_input`` gives them."""
        # uint8 pixels come scaled to [-1, 1]; the features are those of pixels in [0, 1].
        raw = inputs * 0.5 + 0.5 if self.pixels else inputs
        return self.on_features(self.feature_map.apply(raw))

    def on_features(self, rows: torch.Tensor) -> torch.Tensor:
        """Logits of raw feature rows."""
        logits: torch.Tensor = self.linear(rows)
        return logits


def train(
    settings: Settings, dataset: data.Dataset, run: RunFolder | None, show_progress: bool = False
) -> Outcome:
    """Train with the budget of the settings; everything else by rule unless given."""
    began = time.monotonic()
    options = checked_options(settings)
    refuse_not_finite(dataset)
    name = str(options.pop("features", "auto"))
    feature_map = features.build(name, dataset.input_shape)
    model = FeatureLinear(feature_map, dataset.classes, has_pixels(dataset))
    shape = (feature_map.channels, feature_map.positions)
    rule = linear_rule.choose(
        len(dataset.train.labels),
        calibrate_mu(settings.epsilon, settings.delta),
        shape,
        steps=settings.steps,
        lr=settings.lr,
        **options,
    )
    cost = linear.spending(settings.epsilon, settings.delta, rule)
    keep = run is not None  # the thousand small trainings of an audit leave nothing behind
    rows = features.compute(dataset.train.inputs, feature_map, keep)
    test = features.compute(dataset.test.inputs, feature_map, keep)
    held_out = None
    if dataset.validation is not None:
        held_out = features.compute(dataset.validation.inputs, feature_map, keep)
    featured = time.monotonic()
    linear.check(rows, dataset.train.labels, dataset.classes, shape, rule)
    # One Gaussian release of the whole μ: the multiplier of a single step is 1/μ.
    event = ledger.gaussian(1.0 / cost.mu)
    reserve(settings, run, event, ledger.WEIGHTS, dataset.computed_from_data)
    with progress.steps(rule.schedule.steps, 0, show_progress) as bar:
        fitted = linear.fit(
            rows,
            dataset.train.labels,
            dataset.classes,
            shape,
            rule,
            cost,
            noise_bits(settings.seed),
            lambda step: bar.advance((), None, None),
        )
    with torch.no_grad():
        model.linear.weight.copy_(torch.from_numpy(fitted.weights.T))
        model.linear.bias.copy_(torch.from_numpy(fitted.bias))
    accuracy = score(fitted, test, dataset.test.labels)
    validation = None
    if dataset.validation is not None:
        validation = score(fitted, held_out, dataset.validation.labels)
    seconds = time.monotonic() - began
    if run is not None:
        run.append_metrics(
            {
                "step": rule.schedule.steps,
                "test_accuracy": accuracy,
                "epsilon": cost.epsilon,
                "seconds": round(seconds, 3),
            }
        )
    return Outcome(
        model=model,
        model_name=f"{feature_map.name}+linear",
        statement=statement(
            feature_map,
            fitted,
            settings.seed is not None,
            dataset.computed_from_data,
            dataset.provenance,
        ),
        accuracy=accuracy,
        validation_accuracy=validation,
        steps=rule.schedule.steps,
        seconds=seconds,
        chosen={**fitted.chosen(), "feature_seconds": round(featured - began, 3)},
    )


def checked_options(settings: Settings) -> dict[str, Any]:
    """The method's own options; anything that would be ignored is refused."""
    refuse_options(settings, OPTIONS)
    if distributed.world() > 1:
        raise ValueError("certified trains in one process; start it without torchrun")
    if settings.model is not None:
        raise ValueError(
            "certified trains a linear model on fixed features; leave out --model, and choose "
            f"features from {', '.join(features.NAMES)} instead"
        )
    if settings.augment:
        raise ValueError("certified computes features once and takes no augmentation")
    if settings.batch_size is not None or settings.epochs is not None:
        raise ValueError("certified uses all records in every step; give --steps or nothing")
    for name in settings.options:
        if name != "features":
            number_of(settings.options, name, 0.0)
    return dict(settings.options)


def noise_bits(seed: int | None) -> noise.Bits:
    """The operating system's generator, or a stream of the seed that the user gave."""
    if seed is None:
        return noise.system_bits
    return noise.seeded_bits(sampling.stream(seed, "certified", 0))


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
            "Replacing an input by another one: that relation doubles μ.",
            "The cached features, which are as private as the inputs.",
            *BESIDE_THE_WEIGHTS,
        ),
        assumptions=(
            Assumption(
                "Features are a fixed function of one record, not fitted to the private data.",
                holds=True if feature_map.built_in else None,
            ),
            Assumption(
                "Sums are exact integers and the noise is rounded exactly, given independent "
                "random bits: "
                + (
                    "those of the operating system."
                    if not seed_known
                    else "those of numpy's Philox under the seed."
                ),
                holds=None if seed_known else True,
            ),
            *common_assumptions(seed_known, computed_from_data),
        ),
        notes=(RULE_NOTE, *provenance),
    )
