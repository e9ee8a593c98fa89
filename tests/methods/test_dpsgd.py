"""DP-SGD: the clipped sum, its sensitivity, the noise, and what is refused."""

from __future__ import annotations

import copy
import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from simplexdp import data, methods, models, training
from simplexdp.methods import _run, dpsgd
from simplexdp.methods.dpsgd import step as dpsgd_step
from simplexdp.methods.dpsgd.layers import Explicit
from simplexdp.methods.dpsgd.probe import hooked
from simplexdp.methods.dpsgd.step import StepParameters
from simplexdp.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def parameters(**changes: object) -> StepParameters:
    values = {
        "clip": 0.7,
        "noise_multiplier": 1.3,
        "expected_batch": 10.0,
        "rescale": False,
        "copies": 1,
        "augmentations": (),
        "microbatch": 4,
    }
    return StepParameters(**{**values, **changes})  # type: ignore[arg-type]


def batch(count: int = 9, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    inputs = torch.rand(count, 1, 8, 8, generator=rng) * 2 - 1
    return inputs, torch.randint(0, 3, (count,), generator=rng)


def network(name: str = "mlp") -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    model = models.build(name, (1, 8, 8), 3, "group")
    plain = copy.deepcopy(model)
    hooked(model)
    return model, plain


def by_hand(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, clip: float):
    """One backward pass for each record, clipped one by one."""
    totals = [torch.zeros_like(p) for p in model.parameters()]
    for x, y in zip(inputs, labels, strict=True):
        loss = nn.functional.cross_entropy(model(x[None]), y[None])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradients))
        for total, gradient in zip(totals, gradients, strict=True):
            total += gradient * min(1.0, clip / norm)
    return totals


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", ["mlp", "cnn", "logistic"])
@pytest.mark.parametrize("microbatch", [1, 4, 100])
def test_clipped_sum_equals_one_backward_pass_a_record(name: str, microbatch: int) -> None:
    model, plain = network(name)
    inputs, labels = batch()
    got = dpsgd_step.clipped_sum(model, inputs, labels, parameters(microbatch=microbatch), rng())
    want = by_hand(plain, inputs, labels, 0.7)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_weight_standardised_convolutions_have_right_gradients() -> None:
    pytest.importorskip("simplexdp.paper.networks.wrn")
    torch.manual_seed(0)
    model = models.build("wrn-16-4", (3, 8, 8), 3, "group")
    small = nn.Sequential(*list(model.children())[:1], nn.AdaptiveAvgPool2d(1), nn.Flatten())
    width = small(torch.zeros(1, 3, 8, 8)).shape[1]
    small.append(nn.Linear(width, 3))
    plain = copy.deepcopy(small)
    hooked(small)
    inputs = torch.rand(5, 3, 8, 8)
    labels = torch.tensor([0, 1, 2, 0, 1])
    got = dpsgd_step.clipped_sum(small, inputs, labels, parameters(), rng())
    for a, b in zip(got, by_hand(plain, inputs, labels, 0.7), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_one_record_moves_the_sum_by_at_most_the_clip() -> None:
    model, _ = network()
    inputs, labels = batch()
    with torch.no_grad():
        labels[-1] = model(inputs[-1:]).argmin()
    with_it = dpsgd_step.clipped_sum(model, inputs, labels, parameters(), rng())
    without = dpsgd_step.clipped_sum(model, inputs[:-1], labels[:-1], parameters(), rng())
    change = math.sqrt(
        sum(float(((a - b) ** 2).sum()) for a, b in zip(with_it, without, strict=True))
    )
    assert 0.5 * 0.7 < change <= 0.7 * (1 + 1e-4)


def test_gradients_of_mixed_precision_are_summed_in_single_precision() -> None:
    """In the eight bits of bfloat16 the sum of 1024 moves by 4 where one of them goes."""
    weight = nn.Parameter(torch.zeros(4))
    weight.grad_sample = torch.full((1024, 4), 0.5, dtype=torch.bfloat16)  # of norm 1
    found = dpsgd_step.per_record(weight, 1024, 1)
    assert found.dtype == torch.float32
    ones = torch.ones(1024)
    moved = torch.tensordot(ones, found, dims=1) - torch.tensordot(ones[1:], found[1:], dims=1)
    assert float(moved.norm()) == 1.0


def test_sums_are_not_shortened_by_autocast() -> None:
    """511.5 is no number of bfloat16, in which 1023 records would weigh as many as 1024."""
    totals = [torch.zeros(4)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        dpsgd_step._add_clipped(totals, [Explicit(torch.full((1023, 4), 0.5))], clip=1.0)
    assert torch.equal(totals[0], torch.full((4,), 511.5))


def test_products_in_fewer_bits_are_refused(tmp_path, blobs) -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(ValueError, match="one record could do more than the clip"):
            methods.run(Settings(data="blobs", method="dpsgd"), tmp_path / "run", dataset=blobs)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert not (tmp_path / "run").exists()


def test_a_record_without_a_finite_gradient_contributes_nothing() -> None:
    model, _ = network()
    inputs, labels = batch()
    inputs[-1] = float("inf")
    with_it = dpsgd_step.clipped_sum(model, inputs, labels, parameters(), rng())
    without = dpsgd_step.clipped_sum(model, inputs[:-1], labels[:-1], parameters(), rng())
    for a, b in zip(with_it, without, strict=True):
        torch.testing.assert_close(a, b)


def test_copies_are_averaged_before_clipping() -> None:
    """The mean gradient of a record's own augmented copies is what is clipped."""
    model, plain = network()
    inputs, labels = batch(3)
    chosen = parameters(copies=4, augmentations=("horizontal_flip",), clip=1e6)
    copies, targets = dpsgd_step.copies_of(inputs, labels, chosen, rng(5))
    assert len(copies) == 12
    got = dpsgd_step.clipped_sum(
        model, inputs, labels, parameters(**{**chosen.__dict__, "microbatch": 3}), rng(5)
    )
    want = by_hand(plain, copies, targets, 1e6)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b / 4, atol=1e-5, rtol=1e-4)
    tight = parameters(**{**chosen.__dict__, "clip": 0.01})
    total = dpsgd_step.clipped_sum(model, inputs, labels, tight, rng(5))
    assert math.sqrt(sum(float((t**2).sum()) for t in total)) <= 3 * 0.01 * (1 + 1e-4)


def test_the_noise_added_has_the_stated_law() -> None:
    """KS on 75,000 numbers at level 1e-5: noise is σ·clip over the public expected batch."""
    model, _ = network()
    zeros = [torch.zeros_like(p) for p in model.parameters()]
    dpsgd_step.set_noisy_gradient(model, zeros, parameters(), rng(1))
    added = torch.cat([p.grad.flatten() for p in model.parameters()]).numpy()
    assert stats.kstest(added * 10.0 / (1.3 * 0.7), "norm").pvalue > 1e-5
    dpsgd_step.set_noisy_gradient(model, zeros, parameters(rescale=True), rng(1))
    rescaled = torch.cat([p.grad.flatten() for p in model.parameters()]).numpy()
    np.testing.assert_allclose(rescaled, added / 0.7, rtol=1e-5)


def test_an_empty_batch_is_a_step_of_noise() -> None:
    model, _ = network()
    empty = torch.zeros(0, 1, 8, 8), torch.zeros(0, dtype=torch.int64)
    totals = dpsgd_step.clipped_sum(model, *empty, parameters(), rng())
    assert all(not bool(t.any()) for t in totals)
    dpsgd_step.set_noisy_gradient(model, totals, parameters(), rng())
    assert all(bool(p.grad.any()) for p in model.parameters())


def test_a_noise_within_the_budget_is_taken_as_given() -> None:
    settings = Settings(method="dpsgd", epsilon=1.0, delta=1e-5)
    options = dpsgd.METHOD.options(settings)
    sigma, cost = dpsgd.noise_for(settings, options, 0.05, 100)
    given = dataclasses.replace(options, noise_multiplier=sigma)
    assert dpsgd.noise_for(settings, given, 0.05, 100) == (sigma, cost)


def test_the_statement_says_what_stays_and_what_is_not_accounted_for() -> None:
    settings = Settings(method="dpsgd", epsilon=8.0)
    made = dpsgd.coverage(settings, data.load("digits"), parameters())
    assert "the rate and the divisor n·q stay" in made.sampling
    assert "Poisson" in made.sampling
    (rounding,) = [a for a in made.assumptions if "floating point" in a.text]
    assert rounding.holds is None


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(288, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


def test_batch_norm_is_refused_or_replaced_when_asked() -> None:
    with pytest.raises(ValueError, match="batch normalisation"):
        dpsgd.without_batch_norm(Normed(), replace_it=False)
    fixed = dpsgd.without_batch_norm(Normed(), replace_it=True)
    assert not models.has_batch_norm(fixed)


class Centred(nn.Module):
    """Subtracts the mean of the batch, which no layer's type gives away."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(math.prod(shape), classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(1)
        out: torch.Tensor = self.layer(flat - flat.mean(0) if self.training else flat)
        return out


class Remembering(nn.Module):
    """Keeps a running mean of its inputs in a layer that has no parameters."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm2d(shape[0], track_running_stats=True)
        self.layer = nn.Linear(math.prod(shape), classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(self.norm(x).flatten(1))
        return out


class Buffered(Centred):
    """Has a constant buffer beside its parameters, which Opacus does not take."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.norm = nn.LayerNorm(math.prod(shape))
        self.norm.register_buffer("constant", torch.ones(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(self.norm(x.flatten(1)))
        return out


class Plain(Centred):
    """A network of the user's own that treats each record by itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x.flatten(1))
        return out


def test_of_a_network_of_ones_own_coverage_is_not_claimed_outright() -> None:
    settings = Settings(
        data="digits", method="dpsgd", model=f"{__name__}:Plain", epsilon=8.0, steps=2
    )
    said = methods.train(settings, data.load("digits")).statement.headline()
    assert said.endswith(
        "covers the released weights, if this network treats each record by itself, which a probe "
        "cannot prove."
    )


@pytest.mark.parametrize(
    ("network", "words"),
    [(Centred, "depends on the others"), (Remembering, "statistics"), (Buffered, "Opacus")],
)
def test_networks_that_clipping_cannot_bound_are_refused(network: type, words: str) -> None:
    name = f"{__name__}:{network.__name__}"
    settings = Settings(data="digits", method="dpsgd", model=name, epsilon=8.0, steps=2)
    with pytest.raises(ValueError, match=words):
        methods.train(settings, data.load("digits"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"options": {"clip": 0.0}}, "clip"),
        ({"options": {"momentum": 1}}, "does not know"),
        ({"options": {"rescale_to_unit_norm": "False"}}, "true or false"),
        ({"options": {"replace_batch_norm": "no"}}, "true or false"),
        ({"options": {"microbatch": 0}, "epsilon": 8.0, "steps": 10}, "at least 1 record"),
        ({"options": {"augmentation_multiplicity": 4}}, "needs augmentations"),
        ({"options": {"weight_average": 1.0}}, "weight_average"),
        ({"options": {"clip": None}}, "the option clip is None; give a number"),
        ({"options": {"augmentation_multiplicity": 2.5}}, "give a whole number"),
        ({"options": {"noise_multiplier": 1e300}}, "at most 1e"),
        ({"options": {"noise_multiplier": "much"}}, "noise_multiplier is 'much'"),
        ({"options": {"noise_multiplier": 0.3}, "steps": 50}, "above the budget"),
        ({"epsilon": math.inf}, "epsilon must be a positive number"),
        ({"epsilon": math.inf, "options": {"noise_multiplier": 1.0}}, "a positive number"),
        ({"epsilon": 750.0}, "above 500, where noise protects nothing"),
        ({"epsilon": 750.0, "options": {"noise_multiplier": 0.02}}, "above 500"),
        ({"norm": "batch", "model": "resnet9"}, "batch normalisation"),
        ({"batch_size": 10_000}, "sampling rate"),
    ],
)
def test_bad_settings_are_refused(change: dict[str, object], words: str) -> None:
    settings = Settings(data="digits", method="dpsgd", **change)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=words):
        methods.train(settings, data.load("digits"))


def test_a_short_run_with_every_option(tmp_path: Path) -> None:
    settings = Settings(
        data="digits",
        method="dpsgd",
        model="logistic",
        epsilon=8.0,
        batch_size=200,
        steps=12,
        seed=1,
        augment=("random_crop",),
        options={
            "clip": 1.0,
            "noise_multiplier": 1.0,
            "rescale_to_unit_norm": True,
            "augmentation_multiplicity": 2,
            "weight_average": 0.9,
            "microbatch": 64,
        },
    )
    outcome, folder = methods.run(settings, tmp_path / "run")
    assert outcome.statement.covers_weights
    assert outcome.statement.epsilon <= 8.0
    assert outcome.steps == 12
    assert (folder.path / "model.safetensors").is_file()
    again, _ = methods.run(settings, tmp_path / "again")
    for a, b in zip(outcome.model.parameters(), again.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_a_run_with_averaged_weights_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blobs: data.Dataset, killed: Any
) -> None:
    settings = Settings(
        data="blobs", method="dpsgd", model="logistic", epsilon=8.0, batch_size=30, steps=9, seed=1,
        options={"weight_average": 0.9},
    )  # fmt: skip
    whole, _ = methods.run(settings, tmp_path / "whole", dataset=blobs)
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    with killed(training, "_save", lambda job, run, step, _: step == 5, after=True):
        methods.run(settings, tmp_path / "cut", dataset=blobs)
    # Augmentation is not in the loop's settings, and belongs to the run's all the same.
    monkeypatch.setattr(_run, "check_augmentation", lambda names, shape: None)
    other = dataclasses.replace(settings, augment=("random_crop",))
    with pytest.raises(ValueError, match="other settings"):
        methods.run(other, tmp_path / "cut", resume=True, dataset=blobs)
    cut, _ = methods.run(settings, tmp_path / "cut", resume=True, dataset=blobs)
    for a, b in zip(whole.model.parameters(), cut.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_floats_are_augmented_as_they_are() -> None:
    """Values outside [-1, 1] must not go through bytes."""
    inputs = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0)) * 5
    chosen = parameters(copies=2, augmentations=("horizontal_flip",), pixels=False)
    copies, _ = dpsgd_step.copies_of(inputs, torch.zeros(3, dtype=torch.int64), chosen, rng(5))
    for index, one in enumerate(copies):
        own = inputs[index // 2]
        assert torch.equal(one, own) or torch.equal(one, own.flip(2))


def test_digits_are_learned_at_a_large_budget() -> None:
    settings = Settings(
        data="digits",
        method="dpsgd",
        model="logistic",
        epsilon=100.0,
        steps=60,
        seed=1,
        options={"noise_multiplier": 0.5},
    )
    outcome = methods.train(settings, data.load("digits"))
    assert outcome.accuracy > 0.6


def test_normals_have_the_law_of_a_gaussian() -> None:
    """Moments of 4·10^6, tails of 2·10^7 on both sides of where they are made finer, shape (KS).

    Each bound is five standard errors, or a p-value of 1e-6: a false alarm has a chance below 1e-4.
    """
    found = dpsgd_step.normals(np.random.Generator(np.random.Philox(11)), 20_000_001)
    assert found.dtype == np.float32
    for beyond in (0.5, 4.0, 4.6, 4.8, 5.2):
        expected = len(found) * stats.norm.sf(beyond)
        for seen in (np.count_nonzero(found > beyond), np.count_nonzero(found < -beyond)):
            assert abs(seen - expected) < 5 * math.sqrt(expected), beyond
    wide = found[:4_000_000].astype(np.float64)
    squares = wide * wide
    for values, moment, variance in ((wide, 0, 1), (squares, 1, 2), (squares * squares, 3, 96)):
        assert abs(float(values.mean()) - moment) < 5 * math.sqrt(variance / len(wide))
    assert stats.kstest(wide[:500_000], "norm").pvalue > 1e-6
    half = dpsgd_step.PAIRS
    first, second = wide[:half], wide[half : 2 * half]
    assert stats.kstest((first**2 + second**2) / 2, "expon").pvalue > 1e-6
    assert abs(float(np.mean(first * second))) < 5 / math.sqrt(half)


class Bits:
    """A generator whose every word is the same."""

    def __init__(self, word: int) -> None:
        self.word, self.bit_generator = word, self

    def random_raw(self, count: int) -> np.ndarray:
        return np.full(count, self.word, dtype=np.uint64)

    def random(self, count: int) -> np.ndarray:
        return np.zeros(count)


@pytest.mark.parametrize(
    ("level", "radius"),
    [
        (0, math.sqrt(64 * math.log(2))),
        (2**16 - 1, math.sqrt(32 * math.log(2))),
        (2**31, math.sqrt(2 * math.log(2))),
        (2**32 - 1, math.sqrt(2.0**-32)),
    ],
)
def test_normals_at_the_ends_of_their_bits(level: int, radius: float) -> None:
    """A level's whole range leads to radii that are finite and not 0."""
    for angle, at in ((0, 0.0), (2**31, -math.pi), (2**30, math.pi / 2)):
        found = dpsgd_step.normals(Bits((level << 32) + angle), 2)  # type: ignore[arg-type]
        wanted = [radius * math.cos(at), radius * math.sin(at)]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6 * radius)
