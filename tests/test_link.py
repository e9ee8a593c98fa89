"""The link and the draw-only estimator: closed forms against Monte Carlo and mpmath, extremes.

Monte-Carlo checks use fixed seeds and bounds of 4.5 standard errors (a false failure in fewer than
1e-5 of all seeds for each check).
"""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
import torch

from simplexdp import Plan, mechanism

SIGMAS = 4.5
BOUND = 10.0


def z_score(values: np.ndarray, expected: float) -> float:
    return float((values.mean() - expected) / (values.std(ddof=1) / math.sqrt(len(values))))


def sample(s_y, classes, r, alpha, estimator, records, link="log"):
    logits = torch.zeros(records, classes)
    logits[:, 0] = math.log(s_y / (1 - s_y) * (classes - 1))
    logits.requires_grad_()
    labels, rng = torch.zeros(records, dtype=torch.long), np.random.default_rng(11)
    losses = mechanism.perturbed_nll(logits, labels, r, alpha, rng, estimator, link, BOUND)
    losses.sum().backward()
    return losses.detach().numpy(), logits.grad.double().numpy()


@pytest.mark.parametrize(("alpha", "r"), [(3.0, 0.28), (0.05, 0.045), (100.0, 60.0)])
@pytest.mark.parametrize("estimator", ["marginal", "full"])
@pytest.mark.parametrize("s_y", [0.9, 0.01])
def test_loss_and_gradient_have_the_moments_of_theorem_2(alpha, r, estimator, s_y):
    """φ, κ and the moments by hand: φ = B/(B − ln s), dφ/d(ln s) = φ²/B."""
    classes = 10
    losses, gradients = sample(s_y, classes, r, alpha, estimator, 20_000)
    phi = BOUND / (BOUND - math.log(s_y))
    with mpmath.workdps(30):
        expected = float(mpmath.digamma(r + classes * alpha) - mpmath.digamma(r * phi + alpha))
        trigamma = mpmath.psi(1, r * phi + alpha)
        variance = float(trigamma - mpmath.psi(1, r + classes * alpha))
        kappa = float(r * trigamma * phi**2 / BOUND)
    assert abs(z_score(losses, expected)) < SIGMAS
    assert abs(z_score((losses - expected) ** 2, variance)) < SIGMAS
    assert abs(z_score(gradients[:, 0], kappa * (s_y - 1))) < SIGMAS
    assert abs(z_score(gradients[:, 1], kappa * (1 - s_y) / (classes - 1))) < SIGMAS
    closed = (s_y, r, alpha)
    assert mechanism.attenuation(*closed, "log", BOUND) == pytest.approx(kappa, rel=1e-9)
    assert mechanism.expected_loss(*closed, 10, "log", BOUND) == pytest.approx(expected, rel=1e-9)
    assert mechanism.loss_variance(*closed, 10, "log", BOUND) == pytest.approx(variance, rel=1e-9)


def test_the_linked_vector_is_one_of_the_simplex_in_proportion():
    logits = torch.tensor([[1.0, 2.0, -1.0, 0.5]], dtype=torch.float64)
    s = torch.softmax(logits, 1)[0]
    v = mechanism.linked_vector(logits, torch.tensor([2]), "log", 4.0)[0]
    assert float(v.sum()) == pytest.approx(1.0, abs=1e-15)
    assert float(v[2]) == pytest.approx(4.0 / (4.0 - math.log(s[2])), rel=1e-12)
    others = [0, 1, 3]
    assert (v[others] / s[others]).numpy() == pytest.approx(float(v[0] / s[0]), rel=1e-12)
    same = mechanism.linked_vector(logits, torch.tensor([2]), "softmax")[0]
    assert same.numpy() == pytest.approx(s.numpy(), rel=1e-12)


@pytest.mark.parametrize("estimator", ["marginal", "full"])
def test_it_is_stable_where_the_probability_is_all_but_0_or_1(estimator):
    logits = torch.tensor([[80.0, -80.0, 0.0], [-3e4, 3e4, 0.0], [0.0, 0.0, 0.0]])
    logits = logits.repeat(1000, 1).requires_grad_()
    labels = torch.zeros(len(logits), dtype=torch.long)
    rng = np.random.default_rng(0)
    losses = mechanism.perturbed_nll(logits, labels, 0.28, 3.0, rng, estimator, "log")
    losses.sum().backward()
    assert torch.isfinite(losses).all()
    assert torch.isfinite(logits.grad).all()


def test_no_class_is_given_up():
    """A hundredth of records that look alike: the softmax gives them up, the link does not."""
    r, alpha, share = 0.28, 3.0, 0.01
    s = np.linspace(1e-9, 0.5, 200_001)  # of the rare class

    def best(link: mechanism.Link) -> float:
        rare = mechanism.expected_loss(s, r, alpha, 2, link)
        common = mechanism.expected_loss(1 - s, r, alpha, 2, link)
        return float(s[np.argmin(share * rare + (1 - share) * common)])

    assert best("softmax") == s[0]
    assert mechanism.share_given_up(r, alpha) > share
    assert best("log") > 1e-4
    assert mechanism.share_given_up(r, alpha, "log") == 0.0


@pytest.mark.parametrize(("alpha", "r"), [(3.0, 0.28), (30.0, 5.0)])
def test_draw_only_is_unbiased_for_the_cross_entropys_gradient(alpha, r):
    """Mean s − e_y; the variance of p·(r + dα)/r is that of a Beta variable, by hand."""
    s_y, classes, records = 0.6, 5, 40_000
    _, gradients = sample(s_y, classes, r, alpha, "draw-only", records, "softmax")
    total = r + classes * alpha
    for k, s in enumerate([s_y, 0.1, 0.1]):
        assert abs(z_score(gradients[:, k], s - (k == 0))) < SIGMAS
        a = r * s + alpha
        variance = a * (total - a) / (total + 1) / r**2
        squares = (gradients[:, k] - (s - (k == 0))) ** 2
        assert abs(z_score(squares, variance)) < SIGMAS


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"link": "log", "link_bound": 0.0}, "must be positive"),
        ({"link": "log", "link_bound": -1.0}, "must be positive"),
        ({"link": "log", "link_bound": math.nan}, "must be positive"),
        ({"link": "probit"}, "unknown link"),
        ({"link": "log", "estimator": "draw-only"}, "leave the link out"),
    ],
)
def test_bad_links_are_refused_before_anything_is_calibrated(given, says):
    with pytest.raises(ValueError, match=says):
        Plan(1.0, 1e-5, 1000, batch_size=5, steps=10, **given)


def test_a_plan_with_a_link_has_the_same_r_another_rate_and_says_so():
    schedule = {"batch_size": 5, "steps": 100, "seed": 0}
    usual, linked = (Plan(4.0, 1e-5, 1000, link=k, **schedule) for k in mechanism.LINKS)
    assert (linked.r, linked.epsilon) == (usual.r, usual.epsilon)
    assert linked.event() == usual.event()
    ratio = usual.learning_rate() / linked.learning_rate()
    phi = BOUND / (BOUND - math.log(0.9))
    with mpmath.workdps(30):
        of_softmax = 0.9 * mpmath.psi(1, usual.r * 0.9 + 3)
        wanted = float(phi**2 / BOUND * mpmath.psi(1, usual.r * phi + 3) / of_softmax)
    assert ratio == pytest.approx(wanted, rel=1e-9)
    said = linked.statement().to_markdown()
    assert "link = log" in said
    assert "not Algorithm 1 as published" in said
    assert "link" not in usual.statement().to_markdown()
    with pytest.raises(AttributeError):
        linked.link_bound = 5.0


def test_a_draw_only_plan_says_what_reads_the_input():
    plan = Plan(
        4.0, 1e-5, 1000, batch_size=5, steps=100, alpha=100.0, seed=0, estimator="draw-only"
    )
    assert plan.learning_rate() == 0.08
    assert "still reads the raw input" in " ".join(plan.statement().to_markdown().split())


def test_the_loss_of_a_plan_is_the_linked_one():
    plan = Plan(4.0, 1e-5, 1000, batch_size=5, steps=100, seed=0, link="log")
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 0])
    step = plan.begin_step(5)
    assert step == 0
    got = plan.loss()(logits, labels)
    other = Plan(4.0, 1e-5, 1000, batch_size=5, steps=100, seed=0)
    other.begin_step(5)
    assert float(got) != float(other.loss()(logits, labels))
