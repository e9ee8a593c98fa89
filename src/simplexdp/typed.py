"""Dataclasses from JSON, each value of the type that its field declares."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
LISTS = (tuple, Sequence)
hints: Callable[[Any], dict[str, Any]] = cache(typing.get_type_hints)


def kinds(hint: Any) -> tuple[Any, ...]:
    """Return the types of a hint, without what they hold."""
    return tuple(typing.get_origin(part) or part for part in _parts(hint))


def fits(value: Any, hint: Any) -> bool:
    """Return whether a value is of a type: a whole number is a number too, yes or no is not."""
    of = kinds(hint)
    if Any in of or isinstance(value, bool | str):  # True is no number, and text no sequence
        return Any in of or type(value) in of
    return isinstance(value, (*of, int) if float in of else of)


def read(of: type[T], record: Mapping[str, Any]) -> T:
    """Return a dataclass from JSON: lists are tuples, and what it is made of is read so too.

    Raises:
        TypeError: If a field is missing, unknown or of another type.
    """
    known = hints(of)
    return of(**{name: _value(name, v, known.get(name, Any)) for name, v in record.items()})


def _value(name: str, value: Any, hint: Any) -> Any:
    wrong = TypeError(f"field {name} is of another type")
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        try:
            return read(typing.cast("type[Any]", hint), value)
        except TypeError:
            raise wrong from None
    if isinstance(value, list):
        several = [part for part, of in zip(_parts(hint), kinds(hint), strict=True) if of in LISTS]
        inner = typing.get_args(several[0]) if several else ()
        if len(inner) == 1 or inner[1:] == (...,):
            inner = inner[:1] * len(value)
        if len(inner) != len(value) or not several:
            raise wrong
        return tuple(_value(name, one, of) for one, of in zip(value, inner, strict=True))
    if not fits(value, hint):
        raise wrong
    return value


def _parts(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
