"""Patch features: against a direct computation, their symmetries, and the shipped constants."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from simplexdp import features
from simplexdp.features import patches, synthetic

SHAPES = {"patches": (3, 32, 32), "patches-d4": (3, 28, 28), "patches+scattering": (1, 28, 28)}


def images(shape: tuple[int, ...], count: int = 4) -> torch.Tensor:
    return torch.rand((count, *shape), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("name", "shape"), SHAPES.items())
def test_rows_are_of_norm_one_and_each_of_its_own_image(name: str, shape: tuple[int, ...]) -> None:
    feature_map = features.build(name, shape)
    rows = feature_map.apply(images(shape))
    assert rows.shape == (4, feature_map.width)
    np.testing.assert_allclose(rows.norm(dim=1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(rows[:1], feature_map.apply(images(shape)[:1]), atol=1e-5)
    assert feature_map.provenance.trained_on == features.NO_DATA
    assert feature_map.largest is not None
    assert 1 / feature_map.width < feature_map.largest < 0.1


def test_a_mirrored_image_has_the_same_features() -> None:
    apply = features.build("patches", (3, 32, 32)).apply
    found = images((3, 32, 32))
    np.testing.assert_allclose(apply(found), apply(found.flip(-1)), atol=1e-4)
    assert not torch.allclose(apply(found), apply(found.flip(-2)), atol=1e-2)


@pytest.mark.parametrize("element", range(8))
def test_d4_features_do_not_change_under_any_symmetry_of_the_square(element: int) -> None:
    apply = features.build("patches-d4", (3, 28, 28)).apply
    found = images((3, 28, 28))
    np.testing.assert_allclose(
        apply(found), apply(patches.orbit(found, 8)[element]), atol=1e-4, err_msg=str(element)
    )


@pytest.mark.parametrize("group", [1, 2, 8])
def test_undone_inverts_the_orbit(group: int) -> None:
    maps = images((2, 5, 5))
    for element, image in enumerate(patches.orbit(maps, group)):
        assert torch.equal(patches.undone(image, element, group), maps)


def test_pooled_against_a_direct_computation() -> None:
    scale = patches.Scale(
        size=3, stride=2, border=1, atoms=2, group=2, cells=2, threshold=0.4, small=0.1, energy=True
    )
    image = images((1, 7, 7), 1)
    first = torch.randn(2, 1, 3, 3, generator=torch.Generator().manual_seed(1))
    filters = torch.cat([first, first.flip(-1)])
    padded = np.pad(image[0, 0].double().numpy(), 1)
    found = np.zeros((4, 4, 4))
    for k, f in enumerate(filters[:, 0].double().numpy()):
        for i in range(4):
            for j in range(4):
                found[k, i, j] = (f * padded[2 * i : 2 * i + 3, 2 * j : 2 * j + 3]).sum()
    size = np.sqrt((found**2).mean(0))
    found = found / (size + 0.1)

    def cells(maps: np.ndarray) -> np.ndarray:
        return maps.reshape(-1, 2, 2, 2, 2).mean((2, 4))

    want = []
    for sign in (1, -1):
        over = cells(np.maximum(sign * found - 0.4, 0))
        want.append((over[:2] + over[2:, :, ::-1]) / 2)
    want = np.sqrt(np.concatenate([*want, cells(size[None])]))
    got = patches.pooled(image, filters, scale)[0].view(5, 2, 2)
    np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("places", [11, 14, 28])
def test_cells_are_means_and_mirror_images(places: int, soft: bool) -> None:
    weights = patches.pooling(places, places, 7, soft).view(places, places, 7, 7)
    np.testing.assert_allclose(weights.sum((0, 1)), 1.0, rtol=1e-5)
    np.testing.assert_allclose(weights, weights.flip(0, 2), atol=1e-6)
    np.testing.assert_allclose(weights, weights.transpose(0, 1).transpose(2, 3), atol=1e-6)


def test_moments_whiten_maps_of_their_own_distribution() -> None:
    """Rows of a Kronecker covariance become uncorrelated, and their largest share is as said."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(n, n)))[0] for n in (12, 4))
    spread = np.outer(0.8 ** np.arange(12), 0.5 ** np.arange(4))
    maps = left @ (rng.normal(size=(20000, 12, 4)) * spread) @ right.T + 3.0
    maps = torch.from_numpy(maps).float()
    made = {f"0.{key}": value for key, value in patches.moments(maps, 0.5, 10).items()}
    made["0.axes"] = made["0.axes"].float()
    rows = patches.whitened(maps, made, "0.").double()
    covariance = (rows.T @ rows / len(rows)).numpy()
    np.testing.assert_allclose(covariance, np.eye(10) / 10, atol=0.02)
    assert float(made["0.largest"]) == pytest.approx(0.1, rel=0.1)


def test_a_dictionary_is_distinct_and_closed_under_its_group() -> None:
    rng = np.random.Generator(np.random.Philox(1))
    drawn = torch.from_numpy(synthetic.leaves(24, rng, side=16))
    scale = patches.Scale(size=4, atoms=6, group=8)
    filters = patches.dictionary(drawn, scale, rng)
    assert filters.shape == (48, 3, 4, 4)
    np.testing.assert_allclose(filters.sum((1, 2, 3)), 0.0, atol=1e-3)
    orbits = filters.view(8, 6, 3, 4, 4)
    for element, image in enumerate(patches.orbit(orbits[0], 8)):
        np.testing.assert_allclose(orbits[element], image, atol=1e-3)


@pytest.mark.parametrize(("draw", "channels"), [("leaves", 3), ("silhouettes", 1)])
def test_synthetic_images_are_of_the_seed_alone(draw: str, channels: int) -> None:
    make = getattr(synthetic, draw)
    first, again, other = (make(3, np.random.Generator(np.random.Philox(s)), 16) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.shape == (3, channels, 16, 16)
    assert 0 <= first.min() < first.max() <= 1


def test_damaged_constants_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(patches.CHECKSUMS, "patches-grey", "0" * 64)
    patches.load.cache_clear()
    with pytest.raises(ValueError, match="damaged; install simplexdp again"):
        patches.load("patches-grey")


@pytest.mark.parametrize(
    ("name", "shape", "words"),
    [
        ("patches", (4,), "patches needs images"),
        ("patches", (3, 12, 12), "at least 18 pixels"),
        ("patches-d4", (1, 28, 28), "square colour images"),
        ("patches-d4", (3, 28, 32), "square colour images"),
        ("patches+scattering", (1, 32, 32), "grey images of 28×28"),
    ],
)
def test_images_that_do_not_fit_are_refused(name: str, shape: tuple[int, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        features.build(name, shape)


def test_larger_images_are_averaged_to_the_scale_of_the_dictionary() -> None:
    small = images((3, 32, 32))
    large = small.repeat_interleave(3, -1).repeat_interleave(3, -2)
    kind, constants = patches.KINDS["patches"], patches.load("patches")[0]
    np.testing.assert_allclose(
        patches.apply(large, kind, constants), patches.apply(small, kind, constants), atol=1e-4
    )


def test_auto_is_patches_for_colour_and_scattering_for_grey() -> None:
    assert features.build("auto", (3, 32, 32)).name.startswith("patches-")
    assert features.build("auto", (3, 12, 12)).name.startswith("scattering")
    assert features.build("auto", (1, 28, 28)).name.startswith("scattering")
