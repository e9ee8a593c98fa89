"""Plug-ins: objects that this or another installed package registers under an entry-point group.

The groups are "simplexdp.commands" (modules that add commands when imported), "simplexdp.recipes"
(functions from a recipe's name to `Settings`) and "simplexdp.models" (factories of networks).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any


def names(group: str) -> tuple[str, ...]:
    """Return the names registered under a group, sorted, without those whose module is missing."""
    return tuple(sorted(_points(group)))


def load(group: str, name: str) -> Any:
    """Return the object registered under a group by this name.

    Raises:
        KeyError: If nothing is registered by this name, or its module is missing.
    """
    return _points(group)[name].load()


def extra(module: str, name: str) -> Any:
    """Return a module that only an extra of this package installs.

    Raises:
        ValueError: If it is not installed; the message says which extra does it.
    """
    if not _is_there(module):
        package = module.partition(".")[0]
        raise ValueError(
            f'{package} is not installed; get it with: pip install "simplexdp[{name}]"'
        )
    return import_module(module)


def own(name: str, failed: str) -> Any:
    """Return the object that "package.module:OBJECT" names, which is imported.

    Raises:
        ValueError: If it cannot be; the message begins with what has `failed`.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{failed}: {error}") from error


@cache
def _points(group: str) -> dict[str, metadata.EntryPoint]:
    return {p.name: p for p in metadata.entry_points(group=group) if _is_there(p.module)}


def _is_there(module: str) -> bool:
    """Return whether a module can be found; a package may be installed without one of its rooms."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of a package around it
        return False
