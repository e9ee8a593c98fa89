"""The certified fit: its cost, the noise that is really added, and what it learns."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution
from scipy import stats

from simplexdp import linear, noise
from simplexdp.accounting.gaussian import calibrate_mu, gaussian_delta, gaussian_epsilon
from simplexdp.linear import exact_sums, noisy_gd, whitening
from simplexdp.linear import rule as rule_module


def blobs(count: int = 600, width: int = 6, classes: int = 3, seed: int = 0):
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((classes, width))
    labels = rng.integers(0, classes, count)
    rows = centres[labels] + 0.3 * rng.standard_normal((count, width))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32), labels.astype(np.int64)


def bits(seed: int = 0) -> noise.Bits:
    return noise.seeded_bits(np.random.default_rng(seed))


def fit(epsilon: float, seed: int = 0, **options: float) -> linear.Fitted:
    rows, labels = blobs()
    rule, cost = linear.planned(len(rows), epsilon, 1e-5, (6, 1), **options)
    return linear.fit(rows, labels, 3, (6, 1), rule, cost, bits(seed))


def silent(count: int) -> np.ndarray:
    """Bits whose Gaussian is 0 up to rounding: the tail is just below one half."""
    return np.full(count, 2**64 - 2, dtype=np.uint64)


# --- the cost ------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0, 8.0])
def test_spending_never_exceeds_the_budget(epsilon: float) -> None:
    rule, cost = linear.planned(10_000, epsilon, 1e-5, (81, 49))
    assert cost.epsilon <= epsilon
    assert cost.epsilon == pytest.approx(epsilon, rel=1e-9)
    assert math.sqrt(rule.schedule.steps) / cost.noise_multiplier == pytest.approx(cost.mu_steps)
    assert gaussian_delta(cost.mu, epsilon) <= 1e-5


@pytest.mark.parametrize(("epsilon", "steps"), [(0.5, 40), (1.0, 72), (4.0, 100)])
def test_cost_against_the_loss_distribution_of_dp_accounting(epsilon: float, steps: int) -> None:
    """Mean, moments and steps composed one by one in PLD, to 1e-4 in ε."""
    _, cost = linear.planned(60_000, epsilon, 1e-5, (81, 49), steps=steps)

    def gaussian(mu: float):
        return privacy_loss_distribution.from_gaussian_mechanism(
            1.0 / mu, value_discretization_interval=1e-4, use_connect_dots=True
        )

    composed = gaussian(1.0 / cost.noise_multiplier).self_compose(steps)
    composed = composed.compose(gaussian(cost.mu_mean))
    for _ in range(2):
        composed = composed.compose(gaussian(cost.mu_moments / math.sqrt(2)))
    assert composed.get_epsilon_for_delta(1e-5) == pytest.approx(epsilon, abs=1e-4)
    assert gaussian_epsilon(cost.mu, 1e-5) == pytest.approx(epsilon, abs=1e-9)


def test_a_budget_too_small_for_a_step_is_refused() -> None:
    rule = rule_module.choose(100, calibrate_mu(1.0, 1e-5), (81, 49))
    with pytest.raises(ValueError, match="too small for one step"):
        linear.spending(1e-9, 1e-300, rule)


def test_noise_beyond_64_bits_is_refused() -> None:
    """2^55 units leave eight bits above ten standard deviations and the sum."""
    assert noisy_gd.noise_scale(exact_sums.UNIT, 0.999 * 2.0**55) < 2.0**55
    with pytest.raises(ValueError, match="too small for one step"):
        noisy_gd.noise_scale(exact_sums.UNIT, 2.0**55)


@pytest.mark.parametrize(
    "options",
    [{"clip": 0.0}, {"steps": 0}, {"lr": -1.0}, {"moment_share": 1.0}, {"clip": math.nan}],
)
def test_bad_rules_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"clip|steps|rate|shares"):
        rule_module.choose(100, 0.3, (6, 1), **options)


def test_moments_are_paid_for_only_where_they_stand_out_of_their_noise() -> None:
    few = rule_module.choose(1437, calibrate_mu(1.0, 1e-5), (64, 1))
    many = rule_module.choose(60_000, calibrate_mu(0.5, 1e-5), (81, 49))
    assert (few.moment_share, many.moment_share) == (0.0, rule_module.MOMENT_SHARE)
    assert rule_module.choose(1437, 0.3, (64, 1), moment_share=0.1).moment_share == 0.1
    # The spectral norm that the rule takes for the noise, of a matrix drawn as it is released.
    size = 200
    draw = np.random.default_rng(0).standard_normal((size, size)) / math.sqrt(2.0)
    noise_only = np.triu(draw, 1) + np.triu(draw, 1).T + np.diag(np.diag(draw)) * math.sqrt(2.0)
    assert np.linalg.norm(noise_only, 2) == pytest.approx(math.sqrt(2.0 * size), rel=0.05)


# --- the noise that is really added --------------------------------------------------------


def test_the_noise_of_a_step_has_the_stated_law() -> None:
    """One step with and without noise: the difference is N(0, (σ·clip)²), tested at 1e-5."""
    rows, labels = blobs(200, 400)
    whole = exact_sums.quantize(torch.from_numpy(rows), 4.0)
    prior = torch.zeros(3)
    schedule = noisy_gd.Schedule(steps=1, clip=0.5, lr=1.0)
    sigma = 7.0

    def weights(source: noise.Bits) -> np.ndarray:
        return noisy_gd.descend(whole, torch.from_numpy(labels), prior, schedule, sigma, source)

    added = (weights(bits(9)) - weights(silent)) * len(rows) / (sigma * schedule.clip)
    assert added.size == 1200
    assert stats.kstest(added.ravel(), "norm").pvalue > 1e-5


def test_the_noise_of_the_moments_has_the_stated_law() -> None:
    rows, _ = blobs(300, 60 * 9)
    _, a, b = exact_sums.statistics(rows, whitening.RAW_ROW_BOUND, 60, 9, moments=True)
    sigma = whitening.RAW_ROW_BOUND**2 / (0.2 / math.sqrt(2))
    mean = np.zeros(540)
    loud = whitening.release_moments(a, b, 300, mean, 0.2, bits(3))
    exact = a * exact_sums.ROW_UNIT**2
    change = loud.by_channel - exact
    np.testing.assert_array_equal(change, change.T)
    assert stats.kstest(np.diag(change) / sigma, "norm").pvalue > 1e-5
    off = change[np.triu_indices(60, 1)] / (sigma / math.sqrt(2))
    assert stats.kstest(off, "norm").pvalue > 1e-5


def test_the_noise_of_the_mean_has_the_stated_law() -> None:
    """KS at 1e-5, on a sum so large that the shrinkage does nothing."""
    total = np.full(2000, 10**9, dtype=np.int64)
    mean = whitening.release_mean(total, 300, 0.2, bits(4))
    added = (mean - total * exact_sums.ROW_UNIT / 300) * 300 * 0.2 / whitening.RAW_ROW_BOUND
    assert stats.kstest(added, "norm").pvalue > 1e-5


@pytest.mark.parametrize("other", range(5))
def test_every_step_adds_the_noise_of_its_own_draw(other: int) -> None:
    """Two runs whose bits differ in one step only end in different weights, whichever it is."""
    rows, labels = blobs()
    whole = exact_sums.quantize(torch.from_numpy(rows), 4.0)
    schedule = noisy_gd.Schedule(steps=5, clip=0.5, lr=1.0)

    def weights(changed: int | None) -> np.ndarray:
        steps = 0
        usual, another = bits(9), bits(10)

        def source(count: int) -> np.ndarray:
            nonlocal steps
            if count < 18:  # what is drawn again where a sample was rejected
                return silent(count)
            steps += 1
            words = usual(count)
            return another(count) if steps - 1 == changed else words

        labelled = torch.from_numpy(labels)
        found = noisy_gd.descend(whole, labelled, torch.zeros(3), schedule, 3.0, source)
        assert steps == 5
        return found

    assert np.array_equal(weights(None), weights(None))
    assert not np.isclose(weights(None), weights(other)).any()


def test_fit_learns_and_more_budget_helps() -> None:
    rows, labels = blobs()
    scores = {
        epsilon: np.mean(
            [(fit(epsilon, s).logits(rows).argmax(1) == labels).mean() for s in range(3)]
        )
        for epsilon in (0.005, 20.0)
    }
    assert scores[20.0] > 0.9
    assert scores[20.0] > scores[0.005] + 0.1


def test_noiseless_steps_follow_torch_autograd() -> None:
    """With zero noise and a wide clip, the iterates are those of plain gradient descent."""
    rows, labels = blobs(200, 5)
    whole = exact_sums.quantize(torch.from_numpy(rows), 4.0)
    prior = torch.from_numpy(linear.public_log_prior(labels, 3)).float()
    got = noisy_gd.descend(
        whole,
        torch.from_numpy(labels),
        prior,
        noisy_gd.Schedule(8, 4.0, 2.0, averaged=1e-9),
        1e-9,
        bits(),
    )
    weight = torch.zeros(5, 3, requires_grad=True)
    x = whole.integers * exact_sums.ROW_UNIT
    for _ in range(8):
        loss = torch.nn.functional.cross_entropy(x @ weight + prior, torch.from_numpy(labels))
        (gradient,) = torch.autograd.grad(loss, weight)
        weight = (weight - 2.0 * gradient).detach().requires_grad_()
    np.testing.assert_allclose(got, weight.detach().numpy(), atol=0.02)


@pytest.mark.parametrize("shape", [(4, 3), (12, 1)])
def test_folded_weights_give_the_logits_of_the_transformed_rows(shape: tuple[int, int]) -> None:
    rows, _ = blobs(50, 12)
    rng = np.random.default_rng(0)
    _, a, b = exact_sums.statistics(rows, whitening.RAW_ROW_BOUND, *shape, moments=True)
    moments = whitening.release_moments(a, b, 50, rows.mean(0).astype(float), 50.0, bits())
    change = whitening.transform(moments, 50, ridge=1.0, width=10)
    weights = rng.standard_normal((10, 2))
    raw, offset = change.fold(weights)
    want = change.apply(torch.from_numpy(rows)).numpy() @ weights
    np.testing.assert_allclose(rows @ raw + offset, want, atol=1e-4)


def test_whitening_evens_out_the_spectrum() -> None:
    """Features with a Kronecker covariance end with equal variances and unit expected norm."""
    rng = np.random.default_rng(1)
    left, right = np.diag([3.0, 1.0, 0.3, 0.1]), np.diag([1.0, 0.5, 0.2])
    cube = left @ rng.standard_normal((4000, 4, 3)) @ right
    rows = (cube.reshape(4000, 12) / 20).astype(np.float32)
    _, a, b = exact_sums.statistics(rows, whitening.RAW_ROW_BOUND, 4, 3, moments=True)
    moments = whitening.release_moments(a, b, 4000, np.zeros(12), 1e5, bits())
    change = whitening.transform(moments, 4000, ridge=1e-9, width=12)
    out = change.apply(torch.from_numpy(rows)).numpy()
    variances = (out**2).mean(axis=0)
    assert variances.max() / variances.min() < 1.3
    assert variances.sum() == pytest.approx(1.0, rel=0.1)


def test_mean_is_shrunk_to_zero_where_noise_dominates() -> None:
    total = np.zeros(1000, dtype=np.int64)
    mean = whitening.release_mean(total, 10, 0.01, bits())
    assert np.linalg.norm(mean) < 0.2 * math.sqrt(1000) * (whitening.RAW_ROW_BOUND / 0.01) / 10


def test_shares_can_be_zero() -> None:
    fitted = fit(5.0, mean_share=0.0, moment_share=0.0)
    assert fitted.spending.mu_mean == fitted.spending.mu_moments == 0.0
    assert fitted.spending.epsilon == pytest.approx(5.0, rel=1e-9)


def test_same_seed_same_weights() -> None:
    np.testing.assert_array_equal(fit(1.0, 7).weights, fit(1.0, 7).weights)
    assert not np.array_equal(fit(1.0, 7).weights, fit(1.0, 8).weights)


@pytest.mark.parametrize("broken", ["shape", "labels", "rows"])
def test_bad_data_is_refused_before_any_bit_is_drawn(broken: str) -> None:
    rows, labels = blobs(50)
    shape = (6, 1)
    if broken == "shape":
        shape = (7, 1)
    elif broken == "labels":
        labels[0] = 3
    else:
        rows = rows[:-1]

    def refuse(count: int) -> np.ndarray:
        raise AssertionError("noise was drawn")

    rule, cost = linear.planned(50, 1.0, 1e-5, (6, 1))
    with pytest.raises(ValueError, match=r"shape|labels"):
        linear.fit(rows, labels, 3, shape, rule, cost, refuse)


@pytest.mark.parametrize("options", [{"clip": 40.0}, {"ridge": math.nan}, {"ridge": -1.0}])
def test_bad_options_are_refused_before_any_bit_is_drawn(options: dict[str, float]) -> None:
    rows, labels = blobs(50)

    def refuse(count: int) -> np.ndarray:
        raise AssertionError("noise was drawn")

    rule, cost = linear.planned(50, 1.0, 1e-5, (6, 1), **options)
    with pytest.raises(ValueError, match=r"clip|ridge"):
        linear.fit(rows, labels, 3, (6, 1), rule, cost, refuse)


def test_products_in_fewer_bits_are_refused_before_any_bit_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exact = torch.Tensor.__matmul__

    def short(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return exact(a.bfloat16().float(), b.bfloat16().float())

    def refuse(count: int) -> np.ndarray:
        raise AssertionError("noise was drawn")

    rows, labels = blobs(50)
    rule, cost = linear.planned(50, 1.0, 1e-5, (6, 1))
    monkeypatch.setattr(torch.Tensor, "__matmul__", short)
    with pytest.raises(ValueError, match="fewer bits"):
        linear.fit(rows, labels, 3, (6, 1), rule, cost, refuse)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_not_finite_counts_as_a_null_record(value: float) -> None:
    """Where rows are not centred the null record is a row of zeros: the same weights, all bits."""
    rows, labels = blobs(200)
    rule, cost = linear.planned(200, 1.0, 1e-5, (6, 1), mean_share=0.0, moment_share=0.0)
    fitted = []
    for row in (np.zeros(6), np.array([value, 0.1, 0.2, 0.3, 0.4, 0.5])):
        rows[7] = row
        fitted.append(linear.fit(rows, labels, 3, (6, 1), rule, cost, bits(2)))
    np.testing.assert_array_equal(fitted[0].weights, fitted[1].weights)
    shaped, cost = linear.planned(200, 1.0, 1e-5, (6, 1), mean_share=0.1, moment_share=0.1)
    assert np.isfinite(linear.fit(rows, labels, 3, (6, 1), shaped, cost, bits()).weights).all()


@pytest.mark.parametrize("record", [[3e38] * 6, [3e38, -3e38] * 3])
def test_one_record_that_overflows_the_whitening_moves_the_weights_no_further(
    record: list[float],
) -> None:
    rows, labels = blobs(200)
    rows[0] = record
    rule, cost = linear.planned(200, 1.0, 1e-5, (6, 1))
    fitted = linear.fit(rows, labels, 3, (6, 1), rule, cost, bits())
    assert np.abs(fitted.weights).max() < 1e3


def test_the_rate_is_capped_where_the_moments_are_known() -> None:
    """A softmax has a Hessian of at most half the second moment: 4/λ is the limit of descent."""
    mu = calibrate_mu(4.0, 1e-5)
    free, capped = (
        rule_module.choose(60_000, mu, (500, 1), largest=largest, steps=50)
        for largest in (0.002, 0.05)
    )
    assert free.schedule.lr == rule_module.LARGEST_RATE
    assert capped.schedule.lr == pytest.approx(4.0 / 0.05)
    assert free.moment_share == capped.moment_share == 0.0
    by_hand = rule_module.choose(60_000, mu, (500, 1), largest=0.05, lr=200.0)
    assert by_hand.schedule.lr == 200.0
    assert by_hand.stable(0.5).schedule.lr == 200.0
    assert capped.stable(0.5).schedule.lr == pytest.approx(8.0)
    assert free.stable(1e-4).schedule.lr == free.schedule.lr


def test_descent_at_the_cap_does_not_grow_and_beyond_it_does() -> None:
    """One direction carries every row: without noise the weights settle below a rate of 4/λ."""
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.choice([-1.0, 1.0], (400, 1))).float()
    labels = torch.from_numpy(rng.integers(0, 2, 400))
    whole = exact_sums.quantize(rows, 2.0)
    moved = []
    for lr in (3.9, 40.0):
        schedule = noisy_gd.Schedule(steps=60, clip=10.0, lr=lr, averaged=0.02)
        args = (whole, labels, torch.zeros(2), schedule, 1e-9, bits())
        last = noisy_gd.descend(*args)
        more = noisy_gd.descend(*args[:3], noisy_gd.Schedule(61, 10.0, lr, 0.02), 1e-9, bits())
        moved.append(float(np.abs(last - more).max()))
    assert moved[0] < 0.01 < moved[1]


def test_without_released_moments_the_rule_takes_the_most_steps() -> None:
    mu = calibrate_mu(1.0, 1e-5)
    assert rule_module.choose(1437, mu, (64, 1)).schedule.steps == rule_module.MOST_STEPS
    public = rule_module.choose(60_000, mu, (1024, 1), largest=0.002)
    assert public.schedule.steps == rule_module.MOST_STEPS
    paid = rule_module.choose(60_000, mu, (81, 49))
    assert paid.schedule.steps < rule_module.MOST_STEPS
