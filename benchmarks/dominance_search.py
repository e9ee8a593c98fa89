"""Does any pair of softmax outputs beat the vertex pair in a hockey-stick divergence?

    python benchmarks/dominance_search.py

Searches three and four classes by quadrature and ten by Monte Carlo, over α, r/α, pairs in the
interior and on the boundary, both directions, with and without Poisson subsampling, and checks the
block lemma of docs/dominance.md. Writes results/accounting/dominance.json.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

Array = npt.NDArray[np.float64]
RESULT = Path(__file__).resolve().parents[1] / "results" / "accounting" / "dominance.json"
ALPHAS = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 1.0, 3.0, 10.0)
RATIOS = (0.1, 0.5, 0.9, 0.99)
BEYOND = (2.0, 4.0, 8.0)
RATES = (1.0, 0.3, 0.01)


def vertex_curve(log_gamma: Array, r: float, alpha: float) -> Array:
    """H_γ of two vertices, in closed form."""
    s = special.expit(-log_gamma / r)
    upper = special.betainc(alpha, alpha + r, s)
    lower = special.betainc(alpha + r, alpha, s)
    return np.asarray(upper - np.exp(log_gamma) * lower)


def inner_log_gamma(log_gamma: Array, q: float, add: bool) -> tuple[Array, Array, Array]:
    """H of the sampled pair as weight·H_γ'(base) + shift, by γ.

    remove: ((1−q)Q + qP) against Q;  add: Q against ((1−q)Q + qP), through H_γ(Q‖P) of the base.
    """
    sign = -1.0 if add else 1.0
    inside = np.expm1(sign * log_gamma) / q + 1.0
    known = inside > 0
    return np.log(np.where(known, inside, 1.0)), known, np.full_like(log_gamma, q)


def axis_nodes(alpha: float, count: int) -> tuple[Array, Array]:
    """Nodes in the logit of a stick and their weights, dense near 0 and reaching to the tails."""
    reach = math.asinh(45.0 / min(alpha, 1.0))
    tau = np.linspace(-reach, reach, count)
    return np.sinh(tau), np.cosh(tau) * (tau[1] - tau[0])


def stick_parts(c: Array, x: Array, axis: int) -> tuple[Array, Array, Array]:
    """log density of stick `axis`'s logit, and log t, log(1−t), for concentrations c.

    Dirichlet(c) is a product of sticks t_k ~ Beta(c_k, c_{k+1} + … + c_d).
    """
    a, b = float(c[axis]), float(c[axis + 1 :].sum())
    log_t, log_rest = special.log_expit(x), special.log_expit(-x)
    return a * log_t + b * log_rest - special.betaln(a, b), log_t, log_rest


def log_density(c: Array, x: Array) -> Array:
    """log density of all sticks' logits on the product grid."""
    sticks = len(c) - 1
    total = np.zeros((1,) * sticks)
    for axis in range(sticks):
        part, _, _ = stick_parts(c, x, axis)
        shape = [1] * sticks
        shape[axis] = len(x)
        total = total + part.reshape(shape)
    return total


def pair_curve(
    a: Array, b: Array, r: float, alpha: float, log_gamma: Array, count: int
) -> tuple[Array, Array]:
    """H_γ(P_a ‖ P_b) and H_γ(P_b ‖ P_a) by quadrature."""
    x, weight = axis_nodes(alpha, count)
    sticks = len(a) - 1
    cell = np.ones((1,) * sticks)
    for axis in range(sticks):
        shape = [1] * sticks
        shape[axis] = len(x)
        cell = cell * weight.reshape(shape)
    pa = np.exp(log_density(r * a + alpha, x)) * cell
    pb = np.exp(log_density(r * b + alpha, x)) * cell
    gammas = np.exp(log_gamma)
    forward = np.array([np.maximum(pa - g * pb, 0.0).sum() for g in gammas])
    backward = np.array([np.maximum(pb - g * pa, 0.0).sum() for g in gammas])
    return forward, backward


def lattice(classes: int, parts: int) -> list[Array]:
    """All points of the simplex with coordinates in multiples of 1/parts."""
    points = itertools.product(range(parts + 1), repeat=classes)
    return [np.array(p) / parts for p in points if sum(p) == parts]


def pairs(classes: int, parts: int, extra: int, rng: np.random.Generator) -> list[Any]:
    """Pairs up to a permutation of the classes, on a lattice and at random."""
    points = lattice(classes, parts)
    seen = {}
    for a, b in itertools.product(points, points):
        if not np.array_equal(a, b):
            seen.setdefault(tuple(sorted(zip(a, b, strict=True))), (a, b))
    found = list(seen.values())
    for _ in range(extra):
        found.append((rng.dirichlet(np.full(classes, 0.3)), rng.dirichlet(np.full(classes, 0.3))))
    return found


def levels(r: float, alpha: float) -> Array:
    """log γ from both sides of 0, to where the vertex pair still has 1e-4."""
    reach = r * min(9.0 / alpha, 60.0 / max(alpha, 1e-9))
    return np.concatenate((-np.geomspace(reach, reach / 300, 7), [0.0],
                           np.geomspace(reach / 300, reach, 9)))  # fmt: skip


def search(
    classes: int, parts: int, count: int, ratios: tuple[float, ...], extra: int
) -> list[dict[str, Any]]:
    """For each α and r: the largest excess over the vertex pair, and the quadrature's own error."""
    rng = np.random.default_rng(5)
    chosen = pairs(classes, parts, extra, rng)
    corner = np.eye(classes)
    found = []
    for alpha, ratio in itertools.product(ALPHAS, ratios):
        r = ratio * alpha
        log_gamma = levels(r, alpha)
        truth = vertex_curve(log_gamma, r, alpha)
        checks = [
            pair_curve(corner[i], corner[j], r, alpha, log_gamma, count)[0]
            for i, j in ((0, 1), (classes - 2, classes - 1), (1, 0))
        ]
        error = max(float(np.abs(check - truth).max()) for check in checks)
        worst: dict[str, Any] = {"excess": -1.0}
        for a, b in chosen:
            for curve in pair_curve(a, b, r, alpha, log_gamma, count):
                over = sampled_excess(curve, truth, log_gamma)
                if over["excess"] > worst["excess"]:
                    worst = over | {"a": a.tolist(), "b": b.tolist()}
        beats = worst["excess"] > 5 * error + 1e-9
        found.append({"alpha": alpha, "r_over_alpha": ratio, "pairs": len(chosen),
                      "quadrature_error": error, "counterexample": beats, **worst})  # fmt: skip
    return found


def sampled_excess(curve: Array, truth: Array, log_gamma: Array) -> dict[str, Any]:
    """The largest excess of a pair's curve over the vertex pair's.

    Sampled pairs need no quadrature of their own: for 'remove' H_γ is q·H_γ'(base) with
    γ' = (γ − 1 + q)/q, and for 'add' it is qγ·H_{1/γ'}(base reversed) up to terms without the
    pair, so an excess of a sampled pair is q times an excess of the base pair at another γ. The
    rates are reported for the reader.
    """
    over = curve - truth
    at = int(np.argmax(over))
    return {
        "excess": float(over[at]),
        "log_gamma": float(log_gamma[at]),
        "excess_after_sampling": {str(q): float(q * over[at]) for q in RATES},
    }


def monte_carlo(classes: int, draws: int) -> list[dict[str, Any]]:
    """Ten classes: excess over the vertex pair in standard errors, for disjoint supports too."""
    rng = np.random.default_rng(6)
    found = []
    for alpha, ratio in itertools.product((0.1, 0.5, 3.0), (0.5, 0.99)):
        r = ratio * alpha
        log_gamma = levels(r, alpha)[3:14]
        truth = vertex_curve(log_gamma, r, alpha)
        worst, samples = -math.inf, 0
        cases = [rng.dirichlet(np.full(classes, c), 2) for c in (0.1, 0.1, 0.3, 1.0)]
        for k in (1, 2, 5):
            a, b = np.zeros(classes), np.zeros(classes)
            a[:k], b[k : 2 * k] = 1 / k, 1 / k
            cases.append(np.array([a, b]))
        for a, b in cases:
            log_g = log_gamma_draws(rng, r * a + alpha, draws)
            constant = special.gammaln(r * b + alpha).sum() - special.gammaln(r * a + alpha).sum()
            loss = constant + log_g @ (r * (a - b))
            for level, limit in zip(log_gamma, truth, strict=True):
                value = np.maximum(0.0, -np.expm1(np.minimum(level - loss, 0.0)))
                spread = value.std() / math.sqrt(draws)
                if spread > 0:
                    worst = max(worst, float((value.mean() - limit) / spread))
                samples += 1
        found.append({"alpha": alpha, "r_over_alpha": ratio, "comparisons": samples,
                      "largest_excess_in_standard_errors": worst})  # fmt: skip
    return found


def log_gamma_draws(rng: np.random.Generator, c: Array, draws: int) -> Array:
    """log of Gamma(c) draws, safe for a small shape: log G_{c+1} + log(U)/c."""
    return (
        np.log(rng.gamma(c + 1.0, size=(draws, len(c)))) + np.log(rng.random((draws, len(c)))) / c
    )


def block_excess(alpha: float, r: float, theta: float, count: int = 200) -> float:
    """max over γ of H_γ(Beta(α+rθ, α+r(1−θ)) ‖ Beta(α,α)) − H_γ(Beta(α+r, α) ‖ Beta(α,α)).

    The level set of the first likelihood ratio is an interval around θ, found by bisection.
    """
    a, b = alpha + r * theta, alpha + r * (1 - theta)
    log_c = special.betaln(alpha, alpha) - special.betaln(a, b)
    log_c1 = special.betaln(alpha, alpha) - special.betaln(alpha + r, alpha)
    mode = special.logit(theta)

    def loss(x: Array) -> Array:
        return np.asarray(
            log_c + r * theta * special.log_expit(x) + r * (1 - theta) * special.log_expit(-x)
        )

    top = float(loss(np.array(mode)))
    highest = max(top, log_c1)
    level = highest - r * np.geomspace(1e-6, 6.0 / min(1.0, alpha), count)
    ends = []
    for sign in (-1.0, 1.0):
        near, far = np.zeros(count), np.full(count, 4.0)
        while np.any(loss(mode + sign * far) > level):
            far *= 2.0
        for _ in range(200):
            middle = (near + far) / 2
            inside = loss(mode + sign * middle) > level
            near, far = np.where(inside, middle, near), np.where(inside, far, middle)
        ends.append(mode + sign * near)
    low, high = ends
    p = 1 - special.betainc(a, b, special.expit(low)) - special.betainc(b, a, special.expit(-high))
    q = (
        1
        - special.betainc(alpha, alpha, special.expit(low))
        - special.betainc(alpha, alpha, special.expit(-high))
    )
    mixed = np.where(level < top, p - np.exp(level) * q, 0.0)
    tail = -np.expm1(np.minimum((level - log_c1) / r, 0.0))
    vertex = special.betainc(alpha, alpha + r, tail) - np.exp(level) * special.betainc(
        alpha, alpha, tail
    )
    return float(np.max(mixed - vertex))


def block_lemma() -> list[dict[str, Any]]:
    """Where the lemma that merges two coordinates holds, and where it stops."""
    found = []
    for alpha, ratio in itertools.product(ALPHAS, (*RATIOS, *BEYOND)):
        thetas = (0.5, 0.51, 0.6, 0.75, 0.9, 0.99)
        excess = max(block_excess(alpha, ratio * alpha, theta) for theta in thetas)
        found.append({"alpha": alpha, "r_over_alpha": ratio, "largest_excess": excess,
                      "holds": excess < 1e-12})  # fmt: skip
    return found


def main() -> None:
    """Search and write."""
    start = time.perf_counter()
    found = {
        "three_classes": search(3, 4, 301, RATIOS, 20),
        "three_classes_beyond_r_equal_alpha": search(3, 4, 301, BEYOND, 0),
        "four_classes": search(4, 2, 81, (0.5, 0.99), 4),
        "ten_classes_monte_carlo": monte_carlo(10, 200_000),
        "block_lemma": block_lemma(),
    }
    found["seconds"] = round(time.perf_counter() - start, 1)
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    for name in ("three_classes", "three_classes_beyond_r_equal_alpha", "four_classes"):
        beaten = [(x["alpha"], x["r_over_alpha"]) for x in found[name] if x["counterexample"]]
        print(name, "counterexamples:", beaten or "none")


if __name__ == "__main__":
    main()
