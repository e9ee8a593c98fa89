"""Break the package in one place at a time, and see the test that is named for it turn red.

    python benchmarks/mutants.py                   # all mutants; goes on where it was stopped
    python benchmarks/mutants.py --anew            # all of them, from the beginning
    python benchmarks/mutants.py --only linear/    # those of some files
    python benchmarks/mutants.py --seconds 8       # some by chance, until so long has passed

tests/mutants.toml lists them (docs/testing.md). Each is applied to a copy of the package, by
itself, in a process that is forked from one with the libraries loaded and nothing of the package.
A mutant is killed where its test fails; a test that cannot be collected, or never ends, kills
nothing. The exit code is 1 if one survives that the list has no reason for. Writes
results/mutants.json.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import importlib
import io
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "simplexdp"
LIST = ROOT / "tests" / "mutants.toml"
RESULT = ROOT / "results" / "mutants.json"
FACTORS = (0.8, 0.9, 0.95, 1.05, 1.1, 1.2)
PROCESSES = 2
LONGEST = 300  # seconds that a test may take
LIBRARIES = (
    *("torch", "scipy.stats", "mpmath", "dp_accounting.pld", "hypothesis", "sklearn.datasets"),
    *("pooch", "requests", "PIL.Image", "pyarrow", "filelock", "rich.progress"),
    "safetensors.torch",
)
SLOW_LIBRARIES = {"opacus": ("dpsgd", "gaussian_features")}  # only for tests with this in the name
KILLED, SURVIVED, SAID = "killed", "survived", "survived, as the list says"


@dataclass(frozen=True)
class Mutant:
    """One change of the source: a text that occurs once, and what stands there instead."""

    file: str
    old: str
    new: str
    test: str
    reason: str | None = None  # why it changes nothing that a test could see

    @property
    def line(self) -> str:
        return f"{self.file}: {squeezed(self.old)}  ->  {squeezed(self.new)}"

    def source(self) -> str:
        """The file with the change; refused where the text is not there exactly once."""
        text = (SOURCE / self.file).read_text("utf-8")
        if text.count(self.old) != 1:
            raise ValueError(
                f"the text is there {text.count(self.old)} times and not once; "
                "change tests/mutants.toml with it"
            )
        return text.replace(self.old, self.new)


def squeezed(text: str) -> str:
    return " ".join(text.split())


def read(path: Path = LIST) -> list[Mutant]:
    """The list: `scale` marks «an expression», to be multiplied; `swap` are pairs of texts."""
    mutants = []
    for group in tomllib.loads(path.read_text("utf-8"))["group"]:
        common = {"file": group["file"], "test": group["test"], "reason": group.get("reason")}
        for marked in group.get("scale", ()):
            before, rest = marked.split("«")
            inside, after = rest.split("»")
            mutants += [
                Mutant(
                    old=before + inside + after,
                    new=f"{before}({factor} * ({inside})){after}",
                    **common,
                )
                for factor in group.get("factors", FACTORS)
            ]
        mutants += [Mutant(old=old, new=new, **common) for old, new in group.get("swap", ())]
    return mutants


def faults(mutants: Sequence[Mutant]) -> list[str]:
    """Say which mutants are not found, and which name no test."""
    said = []
    for mutant in mutants:
        path, name = mutant.test.split("::")
        try:
            mutant.source()
            if f"def {name.split('[')[0]}(" not in (ROOT / path).read_text("utf-8"):
                said.append(f"there is no test {mutant.test}; name another in tests/mutants.toml")
        except (OSError, ValueError) as error:
            said.append(f"{mutant.line}: {error}")
    return sorted(set(said))


class Slot:
    """A copy of the package, in which one mutant is tried at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.package = folder, folder / "src" / "simplexdp"
        # With compiled files, which hold by their times, and without those that are being written.
        shutil.copytree(SOURCE, self.package, ignore=shutil.ignore_patterns("*.pyc.*"))
        (folder / "tmp").mkdir()
        self.mutant: Mutant | None = None

    def start(self, tests: Sequence[str], mutant: Mutant | None = None) -> int:
        """Fork a process that runs the tests on the copy; return its id."""
        self.mutant = mutant
        if mutant is not None:
            (self.package / mutant.file).write_text(mutant.source(), "utf-8")
        process = os.fork()
        if process == 0:
            code = 99
            try:
                code = self._test(tests)
            finally:
                os._exit(code)
        return process

    def _test(self, tests: Sequence[str]) -> int:
        import pytest

        signal.alarm(LONGEST if self.mutant is not None else 10 * LONGEST)
        output = os.open(self.folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(ROOT)
        tempfile.tempdir = str(self.folder / "tmp")
        os.environ |= {
            "PYTHONPATH": str(self.package.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.folder / "tmp"),
            "TMPDIR": str(self.folder / "tmp"),
        }
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(self.package.parent))
        found = importlib.util.find_spec("simplexdp")
        if found is None or not str(found.origin).startswith(str(self.folder)):
            return 98
        stop = ["-x"] if self.mutant is not None else []
        return int(pytest.main(["-q", "-p", "no:cacheprovider", *stop, *tests]))

    def restore(self) -> None:
        if self.mutant is not None:
            shutil.copy2(SOURCE / self.mutant.file, self.package / self.mutant.file)

    def end_of_output(self) -> str:
        return "\n".join((self.folder / "output").read_text("utf-8").splitlines()[-15:])


def outcomes(slots: Sequence[Slot], mutants: Iterator[Mutant]) -> Iterator[tuple[Mutant, str]]:
    """Try the mutants, one in every slot at a time, and yield what became of each."""
    free, busy = list(slots), {}
    while True:
        while free and (mutant := next(mutants, None)) is not None:
            slot = free.pop()
            busy[slot.start([mutant.test], mutant)] = slot
        if not busy:
            return
        process, status = os.waitpid(-1, 0)
        slot = busy.pop(process)
        tried = slot.mutant
        assert tried is not None
        code = os.waitstatus_to_exitcode(status)
        if code == 1:
            outcome = KILLED
        elif code == 0:
            outcome = SURVIVED if tried.reason is None else SAID
        elif code == -signal.SIGALRM:
            outcome = f"no end in {LONGEST} seconds"
        else:
            outcome = f"not tested (pytest's exit code {code})"
            print(slot.end_of_output(), file=sys.stderr)
        slot.restore()
        free.append(slot)
        yield tried, outcome


def load(mutants: Sequence[Mutant]) -> None:
    """Load what all tests load, once; nothing of the package, of which each fork has another."""
    names = " ".join(mutant.test for mutant in mutants)
    for library in LIBRARIES:
        importlib.import_module(library)
    for library, where in SLOW_LIBRARIES.items():
        if any(part in names for part in where):
            importlib.import_module(library)
    importlib.import_module("torch").set_num_threads(1)
    with contextlib.redirect_stdout(io.StringIO()):
        importlib.import_module("pytest").main(["--version"])  # its plug-ins
    gc.collect()
    gc.freeze()  # what is forked is not copied by the collector
    assert not any(name.split(".")[0] == "simplexdp" for name in sys.modules)


@cache
def key(mutant: Mutant) -> str:
    """What the outcome of a mutant is kept under, until its file, its test or the list changes."""
    test = (ROOT / mutant.test.split("::")[0]).read_text("utf-8")
    told = "\0".join((mutant.source(), test, mutant.test, mutant.reason or ""))
    return hashlib.sha256(told.encode()).hexdigest()[:16]


def write(mutants: Sequence[Mutant], done: dict[str, str], seconds: float) -> None:
    """Keep what became of which mutants: counts, every survivor, and the keys of the killed."""
    outcome = {mutant: done[key(mutant)] for mutant in mutants if key(mutant) in done}
    killed = Counter(m.file for m, found in outcome.items() if found == KILLED)
    tried = Counter(m.file for m in outcome)
    record = {
        "made_by": "python benchmarks/mutants.py",
        "machine": f"{os.cpu_count()} cores, Python {sys.version.split()[0]}",
        "seconds": round(seconds),
        "mutants": len(outcome),
        "killed": sum(killed.values()),
        "survivors_with_a_reason": sum(found == SAID for found in outcome.values()),
        "others": [f"{m.line}: {f}" for m, f in outcome.items() if f not in (KILLED, SAID)],
        "not_tried": len(mutants) - len(outcome),
        "killed_of_tried": {name: f"{killed[name]} of {tried[name]}" for name in sorted(tried)},
        "survivors": [
            {"file": m.file, "old": squeezed(m.old), "new": squeezed(m.new), "reason": m.reason}
            for m, found in outcome.items()
            if found == SAID
        ],
        "done": {KILLED: [], SAID: []},
    }
    for name, found in sorted(done.items()):
        record["done"].setdefault(found, []).append(name)
    rows = json.dumps(record, indent=1, ensure_ascii=False)
    RESULT.write_text(re.sub(r'",\n\s+"(?=[0-9a-f]{16}")', '", "', rows) + "\n", "utf-8")


def before(mutants: Sequence[Mutant]) -> tuple[dict[str, str], float]:
    """Return the outcomes of an earlier run that still hold, and the seconds that it took."""
    if not RESULT.exists():
        return {}, 0.0
    told = json.loads(RESULT.read_text("utf-8"))
    wanted = {key(mutant) for mutant in mutants}
    kept = {name: found for found in (KILLED, SAID) for name in told["done"][found]}
    return {name: found for name, found in kept.items() if name in wanted}, told["seconds"]


def run(arguments: argparse.Namespace) -> int:
    mutants = read(arguments.list)
    if found := faults(mutants):
        raise SystemExit("\n".join(found))
    chosen = [m for m in mutants if arguments.only in m.file]
    some = arguments.seconds is not None
    done: dict[str, str] = {}
    spent = 0.0
    began = time.monotonic()
    if some:
        random.Random(arguments.seed).shuffle(chosen)
        print(f"some mutants by chance, seed {arguments.seed}")
        chosen = chosen[:200]
    elif arguments.list == LIST:
        done, spent = before(mutants) if not arguments.anew else ({}, 0.0)
        chosen = [m for m in chosen if key(m) not in done]
    load(chosen[:5] if some else chosen)
    bad, tried = [], 0
    with tempfile.TemporaryDirectory() as folder:
        slots = [Slot(Path(folder) / str(number)) for number in range(PROCESSES)]
        if not some and chosen:
            print("the tests as they are …", flush=True)
            process = slots[0].start(sorted({m.test for m in chosen}))
            if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) != 0:
                print(slots[0].end_of_output(), file=sys.stderr)
                raise SystemExit("a named test is red without any mutant; mend it first")

        def in_turn() -> Iterator[Mutant]:
            for number, mutant in enumerate(chosen):
                if some and number and time.monotonic() - began > arguments.seconds:
                    return
                yield mutant

        for mutant, outcome in outcomes(slots, in_turn()):
            tried += 1
            if outcome not in (KILLED, SAID):
                bad.append(mutant)
            elif outcome == KILLED and mutant.reason is not None:
                print("killed, although the list has a reason why it could not be:")
            if outcome != KILLED or mutant.reason is not None or arguments.verbose:
                print(f"{outcome}: {mutant.line}  [{mutant.test}]", flush=True)
            if not some and arguments.list == LIST:
                done[key(mutant)] = outcome
                write(mutants, done, spent + time.monotonic() - began)
    print(f"{tried} mutants tried in {time.monotonic() - began:.0f} s, {len(bad)} to be looked at")
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="mutants of files whose path contains this")
    parser.add_argument("--anew", action="store_true", help="forget the outcomes that are kept")
    parser.add_argument("--seconds", type=float, help="some by chance, until so long has passed")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32, help="of the chance")
    parser.add_argument("--list", type=Path, default=LIST, help="another list")
    parser.add_argument("--verbose", action="store_true", help="print every mutant")
    return run(parser.parse_args())


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
