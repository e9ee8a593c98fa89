"""Small made files in the formats of the known sets, and a made record that describes them."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import struct
import tarfile
from pathlib import Path

import numpy as np

from simplexdp.data import readers
from simplexdp.data.registry import File, Form, Package, Record

CLASSES = 3
SHAPE = (1, 4, 5)


def images(records: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (records, *SHAPE[1:]), dtype=np.uint8)


def idx_bytes(array: np.ndarray) -> bytes:
    """The idx format, written from its published description."""
    return (
        bytes([0, 0, 8, array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + bytes(array.astype(np.uint8).tobytes())
    )


def idx_contents() -> dict[str, bytes]:
    labels = {"train": np.arange(12) % CLASSES, "t10k": np.arange(6) % CLASSES}
    return {
        "train-images-idx3-ubyte": idx_bytes(images(12, 1)),
        "train-labels-idx1-ubyte": idx_bytes(labels["train"]),
        "t10k-images-idx3-ubyte": idx_bytes(images(6, 2)),
        "t10k-labels-idx1-ubyte": idx_bytes(labels["t10k"]),
    }


def tar_bytes(members: dict[str, bytes], compression: str = "gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{compression}") as archive:
        for name, raw in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    return buffer.getvalue()


def deb_bytes(members: dict[str, bytes]) -> bytes:
    """A Debian package: an ar archive of debian-binary, control.tar.xz and data.tar.xz."""
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": lzma.compress(tar_bytes({}, "")),
        "data.tar.xz": lzma.compress(tar_bytes(members, "")),
    }
    out = b"!<arch>\n"
    for name, raw in parts.items():
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(raw):<10}`\n".encode()
        out += raw + b"\n" * (len(raw) % 2)
    return out


def gz_files() -> dict[str, bytes]:
    return {f"{n}.gz": gzip.compress(raw, mtime=0) for n, raw in idx_contents().items()}


def npm_archive() -> bytes:
    return tar_bytes({f"package/data/{n}": raw for n, raw in idx_contents().items()})


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    return folder


def made_record(base_url: str | None = None, client: str | None = None) -> Record:
    """A record for the made files: the compressed idx files, and the same as a package."""
    files = tuple(
        File(name, "md5", hashlib.md5(raw).hexdigest(), base_url and base_url + name)
        for name, raw in gz_files().items()
    )
    forms = [Form("the made idx files", files, readers.idx_gz)]
    if client is not None:
        digest = hashlib.sha256(npm_archive()).hexdigest()
        forms.append(
            Form(
                "the made package",
                (File("made-1.0.0.tgz" if client == "npm" else "made.deb", "sha256", digest),),
                readers.idx_npm,
                Package("npm" if client == "npm" else "apt", "made@1.0.0"),
            )
        )
    return Record(
        name="made",
        title="Made images",
        licence="none",
        home="",
        shape=SHAPE,
        class_names=("a", "b", "c"),
        class_counts={"train": (4, 4, 4), "test": (2, 2, 2)},
        forms=tuple(forms),
    )
