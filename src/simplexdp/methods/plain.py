"""Training without noise on Poisson batches: the ε = ∞ column of a table, and no claim at all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor
from torch.nn import functional

from simplexdp import data, distributed, training
from simplexdp.accounting import events
from simplexdp.claims import NOTHING, Coverage
from simplexdp.methods import _network
from simplexdp.methods.base import Audited, Prepared, option
from simplexdp.schedule import EFFECTIVE_LEARNING_RATE, rate_for, schedule
from simplexdp.settings import DEFAULTS, Settings


@dataclass(frozen=True)
class PlainOptions(_network.NetworkOptions):
    """The options of plain training."""

    class_weights: str | None = option(None, _network.WEIGHTS_HELP, (_network.BALANCED,))


def _loss(logits: Tensor, labels: Tensor, weights: Tensor | None) -> Tensor:
    if len(labels) == 0:  # another process has records of this batch
        return logits.sum() * 0.0
    if weights is None:
        return functional.cross_entropy(logits, labels)
    # Not torch's own weights: it would divide by the sum of the weights in this batch.
    losses = functional.cross_entropy(logits, labels, reduction="none")
    return (losses * weights.to(losses)[labels]).mean()


class Plain(_network.NetworkMethod):
    """Train on the cross entropy, with the batches and the optimizer of Algorithm 1."""

    name = "plain"
    title = "plain"
    bound = "none"
    covers_weights = "no"
    Options = PlainOptions
    audited = Audited(adds_noise=False)

    def prepare(self, settings: Settings, dataset: data.Dataset, seed: int) -> Prepared:
        """Settle everything about a training and spend nothing."""
        options = self.options(settings)
        weights = _network.class_weights(options.class_weights, dataset)
        records = len(dataset.train.labels)
        # The batches of Algorithm 1 at ε = 1, since without privacy no budget asks for others.
        batch_size, steps = schedule(
            records,
            DEFAULTS.epsilon,
            DEFAULTS.delta,
            settings.batch_size,
            _network.steps_from_epochs(settings, records, settings.batch_size),
            DEFAULTS.alpha,
        )
        name, model = _network.model_for(settings, dataset, seed)
        by_rule = rate_for(settings.optimizer, EFFECTIVE_LEARNING_RATE)
        descent = _network.Descent(settings, options, model, steps, by_rule)
        descent.check_average()
        parallel = distributed.parallel(model)
        criterion = partial(_loss, weights=weights)

        def update(inputs: Tensor, labels: Tensor, step: int) -> float | None:
            descent.set_rate(step)
            loss = distributed.descend(parallel, descent.optimizer, criterion, inputs, labels)
            descent.average(step)
            return loss

        rate = batch_size / records
        job = descent.job(update, dataset, rate, seed, weighable=weights is None)
        return Prepared(
            event=events.no_guarantee(),
            coverage=Coverage(
                method="plain",
                covers=NOTHING,
                accountant="none",
                epsilon=lambda event: None,
                delta=None,
                relation="none",
                sampling=f"Poisson, rate {batch_size}/{records}",
                not_covered=("Anything: the training has no privacy mechanism.",),
                mechanism={"name": "none"},
            ),
            model=model,
            model_name=name,
            steps=steps,
            resolved={
                "batch_size": batch_size,
                "sample_rate": batch_size / records,
                "lr": descent.lr,
                **({"warmup": descent.warmup} if descent.warmup else {}),
            },
            start=partial(training.train, job),
            notes=dataset.provenance,
        )


METHOD = Plain()
