"""A scikit-learn estimator of the certified method, for arrays."""

from __future__ import annotations

import numbers
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from simplexdp import features, linear, noise
from simplexdp.claims import Coverage, large_delta
from simplexdp.data.schema import scale, to_unit, unit_rows
from simplexdp.ledger import Ledger
from simplexdp.methods import certified
from simplexdp.methods._on_features import noise_bits
from simplexdp.statement import Statement

Array = NDArray[Any]
Bounds = tuple[float | Sequence[float], float | Sequence[float]]


def around() -> list[str]:
    """Say what a fit rests on, where a pipeline or a search is seen to call it.

    The callers are looked at, so a call through other processes or threads is not seen.
    """
    said = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Pipeline):
            before = [step for _, step in caller.steps[:-1] if step not in (None, "passthrough")]
            names = [type(step).__name__ for step in before if get_tags(step).requires_fit]
            if names:
                text = f"if {', '.join(names)} before it saw none of these rows"
                said += [text] * (text not in said)
        elif isinstance(caller, BaseSearchCV):
            text = (
                f"if the other fits of {type(caller).__name__} and its choice by their scores are "
                "paid for too"
            )
            said += [text] * (text not in said)
        frame = frame.f_back
    return said


class CertifiedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Linear classifier on fixed features whose released weights are (ε, δ)-differentially private.

    Features are computed from each record by itself, and a linear softmax is trained on them by
    full-batch gradient descent with Gaussian noise, exactly rounded.

    Args:
        epsilon (float, default 1.0): Budget ε of one `fit`. Every further fit on the same data
            adds to it; a `ledger` adds them up.
        delta (float, default 1e-5): Budget δ; choose it far below one over the number of rows.
        features (str or callable, default "auto"): A name, as `simplexdp train --features` takes
            it, a function or a torch module. One of your own must treat every record by itself and
            may not be fitted to the private data; its rows are brought to norm 1.
        bounds (tuple, optional): (low, high), numbers or one for each column, known without
            looking at the data. Columns are clipped to them and scaled. Without bounds every
            record is divided by its own norm, which costs no privacy but forgets the norm; an
            image is taken as it is, so its pixels should be in [0, 1].
        image_shape (tuple, optional): (channels, height, width) where the columns of X are pixels.
        random_state (int, optional): None takes noise from the operating system. A number makes the
            fit reproducible, and private only from those who do not know it, if no other fit uses
            it.
        steps (int, optional): Gradient steps; by rule from the number of rows and the budget.
        clip (float, optional): Bound on the norm of each record's gradient; by rule.
        lr (float, optional): Learning rate; by rule.
        ledger (Ledger or path, optional): Enters every fit before it begins; one that would exceed
            the budget of `data_name` is refused.
        data_name (str, optional): What the ledger keeps the rows under: a file's path or a label.

    Attributes:
        classes_ (ndarray): The distinct labels, sorted.
        weights_ (ndarray): Released weights, of shape (features, classes).
        bias_ (ndarray): Released bias, one a class.
        epsilon_ (float): What the fit costs at `delta`.
        event_ (DpEvent): What a ledger is charged (`Ledger.reserve`).
        ledger_entry_ (str or None): The id of its entry, where a ledger was given.
        statement_ (Statement): What may be claimed of this fit alone: not of steps before it that
            were fitted to the same rows (a scaler in a pipeline), nor of the other fits of a
            search or a cross-validation, nor of a choice among them by their scores. Where it sees
            itself called by such, its headline says "if"; `private_pipeline` pays for both.
        n_iter_ (int): Gradient steps taken.
        n_features_in_ (int): Columns of X.

    Formal guarantee:
        `weights_` and `bias_`, and so every prediction for a record outside X, are (epsilon,
        delta)-private for one row of X under zero-out; y and the number of rows are public. A
        prediction for a row of X depends on that row beside the weights, and nothing covers it. See
        `simplexdp.linear`.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> from simplexdp import CertifiedClassifier
        >>> X, y = load_digits(return_X_y=True)
        >>> model = CertifiedClassifier(epsilon=4.0, bounds=(0, 16), image_shape=(1, 8, 8))
        >>> bool(model.fit(X[:1400], y[:1400]).score(X[1400:], y[1400:]) > 0.5)
        True
        >>> model.statement_.covers_weights
        True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        features: Any = "auto",
        bounds: Bounds | None = None,
        image_shape: tuple[int, int, int] | None = None,
        random_state: Any = None,
        steps: int | None = None,
        clip: float | None = None,
        lr: float | None = None,
        ledger: Ledger | str | Path | None = None,
        data_name: str | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.features = features
        self.bounds = bounds
        self.image_shape = image_shape
        self.random_state = random_state
        self.steps = steps
        self.clip = clip
        self.lr = lr
        self.ledger = ledger
        self.data_name = data_name

    def fit(self, X: Any, y: Any, groups: Any = None) -> CertifiedClassifier:
        """Spend the budget on these rows.

        Args:
            X: Private records, one a row.
            y: Public labels, of two classes or more.
            groups: Whose each record is; the unit of privacy is then the person, whose records are
                clipped together. None where every record is a unit of its own.

        Returns:
            The fitted classifier itself.

        Raises:
            ValueError: If X, y, groups or a parameter cannot be trained on; nothing is spent then.
        """
        X, classes, labels, persons = self._records(X, y, groups)
        feature_map, rule, cost = self._planned(X, persons)
        if self.ledger is not None and not self.data_name:
            raise ValueError("a ledger needs a name for the data; give data_name too")
        shape = (feature_map.channels, feature_map.positions)
        rows = features.compute(self._inputs(X), feature_map, use_cache=False)
        linear.check(rows, labels, len(classes), shape, rule, persons)
        coverage = self._coverage(feature_map, rule, cost, persons is not None)
        self.ledger_entry_ = self._entered(X, cost.event(), coverage)
        fitted = linear.fit(
            rows, labels, len(classes), shape, rule, cost, self._bits(), persons=persons
        )
        self.classes_ = classes
        self.weights_ = fitted.weights
        self.bias_ = fitted.bias
        self.epsilon_ = cost.epsilon
        self.n_iter_ = rule.schedule.steps
        self.event_ = cost.event()
        warned = large_delta(self.delta, len(X) if persons is None else int(persons.max()) + 1)
        notes = (certified.RULE_NOTE, *warned)
        self.statement_ = Statement.of(self.event_, coverage, self.n_iter_, notes)
        for note in warned:
            warnings.warn(note, stacklevel=2)
        return self

    def _records(
        self, X: Any, y: Any, groups: Any
    ) -> tuple[Array, Array, NDArray[np.int64], NDArray[np.int64] | None]:
        """Return rows, classes, labels and persons by number; refuse what cannot be trained on."""
        X, y = self._validated(X, y, ensure_min_samples=2)
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y has {len(classes)} class; a classifier needs labels of two classes or more"
            )
        persons = None
        if groups is not None:
            if np.shape(groups) != labels.shape:
                raise ValueError("groups must be one number or text for each row of X")
            persons = np.unique(groups, return_inverse=True)[1].astype(np.int64)
            if persons.max() == 0:
                raise ValueError("all records are of one person; there must be at least two")
        return X, classes, labels.astype(np.int64), persons

    def _planned(
        self, X: Array, persons: NDArray[np.int64] | None
    ) -> tuple[features.FeatureMap, linear.Rule, linear.Spending]:
        """Return the features, the rule and what a fit of these rows costs."""
        if self.lr is not None and not self.lr > 0:
            raise ValueError(f"the learning rate is {self.lr}; it must be positive")
        feature_map = features.build(self.features, self._shape(X.shape[1]))
        rule, cost = linear.planned(
            len(X) if persons is None else int(persons.max()) + 1,
            self.epsilon,
            self.delta,
            (feature_map.channels, feature_map.positions),
            steps=self.steps,
            clip=self.clip,
            lr=self.lr,
            largest=feature_map.largest,
        )
        return feature_map, rule, cost

    def _coverage(
        self,
        feature_map: features.FeatureMap,
        rule: linear.Rule,
        cost: linear.Spending,
        grouped: bool,
    ) -> Coverage:
        """Return what a fit covers, if what is seen to happen around it lets it."""
        known = self.random_state is not None
        coverage = certified.coverage(feature_map, rule, cost, known, grouped=grouped)
        said = [text for text in (coverage.proviso, *around()) if text]
        return replace(coverage, proviso="; and ".join(said))

    def _entered(self, X: Array, event: Any, coverage: Coverage) -> str | None:
        """Count a fit before it begins, and return its entry's id."""
        if self.ledger is None or self.data_name is None:
            return None
        book = self.ledger if isinstance(self.ledger, Ledger) else Ledger(self.ledger)
        return book.reserve(
            self.data_name,
            certified.METHOD.name,
            event,
            type(self).__name__,
            coverage.covers,
            broken=coverage.broken(),
            records=X,
            unit=coverage.unit,
        )

    def decision_function(self, X: Any) -> Array:
        """Return the logits of each row.

        Args:
            X: Records, one a row.

        Returns:
            Logits of shape (rows, classes), or for two classes the logit of the second against the
            first.
        """
        logits = self._logits(X)
        return np.asarray(logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits)

    def predict_proba(self, X: Any) -> Array:
        """Return the softmax of the logits.

        Args:
            X: Records, one a row.

        Returns:
            Shares of shape (rows, classes), each row summing to 1.
        """
        logits = self._logits(X)
        raised = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))

    def predict(self, X: Any) -> Array:
        """Return the most likely class of each row.

        Args:
            X: Records, one a row.

        Returns:
            One of `classes_` for each row.
        """
        chosen = self._logits(X).argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Noise for ε = 1 on the hundreds of rows of scikit-learn's checks leaves little accuracy.
        tags.classifier_tags.poor_score = True
        tags.non_deterministic = self.random_state is None
        return tags

    def _logits(self, X: Any) -> Array:
        check_is_fitted(self)
        X = self._validated(X, reset=False)
        feature_map = features.build(self.features, self._shape(X.shape[1]))
        rows = features.compute(self._inputs(X), feature_map, use_cache=False)
        # One row at a time in the sum, so that a row's score does not depend on its neighbours.
        scores = np.einsum("nd,dk->nk", rows.astype(np.float64), self.weights_)
        return np.asarray(scores + self.bias_)

    def _validated(self, X: Any, *y: Any, **checks: Any) -> Any:
        """Check as scikit-learn does, without the values that its messages quote."""
        try:
            return validate_data(self, X, *y, dtype=np.float64, **checks)
        except ValueError as error:
            said = str(error)
            if "could not convert" in said or "Failed to parse" in said:
                raise ValueError("X holds text; encode it as numbers first") from None
            if "Complex data" in said:
                raise ValueError("Complex data not supported; give real numbers") from None
            if "Expected 2D array" in said:
                raise ValueError(
                    f"Expected 2D array, got one of {np.ndim(X)} dimensions. Reshape your data: "
                    "one row a record, one column a feature"
                ) from None
            raise

    def _shape(self, width: int) -> tuple[int, ...]:
        if self.image_shape is None:
            return (width,)
        shape = tuple(int(n) for n in self.image_shape)
        if len(shape) != 3 or int(np.prod(shape)) != width:
            raise ValueError(
                f"image_shape {shape} does not fit the {width} columns of X; "
                "give (channels, height, width)"
            )
        return shape

    def _inputs(self, X: Array) -> Array:
        """Return rows as the feature map takes them: pixels in [0, 1], columns in [-1, 1]."""
        if self.bounds is None:
            if self.image_shape is None:
                X = unit_rows(X)  # which the columns map brings to norm 1
            with np.errstate(over="ignore"):  # such a row counts as zero; nothing may tell of it
                return X.reshape(len(X), *self._shape(X.shape[1])).astype(np.float32)
        low, high = (np.asarray(bound, dtype=np.float64) for bound in self.bounds)
        if any(bound.shape not in ((), (X.shape[1],)) for bound in (low, high)):
            raise ValueError(f"each of the bounds must be one number or {X.shape[1]}, by column")
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise ValueError("bounds must be finite with low < high in every column")
        scaled = (to_unit if self.image_shape is not None else scale)(X, low, high)
        return scaled.reshape(len(X), *self._shape(X.shape[1])).astype(np.float32)

    def _bits(self) -> noise.Bits:
        if self.random_state is None:
            return noise_bits(None)
        if isinstance(self.random_state, numbers.Integral):
            return noise_bits(int(self.random_state))
        return noise_bits(int(check_random_state(self.random_state).randint(2**31 - 1)))
