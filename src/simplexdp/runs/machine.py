"""The machine that a run is trained on, as far as numbers and times depend on it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch


def machine() -> dict[str, Any]:
    """Return what a timing or a number depends on; nothing that names a person or a host.

    Single precision rounds otherwise with other vector instructions, and a training with it.
    """
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
    }


def _processor() -> str:
    """Return the processor's model where the system tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{platform.machine()} {models[0]}" if models else platform.machine()
