"""DP-SGD for persons: they are sampled whole, clipped together, and are the unit of the claim."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from simplexdp import data, methods, sampling
from simplexdp.ledger import Ledger
from simplexdp.methods.base import Run
from simplexdp.methods.dpsgd.probe import hooked
from simplexdp.methods.dpsgd.step import StepParameters, clipped_sum, trainable
from simplexdp.settings import Settings
from simplexdp.training import Job

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")
COUNTS = [1, 7, 2, 30, 1, 4]
CLIP = 0.4


def network() -> nn.Module:
    """A convolution, whose norms are ghosts, and a dense layer."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 2, 1), nn.Flatten(), nn.Linear(72, 3)
    )


def batch() -> tuple[Tensor, Tensor, np.ndarray]:
    persons = np.repeat([5, 9, 11, 12, 20, 3], COUNTS)
    inputs = torch.randn(len(persons), 1, 8, 8, generator=torch.Generator().manual_seed(1))
    return inputs, torch.arange(len(persons)) % 3, persons


def summed(inputs: Tensor, labels: Tensor, persons: np.ndarray, microbatch: int = 4) -> np.ndarray:
    model = network()
    hooks = hooked(model)
    chosen = StepParameters(CLIP, 1.0, 10.0, False, 1, (), microbatch)
    rng = np.random.default_rng(0)
    totals = clipped_sum(model, inputs, labels, chosen, rng, persons)
    hooks.remove_hooks()
    return torch.cat([total.flatten() for total in totals]).double().numpy()


def one_by_one(inputs: Tensor, labels: Tensor, persons: np.ndarray) -> np.ndarray:
    """Each person's gradients by one backward pass a record, scaled by hand."""
    model = network().double()
    each = []
    for x, y in zip(inputs.double(), labels, strict=True):
        loss = functional.cross_entropy(model(x[None]), y[None])
        found = torch.autograd.grad(loss, trainable(model))
        each.append(torch.cat([g.flatten() for g in found]).numpy())
    gradients = np.stack(each)
    norms = np.linalg.norm(gradients, axis=1)
    total = np.zeros(gradients.shape[1])
    for person in np.unique(persons):
        rows = persons == person
        total += gradients[rows].sum(0) * min(1.0, CLIP / norms[rows].sum())
    return total


@pytest.mark.parametrize("microbatch", [1, 4, 1000])
def test_a_person_is_clipped_as_one_record_is(microbatch: int) -> None:
    inputs, labels, persons = batch()
    want = one_by_one(inputs, labels, persons)
    np.testing.assert_allclose(summed(inputs, labels, persons, microbatch), want, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("microbatch", [1, 5, 1000])
def test_a_whole_person_moves_the_sum_by_no_more_than_the_clip(
    scale: float, microbatch: int
) -> None:
    """All records alike add up in one direction: the worst that a person can do."""
    inputs, labels, persons = batch()
    for person in np.unique(persons):
        rows = torch.from_numpy(persons == person)
        changed, given = inputs.clone(), labels.clone()
        changed[rows], given[rows] = scale * inputs[0], 1
        without = summed(inputs[~rows], labels[~rows], persons[~rows.numpy()], microbatch)
        moved = np.linalg.norm(summed(changed, given, persons, microbatch) - without)
        assert moved <= CLIP * (1 + 1e-4)
        assert scale < 1 or moved > 0.9 * CLIP  # the bound is reached


def test_an_empty_batch_is_a_sum_of_nothing() -> None:
    inputs, labels, persons = batch()
    assert not summed(inputs[:0], labels[:0], persons[:0]).any()


def test_one_record_each_is_the_sum_without_persons() -> None:
    inputs, labels, _ = batch()
    each = np.arange(len(labels))
    np.testing.assert_array_equal(
        summed(inputs, labels, each),
        summed(inputs, labels, None),  # type: ignore[arg-type]
    )


def test_a_person_whose_gradient_is_not_finite_contributes_nothing() -> None:
    inputs, labels, persons = batch()
    broken = inputs.clone()
    broken[3] = torch.inf  # of the person with number 9
    rest = persons != 9
    want = summed(inputs[torch.from_numpy(rest)], labels[torch.from_numpy(rest)], persons[rest])
    np.testing.assert_allclose(summed(broken, labels, persons), want, atol=1e-6)


def grouped(seed: int = 0) -> data.Dataset:
    """90 persons, with numbers that have gaps, in no order, of one to five records."""
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(3 * np.arange(90), 1 + np.arange(90) % 5))
    labels = (groups % 2).astype(np.int64)
    inputs = (rng.normal(size=(len(groups), 5)) + labels[:, None]).astype(np.float32)
    train = data.Split(inputs, labels, groups)
    return data.Dataset("grouped", train, train, None, ("a", "b"))


def test_persons_are_poisson_and_come_with_all_their_records() -> None:
    """4,000 steps at q = 0.1: 5 standard errors of 90 frequencies fail by chance with p < 6e-5."""
    dataset, steps, q = grouped(), 4000, 0.1
    settings = Settings(method="dpsgd")
    model = nn.Linear(5, 2)
    job = Job(
        model, lambda *_: None, dataset, q, steps, 7, settings, torch.optim.SGD(model.parameters())
    )
    counts, seen = np.zeros(90), np.zeros((90, 90))
    groups = dataset.train.groups
    assert groups is not None
    for step in range(steps):
        rows = job.rows(step)
        taken = np.unique(groups[rows])
        assert sorted(rows) == sorted(np.flatnonzero(np.isin(groups, taken)))
        assert (np.diff(groups[rows]) != 0).sum() == max(0, len(taken) - 1)  # one after another
        np.testing.assert_array_equal(taken // 3, sampling.batch_of_step(90, q, 7, step))
        counts[taken // 3] += 1
        seen[np.ix_(taken // 3, taken // 3)] += 1
    assert np.abs(counts / steps - q).max() < 5 * np.sqrt(q * (1 - q) / steps)
    together = seen[~np.eye(90, dtype=bool)] / steps  # pairs are independent: q², 8,010 of them
    assert abs(together - q**2).max() < 6.5 * np.sqrt(q**2 / steps)


def test_the_claim_the_rate_and_the_ledger_are_per_person(tmp_path: Path) -> None:
    settings = Settings(data="own.npz", method="dpsgd", epsilon=3.0, batch_size=9, steps=20)
    dataset, book = grouped(), Ledger(tmp_path / "ledger")
    outcome, _ = methods.run(settings, tmp_path / "run", dataset=dataset, ledger=book)
    assert outcome.chosen["sample_rate"] == pytest.approx(9 / 90)
    said = outcome.statement
    assert "per person" in said.headline()
    assert said.sampling.startswith("Poisson, rate 9/90 persons;")
    assert "a person comes or goes" in said.sampling
    assert "what one person contributes is there or not" in said.neighbours()
    assert any("One alone of a person's records" in text for text in said.does_not_cover)
    assert [entry.unit for entry in book.entries()] == ["person"]
    assert outcome.accuracy > 0.6


def test_a_step_adds_the_noise_of_one_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """The releases of a training: noise of the stated deviation, and sums within the clip."""
    settings = Settings(
        method="dpsgd", epsilon=400.0, batch_size=9, steps=60, seed=2, options={"clip": CLIP}
    )
    dataset = grouped()
    added, sums, batches = [], [], []

    def hear(name: str, total: np.ndarray, released: np.ndarray, sigma: float) -> np.ndarray:
        added.append((released - total) / sigma)
        sums.append(np.linalg.norm(total) * 9)  # it is divided by the expected persons
        batches.append(len(sampling.batch_of_step(90, 0.1, 2, len(batches))))
        return released

    methods.prepare(settings, dataset, 2).start(Run(on_release=hear))
    noise = np.concatenate(added)
    assert noise.std() == pytest.approx(1.0, abs=5 / np.sqrt(2 * noise.size))
    assert all(size <= CLIP * persons * 1.0001 for size, persons in zip(sums, batches, strict=True))


def test_other_persons_are_other_data_for_a_checkpoint() -> None:
    model = nn.Linear(5, 2)

    def fingerprint(dataset: data.Dataset) -> str:
        optimizer = torch.optim.SGD(model.parameters())
        return Job(
            model, lambda *_: None, dataset, 0.1, 5, 7, Settings(method="dpsgd"), optimizer
        ).fingerprint

    first = grouped()
    moved = data.Split(first.train.inputs, first.train.labels, np.roll(first.train.groups, 1))
    second = data.Dataset("grouped", moved, first.test, None, ("a", "b"))
    assert fingerprint(first) == fingerprint(grouped()) != fingerprint(second)
