"""The sweep on Ray: a worker is killed in the middle, nothing is lost and nothing runs twice."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from simplexdp import __version__, runs
from simplexdp.paper import cluster, identity, records, reproduce, sweep
from simplexdp.runs import checkpoint
from simplexdp.settings import Settings

ray = pytest.importorskip("ray", reason="Ray is not installed (the extra `cluster`)")

# In every worker: checkpoints often, and a line for each process that trains a key.  Written as
# text and run as a main module, so that Ray sends it to the workers by value.
HOOK = """
def set_up():
    import os
    from simplexdp import methods, training

    training.SECONDS_BETWEEN_CHECKPOINTS = 0.2
    original = methods.run

    def run(settings, out, **options):
        with open(os.path.join(os.environ["TRACE"], out.name), "a") as file:
            file.write(f"{os.getpid()} {options['resume']}\\n")
        return original(settings, out, **options)

    methods.run = run
"""


def hook():
    namespace = {"__name__": "__main__"}
    exec(HOOK, namespace)
    return namespace["set_up"]


@pytest.fixture
def two_workers(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_worker_niceness", "0")
    trace = tmp_path / "trace"
    trace.mkdir()
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=80_000_000,
        runtime_env={
            "env_vars": {"TRACE": str(trace), "OMP_NUM_THREADS": "1"},
            "worker_process_setup_hook": hook(),
        },
    )
    yield trace
    ray.shutdown()


def work(steps: tuple[int, ...]) -> list[sweep.Work]:
    settings = [
        Settings(data="digits", model="logistic", batch_size=8, steps=n, seed=0) for n in steps
    ]
    return [sweep.Work(identity.key(s), "small", f"{s.steps} steps", s) for s in settings]


def kill_the_worker_of(key: str, trace: Path, run_root: Path) -> None:
    """Wait until the run has a checkpoint with steps in it, then kill -9 its process."""
    deadline = time.monotonic() + 600
    saved = run_root / key / "checkpoint.safetensors"
    while time.monotonic() < deadline:
        if saved.exists() and step_of(saved) > 0:
            os.kill(int((trace / key).read_text().split()[0]), signal.SIGKILL)
            return
        time.sleep(0.02)


def step_of(saved: Path) -> int:
    settings = runs.RunFolder(saved.parent).settings()
    return checkpoint.read(saved, settings.key(1)).step


def test_a_killed_worker_loses_nothing_and_repeats_nothing(two_workers, tmp_path):
    todo = work((1_500, 200, 201))
    run_root = tmp_path / "runs"
    killer = threading.Thread(
        target=kill_the_worker_of, args=(todo[0].key, two_workers, run_root), daemon=True
    )
    killer.start()
    swept = cluster.sweep(todo, tmp_path / "results", run_root)
    killer.join(timeout=5)
    assert sorted(swept.finished) == sorted(w.label for w in todo), swept.failed
    found = sorted((tmp_path / "results").rglob("*.json"))
    assert len(found) == 3  # one record a run
    begun = {p.name: p.read_text().splitlines() for p in two_workers.iterdir()}
    assert [len(begun[w.key]) for w in todo[1:]] == [1, 1]
    killed = [line.split() for line in begun[todo[0].key]]
    assert [resumed for _, resumed in killed] == ["False", "True"]
    assert killed[0][0] != killed[1][0]  # another process went on with it
    lines = (run_root / todo[0].key / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == sorted(set(steps))
    assert steps[-1] == 1_500
    # A second sweep over the same folders trains nothing.
    cluster.sweep(todo, tmp_path / "results", run_root)
    assert {p.name: p.read_text().splitlines() for p in two_workers.iterdir()} == begun

    broken = sweep.Work("key-broken", "small", "broken", Settings(data="no-such-data", seed=0))
    swept = cluster.sweep([broken], tmp_path / "results", run_root)
    assert "no-such-data" in swept.failed["broken"]
    assert not list((tmp_path / "results").rglob("key-broken*"))

    (busy,) = work((202,))
    with sweep.locked(run_root, busy.key):  # as another sweep on the same folders would
        swept = cluster.sweep([busy], tmp_path / "results", run_root)
    assert (swept.elsewhere, swept.failed) == ([busy.label], {})


def test_without_ray_the_message_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ValueError, match=r'pip install "simplexdp\[cluster\]"$'):
        cluster.sweep(work((10,)), tmp_path, tmp_path)


class HereRay:
    """Ray's face in one process: a task runs when it is asked for, and `broken` names errors."""

    def __init__(self, broken: dict[str, Exception], running: bool = True) -> None:
        self.broken = broken
        self.running = running
        self.cancelled = 0

    def is_initialized(self) -> bool:
        return self.running

    def init(self, **given):
        self.running = True

    def shutdown(self):
        self.running = False

    def remote(self, **needs):
        def task(settings, key, *rest):
            if key in self.broken:
                raise self.broken[key]
            return cluster.train_one(settings, key, *rest)

        return lambda _: type("Task", (), {"remote": lambda *a: lambda: task(*a)})

    def wait(self, waiting, timeout):
        return waiting[:2], waiting[2:]

    def get(self, done):
        return done()

    def cancel(self, task, force):
        self.cancelled += 1

    def cluster_resources(self):
        return {"CPU": 2.0}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_on_a_worker_stops_the_sweep_and_keeps_what_is_ready(
    number, monkeypatch, tmp_path
):
    todo = work((10, 11, 12, 13))
    here = HereRay({todo[0].key: OSError(number, "no room")})
    monkeypatch.setattr(cluster, "_ray", lambda: here)
    places = (tmp_path / "results", tmp_path / "runs")
    with pytest.raises(sweep.DiskFull, match="the disk is full; make room"):
        cluster.sweep(todo, *places)
    assert {r["key"] for r in records.load(places[0]).records} == {todo[1].key}  # was ready with it
    here.broken = {}
    assert len(cluster.sweep(todo, *places).finished) == 4


def test_a_disk_that_is_full_where_the_records_go_stops_the_sweep(monkeypatch, tmp_path):
    monkeypatch.setattr(cluster, "_ray", lambda: HereRay({}))

    def full(record, results):
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(records, "write", full)
    with pytest.raises(sweep.DiskFull):
        cluster.sweep(work((10,)), tmp_path / "r", tmp_path / "runs")


def test_a_worker_with_other_code_is_told_apart(monkeypatch, tmp_path):
    monkeypatch.setattr(cluster, "_ray", lambda: HereRay({}))
    (one,) = work((10,))
    asked = dataclasses.replace(one, key="0123456789abcdef")  # as a newer version would call it
    swept = cluster.sweep([asked], tmp_path / "r", tmp_path / "runs")
    assert f"it has version {__version__} of the package" in swept.failed[one.label]
    assert not list((tmp_path / "r").rglob("*.json"))


@pytest.mark.parametrize(("device", "cards"), [("cuda", 1), ("cpu", 0)])
def test_a_run_on_a_card_asks_ray_for_one(monkeypatch, tmp_path, device, cards):
    asked = {}
    monkeypatch.setattr(cluster, "sweep", lambda *_, **given: asked.update(given) or sweep.Swept())
    reproduce.reproduce("digits", ray=True, device=device, results=tmp_path, budget_minutes=1.0)
    assert asked["gpus_each"] == cards
    assert 30 < asked["deadline"] - time.monotonic() <= 60


def test_what_ray_prints_does_not_reach_standard_output(monkeypatch, tmp_path, capsys):
    """There stands one JSON object; a worker that died for good is told in words of ours."""
    (one,) = work((10,))
    crashed = type("WorkerCrashedError", (Exception,), {})("see python-core-worker-*.log")
    here = HereRay({one.key: crashed})
    monkeypatch.setattr(cluster, "_ray", lambda: here)
    look = here.wait
    monkeypatch.setattr(here, "wait", lambda *a, **k: print("(raylet) died") or look(*a, **k))
    swept = cluster.sweep([one], tmp_path / "r", tmp_path / "runs")
    assert "its worker died 4 times" in swept.failed[one.label]
    out, err = capsys.readouterr()
    assert (out, "(raylet) died" in err) == ("", True)


def test_a_card_that_is_not_here_is_not_waited_for(monkeypatch, tmp_path):
    monkeypatch.setattr(cluster, "_ray", lambda: HereRay({}, running=False))
    with pytest.raises(ValueError, match="no graphics card is here for --device cuda"):
        cluster.sweep(work((10,)), tmp_path, tmp_path, gpus_each=1)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999"])
def test_a_cluster_that_does_not_answer_is_said_at_once(monkeypatch, tmp_path, address):
    monkeypatch.setattr(cluster, "_ray", lambda: HereRay({}, running=False))
    with pytest.raises(ValueError, match="no Ray cluster answers at"):
        cluster.sweep(work((10,)), tmp_path, tmp_path, address=address)
