"""The certified method: a linear classifier on fixed features whose weights may be released.

Formal guarantee
    Statement: weights, bias and every intermediate release are (ε, δ)-private under zero-out,
    with labels and the number of records public: see ``simplexdp.linear``.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simplexdp import data, distributed, features, linear, noise, progress
from simplexdp.accounting import events
from simplexdp.bundle import Description
from simplexdp.claims import (
    BESIDE_THE_WEIGHTS,
    PERSON,
    RECORD,
    WEIGHTS,
    Coverage,
    large_delta,
)
from simplexdp.evaluation import refuse_not_finite
from simplexdp.linear.exact_sums import strides
from simplexdp.methods import _on_features
from simplexdp.methods.base import Audited, Options, Prepared, Run, Trained, option, positive
from simplexdp.runs.checkpoint import fingerprint_of
from simplexdp.settings import Settings

RULE_NOTE = (
    "Steps, clip, rate and the shares of the budget follow a rule from n, μ and the shape of the "
    "features, whose constants, and those of the patch features, were set by accuracy on held-out "
    "training records of FashionMNIST, MNIST and CIFAR10, with a part for DermaMNIST's validation "
    "set and for accuracies on digits; three were set or added after test accuracies had been seen "
    "(docs/certified-proofs.md)."
)
OTHER_WEIGHTS = (
    "the processes ended with different weights, so none are kept; use machines of one kind"
)


@dataclass(frozen=True)
class CertifiedOptions(Options):
    """The options of the certified method; what is None follows the rule."""

    features: str = option("auto", _on_features.FEATURES_HELP)
    clip: float | None = option(None, "The norm to which each record's gradient is clipped.")
    mean_share: float | None = option(None, "The share of μ² that the private mean takes.")
    moment_share: float | None = option(None, "The share of μ² that the private moments take.")
    ridge: float | None = option(None, "What is added to the moments before whitening.")
    memory: int = option(2048, "MiB of rows kept in memory; larger ones stream from a hidden file.")

    def __post_init__(self) -> None:
        positive("memory", self.memory)


class Certified(_on_features.OnFeatures):
    """Train a linear model by full-batch noisy gradient descent, with exact sums and noise."""

    name = "certified"
    title = "certified linear"
    bound = "Gaussian, exact"
    revision = 2
    several_processes = True
    persons = True
    Options = CertifiedOptions
    audited = Audited(
        removes=True,
        trials=240,
        visible=_on_features.COLUMNS,
        # A random whitening would blur the projection; its share of the budget goes to the steps.
        pairs={**_on_features.COLUMNS, "moment_share": 0.0},
        in_out={**_on_features.COLUMNS, "moment_share": 0.0, "mean_share": 0.0},
        heard={**_on_features.COLUMNS, "moment_share": 0.1, "clip": 0.1},
    )

    def takes(self, settings: Settings) -> frozenset[str]:
        """Return which of the optional settings it uses."""
        return frozenset({"steps", "lr"})

    def prepare(self, settings: Settings, dataset: data.Dataset, seed: int) -> Prepared:
        """Settle everything about a training and spend nothing."""
        began = time.monotonic()
        given = {k: v for k, v in asdict(self.options(settings)).items() if v is not None}
        given.pop("features")
        memory = given.pop("memory")
        refuse_not_finite(dataset)
        feature_map = self.feature_map(settings, dataset.input_shape, dataset.features_from)
        model = _on_features.FeatureLinear(feature_map, dataset.classes, dataset.pixels)
        shape = (feature_map.channels, feature_map.positions)
        labels = dataset.train.labels
        persons = dataset.train.groups
        if persons is not None:
            persons = np.unique(persons, return_inverse=True)[1]
        rule, cost = linear.planned(
            dataset.train.persons,
            settings.epsilon,
            settings.delta,
            shape,
            steps=settings.steps,
            lr=settings.lr,
            largest=feature_map.largest,
            **given,
        )
        steps = rule.schedule.steps

        def start(run: Run) -> Trained:
            mine, whose = part_of(persons, len(labels))
            labelled = (dataset.classes, shape, rule)
            if distributed.world() > 1:
                distributed.check_same(
                    f"{rule} {cost} {fingerprint_of(seed, *dataset.train.arrays())}"
                )
            # The thousand small trainings of an audit leave nothing behind.
            keep = run.folder is not None
            rows = _on_features.compute(dataset, feature_map, keep, run.without, mine)
            linear.check(rows.train, labels[mine], *labelled, whose, distributed.everywhere)
            # A disk without room is told of here, before anything is spent.
            features.room((len(rows.train), min(rule.width, feature_map.width)), memory)
            run.pay()
            shown = run.show_progress and distributed.is_first()
            with progress.steps(steps, 0, shown) as bar:
                fitted = linear.fit(
                    rows.train,
                    labels[mine],
                    *labelled,
                    cost,
                    _on_features.noise_bits(settings.seed),
                    lambda step: bar.advance((), None, None),
                    run.on_release,
                    whose,
                    distributed.everywhere,
                    lambda *size: features.room(size, memory),
                )
            distributed.check_same(fitted.weights.tobytes().hex(), OTHER_WEIGHTS)
            model.set(fitted.weights, fitted.bias)

            def score(of: Any, truth: Any) -> float:
                return accuracy(fitted, of, truth)

            return _on_features.trained(
                run, model, dataset, rows, score, steps, cost.epsilon, began
            )

        return Prepared(
            event=cost.event(),
            coverage=coverage(
                feature_map,
                rule,
                cost,
                settings.seed is not None,
                dataset.computed_from_data,
                dataset,
            ),
            model=model,
            model_name=f"{feature_map.name}+linear",
            steps=steps,
            resolved=linear.chosen(rule, cost),
            start=start,
            notes=(RULE_NOTE, *dataset.provenance, *large_delta(cost.delta, dataset.train.persons)),
            releases=cost.by_name(),
        )

    def rebuild(self, description: Description) -> _on_features.FeatureLinear:
        """Return the model that a bundle describes."""
        feature_map = features.build(description.features, description.shape)
        return _on_features.FeatureLinear(
            feature_map, len(description.class_names), description.pixels
        )


def part_of(
    persons: NDArray[np.int64] | None, records: int
) -> tuple[slice | NDArray[np.int64], NDArray[np.int64] | None]:
    """Return this process's training records, and whose they are: whole blocks of persons."""
    if persons is None or distributed.world() == 1:
        return distributed.part(strides(records)), persons
    order = np.argsort(persons, kind="stable")
    mine = order[distributed.part(strides(records, persons[order]))]
    whose = persons[mine]
    return mine, whose - whose[:1]


def accuracy(fitted: linear.Fitted, rows: Any, labels: Any) -> float:
    """Return the share of records that are classified correctly."""
    right = sum(
        int((fitted.logits(rows[at : at + 4096]).argmax(1) == labels[at : at + 4096]).sum())
        for at in range(0, len(labels), 4096)
    )
    return right / len(labels)


def coverage(
    feature_map: features.FeatureMap,
    rule: linear.Rule,
    cost: linear.Spending,
    seed_known: bool,
    computed_from_data: tuple[str, ...] = (),
    dataset: data.Dataset | None = None,
    grouped: bool = False,
) -> Coverage:
    """Return what the bound of a fit covers: the weights."""
    per_person = grouped or (dataset is not None and dataset.train.groups is not None)
    return Coverage(
        method="certified (linear on fixed features, full-batch noisy gradient descent)",
        covers=WEIGHTS,
        accountant="Gaussian, exact (Balle and Wang 2018; composition in μ², Dong et al. 2022)",
        epsilon=lambda event: events.compose([event], cost.delta),
        delta=cost.delta,
        relation="zero-out",
        sampling="none: every step uses every record",
        covered=(
            "the released weights and bias, and what is computed from them and no training input",
            *(
                f"the private {what} of the features"
                for what, share in (("mean", cost.mu_mean), ("second moments", cost.mu_moments))
                if share
            ),
            "the weights after every step",
        ),
        not_covered=(
            _on_features.REPLACED,
            _on_features.CACHED,
            *([_on_features.ONE_OF_SEVERAL] if per_person else []),
            *_on_features.encoder_notes(feature_map, dataset),
            *BESIDE_THE_WEIGHTS,
        ),
        assumptions=_on_features.assumptions(feature_map, seed_known, computed_from_data, dataset),
        mechanism={
            "name": "Gaussian",
            "noise": noise.SAMPLER,
            "mu": cost.mu,
            "mu_mean": cost.mu_mean,
            "mu_moments": cost.mu_moments,
            "mu_steps": cost.mu_steps,
            "noise_multiplier": cost.noise_multiplier,
            "clip": rule.schedule.clip,
            **_on_features.described(feature_map, dataset),
        },
        proviso=_on_features.proviso(feature_map, dataset),
        unit=PERSON if per_person else RECORD,
    )


METHOD = Certified()
