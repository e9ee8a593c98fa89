"""Make the constants of the patch features anew: `python -m simplexdp.features FOLDER`."""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path

from safetensors.torch import save_file

from simplexdp.features import patches


def main() -> None:
    """Write a file for each kind and print its checksum, which `patches.KINDS` must hold."""
    parser = argparse.ArgumentParser(prog="python -m simplexdp.features", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=tuple(patches.KINDS))
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name in (asked.only,) if asked.only else patches.KINDS:
        path = asked.folder / f"{name}.safetensors"
        save_file(patches.make(name), path)
        print(name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest(), flush=True)


if __name__ == "__main__":
    main()
