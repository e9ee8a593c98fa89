"""Training methods: one object a method, found by its name.

>>> from simplexdp import methods
>>> methods.lookup("certified").title
'certified linear'
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from typing import TYPE_CHECKING, Any

from simplexdp import plugins

if TYPE_CHECKING:
    from simplexdp.methods._run import Outcome, prepare, run, summary, train
    from simplexdp.methods.base import Method, Prepared

DEFAULT = "dirichlet"  # trained where no method is named: the paper's
TO_RELEASE = "certified"  # what people are told to use for models that they hand out
_HOMES = {
    "Method": "base",
    "Outcome": "_run",
    "Prepared": "base",
    "prepare": "_run",
    "run": "_run",
    "summary": "_run",
    "train": "_run",
}
__all__ = [
    "DEFAULT",
    "Method",
    "Outcome",
    "Prepared",
    "lookup",
    "names",
    "prepare",
    "run",
    "summary",
    "train",
]


@cache
def names() -> tuple[str, ...]:
    """Return the names of the built-in methods: each is a module beside this one."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(n.replace("_", "-") for n in found if n != "base" and not n.startswith("_"))


def lookup(name: str) -> Method:
    """Return the method of this name.

    Args:
        name: A built-in method's name, or "package.module:OBJECT" for one of your own, which is
            imported.

    Raises:
        ValueError: If there is no such method, or the object is not one.
    """
    home = f"{__name__}.{name.replace('-', '_')}:METHOD" if name in names() else name
    if ":" not in home:
        raise ValueError(
            f"unknown method {name!r}; use one of {', '.join(names())}, "
            "or your own package.module:OBJECT"
        )
    found = plugins.own(home, f"the method {name!r} cannot be imported")
    from simplexdp.methods.base import Method

    if not isinstance(found, Method):
        raise ValueError(f"{name!r} is no method; give an instance of simplexdp.methods.Method")
    return found


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
