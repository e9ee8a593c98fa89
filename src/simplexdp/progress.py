"""Progress bars on standard error, and nothing on standard output."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from simplexdp.rounding import rounded_up

if TYPE_CHECKING:
    from rich.progress import Progress

COMMANDS = ("Cc", "Cf", "Cs", "Zl", "Zp")  # controls, formats, halves of pairs, separators


def warn(message: str) -> None:
    """Print one line on standard error; standard output belongs to results."""
    print(f"simplexdp: {printable(message)}", file=sys.stderr)


def printable(text: str) -> str:
    r"""Return text without what would command a terminal or turn around what it shows.

    >>> printable("a\x1b[2Jb\n")
    'a\\x1b[2Jb\n'
    """
    return "".join(
        c if c in "\n\t" or unicodedata.category(c) not in COMMANDS else ascii(c)[1:-1]
        for c in text
    )


class StepBar:
    """A bar over steps with loss, accuracy and the ε spent so far."""

    def __init__(self, bar: Progress | None, total: int, done: int) -> None:
        self._bar = bar
        self._done = done
        self._epsilon = ""
        self._task = bar.add_task("training", total=total, completed=done) if bar else None

    def advance(
        self,
        losses: Collection[float],
        accuracy: float | None,
        epsilon_spent: Callable[[int], float | None] | None,
    ) -> None:
        """Count a step; ε is asked for anew only where a function for it is passed."""
        self._done += 1
        if self._bar is None or self._task is None:
            return
        if epsilon_spent is not None:
            spent = epsilon_spent(self._done)
            self._epsilon = "" if spent is None else f"  ε spent {rounded_up(spent)}"
        loss = f"  loss {sum(losses) / len(losses):.3f}" if losses else ""
        shown = "" if accuracy is None else f"  test accuracy {100 * accuracy:.2f} %"
        self._bar.update(
            self._task,
            completed=self._done,
            description=f"step {self._done}{loss}{shown}{self._epsilon}",
        )


@contextmanager
def steps(total: int, done: int, show: bool) -> Iterator[StepBar]:
    """Show a bar over the steps of one training."""
    if not show:
        yield StepBar(None, total, done)
        return
    with bars() as bar:
        yield StepBar(bar, total, done)


def bars(show: bool = True) -> Progress:
    """Return a progress bar of the one style."""
    from rich.console import Console  # not for those who show none
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        refresh_per_second=4,
        disable=not show,
    )
