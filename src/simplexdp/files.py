"""Files written whole or not at all, and locks on who may write them."""

from __future__ import annotations

import errno
import glob
import io
import json
import math
import os
import secrets
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from simplexdp import plugins

ANEW = "delete it and make it again"  # what to do with a file that a command makes
SECONDS_UNTIL_ABANDONED = 3600.0  # of a temporary file that nobody has written to


class Busy(ValueError):
    """Another process holds the lock."""


@contextmanager
def locked(path: Path, busy: str) -> Iterator[None]:
    """Hold an exclusive lock on `path`; raise `Busy` with these words at once if it is taken.

    A killed process releases it. The file goes with the lock: filelock counts no lock on a file
    that is gone from `path`, so whoever opened it before cannot hold others off.
    """
    lock = FileLock(path, blocking=False, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise Busy(busy) from error
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no open file; filelock removes it there
            path.unlink()
        lock.release()


def expanded(path: str | Path) -> Path:
    """Return the path with ~ replaced by the home folder, where one is known."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(
            f"no home folder is known for {path}; set HOME, or give the path in full"
        ) from error


def is_disk_full(error: BaseException) -> bool:
    """Return whether there is no room left, on the disk or in the person's share of it."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def cache_folder(name: str) -> Path:
    """Return a folder of the cache, which is SIMPLEXDP_CACHE or the platform's user cache."""
    import pooch  # not for those who only account

    return expanded(os.environ.get("SIMPLEXDP_CACHE") or pooch.os_cache("simplexdp")) / name


def make_cache(folder: Path, mode: int = 0o777) -> None:
    """Make a folder of the cache, or say what to do where that cannot be."""
    way_out = "set SIMPLEXDP_CACHE to a folder that you may write to"
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


def check_drawing() -> None:
    """Refuse to go on without matplotlib, before anything is computed for a picture."""
    plugins.extra("matplotlib", "report")


def figure(**options: Any) -> Any:
    """Return an empty figure of matplotlib, which the extra `report` installs."""
    return plugins.extra("matplotlib.figure", "report").Figure(**options)


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be written, before anything is computed for it."""
    check_drawing()
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise ValueError(f"the picture is written as .png, .svg or .pdf, not {path.name!r}")
    if not path.parent.is_dir():
        raise ValueError(f"there is no folder {path.parent} for the picture; make it first")


def write_atomically(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write beside the target, flush to disk and rename: a kill leaves the old file or the new.

    The mode is at most this, less what the person's umask takes away.
    """
    name = beside(path)
    try:
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        put_in_place(name, path)
    except BaseException as error:
        with suppress(OSError):
            name.unlink(missing_ok=True)
        if isinstance(error, OSError):  # by the name that was asked for
            error.filename, error.filename2 = str(path), None
        raise


def beside(path: Path) -> Path:
    """Return a fresh name beside a file or folder, for what will be renamed to it.

    What a killed writer left under such a name is removed when nobody has touched it for an hour.
    """
    remove_abandoned(path.parent, glob.escape(path.name), SECONDS_UNTIL_ABANDONED)
    return path.parent / f".{path.name}.{secrets.token_hex(8)}"


def remove_abandoned(folder: Path, name: str = "*", seconds: float = 0.0) -> None:
    """Remove the temporary files and folders that were last written to so many seconds ago."""
    for left in folder.glob(f".{name}.{'[0-9a-f]' * 16}"):
        with suppress(OSError):  # another process has just put it in place
            if time.time() - left.stat().st_mtime >= seconds:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def put_in_place(written: Path, path: Path) -> None:
    """Rename what was written and flushed to its own name, so that it outlasts a loss of power."""
    os.replace(written, path)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, where the system can; Windows opens no folder."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system without it
            raise
    finally:
        os.close(handle)


def check_ordinary(path: Path, way_out: str = "name a file") -> None:
    """Refuse what is there and is neither file nor folder: a pipe would be waited for for ever."""
    if path.exists() and not (stat.S_ISREG(mode := path.stat().st_mode) or stat.S_ISDIR(mode)):
        raise ValueError(f"{path} is a pipe, a socket or a device; {way_out}")


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Write JSON that any parser takes: no NaN, no infinity."""
    write_atomically(path, as_json(record))


def as_json(record: Mapping[str, Any]) -> bytes:
    """Return what `write_json` writes."""
    text = json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode()


def put_between(page: Path, mark: str, text: str) -> None:
    """Put a text on a page, between <!-- MARK --> and <!-- end MARK -->."""
    start, end = f"<!-- {mark} -->", f"<!-- end {mark} -->"
    whole = page.read_text("utf-8")
    if whole.count(start) != 1 or whole.count(end) != 1:
        raise ValueError(f"{page} has no markers {start} and {end}, or has them twice")
    before, rest = whole.split(start)
    write_atomically(page, f"{before}{start}\n{text}\n{end}{rest.split(end)[1]}".encode())


def finite(value: float) -> float | None:
    """Return a number as JSON can hold it, which knows no infinity."""
    return value if math.isfinite(value) else None


def read_json(path: Path, way_out: str = "") -> Any:
    """Read JSON as `write_json` writes it; a damaged file is named in the error."""
    check_ordinary(path)
    try:
        return json.loads(path.read_text("utf-8"), parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        said = f"{path} is not valid JSON; it is damaged or was edited"
        raise ValueError(said + (f", so {way_out}" if way_out else "")) from error


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not a number")


@contextmanager
def well_formed(path: Path, way_out: str = ANEW) -> Iterator[None]:
    """Make one error, which names the file, of content of an unexpected shape."""
    try:
        yield
    except RecursionError as error:
        raise ValueError(f"{path} is not as it was written (nested too deep); {way_out}") from error
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        reason = str(error) or type(error).__name__
        raise ValueError(f"{path} is not as it was written ({reason}); {way_out}") from error


def make_writable(folder: Path) -> None:
    """Make a folder, and refuse one that cannot be written to, before anything is done for it."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{folder} cannot be written to; name another folder")


def write_picture(figure: Any, path: Path, **options: Any) -> None:
    """Write a figure of matplotlib's whole or not at all, in the format of the path's ending."""
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), **options)
    write_atomically(path, content.getvalue())
