"""The noise that is added: its law, its exactness, and its bits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy import special, stats

from simplexdp import noise


def bits(seed: int) -> noise.Bits:
    return noise.seeded_bits(np.random.default_rng(seed))


@pytest.mark.parametrize("sigma", [3.0, 1e4, 1e12])
def test_noise_is_gaussian(sigma: float) -> None:
    # Kolmogorov–Smirnov on 200,000 draws at level 1e-5; the lattice is 2^-20 of σ or, for
    # σ = 3, whole numbers, which a uniform jitter of one cell does not fully smooth: test cells.
    total = np.full(200_000, 12_345, dtype=np.int64)
    out = noise.release(total, sigma, bits(1)) - 12_345
    if sigma > 100:
        assert stats.kstest(out / sigma, "norm").pvalue > 1e-5
        return
    edges = np.arange(-9.5, 10.5)
    expected = np.diff(special.ndtr(np.concatenate([[-np.inf], edges, [np.inf]]) / sigma))
    observed = np.histogram(out, np.concatenate([[-(10**9)], edges, [10**9]]))[0]
    assert stats.chisquare(observed, expected * len(out)).pvalue > 1e-5


def test_coordinates_are_independent_and_centred() -> None:
    draws = noise.release(np.zeros((1000, 200), dtype=np.int64), 2.0**30, bits(2)) / 2.0**30
    # Five deviations of the mean, the variance and the correlation of neighbours: p < 1e-5.
    count = draws.size
    assert abs(draws.mean()) < 5 / np.sqrt(count)
    assert abs(draws.var() - 1) < 5 * np.sqrt(2 / count)
    assert abs((draws[:, 1:] * draws[:, :-1]).mean()) < 5 / np.sqrt(count)


def test_fast_path_agrees_with_exact_arithmetic() -> None:
    """Each fast cell must be the one that mpmath finds for the same 64 bits."""
    rng = np.random.default_rng(4)
    words = rng.integers(0, 2**64, size=60, dtype=np.uint64)
    totals = rng.integers(-(2**50), 2**50, size=60)
    sigma = 1.7e13
    grain = noise.granularity_for(sigma)
    out = noise.release(totals, sigma, lambda count: words)
    for word, total, cell in zip(words, totals, out, strict=True):
        with mpmath.workdps(60):
            tail = (mpmath.mpf(int(word) >> 1) + 0.5) / mpmath.mpf(2) ** 64
            x = -mpmath.sqrt(2) * mpmath.erfinv(2 * tail - 1)
            place = (int(total) + sigma * (-x if int(word) & 1 else x)) / grain
            assert int(mpmath.nint(place)) * grain == cell


def test_a_draw_on_the_edge_of_two_cells_is_decided_by_more_bits() -> None:
    """With the total placed so that total + σx is half-way, further bits must be asked for."""
    sigma, word = 2.0**40, 2 * 123_456_789_012_345_678
    grain = noise.granularity_for(sigma)
    with mpmath.workdps(50):
        x = noise.quantile(123_456_789_012_345_678 * 2 + 1, 65)
        total = int(mpmath.nint(grain / 2 - mpmath.fmod(sigma * x, grain)))
    asked = []

    def counting(count: int) -> np.ndarray:
        asked.append(count)
        if len(asked) == 1:
            return np.full(count, word, dtype=np.uint64)
        return np.random.default_rng(len(asked)).integers(0, 2**64, size=count, dtype=np.uint64)

    noise.release(np.array([total]), sigma, counting)
    assert len(asked) > 1


def test_the_outermost_draw_is_decided_by_more_bits() -> None:
    """64 bits of zeros stand for every draw beyond nine deviations, however small sigma is."""
    asked = []

    def zeros_first(count: int) -> np.ndarray:
        asked.append(count)
        return np.full(count, 0 if len(asked) == 1 else 2**63, dtype=np.uint64)

    noise.release(np.zeros(1, dtype=np.int64), 0.1, zeros_first)
    assert len(asked) > 1


@pytest.mark.parametrize("width", [192, 320])
@pytest.mark.parametrize("past", [-1, 1])
def test_a_draw_beside_an_edge_goes_to_its_own_side(width: int, past: int) -> None:
    """10^-50 of a cell away or less: in so many digits, and with as many bits, as it takes."""
    sigma, total, word = 2.0**40, 2**19 + 12_345, 2 * 5_000
    grain = noise.granularity_for(sigma)
    with mpmath.workdps(150):
        # The edge nearest the middle of all that these 64 bits leave open, some 20 cells.
        middle = -mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(5000.5) / mpmath.mpf(2) ** 64 - 1)
        cell = mpmath.nint((total + sigma * middle) / grain)
        edge = ((cell + mpmath.mpf("0.5")) * grain - total) / sigma
        tail = int(mpmath.floor(mpmath.erfc(edge / mpmath.sqrt(2)) / 2 * mpmath.mpf(2) ** width))
    assert tail >> (width - 64) == 5000
    tail += 3 * past  # a heavier tail is a smaller draw
    more = [(tail >> shift) % 2**64 for shift in range(width - 128, -1, -64)]
    words = iter([word, *more])

    def given(count: int) -> np.ndarray:
        return np.array([next(words)], dtype=np.uint64)

    out = noise.release(np.array([total]), sigma, given)
    assert out[0] // grain == int(cell) + (0 if past > 0 else 1)
    assert next(words, None) is None


def test_the_error_bound_is_that_of_mills() -> None:
    """Q(x)/q(x) falls from √(π/2) at 0: with less than that a cell would be taken for sure."""
    assert np.sqrt(np.pi / 2) <= noise.MILLS < 1.01 * np.sqrt(np.pi / 2)


@pytest.mark.parametrize("count", [1, 2**20, 2**45, 2**62, 2**64 - 1])
def test_quantile_against_mpmath(count: int) -> None:
    with mpmath.workdps(60):
        x = noise.quantile(count, 65)
        back = mpmath.erfc(x / mpmath.sqrt(2)) / 2 * mpmath.mpf(2) ** 65
        assert abs(back / count - 1) < mpmath.mpf(10) ** -45


def test_ndtri_is_as_accurate_as_is_assumed() -> None:
    rng = np.random.default_rng(5)
    tails = np.concatenate([rng.random(300) / 2, 2.0 ** -rng.uniform(1, 60, 300)])
    with mpmath.workdps(40):
        for tail in tails:
            exact = -mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(float(tail)) - 1)
            error = abs(mpmath.mpf(float(-special.ndtri(tail))) - exact)
            # Near ½ the quantile is near 0 and its error is absolute.
            assert error <= noise.NDTRI_ERROR * abs(exact) + 2.0**-53


def test_granularity_is_a_power_of_two_and_public() -> None:
    assert noise.granularity_for(5.0) == 1
    assert noise.granularity_for(2.0**40) == 2**20
    out = noise.release(np.arange(1000), 2.0**40, bits(0))
    assert (out % 2**20 == 0).all()


@pytest.mark.parametrize("sigma", [1.0, 2.0**20, 1.0001 * 2.0**20, 1.9999 * 2.0**33, 3e15])
def test_a_standard_deviation_has_between_half_and_all_of_the_cells(sigma: float) -> None:
    grain = noise.granularity_for(sigma)
    assert grain & (grain - 1) == 0
    assert sigma / grain <= noise.CELLS == 2**20
    assert grain == 1 or sigma / grain > noise.CELLS / 2


def test_the_lattice_is_used_evenly() -> None:
    """Half a million draws by their last three bits, at 1e-6: a whole sum does not shift them."""
    for total in (0, 2**30 + 5):
        out = noise.release(np.full(500_000, total), 2.0**40, bits(6))
        cells = out // noise.granularity_for(2.0**40)
        assert stats.chisquare(np.bincount(cells % 8)).pvalue > 1e-6


def test_a_fraction_of_a_cell_is_rounded_and_not_cut() -> None:
    """Without noise to speak of, a sum comes back as the nearest multiple."""
    sigma = 2.0**40
    grain = noise.granularity_for(sigma)

    def none(count: int) -> np.ndarray:
        return np.full(count, 2**64 - 2, dtype=np.uint64)  # a tail just below one half

    totals = np.array([0, grain // 2 - 9, grain // 2 + 9, -9, -grain // 2 - 9, 5 * grain - 3])
    want = np.array([0, 0, 1, 0, -1, 5]) * grain
    np.testing.assert_array_equal(noise.release(totals, sigma, none), want)


def test_system_bits_differ() -> None:
    assert not np.array_equal(noise.system_bits(8), noise.system_bits(8))


@pytest.mark.parametrize("sigma", [0.0, -1.0, float("inf"), float("nan")])
def test_bad_noise_is_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        noise.release(np.zeros(3, dtype=np.int64), sigma, bits(0))


def test_floating_sums_are_refused() -> None:
    with pytest.raises(ValueError, match="exact int64"):
        noise.release(np.zeros(3), 1.0, bits(0))  # type: ignore[arg-type]
