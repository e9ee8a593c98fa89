"""Algorithm 1: perturb the softmax output of every record in the loss, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from torch import Tensor

from simplexdp import accounting, data, distributed, mechanism, progress, training
from simplexdp.methods import _network
from simplexdp.methods.base import (
    OF_A_NETWORK,
    OF_DRAWS,
    Audited,
    Prepared,
    Run,
    Trained,
    option,
)
from simplexdp.plan import Plan
from simplexdp.schedule import lopsided, warmup_steps
from simplexdp.settings import ADAPTIVE, Settings

WEIGHTED = (
    "Losses are weighted by class, from the public labels and after the draws: the bound is the "
    "same as without, and the trained weights, which it does not cover, follow records of rare "
    "classes more closely."
)


@dataclass(frozen=True)
class DirichletOptions(_network.NetworkOptions):
    """The options of Algorithm 1."""

    class_weights: str | None = option(None, _network.WEIGHTS_HELP, (_network.BALANCED,))
    link: str = option(
        "softmax", "What the mechanism is given: softmax, or log, a variant.", mechanism.LINKS
    )
    link_bound: float = option(mechanism.LINK_BOUND, "B of the link log.")


class Dirichlet(_network.NetworkMethod):
    """Train with Algorithm 1.

    Formal guarantee
        Statement: the bound of the chosen accountant is on the sequence of draws, under the
        assumptions in the statement. It does not cover the released weights.
        Source: `simplexdp.plan.Plan`, `simplexdp.accounting`.
    """

    name = "dirichlet"
    title = "Dirichlet (Algorithm 1)"
    bound = "Theorem 1; exact Rényi; PLD; visible participation"
    covers_draws = "only under assumptions that Algorithm 1 breaks"
    probabilities = False
    covers_weights = "no"
    Options = DirichletOptions
    # The perfect separation of its worlds is limited by the number of trainings alone.
    audited = Audited(adds_noise=False, trials=400)

    def takes(self, settings: Settings) -> frozenset[str]:
        """Return which of the optional settings it uses."""
        return OF_A_NETWORK | OF_DRAWS

    def prepare(self, settings: Settings, dataset: data.Dataset, seed: int) -> Prepared:
        """Settle everything about a training and spend nothing."""
        options = self.options(settings)
        weights = _network.class_weights(options.class_weights, dataset)
        counts = np.bincount(dataset.train.labels, minlength=dataset.classes)
        records = len(dataset.train.labels)
        plan = Plan(
            settings.epsilon,
            settings.delta,
            records,
            batch_size=settings.batch_size,
            steps=_network.steps_from_epochs(settings, records, settings.batch_size),
            alpha=settings.alpha,
            accountant=settings.accountant,
            estimator=cast(mechanism.Estimator, settings.estimator),
            link=cast(mechanism.Link, options.link),
            link_bound=float(options.link_bound),
            seed=distributed.own_seed(seed),  # for the noise; the batches follow the run's seed
        )
        plan.seed_known = settings.seed is not None
        name, model = _network.model_for(settings, dataset, seed)
        by_rule = settings.lr is None and options.effective_lr is None
        large = by_rule and settings.optimizer not in ADAPTIVE  # γ_eff / κ
        descent = _network.Descent(
            settings,
            options,
            model,
            plan.steps,
            plan.learning_rate(settings.optimizer),
            plan.attenuation,
            warmup_steps(counts, plan.steps) if large else 0,
        )
        descent.check_average()
        criterion = plan.loss(weights)
        parallel = distributed.parallel(model)

        def update(inputs: Tensor, labels: Tensor, step: int) -> float | None:
            plan.begin_step(len(labels), poisson=True)  # `training` draws the batches
            descent.set_rate(step)
            loss = distributed.descend(parallel, descent.optimizer, criterion, inputs, labels)
            descent.average(step)
            return loss

        has_order = accounting.lookup(plan.accountant).has_order
        job = descent.job(
            update,
            dataset,
            plan.sample_rate,
            seed,
            # A numerical composition takes seconds: it is made once, at the end.
            epsilon_spent=lambda step: (
                plan.epsilon_spent(step) if has_order or step == plan.steps else None
            ),
            on_resume=plan.resume_at,
            weighable=weights is None,
        )

        def start(run: Run) -> Trained:
            if run.folder is not None and weights is None and distributed.is_first():
                _warn_of_rare_classes(counts)
            return training.train(job, run)

        return Prepared(
            event=plan.event(),
            coverage=plan.coverage(
                separate=_network.is_separate(name, model, dataset.input_shape),
                computed_from_data=dataset.computed_from_data,
                poisson=True,
            ),
            model=model,
            model_name=name,
            steps=plan.steps,
            resolved={
                "r": plan.r,
                "order": plan.order,
                "batch_size": plan.batch_size,
                "sample_rate": plan.sample_rate,
                "lr": descent.lr,
                **({"warmup": descent.warmup} if descent.warmup else {}),
            },
            start=start,
            notes=(
                *dataset.provenance,
                *([] if weights is None else [WEIGHTED]),
                *plan.notes(),
            ),
        )


def _warn_of_rare_classes(counts: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    """Say before anything is spent what the public class counts tell."""
    if lopsided(counts):
        progress.warn(
            f"the classes have {counts.min()} to {counts.max()} records: Algorithm 1 is slow to "
            "find rare ones and may predict the largest alone; --option class_weights=balanced "
            "makes all of them weigh alike, and another --lr may help"
        )


METHOD = Dirichlet()
