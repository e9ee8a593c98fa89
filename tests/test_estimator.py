"""The scikit-learn estimator: scikit-learn's own checks, and what is ours."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from simplexdp.accounting import events
from simplexdp.estimator import CertifiedClassifier


@parametrize_with_checks([CertifiedClassifier(), CertifiedClassifier(random_state=0)])
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_digits_at_a_moderate_budget() -> None:
    X, y = load_digits(return_X_y=True)
    model = CertifiedClassifier(
        epsilon=4.0, bounds=(0, 16), image_shape=(1, 8, 8), random_state=1
    ).fit(X[:1400], y[:1400])
    assert model.score(X[1400:], y[1400:]) > 0.75
    assert model.epsilon_ <= 4.0
    assert model.statement_.covers_weights
    assert events.compose([model.event_], model.delta) == pytest.approx(model.epsilon_)
    proba = model.predict_proba(X[:5])
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)


def test_columns_with_bounds_by_column() -> None:
    X, y = load_iris(return_X_y=True)
    low, high = [4, 2, 1, 0], [8, 5, 7, 3]
    scores = [
        CertifiedClassifier(epsilon=10.0, bounds=(low, high), random_state=s).fit(X, y).score(X, y)
        for s in range(3)
    ]
    assert np.mean(scores) > 0.6


def test_a_value_outside_the_bounds_is_clipped() -> None:
    X, y = load_iris(return_X_y=True)
    wild = X.copy()
    wild[0, 0] = 1e9
    tame = X.copy()
    tame[0, 0] = 8.0
    models = [
        CertifiedClassifier(bounds=([4, 2, 1, 0], [8, 5, 7, 3]), random_state=0).fit(rows, y)
        for rows in (wild, tame)
    ]
    np.testing.assert_array_equal(models[0].weights_, models[1].weights_)


@pytest.mark.filterwarnings("ignore:invalid value encountered in reduce")  # scikit-learn's
def test_large_numbers_are_not_lost() -> None:
    """Squares and distances above the largest float are not formed."""
    X, y = load_iris(return_X_y=True)
    small, large = (
        CertifiedClassifier(epsilon=8.0, random_state=0).fit(X * scale, y)
        for scale in (1, 2.0**600)
    )
    np.testing.assert_array_equal(small.weights_, large.weights_)
    assert np.ptp(small.weights_) > 0
    half = 2.0**1023
    wide = CertifiedClassifier(bounds=(-half, half), random_state=0)
    narrow = CertifiedClassifier(bounds=(-1.0, 1.0), random_state=0)
    columns = np.clip(X - X.mean(axis=0), -1, 1)
    wide.fit(columns * half, y)
    narrow.fit(columns, y)
    np.testing.assert_array_equal(wide.weights_, narrow.weights_)


def test_no_warning_tells_of_a_huge_value() -> None:
    X, y = load_digits(return_X_y=True)
    X = X / 16
    X[0] = 1e300
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        CertifiedClassifier(epsilon=1.0, image_shape=(1, 8, 8), random_state=0).fit(X, y)


def test_without_a_seed_two_fits_differ_and_the_statement_holds() -> None:
    X, y = load_iris(return_X_y=True)
    first, second = (CertifiedClassifier().fit(X, y) for _ in range(2))
    assert not np.array_equal(first.weights_, second.weights_)
    assert not any(a.holds is False for a in first.statement_.assumptions)
    seeded = CertifiedClassifier(random_state=3).fit(X, y)
    assert any(a.holds is False for a in seeded.statement_.assumptions)


def test_predicting_before_fitting_is_refused() -> None:
    with pytest.raises(NotFittedError):
        CertifiedClassifier().predict(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"delta": 2.0}, "delta"),
        ({"clip": 0.0}, "clip"),
        ({"steps": 0}, "steps"),
        ({"lr": 0.0}, "learning rate"),
        ({"bounds": ([0, 0], [1, 1])}, "by column"),
        ({"features": "wavelets"}, "unknown features"),
        ({"bounds": (1, 1)}, "low < high"),
        ({"image_shape": (1, 3, 3)}, "image_shape"),
    ],
)
def test_bad_parameters_are_refused(options: dict[str, Any], words: str) -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=words):
        CertifiedClassifier(**options).fit(X, y)


def test_no_value_of_a_record_is_in_an_error() -> None:
    secret = "Anna *1950-03-01"
    model = CertifiedClassifier(epsilon=1.0)
    with pytest.raises(ValueError, match="X holds text") as found:
        model.fit([["1", secret]] * 4, [0, 1, 0, 1])
    assert secret not in str(found.value)
    assert found.value.__cause__ is None
    assert found.value.__suppress_context__
    with pytest.raises(ValueError, match="Complex data not supported") as found:
        model.fit(np.full((4, 2), 1950.03 + 1j), [0, 1, 0, 1])
    assert "1950" not in str(found.value)
    numbers = np.random.default_rng(0).uniform(size=(40, 3))
    model.fit(numbers, np.arange(40) % 2)
    with pytest.raises(ValueError, match=r"got one of 1 dimensions\. Reshape your data") as found:
        model.predict([21.5, 22.5, 23.5])
    assert "21.5" not in str(found.value)


def test_a_delta_that_says_nothing_about_a_row_is_told() -> None:
    X, y = np.random.default_rng(0).uniform(size=(40, 3)), np.arange(40) % 2
    with pytest.warns(UserWarning, match="not below 1 / 40, the number of records"):
        model = CertifiedClassifier(epsilon=1.0, delta=0.025).fit(X, y)
    assert any("not below 1 / 40" in note for note in model.statement_.notes)


def test_of_features_of_ones_own_coverage_is_not_claimed_outright() -> None:
    X, y = np.random.default_rng(0).uniform(size=(40, 3)), np.arange(40) % 2
    said = CertifiedClassifier(features=np.sqrt).fit(X, y).statement_.headline()
    assert "covers the released weights, if these features are a fixed function of one" in said
    assert CertifiedClassifier().fit(X, y).statement_.headline().endswith("the released weights.")
