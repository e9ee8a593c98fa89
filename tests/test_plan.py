"""The plan: what it calibrates is what runs, and nothing beyond it runs."""

from __future__ import annotations

import copy
import math
import os
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from simplexdp import Plan, accounting, distributed, ledger, sampling
from simplexdp.loss import balanced_weights
from simplexdp.stepping import BudgetExhausted

RECORDS = 400


def small_plan(**changes) -> Plan:
    values = {"epsilon": 4.0, "delta": 1e-5, "records": RECORDS, "batch_size": 4, "steps": 30}
    return Plan(**{**values, "seed": 1, **changes})


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return (
        torch.randn(RECORDS, 3, generator=generator),
        torch.randint(0, 3, (RECORDS,), generator=generator),
    )


def test_the_plan_costs_what_it_says_and_no_more_than_the_budget():
    plan = Plan(epsilon=1.0, delta=1e-5, records=60_000, batch_size=250, steps=9600)
    assert plan.epsilon <= 1.0
    assert round(plan.r, 3) == 0.277  # the paper's r* for FashionMNIST
    cost = accounting.account(
        "theorem1", r=plan.r, alpha=3.0, sample_rate=250 / 60_000, steps=9600, delta=1e-5
    )
    assert cost.epsilon == plan.epsilon


def test_the_loop_of_the_documentation():
    plan = small_plan()
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=plan.learning_rate())
    criterion = plan.loss()
    steps = 0
    for inputs, labels in plan.batches(tensors()):
        optimizer.zero_grad()
        criterion(model(inputs), labels).backward()
        optimizer.step()
        steps += 1
    assert steps == plan.steps_done == 30
    assert plan.epsilon_spent() == plan.epsilon
    with pytest.raises(BudgetExhausted, match="all 30 steps"):
        next(iter(plan.batches(tensors())))


def test_stopping_early_costs_less():
    plan = small_plan()
    batches = plan.batches(tensors())
    assert plan.epsilon_spent() == 0.0
    for _ in range(10):
        next(batches)
    expected = accounting.account(
        "theorem1", r=plan.r, alpha=3.0, sample_rate=0.01, steps=10, delta=1e-5
    )
    assert plan.epsilon_spent() == expected.epsilon < plan.epsilon
    assert plan.statement().steps == 10
    assert plan.statement().epsilon == expected.epsilon


def test_every_record_of_a_batch_is_drawn_once():
    plan = small_plan(batch_size=40, epsilon=50.0)
    criterion = plan.loss()
    inputs, labels = next(plan.batches(tensors()))
    half = len(labels) // 2
    criterion(inputs[:half], labels[:half])  # a batch may be drawn in pieces
    criterion(inputs[half:], labels[half:])
    with pytest.raises(BudgetExhausted, match="more draws than the current batch"):
        criterion(inputs[:1], labels[:1])


def test_two_iterations_at_once_are_refused():
    """They would hand the same batch to two steps."""
    plan = small_plan()
    first = plan.batches(tensors())
    next(first)
    next(plan.batches(tensors()))
    with pytest.raises(BudgetExhausted, match="another iteration"):
        next(first)


def test_steps_are_never_given_back():
    plan = small_plan()
    plan.resume_at(20)
    with pytest.raises(ValueError, match="cannot go from step 20"):
        plan.resume_at(3)


def test_the_loss_before_any_batch_is_refused():
    with pytest.raises(BudgetExhausted):
        small_plan().loss()(torch.zeros(1, 3), torch.zeros(1, dtype=torch.long))


def test_pieces_of_a_batch_have_independent_noise():
    plan = small_plan(batch_size=100, epsilon=50.0)
    next(plan.batches(tensors()))
    criterion = plan.loss()
    logits, labels = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)
    assert criterion(logits, labels) != criterion(logits, labels)


@pytest.mark.parametrize("estimator", ["marginal", "full"])
def test_class_weights_multiply_the_losses_after_the_draws(estimator):
    """The weighted loss from the same draws: what each record contributes, times its weight."""
    weights = torch.tensor([3.0, 0.5, 2.0], dtype=torch.float64)
    labels = torch.tensor([0, 1, 2, 2])
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(1))

    def gradient(class_weights: Any) -> torch.Tensor:
        plan = small_plan(batch_size=100, epsilon=50.0, estimator=estimator)
        next(plan.batches(tensors()))
        leaf = logits.clone().requires_grad_()
        plan.loss(class_weights)(leaf, labels).backward()
        assert leaf.grad is not None
        return leaf.grad

    expected = gradient(None) * weights[labels][:, None]
    torch.testing.assert_close(gradient(weights), expected.float())
    torch.testing.assert_close(gradient(weights.tolist()), gradient(weights.numpy()))
    torch.testing.assert_close(gradient(torch.ones(3)), gradient(None))


@pytest.mark.parametrize("wrong", [[1.0, math.nan], [1.0, -1.0], [math.inf, 1.0], 2.0, [[1.0]]])
def test_class_weights_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="one number of 0 or more for each class"):
        small_plan().loss(wrong)


def test_balanced_weights_make_every_class_weigh_alike():
    labels = np.array([0] * 100 + [1] * 5)
    weights = balanced_weights(labels, 3)
    assert weights.tolist() == [105 / 200, 105 / 10, 0.0]  # none of the third class
    assert float(weights[torch.from_numpy(labels)].mean()) == pytest.approx(1.0)


def test_class_weights_that_do_not_fit_are_refused_before_a_draw_is_spent():
    plan = small_plan(batch_size=40, epsilon=50.0)
    inputs, labels = next(plan.batches(tensors()))
    with pytest.raises(ValueError, match="one weight a class"):
        plan.loss(torch.ones(2))(inputs, labels)
    plan.loss(torch.ones(3))(inputs, labels)  # the batch has all its draws left


def test_labels_of_another_type_are_refused_before_a_draw_is_spent():
    plan = small_plan(batch_size=40, epsilon=50.0)
    inputs, labels = next(plan.batches(tensors()))
    with pytest.raises(ValueError, match=r"labels are torch.int32; give torch.int64"):
        plan.loss()(inputs, labels.int())
    plan.loss()(inputs, labels)


def test_an_empty_batch_is_a_step_with_a_zero_update():
    plan = Plan(epsilon=4.0, delta=1e-5, records=RECORDS, batch_size=1, steps=60, seed=3)
    model = torch.nn.Linear(3, 3)
    criterion = plan.loss()
    empty = 0
    for inputs, labels in plan.batches(tensors()):
        if len(labels) == 0:
            empty += 1
            model.zero_grad()
            criterion(model(inputs), labels).backward()
            assert all((p.grad == 0).all() for p in model.parameters())
    assert empty > 5
    assert plan.steps_done == 60


def test_batches_are_the_sampling_rooms_batches():
    plan = small_plan(seed=12)
    expected = list(sampling.poisson_batches(RECORDS, 0.01, 30, 12))
    indices = np.arange(RECORDS)
    for (inputs, _), batch in zip(plan.batches((indices, indices)), expected, strict=True):
        assert np.array_equal(inputs.numpy(), batch)


def test_seeds_are_secret_unless_asked_for():
    first, second = (small_plan(seed=None) for _ in range(2))
    assert first._seed != second._seed
    assert not first.seed_known
    broken = small_plan(seed=5).statement().to_json()["broken_assumptions"]
    assert any("seed" in text for text in broken)
    kept = first.statement().to_json()["broken_assumptions"]
    assert not any("seed" in text for text in kept)


def test_a_copy_which_would_repeat_the_noise_is_refused():
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="would draw the same noise again"):
            make(small_plan(seed=None))


def test_each_process_of_a_group_would_draw_a_batch_of_its_own(monkeypatch):
    plan = small_plan()
    monkeypatch.setattr(distributed, "world", lambda: 2)
    with pytest.raises(ValueError, match="each of 2 processes would draw a whole batch"):
        next(plan.batches((torch.zeros(plan.records, 1), torch.zeros(plan.records).long())))


@pytest.mark.parametrize("accountant", ["theorem1", "visible"])
def test_a_ledger_charges_a_plan_no_more_than_its_budget(tmp_path, accountant):
    """By the numerical figure of the same participation, which is below both."""
    plan = small_plan(seed=3, accountant=accountant)
    book = ledger.Ledger(tmp_path / "ledger.jsonl")
    book.reserve(
        "data", "dirichlet", plan.event(), "run", ledger.DRAWS, broken=plan.coverage().broken()
    )
    spent = book.spent("data", plan.delta)
    assert 0.0 < spent.draws <= plan.epsilon
    assert any("known seed" in caveat for caveat in spent.caveats)


def test_the_statement_never_covers_the_weights():
    statement = small_plan().statement(separate=False)
    assert not statement.covers_weights
    assert "NOT on the weights" in statement.headline()
    assert not statement.covers_draws  # Algorithm 1 breaks an assumption of its own figure
    broken = statement.to_json()["broken_assumptions"]
    assert any("batch normalisation" in text for text in broken)
    assert any("only through earlier draws" in text for text in broken)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"batch_size": RECORDS}, "below the 400 records"),
        ({"batch_size": RECORDS + 1}, "below the 400 records"),
        ({"batch_size": 0}, "at least 1"),
        ({"steps": 0}, "at least 1"),
        ({"steps": 20.0}, "steps is 20.0; give a whole number"),
        ({"batch_size": 2.5}, "batch_size is 2.5; give a whole number"),
        ({"records": "400"}, "records is '400'; give a whole number"),
        ({"alpha": -1.0}, "alpha"),
        ({"records": 1}, "at least 2"),
        ({"accountant": "guess"}, "unknown accountant"),
        ({"estimator": "guess"}, "unknown estimator"),
        ({"seed": -4}, "seed"),
    ],
)
def test_bad_plans_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small_plan(**changes)


def test_data_of_another_size_is_refused():
    with pytest.raises(ValueError, match="for 400 records and the data has 2"):
        next(iter(small_plan().batches((torch.zeros(2, 3), torch.zeros(2)))))


def test_batches_that_the_plan_did_not_draw_are_not_called_poisson():
    found = Plan(epsilon=1.0, delta=1e-5, records=1000, batch_size=4, steps=20)
    data = (torch.zeros(1000, 2), torch.zeros(1000, dtype=torch.long))
    next(found.batches(data))
    drawn = found.statement()
    assert drawn.sampling == "Poisson, rate 4/1000"
    (poisson,) = [a for a in drawn.assumptions if a.text == accounting.POISSON]
    assert poisson.holds is True
    found.begin_step(900)
    other = found.statement()
    assert other.sampling.startswith("not seen; the bound is for Poisson")
    (poisson,) = [a for a in other.assumptions if a.text == accounting.POISSON]
    assert poisson.holds is None


def test_the_rate_of_an_unknown_optimizer_is_not_that_of_sgd():
    found = Plan(epsilon=1.0, delta=1e-5, records=1000, batch_size=4, steps=20)
    with pytest.raises(ValueError, match="unknown optimizer 'Adam'; use one of"):
        found.learning_rate("Adam")


def test_data_of_another_form_is_refused_with_the_form_it_takes():
    found = Plan(epsilon=1.0, delta=1e-5, records=1000, batch_size=4, steps=20)
    inputs, labels = torch.zeros(1000, 2), torch.zeros(1000, dtype=torch.long)
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=4)
    for wrong in (loader, [inputs, labels], inputs):
        with pytest.raises(ValueError, match="the plan draws the batches itself"):
            next(found.batches(wrong))
    with pytest.raises(ValueError, match="there are 1500 inputs and 1000 labels"):
        next(found.batches((torch.zeros(1500, 2), labels)))
    assert found.steps_done == 0


def test_what_was_calibrated_together_cannot_be_changed():
    plan = small_plan()
    for name, value in {"r": 2.9, "alpha": 30.0, "steps": 60, "sample_rate": 0.5}.items():
        with pytest.raises(AttributeError, match="was calibrated with the rest; make another Plan"):
            setattr(plan, name, value)
    assert plan.r < 2.9


@pytest.mark.parametrize("ask", [Plan.begin_step, Plan.noise])
def test_a_forked_process_which_would_repeat_the_noise_is_refused(ask):
    plan = small_plan(seed=None)
    plan.begin_step(1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            ask(plan, 1)
            os.write(write, b"drawn")
        except BudgetExhausted as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert b"would draw the same noise again" in os.read(read, 1000)
    assert plan.begin_step(1) == 1  # the plan's own process goes on


@pytest.mark.parametrize(("delta", "said"), [(1e-5, False), (1 / RECORDS, True), (0.5, True)])
def test_a_delta_that_says_nothing_about_a_record_is_told(delta, said):
    notes = small_plan(delta=delta).statement().notes
    assert any("publish some record whole" in note for note in notes) is said


def test_class_weights_are_of_the_classes_there_are():
    with pytest.raises(ValueError, match="a label is 2 and there are 2 classes"):
        balanced_weights([0, 1, 2], 2)
