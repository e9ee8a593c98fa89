"""What the methods share that train on fixed features: model, rows, random bits, sentences."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from simplexdp import data, distributed, features, noise, sampling
from simplexdp.claims import Assumption, common_assumptions
from simplexdp.evaluation import recalls
from simplexdp.linear.exact_sums import strides
from simplexdp.methods.base import Method, Run, Trained
from simplexdp.settings import Settings

REPLACED = "Replacing an input by another one: that relation doubles μ."
OWN_FEATURES = (
    "if these features are a fixed function of one record, not fitted to the private data, "
    "which a probe cannot prove"
)
EMBEDDED = "if the vectors were computed from each record by itself by a map not fitted to them"
ONE_OF_SEVERAL = (
    "One alone of a person's records zeroed out while the others stay: that relation can double μ."
)
CACHED = "The cached features, which are as private as the inputs."
FEATURES_HELP = (
    f"The fixed features: {', '.join(features.NAMES)}, timm:NAME, torchvision:NAME, hf:NAME, "
    "onnx:FILE or package.module:OBJECT."
)
COLUMNS = {"features": "columns"}  # pixels as features, so that an attack sees its input


class FeatureLinear(nn.Module):
    """The released model: fixed features, then one linear layer, which begins at zero."""

    def __init__(self, feature_map: features.FeatureMap, classes: int, pixels: bool) -> None:
        super().__init__()
        self.feature_map = feature_map
        self.pixels = pixels
        self.linear = zeroed(nn.Linear(feature_map.width, classes))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits for inputs as ``data.to_model_input`` gives them."""
        # uint8 pixels come scaled to [-1, 1]; the features are those of pixels in [0, 1].
        raw = inputs * 0.5 + 0.5 if self.pixels else inputs
        return self.on_features(self.feature_map.apply(raw))

    def on_features(self, rows: torch.Tensor) -> torch.Tensor:
        """Return logits of raw feature rows."""
        logits: torch.Tensor = self.linear(rows)
        return logits

    def set(self, weights: NDArray[Any], bias: NDArray[Any]) -> None:
        """Take over weights (width, classes) and a bias."""
        with torch.no_grad():
            self.linear.weight.copy_(torch.from_numpy(weights.T))
            self.linear.bias.copy_(torch.from_numpy(bias))


def zeroed(layer: nn.Linear) -> nn.Linear:
    """Return the layer with all its parameters 0: where training on fixed features begins."""
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class OnFeatures(Method):
    """A method whose model is linear on a fixed feature map."""

    def instead(self, setting: str) -> str:
        """Return what to do about a setting that it has no use for."""
        if setting == "model":
            return (
                "it trains a linear model on fixed features: leave out --model, and choose "
                f"--features from {', '.join(features.NAMES)} instead"
            )
        return "leave it out"

    def feature_map(
        self, settings: Settings, shape: tuple[int, ...], declared: str | None = None
    ) -> features.FeatureMap:
        """Return the map that the options name, with what is declared of its training data."""
        named = self.Options.of(self.name, settings.options).features  # type: ignore[attr-defined]
        return features.build(named, shape, declared)


@dataclass(frozen=True)
class Rows:
    """The features of each split."""

    train: NDArray[Any]
    test: NDArray[Any]
    validation: NDArray[Any] | None


def compute(
    dataset: data.Dataset,
    feature_map: features.FeatureMap,
    keep: bool,
    without: frozenset[int] = frozenset(),
    mine: slice | NDArray[np.int64] = slice(None),
) -> Rows:
    """Return the features of every split, from the cache where they are kept.

    Rows of records that are to contribute nothing are not finite: every sum counts them as zero.
    Where several processes train, these are the features of this one's part: `mine` of the
    training records.
    """
    train = features.compute(dataset.train.inputs[mine], feature_map, keep)
    if without:
        train = np.array(train)
        train[sorted(without)] = np.nan

    def part(split: data.Split) -> NDArray[Any]:
        return features.compute(split.inputs[part_of(split)], feature_map, keep)

    held_out = dataset.validation
    return Rows(train, part(dataset.test), None if held_out is None else part(held_out))


def part_of(split: data.Split) -> slice:
    """Return which records of a split that nobody trains on are this process's."""
    return distributed.part(strides(len(split)))


def trained(
    run: Run,
    model: FeatureLinear,
    dataset: data.Dataset,
    rows: Rows,
    score: Callable[[NDArray[Any], NDArray[Any]], float],
    steps: int,
    epsilon: float | None,
    began: float,
) -> Trained:
    """Return what a fit reached, and append its one line of metrics."""

    def scored(of: NDArray[Any], split: data.Split) -> float:
        labels = split.labels[part_of(split)]
        right = round(score(of, labels) * len(labels)) if len(labels) else 0
        return int(distributed.everywhere(np.array([right]))[0]) / len(split)

    accuracy = scored(rows.test, dataset.test)
    validation = None
    if dataset.validation is not None and rows.validation is not None:
        validation = scored(rows.validation, dataset.validation)
    seconds = time.monotonic() - began
    if run.folder is not None and distributed.is_first():
        measured = {"step": steps, "test_accuracy": accuracy, "epsilon": epsilon}
        run.folder.append_metrics({**measured, "seconds": round(seconds, 3)})
    found = np.zeros(len(dataset.test), dtype=np.int64)
    mine = found[part_of(dataset.test)]
    with torch.no_grad():
        for at in range(0, len(mine), 4096):
            block = torch.from_numpy(rows.test[at : at + 4096].copy())
            mine[at : at + 4096] = model.on_features(block).argmax(1).numpy()
    shares = recalls(distributed.everywhere(found), dataset.test.labels, dataset.classes)
    return Trained(model, accuracy, validation, seconds, shares)


def noise_bits(seed: int | None) -> noise.Bits:
    """Return the operating system's generator, or a stream of the seed that the user gave.

    Of several processes the first draws for all.
    """
    if seed is None:
        return distributed.same_bits(noise.system_bits)
    return distributed.same_bits(noise.seeded_bits(sampling.stream(seed, "certified", 0)))


def proviso(feature_map: features.FeatureMap, dataset: data.Dataset | None = None) -> str:
    """Return what coverage rests on that the software cannot know."""
    if not feature_map.provenance.fixed:
        return OWN_FEATURES
    undeclared = dataset is not None and dataset.vectors and dataset.features_from is None
    return EMBEDDED if undeclared else ""


def encoder_notes(
    feature_map: features.FeatureMap, dataset: data.Dataset | None = None
) -> tuple[str, ...]:
    """Return what the bound leaves open about data that an encoder was trained on."""
    told = feature_map.provenance
    declared = None if dataset is None else dataset.features_from
    if told.trained_on == features.NO_DATA and not declared:
        return ()
    source, trained_on = (
        (f"the encoder {told.source}", told.trained_on or "data that nobody declared")
        if told.trained_on != features.NO_DATA
        else ("the encoder of the vectors, as declared", declared)
    )
    return (
        f"What {source} tells of its own training data ({trained_on}): a private record that was "
        "among them is not covered there.",
    )


def described(
    feature_map: features.FeatureMap, dataset: data.Dataset | None = None
) -> dict[str, str]:
    """Return what a statement names of the features, beside the mechanism."""
    told = feature_map.provenance
    said = {} if told.trained_on == features.NO_DATA else {"encoder": told.describe()}
    if dataset is not None and dataset.features_from is not None and not said:
        said = {"encoder": f"as declared: {dataset.features_from}"}
    return {"features": feature_map.name, **said}


def assumptions(
    feature_map: features.FeatureMap,
    seed_known: bool,
    computed_from_data: Sequence[str],
    dataset: data.Dataset | None = None,
) -> tuple[Assumption, ...]:
    """Return what the bound rests on; whether a map of the user's own is fixed is not known."""
    bits = "numpy's Philox under the seed" if seed_known else "the operating system"
    known = feature_map.provenance.trained_on == features.NO_DATA
    embedded = dataset is not None and dataset.vectors
    return (
        Assumption(
            "Features are a fixed function of one record, not fitted to the private data.",
            holds=True if known and not embedded else None,
        ),
        Assumption(
            "Rows and sums are exact integers and the noise is rounded exactly, given independent "
            f"random bits: those of {bits}.",
            holds=None if seed_known else True,
        ),
        *common_assumptions(seed_known, computed_from_data),
    )
