"""`simplexdp reproduce`: compute a table, or run what is missing of one."""

from __future__ import annotations

import dataclasses
import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from simplexdp import distributed, files
from simplexdp.paper import cluster, computed, cost, grid, records, table
from simplexdp.paper import sweep as local
from simplexdp.paper.asked import Asked

ALIKE = ("data", "method", "model", "batch_size", "steps", "epochs")


def names() -> tuple[str, ...]:
    """Return everything that can be reproduced."""
    return (*grid.names(), *computed.TABLES, cost.NAME)


def reproduce(
    name: str,
    *,
    show_progress: bool = True,
    stop: Callable[[], bool] = lambda: False,
    **options: Any,
) -> dict[str, Any]:
    """Fill a table or figure of the paper; what is there already is not made again.

    Args:
        name: One of `names()`.
        show_progress: Whether a bar is shown.
        stop: Asked after every step; True ends the run at hand at a checkpoint.
        options: Fields of `Asked`.

    Returns:
        What was done, JSON-ready.

    Raises:
        ValueError: If an option is out of range, or of no use for this table.
    """
    asked = Asked(**options)
    _check(name, asked)
    began = time.monotonic()
    if name not in grid.names():
        if name == cost.NAME:
            folder, minutes = asked.results / "benchmarks", asked.budget_minutes
            paths = [cost.run(folder, budget_minutes=minutes, show_progress=show_progress)]
        else:
            paths = table.save(computed.TABLES[name](), asked.results / "tables")
        return {"name": name, "computed": True, "files": [str(path) for path in paths]}
    work = local.work_of(
        grid.experiment(name),
        seeds=asked.seeds,
        epsilons=asked.epsilon,
        only=asked.only,
        over=asked.over(),
    )
    # Ray hides the graphics cards from a task that does not ask for one.
    gpus = 1 if asked.device.startswith("cuda") else 0
    on_ray = partial(cluster.sweep, address=asked.ray_address, gpus_each=gpus)
    minutes = asked.budget_minutes
    deadline = None if minutes is None else began + 60 * minutes
    sweep = partial(on_ray if asked.ray else partial(local.sweep, stop=stop), deadline=deadline)
    return _make_missing(name, work, partial(sweep, show_progress=show_progress), asked)


def _check(name: str, asked: Asked) -> None:
    """Refuse an unknown name, and options that are out of range or of no use."""
    if name not in names():
        problem = f"no table or figure {name!r}" if name else "name a table or figure"
        raise ValueError(f"{problem}: use one of {', '.join(names())}")
    minutes = asked.budget_minutes
    if minutes is not None and not 0 < minutes < math.inf:
        raise ValueError(f"budget-minutes is {minutes:g}; give a positive number")
    if distributed.launched() > 1:
        raise ValueError(
            "reproduce trains each run in one process; use --ray, or torchrun with "
            "simplexdp train and file that run with --import-run"
        )
    if asked.ray_address is not None and not asked.ray:
        raise ValueError("--ray-address is of no use without --ray; give both")
    used = {"results", "runs", *(["budget_minutes"] if name == cost.NAME else [])}
    unused = [
        f"--{field.name.replace('_', '-')}"
        for field in dataclasses.fields(asked)
        if field.name not in used and getattr(asked, field.name) != field.default
    ]
    if unused and name not in grid.names():
        raise ValueError(f"{name} does not use {', '.join(unused)}; leave it out")


def _make_missing(
    name: str,
    work: Sequence[local.Work],
    sweep: Callable[..., local.Swept],
    asked: Asked,
) -> dict[str, Any]:
    """Make those of the runs that have no record yet, and say what was done."""
    loaded = records.load(asked.results, name)
    for sentence in loaded.left_out:
        _say(sentence)
    there = {record["key"] for record in loaded.records}
    todo = [w for w in work if w.key not in there]
    swept = local.Swept()
    if todo:
        for folder in (asked.results / "runs" / name, asked.runs):
            files.make_writable(folder)
        _say(f"{name}: {len(todo)} of {len(work)} runs are missing{expected(todo, loaded.records)}")
        try:
            swept = sweep(todo, asked.results, asked.runs)
        except local.DiskFull as full:
            _say_failed(full.swept)
            raise
    swept.skipped = [w.label for w in work if w.key in there]
    _say_failed(swept)
    return {
        "name": name,
        "computed": False,
        **dataclasses.asdict(swept),
        "left_out": list(loaded.left_out),
    }


def expected(todo: Sequence[local.Work], made: Sequence[Mapping[str, Any]]) -> str:
    """Say how long runs will take, by the records of runs like them; nothing where there are none.

    Alike are runs of one network, or method, on one data set for as many epochs or steps.
    """
    seconds: dict[str, list[float]] = {}
    for record in made:
        seconds.setdefault(_kind(record["configuration"]), []).append(record["seconds"])
    known = [seconds[kind] for w in todo if (kind := _kind(w.settings.to_json())) in seconds]
    if not known:
        return ""
    minutes = sum(statistics.median(alike) for alike in known) / 60
    unknown = len(todo) - len(known)
    rest = f" for all but {unknown} of them" if unknown else ""
    return f"; about {minutes:,.0f} minutes{rest}, by the records of runs like them"


def _kind(configuration: Mapping[str, Any]) -> str:
    return str([configuration.get(name) for name in ALIKE])


def text_of(summary: dict[str, Any]) -> str:
    """Return the summary for a person."""
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
