"""What if the network below the Gaussian noise trains too? Then the weights are not covered.

Formal guarantee
    None for the weights. At fixed weights one pass over a batch releases clipped features with
    noise σ·clip, and T such passes cost what T Poisson-sampled Gaussian releases cost (PRV). But
    gradients below the noise are products with derivatives at the raw inputs, so the update is not
    post-processing of those releases, just as in Algorithm 1. The figure is that of the noised
    features, for updates that would touch the inputs only through them.
"""

from __future__ import annotations

import copy
import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from simplexdp import data, ledger, sampling, training
from simplexdp.methods.outcome import (
    Outcome,
    by_epochs,
    is_separate,
    model_for,
    number_of,
    reserve,
    seed_of,
)
from simplexdp.runs import RunFolder
from simplexdp.settings import Settings
from simplexdp.statement import Assumption, Statement, common_assumptions, large_delta

LEARNING_RATE = 0.1
CLIP = 1.0
NOT_COVERED = (
    "The released weights.  Gradients below the noise contain derivatives at the raw inputs: "
    "back-propagation is not post-processing of the noised features."
)


def layer_above(model: nn.Module, name: str | None, shape: tuple[int, ...]) -> nn.Module:
    """The layer whose input is noised: the one of this name, or the last linear one.

    A pass in training must use it once: the figure charges one release a step.
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
            f"a pass uses the layer {name!r} {uses} times and the figure charges one release; name "
            "a layer that is used once with --option layer="
        )
    return layers[name]


def _uses(model: nn.Module, name: str, shape: tuple[int, ...]) -> int:
    """How often a pass in training calls a layer, seen on a copy."""
    seen: list[str] = []
    probe = copy.deepcopy(model).train()
    probe.get_submodule(name).register_forward_pre_hook(lambda *_: seen.append(name))
    with torch.no_grad():
        probe(torch.zeros(2, *shape, device=next(model.parameters()).device))
    return len(seen)


def noisy(features: Tensor, clip: float, sigma: float, rng: np.random.Generator) -> Tensor:
    """Each record's features clipped to norm ≤ clip, plus noise sigma·clip."""
    rows = features.flatten(1)
    factors = (clip / rows.norm(dim=1, keepdim=True).clamp_min(1e-12)).clamp_max(1.0)
    draw = rng.standard_normal(tuple(rows.shape)).astype(np.float32) * (sigma * clip)
    noised = rows * factors + torch.from_numpy(draw).to(rows.device)
    return torch.as_tensor(noised.view(features.shape))


def train_below(
    settings: Settings, dataset: data.Dataset, run: RunFolder | None, show_progress: bool = False
) -> Outcome:
    """Train all of a network with noise before its last layer, or before the one named."""
    from simplexdp.methods.prv import calibrate

    for name in ("features", "relation", "dimensions", "penalty"):
        if name in settings.options:
            raise ValueError(f"the option {name} belongs to the fixed form; leave it out")
    clip = float(number_of(settings.options, "clip", CLIP))
    if not 0 < clip < math.inf:
        raise ValueError(f"the clip is {clip}; it must be positive")
    records = len(dataset.train.labels)
    batch_size, steps = by_epochs(settings, records, min(256, records // 20))
    sample_rate = batch_size / records
    seed = seed_of(settings, run)
    name, model = model_for(settings, dataset, seed)
    separate = is_separate(name, model, dataset.input_shape)
    below = settings.options.get("layer")  # the command line reads a name of digits as a number
    layer = layer_above(model, None if below is None else str(below), dataset.input_shape)
    sigma, epsilon = calibrate(settings.epsilon, settings.delta, sample_rate, steps)
    lr = settings.lr or LEARNING_RATE
    optimizer = training.make_optimizer(settings.optimizer, model, lr)
    step_now = [0]

    def hook(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if not model.training:
            return None
        rng = sampling.stream(seed, "feature-noise", step_now[0])
        return (noisy(arguments[0], clip, sigma, rng),)

    handle = layer.register_forward_pre_hook(hook)

    def update(inputs: Tensor, labels: Tensor, step: int) -> float | None:
        step_now[0] = step
        if len(labels) == 0:
            return None
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        return None

    event = ledger.sampled_gaussian(sigma, sample_rate, steps)
    try:
        trained = training.train(
            training.Job(
                model=model,
                update=update,
                dataset=dataset,
                sample_rate=sample_rate,
                steps=steps,
                seed=seed,
                settings=settings,
                optimizer=optimizer,
                reserve=lambda: reserve(
                    settings, run, event, ledger.DRAWS, dataset.computed_from_data, separate
                ),
            ),
            run,
            show_progress,
        )
    finally:
        handle.remove()
    return Outcome.of(
        trained,
        model,
        name,
        Statement(
            method="gaussian-features (trained below the noise)",
            mechanism={"name": "Gaussian", "noise_multiplier": sigma, "clip": clip},
            epsilon=epsilon,
            delta=settings.delta,
            accountant="PRV (Opacus), for the noised features",
            relation="zero-out",
            sampling=f"Poisson, rate {batch_size}/{records}",
            steps=steps,
            covers_draws=False,  # for the first assumption below
            covers_weights=False,
            covers=("the noised features, if updates touched the inputs only through them",),
            does_not_cover=(NOT_COVERED, "Predictions of the model and its checkpoints."),
            assumptions=(
                Assumption("Updates touch the data only through the noised features.", False),
                Assumption(
                    "Hidden participation: an unsampled record is not told apart from a sampled "
                    "one by the absence of its noised features.",
                ),
                Assumption(
                    "A record's features depend on that record alone (no batch norm).",
                    separate,
                ),
                *common_assumptions(settings.seed is not None, dataset.computed_from_data),
            ),
            notes=(*dataset.provenance, *large_delta(settings.delta, records)),
        ),
        {
            "batch_size": batch_size,
            "sample_rate": sample_rate,
            "lr": lr,
            "noise_multiplier": sigma,
            "clip": clip,
        },
    )
