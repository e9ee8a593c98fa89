"""Keep the memory that a training step frees, so that the next one need not ask for it anew."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, MMAP_MAX = -1, -4  # of malloc.h
NEVER = 2**31 - 1
KEPT, USUAL = ((MMAP_MAX, 0), (TRIM_THRESHOLD, NEVER)), ((MMAP_MAX, 65536), (TRIM_THRESHOLD, 2**27))


@contextmanager
def kept() -> Iterator[None]:
    """Let glibc keep what is freed meanwhile, and give it back to the system at the end.

    By itself it gives large blocks back at once, and every step faults them in again page by page.
    Nothing is changed with other C libraries, nor where the environment says how malloc behaves.
    """
    if sys.platform != "linux" or any(
        name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ
    ):
        yield
        return
    libc = ctypes.CDLL(None)
    if not (hasattr(libc, "mallopt") and hasattr(libc, "gnu_get_libc_version")):
        yield
        return
    for option, value in KEPT:
        libc.mallopt(option, value)
    try:
        yield
    finally:
        for option, value in USUAL:
            libc.mallopt(option, value)
        libc.malloc_trim(0)
