"""How does a file get to disk whole or not at all?"""

from __future__ import annotations

import errno
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def is_disk_full(error: BaseException) -> bool:
    """Whether there is no room left, on the disk or in the person's share of it."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def make_cache(folder: Path, mode: int = 0o777) -> None:
    """Make a folder of the cache, or say what to do where that cannot be."""
    way_out = "set SIMPLEXDP_CACHE, or give another cache folder, that you may write to"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=mode)
    except OSError as error:
        if is_disk_full(error):
            raise
        raise ValueError(
            f"the cache folder {folder} cannot be made ({error.strerror}); {way_out}"
        ) from error
    if not os.access(folder, os.W_OK):
        raise ValueError(f"the cache folder {folder} cannot be written to; {way_out}")


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write beside the target, flush to disk and rename: a kill leaves the old file or the new.

    The mode is at most this, less what the person's umask takes away.
    """
    name = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write JSON that any parser takes: no NaN, no infinity."""
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(path, (text + "\n").encode())


def read_json(path: Path) -> Any:
    """Read JSON; a damaged file is named in the error."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON; it is damaged or was edited") from error
