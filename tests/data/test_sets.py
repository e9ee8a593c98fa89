"""The real sets, where the cache holds them: counts, checksums, range, published statistics."""

from __future__ import annotations

import os

import numpy as np
import pytest

from simplexdp import data

# Means and standard deviations of the training pixels in [0, 1] as the literature gives them,
# and the first training labels of each set's published order.
PUBLISHED = {
    "mnist": ((0.1307,), (0.3081,), [5, 0, 4, 1, 9]),
    "fashion-mnist": ((0.2860,), (0.3530,), [9, 0, 0, 3, 0]),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), [6, 9, 9, 4, 1]),
    "svhn": ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970), [1, 9, 2, 3, 2]),
}
COUNTS = {
    "mnist": (60_000, 10_000, None),
    "fashion-mnist": (60_000, 10_000, None),
    "cifar10": (50_000, 10_000, None),
    "svhn": (73_257, 26_032, None),
    "dermamnist": (7_007, 2_005, 1_003),
}


@pytest.fixture(autouse=True)
def real_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.environ["SIMPLEXDP_REAL_CACHE"]:
        monkeypatch.setenv("SIMPLEXDP_CACHE", os.environ["SIMPLEXDP_REAL_CACHE"])
    else:
        monkeypatch.delenv("SIMPLEXDP_CACHE")


def present(name: str) -> data.Dataset:
    if not data.present(name):
        pytest.skip(f"{name} not present")
    return data.load(name)


@pytest.mark.parametrize("name", COUNTS)
def test_counts_shape_type_and_range(name: str) -> None:
    dataset = present(name)
    train, test, validation = COUNTS[name]
    assert (len(dataset.train), len(dataset.test)) == (train, test)
    assert (len(dataset.validation) if dataset.validation else None) == validation
    facts = data.describe(name)
    assert dataset.input_shape == tuple(facts["shape"])
    assert dataset.train.inputs.dtype == np.uint8
    assert (dataset.train.inputs.min(), dataset.train.inputs.max()) == (0, 255)
    assert facts["class_counts"]["train"] == np.bincount(dataset.train.labels).tolist()
    assert dataset.classes == len(facts["class_names"])


@pytest.mark.parametrize("name", COUNTS)
def test_every_array_matches_its_checksum(name: str) -> None:
    present(name)
    assert data.check(name)["checked"] == "every array matches its sha256"


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_statistics(name: str) -> None:
    dataset = present(name)
    means, deviations, first = PUBLISHED[name]
    assert dataset.train.labels[:5].tolist() == first
    for channel, (mean, deviation) in enumerate(zip(means, deviations, strict=True)):
        # Exact moments from the histogram of the 256 byte values.
        counts = np.bincount(np.ravel(dataset.train.inputs[:, channel]), minlength=256)
        values = np.arange(256) / 255
        actual = counts @ values / counts.sum()
        spread = np.sqrt(counts @ values**2 / counts.sum() - actual**2)
        assert actual == pytest.approx(mean, abs=1e-4)
        assert spread == pytest.approx(deviation, abs=1.5e-4)
