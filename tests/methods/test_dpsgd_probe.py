"""Networks whose layers have something else than records in their first dimension are refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from simplexdp import data, methods, models
from simplexdp.ledger import Ledger
from simplexdp.methods.dpsgd import probe as dpsgd_probe
from simplexdp.methods.dpsgd import step as dpsgd_step
from simplexdp.methods.dpsgd.step import StepParameters
from simplexdp.settings import Settings

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")

CLIP = 0.5
PARAMETERS = StepParameters(
    CLIP, 1.0, 8.0, rescale=False, copies=1, augmentations=(), microbatch=100
)


class Patches(nn.Module):
    """Classifies the 16 patches of an 8×8 image by themselves and averages their logits."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.layers(x.reshape(-1, 4))
        return logits.view(len(x), -1, self.classes).mean(dim=1)


class PositionsFirst(nn.Module):
    """Has positions in the first dimension and records in the second, as recurrent networks do.

    There are as many positions as the probe has records, so that only values tell.
    """

    positions = dpsgd_probe.PROBES

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.width = math.prod(shape) // self.positions
        self.layers = nn.Sequential(nn.Linear(self.width, 16), nn.Tanh(), nn.Linear(16, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.flatten(1)[:, : self.positions * self.width]
        rows = rows.view(len(x), self.positions, self.width)
        logits: torch.Tensor = self.layers(rows.transpose(0, 1))
        return logits.mean(dim=0)


class FrozenMean(nn.Module):
    """Keeps the mean of its inputs in a parameter that is not trained."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(math.prod(shape)), requires_grad=False)
        self.layer = nn.Linear(math.prod(shape), classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        flat = x.flatten(1)
        if self.training:
            self.mean.data.mul_(0.9).add_(flat.detach().mean(0), alpha=0.1)
        out: torch.Tensor = self.layer(flat)
        return out


class Dropping(nn.Module):
    """Drops inputs by a function, not by a layer; every record by itself, and so admissible."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(math.prod(shape), classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(nn.functional.dropout(x.flatten(1), 0.5, self.training))
        return out


class Unused(Dropping):
    """Has a layer that no pass uses."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.spare = nn.Linear(2, 2)


def records(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = 5.0 * torch.randn(count, 1, 8, 8, generator=generator)
    return inputs, torch.randint(0, 3, (count,), generator=generator)


@pytest.mark.parametrize("name", models.names())
def test_our_own_networks_pass_and_are_left_as_they_were(name: str) -> None:
    shape = (1, 16, 16)
    torch.manual_seed(0)
    model = models.build(name, shape, 3, "group")
    before = {key: value.clone() for key, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    assert dpsgd_probe.check_by_record(model, shape, 3) > math.prod(shape)
    assert torch.equal(torch.get_rng_state(), state)
    assert [module.training for module in model.modules()] == modes
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), key
    for parameter in model.parameters():
        assert parameter.grad is None
        assert getattr(parameter, "grad_sample", None) is None


def test_dropout_is_the_same_in_both_passes() -> None:
    torch.manual_seed(0)
    dpsgd_probe.check_by_record(Dropping((1, 8, 8), 3), (1, 8, 8), 3)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Patches, "48 rows where there are 3 records"),
        (PositionsFirst, "not those of single records"),
        (Unused, "no gradient by record"),
    ],
)
def test_gradients_that_are_not_by_record_are_refused(network: type, words: str) -> None:
    torch.manual_seed(0)
    model = network((1, 8, 8), 3)
    with pytest.raises(ValueError, match=words):
        dpsgd_probe.check_by_record(model, (1, 8, 8), 3)


@pytest.mark.parametrize("network", [Patches, PositionsFirst])
def test_a_step_refuses_a_wrong_number_of_gradients(network: type) -> None:
    """Unrefused, removing one of 9 records can move the sum by several clips."""
    torch.manual_seed(0)
    model = network((1, 8, 8), 3)
    dpsgd_probe.hooked(model)
    with pytest.raises(ValueError, match="rows where there are 9 records"):
        dpsgd_step.clipped_sum(model, *records(9), PARAMETERS, np.random.default_rng(0))


def test_copies_of_records_are_counted_too() -> None:
    """Without augmentations a record has one copy; averaging over two would mix two records."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    dpsgd_probe.hooked(model)
    two = StepParameters(CLIP, 1.0, 8.0, rescale=False, copies=2, augmentations=(), microbatch=100)
    with pytest.raises(ValueError, match="8 rows where there are 16 records"):
        dpsgd_step.clipped_sum(model, *records(8), two, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("network", "words"),
    [(Patches, "rows where"), (PositionsFirst, "single records"), (FrozenMean, "statistics")],
)
def test_such_networks_are_refused_before_anything_is_spent(
    network: type, words: str, tmp_path: Path
) -> None:
    book = Ledger(tmp_path / "ledger.jsonl")
    settings = Settings(
        data="digits",
        method="dpsgd",
        model=f"{__name__}:{network.__name__}",
        epsilon=8.0,
        batch_size=60,
        steps=1,
    )
    with pytest.raises(ValueError, match=words):
        methods.run(settings, tmp_path / "run", dataset=data.load("digits"), ledger=book)
    assert book.entries() == []
    assert not (tmp_path / "run").exists()
