"""What three people do with the installed wheel: commands, seconds and words of their walks.

    python benchmarks/walks.py [--records 5000] [WALK …]

An engineer has files with labels and must release a classifier: `digits` (MNIST as PNG in folders
of classes and persons, who are made up by rule), `table` (breast cancer with missing values) and
`slices` (CT that ships with pydicom, cut into squares). A `researcher` has a loop of her own. An
`officer` is given a model and reads its statement. The package comes from a wheel, in a fresh
environment that borrows this one's libraries. Counts go to results/benchmarks/walks.json.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from simplexdp import data
from simplexdp.runs import machine

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "results/benchmarks/walks.json"
BORROWED = ("numpy", "torch", "pydicom")  # beside which all others are installed
PER_PERSON = 10
MISSING = 0.05  # of the values
SIDE = 32  # of a square of CT
Said = tuple[str, str]
Command = Callable[..., Said]
LOOP = """
import csv
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import cross_entropy

import simplexdp
from simplexdp.ledger import Ledger, default_path

mine = np.load("mine.npz")
inputs, labels = torch.from_numpy(mine["X"]).flatten(1) / 255, torch.from_numpy(mine["y"])
model = torch.nn.Linear(784, 10)
plan = simplexdp.DPSGDPlan(
    epsilon=2.0, delta=1e-5, records=len(labels), batch_size=len(labels) // 10, epochs=3
)
Ledger(default_path()).reserve("mine", "dpsgd", plan.event(), "my loop", "weights")
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for batch in plan.batches((inputs, labels)):
    plan.gradient(model, batch, lambda model, one: cross_entropy(model(one[0]), one[1]))
    optimizer.step()
Path("statement.md").write_text(plan.statement().to_markdown())
print(plan.statement().headline())
found = model(torch.from_numpy(mine["new"]).flatten(1) / 255).argmax(1)
with open("predictions.csv", "w", newline="") as file:
    csv.writer(file).writerows([["class"], *([int(k)] for k in found)])
"""
# Takes commands as lines of JSON; what a person types is typed in one process, for tests.
TYPIST = """
import contextlib, io, json, os, runpy, sys
from simplexdp import cli
cli.signals.install = lambda _: None
for line in sys.stdin:
    folder, words = json.loads(line)
    os.chdir(folder)
    sys.argv, code, out, err = words, 0, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(words[1]) if words[0] == "python" else cli.main()
        except SystemExit as stop:
            code = stop.code
    print(json.dumps([code or 0, out.getvalue(), err.getvalue()]), flush=True)
"""


@dataclass
class Walk:
    """A walk in a folder: what is given to people, and what they type."""

    folder: Path
    command: Command
    commands: list[str] = field(default_factory=list)
    words: int = 0
    seconds: float = 0.0

    def type(self, *words: str, program: str = "simplexdp") -> None:
        """Run `simplexdp WORDS` and count what it says."""
        began = time.monotonic()
        out, err = self.command(program, *words)
        self.seconds += time.monotonic() - began
        self.commands.append(" ".join((program, *words)))
        self.words += len(out.split()) + len(err.split())

    def train_and_use(self, path: str, *options: str) -> None:
        """Train, release, check and use a model, in four commands."""
        self.type("train", "--data", path, *options, "--method", "certified", "--epsilon", "2",
                  "--out", "run", "--quiet")  # fmt: skip
        self.type("release", "run", "--to", "given")
        self.type("verify", "given")
        self.type("predict", "given", "new" if (self.folder / "new").is_dir() else "new.csv")

    def predicted(self) -> list[str]:
        """Return the classes in predictions.csv, if there are any."""
        if not (self.folder / "predictions.csv").exists():
            return []
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


def researcher(walk: Walk, records: int) -> list[str]:
    """Walk with MNIST as arrays and a training loop: a claim, and an entry in the ledger."""
    mnist = data.load("mnist")
    first, new = slice(records), slice(records // 10)
    np.savez(
        walk.folder / "mine.npz",
        X=mnist.train.inputs[first],
        y=mnist.train.labels[first],
        new=mnist.test.inputs[new],
    )
    (walk.folder / "loop.py").write_text(LOOP, "utf-8")
    walk.type("loop.py", program="python")
    walk.type("ledger")
    return [str(label) for label in mnist.test.labels[new]]


def officer(walk: Walk, records: int) -> list[str]:
    """Walk with a model that the engineer hands over; the statement's words are counted."""
    engineer = Walk(walk.folder, walk.command)
    table(engineer, records)
    (walk.folder / "predictions.csv").unlink()
    walk.type("verify", "given")
    walk.words += len((walk.folder / "given/statement.md").read_text("utf-8").split())
    return []


WALKS = {
    "digits": digits,
    "table": table,
    "slices": slices,
    "researcher": researcher,
    "officer": officer,
}


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
        "accuracy_on_new": right / len(truth) if truth else None,
    }


def told(row: dict[str, Any]) -> str:
    """Return what a walk took, in one line."""
    share = row["accuracy_on_new"]
    of = "" if share is None else f", {100 * share:.1f} % of {row['new_records']} new"
    return (
        f"{row['walk']}: {len(row['commands'])} commands, {row['seconds']} s, {row['words']} words"
        + of
    )


def environment(folder: Path) -> Path:
    """Return a fresh environment's folder of programs, with the package from its wheel."""
    sources = folder / "sources"
    shutil.copytree(ROOT / "src", sources / "src", ignore=shutil.ignore_patterns("*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources / name)
    build = "from setuptools import build_meta; print(build_meta.build_wheel('..'))"
    made = _run(sys.executable, "-c", build, cwd=sources).split()[-1]
    venv.create(folder / "venv", with_pip=False)
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    found = [find_spec(name) for name in BORROWED]
    homes = {str(Path(spec.origin).parents[1]) for spec in found if spec and spec.origin}
    (site / "borrowed.pth").write_text("\n".join(sorted(homes)) + "\n")
    programs = folder / "venv/bin"
    pip = (sys.executable, "-m", "pip", "--python", str(programs / "python"))
    _run(*pip, "install", "--quiet", "--no-deps", "--no-index", str(folder / made), cwd=folder)
    return programs


def _run(*words: str, cwd: Path) -> str:
    done = subprocess.run(
        words, cwd=cwd, env=_surroundings(), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return done.stdout


def _surroundings() -> dict[str, str]:
    """Return the variables of a person who has installed the package."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "SIMPLEXDP_LEDGER": "ledger.jsonl"}


def in_processes(programs: Path, folder: Path) -> Command:
    """Return the programs of an environment, as people have them."""

    def call(program: str, *words: str) -> Said:
        done = subprocess.run(
            [programs / program, *words],
            cwd=folder,
            env=_surroundings(),
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
    with tempfile.TemporaryDirectory() as room:
        programs = environment(Path(room))
        for name in given.walks:
            folder = Path(room, name)
            folder.mkdir()
            rows.append(measure(name, folder, in_processes(programs, folder), given.records))
            print(told(rows[-1]), flush=True)
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
