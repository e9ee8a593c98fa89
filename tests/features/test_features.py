"""Feature maps by name, their normalisation, and the cache."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from simplexdp import features
from simplexdp.features import cache, normalize


def images(count: int = 5) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, 1, 12, 12), dtype=np.uint8)


def test_scattering_rows_have_norm_one_and_groups_mean_zero() -> None:
    feature_map = features.build("auto", (1, 12, 12))
    rows = features.compute(images(), feature_map, use_cache=False)
    assert rows.shape == (5, feature_map.width) == (5, 81 * 9)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    groups = rows.reshape(5, 27, -1)
    np.testing.assert_allclose(groups.mean(axis=2), 0.0, atol=1e-6)


def test_group_normalisation_against_torch() -> None:
    maps = torch.rand(4, 6, 3, 3, generator=torch.Generator().manual_seed(1))
    want = torch.nn.functional.group_norm(maps, 2, eps=normalize.VARIANCE_FLOOR)
    assert torch.allclose(normalize.group(maps, 2), want, atol=1e-5)


def test_zero_record_stays_zero() -> None:
    assert torch.equal(normalize.unit(torch.zeros(2, 3)), torch.zeros(2, 3))


def test_columns_in_bounds_have_norm_at_most_one() -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (50, 7)).astype(np.float32)
    out = features.compute(rows, features.build("auto", (7,)))
    assert np.linalg.norm(out, axis=1).max() <= 1.0
    np.testing.assert_allclose(out, rows / np.sqrt(7), rtol=1e-6)


def test_random_features_are_public_and_bounded() -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (9, 4)).astype(np.float32)
    first = features.compute(rows, features.build("random", (4,)))
    again = features.compute(rows, features.build("random", (4,)))
    np.testing.assert_array_equal(first, again)
    assert np.linalg.norm(first, axis=1).max() <= 1.0


def test_random_features_approximate_the_gaussian_kernel() -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (6, 4)).astype(np.float32)
    out = features.compute(rows, features.build("random", (4,)))
    distance = ((rows[:, None] - rows[None]) ** 2).sum(-1) / 4
    # cos·cos averages to half the kernel exp(−‖2(x − x')‖²/2).
    np.testing.assert_allclose(2 * out @ out.T, np.exp(-2 * distance), atol=0.12)


def squares(rows: np.ndarray) -> np.ndarray:
    return np.concatenate([rows, rows**2], axis=1)


def test_user_features_as_a_function() -> None:
    rows = np.ones((3, 2), dtype=np.float32)
    out = features.compute(rows, features.build(squares, (2,)))
    assert out.shape == (3, 4)


def test_user_features_by_name() -> None:
    rows = np.full((3, 2), 4.0, dtype=np.float32)
    out = features.compute(rows, features.build("numpy:sqrt", (2,)))
    np.testing.assert_allclose(out, math.sqrt(0.5))  # brought to norm 1


def test_the_scale_of_user_features_does_not_matter() -> None:
    """Clipping and rounding have a fixed unit, so rows of norm 0.001 would be lost in it."""
    rows = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    want = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for scale in (1e-25, 1e-3, 1.0, 1e25):
        out = features.compute(rows, features.build(lambda r, by=scale: r * by, (3,)))
        np.testing.assert_allclose(out, want, rtol=1e-5)


def test_user_features_are_not_taken_for_built_in_ones() -> None:
    def columns(rows: np.ndarray) -> np.ndarray:
        return rows

    columns.__qualname__ = "columns"
    own = features.build(columns, (2,)).provenance
    assert (own.fixed, own.trained_on, own.record_wise) == (False, None, True)
    built_in = features.build("columns", (2,)).provenance
    assert (built_in.fixed, built_in.trained_on) == (True, features.NO_DATA)


def test_user_features_see_pixels_as_the_released_model_does() -> None:
    rows = np.array([[0, 51], [255, 102]], dtype=np.uint8)
    out = features.compute(rows, features.build(squares, (2,)))
    want = squares(np.array([[0.0, 0.2], [1.0, 0.4]]))
    np.testing.assert_allclose(out, want / np.linalg.norm(want, axis=1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("wavelets", (3,), "unknown features"),
        ("scattering", (3,), "needs images"),
        ("scattering", (1, 4, 4), "at least 8×8"),
        ("no_such_module:f", (3,), "cannot be imported"),
        ("numpy:no_such", (3,), "cannot be imported"),
        (lambda rows: np.zeros(3), (3,), "one row for each record"),
        (lambda rows: rows - rows.mean(axis=0), (3,), "when the records beside it change"),
        (lambda rows: rows + np.random.default_rng().normal(), (3,), "or at every call"),
    ],
)
def test_bad_maps_are_refused(name: object, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        features.build(name, shape)  # type: ignore[arg-type]


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_record_whose_features_overflow_is_not_refused(
    use_cache: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal would tell something of that record; the others' rows are what they were."""
    monkeypatch.setenv("SIMPLEXDP_CACHE", str(tmp_path))
    inputs = images().astype(np.float64) / 255.0
    feature_map = features.build("scattering", (1, 12, 12))
    want = np.array(features.compute(inputs, feature_map, use_cache))
    inputs[2] = 1e300
    rows = np.array(features.compute(inputs, feature_map, use_cache))
    assert not np.isfinite(rows[2]).all()
    np.testing.assert_array_equal(np.delete(rows, 2, 0), np.delete(want, 2, 0))


def test_cache_is_used_and_keyed_by_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMPLEXDP_CACHE", str(tmp_path))
    feature_map = features.build("scattering", (1, 12, 12))
    first = np.array(features.compute(images(), feature_map))
    (path,) = (tmp_path / "features").glob("*.npy")
    stamp = path.stat().st_mtime_ns
    np.testing.assert_array_equal(features.compute(images(), feature_map), first)
    assert path.stat().st_mtime_ns == stamp
    changed = images()
    changed[0, 0, 0, 0] ^= 1
    features.compute(changed, feature_map)
    assert len(list((tmp_path / "features").glob("*.npy"))) == 2


def test_damaged_cache_is_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMPLEXDP_CACHE", str(tmp_path))
    feature_map = features.build("scattering", (1, 12, 12))
    first = np.array(features.compute(images(), feature_map))
    (path,) = (tmp_path / "features").glob("*.npy")
    path.write_bytes(b"cut off")
    np.testing.assert_array_equal(features.compute(images(), feature_map), first)


def test_what_a_killed_process_left_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half-written features are as private as whole ones; a file of this hour may be in use."""
    monkeypatch.setenv("SIMPLEXDP_CACHE", str(tmp_path))
    folder = tmp_path / "features"
    folder.mkdir()
    old, new = folder / f".old.npy.{'0' * 16}", folder / f".new.npy.{'1' * 16}"
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (0, 0))
    cache.write("key", 1, 2, iter([np.zeros((1, 2), dtype=np.float32)]))
    assert not old.exists()
    assert new.exists()


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMPLEXDP_CACHE", str(tmp_path))

    def broken() -> object:
        yield np.zeros((2, 3), dtype=np.float32)
        raise RuntimeError("cut off")

    with pytest.raises(RuntimeError):
        cache.write("key", 4, 3, broken())  # type: ignore[arg-type]
    assert list((tmp_path / "features").iterdir()) == []
