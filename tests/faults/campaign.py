"""Kills and errors at every file operation of what the project does, each in a process of its own.

    python tests/faults/campaign.py --every 40   # every 40th of them; prints counts as JSON

The processes are forked from this one, which has imported everything. What was begun and cut off is
gone on with, and must end as it would have without the cut: the same weights bit for bit, counted
once in the ledger, with nothing half-written beside them.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from disk import AFTER, BEFORE, ERRORS, INSIDE, KILLED, Disk

from simplexdp import cli, data, features, methods, runs, training
from simplexdp.accounting import events
from simplexdp.data import cache as data_cache
from simplexdp.features import cache as feature_cache
from simplexdp.ledger import Ledger
from simplexdp.paper import records, sweep
from simplexdp.paper.report import own
from simplexdp.settings import Settings

RUN, LEDGER, REFERENCE = "run", "ledger.jsonl", "reference"
BASE = {"data": "blobs", "seed": 3}
NETWORK = {"model": "logistic", "batch_size": 6, "steps": 3, **BASE}
TRAININGS = {
    "dirichlet": Settings(method="dirichlet", epsilon=8.0, **NETWORK),
    "plain": Settings(method="plain", optimizer="adam", **NETWORK),
    "dpsgd": Settings(method="dpsgd", epsilon=8.0, **NETWORK),
    "certified": Settings(method="certified", options={"features": "columns"}, steps=3, **BASE),
    "gaussian-features": Settings(
        method="gaussian-features", options={"features": "columns"}, **BASE
    ),
}
IN_STEPS = ("dirichlet", "plain", "dpsgd")


def blobs() -> data.Dataset:
    """Three blobs of images, so that every method can train on them."""
    rng = np.random.default_rng(0)
    centres = rng.random((3, 1, 8, 8))

    def split(records: int) -> data.Split:
        labels = np.arange(records) % 3
        inputs = 2.0 * np.clip(centres[labels] + rng.normal(0, 0.1, (records, 1, 8, 8)), 0, 1) - 1
        return data.Split(inputs.astype(np.float32), labels.astype(np.int64))

    return data.Dataset("blobs", split(60), split(30), None, ("a", "b", "c"))


BLOBS = blobs()


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


@dataclass(frozen=True)
class Scenario:
    """Something that is begun, cut off, and gone on with.

    Attributes:
        begin: Does it from the start; what it acknowledges it says by `said`.
        go_on: Does what a person does after a cut; returns what is wrong, if anything.
        beside: Does the same in another process at the same time.
    """

    name: str
    begin: Callable[[Path, Callable[[str], None]], None]
    go_on: Callable[[Path, Sequence[str]], str]
    beside: Callable[[Path], None] | None = None
    prepared: Callable[[Path], None] = lambda root: None
    fails: bool = True  # whether errors are injected too


def leftovers(root: Path) -> list[str]:
    """Return temporary files inside run folders; beside them they go within an hour."""
    return [str(p.relative_to(root)) for p in (root / RUN).rglob(".*") if p.name != ".lock"]


def whole_json(root: Path) -> str:
    """Return the first file that ends in .json and is none."""
    for path in root.rglob("*.json"):
        try:
            json.loads(path.read_text())
        except ValueError:
            return f"{path.name} is half-written"
    return ""


def training_of(name: str) -> Scenario:
    settings = TRAININGS[name]

    def begin(root: Path, said: Callable[[str], None]) -> None:
        _, folder = methods.run(settings, root / RUN, dataset=BLOBS, ledger=Ledger(root / LEDGER))
        said(weights(folder.path))

    def go_on(root: Path, told: Sequence[str]) -> str:
        folder = root / RUN
        book = Ledger(root / LEDGER)
        before = len(book.entries())
        drawn, there = 0, folder.exists()
        if not there:
            begin(root, lambda _: None)
            drawn = 1  # an entry whose flush failed may stay: it is counted twice, never too little
        else:
            drawn = 0 if runs.RunFolder(folder).finished() else 1
            try:
                methods.run(settings, folder, resume=True, dataset=BLOBS, ledger=book)
            except ValueError as error:
                if drawn:
                    return f"not resumed: {error}"
        if weights(folder) != (root.parent / REFERENCE / name).read_text():
            return "other weights"
        counted = len(book.entries())
        wanted = 1 if name in IN_STEPS and there else before + drawn
        if counted != wanted:
            return f"counted {counted} times instead of {wanted}, {before} before"
        if (folder / "checkpoint.safetensors").exists():
            return "the seed is still there"
        return f"left: {left}" if (left := leftovers(root)) else ""

    return Scenario(name, begin, go_on, prepared=lambda root: budget(root))


def budget(root: Path) -> None:
    Ledger(root / LEDGER).set_budget("blobs", 1e9, 0.5)


def reproduction() -> Scenario:
    settings = Settings(method="plain", **NETWORK)
    work = sweep.Work("key", "unlisted", "blobs", settings, None)

    def begin(root: Path, said: Callable[[str], None]) -> None:
        folder = sweep.train(work, root / "runs", lambda _: BLOBS)
        records.write(records.record_of_run(folder, "unlisted"), root / "results")
        said(weights(folder.path))

    def go_on(root: Path, told: Sequence[str]) -> str:
        begin(root, lambda _: None)
        if weights(root / "runs" / "key") != (root.parent / REFERENCE / "reproduce").read_text():
            return "other weights"
        loaded = records.load(root / "results", "unlisted")
        return "" if len(loaded.records) == 1 else f"{len(loaded.records)} records"

    return Scenario("reproduce", begin, go_on)


def fetching() -> Scenario:
    splits = {"train": BLOBS.train, "test": BLOBS.test}
    facts = {"name": "blobs", "verified": True, "source": "made", "provenance": [], "files": {}}

    def fetch(root: Path) -> None:
        base = root / "datasets"
        with data_cache.locked(base, "blobs"), data_cache.work_folder(base, "blobs"):
            if data_cache.entry(base, "blobs") is None:
                data_cache.store(base, "blobs", splits, facts)

    def go_on(root: Path, told: Sequence[str]) -> str:
        fetch(root)
        base = root / "datasets"
        found = data_cache.entry(base, "blobs")
        if found is None:
            return "nothing was fetched"
        data_cache.verify(found)
        left = [p.name for p in base.iterdir() if p.name not in ("blobs", ".blobs.lock")]
        return "" if told or not left or left == [] else f"left: {left}"

    return Scenario("two fetches", lambda root, said: fetch(root), go_on, beside=fetch)


def two_writers() -> Scenario:
    fit = events.gaussian(noise_multiplier=5.0)

    def reserve(root: Path, who: str) -> None:
        Ledger(root / LEDGER).reserve("blobs", "mine", fit, who, "weights", run_id=who)

    def begin(root: Path, said: Callable[[str], None]) -> None:
        for number in range(3):
            reserve(root, f"a{number}")
            said(f"a{number}")

    def go_on(root: Path, told: Sequence[str]) -> str:
        book = Ledger(root / LEDGER)
        there = [entry.run for entry in book.entries()]
        if lost := set(told) - set(there):
            return f"lost: {lost}"
        for number in range(3):
            reserve(root, f"a{number}")
        runs_ = [entry.run for entry in book.entries()]
        twice = len(set(runs_)) != len(runs_)
        return f"counted twice: {runs_}" if twice or not {"a0", "a1", "a2"} <= set(runs_) else ""

    return Scenario(
        "two ledger writers", begin, go_on, lambda root: reserve(root, "b"), prepared=budget
    )


def caching() -> Scenario:
    feature_map = dataclasses.replace(features.build("columns", (1, 8, 8)), stored=True)

    def compute(root: Path) -> np.ndarray:
        os.environ["SIMPLEXDP_CACHE"] = str(root)
        return np.array(features.compute(BLOBS.train.inputs, feature_map))

    def go_on(root: Path, told: Sequence[str]) -> str:
        expected = features.compute(BLOBS.train.inputs, feature_map, use_cache=False)
        if not np.array_equal(compute(root), expected):
            return "other features"
        key = feature_cache.fingerprint(BLOBS.train.inputs, feature_map.name)
        return "" if feature_cache.read(key, 60) is not None else "not stored"

    return Scenario("features", lambda root, said: said(str(compute(root).sum())), go_on)


def reporting() -> Scenario:
    def prepared(root: Path) -> None:
        methods.run(Settings(method="plain", **NETWORK), root / RUN, dataset=BLOBS)

    def begin(root: Path, said: Callable[[str], None]) -> None:
        own.write([root / RUN], root / "page.html")

    def go_on(root: Path, told: Sequence[str]) -> str:
        page = root / "page.html"
        if page.exists() and not page.read_text().rstrip().endswith("</html>"):
            return "half a page"
        begin(root, lambda _: None)
        return ""

    return Scenario("report", begin, go_on, prepared=prepared)


SCENARIOS = (
    *(training_of(name) for name in TRAININGS),
    reproduction(),
    fetching(),
    two_writers(),
    caching(),
    reporting(),
)


def forked(
    work: Callable[[], str | None], wait: bool = True
) -> tuple[int, Callable[[], tuple[int, str]]]:
    """Do work in a forked process; return what waits for its code and text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        code, text = 0, ""
        try:
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                text = work() or ""
        except BaseException:
            code, text = 1, traceback.format_exc()[-1500:]
        os.write(write, text.encode()[:60_000])
        os._exit(code)
    os.close(write)

    def result() -> tuple[int, str]:
        with os.fdopen(read, "rb") as pipe:
            text = pipe.read().decode()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text

    return result


@dataclass
class Tally:
    """How many cuts there were, and what went wrong."""

    kills: int = 0
    losses_of_power: int = 0
    errors: int = 0
    wrong: list[str] = dataclasses.field(default_factory=list)


def begun(scenario: Scenario, root: Path, disk: Disk) -> str | None:
    """Begin under a disk; what it acknowledged stands in a file beside the folder."""
    training.SECONDS_BETWEEN_CHECKPOINTS = -1.0  # a checkpoint after every step
    told = os.open(root.parent / "told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    write = os.write
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream), disk.mounted():
        try:
            scenario.begin(root, lambda text: write(told, f"{text}\n".encode()) and None)
            code = 0
        except Exception as error:
            stream.truncate(0)
            stream.seek(0)
            code = cli._failed(error)
    return json.dumps({"code": code, "said": stream.getvalue(), "names": disk.names})


def cut(
    scenario: Scenario, home: Path, disk: Callable[[Path], Disk], again: int | None = None
) -> tuple[str, bool, bool]:
    """Begin, cut off, go on; return what is wrong, and whether it died at first and going on.

    With `again`, what goes on is to be killed as well, before that operation of its own.
    """
    root = home / "disk"
    for path in (root, home / "disk.kept"):
        shutil.rmtree(path, ignore_errors=True)
    (home / "told").unlink(missing_ok=True)
    root.mkdir()
    scenario.prepared(root)
    mounted = disk(root)
    first = forked(lambda: begun(scenario, root, mounted))
    other = None
    if scenario.beside is not None and mounted.error is None and not mounted.power:
        other = forked(lambda: scenario.beside(root))  # type: ignore[func-returns-value,misc]
    code, text = first()
    died, died_again = code == KILLED, False
    if code not in (0, KILLED):
        return f"died by {code}: {text}", died, died_again
    if other is not None and (failed := other())[0]:
        return f"the other one failed: {failed[1]}", died, died_again
    said = json.loads(text) if code == 0 else {}
    told = (home / "told").read_text().split()
    if said.get("code"):  # an error, of which one line is said
        line = said["said"]
        if said["code"] != 2 or line.count("\n") != 1 or "a fault of simplexdp" in line:
            return f"not one line: {said}", died, died_again
        if wrong := whole_json(root):
            return wrong, died, died_again
    if again is not None:
        dying = Disk(root, at=again)
        code, text = forked(lambda: went_on(scenario, root, told, dying))()
        died_again = code == KILLED
        if text or code not in (0, KILLED):
            return f"going on died by {code}: {text}", died, died_again
    return forked(lambda: scenario.go_on(root, told))()[1], died, died_again


def went_on(scenario: Scenario, root: Path, told: Sequence[str], disk: Disk) -> str:
    """Go on under a disk."""
    training.SECONDS_BETWEEN_CHECKPOINTS = -1.0
    with disk.mounted():
        return scenario.go_on(root, told)


TRAIN = ["simplexdp", "train", "--method", "plain", "--model", "logistic", "--steps", "2500",
         "--batch-size", "8", "--seed", "3", "--quiet", "--out"]  # fmt: skip


def command(arguments: Sequence[str], home: Path, ready: int) -> Callable[[], tuple[int, str]]:
    """Run a command in a forked process; return its number and what waits for its end."""
    said = home / "said"
    child = os.fork()
    if child == 0:
        os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout, sys.stderr = io.TextIOWrapper(io.FileIO(1, "w")), os.fdopen(2, "w", 1)
        sys.argv, code = list(arguments), 99
        cli.signals.install(cli.INTERRUPTED)
        os.write(ready, b"x")
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            traceback.print_exc()
        sys.stderr.flush()
        os._exit(code)

    def result() -> tuple[int, str]:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said.read_text()

    result.child = child  # type: ignore[attr-defined]
    return result


def signalled(trials: int, seed: int = 0) -> dict[str, Any]:
    """Send a signal to a training at a random moment; return how they ended and what was wrong."""
    home = Path(tempfile.mkdtemp())
    os.environ["SIMPLEXDP_LEDGER"] = str(home / "ledger.jsonl")
    rng = random.Random(seed)
    read, ready = os.pipe()
    ended: dict[str, Any] = {"finished": 0, "saved": 0, "interrupted": 0, "wrong": []}
    try:
        for name in ("warm", "reference"):
            began = time.monotonic()
            code, said = command([*TRAIN, str(home / name)], home, ready)()
            assert code == 0, said
        whole = weights(home / "reference")
        seconds = time.monotonic() - began
        os.read(read, 99)
        for trial in range(trials):
            run = home / f"run{trial}"
            number = rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
            waiting = command([*TRAIN, str(run)], home, ready)
            os.read(read, 1)
            time.sleep(rng.uniform(0, 1.1 * seconds))
            os.kill(waiting.child, number)  # type: ignore[attr-defined]
            code, said = waiting()
            kind = "saved" if "stopped after step" in said else "interrupted"
            ended["finished" if code == 0 else kind] += 1
            if code not in (0, 2) or (code == 2 and said.count("\n") != 1):
                ended["wrong"].append(f"{number} {code}: {said}")
            if kind == "saved" and code == 2:
                again = ["simplexdp", "train", "--resume", "--quiet", "--out", str(run)]
                code, said = command(again, home, ready)()
                os.read(read, 1)
                if code or weights(run) != whole:
                    ended["wrong"].append(f"after {number}: {code} {said}")
    finally:
        os.close(read)
        os.close(ready)
        shutil.rmtree(home, ignore_errors=True)
    return ended


def warm(scenario: Scenario, root: Path) -> None:
    """Let this process import and compute once what every forked one needs."""
    with contextlib.redirect_stderr(io.StringIO()):
        scenario.begin(root, lambda _: None)
    shutil.rmtree(root)
    root.mkdir()
    scenario.prepared(root)


def chosen(every: int, offset: int, number: int) -> bool:
    return (number + offset) % every == 0


def campaign(
    every: int, only: str = "", twice: int | None = None, offset: int = 0
) -> dict[str, dict]:
    """Cut every scenario at every operation, or at every so-manieth; return the counts.

    With `twice`, each is cut again while it goes on, at an operation drawn from that seed.
    """
    shm = Path("/dev/shm")
    home = Path(tempfile.mkdtemp(dir=shm if os.access(shm, os.W_OK) else None))
    os.environ["SIMPLEXDP_CACHE"] = str(home / "cache")
    os.environ["SIMPLEXDP_LEDGER"] = str(home / "ledger")
    (home / REFERENCE).mkdir()
    counts: dict[str, dict] = {}
    number = 0
    rng = random.Random(None if twice is None else 1000 * twice + offset)
    try:
        for scenario in SCENARIOS:
            if not scenario.name.startswith(only):
                continue
            tally = Tally()
            root = home / "disk"
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir()
            scenario.prepared(root)
            warm(scenario, root)
            disk = Disk(root)
            (home / "told").unlink(missing_ok=True)
            code, text = forked(lambda s=scenario, r=root, d=disk: begun(s, r, d))()
            whole = json.loads(text) if code == 0 else {"names": [], "said": text, "code": code}
            if code or whole["code"]:
                tally.wrong.append(f"it does not work without a cut: {whole}")
            told = (home / "told").read_text().split()
            (home / REFERENCE / scenario.name).write_text(told[0] if told else "")
            (home / "told").unlink()
            names = whole["names"]
            ways: list[tuple[str, dict]] = []
            for k, name in enumerate(names):
                phases = (BEFORE, INSIDE, AFTER) if name.startswith("write") else (BEFORE, AFTER)
                ways += [("kills", {"at": k, "phase": phase}) for phase in phases]
                ways += [
                    ("losses_of_power", {"at": k, "phase": phase, "power": True})
                    for phase in (BEFORE, AFTER)
                ]
                if scenario.fails and twice is None:
                    ways += [("errors", {"at": k, "error": error}) for error in ERRORS]
            for kind, how in ways:
                number += 1
                if not chosen(every, len(scenario.name) + offset, number):
                    continue
                again = None if twice is None else rng.randrange(len(names))
                disk_of = lambda root, how=how: Disk(root, **how)  # noqa: E731
                wrong, died, died_again = cut(scenario, home, disk_of, again)
                setattr(tally, kind, getattr(tally, kind) + (died or kind == "errors"))
                tally.kills += died_again
                if wrong:
                    tally.wrong.append(f"{how} {names[how['at']]}, again {again}: {wrong}")
            counts[scenario.name] = {"operations": len(names), **dataclasses.asdict(tally)}
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--signals", type=int, default=0, help="only so many signals")
    asked = parser.parse_args()
    if asked.signals:
        print(json.dumps({"signals": signalled(asked.signals)}))
        sys.exit()
    print(json.dumps(campaign(asked.every, asked.only), indent=1))
