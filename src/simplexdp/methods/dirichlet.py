"""Algorithm 1: softmax outputs perturbed with the Dirichlet mechanism in every step."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
from torch import Tensor

from simplexdp import (
    accounting,
    data,
    distributed,
    ledger,
    mechanism,
    progress,
    training,
)
from simplexdp.methods.outcome import (
    CLASS_WEIGHTS,
    Outcome,
    class_weights_of,
    is_separate,
    model_for,
    number_of,
    refuse_options,
    reserve,
    seed_of,
    steps_from_epochs,
)
from simplexdp.plan import Plan
from simplexdp.runs import RunFolder
from simplexdp.schedule import lopsided, warmup_steps
from simplexdp.settings import ADAPTIVE, Settings

WARMUP = "warmup"
WEIGHTED = (
    "Losses are weighted by class, from the public labels and after the draws: the figure is the "
    "same as without, and the trained weights, which it does not cover, follow records of rare "
    "classes more closely."
)


def train(
    settings: Settings, dataset: data.Dataset, run: RunFolder | None, show_progress: bool = False
) -> Outcome:
    """Train with Algorithm 1.

    Formal guarantee: the figure of the chosen accountant bounds the sequence of draws, under the
    assumptions in the statement.  It does not cover the released weights.
    """
    refuse_options(settings, (CLASS_WEIGHTS, WARMUP))
    weights = class_weights_of(settings, dataset)
    counts = np.bincount(dataset.train.labels, minlength=dataset.classes)
    if run is not None and weights is None and distributed.is_first() and lopsided(counts):
        _warn_of_rare_classes(counts)
    records = len(dataset.train.labels)
    seed = distributed.agree(seed_of(settings, run))
    plan = Plan(
        settings.epsilon,
        settings.delta,
        records,
        batch_size=settings.batch_size,
        steps=steps_from_epochs(settings, records, settings.batch_size),
        alpha=settings.alpha,
        accountant=settings.accountant,
        estimator=cast(mechanism.Estimator, settings.estimator),
        seed=distributed.own_seed(seed),  # for the noise; the batches follow the run's seed
    )
    plan.seed_known = settings.seed is not None
    name, model = model_for(settings, dataset, seed)
    separate = is_separate(name, model, dataset.input_shape)
    lr = settings.lr if settings.lr is not None else plan.learning_rate(settings.optimizer)
    large = settings.lr is None and settings.optimizer not in ADAPTIVE  # γ_eff / κ
    by_rule = warmup_steps(counts, plan.steps) if large else 0
    warmup = number_of(settings.options, WARMUP, by_rule, whole=True)
    if warmup < 0:
        raise ValueError(f"the option {WARMUP} is {warmup}; give a number of steps, 0 for none")
    optimizer = training.make_optimizer(settings.optimizer, model, lr)
    criterion = plan.loss(weights)
    parallel = distributed.parallel(model)

    def update(inputs: Tensor, labels: Tensor, step: int) -> float | None:
        plan.begin_step(len(labels), poisson=True)  # `training` draws the batches
        training.set_rate(optimizer, lr, step, warmup)
        return distributed.descend(parallel, optimizer, criterion, inputs, labels)

    has_order = accounting.lookup(plan.accountant).has_order
    trained = training.train(
        training.Job(
            model=model,
            update=update,
            dataset=dataset,
            sample_rate=plan.sample_rate,
            steps=plan.steps,
            seed=seed,
            settings=settings,
            optimizer=optimizer,
            # A numerical composition takes seconds: it is made once, at the end.
            epsilon_spent=lambda step: (
                plan.epsilon_spent(step) if has_order or step == plan.steps else None
            ),
            on_resume=plan.resume_at,
            reserve=lambda: reserve(
                settings, run, plan.event(), ledger.DRAWS, dataset.computed_from_data, separate
            ),
        ),
        run,
        show_progress,
    )
    return Outcome.of(
        trained,
        model,
        name,
        plan.statement(
            separate=separate,
            computed_from_data=dataset.computed_from_data,
            notes=(*dataset.provenance, *([] if weights is None else [WEIGHTED])),
        ),
        {
            "r": plan.r,
            "order": plan.order,
            "batch_size": plan.batch_size,
            "sample_rate": plan.sample_rate,
            "lr": lr,
            **({WARMUP: warmup} if warmup else {}),
        },
    )


def _warn_of_rare_classes(counts: npt.NDArray[np.int64]) -> None:
    """Say before anything is spent what the public class counts tell."""
    progress.warn(
        f"the classes have {counts.min()} to {counts.max()} records: Algorithm 1 is slow to "
        "find rare ones and may predict the largest alone; --option class_weights=balanced "
        "makes all of them weigh alike, and another --lr may help"
    )
