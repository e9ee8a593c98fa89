"""A sweep on several machines: one Ray task a run, and records filed by the driver.

A task that dies with its worker is started again by Ray and goes on from the run's checkpoint
where the run folder is on storage that the workers share, or begins anew where it is not.  Only
the driver writes records, one file a key, so nothing enters the results twice.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from simplexdp import files, plugins, progress
from simplexdp.files import Busy
from simplexdp.paper import records
from simplexdp.paper.sweep import DiskFull, Swept, Work, loader, one_line, train
from simplexdp.settings import Settings

RETRIES = 3
SECONDS_BETWEEN_LOOKS = 1.0
SECONDS_TO_ANSWER = 5.0
DIED = f"its worker died {RETRIES + 1} times, perhaps for want of memory; give the command again"


def train_one(
    settings: dict[str, Any], key: str, experiment: str, size: int | None, run_root: str
) -> dict[str, Any]:
    """Return the record of a run on a worker, begun or gone on with where a dead one left it."""
    work = Work(key, experiment, key, Settings.from_json(settings), size)
    return records.record_of_run(train(work, Path(run_root), loader()), experiment)


def sweep(
    todo: Sequence[Work],
    results: Path,
    run_root: Path,
    *,
    deadline: float | None = None,
    show_progress: bool = False,
    address: str | None = None,
    gpus_each: float = 0,
) -> Swept:
    """Make every run of the list on a Ray cluster, the one at `address` or a local one."""
    ray = _ray()
    began_here = not ray.is_initialized()
    with redirect_stdout(sys.stderr):  # Ray tells of dead workers on standard output
        if began_here:
            _check_reached(address)
            ray.init(address=address, log_to_driver=False, include_dashboard=False)
        try:
            own = began_here and address is None and "RAY_ADDRESS" not in os.environ
            if own and gpus_each > ray.cluster_resources().get("GPU", 0):  # it would wait for one
                raise ValueError(
                    "no graphics card is here for --device cuda; name a cluster that has one with "
                    "--ray-address, or leave --device out"
                )
            task = ray.remote(max_retries=RETRIES, num_cpus=1, num_gpus=gpus_each)(train_one)
            folder = str(run_root.resolve())
            waiting = {
                task.remote(w.settings.to_json(), w.key, w.experiment, w.records, folder): w
                for w in todo
            }
            return _gather(ray, waiting, results, deadline, show_progress)
        finally:
            if began_here:
                ray.shutdown()


def _check_reached(address: str | None) -> None:
    """Refuse at once an address where nobody answers; Ray tries for minutes."""
    host, colon, port = (address or "").removeprefix("ray://").rpartition(":")
    if not colon or not port.isdigit():
        return  # a local cluster, or a name that Ray looks up
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"no Ray cluster answers at {address}; check --ray-address") from error


def _gather(
    ray: Any,
    waiting: dict[Any, Work],
    results: Path,
    deadline: float | None,
    show_progress: bool,
) -> Swept:
    """File the records of tasks as they get ready, up to a time of the monotonic clock."""
    swept, full = Swept(), False
    with progress.bars(show_progress) as shown:
        task = shown.add_task("runs", total=len(waiting))
        while waiting and (deadline is None or time.monotonic() < deadline):
            ready, _ = ray.wait(list(waiting), timeout=SECONDS_BETWEEN_LOOKS)
            for done in ready:
                work = waiting.pop(done)
                shown.advance(task)
                try:
                    _file(ray.get(done), work, results)
                    swept.finished.append(work.label)
                except Exception as error:  # a failed run is reported and does not stop the rest
                    cause = getattr(error, "cause", None) or error
                    if isinstance(cause, Busy):
                        swept.elsewhere.append(work.label)
                    else:
                        died = type(cause).__name__ == "WorkerCrashedError"
                        swept.failed[work.label] = DIED if died else one_line(cause)
                        full = full or files.is_disk_full(cause)
            if full:  # what is ready was filed; the rest goes on from its folders another time
                raise DiskFull(swept)
    for left, work in waiting.items():
        ray.cancel(left, force=True)
        swept.left.append(work.label)
    return swept


def _file(record: dict[str, Any], work: Work, results: Path) -> None:
    """Keep a worker's record, if it is of the run that was asked for."""
    if record["key"] != work.key:
        raise ValueError(
            "the worker made another run: it has version "
            f"{record['versions']['simplexdp']} of the package; install the same one everywhere"
        )
    records.write(record, results)


def _ray() -> Any:
    return plugins.extra("ray", "cluster")
