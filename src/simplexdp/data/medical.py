"""The pixels of a DICOM file; of its tags only those that say what a pixel means are read."""

from __future__ import annotations

import logging
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from simplexdp import plugins
from simplexdp.data.dataset import Array, DataError

SUFFIXES = (".dcm", ".dicom")
# No name, date, institution or identity number enters memory.
TAGS = ["Rows", "Columns", "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration",
        "BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "NumberOfFrames",
        "RescaleSlope", "RescaleIntercept", "PixelData"]  # fmt: skip


def read(path: Path, where: str) -> tuple[Array, bool, bool]:
    """Return the pixels, whether they are gray values, and whether high ones are dark.

    Gray values are float64 in the file's own unit (Hounsfield in CT), others uint8 (H, W, 3).
    """
    pydicom: Any = plugins.extra("pydicom", "medical")
    pixels: Any = plugins.extra("pydicom.pixels", "medical")
    logging.getLogger("pydicom").setLevel(logging.CRITICAL)  # its messages quote values
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = pydicom.dcmread(path, specific_tags=TAGS)
            frames = int(content.get("NumberOfFrames") or 1)
            kind = str(content.PhotometricInterpretation)
            values = np.asarray(pixels.pixel_array(content)) if frames == 1 else np.empty(0)
            slope = float(content.get("RescaleSlope", 1.0))
            intercept = float(content.get("RescaleIntercept", 0.0))
    except (
        *(OSError, AttributeError, ValueError, TypeError, KeyError, RuntimeError),
        *(NotImplementedError, struct.error, pydicom.errors.InvalidDicomError),
    ) as error:
        raise DataError(
            f"{where} is not a DICOM image that can be read here ({type(error).__name__}); "
            "convert it, or install pydicom's plug-in for its compression"
        ) from None
    if frames != 1:
        raise DataError(f"{where} has {frames} frames: give one image a file")
    if kind.startswith("MONOCHROME") and values.ndim == 2:
        return values.astype(np.float64) * slope + intercept, True, kind == "MONOCHROME1"
    if values.ndim == 3 and values.dtype == np.uint8 and kind != "PALETTE COLOR":
        return values, False, False
    raise DataError(f"{where} is a DICOM image that is neither gray nor 8-bit color: convert it")
