"""The mechanism against Theorem 2's closed forms, mpmath and scipy's Beta distribution.

Monte-Carlo checks use fixed seeds and bounds of at least 4.5 standard errors (a false failure
in fewer than 1e-5 of all seeds for each check).
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional

from simplexdp import mechanism

CORNERS = [(3.0, 0.28), (0.05, 0.045), (0.3, 0.026), (100.0, 60.0), (100.0, 1e-4), (0.05, 1e-4)]
SIGMAS = 4.5


def logits_with(s_y: float, classes: int, records: int) -> torch.Tensor:
    """float32 logits whose first class has probability s_y."""
    logits = torch.zeros(records, classes)
    logits[:, 0] = math.log(s_y / (1 - s_y) * (classes - 1))
    return logits


def sample(s_y: float, classes: int, r: float, alpha: float, estimator: str, records: int):
    logits = logits_with(s_y, classes, records).requires_grad_()
    labels = torch.zeros(records, dtype=torch.long)
    rng = np.random.default_rng(7)
    losses = mechanism.perturbed_nll(logits, labels, r, alpha, rng, estimator)
    losses.sum().backward()
    return losses.detach().numpy(), logits.grad.double().numpy()


def z_score(values: np.ndarray, expected: float) -> float:
    return float((values.mean() - expected) / (values.std(ddof=1) / math.sqrt(len(values))))


@pytest.mark.parametrize(("alpha", "r"), CORNERS)
@pytest.mark.parametrize(
    ("estimator", "classes", "records"),
    [
        ("marginal", 2, 40_000),
        ("marginal", 10, 40_000),
        ("marginal", 1000, 4_000),
        ("full", 2, 40_000),
        ("full", 10, 20_000),
        ("full", 1000, 1_000),
    ],
)
def test_loss_and_gradient_have_the_moments_of_theorem_2(alpha, r, estimator, classes, records):
    s_y = 0.6
    losses, gradients = sample(s_y, classes, r, alpha, estimator, records)
    expected = float(mechanism.expected_loss(s_y, r, alpha, classes))
    assert abs(z_score(losses, expected)) < SIGMAS
    kappa = float(mechanism.attenuation(s_y, r, alpha))
    # float32 logits carry s_y with a relative error near 1e-7, far below the error bars.
    assert abs(z_score(gradients[:, 0], kappa * (s_y - 1))) < SIGMAS
    other = kappa * (1 - s_y) / (classes - 1)
    assert abs(z_score(gradients[:, 1], other)) < SIGMAS
    variance = float(mechanism.loss_variance(s_y, r, alpha, classes))
    squares = (losses - expected) ** 2
    assert abs(z_score(squares, variance)) < SIGMAS


@pytest.mark.parametrize(("alpha", "r"), [(3.0, 0.28), (0.05, 0.045)])
@pytest.mark.parametrize("link", mechanism.LINKS)
@pytest.mark.parametrize("records", [1, 8, 37])
def test_one_node_has_the_bits_of_torch_own_operations(alpha, r, link, records):
    drawn = torch.Generator().manual_seed(records)
    labels = torch.randint(0, 5, (records,), generator=drawn)
    weights = torch.rand(records, generator=drawn, dtype=torch.float64)
    given = 4 * torch.randn(records, 5, generator=drawn)
    ours, theirs = given.clone().requires_grad_(), given.clone().requires_grad_()
    losses = mechanism.perturbed_nll(ours, labels, r, alpha, np.random.default_rng(7), link=link)
    log_s_y = -functional.cross_entropy(theirs, labels, reduction="none").double()
    if link == "softmax":
        at_y, rest = log_s_y.exp(), -torch.expm1(log_s_y)
    else:
        at_y, rest = 10.0 / (10.0 - log_s_y), -log_s_y / (10.0 - log_s_y)
    both = torch.stack([r * at_y + alpha, r * rest + 4 * alpha])
    log_g = mechanism.log_gamma_draw(both, np.random.default_rng(7))
    odds = log_g[1] - log_g[0]
    expected = torch.logaddexp(odds, torch.zeros_like(odds))
    assert torch.equal(losses, expected)
    (losses * weights).mean().to(torch.float32).backward()
    (expected * weights).mean().to(torch.float32).backward()
    assert torch.equal(ours.grad, theirs.grad)


@pytest.mark.parametrize(("alpha", "r"), [(3.0, 0.28), (0.05, 0.045), (100.0, 60.0)])
def test_marginal_is_unbiased_at_a_hundred_thousand_classes(alpha, r):
    """torch's own Beta derivative is half its true size here."""
    s_y, classes = 0.6, 100_000
    logits = logits_with(s_y, classes, 1)
    rng = np.random.default_rng(3)
    # One record's logits, drawn many times through a stride-0 batch: little memory, same law.
    log_s_y = torch.log_softmax(logits.double(), 1)[:, 0].expand(200_000)
    log_s_y = log_s_y.clone().requires_grad_()
    a = r * log_s_y.exp() + alpha
    b = r * -torch.expm1(log_s_y) + (classes - 1) * alpha
    log_g = mechanism.log_gamma_draw(torch.stack([a, b]), rng)
    losses = torch.logaddexp(log_g[0], log_g[1]) - log_g[0]
    losses.sum().backward()
    expected = float(mechanism.expected_loss(s_y, r, alpha, classes))
    assert abs(z_score(losses.detach().numpy(), expected)) < SIGMAS
    kappa = float(mechanism.attenuation(s_y, r, alpha))
    assert abs(z_score(log_s_y.grad.numpy(), -kappa)) < SIGMAS
    # and the public function, at fewer draws for want of memory, agrees with the closed form
    few, gradients = sample(s_y, classes, r, alpha, "marginal", 100)
    assert abs(z_score(few, expected)) < SIGMAS
    assert abs(z_score(gradients[:, 0], kappa * (s_y - 1))) < SIGMAS


def test_both_estimators_have_about_the_same_gradient_variance():
    _, marginal = sample(0.6, 10, 0.28, 3.0, "marginal", 40_000)
    _, full = sample(0.6, 10, 0.28, 3.0, "full", 40_000)
    assert 0.8 < marginal[:, 0].var() / full[:, 0].var() < 1.25


@pytest.mark.parametrize(("alpha", "r"), [(3.0, 2.0), (0.05, 0.04)])
@pytest.mark.parametrize("estimator", mechanism.ESTIMATORS)
def test_the_draw_is_a_beta_variable(alpha, r, estimator):
    losses, _ = sample(0.6, 5, r, alpha, estimator, 20_000)
    beta = stats.beta(r * 0.6 + alpha, r * 0.4 + 4 * alpha)
    # Compare log p_y with log of a Beta draw: at α = 0.05 p_y itself underflows float32.
    assert stats.kstest(-losses, lambda x: beta.cdf(np.exp(x))).pvalue > 1e-5


def test_draws_are_dirichlet():
    s = torch.tensor([0.7, 0.2, 0.1])
    draws = mechanism.draw(s.expand(50_000, 3), 2.0, 3.0, np.random.default_rng(0)).numpy()
    law = stats.dirichlet(2.0 * s.numpy() + 3.0)
    assert np.allclose(draws.sum(1), 1.0)
    error = draws.std(0) / math.sqrt(len(draws))
    assert (np.abs(draws.mean(0) - law.mean()) < SIGMAS * error).all()
    covariance = np.cov(draws.T)
    assert np.allclose(covariance, law.cov(), atol=4e-4)


def test_a_sum_that_misses_one_is_divided_out():
    """A vector times 0.99995 or 1.00005 is drawn from as the vector itself."""
    s = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64).expand(100, 3)
    want, *off = (
        mechanism.draw(scale * s, 2.0, 3.0, np.random.default_rng(0)).numpy()
        for scale in (1.0, 1 - 5e-5, 1 + 5e-5)
    )
    for draws in off:
        np.testing.assert_allclose(draws, want, rtol=1e-12)


@pytest.mark.parametrize(("alpha", "r"), CORNERS)
@pytest.mark.parametrize("estimator", mechanism.ESTIMATORS)
def test_extreme_logits_give_finite_losses_and_gradients(alpha, r, estimator):
    logits = torch.tensor([[80.0, -80.0, 0.0], [-3e4, 3e4, 0.0], [0.0, 0.0, 0.0]])
    logits = logits.repeat(2000, 1).requires_grad_()
    labels = torch.zeros(len(logits), dtype=torch.long)
    losses = mechanism.perturbed_nll(logits, labels, r, alpha, np.random.default_rng(0), estimator)
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert torch.isfinite(logits.grad).all()
    # No draw is clamped: a floor would repeat itself.
    assert len(torch.unique(losses.detach())) == len(losses)


@pytest.mark.parametrize(("alpha", "r"), CORNERS)
def test_closed_forms_against_mpmath(alpha, r):
    with mpmath.workdps(40):
        for s_y, classes in [(0.9, 10), (1e-9, 2), (1.0, 1000)]:
            a = mpmath.mpf(r) * mpmath.mpf(s_y) + mpmath.mpf(alpha)
            total = mpmath.mpf(r) + classes * mpmath.mpf(alpha)
            loss = mpmath.digamma(total) - mpmath.digamma(a)
            kappa = mpmath.mpf(r) * mpmath.mpf(s_y) * mpmath.psi(1, a)
            variance = mpmath.psi(1, a) - mpmath.psi(1, total)
            assert float(mechanism.expected_loss(s_y, r, alpha, classes)) == pytest.approx(
                float(loss), rel=1e-9
            )
            assert float(mechanism.attenuation(s_y, r, alpha)) == pytest.approx(
                float(kappa), rel=1e-11
            )
            assert float(mechanism.loss_variance(s_y, r, alpha, classes)) == pytest.approx(
                float(variance), rel=1e-9
            )


# κ at s_y = 0.9 in the paper's figure on learning rates: the ratio of its two horizontal axes.
FIGURE_KAPPA = {
    0.1: 0.684524,
    0.2: 0.354433,
    0.3: 0.249636,
    0.5: 0.169364,
    1.0: 0.114762,
    2.0: 0.0841925,
    3.0: 0.0771553,
    5.0: 0.0646661,
    10.0: 0.048199,
}


@pytest.mark.parametrize("alpha", sorted(FIGURE_KAPPA))
def test_kappa_of_the_papers_learning_rate_figure(alpha):
    from simplexdp import accounting

    found = accounting.calibrate(
        "theorem1", epsilon=1.0, delta=1e-5, alpha=alpha, sample_rate=0.005, steps=20_000
    )
    kappa = float(mechanism.attenuation(0.9, found.r, alpha))
    assert kappa == pytest.approx(FIGURE_KAPPA[alpha], rel=0.01)


def test_empty_batch_gives_an_empty_loss():
    losses = mechanism.perturbed_nll(
        torch.zeros(0, 4), torch.zeros(0, dtype=torch.long), 0.2, 3.0, np.random.default_rng(0)
    )
    assert losses.shape == (0,)


@pytest.mark.parametrize("estimator", mechanism.ESTIMATORS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_logits_are_refused_without_showing_them(estimator, bad):
    logits = torch.tensor([[bad, 123.456, 0.0]])
    with pytest.raises(ValueError, match="NaN or infinity") as caught:
        mechanism.perturbed_nll(
            logits, torch.tensor([0]), 0.2, 3.0, np.random.default_rng(0), estimator
        )
    assert "123" not in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "r", "alpha", "message"),
    [
        ([3], 0.2, 3.0, "label lies outside"),
        ([-1], 0.2, 3.0, "label lies outside"),
        ([0, 1], 0.2, 3.0, "do not fit"),
        ([0], 3.0, 3.0, "strictly between 0 and alpha"),
        ([0], 0.0, 3.0, "strictly between 0 and alpha"),
        ([0], 0.1, 0.0, "alpha is 0.0"),
        ([0], math.nan, 3.0, "r is nan"),
    ],
)
def test_bad_input_is_refused(labels, r, alpha, message):
    with pytest.raises(ValueError, match=message):
        mechanism.perturbed_nll(
            torch.zeros(1, 3), torch.tensor(labels), r, alpha, np.random.default_rng(0)
        )


def test_draw_refuses_what_is_not_a_probability_vector():
    for bad in ([0.5, 0.6], [1.5, -0.5], [math.nan, 1.0]):
        with pytest.raises(ValueError, match="softmax outputs"):
            mechanism.draw(torch.tensor([bad]), 0.2, 3.0, np.random.default_rng(0))


@pytest.mark.parametrize(("alpha", "r"), [(3.0, 0.137), (3.0, 0.856), (0.3, 0.2), (1.0, 0.9)])
@pytest.mark.parametrize("relative", [0.97, 1.03])
def test_the_best_constant_prediction_gives_up_classes_below_a_share(alpha, r, relative):
    """Where records look alike: all on the likeliest class, unless the next is nearly as likely."""
    assert mechanism.share_given_up(r, alpha) == pytest.approx(
        float(mpmath.psi(1, alpha + r) / mpmath.psi(1, alpha)), rel=1e-12
    )
    share = relative * mechanism.share_given_up(r, alpha)
    shares = np.array([1.0, share, 0.1]) / (1.1 + share)

    def loss(s: np.ndarray) -> np.ndarray:
        return (shares * mechanism.expected_loss(s, r, alpha, 3)).sum(axis=-1)

    s_2 = np.linspace(0.0, 1.0, 20_001)
    best = s_2[loss(np.stack([1.0 - s_2, s_2, np.zeros_like(s_2)], axis=1)).argmin()]
    assert (best == 0.0) == (relative < 1)
    if relative < 1:  # no other prediction is better
        others = np.random.default_rng(0).dirichlet(np.ones(3), 20_000)
        assert loss(others).min() > loss(np.array([1.0, 0.0, 0.0]))


@pytest.mark.parametrize("estimator", ["marginal", "full"])
def test_a_second_derivative_is_refused_and_not_wrong(estimator: mechanism.Estimator) -> None:
    logits = torch.zeros(4, 3, requires_grad=True)
    rng = np.random.default_rng(0)
    losses = mechanism.perturbed_nll(logits, torch.arange(4) % 3, 0.4, 0.5, rng, estimator)
    torch.autograd.grad(losses.sum(), logits, retain_graph=True)
    with pytest.raises(ValueError, match="no second derivative"):
        torch.autograd.grad(losses.sum(), logits, create_graph=True)
