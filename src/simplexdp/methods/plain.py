"""Poisson batches without noise: the ε = ∞ column of a table, and no guarantee at all."""

from __future__ import annotations

from functools import partial

from torch import Tensor
from torch.nn import functional

from simplexdp import data, distributed, ledger, training
from simplexdp.methods.outcome import (
    CLASS_WEIGHTS,
    Outcome,
    class_weights_of,
    model_for,
    refuse_options,
    reserve,
    seed_of,
    steps_from_epochs,
)
from simplexdp.runs import RunFolder
from simplexdp.schedule import EFFECTIVE_LEARNING_RATE, rate_for, schedule
from simplexdp.settings import DEFAULTS, Settings
from simplexdp.statement import Statement


def _loss(logits: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    if len(labels) == 0:  # another process has records of this batch
        return logits.sum() * 0.0
    if weights is None:
        return functional.cross_entropy(logits, labels)
    # Not torch's own weights: it would divide by the sum of the weights in this batch.
    losses = functional.cross_entropy(logits, labels, reduction="none")
    return (losses * weights.to(losses)[labels]).mean()


def train(
    settings: Settings, dataset: data.Dataset, run: RunFolder | None, show_progress: bool = False
) -> Outcome:
    """Train on the cross entropy, with the batches and the optimizer of Algorithm 1."""
    records = len(dataset.train.labels)
    seed = distributed.agree(seed_of(settings, run))
    refuse_options(settings, (CLASS_WEIGHTS,))
    weights = class_weights_of(settings, dataset)
    # The batches of Algorithm 1 at ε = 1, since without privacy no budget asks for others.
    batch_size, steps = schedule(
        records,
        DEFAULTS.epsilon,
        DEFAULTS.delta,
        settings.batch_size,
        steps_from_epochs(settings, records, settings.batch_size),
        DEFAULTS.alpha,
    )
    name, model = model_for(settings, dataset, seed)
    lr = settings.lr or rate_for(settings.optimizer, EFFECTIVE_LEARNING_RATE)
    optimizer = training.make_optimizer(settings.optimizer, model, lr)
    criterion = partial(_loss, weights=weights)
    parallel = distributed.parallel(model)

    def update(inputs: Tensor, labels: Tensor, step: int) -> float | None:
        return distributed.descend(parallel, optimizer, criterion, inputs, labels)

    trained = training.train(
        training.Job(
            model=model,
            update=update,
            dataset=dataset,
            sample_rate=batch_size / records,
            steps=steps,
            seed=seed,
            settings=settings,
            optimizer=optimizer,
            reserve=lambda: reserve(settings, run, ledger.no_guarantee(), ledger.NOTHING),
        ),
        run,
        show_progress,
    )
    return Outcome.of(
        trained,
        model,
        name,
        Statement(
            method="plain",
            mechanism={"name": "none"},
            epsilon=None,
            delta=None,
            accountant="none",
            relation="none",
            sampling=f"Poisson, rate {batch_size}/{records}",
            steps=steps,
            covers_draws=False,
            covers_weights=False,
            covers=(),
            does_not_cover=("Anything: the training has no privacy mechanism.",),
            notes=dataset.provenance,
        ),
        {
            "batch_size": batch_size,
            "sample_rate": batch_size / records,
            "lr": lr,
        },
    )
