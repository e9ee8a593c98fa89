"""The noise and the clip of DP-SGD, at the gradient that its optimizer is given.

Null records have no gradient in the weights of a linear layer: what the optimizer sees there is
noise alone: 12 million draws, whose standard deviation is off by 0.1 % in one case of a million;
the seed is fixed.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional
from torch.optim.optimizer import register_optimizer_step_pre_hook

from simplexdp import DPSGDPlan, data, methods, sampling
from simplexdp.methods.base import Run
from simplexdp.methods.dpsgd import step as dpsgd_step
from simplexdp.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
CLIP, SIGMA = 0.3, 2.5


def gradients(
    inputs: np.ndarray, batch_size: int, steps: int, **options: Any
) -> tuple[list[np.ndarray], Any]:
    """What the optimizer is given in each step, and the prepared training."""
    split = data.Split(inputs.astype(np.float32), np.arange(len(inputs)) % 3)
    settings = Settings(
        data="made",
        method="dpsgd",
        model="logistic",
        epsilon=400.0,
        steps=steps,
        lr=1e-9,  # no record is learnt meanwhile
        batch_size=batch_size,
        seed=3,
        options={"clip": CLIP, "noise_multiplier": SIGMA, **options},
    )
    prepared = methods.prepare(
        settings, data.Dataset("made", split, split, None, ("a", "b", "c")), 3
    )
    seen: list[np.ndarray] = []

    def see(optimizer: torch.optim.Optimizer, *_: object) -> None:
        given = [p.grad for group in optimizer.param_groups for p in group["params"]]
        seen.append(np.concatenate([g.numpy().ravel() for g in given]))

    handle = register_optimizer_step_pre_hook(see)
    try:
        prepared.start(Run())
    finally:
        handle.remove()
    assert len(seen) == steps
    return seen, prepared


@pytest.mark.parametrize("rescale", [False, True])
def test_every_step_adds_the_noise_of_its_event(rescale: bool) -> None:
    records, width, steps = 20, 200_000, 4 if rescale else 20
    seen, prepared = gradients(
        np.zeros((records, width)), 2, steps, microbatch=1, rescale_to_unit_norm=rescale
    )
    weights = [given[: 3 * width] for given in seen]  # the bias has a gradient
    noise = np.concatenate(weights).astype(np.float64) * 2.0 * (CLIP if rescale else 1.0)
    claimed = prepared.event.event.event.noise_multiplier * CLIP
    error = 4.9 / math.sqrt(2 * noise.size)
    assert rescale or error < 1.01e-3
    assert noise.std() / claimed == pytest.approx(1.0, abs=error)
    assert abs(noise.mean()) < 4.9 * claimed / math.sqrt(noise.size)
    assert stats.kstest(noise[:: noise.size // 200_000] / claimed, "norm").pvalue > 1e-6
    products = [float((a * b).mean()) for a, b in itertools.pairwise(weights)]
    limit = 6 * float(weights[0].var()) / math.sqrt(3 * width)
    assert max(map(abs, products)) < limit


def test_a_plan_for_a_loop_of_ones_own_adds_the_noise_of_its_event() -> None:
    """12.6 million draws: their deviation is off by 0.1 % in one case of a million."""
    records, width, batch, steps = 20, 200_000, 2, 21
    plan = DPSGDPlan(2.0, 1e-5, records, batch_size=batch, steps=steps, clip=CLIP, seed=3)
    event = plan.event()
    assert (event.count, event.event.sampling_probability) == (steps, batch / records)
    model = torch.nn.Linear(width, 3, bias=False)
    seen = []
    null = torch.zeros(records, width), torch.zeros(records, dtype=torch.int64)
    for rows in plan.batches(null):
        plan.gradient(model, rows, lambda m, b: functional.cross_entropy(m(b[0]), b[1]))
        assert model.weight.grad is not None
        seen.append(model.weight.grad.numpy().ravel().astype(np.float64) * batch)
    noise, claimed = np.concatenate(seen), event.event.event.noise_multiplier * CLIP
    error = 4.9 / math.sqrt(2 * noise.size)
    assert error < 1e-3
    assert noise.std() / claimed == pytest.approx(1.0, abs=error)
    assert abs(noise.mean()) < 4.9 * claimed / math.sqrt(noise.size)
    assert stats.kstest(noise[:: noise.size // 200_000] / claimed, "norm").pvalue > 1e-6
    products = [float((a * b).mean()) for a, b in itertools.pairwise(seen)]
    assert max(map(abs, products)) < 6 * claimed**2 / math.sqrt(3 * width)


def test_the_outermost_normals_are_as_fine_as_the_others() -> None:
    """Of the lowest two of 2^32 levels, r²/2 − 31 log 2 is exponential; Kolmogorov at 10^-6."""

    class Lowest:
        """A generator whose 32 bits of radius are 0 or 1."""

        def __init__(self) -> None:
            self.rng = np.random.default_rng(0)
            self.bit_generator, self.random = self, self.rng.random

        def random_raw(self, count: int) -> np.ndarray:
            words = self.rng.integers(0, 2**32, 2 * count, dtype=np.uint32)
            words[1::2] %= 2
            return words.view(np.uint64)

    found = dpsgd_step.normals(Lowest(), 2 * dpsgd_step.PAIRS)  # type: ignore[arg-type]
    cosines, sines = found.astype(np.float64).reshape(2, -1)
    energy = (cosines**2 + sines**2) / 2
    assert stats.kstest(energy - 31 * math.log(2.0), "expon").pvalue > 1e-6
    angle = np.arctan2(sines, cosines)
    assert stats.kstest(angle / math.pi, stats.uniform(-1, 2).cdf).pvalue > 1e-6


def test_one_record_moves_the_gradient_by_the_clip_over_the_public_divisor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without noise, k times one enormous record in a batch, among null ones: k times the clip."""
    monkeypatch.setattr(dpsgd_step, "normals", lambda rng, count: np.zeros(count, np.float32))
    inputs, records, batch, steps = np.zeros((30, 50)), 30, 10, 6
    inputs[::3] = 100.0  # those of the first class: all the same, and the others null
    seen, prepared = gradients(inputs, batch, steps)
    assert prepared.event.count == steps
    assert prepared.event.event.sampling_probability == batch / records
    for step, given in enumerate(seen):
        drawn = sampling.batch_of_step(records, batch / records, 3, step)
        heavy = sum(int(i) % 3 == 0 for i in drawn)
        norm = float(np.linalg.norm(given[: 3 * 50]))
        assert norm * batch == pytest.approx(heavy * CLIP, rel=1e-3)
