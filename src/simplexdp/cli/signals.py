"""The signals that end a command; a training in steps saves itself first."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

ENDING = ("SIGINT", "SIGTERM", "SIGHUP")
_polled = _asked = False


def install(interrupted: str) -> None:
    """Let the ending signals raise KeyboardInterrupt, or end a training that asks for them.

    One that is ignored stays so (nohup). Under torchrun they keep their meaning: a process that
    waits for the others could not answer.
    """
    if os.environ.get("WORLD_SIZE", "1") != "1":
        return
    for name in ENDING:
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _ring)
    before = sys.unraisablehook

    def unraisable(lost: Any) -> None:
        """End at once where the interruption fell into a place that cannot pass it on."""
        if lost.exc_type is KeyboardInterrupt:
            print(f"simplexdp: {interrupted}", file=sys.stderr, flush=True)
            os._exit(2)
        before(lost)

    sys.unraisablehook = unraisable


def asked() -> bool:
    """Return whether to stop; from now on the first signal waits for the next time."""
    global _polled
    _polled = True
    return _asked


def _ring(number: int, frame: FrameType | None) -> None:
    global _asked
    if not _polled or _asked:
        raise KeyboardInterrupt
    _asked = True
