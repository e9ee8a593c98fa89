"""The sweep over the cells of an experiment: makes the runs that have no record yet.

A run lives in runs/<key> while it trains and becomes a record when it is finished. What has a
record is skipped, what has a folder goes on from its checkpoint, and each key has a lock that
the kernel drops when its process ends, so two sweeps share the work and a killed one loses at
most what came after its last checkpoint.
"""

from __future__ import annotations

import dataclasses
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from simplexdp import data, files, methods, progress
from simplexdp.files import Busy
from simplexdp.paper import identity, records
from simplexdp.paper.cells import Cell, Experiment
from simplexdp.runs import CONFIGURATION, RunFolder
from simplexdp.settings import Settings
from simplexdp.training import OutOfTime

GRACE = 60.0  # seconds for the step in hand, after which what runs is interrupted


@dataclass(frozen=True)
class Work:
    """One run that a sweep has to make."""

    key: str
    experiment: str
    label: str
    settings: Settings
    records: int | None = None  # of the training set, where the experiment is about so many


@dataclass
class Swept:
    """What a sweep did."""

    finished: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)


class DiskFull(OSError):
    """No run can go on; everything that was saved stays. `swept` is what was done before."""

    def __init__(self, swept: Swept) -> None:
        self.swept = swept
        super().__init__(
            "the disk is full; make room and give the same command again, "
            "every finished run is kept"
        )


def work_of(
    experiment: Experiment,
    *,
    seeds: int = 1,
    epsilons: Sequence[float] | None = None,
    only: str | None = None,
    over: dict[str, Any] | None = None,
) -> list[Work]:
    """Return the runs of an experiment, one seed of every cell before the next seed of any.

    `only` keeps the row of this label or, where none has it, the rows whose label contains it;
    `over` is put over every cell's settings.
    """
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}; give 1 or more")
    cells = _rows(experiment.cells, only)
    unknown: set[float] = set()
    if epsilons is not None:
        unknown = set(epsilons) - {c.settings.epsilon for c in cells}
        cells = [c for c in cells if c.settings.epsilon in epsilons]
    if not cells or unknown:
        there = sorted({c.settings.epsilon for c in experiment.cells})
        raise ValueError(
            f"{experiment.name} has no such cell; its budgets are "
            f"{', '.join(f'{e:g}' for e in there)} and its rows "
            f"{'; '.join(dict.fromkeys(c.row for c in experiment.cells))}"
        )
    found: dict[str, Work] = {}
    for seed in range(seeds):
        for cell in cells:
            settings = dataclasses.replace(cell.settings, seed=seed, **(over or {}))
            label = f"{cell.row}, {cell.column}, seed {seed}"
            key = identity.key(settings)
            work = Work(key, experiment.name, label, settings, cell.records or experiment.records)
            found.setdefault(key, work)
    return list(found.values())


def _rows(cells: Sequence[Cell], only: str | None) -> Sequence[Cell]:
    if only is None:
        return cells
    exact = [c for c in cells if c.row.lower() == only.lower()]
    return exact or [c for c in cells if only.lower() in c.row.lower()]


def train(
    work: Work,
    run_root: Path,
    load: Callable[[Settings], data.Dataset],
    stop: Callable[[], bool] = lambda: False,
) -> RunFolder:
    """Return the finished run: as it is there, gone on with, or made from the start."""
    path = run_root / work.key
    with locked(run_root, work.key):
        if (path / CONFIGURATION).exists() and RunFolder.open(path).finished():
            return RunFolder.open(path)
        if path.is_dir() and not (path / CONFIGURATION).exists():
            shutil.rmtree(path)  # killed before the configuration was written
        dataset = load(work.settings)
        if work.records not in (None, len(dataset.train)):
            raise ValueError(
                f"{work.experiment} trains on {work.records} records, and the data at hand has "
                f"{len(dataset.train)}; give the part of it with --data-dir"
            )
        resume = path.exists()
        return methods.run(work.settings, path, resume=resume, dataset=dataset, stop=stop)[1]


def sweep(
    todo: Sequence[Work],
    results: Path,
    run_root: Path,
    *,
    deadline: float | None = None,
    show_progress: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> Swept:
    """Make every run of the list in this process, in order, up to a time of the monotonic clock."""
    swept = Swept()
    load = loader()
    with progress.bars(show_progress) as shown:
        task = shown.add_task("sweep", total=len(todo))
        for number, work in enumerate(todo):
            shown.update(task, description=f"{number + 1}/{len(todo)}, {work.label}")
            try:
                with time_limit(deadline, stop) as is_over:
                    folder = train(work, run_root, load, is_over)
                records.write(records.record_of_run(folder, work.experiment), results)
                swept.finished.append(work.label)
            except OutOfTime:
                swept.left = [w.label for w in todo[number:]]
                break
            except Busy:
                swept.elsewhere.append(work.label)
            except Exception as error:  # one failed run is reported and does not stop the rest
                if files.is_disk_full(error):
                    raise DiskFull(swept) from error
                swept.failed[work.label] = one_line(error)
            shown.advance(task)
    return swept


@contextmanager
def locked(run_root: Path, key: str) -> Iterator[None]:
    """Hold a run's lock, or raise `Busy` at once."""
    run_root.mkdir(parents=True, exist_ok=True)
    with files.locked(run_root / f".{key}.lock", f"{key} is being made by another process"):
        yield


@contextmanager
def time_limit(
    deadline: float | None, stop: Callable[[], bool] = lambda: False
) -> Iterator[Callable[[], bool]]:
    """Yield what says that it is time to stop; interrupt what goes on long after the deadline.

    Outside the main thread nothing can be interrupted.
    """

    def is_over() -> bool:
        return stop() or (deadline is not None and time.monotonic() > deadline)

    if is_over():
        raise OutOfTime
    if deadline is None or threading.current_thread() is not threading.main_thread():
        yield is_over
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, deadline - time.monotonic() + GRACE)
    try:
        yield is_over
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def loader() -> Callable[[Settings], data.Dataset]:
    """Load data sets, keeping the last one: the runs of a table share theirs."""
    kept: dict[str, data.Dataset] = {}

    def load(settings: Settings) -> data.Dataset:
        name = repr((settings.data, sorted(settings.data_options.items())))
        if name not in kept:
            kept.clear()
            kept[name] = data.load(settings.data, **settings.data_options)
        return kept[name]

    return load


def one_line(error: BaseException) -> str:
    """Return an error as one line of text."""
    return " ".join(f"{error}".split()) or type(error).__name__
