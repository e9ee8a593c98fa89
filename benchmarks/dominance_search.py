"""A search for pairs of softmax outputs that beat the vertex pair in a hockey-stick divergence.

    python benchmarks/dominance_search.py

Searches three and four classes by quadrature and ten by Monte Carlo, over α, r/α, pairs in the
interior and on the boundary, both directions, with and without Poisson subsampling, and checks the
block lemma of docs/dominance.md. Writes results/accounting/dominance.json and renews the
table on results/tables.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from simplexdp.files import put_between

Array = npt.NDArray[np.float64]
ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "results" / "accounting" / "dominance.json"
PAGE = ROOT / "results" / "tables.md"
ALPHAS = (0.05, 0.1, 0.2, 0.35, 0.5, 1.0, 3.0, 10.0)
RATIOS = (0.1, 0.5, 0.99)
BEYOND = (2.0, 4.0)


def vertex_curve(log_gamma: Array, r: float, alpha: float) -> Array:
    """H_γ of two vertices, in closed form."""
    upper = below(-log_gamma / r, alpha, alpha + r)
    lower = below(-log_gamma / r, alpha + r, alpha)
    return np.asarray(upper - np.exp(log_gamma) * lower)


def below(logit: Array, a: float, b: float) -> Array:
    """P[t < σ(logit)] for t ~ Beta(a, b), from whichever tail keeps its digits."""
    return np.where(
        logit < 0,
        special.betainc(a, b, special.expit(logit)),
        1.0 - special.betainc(b, a, special.expit(-logit)),
    )


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
    a: Array,
    b: Array,
    r: float,
    alpha: float,
    log_gamma: Array,
    count: int,
    sample_rate: float = 1.0,
) -> tuple[Array, Array]:
    """H_γ of ((1−q)P_b + q P_a, P_b) and of the reverse, by quadrature; q = 1: the pair itself."""
    x, weight = axis_nodes(alpha, count)
    sticks = len(a) - 1
    cell = np.ones((1,) * sticks)
    for axis in range(sticks):
        shape = [1] * sticks
        shape[axis] = len(x)
        cell = cell * weight.reshape(shape)
    pb = np.exp(log_density(r * b + alpha, x)) * cell
    pa = np.exp(log_density(r * a + alpha, x)) * cell
    mixed = (1.0 - sample_rate) * pb + sample_rate * pa
    gammas = np.exp(log_gamma)
    forward = np.array([np.maximum(mixed - g * pb, 0.0).sum() for g in gammas])
    backward = np.array([np.maximum(pb - g * mixed, 0.0).sum() for g in gammas])
    return forward, backward


def sampled_vertex_curves(
    log_gamma: Array, r: float, alpha: float, q: float
) -> tuple[Array, Array]:
    """The vertex pair's H_γ after sampling, both directions, in closed form.

    remove: q·H_γ'(P‖Q), γ' = (γ−1+q)/q;  add: u·H_γ"(Q‖P), u = 1 − γ(1−q), γ" = γq/u. Where γ' or
    u is not positive the best event is everything, or nothing.
    """
    gamma = np.exp(log_gamma)
    inner = (gamma - 1.0 + q) / q
    remove = q * vertex_curve(np.log(np.where(inner > 0, inner, 1.0)), r, alpha)
    u = 1.0 - gamma * (1.0 - q)
    add = u * vertex_curve(np.log(gamma * q / np.where(u > 0, u, 1.0)), r, alpha)
    return np.where(inner > 0, remove, 1.0 - gamma), np.where(u > 0, add, 0.0)


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
    classes: int,
    parts: int,
    count: int,
    ratios: tuple[float, ...],
    extra: int,
    sample_rate: float = 1.0,
) -> list[dict[str, Any]]:
    """For each α and r: the largest excess over the vertex pair, and the quadrature's own error."""
    chosen = pairs(classes, parts, extra, np.random.default_rng(5))
    corner = np.eye(classes)
    found = []
    for alpha, ratio in itertools.product(ALPHAS, ratios):
        r = ratio * alpha
        log_gamma = levels(r, alpha)
        if sample_rate < 1.0:
            log_gamma = np.log1p(sample_rate * np.expm1(log_gamma))
        truth = sampled_vertex_curves(log_gamma, r, alpha, sample_rate)
        error = 0.0
        for i, j in ((0, 1), (classes - 2, classes - 1), (1, 0)):
            own = pair_curve(corner[i], corner[j], r, alpha, log_gamma, count, sample_rate)
            error = max(
                error, *(float(np.abs(x - y).max()) for x, y in zip(own, truth, strict=True))
            )
        worst: dict[str, Any] = {"excess": -1.0}
        for a, b in chosen:
            curves = pair_curve(a, b, r, alpha, log_gamma, count, sample_rate)
            for curve, limit in zip(curves, truth, strict=True):
                at = int(np.argmax(curve - limit))
                if curve[at] - limit[at] > worst["excess"]:
                    worst = {"excess": float(curve[at] - limit[at]), "a": a.tolist(),
                             "b": b.tolist(), "log_gamma": float(log_gamma[at])}  # fmt: skip
        found.append({"alpha": alpha, "r_over_alpha": ratio, "sample_rate": sample_rate,
                      "pairs": len(chosen), "quadrature_error": error,
                      "counterexample": worst["excess"] > 5 * error + 1e-9, **worst})  # fmt: skip
    return found


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


def block_excess(alpha: float, r: float, theta: float, count: int = 100) -> float:
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
    log_t = np.minimum((level - log_c1) / r, -1e-300)
    logit = np.log(-np.expm1(log_t)) - log_t  # of 1 − t, where L_1 crosses the level
    vertex = below(logit, alpha, alpha + r) - np.exp(level) * below(logit, alpha, alpha)
    vertex = np.where(level < log_c1, vertex, 0.0)
    return float(np.max(mixed - vertex))


def block_lemma() -> list[dict[str, Any]]:
    """Where the lemma that merges two coordinates holds, and where it stops."""
    found = []
    for alpha, ratio in itertools.product(ALPHAS, (*RATIOS, *BEYOND)):
        thetas = (0.5, 0.6, 0.75, 0.9, 0.99)
        excess = max(block_excess(alpha, ratio * alpha, theta) for theta in thetas)
        found.append({"alpha": alpha, "r_over_alpha": ratio, "largest_excess": excess,
                      "holds": excess < 1e-12})  # fmt: skip
    return found


def page_table(found: dict[str, Any]) -> str:
    """What was found, as Markdown."""
    lines = [
        "| classes | q | r/α | α | pairs | largest excess | quadrature error | counterexample |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, classes in (
        ("three_classes", 3),
        ("three_classes_sampled", 3),
        ("four_classes", 4),
        ("three_classes_beyond_r_equal_alpha", 3),
    ):
        for row in found[name]:
            lines.append(
                f"| {classes} | {row['sample_rate']:g} | {row['r_over_alpha']:g} | "
                f"{row['alpha']:g} | {row['pairs']} | "
                f"{row['excess']:.1e} | {row['quadrature_error']:.0e} | "
                f"{'yes' if row['counterexample'] else 'no'} |"
            )
    tests = found["ten_classes_monte_carlo"]
    worst = max(row["largest_excess_in_standard_errors"] for row in tests)
    count = sum(row["comparisons"] for row in tests)
    lines.append("")
    lines.append(
        f"Ten classes: {count} comparisons, the largest excess is {worst:.1f} standard errors."
    )
    holds = [row for row in found["block_lemma"] if row["alpha"] >= 0.5]
    lines.append(
        f"Block lemma: holds at all {len(holds)} settings with α ≥ ½ (r/α up to 4), largest excess "
        f"{max(row['largest_excess'] for row in holds):.0e}; for smaller α it fails at (α, r/α) = "
        + ", ".join(
            f"({row['alpha']:g}, {row['r_over_alpha']:g})"
            for row in found["block_lemma"]
            if not row["holds"]
        )
        + "."
    )
    return "\n".join(lines)


def main() -> None:
    """Search and write."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    start = time.perf_counter()
    found = {
        "three_classes": search(3, 4, 221, RATIOS, 10),
        "three_classes_beyond_r_equal_alpha": search(3, 2, 221, BEYOND, 0),
        "three_classes_sampled": search(3, 3, 221, (0.5, 0.99), 0, sample_rate=0.1),
        "four_classes": search(4, 2, 71, (0.5, 0.99), 2),
        "ten_classes_monte_carlo": monte_carlo(10, 100_000),
        "block_lemma": block_lemma(),
    }
    found["seconds"] = round(time.perf_counter() - start, 1)
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    put_between(PAGE, "search", page_table(found))
    for name in (key for key in found if "_classes" in key and "carlo" not in key):
        beaten = [(x["alpha"], x["r_over_alpha"]) for x in found[name] if x["counterexample"]]
        print(name, "counterexamples:", beaten or "none")


if __name__ == "__main__":
    main()
