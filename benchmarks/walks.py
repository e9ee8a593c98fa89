"""From files of one's own to a released model and back: commands, seconds and words of three walks.

    python benchmarks/walks.py [--records 5000] [WALK …]

The walks are `digits` (MNIST as PNG in folders of classes and persons, who are made up by rule),
`table` (breast cancer with missing values) and `slices` (CT that ships with pydicom, cut into
squares). What was counted goes to results/benchmarks/walks.json.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from simplexdp import data
from simplexdp.runs import machine

RESULTS = Path(__file__).parent.parent / "results/benchmarks/walks.json"
PER_PERSON = 10
MISSING = 0.05  # of the values
SIDE = 32  # of a square of CT
Said = tuple[str, str]
Command = Callable[..., Said]


@dataclass
class Walk:
    """A walk in a folder: what is given to people, and what they type."""

    folder: Path
    command: Command
    commands: list[str] = field(default_factory=list)
    words: int = 0
    seconds: float = 0.0

    def type(self, *words: str) -> None:
        """Run `simplexdp WORDS` and count what it says."""
        began = time.monotonic()
        out, err = self.command(*words)
        self.seconds += time.monotonic() - began
        self.commands.append("simplexdp " + " ".join(words))
        self.words += len(out.split()) + len(err.split())

    def train_and_use(self, path: str, *options: str) -> None:
        """Train, release, check and use a model, in four commands."""
        self.type("train", "--data", path, *options, "--method", "certified", "--epsilon", "2",
                  "--out", "run", "--quiet")  # fmt: skip
        self.type("release", "run", "--to", "given")
        self.type("verify", "given")
        self.type("predict", "given", "new" if (self.folder / "new").is_dir() else "new.csv")

    def predicted(self) -> list[str]:
        """Return the classes in predictions.csv."""
        text = (self.folder / "predictions.csv").read_text("utf-8")
        return [row["class"] for row in csv.DictReader(text.splitlines())]


def digits(walk: Walk, records: int) -> list[str]:
    """Walk with MNIST's training images as PNG; the first test images are new."""
    mnist = data.load("mnist")
    seen = [0] * 10
    for image, label in zip(mnist.train.inputs[:records], mnist.train.labels, strict=False):
        person = (
            walk.folder / "pictures" / str(label) / f"person-{seen[label] // PER_PERSON}-{label}"
        )
        person.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.array(image[0])).save(person / f"{seen[label]:05}.png")
        seen[label] += 1
    (walk.folder / "new").mkdir()
    for k, image in enumerate(mnist.test.inputs[: records // 10]):
        Image.fromarray(np.array(image[0])).save(walk.folder / "new" / f"{k:05}.png")
    walk.train_and_use("pictures", "--image-size", "28x28x1")
    return [str(label) for label in mnist.test.labels[: records // 10]]


def table(walk: Walk, records: int) -> list[str]:
    """Walk with the breast cancer table, of which values are missing by a seeded rule."""
    from sklearn.datasets import load_breast_cancer

    cancer = load_breast_cancer()
    names = [str(n).removeprefix("mean ").replace(" ", "_") for n in cancer.feature_names[:10]]
    # What a cell nucleus can measure is known from the field.
    tops = (30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1)
    rng = np.random.default_rng(0)
    gone = rng.random((569, 10)) < MISSING
    order = rng.permutation(569)[: min(records, 569)]
    held = len(order) // 5
    truth = [str(cancer.target_names[k]) for k in cancer.target[order]]
    for path, rows in (("new.csv", order[:held]), ("cancer.csv", order[held:])):
        with (walk.folder / path).open("w", newline="", encoding="utf-8") as handle:
            writer = csv.writer(handle)
            writer.writerow([*names, "diagnosis"][: 10 if path == "new.csv" else 11])
            for k in rows:
                values = [
                    "" if no else v for v, no in zip(cancer.data[k, :10], gone[k], strict=True)
                ]
                label = [] if path == "new.csv" else [str(cancer.target_names[cancer.target[k]])]
                writer.writerow([*values, *label])
    bounds = ",".join(f"{name}=0:{top}" for name, top in zip(names, tops, strict=True))
    walk.train_and_use("cancer.csv", "--label", "diagnosis", "--bounds", bounds,
                       "--missing", "indicator")  # fmt: skip
    return truth[:held]


def slices(walk: Walk, records: int) -> list[str]:
    """Walk with squares of a CT slice in DICOM: is it of the upper or the lower half?"""
    import pydicom

    path = Path(pydicom.__file__).parent / "data/test_files/CT_small.dcm"
    whole = pydicom.dcmread(path)
    pixels = whole.pixel_array
    rng = np.random.default_rng(0)
    truth = []
    for k in range(min(records, 400)):
        half = k % 2
        row = int(rng.integers(0, 16)) + half * (128 - SIDE - 16)
        column = int(rng.integers(0, 128 - SIDE))
        square = np.ascontiguousarray(pixels[row : row + SIDE, column : column + SIDE])
        whole.Rows = whole.Columns = SIDE
        whole.PixelData = square.tobytes()
        name = ("upper", "lower")[half]
        new = k % 5 == 4
        folder = walk.folder / ("new" if new else f"ct/{name}")
        folder.mkdir(parents=True, exist_ok=True)
        whole.save_as(folder / f"{k:04}.dcm")
        truth += [name] if new else []
    walk.train_and_use("ct", "--image-size", f"{SIDE}x{SIDE}x1", "--window", "-160:240")
    return truth


WALKS = {"digits": digits, "table": table, "slices": slices}


def measure(name: str, folder: Path, command: Command, records: int) -> dict[str, Any]:
    """Return what a walk took, and how many of its new records were classified correctly."""
    walk = Walk(folder, command)
    truth = WALKS[name](walk, records)
    found = walk.predicted()
    right = sum(a == b for a, b in zip(found, truth, strict=True))
    return {
        "walk": name,
        "commands": walk.commands,
        "words": walk.words,
        "seconds": round(walk.seconds, 1),
        "new_records": len(truth),
        "accuracy_on_new": right / len(truth),
    }


def in_a_process(folder: Path) -> Command:
    """Return a command line as people have it."""

    def call(*words: str) -> Said:
        done = subprocess.run(
            [sys.executable, "-m", "simplexdp", *words],
            cwd=folder,
            env={**os.environ, "SIMPLEXDP_LEDGER": str(folder / "ledger.jsonl")},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(done.stderr)
        return done.stdout, done.stderr

    return call


def main() -> None:
    """Make the walks, print what each took, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("walks", nargs="*", default=list(WALKS))
    parser.add_argument("--records", type=int, default=5000)
    given = parser.parse_args()
    rows = []
    for name in given.walks:
        with tempfile.TemporaryDirectory() as folder:
            row = measure(name, Path(folder), in_a_process(Path(folder)), given.records)
        print(f"{name}: {len(row['commands'])} commands, {row['seconds']} s, {row['words']} words, "
              f"{100 * row['accuracy_on_new']:.1f} % of {row['new_records']} new")  # fmt: skip
        rows.append(row)
    record = {
        "records": given.records,
        "machine": machine(),
        "load": [round(one, 1) for one in os.getloadavg()],
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "walks": rows,
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
