"""Bind a model's weights, description and statement together, check them, and hand them out.

A model's folder has a manifest: the SHA-256 digest of every file that may be handed out, with the
version, the method's revision and the ledger's entry. A file that was damaged, swapped or edited
by hand no longer fits it, and the claim of the statement is computed anew from its event. Whoever
edits on purpose can write a new manifest too: only a signature tells who sealed it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simplexdp import __version__, files
from simplexdp.card import PAGE, REGISTRY, Card
from simplexdp.recompute import check_claim
from simplexdp.signature import MANIFEST, SIGNATURE, check_signature, sign
from simplexdp.statement import Statement, from_json

__all__ = [
    "DESCRIPTION",
    "MANIFEST",
    "MODEL",
    "PREPROCESSING",
    "SIGNATURE",
    "STATEMENT",
    "STATEMENT_TEXT",
    "Sealed",
    "card_of",
    "check_claim",
    "check_signature",
    "release",
    "seal_again",
    "sign",
    "verify",
    "write",
]

DESCRIPTION = "model.json"
PREPROCESSING = "preprocessing.json"
MODEL = "model.safetensors"
STATEMENT = "statement.json"
STATEMENT_TEXT = "statement.md"
README = "README.md"
CARDS = (README, PAGE, REGISTRY)  # made anew for every release
RUN = "run.json"  # of a run's folder, never handed out
# What a model cannot be used without; the other files of a run hold paths, seeds and accuracies on
# private records.
NEEDED = (DESCRIPTION, MODEL, STATEMENT)
# What is sealed and handed out of a run's folder, where it is there: a new file is named here.
HANDED_OUT = (*NEEDED, PREPROCESSING, STATEMENT_TEXT)
KIND, FORMAT = "simplexdp model", 1


@dataclass(frozen=True)
class Sealed:
    """A folder whose files all fit its manifest, and whose statement fits its event.

    Attributes:
        folder: The folder.
        digests: The SHA-256 digest of each sealed file.
        method: The method that trained the model.
        revision: Its revision, None where that is not known.
        version: The version that sealed it.
        ledger_entry: The id of the run's entry in its ledger, None where none counted it.
        statement: What is claimed of the weights.
        digest: The digest of the manifest, which names the whole bundle.
    """

    folder: Path
    digests: Mapping[str, str]
    method: str
    revision: int | None
    version: str
    ledger_entry: str | None
    statement: Statement
    digest: str

    def read(self, name: str) -> bytes:
        """Return a sealed file's content, which is the content that was sealed.

        Raises:
            ValueError: The file is not sealed, or was changed.
        """
        return _fitting(self.folder, name, self.digests)

    @property
    def covered(self) -> bool:
        """Return whether the bound covers the released weights in this run."""
        return self.statement.covers_weights and not self.statement.broken()


def write(
    folder: Path,
    *,
    method: str,
    revision: int | None,
    ledger_entry: str | None,
    version: str = __version__,
    to_come: Mapping[str, bytes] | None = None,
    also: tuple[str, ...] = (),
) -> None:
    """Write the manifest of a folder.

    Args:
        folder: The folder.
        method: The method's name.
        revision: Its revision.
        ledger_entry: The id of the run's entry in its ledger.
        version: The version that trained the model.
        to_come: Files that are written after the manifest; with the statement among them a run is
            finished only when its manifest is there.
        also: Files to seal beside `HANDED_OUT`.
    """
    contents = dict(to_come or {})
    digests = {}
    for name in (*HANDED_OUT, *also):
        if name in contents:
            digests[name] = _digest(contents[name])
        elif (folder / name).is_file():
            digests[name] = _digest((folder / name).read_bytes())
    record = {
        "kind": KIND,
        "format": FORMAT,
        "version": version,
        "method": method,
        "revision": revision,
        "ledger_entry": ledger_entry,
        "files": digests,
    }
    files.write_json(folder / MANIFEST, record)


def verify(folder: str | Path) -> Sealed:
    """Check a model's folder: every sealed file, and the claim against its event.

    Args:
        folder: A run's folder, or one that `release` made.

    Returns:
        What is sealed.

    Raises:
        ValueError: Something does not fit; the message names the file.
    """
    path = Path(folder)
    _check_files(path)
    if not (path / MANIFEST).is_file():
        raise ValueError(
            f"{folder} has no {MANIFEST}, so nothing binds its weights to its statement; if you "
            f"trust both, {_seal_it(path)}"
        )
    content = _content(path / MANIFEST)
    with files.well_formed(path / MANIFEST, "restore it"):
        record = json.loads(content)
        if (record["kind"], repr(record["format"])) != (KIND, repr(FORMAT)):  # True is 1
            raise ValueError("it is of another software or a newer version")
        digests = dict(record["files"])
        method, revision = record["method"], record["revision"]
        version, entry = record["version"], record["ledger_entry"]
        texts = (method, version, *digests, *digests.values())
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("not a text")
        if type(revision) not in (int, type(None)) or not isinstance(entry, str | None):
            raise TypeError("revision or ledger_entry")
        if unsafe := [name for name in digests if not _is_plain(name)]:
            raise ValueError(f"{unsafe[0]!r} is no name of a file in its folder")
        if missing := [name for name in NEEDED if name not in digests]:
            raise ValueError(f"it does not name {missing[0]}")
    for name in digests:
        _fitting(path, name, digests)
    statement = _statement(path / STATEMENT, _fitting(path, STATEMENT, digests))
    description = _fitting(path, DESCRIPTION, digests)
    with files.well_formed(path / DESCRIPTION, "restore it"):
        if json.loads(description)["method"] != method:
            raise ValueError(f"its method is not the {method} of {MANIFEST}")
    return Sealed(path, digests, method, revision, version, entry, statement, _digest(content))


def seal_again(folder: str | Path) -> Sealed:
    """Seal a folder as it is now: one of an earlier version, or one that its owner changed.

    The claim must fit its event all the same.

    Args:
        folder: The model's folder.

    Returns:
        What is sealed.

    Raises:
        ValueError: The folder holds no finished model, or a claim that does not fit its event.
    """
    path = Path(folder)
    _check_files(path)
    _statement(path / STATEMENT, _content(path / STATEMENT))
    known: dict[str, Any] = {}
    for name in (DESCRIPTION, RUN, MANIFEST):  # what the later ones know of the run stays known
        if name in NEEDED or (path / name).is_file():
            content = _content(path / name)
            with files.well_formed(path / name, "restore it"):
                known |= json.loads(content)
    also = tuple(n for n in known.get("files", ()) if n not in HANDED_OUT and _is_plain(n))
    write(
        path,
        method=str(known["method"]),
        revision=known.get("revision"),
        ledger_entry=known.get("ledger_entry"),
        version=str(known.get("version", __version__)),
        also=also,
    )
    return verify(path)


def release(
    run: str | Path,
    to: str | Path,
    *,
    although_not_covered: bool = False,
    sign_with: Path | None = None,
    with_metrics: bool = False,
    licence: str = "unknown",
    intended_use: str | None = None,
    curators: Sequence[str] = (),
) -> Sealed:
    """Copy what may be handed out of a finished run, and nothing else, into a new folder.

    An audit's numbers, which no bound covers, are left out of the statement.

    Args:
        run: The run's folder, or another bundle.
        to: The new folder.
        although_not_covered: Whether to release weights that no bound covers; the bundle's first
            line then says so.
        sign_with: A key of ssh-keygen's to sign the manifest with.
        with_metrics: Whether its card tells accuracy and recalls, which no bound covers.
        licence: The licence that the card names.
        intended_use: What the card says that the model is for.
        curators: Who holds the data, as the card says.

    Returns:
        The bundle.

    Raises:
        ValueError: The run does not fit its seal, or nothing covers its weights.

    Example:
        >>> from simplexdp import seal
        >>> seal.release("runs/digits-1", "to-publish")  # doctest: +SKIP
    """
    source, target = verify(run), Path(to)
    if not source.covered and not although_not_covered:
        raise ValueError(
            f"no bound covers the weights in {run} (see its {STATEMENT_TEXT}); keep them, or "
            "release them with --although-not-covered"
        )
    if target.exists():
        raise ValueError(f"{target} exists; name a new folder with --to")
    contents = {n: source.read(n) for n in source.digests if n not in CARDS}
    statement = source.statement.without_audit()
    if statement != source.statement:
        contents[STATEMENT] = files.as_json(statement.to_json())
        contents[STATEMENT_TEXT] = statement.to_markdown().encode()
    told = dataclasses.replace(
        card_of(dataclasses.replace(source, statement=statement), target.name, with_metrics),
        licence=licence,
        intended_use=intended_use,
        curators=tuple(curators),
    )
    contents[README] = told.markdown().encode()
    contents[PAGE] = told.page().encode()
    contents[REGISTRY] = told.registry().encode()
    target.parent.mkdir(parents=True, exist_ok=True)
    building = target.parent / f".{target.name}.{secrets.token_hex(4)}"
    building.mkdir()
    try:
        for name, content in contents.items():
            files.write_atomically(building / name, content)
        write(
            building,
            method=source.method,
            revision=source.revision,
            ledger_entry=source.ledger_entry,
            version=source.version,
            also=tuple(name for name in contents if name not in HANDED_OUT),
        )
        if sign_with is not None:
            sign(building, sign_with)
        os.rename(building, target)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    return verify(target)


def card_of(sealed: Sealed, name: str, metrics: bool = False) -> Card:
    """Return the card of a sealed model; `metrics` tells what its run measured.

    Raises:
        ValueError: Metrics are asked for, and the run's own folder is not there.
    """
    recipe = sealed.read(PREPROCESSING) if PREPROCESSING in sealed.digests else b"null"
    with files.well_formed(sealed.folder / DESCRIPTION, "restore it"):
        description = json.loads(sealed.read(DESCRIPTION))
        outcome = None
        if metrics:
            outcome = json.loads(_content(sealed.folder / RUN, "name the run itself"))["outcome"]
        return Card(
            name=name,
            method=sealed.method,
            covered=sealed.covered,
            statement=sealed.statement,
            class_names=description["class_names"],
            preprocessing=json.loads(recipe),
            metrics=outcome,
        )


def _statement(path: Path, content: bytes) -> Statement:
    """Return the statement, whose claim fits its event; refuse another one."""
    with files.well_formed(path, "restore it"):
        statement = from_json(json.loads(content))
        check_claim(statement)
    return statement


def _check_files(folder: Path) -> None:
    """Refuse a folder without what a model cannot be used without."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}; give one of a run or of a released model")
    if missing := [name for name in NEEDED if not (folder / name).is_file()]:
        raise ValueError(
            f"{folder} has no {missing[0]}, so it holds no finished model; an unfinished run goes "
            f"on with --resume --out {folder}"
        )


def _seal_it(folder: Path) -> str:
    return f"seal them with: simplexdp verify --seal {folder}"


def _content(path: Path, way_out: str = "restore it") -> bytes:
    """Return the content of a regular file; others could block for ever."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError(f"{path} is no regular file; {way_out}")
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ValueError(f"{path} is missing; {way_out}") from error


def _fitting(folder: Path, name: str, digests: Mapping[str, str]) -> bytes:
    """Return a file's content; refuse one that is not as it was sealed."""
    if name not in digests:
        raise ValueError(f"{folder / MANIFEST} does not name {name}, so it is not read; seal it")
    content = _content(folder / name)
    if _digest(content) != digests[name]:
        raise ValueError(
            f"{folder / name} is not the file that {MANIFEST} names; restore both, or if the "
            f"change is yours, {_seal_it(folder)}"
        )
    return content


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _is_plain(name: Any) -> bool:
    """Return whether a name stays in its folder, on every system."""
    return (
        isinstance(name, str)
        and name not in ("", ".", "..", MANIFEST, SIGNATURE)
        and not any(mark in name for mark in "/\\:\0")
        and name.isprintable()
    )
