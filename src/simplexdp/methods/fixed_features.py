"""What the methods on fixed features share: their model, rows, random bits and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

from simplexdp import data, features, noise, sampling
from simplexdp.methods.outcome import refuse_unused
from simplexdp.runs import RunFolder
from simplexdp.settings import Settings
from simplexdp.statement import Assumption, common_assumptions

# What only a network that is trained in batches has.
OF_A_NETWORK = ("model", "norm", "optimizer", "batch_size", "epochs", "augment")

REPLACED = "Replacing an input by another one: that relation doubles μ."
OWN_FEATURES = "if these features are a fixed function of one record, which a probe cannot prove"
CACHED = "The cached features, which are as private as the inputs."


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


@dataclass(frozen=True)
class Rows:
    """The features of each split."""

    train: NDArray[Any]
    test: NDArray[Any]
    validation: NDArray[Any] | None


def compute(dataset: data.Dataset, feature_map: features.FeatureMap, keep: bool) -> Rows:
    """The features of every split, from the cache where they are kept."""
    held_out = dataset.validation
    return Rows(
        features.compute(dataset.train.inputs, feature_map, keep),
        features.compute(dataset.test.inputs, feature_map, keep),
        None if held_out is None else features.compute(held_out.inputs, feature_map, keep),
    )


def refuse_network(settings: Settings, who: str, others: Sequence[str] = ()) -> None:
    """Refuse a setting of networks, or one of the others."""
    if settings.model is not None:
        raise ValueError(
            f"{who} trains a linear model on fixed features; leave out --model, and "
            f"choose --option features from {', '.join(features.NAMES)} instead"
        )
    refuse_unused(settings, (*OF_A_NETWORK, *others), who)


def noise_bits(seed: int | None) -> noise.Bits:
    """The operating system's generator, or a stream of the seed that the user gave."""
    if seed is None:
        return noise.system_bits
    return noise.seeded_bits(sampling.stream(seed, "certified", 0))


def log(
    run: RunFolder | None, step: int, accuracy: float, epsilon: float | None, seconds: float
) -> None:
    """The one line of metrics of a training that is measured at its end."""
    if run is not None:
        run.append_metrics(
            {
                "step": step,
                "test_accuracy": accuracy,
                "epsilon": epsilon,
                "seconds": round(seconds, 3),
            }
        )


def proviso(feature_map: features.FeatureMap) -> str:
    """What coverage rests on that nobody here knows."""
    return "" if feature_map.built_in else OWN_FEATURES


def assumptions(
    feature_map: features.FeatureMap, seed_known: bool, computed_from_data: Sequence[str]
) -> tuple[Assumption, ...]:
    """What the figure rests on; of a map of the user's own nobody here knows that it is fixed."""
    bits = "numpy's Philox under the seed" if seed_known else "the operating system"
    return (
        Assumption(
            "Features are a fixed function of one record, not fitted to the private data.",
            holds=True if feature_map.built_in else None,
        ),
        Assumption(
            "Rows and sums are exact integers and the noise is rounded exactly, given independent "
            f"random bits: those of {bits}.",
            holds=None if seed_known else True,
        ),
        *common_assumptions(seed_known, computed_from_data),
    )
