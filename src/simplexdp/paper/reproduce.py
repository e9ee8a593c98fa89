"""`simplexdp reproduce`: compute a table, or run what is missing of one."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from simplexdp import distributed, files
from simplexdp.paper import cluster, computed, cost, estimate, grid, records, table
from simplexdp.paper import sweep as local


def names() -> tuple[str, ...]:
    """Everything that can be reproduced."""
    return (*grid.names(), *computed.names(), cost.NAME)


def reproduce(
    name: str,
    *,
    seeds: int = 1,
    epsilons: Sequence[float] | None = None,
    only: str | None = None,
    steps: int | None = None,
    evaluations: int | None = None,
    budget_minutes: float | None = None,
    ray: bool = False,
    ray_address: str | None = None,
    results: Path = Path("results"),
    run_root: Path = Path("runs"),
    device: str = "cpu",
    threads: int | None = None,
    allow_unverified: bool = False,
    data_dir: Path | None = None,
    show_progress: bool = True,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Fill a table or figure of the paper; what is there already is not made again."""
    if name not in names():
        problem = f"no table or figure {name!r}" if name else "name a table or figure"
        raise ValueError(f"{problem}: use one of {', '.join(names())}")
    if budget_minutes is not None and not 0 < budget_minutes < math.inf:
        raise ValueError(f"budget-minutes is {budget_minutes:g}; give a positive number")
    if distributed.launched() > 1:
        raise ValueError(
            "reproduce trains each run in one process; use --ray, or torchrun with "
            "simplexdp train and file that run with --import-run"
        )
    if ray_address is not None and not ray:
        raise ValueError("--ray-address is of no use without --ray; give both")
    trains = {
        "--seeds": seeds != 1,
        "--epsilon": epsilons is not None,
        "--only": only is not None,
        "--steps": steps is not None,
        "--evaluations": evaluations is not None,
        "--ray": ray,
        "--device": device != "cpu",
        "--threads": threads is not None,
        "--allow-unverified": allow_unverified,
        "--data-dir": data_dir is not None,
        "--budget-minutes": budget_minutes is not None and name != cost.NAME,
    }
    unused = [option for option, given in trains.items() if given]
    if unused and name not in grid.names():
        raise ValueError(f"{name} does not use {', '.join(unused)}; leave it out")
    began = time.monotonic()
    if name in computed.names():
        paths = table.save(computed.compute(name), results / "tables")
        return {"name": name, "computed": True, "files": [str(path) for path in paths]}
    if name == cost.NAME:
        path = cost.run(
            results / "benchmarks", budget_minutes=budget_minutes, show_progress=show_progress
        )
        return {"name": name, "computed": True, "files": [str(path)]}
    over = _over(device, threads, steps, evaluations, allow_unverified, data_dir)
    work = local.work_of(
        grid.experiment(name), seeds=seeds, epsilons=epsilons, only=only, over=over
    )
    # Ray hides the graphics cards from a task that does not ask for one.
    gpus = 1 if device.startswith("cuda") else 0
    sweep = partial(local.sweep, stop=stop)
    if ray:
        sweep = partial(cluster.sweep, address=ray_address, gpus_each=gpus)
    deadline = None if budget_minutes is None else began + 60 * budget_minutes
    return _make_missing(name, work, sweep, results, run_root, deadline, show_progress)


def _over(
    device: str,
    threads: int | None,
    steps: int | None,
    evaluations: int | None,
    allow_unverified: bool,
    data_dir: Path | None,
) -> dict[str, Any]:
    """The settings that are put over those of every cell."""
    over: dict[str, Any] = {"device": device, "threads": threads}
    if steps is not None:
        over |= {"steps": steps, "epochs": None}
    if evaluations is not None:
        over["evaluations"] = evaluations
    options: dict[str, Any] = {"allow_unverified": True} if allow_unverified else {}
    if data_dir is not None:
        options["data_dir"] = str(data_dir.resolve())  # a worker has another folder
    return {**over, "data_options": options}


def _make_missing(
    name: str,
    work: Sequence[local.Work],
    sweep: Callable[..., local.Swept],
    results: Path,
    run_root: Path,
    deadline: float | None,
    show_progress: bool,
) -> dict[str, Any]:
    """Make those of the runs that have no record yet, and say what was done."""
    loaded = records.load(results, name)
    for sentence in loaded.left_out:
        _say(sentence)
    there = records.keys(loaded.records)
    todo = [w for w in work if w.key not in there]
    swept = local.Swept()
    seconds: list[float] = []
    if todo:
        for folder in (results / "runs" / name, run_root):
            files.make_writable(folder)
        _say(
            f"{name}: {len(todo)} of {len(work)} runs are missing; timing a few steps of each kind"
        )
        seconds = _timed(name, todo, run_root, deadline)
        try:
            swept = sweep(
                todo,
                results,
                run_root,
                seconds_each=seconds,
                deadline=deadline,
                show_progress=show_progress,
            )
        except local.DiskFull as full:
            _say_failed(full.swept)
            raise
    swept.skipped = [w.label for w in work if w.key in there]
    _say_failed(swept)
    return {
        "name": name,
        "computed": False,
        "estimated_seconds": round(sum(seconds), 3),
        **swept.to_json(),
        "left_out": list(loaded.left_out),
    }


def _timed(
    name: str, todo: Sequence[local.Work], run_root: Path, deadline: float | None
) -> list[float]:
    """The seconds that each run needs, by a few of its steps; says the sum."""
    seconds, untimed = local.paces(todo, run_root, deadline)
    timed = f"about {estimate.total(seconds)} on one process of this machine"
    if untimed:
        timed += f", without {len(untimed)} of the runs, which could not be timed"
    _say(f"{name}: {timed}")
    for reason in dict.fromkeys(untimed.values()):
        _say(f"not timed: {reason}")
    return seconds


def text_of(summary: dict[str, Any]) -> str:
    """The summary for a person."""
    if summary["computed"]:
        return "\n".join(["written:", *summary["files"]])
    counts = {
        "finished now": summary["finished"],
        "there already": summary["skipped"],
        "failed": summary["failed"],
        "left for another time": summary["left"],
        "being made by another sweep": summary["elsewhere"],
    }
    lines = [f"{len(found):4d} {name}" for name, found in counts.items() if found]
    if summary["left"] or summary["failed"]:
        lines.append("Give the same command again to go on; what is finished is kept.")
    return "\n".join([f"{summary['name']}:", *lines])


def _say_failed(swept: local.Swept) -> None:
    for label, reason in swept.failed.items():
        _say(f"failed: {label}: {reason}")


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)
