"""Time a certified fit and measure its memory, with rows in memory and streamed from a file.

    python benchmarks/certified_memory.py

Writes results/benchmarks/certified_memory.json. The rows are noise, mapped from disk as cached
features are. Each way runs in a process of its own. "own" is memory that the process has to itself;
pages of the mapped features come on top, which the system takes back when it needs them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

CLASSES, EPSILON, DELTA = 10, 1.0, 1e-7
OUT = Path(__file__).parent.parent / "results" / "benchmarks" / "certified_memory.json"


def own_mebibytes() -> float:
    """Return the anonymous memory of this process, which no other shares and no file backs."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    raise OSError("this system does not tell the anonymous memory of a process")


def fit(path: Path, mebibytes: int, steps: int) -> dict[str, object]:
    """Fit once; return seconds, peak of own memory beyond that before, and the weights' digest."""
    import torch

    from simplexdp import features, linear, noise

    torch.set_num_threads(1)
    rows = np.load(path, mmap_mode="r")
    labels = np.random.default_rng(1).integers(0, CLASSES, len(rows))
    shape = (rows.shape[1], 1)
    rule, cost = linear.planned(
        len(rows), EPSILON, DELTA, shape, steps=steps, moment_share=0.0, mean_share=0.02
    )
    before, peak, done = own_mebibytes(), [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], own_mebibytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    began, used = time.monotonic(), time.process_time()
    fitted = linear.fit(
        rows,
        labels,
        CLASSES,
        shape,
        rule,
        cost,
        noise.seeded_bits(np.random.default_rng(2)),
        store=lambda *size: features.room(size, mebibytes),
    )
    seconds, processor = time.monotonic() - began, time.process_time() - used
    done.set()
    watcher.join()
    return {
        "mebibytes_allowed_for_rows": mebibytes,
        "seconds": round(seconds, 1),
        "processor_seconds": round(processor, 1),
        "own_mebibytes_at_peak": round(peak[0] - before, 1),
        "weights": hashlib.sha256(fitted.weights.tobytes()).hexdigest()[:16],
    }


def main() -> None:
    """Make the rows, fit in both ways, and write what was measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, nargs="+", default=[75_000, 300_000])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", nargs=2, metavar=("FILE", "MEBIBYTES"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        print(json.dumps(fit(Path(given.only[0]), int(given.only[1]), given.steps)))
        return
    found = []
    for records in given.records:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "rows.npy"
            rows = np.lib.format.open_memmap(
                path, "w+", dtype=np.float32, shape=(records, given.width)
            )
            rng = np.random.default_rng(0)
            for first in range(0, records, 8192):
                part = rows[first : first + 8192]
                part[:] = rng.standard_normal(part.shape, dtype=np.float32) / given.width**0.5
            rows.flush()
            del rows
            ways = []
            for mebibytes in (2**20, 64):
                command = [sys.executable, __file__, "--steps", str(given.steps)]
                done = subprocess.run(
                    [*command, "--only", str(path), str(mebibytes)],
                    env={**os.environ, "SIMPLEXDP_CACHE": folder},
                    check=True,
                    capture_output=True,
                    text=True,
                )
                ways.append(json.loads(done.stdout))
        if ways[0]["weights"] != ways[1]["weights"]:
            raise SystemExit("the streamed weights are not those of memory")
        found.append(
            {
                "records": records,
                "width": given.width,
                "steps": given.steps,
                "in_memory": ways[0],
                "streamed": ways[1],
            }
        )
        print(json.dumps(found[-1], indent=2))
    OUT.write_text(json.dumps({"fits": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
