"""The shipped DP-SGD, broken by one function at a time, is caught; as shipped it is not.

Everything runs through the canary audit: a record that is in or removed (add/remove), held against
the claim itself.  The attacked trainings are those in which theory leaves the least room between
the claim and what an attack can show in some hundred trainings: one step with almost every record
in the batch is close to one Gaussian release, so claim and attack meet at every δ; a large δ is
where few trainings see most.  Seeds are fixed; for other seeds an unbroken mechanism would be above
its claim with probability at most 1 − CONFIDENCE, and in fact far less often: half of the trainings
choose the threshold, and Clopper–Pearson limits are wide.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from simplexdp import data, training
from simplexdp.audit import canary, schedules
from simplexdp.methods import dpsgd
from simplexdp.methods.dpsgd import step as dpsgd_step
from simplexdp.settings import Settings

CONFIDENCE = 0.99


@pytest.fixture
def schedule(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the size of the attacked trainings."""

    def chosen(records: int, rate: float, steps: int) -> None:
        monkeypatch.setattr(schedules, "CANARY_RECORDS", records)
        facts = dataclasses.replace(dpsgd.METHOD.audited, rate=rate, steps=steps)
        monkeypatch.setattr(dpsgd.DPSGD, "audited", facts)

    return chosen


def attacked(
    dataset: data.Dataset, trials: int, delta: float, noise: float, clip: float = 1.0
) -> dict[str, Any]:
    settings = Settings(
        method="dpsgd",
        epsilon=10.0,  # an upper limit: the claim is that of the noise given
        delta=delta,
        lr=0.01,
        options={"noise_multiplier": noise, "clip": clip},
    )
    rng = np.random.default_rng(11)
    return canary.audit(settings, dataset, rng, trials, CONFIDENCE, relation="in-out")


def test_half_the_noise_is_caught(
    images: data.Dataset, schedule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step at q = 0.99 is a Gaussian release of μ = 1/σ = 1.5; with half the noise μ = 3."""
    schedule(records=100, rate=0.99, steps=1)
    right = attacked(images, 480, 0.3, 2 / 3)
    assert right["claim"]["relation"] == "in or out (add/remove)"
    assert 0.9 < right["claim"]["epsilon"] < 1.2
    assert right["epsilon_lower"] < right["claim"]["epsilon"]

    def weak(model: Any, totals: Any, chosen: dpsgd_step.StepParameters, rng: Any) -> None:
        half = dataclasses.replace(chosen, noise_multiplier=chosen.noise_multiplier / 2)
        dpsgd_step.set_noisy_gradient(model, totals, half, rng)

    monkeypatch.setattr(dpsgd, "set_noisy_gradient", weak)
    broken = attacked(images, 480, 0.3, 2 / 3)
    assert broken["claim"] == right["claim"]
    assert broken["epsilon_lower"] > broken["claim"]["epsilon"]


def test_clipping_left_out_is_caught(
    images: data.Dataset, schedule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The canary's gradient is many times the clip: unclipped it stands out of the noise."""
    schedule(records=100, rate=0.99, steps=1)
    right = attacked(images, 120, 1e-5, 4.0, clip=0.05)
    assert right["claim"]["epsilon"] < 1.2
    assert right["epsilon_lower"] < right["claim"]["epsilon"]

    def unclipped(model: Any, inputs: Any, labels: Any, chosen: Any, *rest: Any) -> Any:
        without = dataclasses.replace(chosen, clip=1e9)
        return dpsgd_step.clipped_sum(model, inputs, labels, without, *rest)

    monkeypatch.setattr(dpsgd, "clipped_sum", unclipped)
    broken = attacked(images, 120, 1e-5, 4.0, clip=0.05)
    assert broken["epsilon_lower"] > broken["claim"]["epsilon"]


def shuffled_batches(steps: int) -> Any:
    """In place of Poisson batches: every record in exactly one of `steps` batches of an epoch."""
    waiting: list[Any] = []

    def batch(records: int, sample_rate: float, rng: np.random.Generator) -> Any:
        if not waiting:
            waiting.extend(np.array_split(rng.permutation(records), steps))
        return np.sort(waiting.pop())

    return batch


def test_shuffled_batches_are_caught(
    images: data.Dataset, schedule: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One epoch of T = 4 steps at q = 1/4, with little noise.

    A Poisson-sampled record is in no batch at all with probability (1 − q)^T = 0.316, whatever the
    noise, and then the weights are those of its absence: training is (0, 0.684)-DP under
    add/remove, and the accountant claims no more than ε = 0 at δ = 0.7.  A shuffled epoch uses
    every record once.  With its one contribution well above the noise, TPR − FPR is close to 1:
    no ε below log((TPR − 0.7)/FPR) holds.  At the usual δ both kinds of batches have large ε with
    so little noise, and with much noise a few hundred trainings tell neither from its claim; what
    is shown here is the amplification that an accountant takes for granted and shuffling lacks.
    """
    schedule(records=20, rate=0.25, steps=4)
    right = attacked(images, 200, 0.7, 0.08)
    assert right["claim"]["epsilon"] == 0.0
    assert right["epsilon_lower"] == 0.0
    monkeypatch.setattr(training.sampling, "poisson_batch", shuffled_batches(4))
    broken = attacked(images, 400, 0.7, 0.08)
    assert broken["claim"] == right["claim"]
    assert broken["epsilon_lower"] > 0.3 > broken["claim"]["epsilon"]
