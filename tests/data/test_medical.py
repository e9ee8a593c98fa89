"""DICOM: gray values by a declared window, colors as they are, and no tag about anybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simplexdp import data
from simplexdp.data import medical, preprocessing

pydicom = pytest.importorskip("pydicom")


@pytest.fixture
def scan() -> Any:
    """A CT slice that ships with pydicom, 128×128."""
    return pydicom.dcmread(Path(pydicom.__file__).parent / "data/test_files/CT_small.dcm")


def folder(path: Path, scan: Any, change: Any = lambda content: None) -> Path:
    """Two classes of six slices, shifted by their number in Hounsfield units."""
    for name in ("head", "tail"):
        (path / name).mkdir(parents=True)
        for k in range(6):
            scan.RescaleIntercept = -1024 + k
            change(scan)
            scan.save_as(path / name / f"{k}.dcm")
    return path


def test_hounsfield_units_by_a_declared_window(tmp_path: Path, scan: Any) -> None:
    root = folder(tmp_path / "ct", scan)
    with pytest.raises(ValueError, match=r"needs the size .* --image-size 128x128x1"):
        data.load(root)
    with pytest.raises(ValueError, match=r"image 1 of class head .* with --window low:high"):
        data.load(root, image_size="128x128x1")
    dataset = data.load(root, image_size="128x128x1", window="-160:240")
    assert dataset.preprocessing is not None
    reader = preprocessing.from_json(dataset.preprocessing.to_json())
    stored = np.frombuffer(scan.PixelData, dtype="<i2").reshape(128, 128)
    units = stored.astype(np.float64) - 1024 + 5
    expected = np.rint(np.clip((units + 160) / 400, 0, 1) * 255)
    assert np.array_equal(reader.inputs(root / "tail" / "5.dcm")[0, 0], expected)
    assert len(np.unique(expected)) > 20  # the window shows something


def test_high_values_are_dark_in_monochrome1(tmp_path: Path, scan: Any) -> None:
    light = folder(tmp_path / "light", scan)
    dark = folder(
        tmp_path / "dark", scan, lambda c: setattr(c, "PhotometricInterpretation", "MONOCHROME1")
    )
    found = [data.load(p, image_size="128x128x1", window="-160:240") for p in (light, dark)]
    assert np.array_equal(found[0].train.inputs, 255 - found[1].train.inputs)


def test_no_tag_about_anybody_is_kept_or_shown(tmp_path: Path, scan: Any) -> None:
    scan.PatientName = "Secret^Anna"
    path = tmp_path / "Secret.dcm"
    scan.save_as(path)
    read = pydicom.dcmread(path, specific_tags=medical.TAGS)
    assert "PatientName" not in read
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ValueError, match="image 3 of class x is not a DICOM image") as found:
        medical.read(path, "image 3 of class x")
    assert "Secret" not in str(found.value)


def test_colors_need_no_window_and_frames_are_refused() -> None:
    files = Path(pydicom.__file__).parent / "data/test_files"
    values, grey, _ = medical.read(files / "SC_rgb_small_odd.dcm", "it")
    assert values.shape == (3, 3, 3)
    assert not grey
    with pytest.raises(ValueError, match="it has 2 frames: give one image a file"):
        medical.read(files / "SC_rgb_rle_2frame.dcm", "it")
    with pytest.raises(ValueError, match="neither gray nor 8-bit color"):
        medical.read(files / "SC_rgb_rle_16bit.dcm", "it")
