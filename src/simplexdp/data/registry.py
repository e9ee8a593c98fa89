"""The data sets known by name, from registry.json: forms, checksums, counts and licences."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simplexdp.data.forms import File, Form, Package, Record

if TYPE_CHECKING:
    from simplexdp.data.dataset import Split
    from simplexdp.data.readers import Reader


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
    forms = [(_form(one), one.get("unverified")) for one in of["forms"]]
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
