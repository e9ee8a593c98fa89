"""Provide what a line of a ledger says: a run, a budget, a policy, or other names of records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simplexdp import typed
from simplexdp.accounting.inputs import check_delta, check_epsilon
from simplexdp.accounting.totals import BROKEN

if TYPE_CHECKING:
    from dp_accounting import DpEvent

WEIGHTS, DRAWS, NOTHING = COVERS = ("weights", "draws", "nothing")
RECORD, PERSON = UNITS = ("record", "person")


@dataclass(frozen=True)
class Entry:
    """One reservation: a run, its event, what that covers, and the marks of what the run breaks."""

    id: str
    time: float
    data: str
    method: str
    run: str
    covers: str
    event: DpEvent
    run_id: str | None = None
    broken: tuple[str, ...] = ()
    unit: str = RECORD


@dataclass(frozen=True)
class Budget:
    """A budget that was set for a data set."""

    data: str
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Policy:
    """Whether runs on a data set are refused whose weights nothing bounds."""

    data: str
    covered_only: bool


@dataclass(frozen=True)
class Known:
    """What the records of a data set are known by, beside its name.

    Attributes:
        data: The name.
        key: The id of the secret that the prints are keyed with.
        prints: Keyed digests of the file's bytes and of its records in any order.
        stat: Device, inode, size and time of change of the file or folder.
        same_as: Names that the same records have.
        overlaps: Names of other accounts that some of the records are in.
        sketch: The smallest of the records' own keyed digests, in base 64.
    """

    data: str
    key: str
    prints: tuple[str, ...] = ()
    stat: tuple[int, ...] = ()
    same_as: tuple[str, ...] = ()
    overlaps: tuple[str, ...] = ()
    sketch: str = ""


Line = Entry | Budget | Policy | Known


def parse(line: bytes) -> Any:
    """Return the JSON of a line; None if it is none, as no part of a JSON object is."""
    try:
        return json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
    except (ValueError, RecursionError):  # JSON, but of too many digits or too deep
        return False


def is_mark(record: Any) -> bool:
    """Return whether a line says that the one before it was torn."""
    return isinstance(record, dict) and record.get("kind") == "torn"


def meaning(record: Any) -> Line | None:
    """Return what a line says, in today's form; refuse a line that says less or something else."""
    match record:
        case {"kind": "torn"}:
            return None
        case {"kind": "accepted", "faults": list(), "key": str(), "time": float()}:
            return None
        case {"kind": "budget", "data": str(data), "epsilon": epsilon, "delta": delta}:
            check_epsilon(epsilon)  # NaN would admit every run
            check_delta(delta)
            return Budget(data, epsilon, delta)
        case {"kind": "policy", "data": str(data), "covered_only": bool(covered_only)}:
            return Policy(data, covered_only)
        case {"kind": "known", "data": str(), "key": str()}:
            rest = {k: v for k, v in record.items() if k not in ("kind", "time", "prev")}
            return known_from(rest)
        case {"kind": "reserve", "data": str(data), "covers": str(covers), "event": dict(event)}:
            from simplexdp.accounting.events import from_json

            # Version 0.1.0 kept the marks in the event.
            broken = (*record.get("broken", ()), *event.get("broken", ()))
            unit = record.get("unit", RECORD)
            if covers not in COVERS or not set(broken) <= set(BROKEN) or unit not in UNITS:
                raise ValueError("unknown coverage, mark or unit")
            names = ("id", "time", "data", "method", "run", "covers")
            return Entry(
                **{name: record[name] for name in names},
                event=from_json(event),
                run_id=record.get("run_id"),
                broken=broken,
                unit=unit,
            )
    raise ValueError("unknown kind of line")


def known_from(record: Mapping[str, Any]) -> Known:
    """Return the `Known` of a JSON record; refuse one of another form."""
    return typed.read(Known, record)
