"""An option that would have no effect on the data given is refused, not dropped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from simplexdp import data

LABELS = np.arange(30) % 3


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    """The same thirty records as a folder of images, as arrays and as a table."""
    folder = tmp_path / "folder"
    for k, label in enumerate(LABELS):
        (folder / str(label)).mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 4), k, dtype=np.uint8)).save(folder / str(label) / f"{k}.png")
    np.savez(tmp_path / "arrays.npz", X=np.arange(60.0).reshape(30, 2), y=LABELS)
    lines = ["age,y", *(f"{k},{label}" for k, label in enumerate(LABELS))]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    names = {"folder": "folder", "npz": "arrays.npz", "csv": "table.csv"}
    return {kind: tmp_path / name for kind, name in names.items()}


GOOD: dict[str, dict[str, Any]] = {
    "folder": {"image_size": 4},
    "npz": {"bounds": "0:60"},
    "csv": {"label": "y", "bounds": "age=0:30"},
}


@pytest.mark.parametrize(
    ("kind", "option", "message"),
    [
        ("folder", {"label": "y"}, "folder of images, which has no use for a label"),
        ("folder", {"bounds": "0:1"}, "folder of images, which has no use for a label, bounds"),
        ("npz", {"image_size": 4}, "npz file, which has no use for an image size"),
        ("npz", {"drop": "1"}, "npz file, which has no use for a label, categories, missing"),
        ("npz", {"label": "y"}, "npz file, which has no use for a label"),
        ("csv", {"image_size": 4}, "csv file, which has no use for an image size"),
        ("csv", {"data_dir": "."}, "leave out --data-dir"),
        ("npz", {"allow_unverified": True}, "leave out --data-dir and --allow-unverified"),
    ],
)
def test_an_option_for_another_kind_of_data(
    paths: dict[str, Path], kind: str, option: dict[str, Any], message: str
) -> None:
    assert len(data.load(paths[kind], **GOOD[kind]).train) == 24
    with pytest.raises(ValueError, match=message):
        data.load(paths[kind], **{**GOOD[kind], **option})


@pytest.mark.parametrize("kind", ["folder", "npz", "csv"])
def test_a_share_for_tests_beside_test_data(paths: dict[str, Path], kind: str) -> None:
    halves = data.load(paths[kind], test_fraction=0.5, **GOOD[kind])
    assert len(halves.test) == 15
    with pytest.raises(ValueError, match=r"there is test data.* no --test-fraction"):
        data.load(paths[kind], test=paths[kind], test_fraction=0.5, **GOOD[kind])


def test_a_set_known_by_name_has_its_own_split() -> None:
    with pytest.raises(ValueError, match="takes no option of one's own data"):
        data.load("digits", test_fraction=0.5)


@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_the_case_of_a_suffix_does_not_matter(paths: dict[str, Path], kind: str) -> None:
    shouted = paths[kind].with_suffix(paths[kind].suffix.upper())
    paths[kind].rename(shouted)
    assert len(data.load(shouted, **GOOD[kind]).train) == 24
