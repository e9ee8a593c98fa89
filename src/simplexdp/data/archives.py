"""Checksums of files, and members of tar and deb archives read in memory.

Nothing is unpacked to disk, so a hostile member name has nowhere to go.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from simplexdp.data.dataset import DataError

_CHUNK = 1 << 20
_AR_MAGIC = b"!<arch>\n"
_AR_HEADER = 60


def digests(path: Path) -> dict[str, str]:
    """Return the md5 and sha256 of a file, in one pass."""
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            md5.update(chunk)
            sha256.update(chunk)
    return {"md5": md5.hexdigest(), "sha256": sha256.hexdigest()}


def gunzip(raw: bytes, name: str) -> bytes:
    """Return the contents of a gzip file, or refuse it by name."""
    try:
        return gzip.decompress(raw)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} is not a complete gzip file: {error}") from error


def tar_members(data: Path | bytes, names: Iterable[str], label: str) -> dict[str, bytes]:
    """Return the named regular members of a tar archive of any compression."""
    wanted = set(names)
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(
            name=data if isinstance(data, Path) else None,
            fileobj=io.BytesIO(data) if isinstance(data, bytes) else None,
        ) as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if name in wanted and (stream := archive.extractfile(member)) is not None:
                    found[name] = stream.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{label} is not a complete tar archive: {error}") from error
    if missing := sorted(wanted - set(found)):
        raise DataError(f"{label} lacks {', '.join(missing)}: not the archive that was expected")
    return found


def deb_members(path: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Return the named files of a Debian package: an ar archive that holds data.tar.*."""
    raw = path.read_bytes()
    if not raw.startswith(_AR_MAGIC):
        raise DataError(f"{path.name} is not a Debian package")
    position = len(_AR_MAGIC)
    while position + _AR_HEADER <= len(raw):
        header = raw[position : position + _AR_HEADER]
        name = header[:16].decode("ascii", "replace").strip().rstrip("/")
        try:
            size = int(header[48:58])
        except ValueError as error:
            raise DataError(f"{path.name} has a damaged ar header") from error
        body = raw[position + _AR_HEADER : position + _AR_HEADER + size]
        if len(body) != size:
            raise DataError(f"{path.name} is truncated within {name}")
        if name.startswith("data.tar"):
            return tar_members(body, names, path.name)
        position += _AR_HEADER + size + size % 2
    raise DataError(f"{path.name} holds no data.tar: truncated or not a Debian package")
