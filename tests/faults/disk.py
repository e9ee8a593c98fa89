"""A disk between the code and the real one: it counts file operations, and fails or dies at one.

Every operation that Python makes in the folder passes `_gate`: opening, writing, flushing, renaming
and removing. At the k-th one the process is killed (before it, halfway through it or after it), or
the operation fails with an error of the system. After `lose_power`, the folder holds what a disk
may hold that lost everything that was not flushed: content without fsync is empty, and names
without an fsync of their folder are as they were.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BEFORE, INSIDE, AFTER = PHASES = ("before", "inside", "after")
KILLED = 77  # the exit code of a process that this disk killed
_REAL = {name: getattr(os, name) for name in (
    "open", "write", "fsync", "replace", "rename", "mkdir", "unlink", "remove", "rmdir",
    "ftruncate", "truncate", "link", "symlink",
)}  # fmt: skip
_open = io.open
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
Identity = tuple[int, int]  # number of a file, and how often that number was given away


@dataclass
class Disk:
    """What happens to the file operations in a folder.

    Attributes:
        root: The folder.
        at: The number of the operation at which something happens, from 0.
        phase: When a process is killed in it.
        error: The error with which it fails, in the place of a kill.
        count: The operations so far.
        names: What they were, for a failed test.
    """

    root: Path
    at: int | None = None
    phase: str = BEFORE
    error: int | None = None
    power: bool = False
    count: int = 0
    names: list[str] = field(default_factory=list)
    _given: dict[int, int] = field(default_factory=dict)
    _content: dict[Identity, bytes] = field(default_factory=dict)
    _folders: dict[Identity, dict[str, tuple[Identity, bool]]] = field(default_factory=dict)

    def _inside(self, path: Any) -> bool:
        if isinstance(path, int):
            try:
                path = os.readlink(f"/proc/self/fd/{path}")
            except OSError:
                return False
        return os.path.abspath(os.fspath(path)).startswith(str(self.root))

    def gate(self, name: str, path: Any, act: Callable[[], Any], half: Any = None) -> Any:
        """Make one operation, or fail, or die."""
        if not self._inside(path):
            return act()
        here = self.count
        self.count += 1
        self.names.append(f"{name} {path if isinstance(path, int) else Path(os.fspath(path)).name}")
        if here != self.at:
            return act()
        if self.error is not None:
            named = () if isinstance(path, int) else (str(path),)
            raise OSError(self.error, os.strerror(self.error), *named)
        if self.phase == AFTER:
            act()
        elif self.phase == INSIDE and half is not None:
            half()
        self._die()

    def _die(self) -> None:
        if self.power:
            self.lose_power()
        os._exit(KILLED)

    def _identity(self, stat: os.stat_result) -> Identity:
        return stat.st_ino, self._given.get(stat.st_ino, 0)

    def created(self, path: Any) -> None:
        """Note that a number may have been given to another file."""
        number = os.stat(path).st_ino
        self._given[number] = self._given.get(number, 0) + 1

    def flushed(self, handle: int) -> None:
        """Keep what a file or a folder holds now."""
        stat = os.fstat(handle)
        path = os.readlink(f"/proc/self/fd/{handle}")
        if os.path.isdir(path):
            self._folders[self._identity(stat)] = self._listed(path)
        else:
            with _open(f"/proc/self/fd/{handle}", "rb") as file:
                self._content[self._identity(stat)] = file.read()

    def _listed(self, path: str) -> dict[str, tuple[Identity, bool]]:
        with os.scandir(path) as entries:
            return {
                e.name: (self._identity(e.stat(follow_symlinks=False)), e.is_dir()) for e in entries
            }

    def remember(self) -> None:
        """Take everything that is there now as flushed."""
        for folder, _, names in os.walk(self.root):
            self._folders[self._identity(os.stat(folder))] = self._listed(folder)
            for name in names:
                path = Path(folder) / name
                if path.is_file():
                    self._content[self._identity(path.stat())] = path.read_bytes()

    def lose_power(self) -> None:
        """Put in the folder's place what the disk was told to keep."""
        kept = self.root.parent / f"{self.root.name}.kept"
        self._rebuild(self._identity(os.stat(self.root)), kept)
        shutil.rmtree(self.root)
        _REAL["rename"](kept, self.root)

    def _rebuild(self, folder: Identity, path: Path) -> None:
        _REAL["mkdir"](path)
        for name, (identity, is_folder) in self._folders.get(folder, {}).items():
            if is_folder:
                self._rebuild(identity, path / name)
            else:
                with _open(path / name, "wb") as file:
                    file.write(self._content.get(identity, b""))

    @contextmanager
    def mounted(self) -> Iterator[Disk]:
        """Let every file operation of this process in the folder pass here."""
        if self.power:
            self.remember()
        disk = self

        class Raw(io.FileIO):
            def write(self, content: Any) -> int:
                size = len(content)
                return int(
                    disk.gate(
                        "write",
                        self.fileno(),
                        lambda: io.FileIO.write(self, content),
                        lambda: io.FileIO.write(self, bytes(content)[: size // 2]),
                    )
                )

        def opened(file: Any, mode: str = "r", buffering: int = -1, encoding: Any = None,
                   errors: Any = None, newline: Any = None, closefd: bool = True,
                   opener: Any = None) -> Any:  # fmt: skip
            if not set(mode) & set("wax+") or not disk._inside(file):
                return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
            new = not isinstance(file, int) and not os.path.exists(file)

            def act() -> Raw:
                return Raw(file, mode.replace("b", "").replace("t", ""), closefd, opener)

            raw = act() if isinstance(file, int) else disk.gate("open", file, act)
            if new:
                disk.created(file)
            if buffering == 0:
                return raw
            buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw)
            if "b" in mode:
                return buffered
            return io.TextIOWrapper(buffered, encoding, errors, newline, buffering == 1)

        def os_open(path: Any, flags: int, *rest: Any, **named: Any) -> int:
            new = bool(flags & os.O_CREAT) and not os.path.exists(path)
            if not flags & WRITES:
                return int(_REAL["open"](path, flags, *rest, **named))
            handle = disk.gate("open", path, lambda: _REAL["open"](path, flags, *rest, **named))
            if new and disk._inside(path):
                disk.created(path)
            return int(handle)

        def os_write(handle: int, content: Any) -> int:
            half = bytes(content)[: len(content) // 2]
            real = _REAL["write"]
            return int(
                disk.gate(
                    "write", handle, lambda: real(handle, content), lambda: real(handle, half)
                )
            )

        def os_fsync(handle: int) -> None:
            def act() -> None:
                if disk.power and disk._inside(handle):
                    disk.flushed(handle)

            disk.gate("fsync", handle, act)  # the real disk need not be waited for

        def os_mkdir(path: Any, *rest: Any, **named: Any) -> None:
            disk.gate("mkdir", path, lambda: _REAL["mkdir"](path, *rest, **named))
            if disk._inside(path):
                disk.created(path)

        def plain(name: str) -> Callable[..., Any]:
            def call(path: Any, *rest: Any, **named: Any) -> Any:
                return disk.gate(name, path, lambda: _REAL[name](path, *rest, **named))

            return call

        patched = {name: plain(name) for name in _REAL} | {
            "open": os_open, "write": os_write, "fsync": os_fsync, "mkdir": os_mkdir,
        }  # fmt: skip
        try:
            for name, function in patched.items():
                setattr(os, name, function)
            io.open = builtins.open = opened
            yield self
        finally:
            for name, function in _REAL.items():
                setattr(os, name, function)
            io.open = builtins.open = _open


ERRORS = (errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EINTR)
