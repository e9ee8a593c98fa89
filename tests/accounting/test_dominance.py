"""The inequalities of the proofs in docs/dominance.md, one by one, by other means than the proofs'.

Step 1: both shifts of mass. Merges: each of them, the sum that their gain is, and its terms. The
second proof's block lemma: as stated, N ≥ 0, m ≤ μ and the bounds it comes
from, p_2 ≥ p_1, c ≥ 0, the growth of κc and its sinh and tanh bounds, the growth of log W.
The theorem and its use: pairs of three to ten classes, and subsampling.
"""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import integrate, special

from simplexdp.accounting import (
    ACCOUNTANTS,
    DOMINANCE,
    POISSON,
    SECRET_BATCHES,
    THROUGH_DRAWS,
)


def below(logit, a, b):
    """P[t < σ(logit)] for t ~ Beta(a, b), from the tail that keeps its digits."""
    if logit < 0:
        return special.betainc(a, b, special.expit(logit))
    return 1.0 - special.betainc(b, a, special.expit(-logit))


def vertex_curve(log_gamma, r, alpha):
    return below(-log_gamma / r, alpha, alpha + r) - math.exp(log_gamma) * below(
        -log_gamma / r, alpha + r, alpha
    )


def level_interval(theta, depth):
    """The x_1 < logit θ < x_2 where θx − log(1+e^x) lies `depth` below its maximum."""
    mu = special.logit(theta)

    def drop(x):
        return theta * (x - mu) - np.logaddexp(0, x) + np.logaddexp(0, mu) + depth

    ends = []
    for sign in (-1.0, 1.0):
        near, far = mu, mu + sign
        while drop(far) > 0:
            far += 2 * (far - mu)
        for _ in range(200):
            middle = (near + far) / 2
            near, far = (middle, far) if drop(middle) > 0 else (near, middle)
        ends.append(near)
    return ends[0], mu, ends[1]


thetas = st.floats(0.5, 0.995)
depths = st.floats(-4, 1.0).map(lambda e: 10.0**e)
alphas = st.floats(0.5, 30.0)
strengths = st.floats(-2, 1).map(lambda e: 10.0**e)


def weighted_tails(c, w, levels):
    """P[Σ w_k log G_k > level], G_k ~ Gamma(c_k) independent, by the formula of Gil-Pelaez."""
    reach = np.abs(w).sum() * (36 / min(c) + 10) + np.abs(levels).max()
    h = 2 * math.pi / (2.2 * reach)
    s = (np.arange(int(32 / np.abs(w).sum() / h) + 50) + 0.5) * h
    log_phi = sum(
        special.loggamma(ck + 1j * s * wk) - special.loggamma(ck)
        for ck, wk in zip(c, w, strict=True)
    )
    wave = np.exp(log_phi - 1j * s * levels[:, None]).imag
    return 0.5 + (wave / s).sum(axis=1) * h / math.pi


def test_the_tails_of_weighted_logarithms():
    """Σ w_k log G_k > 0 with w = (1, −1) is t > ½, and with w = (1, 0) is G_1 > 1."""
    c, zero = np.array([0.3, 2.0]), np.zeros(1)
    odds = weighted_tails(c, np.array([1.0, -1.0]), zero)
    assert odds == pytest.approx([special.betainc(2.0, 0.3, 0.5)], abs=1e-10)
    alone = weighted_tails(c, np.array([1.0, 0.0]), zero)
    assert alone == pytest.approx([special.gammaincc(0.3, 1.0)], abs=1e-10)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 3.0])
@pytest.mark.parametrize("ratio", [0.3, 0.99, 4.0])
def test_moving_mass_towards_the_test_does_not_lower_its_power(alpha, ratio):
    """Step 1, for every α: A stays; a's mass goes to where w > 0, b's to where w < 0."""
    rng = np.random.default_rng(11)
    r = ratio * alpha
    for classes in (2, 3, 5):
        for _ in range(3):
            a, b = rng.dirichlet([0.5] * classes), rng.dirichlet([0.5] * classes)
            w = a - b
            gain, loss = int(np.argmax(w)), int(np.argmin(w))
            levels = np.linspace(-4, 4, 7) * np.abs(w).sum() / min(alpha, 1.0)
            share = rng.uniform(0.1, 1.0)
            raised, lowered = a.copy(), b.copy()
            raised[[gain, loss]] += share * a[loss] * np.array([1, -1])
            lowered[[gain, loss]] += share * b[gain] * np.array([-1, 1])
            power, false = (weighted_tails(alpha + r * x, w, levels) for x in (a, b))
            assert (weighted_tails(alpha + r * raised, w, levels) >= power - 1e-9).all()
            assert (weighted_tails(alpha + r * lowered, w, levels) <= false + 1e-9).all()


def between(low, high, a, b):
    """P[low < logit t < high] for t ~ Beta(a, b)."""
    return below(high, a, b) - below(low, a, b)


@settings(max_examples=100, deadline=None)
@given(alpha=alphas, strength=strengths, theta=st.floats(0.005, 0.995), depth=depths)
def test_the_block_lemma(alpha, strength, theta, depth):
    """H_k of the split block is at most that of the merged one, both from incomplete betas."""
    r = alpha * strength
    low, mu, high = level_interval(theta, depth)
    a, b = alpha + r * theta, alpha + r * (1 - theta)
    constant = special.betaln(alpha, alpha) - special.betaln(a, b)
    top = r * (theta * special.log_expit(mu) + (1 - theta) * special.log_expit(-mu))
    log_k = constant + top - r * depth
    split = between(low, high, a, b) - math.exp(log_k) * between(low, high, alpha, alpha)
    # The merged ratio is t^r times a constant: it exceeds k above one t, or nowhere.
    log_t = (log_k - special.betaln(alpha, alpha) + special.betaln(alpha + r, alpha)) / r
    merged = 0.0
    if log_t < 0:
        logit = log_t - math.log(-math.expm1(log_t))
        merged = below(-logit, alpha, alpha + r) - math.exp(log_k) * below(-logit, alpha, alpha)
    assert split <= merged + 1e-10 * max(1.0, math.exp(log_k))


@settings(max_examples=60, deadline=None)
@given(alpha=alphas, strength=strengths, theta=thetas, depth=depths)
@example(alpha=10.0, strength=10.0, theta=0.9921875, depth=10.0)  # quad needs many points here
def test_the_mean_inside_a_level_set_is_above_the_mean(alpha, strength, theta, depth):
    """N ≥ 0, by quadrature of Beta(α+rθ, α+r(1−θ)) in the logit."""
    r = alpha * strength
    low, _, high = level_interval(theta, depth)
    a, b = alpha + r * theta, alpha + r * (1 - theta)
    mean = special.digamma(a) - special.digamma(b)

    def integrand(x):
        log_p = a * special.log_expit(x) + b * special.log_expit(-x) - special.betaln(a, b)
        return (x - mean) * math.exp(log_p)

    # The interval may be a thousand times as wide as the peak, which quad then must be shown.
    width = math.sqrt(special.polygamma(1, a) + special.polygamma(1, b))
    deviations = (-20, -12, -8, -5, -3, -1, 0, 1, 3, 5, 8, 12, 20)
    points = [np.clip(mean + k * width, low, high) for k in deviations]
    inside = integrate.quad(integrand, low, high, limit=200, points=points, epsabs=1e-12)
    assert inside[0] >= -1e-9


@settings(max_examples=60, deadline=None)
@given(alpha=alphas, strength=strengths, theta=st.floats(0.5, 0.9999))
def test_the_mean_of_the_logit_is_below_the_mode_of_the_ratio(alpha, strength, theta):
    r = alpha * strength
    mean = special.digamma(alpha + r * theta) - special.digamma(alpha + r * (1 - theta))
    c = alpha - 0.5
    bound = math.log((c + r * theta) / (c + r * (1 - theta)))
    assert mean <= bound + 1e-12
    assert bound <= special.logit(theta) + 1e-12


def grid(first, last):
    """Twenty numbers to a decade, with forty digits."""
    return [mpmath.mpf(10) ** (mpmath.mpf(k) / 20) for k in range(20 * first, 20 * last + 1)]


def test_the_bound_on_the_trigamma_function():
    with mpmath.workdps(40):
        for x in grid(-6, 6):
            z = mpmath.mpf("0.5") + x
            assert mpmath.psi(1, z) < 1 / x


def test_the_trigamma_function_falls_slower_than_a_square():
    """−xψ''(x) < 2ψ'(x), on which the Rényi divergences rest."""
    with mpmath.workdps(40):
        for x in grid(-4, 4):
            assert -x * mpmath.psi(2, x) < 2 * mpmath.psi(1, x)


def test_the_bounds_on_hyperbolic_functions():
    with mpmath.workdps(40):
        for z in grid(-4, 2):
            assert mpmath.coth(z) / 2 - 1 / (2 * z) > 0  # c(p) at z = p/2
            assert mpmath.sinh(z) ** 2 > z**2 + z**4 / 3
            assert z * mpmath.tanh(z) > z**2 - z**4 / 3


@settings(max_examples=60, deadline=None)
@given(theta=thetas, depth=depths)
def test_the_closed_forms_of_the_level_set(theta, depth):
    low, mu, high = level_interval(theta, depth)
    p1, p2 = mu - low, high - mu
    v, eta = theta * (1 - theta), theta - 0.5
    right = special.expit(high) - theta
    left = theta - special.expit(low)
    assert v / right == pytest.approx(0.5 / math.tanh(p2 / 2) + eta, rel=1e-6)
    assert v / left == pytest.approx(0.5 / math.tanh(p1 / 2) - eta, rel=1e-6)
    assert p2 >= p1 * (1 - 1e-9)


def test_kappa_times_c_increases():
    with mpmath.workdps(40):
        values = [mpmath.coth(z) ** 2 - mpmath.coth(z) / z for z in grid(-4, 3)]
        assert all(x < y for x, y in itertools.pairwise(values))


@settings(max_examples=40, deadline=None)
@given(alpha=alphas, strength=strengths, theta=thetas, depth=depths)
def test_the_ratio_of_the_two_ends_grows_with_the_level(alpha, strength, theta, depth):
    """log W at two nearby levels, straight from its definition."""
    r = alpha * strength
    mean = special.digamma(alpha + r * theta) - special.digamma(alpha + r * (1 - theta))

    def log_ratio(at):
        low, _, high = level_interval(theta, at)
        if low >= mean:
            return math.inf
        ends = []
        for x in (high, low):
            log_product = special.log_expit(x) + special.log_expit(-x)  # t·s underflows
            distance = abs(special.expit(x) - theta)
            ends.append(math.log(abs(x - mean)) + alpha * log_product - math.log(distance))
        return ends[0] - ends[1]

    assert log_ratio(depth) >= log_ratio(1.3 * depth) - 1e-6


def sticks(c, x):
    """The density of both sticks' logits: t_1 ~ Beta(c_1, c_2+c_3), t_2 ~ Beta(c_2, c_3)."""
    parts = []
    for a, b in ((c[0], c[1] + c[2]), (c[1], c[2])):
        log_p = a * special.log_expit(x) + b * special.log_expit(-x) - special.betaln(a, b)
        parts.append(np.exp(log_p))
    return parts[0][:, None] * parts[1][None, :]


@pytest.mark.parametrize("alpha", [0.1, 0.5, 3.0])
@pytest.mark.parametrize("ratio", [0.3, 0.95])
def test_no_pair_of_three_classes_beats_the_vertices(alpha, ratio):
    rng = np.random.default_rng(3)
    r = ratio * alpha
    tau = np.linspace(-1, 1, 241) * math.asinh(45 / min(alpha, 1.0))
    x, weight = np.sinh(tau), np.cosh(tau) * (tau[1] - tau[0])
    cell = weight[:, None] * weight[None, :]
    pairs = [
        ([0.5, 0.5, 0], [0, 0, 1]),
        ([0.5, 0.5, 0], [0, 0.5, 0.5]),
        ([1, 0, 0], [0.2, 0.4, 0.4]),
    ]
    pairs += [(rng.dirichlet([0.4] * 3), rng.dirichlet([0.4] * 3)) for _ in range(6)]
    levels = np.linspace(-3, 3, 7) * r / min(alpha, 1.0)
    for a, b in pairs:
        p = sticks(r * np.array(a) + alpha, x) * cell
        q = sticks(r * np.array(b) + alpha, x) * cell
        assert p.sum() == pytest.approx(1.0, abs=1e-6)
        for level in levels:
            curve = np.maximum(p - math.exp(level) * q, 0).sum()
            assert curve <= vertex_curve(level, r, alpha) + 5e-5


def test_the_block_lemma_stops_at_small_alpha():
    """At α = 0.05 the split block's likelihood ratio reaches above the merged one's bound."""
    alpha, r = 0.05, 0.0495
    merged = special.betaln(alpha, alpha) - special.betaln(alpha + r, alpha)
    split = special.betaln(alpha, alpha) - special.betaln(alpha + r / 2, alpha + r / 2)
    assert split - r * math.log(2) > merged
    alpha, r = 0.5, 0.495
    merged = special.betaln(alpha, alpha) - special.betaln(alpha + r, alpha)
    split = special.betaln(alpha, alpha) - special.betaln(alpha + r / 2, alpha + r / 2)
    assert split - r * math.log(2) < merged


def gamma_curve(a, b, r, alpha, levels):
    """H_γ of two draws for any number of classes, to about 1e-11.

    log L = Σ r(a_k − b_k) log G_k + constant is a sum of independent terms whose characteristic
    functions are ratios of gamma functions; both tails follow by the formula of Gil-Pelaez, whose
    integrand falls exponentially.
    """
    a, b = np.array(a, float), np.array(b, float)
    w = r * (a - b)
    x = levels - np.sum(special.gammaln(alpha + r * b) - special.gammaln(alpha + r * a))
    reach = 2 * r * (36 / alpha + 10) + np.abs(x).max()
    h = 2 * math.pi / (2.2 * reach)
    s = (np.arange(int(32 / np.abs(w).sum() / h) + 50) + 0.5) * h
    tails = []
    for c in (alpha + r * a, alpha + r * b):
        log_phi = sum(
            special.loggamma(ck + 1j * s * wk) - special.loggamma(ck)
            for ck, wk in zip(c, w, strict=True)
        )
        wave = np.exp(log_phi - 1j * s * x[:, None]).imag
        tails.append(0.5 + (wave / s).sum(axis=1) * h / math.pi)
    return tails[0] - np.exp(levels) * tails[1]


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2, 0.3, 0.49, 0.5, 3.0])
@pytest.mark.parametrize("ratio", [0.3, 0.99])
def test_no_pair_of_many_classes_beats_the_vertices(alpha, ratio):
    """Both directions and γ on both sides of 1; Poisson subsampling by its closed form."""
    rng = np.random.default_rng(7)
    r = ratio * alpha
    levels = np.linspace(-3, 3, 9) * r / min(alpha, 1.0)
    worst = np.array([vertex_curve(level, r, alpha) for level in levels])
    assert gamma_curve([1, 0, 0], [0, 1, 0], r, alpha, levels) == pytest.approx(worst, abs=1e-10)
    pairs = [
        ([0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]),
        ([0.999, 0.001, 0, 0], [0, 0, 0.001, 0.999]),
        ([0.5, 0.5, 0], [0, 0, 1]),
        (rng.dirichlet([0.3] * 10), rng.dirichlet([0.3] * 10)),
    ]
    for a, b in pairs:
        for upper, lower in ((a, b), (b, a)):
            excess = gamma_curve(upper, lower, r, alpha, levels) - worst
            assert excess.max() <= 1e-10


@settings(max_examples=30, deadline=None)
@given(alpha=alphas, strength=strengths, q=st.floats(0.01, 0.99), level=st.floats(-2, 2))
def test_subsampling_shifts_the_curve(alpha, strength, q, level):
    """H of ((1−q)Q + qP, Q) and of its reverse from the curve of (P, Q), against quadrature."""
    r = min(alpha, 3.0) * min(strength, 1.0)
    gamma = math.exp(level * r / min(alpha, 1.0))
    tau = np.linspace(-1, 1, 4001) * math.asinh(45 / min(alpha, 1.0))
    x, weight = np.sinh(tau), np.cosh(tau) * (tau[1] - tau[0])
    p, base = (
        np.exp(c * special.log_expit(x) + d * special.log_expit(-x) - special.betaln(c, d)) * weight
        for c, d in ((alpha + r, alpha), (alpha, alpha + r))
    )
    mixed = (1 - q) * base + q * p

    def removed(g):
        inner = (g - 1 + q) / q
        return q * vertex_curve(math.log(inner), r, alpha) if inner > 0 else 1 - g

    remove = np.maximum(mixed - gamma * base, 0).sum()
    add = np.maximum(base - gamma * mixed, 0).sum()
    assert remove == pytest.approx(removed(gamma), abs=2e-5)
    assert add == pytest.approx(gamma * removed(1 / gamma) + 1 - gamma, abs=2e-5)


def test_the_accountants_say_whether_they_rest_on_dominance():
    resting = {name for name, record in ACCOUNTANTS.items() if DOMINANCE in record.assumptions}
    assert resting == {"pld", "visible-pld"}


def test_only_hidden_participation_needs_secret_batches():
    for name, record in ACCOUNTANTS.items():
        assert POISSON in record.assumptions
        assert THROUGH_DRAWS in record.assumptions
        assert (SECRET_BATCHES in record.assumptions) == (not name.startswith("visible"))


def merged(masses):
    """The masses with the two smallest of them together, one place shorter."""
    ordered = np.sort(masses)
    return np.append(ordered[2:], ordered[0] + ordered[1])


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3, 0.49, 3.0])
@pytest.mark.parametrize("ratio", [0.5, 0.99, 1.2])
def test_merging_the_two_smallest_of_the_longer_side_lowers_no_divergence(alpha, ratio):
    """From disjoint outputs to two vertices, every merge in turn, for both directions."""
    rng = np.random.default_rng(3)
    r = ratio * alpha
    levels = np.linspace(-4, 4, 9) * r / min(alpha, 1.0)
    starts = [(np.full(2, 0.5), np.full(2, 0.5)), (np.full(3, 1 / 3), np.full(3, 1 / 3))]
    starts += [(rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(n))) for n in (1, 3)]
    for a, b in starts:
        before = None
        while True:
            upper, lower = np.append(a, 0.0 * b), np.append(0.0 * a, b)
            curves = [
                gamma_curve(p, q, r, alpha, levels) for p, q in ((upper, lower), (lower, upper))
            ]
            for now, old in zip(curves, before or curves, strict=True):
                assert (now - old >= -1e-10 * np.maximum(1.0, np.exp(levels))).all()
            if len(a) == len(b) == 1:
                break
            before = curves
            if len(a) >= len(b):
                a = merged(a)
            else:
                b = merged(b)


@pytest.mark.parametrize(("s", "a", "beta", "alpha"), [(0.3, 0.7, 1.0, 0.1), (2.5, 0.4, 0.6, 1.5)])
def test_the_gain_of_a_weight_is_a_sum_of_densities(s, a, beta, alpha):
    """E[(X − EX)·1{aX + W > τ}] for X = log Gamma(s), W = −β log Gamma(α): the derivative in s of
    P[aX + W > τ], against Σ_k a/(s+k)² times the density of aX + W − aE/(s+k)."""
    levels, w = np.linspace(-3, 6, 7), np.array([a, -beta])
    step = 1e-4
    ends = [weighted_tails(np.array([s + d, alpha]), w, levels) for d in (step, -step)]
    gain = (ends[0] - ends[1]) / (2 * step)
    u = np.linspace(0, 60, 60_001) + 1e-12
    phi = np.exp(
        special.loggamma(s + 1j * u * a) - special.loggamma(s)
        + special.loggamma(alpha - 1j * u * beta) - special.loggamma(alpha)
    )  # fmt: skip
    k, many = np.arange(400), 400
    weight = sum(a / (s + i) ** 2 / (1 + 1j * u * a / (s + i)) for i in k)
    weight += a / (s + many - 0.5) / (1 + 0.5j * u * a / (s + many))  # the terms beyond, nearly
    found = [
        float(np.trapezoid((phi * weight * np.exp(-1j * u * level)).real, u)) / math.pi
        for level in levels
    ]
    assert found == pytest.approx(gain, abs=3e-5)


@settings(max_examples=300, deadline=None)
@given(
    alpha=st.floats(-3, 1.5).map(lambda e: 10.0**e),
    ratio=st.floats(0.01, 1.236),
    longer=st.integers(2, 12),
    share=st.floats(0.01, 1.0),
    part=st.floats(0.5, 0.9999),
    largest=st.floats(0.0, 1.0),
    k=st.integers(0, 50),
    y=st.floats(-50, 50),
)
def test_every_term_of_a_merge_is_positive(alpha, ratio, longer, share, part, largest, k, y):
    """The kernels of the two weights, one below the other at every point, as the proof says."""
    r, mass = ratio * alpha, 2.0 / longer * share
    c = alpha / (1.0 / longer + largest * (1.0 - 1.0 / longer))

    def kernel(weight):
        s = alpha + k + r * weight
        rate = s / weight
        side = -c * y if y >= 0 else rate * y
        return math.log(weight / s**2 * c * rate / (c + rate)) + side

    assert kernel(part * mass) >= kernel((1 - part) * mass) - 1e-9
