"""The noise of a certified fit, at the releases as the fit makes them: sensitivity over scale.

Nothing here is left to chance: the bits are spread evenly over the normal law (conftest.py), so a
scale is known to 1e-6. What a record can do is read off a fit with one enormous record among null
ones. μ is the quotient of the two, and must be what the fit says that it cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from simplexdp import linear
from simplexdp.linear import noisy_gd, whitening
from simplexdp.linear.exact_sums import ROW_UNIT, UNIT

EPSILON, DELTA = 1.0, 1e-5
RECORDS, CLASSES, STEPS = 200, 10, 3
Seen = list[tuple[np.ndarray, np.ndarray]]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch, even_bits: Callable) -> Callable:
    """Fit, and return what went into every release and what came out, and the fit itself."""

    def fit(
        shape: tuple[int, int],
        planted: np.ndarray | None,
        epsilon: float = EPSILON,
        persons: np.ndarray | None = None,
        **given: float,
    ) -> tuple[Seen, linear.Fitted]:
        seen: Seen = []
        real = noisy_gd.release

        def release(total: np.ndarray, sigma: float, bits: Callable) -> np.ndarray:
            out = real(total, sigma, bits)
            seen.append((total.copy(), out))
            return out

        features = np.zeros((RECORDS, shape[0] * shape[1]), dtype=np.float32)
        if planted is not None:
            features[7 if persons is None else persons == 7] = planted
        labels = (np.arange(RECORDS) if persons is None else persons) % CLASSES
        rule, cost = linear.planned(RECORDS, epsilon, DELTA, shape, steps=STEPS, **given)
        with monkeypatch.context() as patch:
            patch.setattr(noisy_gd, "release", release)
            patch.setattr(whitening, "release", release)
            return seen, linear.fit(
                features, labels, CLASSES, shape, rule, cost, even_bits(), persons=persons
            )

    return fit


def frobenius(above: np.ndarray, diagonal: np.ndarray) -> float:
    """The norm of the symmetric matrix that is released as its upper triangle."""
    return math.sqrt(2.0 * float((above**2.0).sum()) + float((diagonal**2.0).sum()))


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
@pytest.mark.parametrize("shape", [(90, 1), (60, 40)])
def test_measured_sensitivity_over_measured_noise_is_the_budget(
    shape: tuple[int, int], epsilon: float, watched: Callable, scale_of: Callable
) -> None:
    shares = {"mean_share": 0.1, "moment_share": 0.2}
    width = shape[0] * shape[1]
    worst = np.where(np.arange(width) % 2, 1e6, -1e6)
    null, fitted = watched(shape, None, epsilon, **shares)
    loud, _ = watched(shape, worst, epsilon, **shares)
    moments = 2 if shape[1] > 1 else 1
    assert len(null) == 1 + 2 * moments + STEPS

    def added(at: int) -> float:
        total, out = null[at]
        return float(scale_of(out - total))

    def moved(at: int) -> np.ndarray:
        return loud[at][0].astype(float) - null[at][0]

    # A record is cut at the bound, in whole units: a quarter of one off on each coordinate.
    bound = 1.01 / ROW_UNIT
    assert np.linalg.norm(moved(0)) == pytest.approx(bound, rel=0.03)
    assert np.linalg.norm(moved(0)) <= bound
    mu_mean = bound / added(0)
    assert mu_mean == pytest.approx(fitted.spending.mu_mean, rel=1e-5)

    squares = 0.0
    for at in range(1, 1 + 2 * moments, 2):
        change = frobenius(moved(at), moved(at + 1))
        assert change <= bound**2
        assert change == pytest.approx(bound**2, rel=0.05)
        above, diagonal = added(at), added(at + 1)
        # Noise of one scale on the diagonal and 1/√2 of it beside makes the norm over it exact.
        assert diagonal == pytest.approx(math.sqrt(2.0) * above, rel=1e-5)
        squares += (bound**2 / diagonal) ** 2
    assert math.sqrt(squares) == pytest.approx(fitted.spending.mu_moments, rel=1e-5)

    clip = fitted.rule.schedule.clip / UNIT
    steps = [clip / added(1 + 2 * moments + step) for step in range(STEPS)]
    assert steps == pytest.approx([1.0 / fitted.spending.noise_multiplier] * STEPS, rel=1e-5)

    mu = math.sqrt(mu_mean**2 + squares + sum(step**2 for step in steps))
    assert mu == pytest.approx(1.0 / fitted.spending.event().event.noise_multiplier, rel=1e-5)
    # Balle and Wang's curve, by another library's normal distribution: δ turns over μ 15 times as
    # fast as μ itself.
    delta = stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * stats.norm.cdf(
        -mu / 2 - epsilon / mu
    )
    assert delta == pytest.approx(DELTA, rel=1e-3)
    assert fitted.spending.epsilon <= epsilon


@pytest.mark.parametrize("clip", [0.5, 2.0])
def test_one_record_moves_every_step_by_the_clip_and_no_more(
    clip: float, watched: Callable
) -> None:
    """Among null records, without centring, the sum of a step is what the one record adds."""
    planted = np.where(np.arange(40) % 2, 0.3, -0.2)
    given = {"mean_share": 0.0, "moment_share": 0.0, "lr": 1e-6}
    null, _ = watched((40, 1), None, clip=clip, **given)
    loud, _ = watched((40, 1), planted * 1e5, clip=clip, **given)
    for (nothing, _), (total, _) in zip(null, loud, strict=True):
        assert not nothing.any()
        moved = float(np.linalg.norm(total)) * UNIT
        assert moved <= clip
        assert moved == pytest.approx(clip, rel=0.03)  # whole units shorten it


@pytest.mark.parametrize("each", [2, 5])
def test_one_person_moves_every_release_as_one_record_does(each: int, watched: Callable) -> None:
    """All of a person's records are enormous: one of them in mean and moments, a clip in a step."""
    persons = np.arange(RECORDS) // each
    planted = np.where(np.arange(40) % 2, 1e6, -1e6)
    bound = 1.01 / ROW_UNIT
    shares = {"mean_share": 0.1, "moment_share": 0.2}
    null, _ = watched((40, 1), None, persons=persons, **shares)
    loud, _ = watched((40, 1), planted, persons=persons, **shares)
    moved = [b[0].astype(float) - a[0] for a, b in zip(null, loud, strict=True)]
    assert np.linalg.norm(moved[0]) <= bound
    assert np.linalg.norm(moved[0]) == pytest.approx(bound, rel=0.03)
    assert frobenius(moved[1], moved[2]) <= bound**2
    assert frobenius(moved[1], moved[2]) == pytest.approx(bound**2, rel=0.05)
    steps, _ = watched(
        (40, 1), planted, persons=persons, mean_share=0.0, moment_share=0.0, lr=1e-6, clip=2.0
    )
    for total, _ in steps:
        moved_by = float(np.linalg.norm(total)) * UNIT
        assert moved_by <= 2.0
        assert moved_by == pytest.approx(2.0, rel=0.05)


def test_a_row_is_not_shortened_below_its_bound(watched: Callable) -> None:
    """Unit rows pass the mean and moments whole; a whitened row is cut at a norm of 4."""
    unit = np.zeros(40)
    unit[3] = 1.0
    seen, _ = watched((40, 1), unit, mean_share=0.1, moment_share=0.2)
    assert seen[0][0][3] == 1.0 / ROW_UNIT
    assert seen[2][0][3] == 1.0 / ROW_UNIT**2
    # With a clip out of reach, p ⊗ x has the norm of both: x is cut to 4, p = s − e_y is known.
    far, _ = watched((40, 1), 100 * unit, clip=8.0, mean_share=0.0, moment_share=0.0, lr=1e-6)
    error = np.full(CLASSES, 1.0 / CLASSES)
    error[7] -= 1.0
    size = float(np.linalg.norm(far[0][0])) * UNIT
    assert size == pytest.approx(4.0 * float(np.linalg.norm(error)), rel=2e-3)
