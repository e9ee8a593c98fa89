"""Sums that are exact, and a sensitivity that is kept by adversarial records."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from simplexdp.linear import exact_sums
from simplexdp.linear.exact_sums import COEFFICIENT_UNIT, ROW_UNIT, UNIT


def rows(count: int, width: int, seed: int = 0, scale: float = 0.3) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed)) * scale


def residuals(count: int, classes: int, seed: int = 1) -> torch.Tensor:
    rng = torch.Generator().manual_seed(seed)
    s = torch.softmax(3 * torch.randn(count, classes, generator=rng), dim=1)
    s[torch.arange(count), torch.randint(0, classes, (count,), generator=rng)] -= 1
    return s


def python_sum(whole: exact_sums.Rows, p: torch.Tensor, clip: float) -> list[list[int]]:
    """The same sum in Python's unbounded integers."""
    q = exact_sums.clipped_coefficients(p, whole.norms, clip).numpy().astype(int)
    x = whole.integers.numpy().astype(int)
    return [
        [sum(int(q[i, c]) * int(x[i, j]) for i in range(len(q))) for j in range(x.shape[1])]
        for c in range(q.shape[1])
    ]


@pytest.mark.parametrize("clip", [0.05, 0.5, 4.0])
def test_gradient_sum_equals_unbounded_integers(clip: float) -> None:
    p = residuals(300, 3)
    whole = exact_sums.quantize(rows(300, 5), 4.0)
    got = exact_sums.gradient_sum(whole, lambda block, where: p[where], clip)
    assert got.tolist() == python_sum(whole, p, clip)


def test_sum_does_not_depend_on_the_order_of_records() -> None:
    p, x = residuals(5000, 10), rows(5000, 40)
    order = torch.randperm(5000, generator=torch.Generator().manual_seed(3))
    first = exact_sums.gradient_sum(exact_sums.quantize(x, 4.0), lambda b, w: p[w], 0.5)
    moved = exact_sums.quantize(x[order], 4.0)
    second = exact_sums.gradient_sum(moved, lambda b, w: p[order][w], 0.5)
    np.testing.assert_array_equal(first, second)


ADVERSARIAL = [
    torch.full((6,), 3e38),
    torch.full((6,), 1e30),
    torch.full((6,), 1e-30),
    torch.tensor([4.0, 0, 0, 0, 0, 0]),
    torch.full((6,), 4.0 / 6**0.5),
    torch.full((6,), 4.0 / 6**0.5 * (1 + 1e-7)),
    torch.full((6,), 0.5 * ROW_UNIT),
    torch.tensor([1e20, 1e-20, -1e20, 1.0, -1.0, 0.0]),
]


@pytest.mark.parametrize("record", ADVERSARIAL, ids=range(len(ADVERSARIAL)))
@pytest.mark.parametrize("clip", [0.1, 0.5, 1.0])
def test_one_adversarial_record_moves_the_sum_by_at_most_the_clip(
    record: torch.Tensor, clip: float
) -> None:
    """Zero-out: the sum with the record less the sum without it, for every residual direction."""
    base = rows(100, 6)
    for p_record in (
        torch.tensor([-1.0, 1.0, 0.0]),
        torch.tensor([-1e-9, 5e-10, 5e-10]),
        torch.tensor([-2 / 3, 1 / 3, 1 / 3]),
        torch.tensor([-0.5 * COEFFICIENT_UNIT, 0.5 * COEFFICIENT_UNIT, 0.0]),
    ):
        p = torch.cat([residuals(100, 3), p_record[None]])
        with_it = exact_sums.quantize(torch.cat([base, record[None]]), 4.0)
        without = exact_sums.quantize(base, 4.0)
        change = exact_sums.gradient_sum(
            with_it, lambda block, where, p=p: p[where], clip
        ) - exact_sums.gradient_sum(without, lambda block, where, p=p: p[:-1][where], clip)
        squared = sum(int(v) ** 2 for v in change.ravel())
        assert squared <= (clip / UNIT) ** 2


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_contributes_nothing(value: float) -> None:
    """One record's overflow must not reach the sum of the others."""
    x, p = rows(20, 4), residuals(20, 3)
    want = exact_sums.gradient_sum(exact_sums.quantize(x, 4.0), lambda block, where: p[where], 0.5)
    worse, torn = torch.cat([x, rows(1, 4)]), torch.cat([p, residuals(1, 3)])
    for broken in (worse, torn):
        kept = broken[-1].clone()
        broken[-1] = value
        whole = exact_sums.quantize(worse, 4.0)
        got = exact_sums.gradient_sum(whole, lambda block, where: torn[where], 0.5)
        np.testing.assert_array_equal(got, want)
        broken[-1] = kept


def test_clipping_is_close_to_exact_clipping() -> None:
    """The whole numbers follow the real clipped gradients, to the units and no further."""
    p, x = residuals(400, 4), rows(400, 6, scale=1.0)
    whole = exact_sums.quantize(x, 4.0)
    scale = torch.clamp(4.0 / x.norm(dim=1), max=1.0)[:, None]
    factor = torch.clamp(0.5 / (p.norm(dim=1) * (x * scale).norm(dim=1)), max=1.0)[:, None]
    want = (p * factor).T @ (x * scale)
    got = exact_sums.gradient_sum(whole, lambda block, where: p[where], 0.5) * UNIT
    np.testing.assert_allclose(got, want.numpy(), atol=0.2)
    assert float(want.abs().max()) > 3


@pytest.mark.parametrize("bound", [0.5, 1.01, 4.0])
def test_quantized_rows_keep_the_bound(bound: float) -> None:
    generous = torch.cat([rows(500, 30, scale=s) for s in (0.01, 0.2, 10.0)])
    whole = exact_sums.quantize(generous, bound)
    squared = [sum(int(v) ** 2 for v in row) for row in whole.integers.tolist()]
    assert max(squared) <= (bound / ROW_UNIT) ** 2
    np.testing.assert_allclose(whole.norms.numpy(), np.sqrt(squared) * ROW_UNIT, rtol=1e-12)


def test_a_row_just_beyond_its_bound_is_cut() -> None:
    """1069653 is the least whole square beyond (1.01·1024)²."""
    row = torch.tensor([[1034.0, 22.0, 3.0, 2.0]])
    assert float((row**2).sum()) == 1_069_653 > (1.01 / ROW_UNIT) ** 2 > 1_069_652
    whole = exact_sums.quantize(row * ROW_UNIT, 1.01)
    assert float((whole.integers**2).sum()) <= (1.01 / ROW_UNIT) ** 2


def test_rows_are_rounded_within_the_bound_and_brought_to_it_beyond() -> None:
    x = rows(300, 3)
    x *= (torch.linspace(0.5, 1.5, 300) / x.norm(dim=1))[:, None]
    got = exact_sums.quantize(x, 1.0)
    within = x.norm(dim=1) < 0.999
    torch.testing.assert_close(got.integers[within], (x[within] / ROW_UNIT).round(), atol=0, rtol=0)
    assert float(got.norms[x.norm(dim=1) > 1.001].min()) > 0.996


@pytest.mark.parametrize("clip", [0.02, 0.5])
def test_coefficients_are_rounded_within_the_clip_and_brought_to_it_beyond(clip: float) -> None:
    count = 4000
    p = residuals(count, 3).double()
    norms = torch.linspace(0.5, 4.0, count, dtype=torch.float64)
    p *= (clip * torch.linspace(0.5, 1.5, count).flip(0) / (p.norm(dim=1) * norms))[:, None]
    whole = exact_sums.clipped_coefficients(p, norms, clip).double()
    size = whole.norm(dim=1) * COEFFICIENT_UNIT * norms
    assert float(size.max()) <= clip
    sure = p.norm(dim=1) * norms < clip - 2 * COEFFICIENT_UNIT * norms
    assert torch.equal(whole[sure], (p[sure] * (1 - 1e-6) / COEFFICIENT_UNIT).round())
    beyond = p.norm(dim=1) * norms > clip
    assert bool((size[beyond] > clip - 2 * COEFFICIENT_UNIT * norms[beyond]).all())


def same_direction(sizes: list[int], count: int) -> torch.Tensor:
    """Rows of one coordinate, of these whole sizes in turn."""
    return torch.tensor([[sizes[i % len(sizes)] * ROW_UNIT] for i in range(count)])


def test_sums_of_records_that_all_do_their_worst_are_exact() -> None:
    """Blocks as long as single precision allows, with odd terms, and none longer."""
    x = same_direction([1033, 1034, 1031], 40_000)
    whole = exact_sums.quantize(x, 1.01)
    terms = [int(v) for v in whole.integers[:, 0]]
    assert exact_sums.row_sum(whole).tolist() == [sum(terms)]
    moment, _ = exact_sums.moment_sum(whole, 1, 1)
    assert moment.tolist() == [[sum(v * v for v in terms)]]
    # p·x of 511·(1023, 1025) units under a clip of 2^19 of them.
    x = same_direction([1023, 1025, 1021], 3000)
    p = torch.tensor([[511.0, 1.0]]).expand(3000, 2) * COEFFICIENT_UNIT
    whole = exact_sums.quantize(x, 4.0)
    q = exact_sums.clipped_coefficients(p, whole.norms, 1.0)
    total = exact_sums.gradient_sum(whole, lambda block, where: p[where], 1.0)
    want = sum(int(a) * int(b) for a, b in zip(q[:, 0], whole.integers[:, 0], strict=True))
    assert int(total[0, 0]) == want


def test_sums_too_large_to_be_exact_are_refused() -> None:
    """2^24 units of one record, 2^53 of all of them, and a row of norm 64."""
    exact_sums.check_clip(32.0, 2**29)
    for clip, records in ((32.0, 2**29 + 1), (32.0 * (1 + 1e-9), 1)):
        with pytest.raises(ValueError, match="too large for exact sums"):
            exact_sums.check_clip(clip, records)
    exact_sums.quantize(rows(1, 3), 64.0)
    with pytest.raises(ValueError, match="64"):
        exact_sums.quantize(rows(1, 3), 64.1)


def test_statistics_equal_unbounded_integers() -> None:
    source = rows(70, 12).numpy()
    total, by_channel, by_position = exact_sums.statistics(source, 1.01, 4, 3, moments=True)
    x = exact_sums.quantize(torch.from_numpy(source), 1.01).integers.numpy().astype(int)
    cube = x.reshape(-1, 4, 3).astype(object)
    assert total.tolist() == [int(v) for v in x.sum(axis=0)]
    assert by_channel.tolist() == sum(m @ m.T for m in cube).tolist()
    assert by_position.tolist() == sum(m.T @ m for m in cube).tolist()


def test_one_record_moves_the_moments_by_at_most_the_squared_bound() -> None:
    base, worst = rows(50, 12).numpy(), np.full((1, 12), 1e10, dtype=np.float32)
    _, a, b = exact_sums.statistics(base, 1.01, 4, 3, moments=True)
    _, a2, b2 = exact_sums.statistics(np.concatenate([base, worst]), 1.01, 4, 3, moments=True)
    for change in (a2 - a, b2 - b):
        assert np.sqrt(float((change.astype(float) ** 2).sum())) <= (1.01 / ROW_UNIT) ** 2


def as_bfloat16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def as_tf32(x: torch.Tensor) -> torch.Tensor:
    """10 bits behind the leading one, as a GPU keeps them."""
    bits = x.contiguous().view(torch.int32)
    return ((bits + 2**12) & ~(2**13 - 1)).view(torch.float32)


@pytest.mark.parametrize("kept", [as_bfloat16, as_tf32])
@pytest.mark.parametrize("side", [0, 1])
def test_products_in_fewer_bits_are_refused(
    kept: Callable[[torch.Tensor], torch.Tensor], side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact_sums.check_products()
    exact = torch.Tensor.__matmul__

    def short(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return exact(*(kept(x) if at == side else x for at, x in enumerate((a, b))))

    monkeypatch.setattr(torch.Tensor, "__matmul__", short)
    with pytest.raises(ValueError, match=r"fewer bits .*set_float32_matmul_precision"):
        exact_sums.check_products()


@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan"), float("inf")])
def test_a_clip_that_is_none_is_refused(clip: float) -> None:
    whole = exact_sums.quantize(rows(4, 3), 1.0)
    with pytest.raises(ValueError, match="clip"):
        exact_sums.gradient_sum(whole, lambda block, where: residuals(4, 3), clip)
