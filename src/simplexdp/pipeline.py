"""A scikit-learn pipeline whose scaling and whose choice among settings are paid for.

Formal guarantee
    Statement: what `PrivateChoice.fit` leaves behind (the candidates' weights, the noisy counts by
    which it chose, the choice, and the weights of the last fit) is (ε, δ)-differentially private
    under zero-out, for records, or for persons where they are given, with labels public.
    Argument: the rows are divided by public labels (and persons) into A and B. Each of K candidates
    is fitted to A, a Gaussian mechanism of μ_c. Their right predictions on B are counted; a unit of
    B (a record, or a person by the first of its records) moves each of the K counts by at most 1,
    so their vector by at most √K, and noise of √K/μ_h makes the release Gaussian of μ_h; the choice
    is post-processing. The chosen setting is fitted to A and B, of μ_f. Given what was released
    before, a unit of A has part in K fits and the last one, K·μ_c² + μ_f² = μ²; a unit of B in the
    counts and the last one, μ_h² + μ_f² = μ². All of it is adaptive composition of Gaussian
    mechanisms (Dong, Roth and Su, 2022), and the larger of both sums is what is charged.
    Assumptions: those of `simplexdp.linear` and `simplexdp.noise`; every candidate is given before
    the rows are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from simplexdp import features, linear
from simplexdp.accounting import events
from simplexdp.accounting.gaussian import calibrate_mu, gaussian_epsilon
from simplexdp.claims import Assumption, Coverage
from simplexdp.data.schema import scale
from simplexdp.data.split import split_persons, stratified_split
from simplexdp.estimator import Array, Bounds, CertifiedClassifier, around
from simplexdp.ledger import Ledger
from simplexdp.methods import certified
from simplexdp.noise import Bits, release
from simplexdp.statement import Statement

COUNTED = "how many records each candidate predicts rightly"


class BoundedScaler(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Clip columns to bounds that are known without looking, and scale them to [-1, 1].

    Nothing is fitted, so it costs no privacy.

    Args:
        bounds (tuple): (low, high), numbers or one for each column.

    Example:
        >>> from simplexdp.pipeline import BoundedScaler
        >>> BoundedScaler(bounds=(0, 10)).transform([[5.0, 12.0]]).tolist()
        [[0.0, 1.0]]
    """

    def __init__(self, bounds: Bounds = (-1.0, 1.0)) -> None:
        self.bounds = bounds

    def fit(self, X: Any, y: Any = None) -> BoundedScaler:
        """Do nothing; the bounds are given."""
        return self

    def transform(self, X: Any) -> Array:
        """Return the rows clipped and scaled.

        Args:
            X: Records, one a row.
        """
        rows = np.asarray(X, dtype=np.float64)
        low, high = (np.asarray(bound, dtype=np.float64) for bound in self.bounds)
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise ValueError("bounds must be finite with low < high in every column")
        return scale(rows, low, high)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class PrivateChoice(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Fit several settings of `CertifiedClassifier`, choose one by noisy counts, fit it to all.

    Args:
        candidates (list of dict): Parameters of `CertifiedClassifier`, one dictionary a candidate.
        epsilon (float, default 1.0): Budget ε of everything together.
        delta (float, default 1e-5): Budget δ.
        bounds (tuple, default (-1, 1)): Bounds of the columns, as for `CertifiedClassifier`.
        choice_share (float, default 0.2): Share of μ² that the candidates and the choice take.
        held_out (float, default 0.2): Share of the records on which candidates are counted.
        random_state (int, optional): As for `CertifiedClassifier`.
        ledger (Ledger or path, optional): Enters every `fit` before it begins, at its whole cost.
        data_name (str, optional): What the ledger keeps the rows under.

    Attributes:
        best_params_ (dict): The candidate that was chosen.
        best_estimator_ (CertifiedClassifier): It, fitted to all records.
        counts_ (ndarray): The noisy counts.
        classes_ (ndarray): The distinct labels, sorted.
        epsilon_ (float): What the fit costs at `delta`, the choice included.
        event_ (DpEvent): What a ledger is charged.
        ledger_entry_ (str or None): The id of its entry, where a ledger was given.
        statement_ (Statement): What may be claimed of all of it.
        n_features_in_ (int): Columns of X.
    """

    def __init__(
        self,
        candidates: Sequence[Mapping[str, Any]] = ({"clip": 0.5}, {"clip": 0.25}),
        epsilon: float = 1.0,
        delta: float = 1e-5,
        bounds: Bounds | None = (-1.0, 1.0),
        choice_share: float = 0.2,
        held_out: float = 0.2,
        random_state: Any = None,
        ledger: Ledger | str | Path | None = None,
        data_name: str | None = None,
    ) -> None:
        self.candidates = candidates
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.choice_share = choice_share
        self.held_out = held_out
        self.random_state = random_state
        self.ledger = ledger
        self.data_name = data_name

    def fit(self, X: Any, y: Any, groups: Any = None) -> PrivateChoice:
        """Spend the budget on these rows: candidates, choice and last fit.

        Args:
            X: Private records, one a row.
            y: Public labels, of two classes or more.
            groups: Whose each record is; the unit of privacy is then the person.

        Returns:
            The fitted classifier itself.

        Raises:
            ValueError: If X, y, groups or a parameter cannot be trained on; nothing is spent then.
        """
        self._check()
        rng = None if self.random_state is None else check_random_state(self.random_state)

        def classifier(given: Mapping[str, Any], epsilon: float) -> CertifiedClassifier:
            # Each with noise of its own: the same noise twice would not be two mechanisms.
            state = None if rng is None else int(rng.randint(2**31 - 1))
            model = CertifiedClassifier(epsilon, self.delta, bounds=self.bounds, random_state=state)
            model.set_params(**given)
            return model

        first = classifier({}, self.epsilon)
        X, classes, labels, persons = first._records(X, y, groups)
        fitted, counted = self._divided(labels, persons)
        whole = len(np.unique(labels[fitted])) == len(classes)
        if not whole or (persons is not None and len(np.unique(persons[fitted])) < 2):
            raise ValueError("too few classes or persons beside the held-out ones; hold out fewer")
        # The last digits: sums of squares of rounded parts stay below μ².
        mu = calibrate_mu(self.epsilon, self.delta) * (1.0 - 1e-9)
        mu_counts = mu * math.sqrt(self.choice_share)
        each = gaussian_epsilon(mu_counts / math.sqrt(len(self.candidates)), self.delta)
        last = gaussian_epsilon(mu * math.sqrt(1.0 - self.choice_share), self.delta)
        if min(each, last) <= 0:  # δ alone would pay for so small a μ
            raise ValueError(
                "epsilon is too small to divide; give a larger one, or fewer candidates"
            )
        tried = [classifier(given, each) for given in self.candidates]
        finals = [classifier(given, last) for given in self.candidates]
        part = None if persons is None else np.unique(persons[fitted], return_inverse=True)[1]
        costs = [model._planned(X[fitted], part)[2].mu for model in tried]
        plans = [model._planned(X, persons) for model in finals]
        for model in tried:
            _refuse(model, X[fitted], labels[fitted], part)
        for model in finals:
            _refuse(model, X, labels, persons)
        mu_last = max(cost.mu for _, _, cost in plans)
        mechanism = {
            "mu_candidates": math.hypot(*costs),
            "mu_choice": mu_counts,
            "mu_last": mu_last,
        }
        spent = math.hypot(max(mechanism["mu_candidates"], mu_counts), mu_last)
        event = events.gaussian(1.0 / spent)
        known, grouped = rng is not None, persons is not None
        coverage = together(
            [certified.coverage(*plan, known, grouped=grouped) for plan in plans],
            {**mechanism, "mu": spent, "candidates": len(plans)},
        )
        self.ledger_entry_ = None
        if self.ledger is not None:
            first.set_params(ledger=self.ledger, data_name=self.data_name)
            self.ledger_entry_ = first._entered(X, event, coverage)
        for model in tried:
            model.fit(X[fitted], labels[fitted], part)
        right = np.array([(model.predict(X[counted]) == labels[counted]).sum() for model in tried])
        self.counts_ = noisy_counts(right.astype(np.int64), mu_counts, first._bits())
        chosen = int(np.argmax(self.counts_))
        self.best_params_ = dict(self.candidates[chosen])
        self.best_estimator_ = finals[chosen].fit(X, classes[labels], persons)
        self.classes_, self.event_ = classes, event
        self.n_features_in_ = X.shape[1]
        self.epsilon_ = gaussian_epsilon(spent, self.delta)
        self.statement_ = Statement.of(
            event, coverage, self.best_estimator_.n_iter_, self.best_estimator_.statement_.notes
        )
        return self

    def predict(self, X: Any) -> Array:
        """Return the most likely class of each row, by the setting that was chosen."""
        check_is_fitted(self)
        return self.best_estimator_.predict(X)

    def predict_proba(self, X: Any) -> Array:
        """Return the softmax of the logits, by the setting that was chosen."""
        check_is_fitted(self)
        return self.best_estimator_.predict_proba(X)

    def decision_function(self, X: Any) -> Array:
        """Return the logits of each row, by the setting that was chosen."""
        check_is_fitted(self)
        return self.best_estimator_.decision_function(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        tags.non_deterministic = self.random_state is None
        return tags

    def _check(self) -> None:
        if len(self.candidates) < 2:
            raise ValueError("there is nothing to choose from; give two candidates or more")
        for name in ("choice_share", "held_out"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must lie between 0 and 1")
        own = {"epsilon", "delta", "bounds", "random_state", "ledger", "data_name"}
        if taken := own & {name for given in self.candidates for name in given}:
            raise ValueError(f"candidates must not set {min(taken)}; give it to the pipeline")
        if self.ledger is not None and not self.data_name:
            raise ValueError("a ledger needs a name for the data; give data_name too")

    def _divided(
        self, labels: NDArray[np.int64], persons: NDArray[np.int64] | None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the records for the candidates and those to count: of a person, the first."""
        if persons is None:
            return stratified_split(labels, max(1, round(self.held_out * len(labels))))
        fitted, counted = split_persons(labels, persons, self.held_out)
        return fitted, counted[np.unique(persons[counted], return_index=True)[1]]


def _refuse(
    model: CertifiedClassifier,
    X: Array,
    labels: NDArray[np.int64],
    persons: NDArray[np.int64] | None,
) -> None:
    """Refuse what a fit would, before any is paid for: of the features one row has to do."""
    feature_map, rule, _ = model._planned(X, persons)
    row = features.compute(model._inputs(X[:1]), feature_map, use_cache=False)
    rows = np.broadcast_to(row, (len(X), row.shape[1]))
    shape = (feature_map.channels, feature_map.positions)
    linear.check(rows, labels, int(labels.max()) + 1, shape, rule, persons)


def noisy_counts(right: NDArray[np.int64], mu: float, bits: Bits) -> NDArray[np.int64]:
    """Return counts, of which one unit moves each by at most 1, as a Gaussian release of `mu`."""
    return release(right, math.sqrt(len(right)) / mu, bits)


def together(of_each: Sequence[Coverage], mechanism: Mapping[str, Any]) -> Coverage:
    """Return what is covered of several fits and a choice: no more than of each of them."""
    first = of_each[0]
    weakest = [
        min((a for one in of_each for a in one.assumptions if a.text == text), key=_certainty)
        for text in dict.fromkeys(a.text for one in of_each for a in one.assumptions)
    ]
    used = dict.fromkeys(one.mechanism["features"] for one in of_each)
    said = dict.fromkeys([*(one.proviso for one in of_each), *around()])
    shown = {name: first.mechanism[name] for name in ("name", "noise")}
    return replace(
        first,
        method=f"{first.method}, chosen among {len(of_each)} settings by noisy counts",
        covered=(*first.covered, COUNTED, "the candidates' weights, and which one was chosen"),
        not_covered=tuple(dict.fromkeys(text for one in of_each for text in one.not_covered)),
        assumptions=tuple(weakest),
        mechanism={**shown, "features": ", ".join(used), **mechanism},
        proviso="; and ".join(text for text in said if text),
    )


def _certainty(assumption: Assumption) -> int:
    """Return 0 for an assumption that is broken, 1 where it is not known, 2 where it holds."""
    return (False, None, True).index(assumption.holds)


def private_pipeline(
    candidates: Sequence[Mapping[str, Any]],
    bounds: Bounds,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    **options: Any,
) -> Pipeline:
    """Return a pipeline of a scaler with declared bounds and a choice that pays for itself.

    Args:
        candidates: Parameters of `CertifiedClassifier`, one dictionary a candidate.
        bounds: (low, high) of the columns, numbers or one for each, known without looking.
        epsilon: Budget ε of everything together.
        delta: Budget δ.
        **options: Further parameters of `PrivateChoice`.

    Returns:
        Two steps, `scale` and `choice`; `choice` has `statement_`, `epsilon_` and `event_`.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from simplexdp import private_pipeline
        >>> X, y = load_digits(return_X_y=True)
        >>> settings = [{"features": "columns"}, {"image_shape": (1, 8, 8)}]
        >>> fitted = private_pipeline(settings, bounds=(0, 16), epsilon=8.0).fit(X[:1400], y[:1400])
        >>> bool(fitted.score(X[1400:], y[1400:]) > 0.5), fitted["choice"].epsilon_ <= 8.0
        (True, True)
    """
    choice = PrivateChoice(candidates, epsilon, delta, **options)
    return Pipeline([("scale", BoundedScaler(bounds)), ("choice", choice)])
