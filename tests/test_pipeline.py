"""The pipeline that pays for its scaler and its choice, and what a plain one may claim."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from simplexdp import CertifiedClassifier, linear, noise, pipeline, private_pipeline
from simplexdp.accounting import events
from simplexdp.ledger import Ledger
from simplexdp.pipeline import BoundedScaler, PrivateChoice, noisy_counts

CANDIDATES = [{"lr": 1e-6, "steps": 10}, {"steps": 20}, {"steps": 20, "clip": 0.2}]


def blobs(records: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.arange(records) % 3
    return np.eye(3)[y] + 0.2 * rng.normal(size=(records, 3)), y


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What each fit cost, the rows that it saw, and the exact counts."""
    seen: dict[str, list[Any]] = {"mu": [], "rows": [], "counts": []}
    fit = linear.fit

    def fitting(
        rows: Any,
        labels: Any,
        classes: int,
        shape: Any,
        rule: Any,
        cost: Any,
        *more: Any,
        **named: Any,
    ) -> Any:
        seen["mu"].append(cost.mu)
        seen["rows"].append(np.array(rows))
        return fit(rows, labels, classes, shape, rule, cost, *more, **named)

    def counting(right: np.ndarray, mu: float, bits: noise.Bits) -> np.ndarray:
        seen["counts"].append((right.copy(), mu))
        return noisy_counts(right, mu, bits)

    monkeypatch.setattr(linear, "fit", fitting)
    monkeypatch.setattr(pipeline, "noisy_counts", counting)
    return seen


def composed(mus: list[float], delta: float) -> float:
    parts = [
        privacy_loss_distribution.from_gaussian_mechanism(
            1.0 / mu, value_discretization_interval=1e-4, use_connect_dots=True
        )
        for mu in mus
    ]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    return float(whole.get_epsilon_for_delta(delta))


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_everything_that_a_record_has_part_in_fits_the_budget(
    share: float, heard: dict[str, list[Any]]
) -> None:
    """Composed one by one by dp-accounting, for the records of both parts; to 1e-3 in ε."""
    X, y = blobs()
    choice = PrivateChoice(CANDIDATES, epsilon=2.0, choice_share=share).fit(X, y)
    *tried, last = heard["mu"]
    ((_, mu_counts),) = heard["counts"]
    assert [len(rows) for rows in heard["rows"]] == [320, 320, 320, 400]
    assert composed([*tried, last], 1e-5) == pytest.approx(2.0, abs=1e-3)
    assert composed([mu_counts, last], 1e-5) == pytest.approx(2.0, abs=1e-3)
    assert choice.epsilon_ <= 2.0
    assert events.compose([choice.event_], 1e-5) == pytest.approx(choice.epsilon_)
    said = choice.statement_
    assert said.epsilon == pytest.approx(choice.epsilon_)
    assert "chosen among 3 settings" in said.method
    assert said.headline().endswith("covers the released weights.")


def test_parts_are_disjoint_and_a_record_moves_each_count_by_one(
    heard: dict[str, list[Any]],
) -> None:
    """Whatever a held-out record becomes, no candidate moves, and each count by one at most."""
    X, y = blobs()
    states = {"random_state": 4, "epsilon": 50.0}
    PrivateChoice(CANDIDATES, **states).fit(X, y)
    fitted, counted = PrivateChoice(CANDIDATES)._divided(y.astype(np.int64), None)
    assert sorted([*fitted, *counted]) == list(range(400))
    base = heard["counts"][0][0]
    for row in counted[:4]:
        for other in ([-9.0, 9.0, 9.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]):
            changed = X.copy()
            changed[row] = other
            PrivateChoice(CANDIDATES, **states).fit(changed, y)
            assert np.abs(heard["counts"][-1][0] - base).max() <= 1
            for k in range(3):
                np.testing.assert_array_equal(heard["rows"][-4 + k], heard["rows"][k])


def test_a_person_is_counted_once_and_never_divided(heard: dict[str, list[Any]]) -> None:
    X, y = blobs()
    persons = np.array([f"p{k}" for k in np.arange(400) // 8])
    choice = PrivateChoice(CANDIDATES, epsilon=50.0).fit(X, y, persons)
    number = np.unique(persons, return_inverse=True)[1]
    fitted, counted = choice._divided(y.astype(np.int64), number)
    assert not set(persons[fitted]) & set(persons[counted])
    assert len(set(persons[counted])) == len(counted) == 10
    assert heard["counts"][0][0].max() <= 10
    assert "per person" in choice.statement_.headline()


def test_the_noise_of_the_counts_has_the_stated_law() -> None:
    """40,000 draws: the deviation to 5 standard errors."""
    bits = noise.seeded_bits(np.random.default_rng(0))
    right = np.full(4, 10_000, dtype=np.int64)
    drawn = np.stack([noisy_counts(right, 0.05, bits) for _ in range(10_000)]) - 10_000
    sigma = math.sqrt(4) / 0.05  # four counts that move by one each, over μ
    assert drawn.std() == pytest.approx(sigma, rel=5 / math.sqrt(2 * drawn.size))
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 5 / 100


def test_it_chooses_what_learns_and_no_two_fits_have_the_same_noise() -> None:
    X, y = blobs()
    choice = PrivateChoice(CANDIDATES[:2], epsilon=50.0, random_state=3).fit(X, y)
    assert choice.best_params_ == CANDIDATES[1]
    assert choice.score(X, y) > 0.9
    again = PrivateChoice(CANDIDATES[:2], epsilon=50.0, random_state=3).fit(X, y)
    np.testing.assert_array_equal(again.best_estimator_.weights_, choice.best_estimator_.weights_)
    assert "NOT private as it stands" in choice.statement_.headline()  # its seed is known
    same = [{"steps": 20}, {"steps": 20}]
    two = PrivateChoice(same, epsilon=5.0, random_state=3)
    fits: list[np.ndarray] = []
    fit = CertifiedClassifier.fit

    def keep(self: CertifiedClassifier, *given: Any) -> CertifiedClassifier:
        fits.append(fit(self, *given).weights_)
        return self

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CertifiedClassifier, "fit", keep)
        two.fit(X, y)
    assert not np.allclose(fits[0], fits[1])


def test_the_ledger_counts_it_once_and_whole_before_it_begins(tmp_path: Path) -> None:
    X, y = blobs()
    book = Ledger(tmp_path / "ledger")
    book.set_budget("rows", 2.0, 1e-5)
    choice = PrivateChoice(CANDIDATES, epsilon=1.5, ledger=book, data_name="rows").fit(X, y)
    assert [entry.id for entry in book.entries()] == [choice.ledger_entry_]
    assert book.spent("rows", 1e-5).together == pytest.approx(choice.epsilon_, rel=1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "fit", None)
        with pytest.raises(ValueError, match="budget"):
            PrivateChoice(CANDIDATES, epsilon=1.5, ledger=book, data_name="rows").fit(X, y)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"candidates": [{}]}, "two candidates or more"),
        ({"candidates": [{}, {"epsilon": 1.0}]}, "must not set epsilon"),
        ({"candidates": [{}, {"steps": 0}]}, "at least 1"),
        ({"candidates": [{}, {"wings": 2}]}, "Invalid parameter 'wings'"),
        ({"choice_share": 1.0}, "between 0 and 1"),
        ({"held_out": 0.995}, "hold out fewer"),
        ({"ledger": "somewhere"}, "data_name"),
        ({"epsilon": 1e-4, "delta": 1e-3}, "too small to divide"),
    ],
)
def test_bad_choices_are_refused_before_anything_is_drawn(
    options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear, "fit", None)
    with pytest.raises(ValueError, match=words):
        PrivateChoice(**{"candidates": CANDIDATES, **options}).fit(*blobs())


@pytest.mark.parametrize(
    "wrong", [{"bounds": ((0, 0), (1, 1))}, {"candidates": [{}, {"clip": 1e6}]}]
)
def test_what_only_a_fit_would_refuse_is_not_counted(wrong: dict[str, Any], tmp_path: Path) -> None:
    X, y = blobs()
    given = {"candidates": CANDIDATES, "ledger": tmp_path / "book.jsonl", "data_name": "blobs"}
    with pytest.raises(ValueError, match=r"each of the bounds|too large for exact sums"):
        PrivateChoice(**{**given, **wrong}).fit(X, y)
    assert not (tmp_path / "book.jsonl").exists()


def test_a_scaler_with_declared_bounds_reads_nothing() -> None:
    X, y = load_digits(return_X_y=True)
    settings = [{"features": "columns"}, {"image_shape": (1, 8, 8), "steps": 5}]
    fitted = private_pipeline(settings, (0, 16), epsilon=20.0).fit(X[:1400], y[:1400])
    assert fitted.score(X[1400:], y[1400:]) > 0.6
    assert fitted["choice"].statement_.proviso == ""
    scaler = BoundedScaler(bounds=(0, 16))
    np.testing.assert_array_equal(scaler.fit(X[:9]).transform(X), scaler.fit(X).transform(X))
    assert scaler.transform([[-1.0, 8.0, 99.0]]).tolist() == [[-1.0, 0.0, 1.0]]
    with pytest.raises(ValueError, match="low < high"):
        BoundedScaler(bounds=(1, 1)).transform(X)


def test_a_plain_scaler_or_search_makes_the_statement_say_if() -> None:
    X, y = blobs(60)

    def said(model: Any) -> str:
        return str(model.statement_.headline())

    scaled = make_pipeline(StandardScaler(), CertifiedClassifier(steps=2)).fit(X, y)
    assert "weights, if StandardScaler before it saw none of these rows" in said(scaled[-1])
    fixed = make_pipeline(Normalizer(), CertifiedClassifier(steps=2)).fit(X, y)
    assert said(fixed[-1]).endswith("the released weights.")
    search = GridSearchCV(CertifiedClassifier(), {"steps": [2, 3]}, cv=2).fit(X, y)
    assert "if the other fits of GridSearchCV" in said(search.best_estimator_)
    both = GridSearchCV(scaled, {"certifiedclassifier__steps": [2]}, cv=2).fit(X, y)
    assert said(both.best_estimator_[-1]).count("if ") == 2
    chosen = make_pipeline(StandardScaler(), PrivateChoice(CANDIDATES)).fit(X, y)
    assert "if StandardScaler before it" in said(chosen[-1])


def test_groups_make_the_person_the_unit() -> None:
    X, y = blobs()
    persons = np.arange(400) // 4
    model = CertifiedClassifier(epsilon=3.0, random_state=0).fit(X, y, persons)
    assert "per person" in model.statement_.headline()
    named = np.array([f"{p:03}" for p in persons])
    again = CertifiedClassifier(epsilon=3.0, random_state=0).fit(X, y, named)
    np.testing.assert_array_equal(again.weights_, model.weights_)
    alone = CertifiedClassifier(epsilon=3.0, random_state=0).fit(X, y)
    assert not np.allclose(alone.weights_, model.weights_)
    with pytest.raises(ValueError, match="one person"):
        CertifiedClassifier().fit(X, y, np.zeros(400))
    with pytest.raises(ValueError, match="for each row"):
        CertifiedClassifier().fit(X, y, persons[:5])
