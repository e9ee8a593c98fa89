"""Features with Gaussian noise, after the idea of Monir and Ghinita (2024).

Two forms. ``fixed`` (the default): features are a fixed map of each record, clipped, and noise is
added to them once; whatever is trained above the noise sees nothing else of the inputs.
``trained``: the noise is added to the features below a chosen layer of a network in every step, and
what is below it trains too. Of the published method only the idea is known here; this is no
reproduction of it.

Formal guarantee
    fixed: every record's features, clipped to norm ``clip``, are released once with noise σ·clip.
    That is a Gaussian mechanism of μ = 1/σ under zero-out and 2/σ under replace-input; all that
    follows is post-processing, however long the head trains, so its weights are (ε, δ)-private,
    exactly (Balle and Wang, 2018). A record's noised features depend on no other record, so the
    release could be made on the person's own machine.
    trained: nothing for the weights; see ``trained_features``.
    Assumptions: labels are public; those of ``noise`` and ``exact_sums.quantize``.
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from simplexdp import data, features, models, noise
from simplexdp.accounting import events
from simplexdp.accounting.gaussian import calibrate_mu
from simplexdp.bundle import Description
from simplexdp.claims import BESIDE_THE_WEIGHTS, WEIGHTS, Coverage, large_delta
from simplexdp.evaluation import refuse_not_finite
from simplexdp.linear import public_log_prior
from simplexdp.linear.exact_sums import LARGEST_BOUND, ROW_UNIT, STRIDE, blocks, quantize
from simplexdp.linear.whitening import RAW_ROW_BOUND
from simplexdp.methods import _network, _on_features
from simplexdp.methods.base import (
    OF_A_NETWORK,
    Audited,
    Prepared,
    Run,
    Trained,
    option,
    positive,
)
from simplexdp.settings import Settings

FORMS = FIXED, TRAINED = "fixed", "trained"
OF_FIXED = ("features", "relation", "dimensions", "penalty")
OF_TRAINED = ("layer", *(f.name for f in dataclasses.fields(_network.NetworkOptions)))
# Noise falls on every coordinate: a public random projection keeps few of them.
DIMENSIONS = 128
PROJECTION_SEED = 20240801
PENALTY = 1.0
CLIP = RAW_ROW_BOUND
SENSITIVITY = {"zero-out": 1.0, "replace-input": 2.0}
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GaussianOptions(_network.NetworkOptions):
    """The options of both forms; each refuses those of the other."""

    form: str = option(FIXED, "Noise on fixed features, or below a layer in every step.", FORMS)
    features: str = option("auto", _on_features.FEATURES_HELP)
    relation: str = option("zero-out", "The neighbouring relation.", tuple(SENSITIVITY))
    dimensions: int = option(DIMENSIONS, "To how many coordinates features are projected.")
    penalty: float = option(PENALTY, "The floor of the covariance, in units of its error.")
    clip: float | None = option(None, "The norm to which features are clipped.")
    layer: str | int | None = option(None, "The layer below which the trained form adds noise.")


class GaussianFeatures(_on_features.OnFeatures):
    """Add Gaussian noise to features, and train above it."""

    name = "gaussian-features"
    title = "Gaussian features"
    bound = "Gaussian"
    revision = 2  # scattering features in another order of sums
    covers_draws = covers_weights = "yes, with fixed features"
    probabilities = False
    Options = GaussianOptions
    audited = Audited(
        removes=True,
        visible=_on_features.COLUMNS,
        pairs=_on_features.COLUMNS,
        in_out=_on_features.COLUMNS,
    )

    def takes(self, settings: Settings) -> frozenset[str]:
        """Return which of the optional settings it uses: the fixed form none."""
        return OF_A_NETWORK if _is_trained(settings) else frozenset()

    def called(self, settings: Settings) -> str:
        """Return how errors name it."""
        return self.name if _is_trained(settings) else f"the fixed form of {self.name}"

    def options(self, settings: Settings) -> GaussianOptions:
        """Return its own options; refuse what it would ignore."""
        options: GaussianOptions = super().options(settings)
        others, own = (OF_FIXED, TRAINED) if options.form == TRAINED else (OF_TRAINED, FIXED)
        for name in others:
            if name in settings.options:
                other = FIXED if own == TRAINED else TRAINED
                raise ValueError(f"the option {name} belongs to the {other} form; leave it out")
        if options.clip is not None:
            positive("clip", options.clip)
        if options.form == FIXED and (options.clip or CLIP) > LARGEST_BOUND:
            raise ValueError(
                f"the clip is {options.clip}; it must be positive and at most {LARGEST_BOUND}"
            )
        if options.dimensions < 1:
            raise ValueError(f"the dimensions are {options.dimensions}; give 1 or more")
        if not 0 <= options.penalty < math.inf:
            raise ValueError(f"the penalty is {options.penalty!r}; give a number of 0 or more")
        return options

    def prepare(self, settings: Settings, dataset: data.Dataset, seed: int) -> Prepared:
        """Settle everything about a training and spend nothing."""
        options = self.options(settings)
        if options.form == TRAINED:
            from simplexdp.methods.gaussian_features.trained import prepare_below

            return prepare_below(settings, options, dataset, seed)
        return self._prepare_fixed(settings, options, dataset)

    def _prepare_fixed(
        self, settings: Settings, options: GaussianOptions, dataset: data.Dataset
    ) -> Prepared:
        began = time.monotonic()
        clip = float(CLIP if options.clip is None else options.clip)
        refuse_not_finite(dataset)
        # The last digits: what the rounded sigma costs stays within the budget.
        mu = calibrate_mu(settings.epsilon, settings.delta) * (1.0 - 1e-12)
        sigma = SENSITIVITY[options.relation] / mu
        feature_map = self.feature_map(settings, dataset.input_shape, dataset.features_from)
        basis = projection(feature_map.width, options.dimensions)
        model = ProjectedLinear(feature_map, basis, dataset.classes, dataset.pixels)
        labels = dataset.train.labels
        event = events.gaussian(sigma / SENSITIVITY[options.relation])
        coverage = Coverage(
            method="gaussian-features (fixed features, noised once for each record)",
            covers=WEIGHTS,
            accountant="Gaussian, exact (Balle and Wang 2018)",
            epsilon=lambda event: events.compose([event], settings.delta),
            delta=settings.delta,
            relation=options.relation,
            sampling="none: every record is released once",
            covered=("the noised features of every record", "the weights, trained on nothing else"),
            not_covered=(
                _on_features.CACHED,
                *([_on_features.REPLACED] if options.relation == "zero-out" else []),
                *_on_features.encoder_notes(feature_map, dataset),
                *BESIDE_THE_WEIGHTS,
            ),
            assumptions=_on_features.assumptions(
                feature_map, settings.seed is not None, dataset.computed_from_data, dataset
            ),
            mechanism={
                "name": "Gaussian",
                "noise": noise.SAMPLER,
                "noise_multiplier": sigma,
                "mu": SENSITIVITY[options.relation] / sigma,
                "clip": clip,
                **_on_features.described(feature_map, dataset),
            },
            proviso=_on_features.proviso(feature_map, dataset),
            draws_too=True,
        )

        def start(run: Run) -> Trained:
            rows = _on_features.compute(dataset, feature_map, run.folder is not None, run.without)
            run.pay()
            bits = _on_features.noise_bits(settings.seed)
            released = noised(rows.train, basis, clip, sigma, bits, run.on_release)
            weights, bias = head(
                released, labels, dataset.classes, (sigma * clip) ** 2, options.penalty
            )
            # Rows were shortened to the clip where it is below 1, and the model's are of norm 1.
            model.set(weights * min(1.0, clip), bias)

            def score(rows: NDArray[Any], truth: NDArray[Any]) -> float:
                with torch.no_grad():
                    found = [model.on_features(block).argmax(1).numpy() for block in blocks(rows)]
                return float((np.concatenate(found) == truth).mean())

            epsilon = coverage.epsilon(event)
            return _on_features.trained(run, model, dataset, rows, score, 1, epsilon, began)

        return Prepared(
            event=event,
            coverage=coverage,
            model=model,
            model_name=f"{feature_map.name}+{basis.shape[1]}+linear",
            steps=1,
            resolved={
                "noise_multiplier": sigma,
                "mu": SENSITIVITY[options.relation] / sigma,
                "clip": clip,
                "dimensions": basis.shape[1],
                "relation": options.relation,
            },
            start=start,
            notes=(
                "After the idea of Monir and Ghinita (2024), whose full text was not at hand.",
                *dataset.provenance,
                *large_delta(settings.delta, len(labels)),
            ),
            releases={"features": SENSITIVITY[options.relation] / sigma},
        )

    def rebuild(self, description: Description) -> torch.nn.Module:
        """Return the model that a bundle describes."""
        classes = len(description.class_names)
        if description.on_features:
            feature_map = features.build(description.features, description.shape)
            kept = int(description.options.get("dimensions", DIMENSIONS))
            basis = projection(feature_map.width, kept)
            return ProjectedLinear(feature_map, basis, classes, description.pixels)
        return models.build(description.model, description.shape, classes, description.norm)

    def check_null(self, settings: Settings, input_shape: tuple[int, ...]) -> None:
        """Refuse an audit in whose trainings an input of zeros is not the null record."""
        if _is_trained(settings):
            raise ValueError(
                "the trained form of gaussian-features has no null record; use --relation pair"
            )


def _is_trained(settings: Settings) -> bool:
    return settings.options.get("form") == TRAINED


def projection(width: int, dimensions: int) -> torch.Tensor:
    """Return a public random map with orthonormal columns, so that norms never grow."""
    rng = np.random.default_rng(PROJECTION_SEED)
    basis, _ = np.linalg.qr(rng.standard_normal((width, min(width, dimensions))))
    return torch.from_numpy(basis).float()


def noised(
    rows: NDArray[Any],
    basis: torch.Tensor,
    clip: float,
    sigma: float,
    bits: noise.Bits,
    on_release: noise.OnRelease = noise.unheard,
) -> Floats:
    """Return projected rows of norm ≤ clip, each released once with noise sigma·clip."""
    out = np.empty((len(rows), basis.shape[1]))
    for index, block in enumerate(blocks(rows)):
        # The projection shortens rows to about √(kept/width); they are brought back to norm 1.
        short = functional.normalize(block @ basis, dim=1)
        whole = quantize(short, clip).integers[:].numpy().astype(np.int64)
        scaled = sigma * clip / ROW_UNIT
        released = on_release("features", whole, noise.release(whole, scaled, bits), scaled)
        out[index * STRIDE : index * STRIDE + len(block)] = released * ROW_UNIT
    return out


def head(
    rows: Floats, labels: NDArray[np.int64], classes: int, noise_variance: float, penalty: float
) -> tuple[Floats, Floats]:
    """Return linear discriminants from noised rows: post-processing, with the noise taken out of Σ.

    The second moment of noised rows is that of the rows plus noise_variance·I, which is known and
    subtracted; eigenvalues are floored at the size of the estimate's own error.
    """
    counts = np.bincount(labels, minlength=classes)
    means = np.zeros((classes, rows.shape[1]))
    np.add.at(means, labels, rows)
    means /= np.maximum(counts, 1)[:, None]
    centred = rows - means[labels]
    values, axes = np.linalg.eigh(
        centred.T @ centred / len(rows) - noise_variance * np.eye(rows.shape[1])
    )
    error = noise_variance * np.sqrt(rows.shape[1] / len(rows))
    inverse = (axes / np.maximum(values, penalty * error + 1e-6)) @ axes.T
    weights = inverse @ means.T
    prior = public_log_prior(labels, classes)
    return weights, -0.5 * np.einsum("cd,dc->c", means, weights) + prior


class ProjectedLinear(_on_features.FeatureLinear):
    """Fixed features, a public projection to unit rows, and one linear layer."""

    def __init__(
        self, feature_map: features.FeatureMap, basis: torch.Tensor, classes: int, pixels: bool
    ) -> None:
        super().__init__(feature_map, classes, pixels)
        self.linear = _on_features.zeroed(torch.nn.Linear(basis.shape[1], classes))
        self.register_buffer("basis", basis.contiguous())

    def on_features(self, rows: torch.Tensor) -> torch.Tensor:
        """Return logits of raw feature rows."""
        short = functional.normalize(rows @ torch.as_tensor(self.basis), dim=1)
        return super().on_features(short)


METHOD = GaussianFeatures()
