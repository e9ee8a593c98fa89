"""Tell which names of a ledger are the same records, and what was said and spent of them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from simplexdp import files, prints
from simplexdp.ledger_lines import Known
from simplexdp.ledger_page import Page
from simplexdp.tally import Tally

OVERLAP = "some of these records are also in {}, which has an account of its own"


@dataclass(frozen=True)
class Account:
    """All names of the records of a data set, and what a ledger knows of them.

    Attributes:
        names: The names, in whatever form they were given.
        tallies: The running totals of those that the ledger has lines of, in order.
    """

    names: frozenset[str]
    tallies: Mapping[str, Tally]

    @classmethod
    def of(cls, page: Page, data: str, known: Known | None = None) -> Account:
        """Return the account of a data set; `known` is what is about to be written of it."""
        keys = {name: key_of(name) for name in {*page.tallies, data}}
        every = [k for tally in page.tallies.values() for k in tally.known]
        ties = [
            (k.data, other) for k in [*every, *([known] if known else [])] for other in k.same_as
        ]
        account: set[str] = set()
        more = {data}
        while more:
            account |= more
            here = {keys[name] for name in account if name in keys}
            more = {name for name, key in keys.items() if key in here}
            more |= {b for pair in ties for a, b in (pair, pair[::-1]) if a in account}
            more -= account
        tallies = {name: tally for name, tally in page.tallies.items() if name in account}
        return cls(frozenset(account), tallies)

    @cached_property
    def total(self) -> Tally:
        """Return what all names cost together."""
        return Tally.of(self.tallies.values())

    @cached_property
    def _by_file(self) -> list[list[Tally]]:
        """Return the tallies by file: what was said last of one holds for it."""
        found: dict[str, list[Tally]] = {}
        for name, tally in self.tallies.items():
            found.setdefault(key_of(name), []).append(tally)
        return list(found.values())

    @property
    def budgets(self) -> list[tuple[float, float]]:
        """Return the budgets that hold: the latest of each file, and of copies those of all."""
        latest = [max(file, key=lambda one: one.budget_line) for file in self._by_file]
        return [tally.budget for tally in latest if tally.budget is not None]

    @property
    def covered_only(self) -> bool:
        """Return whether runs are refused whose weights nothing bounds."""
        latest = [max(file, key=lambda one: one.policy_line) for file in self._by_file]
        return any(tally.covered_only for tally in latest)


def said_of(known: Known) -> list[str]:
    """Return what is to be said of other names of the same records."""
    said = [f"{known.data} counts on one account with {name}" for name in known.same_as]
    return said + [f"{known.data}: {OVERLAP.format(name)}" for name in known.overlaps]


def known_as(page: Page, data: str, records: NDArray[Any] | None) -> Known | None:
    """Return what the records of a name are known by; None where nothing of it is new.

    A file is the same under another name where it is the same file (a hard link, a bind mount),
    where its bytes or its records are the same (a copy), or where it has the inode of one that is
    gone and nothing shows that it is another.
    """
    path = Path(data) if os.path.isabs(data) and Path(data).exists() else None
    if path is None and records is None:
        return None
    key, key_id = prints.key_of(page.path, page.key)
    mine = page.tallies.get(data, Tally()).known
    stat = () if path is None else prints.stat_of(path)
    found, sketch = [], ""
    if path is not None and path.is_file():
        before = [k for k in mine if k.stat == stat and k.key == key_id]
        unchanged = [one for k in before for one in k.prints if one.startswith("file:")]
        found.append(unchanged[-1] if unchanged else prints.of_file(path, key))
    if records is not None:
        whole, sketch = prints.of_records(records, key)
        found.append(whole)
    if any(k.key == key_id and k.stat == stat and set(found) <= set(k.prints) for k in mine):
        return None
    same, overlaps = [], []
    for name, tally in page.tallies.items():
        theirs = [k for k in tally.known if k.key == key_id]
        if key_of(name) == key_of(data):
            continue
        if _is_same_file(path, stat, name, tally.known, found) or any(
            set(found) & set(k.prints) for k in theirs
        ):
            same.append(name)
        elif sketch and any(
            prints.share_records(sketch, line.sketch)
            for line in map(page.line_at, tally.sketches)
            if isinstance(line, Known) and line.key == key_id
        ):
            overlaps.append(name)
    return Known(data, key_id, tuple(found), stat, tuple(same), tuple(overlaps), sketch)


def _is_same_file(
    path: Path | None, stat: tuple[int, ...], name: str, known: list[Known], found: list[str]
) -> bool:
    """Return whether a path is the file or folder that another name was given for."""
    if path is None or not os.path.isabs(name):
        return False
    if Path(name).exists():
        return os.path.samefile(path, name)
    kinds = {one.partition(":")[0] for one in found}
    return any(
        one.stat[:2] == stat[:2] and not kinds & {p.partition(":")[0] for p in one.prints}
        for one in known
    )


def identity(data: str) -> str:
    """Return the name that data are kept under: a known set's own, or the full path of a file.

    A folder with train/ and test/ inside goes by its train/, whose records are the ones trained on.
    """
    from simplexdp.data import names
    from simplexdp.data.own import training_folder

    return data if data in names() else str(training_folder(files.expanded(data)).resolve())


def _is_path(name: str) -> bool:
    """Return whether a name stands for a file or folder, and not for a known set or a label."""
    from simplexdp.data import names

    if not name or name in names():
        return False
    written_as_one = os.path.isabs(name) or name.startswith(("~", "." + os.sep, ".." + os.sep))
    return written_as_one or Path(name).exists()


def full_name(page: Page, data: str) -> str:
    """Return the name to keep data under: a path in full, so that its budget binds everywhere.

    A bare name with no file here, where the ledger has a path that ends so, is refused: it would
    be counted as other data.
    """
    if _is_path(data):
        return data if os.path.isabs(data) else identity(data)
    paths = [name for name in page.tallies if os.path.isabs(name)]
    alike = sorted(path for path in paths if Path(key_of(path)).name == Path(data).name)
    if alike:
        raise ValueError(
            f"there is no {data} in this folder, and the ledger has {alike[0]}; name the data by "
            "its full path"
        )
    return data


def key_of(name: str) -> str:
    """Return what all names of the same records share.

    A folder with train/ and test/ inside was once kept under its own path, and goes by its train/
    now. The path with and without train/ is one, also where the folder is gone.
    """
    return identity(name).removesuffix(os.sep + "train") if _is_path(name) else name
