"""Inputs are read off updates of Algorithm 1."""

from __future__ import annotations

import numpy as np
import pytest

from simplexdp import data
from simplexdp.audit import reconstruct
from simplexdp.settings import Settings


@pytest.mark.parametrize("model", ["mlp", "logistic"])
def test_one_record_is_recovered_exactly(images: data.Dataset, model: str) -> None:
    settings = Settings(method="dirichlet", model=model)
    found = reconstruct.attack(settings, images, 1, np.random.default_rng(0))
    assert found.exact == 1
    # float32 weights of size 0.1 that move by 0.01 keep the ratio to about 1e-4.
    assert found.errors[0] < 1e-3
    assert np.abs(found.recovered - found.originals).max() < 5e-3


def test_several_records_of_a_batch_are_recovered(images: data.Dataset) -> None:
    settings = Settings(method="dirichlet", model="mlp")
    found = reconstruct.attack(settings, images, 4, np.random.default_rng(1))
    assert len(found.originals) == 4
    assert found.exact >= 3


@pytest.mark.parametrize(("method", "model"), [("dpsgd", "mlp"), ("certified", None)])
def test_the_same_attack_fails_on_methods_that_cover_the_weights(
    images: data.Dataset, method: str, model: str | None
) -> None:
    """Their update carries noise of the size of the clipped sum, so no ratio of it is an input."""
    for records in (1, 4):
        settings = Settings(method=method, model=model)
        found = reconstruct.attack(settings, images, records, np.random.default_rng(0))
        assert len(found.originals) == records
        assert found.exact == 0
        assert found.errors.min() > 0.05  # inputs lie in [-1, 1]; those above are found to 1e-3


def test_candidates_of_a_batch_are_rows_that_agree() -> None:
    rng = np.random.default_rng(2)
    x, z, junk = rng.uniform(-1, 1, size=(3, 10))
    rows = np.stack([x, z, x + 1e-4, junk, z - 1e-4, 9 * x])
    found = reconstruct.candidates(rows, batch=True)
    assert len(found) == 2
    assert np.allclose(found, [x, z], atol=1e-3)


def test_rows_without_movement_are_left_out() -> None:
    weight = np.array([[2.0, 4.0], [1.0, 1.0], [9.0, 3.0]])
    found = reconstruct.ratios(weight, np.array([2.0, 0.0, -3.0]))
    assert np.allclose(found, [[-3.0, -1.0], [1.0, 2.0]])


def test_a_convolution_is_refused(images: data.Dataset) -> None:
    with pytest.raises(ValueError, match="linear first layer"):
        reconstruct.attack(
            Settings(method="dirichlet", model="cnn"), images, 1, np.random.default_rng(3)
        )
