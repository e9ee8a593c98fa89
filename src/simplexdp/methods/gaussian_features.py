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

import math
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from simplexdp import data, features, ledger, noise
from simplexdp.accounting.gaussian import calibrate_mu, gaussian_epsilon
from simplexdp.linear.classifier import public_log_prior
from simplexdp.linear.exact_sums import LARGEST_BOUND, ROW_UNIT, STRIDE, blocks, quantize
from simplexdp.linear.whitening import RAW_ROW_BOUND
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

OPTIONS = ("form", "features", "relation", "dimensions", "penalty", "clip", "layer")
FORMS = ("fixed", "trained")
# Noise falls on every coordinate: a public random projection keeps few of them.
DIMENSIONS = 128
PROJECTION_SEED = 20240801
PENALTY = 1.0
CLIP = RAW_ROW_BOUND
SENSITIVITY = {"zero-out": 1.0, "replace-input": 2.0}
Floats = NDArray[np.float64]


def train(
    settings: Settings, dataset: data.Dataset, run: RunFolder | None, show_progress: bool = False
) -> Outcome:
    """Train in the form that the options name."""
    refuse_options(settings, OPTIONS)
    form = str(settings.options.get("form", "fixed"))
    if form not in FORMS:
        raise ValueError(f"unknown form {form!r} of gaussian-features; use {' or '.join(FORMS)}")
    if form == "trained":
        from simplexdp.methods.trained_features import train_below

        return train_below(settings, dataset, run, show_progress)
    return _train_fixed(settings, dataset, run)


def projection(width: int, dimensions: int) -> torch.Tensor:
    """A public random map to fewer coordinates with orthonormal columns: norms never grow."""
    rng = np.random.default_rng(PROJECTION_SEED)
    basis, _ = np.linalg.qr(rng.standard_normal((width, min(width, dimensions))))
    return torch.from_numpy(basis).float()


def noised(
    rows: NDArray[Any], basis: torch.Tensor, clip: float, sigma: float, bits: noise.Bits
) -> Floats:
    """Projected rows of norm ≤ clip, each released once with noise sigma·clip."""
    out = np.empty((len(rows), basis.shape[1]))
    for index, block in enumerate(blocks(rows)):
        # The projection shortens rows to about √(kept/width); they are brought back to norm 1.
        short = functional.normalize(block @ basis, dim=1)
        whole = quantize(short, clip).integers.numpy().astype(np.int64)
        released = noise.release(whole, sigma * clip / ROW_UNIT, bits)
        out[index * STRIDE : index * STRIDE + len(block)] = released * ROW_UNIT
    return out


def head(
    rows: Floats, labels: NDArray[np.int64], classes: int, noise_variance: float, penalty: float
) -> tuple[Floats, Floats]:
    """Linear discriminants from noised rows: post-processing, with the noise taken out of Σ.

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


def _train_fixed(settings: Settings, dataset: data.Dataset, run: RunFolder | None) -> Outcome:
    began = time.monotonic()
    # Every record is noised once.
    fixed_features.refuse_network(settings, "the fixed form of gaussian-features", ("steps", "lr"))
    options = settings.options
    if "layer" in options:
        raise ValueError("the option layer belongs to the trained form; leave it out")
    relation = str(options.get("relation", "zero-out"))
    if relation not in SENSITIVITY:
        raise ValueError(f"unknown relation {relation!r}; use {' or '.join(SENSITIVITY)}")
    clip = float(number_of(options, "clip", CLIP))
    dimensions = int(number_of(options, "dimensions", DIMENSIONS, whole=True))
    if not 0 < clip <= LARGEST_BOUND:
        raise ValueError(f"the clip is {clip}; it must be positive and at most {LARGEST_BOUND}")
    if dimensions < 1:
        raise ValueError(f"the dimensions are {dimensions}; give 1 or more")
    penalty = number_of(options, "penalty", PENALTY)
    if not 0 <= penalty < math.inf:
        raise ValueError(f"the penalty is {penalty!r}; give a number of 0 or more")
    refuse_not_finite(dataset)
    # The last digits: what the rounded sigma costs stays within the budget.
    mu = calibrate_mu(settings.epsilon, settings.delta) * (1.0 - 1e-12)
    sigma = SENSITIVITY[relation] / mu
    feature_map = features.build(str(options.get("features", "auto")), dataset.input_shape)
    basis = projection(feature_map.width, dimensions)
    rows = fixed_features.compute(dataset, feature_map, keep=run is not None)
    event = ledger.gaussian(sigma / SENSITIVITY[relation])
    reserve(settings, run, event, ledger.WEIGHTS, dataset.computed_from_data)
    released = noised(rows.train, basis, clip, sigma, fixed_features.noise_bits(settings.seed))
    weights, bias = head(
        released,
        dataset.train.labels,
        dataset.classes,
        (sigma * clip) ** 2,
        penalty,
    )
    model = ProjectedLinear(feature_map, basis, dataset.classes, has_pixels(dataset))
    with torch.no_grad():
        # Rows were shortened to the clip where it is below 1, and the model's are of norm 1.
        model.linear.weight.copy_(torch.from_numpy(weights.T * min(1.0, clip)))
        model.linear.bias.copy_(torch.from_numpy(bias))

    def accuracy(rows: NDArray[Any], labels: NDArray[np.int64]) -> float:
        with torch.no_grad():
            found = [model.on_features(block).argmax(1).numpy() for block in blocks(rows)]
        return float((np.concatenate(found) == labels).mean())

    mu = SENSITIVITY[relation] / sigma
    statement = _statement(settings, dataset, feature_map, relation, mu, sigma, clip)
    reached = accuracy(rows.test, dataset.test.labels)
    seconds = time.monotonic() - began
    fixed_features.log(run, 1, reached, statement.epsilon, seconds)
    return Outcome(
        model=model,
        model_name=f"{feature_map.name}+{basis.shape[1]}+linear",
        statement=statement,
        accuracy=reached,
        validation_accuracy=(
            None
            if dataset.validation is None or rows.validation is None
            else accuracy(rows.validation, dataset.validation.labels)
        ),
        steps=1,
        seconds=seconds,
        chosen={
            "noise_multiplier": sigma,
            "mu": mu,
            "clip": clip,
            "dimensions": basis.shape[1],
            "relation": relation,
            "parameters": int(weights.size + bias.size),
        },
    )


class ProjectedLinear(fixed_features.FeatureLinear):
    """Fixed features, a public projection to unit rows, and one linear layer."""

    def __init__(
        self, feature_map: features.FeatureMap, basis: torch.Tensor, classes: int, pixels: bool
    ) -> None:
        super().__init__(feature_map, classes, pixels)
        self.linear = torch.nn.Linear(basis.shape[1], classes)
        self.register_buffer("basis", basis.contiguous())

    def on_features(self, rows: torch.Tensor) -> torch.Tensor:
        """Logits of raw feature rows."""
        short = functional.normalize(rows @ torch.as_tensor(self.basis), dim=1)
        return super().on_features(short)


def _statement(
    settings: Settings,
    dataset: data.Dataset,
    feature_map: features.FeatureMap,
    relation: str,
    mu: float,
    sigma: float,
    clip: float,
) -> Statement:
    return Statement(
        method="gaussian-features (fixed features, noised once for each record)",
        mechanism={
            "name": "Gaussian",
            "noise": noise.SAMPLER,
            "noise_multiplier": sigma,
            "mu": mu,
            "clip": clip,
            "features": feature_map.name,
        },
        epsilon=gaussian_epsilon(mu, settings.delta),
        delta=settings.delta,
        accountant="Gaussian, exact (Balle and Wang 2018)",
        relation=relation,
        sampling="none: every record is released once",
        steps=1,
        covers_draws=True,
        covers_weights=True,
        covers=("the noised features of every record", "the weights, trained on nothing else"),
        does_not_cover=(
            fixed_features.CACHED,
            *([fixed_features.REPLACED] if relation == "zero-out" else []),
            *BESIDE_THE_WEIGHTS,
        ),
        assumptions=fixed_features.assumptions(
            feature_map, settings.seed is not None, dataset.computed_from_data
        ),
        notes=(
            "After the idea of Monir and Ghinita (2024), whose full text was not at hand.",
            *dataset.provenance,
            *large_delta(settings.delta, len(dataset.train.labels)),
        ),
        proviso=fixed_features.proviso(feature_map),
    )
