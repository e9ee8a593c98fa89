"""The trained form of Gaussian features: the network below the noise trains too.

Formal guarantee
    None for the weights. At fixed weights one pass over a batch releases clipped features with
    noise σ·clip, and T such passes cost what T Poisson-sampled Gaussian releases cost. But
    gradients below the noise are products with derivatives at the raw inputs, so the update is not
    post-processing of those releases, just as in Algorithm 1. The bound is that of the noised
    features, for updates that would touch the inputs only through them.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from simplexdp import data, sampling, training
from simplexdp.accounting import events
from simplexdp.accounting.sampled_gaussian import calibrate
from simplexdp.accounting.totals import COUPLED
from simplexdp.claims import DRAWS, Assumption, Coverage, common_assumptions, large_delta
from simplexdp.methods import _network
from simplexdp.methods.base import Prepared, Run, Trained
from simplexdp.settings import Settings

if TYPE_CHECKING:
    from simplexdp.methods.gaussian_features import GaussianOptions

LEARNING_RATE = 0.1
CLIP = 1.0
NOT_COVERED = (
    "The released weights.  Gradients below the noise contain derivatives at the raw inputs: "
    "back-propagation is not post-processing of the noised features."
)


def layer_above(model: nn.Module, name: str | None, shape: tuple[int, ...]) -> nn.Module:
    """Return the layer whose input is noised: the one of this name, or the last linear one.

    A pass in training must use it once: one release is charged a step.
    """
    layers: dict[str, nn.Module] = {at: module for at, module in model.named_modules() if at}
    if name is None:
        linear = [at for at, module in layers.items() if isinstance(module, nn.Linear)]
        if not linear:
            raise ValueError(
                "no linear layer to put the noise below; name one with --option layer="
            )
        name = linear[-1]
    if name not in layers:
        raise ValueError(f"the model has no layer {name!r}; use one of {', '.join(layers)}")
    uses = _uses(model, name, shape)
    if uses != 1:
        raise ValueError(
            f"a pass uses the layer {name!r} {uses} times and one release is charged; name "
            "a layer that is used once with --option layer="
        )
    return layers[name]


def _uses(model: nn.Module, name: str, shape: tuple[int, ...]) -> int:
    """Return how often a pass in training calls a layer, seen on a copy."""
    seen: list[str] = []
    probe = copy.deepcopy(model).train()
    probe.get_submodule(name).register_forward_pre_hook(lambda *_: seen.append(name))
    with torch.no_grad():
        probe(torch.zeros(2, *shape, device=next(model.parameters()).device))
    return len(seen)


def noisy(features: Tensor, clip: float, sigma: float, rng: np.random.Generator) -> Tensor:
    """Return each record's features clipped to norm ≤ clip, plus noise sigma·clip."""
    rows = features.flatten(1)
    factors = (clip / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp_max(1.0)
    draw = rng.standard_normal(tuple(rows.shape)).astype(np.float32) * (sigma * clip)
    noised = rows * factors + torch.from_numpy(draw).to(rows.device)
    return torch.as_tensor(noised.view(features.shape))


def prepare_below(
    settings: Settings, options: GaussianOptions, dataset: data.Dataset, seed: int
) -> Prepared:
    """Settle the training of a network with noise before its last layer, or before `layer`."""
    clip, below = CLIP if options.clip is None else float(options.clip), options.layer
    records = len(dataset.train.labels)
    batch_size, steps = _network.by_epochs(settings, records, min(256, records // 20))
    sample_rate = batch_size / records
    name, model = _network.model_for(settings, dataset, seed)
    separate = _network.is_separate(name, model, dataset.input_shape)
    # The command line reads a name of digits as a number.
    layer = layer_above(model, None if below is None else str(below), dataset.input_shape)
    sigma, _ = calibrate(settings.epsilon, settings.delta, sample_rate, steps)
    descent = _network.Descent(settings, options, model, steps, LEARNING_RATE)
    step_now = [0]

    def hook(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if not model.training:
            return None
        rng = sampling.stream(seed, "feature-noise", step_now[0])
        return (noisy(arguments[0], clip, sigma, rng),)

    def update(inputs: Tensor, labels: Tensor, step: int) -> float | None:
        step_now[0] = step
        if len(labels) == 0:
            return None
        descent.set_rate(step)
        descent.optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(inputs), labels).backward()
        descent.optimizer.step()
        descent.average(step)
        return None

    job = descent.job(update, dataset, sample_rate, seed)

    def start(run: Run) -> Trained:
        handle = layer.register_forward_pre_hook(hook)
        try:
            return training.train(job, run)
        finally:
            handle.remove()

    return Prepared(
        event=events.sampled_gaussian(sigma, sample_rate, steps),
        coverage=Coverage(
            method="gaussian-features (trained below the noise)",
            covers=DRAWS,
            accountant="privacy loss distribution, for the noised features",
            epsilon=lambda event: events.compose([event], settings.delta),
            delta=settings.delta,
            relation="zero-out",
            sampling=f"Poisson, rate {batch_size}/{records}",
            covered=("the noised features, if updates touched the inputs only through them",),
            not_covered=(NOT_COVERED, "Predictions of the model and its checkpoints."),
            assumptions=(
                Assumption("Updates touch the data only through the noised features.", False),
                Assumption(
                    "Hidden participation: an unsampled record is not told apart from a sampled "
                    "one by the absence of its noised features.",
                ),
                Assumption(
                    "A record's features depend on that record alone (no batch norm).",
                    separate,
                    COUPLED,
                ),
                *common_assumptions(settings.seed is not None, dataset.computed_from_data),
            ),
            mechanism={"name": "Gaussian", "noise_multiplier": sigma, "clip": clip},
        ),
        model=model,
        model_name=name,
        steps=steps,
        resolved={
            "batch_size": batch_size,
            "sample_rate": sample_rate,
            "lr": descent.lr,
            "noise_multiplier": sigma,
            "clip": clip,
        },
        start=start,
        notes=(*dataset.provenance, *large_delta(settings.delta, records)),
    )
