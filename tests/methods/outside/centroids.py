"""A sound method of somebody's own, as a newcomer would add one: noisy sums by class, once.

Rows are scaled to norm 1 at most and summed by class; one input changes one sum by 1 at most, so
Gaussian noise of standard deviation σ on all sums is one Gaussian release under zero-out. The
model compares a row with the sums, divided by the public class counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from simplexdp import claims, data, evaluation, sampling
from simplexdp.accounting import events
from simplexdp.accounting.gaussian import calibrate_mu
from simplexdp.methods.base import Method, Options, Prepared, Run, Trained, option


@dataclass(frozen=True)
class CentroidOptions(Options):
    """The options of the method."""

    radius: float = option(1.0, "The norm to which rows are scaled down.")


class Model(nn.Module):
    """Rows against centroids, both of norm 1 at most."""

    def __init__(self, width: int, classes: int, radius: float) -> None:
        super().__init__()
        self.radius = radius
        self.linear = nn.Linear(width, classes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return logits."""
        rows = clipped(inputs.flatten(1), self.radius)
        logits: torch.Tensor = self.linear(rows)
        return logits


def clipped(rows: torch.Tensor, radius: float) -> torch.Tensor:
    """Scale rows down to a norm."""
    return rows * (radius / rows.norm(dim=1, keepdim=True)).clamp(max=1.0)


class Centroids(Method):
    """Release noisy class sums of clipped inputs, once."""

    name = "centroids"
    title = "noisy centroids"
    bound = "Gaussian, exact"
    revision = 4
    Options = CentroidOptions

    def takes(self, settings: Any) -> frozenset[str]:
        """Return which of the optional settings it uses."""
        return frozenset()

    def prepare(self, settings: Any, dataset: data.Dataset, seed: int) -> Prepared:
        """Settle everything about a training and spend nothing."""
        radius = self.options(settings).radius
        sigma = 1.0 / calibrate_mu(settings.epsilon, settings.delta)
        model = Model(int(np.prod(dataset.input_shape)), dataset.classes, radius)
        coverage = claims.Coverage(
            method=self.title,
            covers=claims.WEIGHTS,
            accountant="Gaussian, exact",
            epsilon=lambda e: events.compose([e], settings.delta),
            delta=settings.delta,
            relation="zero-out",
            sampling="none: one release of all records",
            covered=("the released weights",),
            not_covered=claims.BESIDE_THE_WEIGHTS,
            assumptions=claims.common_assumptions(
                settings.seed is not None, dataset.computed_from_data
            ),
            mechanism={"name": "Gaussian"},
        )
        start = partial(_start, model, dataset, sigma, seed)
        return Prepared(
            events.gaussian(sigma),
            coverage,
            model,
            "centroids",
            1,
            {"radius": radius},
            start,
            releases={"sums": 1.0 / sigma},
        )

    def rebuild(self, description: Any) -> nn.Module:
        """Return the model that a bundle describes."""
        radius = self.Options.of(self.name, description.options).radius
        width = int(np.prod(description.shape))
        return Model(width, len(description.class_names), radius)


def _start(model: Model, dataset: data.Dataset, sigma: float, seed: int, run: Run) -> Trained:
    run.pay()
    inputs = data.to_model_input(torch.from_numpy(np.array(dataset.train.inputs)))
    rows = clipped(inputs.flatten(1).double(), model.radius)
    one_hot = nn.functional.one_hot(torch.from_numpy(dataset.train.labels), dataset.classes)
    sums = (one_hot.double().T @ rows).numpy()
    draw = sampling.stream(seed, "centroids", 0).normal(size=sums.shape)
    noisy = sums + model.radius * sigma * draw
    sums = run.on_release("sums", sums, noisy, model.radius * sigma)
    means = torch.from_numpy(sums / np.bincount(dataset.train.labels)[:, None])
    with torch.no_grad():
        model.linear.weight.copy_(means)
        model.linear.bias.copy_(-0.5 * (means**2).sum(1))
    return Trained(model, evaluation.evaluate(model, dataset.test, "cpu"), None, 0.0)


METHOD = Centroids()
