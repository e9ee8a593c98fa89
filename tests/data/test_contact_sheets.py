from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

from simplexdp import data


@pytest.fixture(scope="module")
def sheets() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "contact_sheets.py"
    spec = importlib.util.spec_from_file_location("benchmark_contact_sheets", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_row_holds_the_first_images_of_its_class(sheets: ModuleType) -> None:
    rng = np.random.default_rng(0)
    inputs = rng.integers(0, 256, (6, 3, 4, 5), dtype=np.uint8)
    split = data.Split(inputs, np.array([1, 0, 1, 1, 0, 1]))
    sheet = sheets.contact_sheet(data.Dataset("made", split, split, None, ("a", "b")), 3)
    assert sheet.shape == (8, 15, 3)
    assert np.array_equal(sheet[:4, 5:10], inputs[4].transpose(1, 2, 0))
    assert not sheet[:4, 10:].any(), "class a has two images alone"
    assert np.array_equal(sheet[4:, 10:], inputs[3].transpose(1, 2, 0))


def test_sheets_of_what_is_present(
    sheets: ModuleType, cache_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sheets.main([str(tmp_path / "out")])
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["digits.png"]
    with Image.open(tmp_path / "out" / "digits.png") as picture:
        assert picture.size == (8 * 8 * 3, 10 * 8 * 3)
    assert "mnist: not present" in capsys.readouterr().out
