"""What JSON holds is of the types that are declared, or is refused by the name of its field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from simplexdp import typed


@dataclass(frozen=True)
class Part:
    name: str
    ends: tuple[float, float] | None = None


@dataclass(frozen=True)
class Whole:
    yes: bool
    share: float
    sides: tuple[int, ...]
    parts: Sequence[Part] = ()
    more: Mapping[str, Any] | None = None
    anything: Any = None


GOOD = {"yes": True, "share": 1, "sides": [2, 3]}


def test_lists_are_tuples_and_parts_are_made():
    record = {**GOOD, "parts": [{"name": "a", "ends": [0.5, 2]}], "more": {"x": []}}
    found = typed.read(Whole, record)
    assert found == Whole(True, 1, (2, 3), (Part("a", (0.5, 2)),), {"x": []})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("yes", v) for v in (1, 0, "yes", None, [])),
        *(("share", v) for v in (True, "1", None, [1.0])),
        *(("sides", v) for v in (2, [True], [2.0], ["2"], "23", {}, None, [[2]])),
        *(("parts", v) for v in ([5], [{}], [{"name": 5}], {"name": "a"}, [{"surplus": 1}])),
        ("parts", [{"name": "a", "ends": [0.5]}]),
        *(("more", v) for v in ([], "x", 1)),
    ],
)
def test_another_type_is_refused(name, value):
    with pytest.raises(TypeError, match=f"field {name} is of another type"):
        typed.read(Whole, {**GOOD, name: value})


@pytest.mark.parametrize("record", [{}, {**GOOD, "surplus": 1}])
def test_a_missing_and_an_unknown_field_are_refused(record):
    with pytest.raises(TypeError, match=r"yes|surplus"):
        typed.read(Whole, record)
