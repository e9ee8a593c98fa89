"""DP-SGD in a loop of one's own: the gradients of single records, and one claim for all."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from simplexdp import DPSGDPlan, Settings, data, methods
from simplexdp.ledger import Ledger
from simplexdp.methods.dpsgd.plan import clipped_sums
from simplexdp.stepping import BudgetExhausted


def plan(**given: Any) -> DPSGDPlan:
    usual: dict[str, Any] = {"records": 300, "batch_size": 30, "steps": 4}
    return DPSGDPlan(4.0, 1e-5, **{**usual, **given})


def cross_entropy(model: nn.Module, batch: Any) -> torch.Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1])


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)
    )


def pairs(size: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 1, 4, 4, generator=generator)
    return x, torch.randint(0, 3, (size,), generator=generator)


@pytest.mark.parametrize("microbatch", [3, 64])
def test_the_sum_is_that_of_one_backward_pass_a_record(microbatch: int) -> None:
    model, (x, y), clip = network(), pairs(10), 0.7
    found = clipped_sums(model, (x, y), 10, cross_entropy, clip, microbatch)
    expected = [torch.zeros_like(p) for p in model.parameters()]
    clipped = 0
    for k in range(10):
        loss = functional.cross_entropy(model(x[k : k + 1]), y[k : k + 1])
        gradient = torch.autograd.grad(loss, list(model.parameters()))
        norm = torch.sqrt(sum((g**2).sum() for g in gradient))
        clipped += bool(norm > clip)
        for total, g in zip(expected, gradient, strict=True):
            total += g * min(1.0, clip / float(norm))
    assert clipped > 0
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-5)


def test_one_record_moves_the_sum_by_at_most_the_clip() -> None:
    model, (x, y) = network(), pairs(6)
    x[3] *= 1e6
    with_it = clipped_sums(model, (x, y), 6, cross_entropy, 0.1, 4)
    keep = [0, 1, 2, 4, 5]
    without = clipped_sums(model, (x[keep], y[keep]), 5, cross_entropy, 0.1, 4)
    moved = torch.sqrt(sum(((a - b) ** 2).sum() for a, b in zip(with_it, without, strict=True)))
    assert float(moved) <= 0.1 * (1 + 1e-4)
    x[3] = np.nan  # cannot be clipped, and so contributes nothing
    assert all(
        torch.allclose(a, b, atol=1e-6)
        for a, b in zip(clipped_sums(model, (x, y), 6, cross_entropy, 0.1, 4), without, strict=True)
    )


def test_the_noise_is_that_of_the_claim_also_in_an_empty_step() -> None:
    chosen = plan(clip=2.0, steps=3, records=10_000, batch_size=1)
    model = nn.Linear(4000, 5, bias=False)
    seen = []
    for _ in range(3):
        chosen.begin_step(0, poisson=True)
        empty = (torch.zeros(0, 4000), torch.zeros(0, dtype=torch.long))
        chosen.gradient(model, empty, cross_entropy)
        assert model.weight.grad is not None
        seen.append(model.weight.grad.clone())
    deviation = chosen.noise_multiplier * 2.0 / 1
    for gradient in seen:  # 20,000 draws: the deviation is known to half a percent
        assert float(gradient.std()) == pytest.approx(deviation, rel=0.03)
    assert not torch.allclose(seen[0], seen[1])


def test_it_costs_what_the_method_costs() -> None:
    digits = data.load("digits")
    settings = Settings(method="dpsgd", epsilon=4.0, batch_size=100, steps=7)
    prepared = methods.prepare(settings, digits)
    own = plan(records=len(digits.train), batch_size=100, steps=7)
    assert own.event() == prepared.event
    said = own.statement()
    assert said.covers_weights
    assert said.epsilon == prepared.statement().epsilon
    assert said.epsilon <= 4.0


@pytest.mark.parametrize("form", ["dictionary", "nested", "set"])
def test_records_of_any_form_with_a_declared_label(form: str) -> None:
    x, y = pairs(300)
    meta = torch.rand(300, 2)
    records: Any = {
        "dictionary": {"image": x, "extra": {"age": meta}, "y": y},
        "nested": (x, meta, y),
        "set": [{"image": x[k], "extra": {"age": meta[k]}, "y": int(y[k])} for k in range(300)],
    }[form]
    if form == "set":
        records = type("Records", (), {"__len__": lambda _: 300,
                                       "__getitem__": lambda _, k, r=records: r[k]})()  # fmt: skip
    place: Any = 2 if form == "nested" else "y"

    def loss(model: nn.Module, batch: Any) -> torch.Tensor:
        image, label = (batch[0], batch[2]) if form == "nested" else (batch["image"], batch["y"])
        return functional.cross_entropy(model(image), label)

    chosen, model = plan(seed=3), network()
    sizes = []
    for batch, labels in chosen.batches(records, label=place):
        sizes.append(len(labels))
        chosen.gradient(model, batch, loss)
        assert all(p.grad is not None for p in model.parameters())
    assert chosen.steps_done == 4
    again = plan(seed=3)
    assert sizes == [len(labels) for _, labels in again.batches((x, y))]


def test_a_loss_may_be_that_of_a_method_around_the_module() -> None:
    """As in Lightning: the loss does not use the module that it is given, but its own."""

    class Lit:
        def __init__(self) -> None:
            self.net = network()

        def training_step(self, batch: Any) -> torch.Tensor:
            return functional.cross_entropy(self.net(batch[0]), batch[1])

    lit, batch = Lit(), pairs(8)
    found = clipped_sums(lit.net, batch, 8, lambda _, b: lit.training_step(b), 1.0, 8)
    expected = clipped_sums(lit.net, batch, 8, cross_entropy, 1.0, 8)
    assert all(torch.allclose(a, b) for a, b in zip(found, expected, strict=True))
    with pytest.raises(ValueError, match="no parameter moves the loss"):
        clipped_sums(network(), batch, 8, lambda _, b: lit.training_step(b), 1.0, 8)


def test_a_record_without_a_gradient_is_not_told_by_a_refusal() -> None:
    """A null record among none other: its step is noise, as that of any other."""
    made = plan(batch_size=2, microbatch=1, steps=2)
    model = nn.Linear(3, 2, bias=False)
    batch = torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64)
    made.begin_step(1, poisson=True)
    made.gradient(model, batch, cross_entropy)
    assert bool((model.weight.grad != 0).all())


def test_a_module_that_keeps_statistics_is_refused() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)
            self.register_buffer("last", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.last = x.detach()[0]
            return self.linear(x)

    rows = (torch.randn(8, 4), torch.zeros(8, dtype=torch.long))
    with pytest.raises(ValueError, match="keeps statistics"):
        clipped_sums(Counts(), rows, 8, cross_entropy, 1.0, 8)
    batch_norm = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    with pytest.raises(ValueError, match="or changes a tensor in place"):
        clipped_sums(batch_norm, rows, 8, cross_entropy, 1.0, 8)


def test_a_gradient_is_taken_once_a_batch() -> None:
    chosen, model = plan(), network()
    with pytest.raises(BudgetExhausted, match="not the plan's current one"):
        chosen.gradient(model, pairs(1), cross_entropy)
    batches = chosen.batches(pairs(300))
    batch = next(batches)
    chosen.gradient(model, batch, cross_entropy)
    with pytest.raises(BudgetExhausted, match="was taken before"):
        chosen.gradient(model, batch, cross_entropy)
    next(batches)
    with pytest.raises(BudgetExhausted, match="not the plan's current one"):
        chosen.gradient(model, pairs(300), cross_entropy)


def test_a_plan_goes_on_and_is_charged_once(tmp_path: Any) -> None:
    records = pairs(300)
    straight, resumed = plan(seed=1), plan(seed=1)
    model = network()
    for batch in straight.batches(records):
        straight.gradient(model, batch, cross_entropy)
    last = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    resumed.resume_at(3)
    empty = (records[0][:0], records[1][:0])
    with pytest.raises(BudgetExhausted, match="not the plan's current one"):
        resumed.gradient(model, empty, cross_entropy)  # it would repeat the noise of step 3
    (batch,) = resumed.batches(records)
    resumed.gradient(model, batch, cross_entropy)
    assert all(torch.equal(a, p.grad) for a, p in zip(last, model.parameters(), strict=True))  # type: ignore[arg-type]
    with pytest.raises(BudgetExhausted, match="all 4 steps"):
        next(resumed.batches(records))
    assert any(a.holds is False for a in straight.statement().assumptions)  # the seed is known
    book = Ledger(tmp_path / "ledger.jsonl")
    book.reserve("mine", "dpsgd", straight.event(), "run", "weights")
    assert book.spent("mine", 1e-5).together == pytest.approx(straight.epsilon, rel=1e-6)


def test_other_records_than_those_of_the_step_are_noticed() -> None:
    chosen, model, records = plan(), network(), pairs(300)
    last: Any = None
    for x, y in chosen.batches(records, label=1):
        x, y = x
        for other in [(x.flip(0), y), (x + 1, y), (x, 2 - y), *([last] if last else [])]:
            if all(len(part) == len(y) for part in other):
                with pytest.raises(BudgetExhausted, match="not the records that batches"):
                    chosen.gradient(model, other, cross_entropy)
        chosen.gradient(model, [x.clone(), y.clone()], cross_entropy)  # as from another device
        last = tuple(part[torch.randint(0, len(y), (len(y),))] for part in (x, y))
    own = plan()
    next(iter(own.batches(records)))
    own.begin_step(5)  # a batch of one's own is known by its size alone
    own.gradient(model, pairs(5), cross_entropy)
    assert None in {a.holds for a in own.statement().assumptions}


def test_a_batch_that_was_changed_in_place_is_noticed() -> None:
    chosen, model = plan(), network()
    for x, y in chosen.batches(pairs(300)):
        x.mul_(2.0)
        with pytest.raises(BudgetExhausted, match="change records in the loss"):
            chosen.gradient(model, (x, y), cross_entropy)


def _branches(model: nn.Module, batch: Any) -> torch.Tensor:
    found = cross_entropy(model, batch)
    return found if found > 0 else 0 * found


@pytest.mark.parametrize(
    ("norm", "loss", "said"),
    [
        (nn.Identity(), lambda m, b: cross_entropy(m, b) * b[0].sum().item(), "takes a value out"),
        (nn.Identity(), lambda m, b: cross_entropy(m, (b[0].numpy(), b[1])), "takes a value out"),
        (nn.Identity(), lambda m, b: m(b[0])[b[1] > 0].sum(), "takes a value out"),
        (nn.Identity(), _branches, "takes a value out"),
        (nn.BatchNorm1d(4), cross_entropy, "use nn.GroupNorm"),
        (nn.BatchNorm1d(4, track_running_stats=False), cross_entropy, "use nn.GroupNorm"),
        (nn.Linear(5, 4), cross_entropy, "shapes cannot be multiplied"),
    ],
)
def test_what_torch_says_at_length_is_one_sentence(norm: nn.Module, loss: Any, said: str) -> None:
    chosen, model = plan(), nn.Sequential(nn.Flatten(), nn.Linear(16, 4), norm, nn.Linear(4, 3))
    batch = next(iter(chosen.batches(pairs(300))))
    with pytest.raises(ValueError, match=said) as told:
        chosen.gradient(model, batch, loss)
    assert "\n" not in str(told.value)
    assert len(str(told.value).split()) <= 30
    assert "vmap" not in str(told.value)


def test_a_plan_is_not_copied_or_changed() -> None:
    chosen = plan()
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="same noise"):
            copied(chosen)
    with pytest.raises(AttributeError, match="was calibrated with the rest"):
        chosen.noise_multiplier = 0.1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"batch_size": 300}, "the batch size is 300; give 1 to 299"),
        ({"steps": None}, "give steps of 1 or more, or epochs"),
        ({"epochs": 2}, "both steps and epochs"),
        ({"steps": None, "epochs": -1}, "epochs is -1; it must be positive"),
        ({"clip": 0.0}, "clip is 0.0"),
        ({"microbatch": 0}, "microbatch is 0"),
    ],
)
def test_wrong_plans(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(**given)


def test_epochs_are_passes_over_the_data() -> None:
    assert plan(steps=None, epochs=2).steps == 20


def test_a_frozen_module_is_refused_also_by_an_empty_batch() -> None:
    model = network().requires_grad_(False)
    for size in (0, 5):
        with pytest.raises(ValueError, match="unfreeze what to train"):
            clipped_sums(model, pairs(size), size, cross_entropy, 1.0, 32)


def test_the_statement_says_nothing_of_checks_that_a_loop_of_ones_own_lacks() -> None:
    """A record with NaN is not refused: its gradient counts as 0."""
    chosen, model = plan(), network()
    inputs, labels = pairs(300)
    batch = next(iter(chosen.batches((inputs * float("nan"), labels))))
    chosen.gradient(model, batch, cross_entropy)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert "are refused" not in chosen.statement().to_markdown()
