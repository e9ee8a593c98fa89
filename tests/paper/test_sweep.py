"""The sweep: runs what is missing, skips, resumes, survives failures, kills and a full disk."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simplexdp import methods, training
from simplexdp.paper import grid, records, reproduce, sweep
from simplexdp.runs import checkpoint
from simplexdp.settings import Settings


def go(work, tmp_path, **options):
    return sweep.sweep(work, tmp_path / "results", tmp_path / "runs", **options)


@pytest.fixture
def listed(small, monkeypatch):
    """The small experiment under its name."""
    monkeypatch.setattr(grid, "_experiments", lambda: {"small": small})
    return small


def test_one_seed_of_every_cell_before_the_next(small):
    work = sweep.work_of(small, seeds=2)
    assert [w.settings.seed for w in work] == [0, 0, 0, 1, 1, 1]
    assert len({w.key for w in work}) == 6


def test_a_selection_and_settings_put_over_it(small):
    work = sweep.work_of(small, epsilons=[4.0], over={"steps": 7})
    assert [(w.settings.epsilon, w.settings.steps) for w in work] == [(4.0, 7)]
    assert [w.label for w in sweep.work_of(small, only="PLAIN")] == ["plain, ε = ∞, seed 0"]
    longer = dataclasses.replace(small.cells[0], row="Dirichlet, warmup=0")
    both = dataclasses.replace(small, cells=(longer, *small.cells))
    assert sweep.work_of(both, only="warm")[0].label == "Dirichlet, warmup=0, ε = 1, seed 0"
    rows = [w.label for w in sweep.work_of(both, only="dirichlet", epsilons=[1.0])]
    assert rows == ["Dirichlet, ε = 1, seed 0"]  # the row of this name, not each that has it
    with pytest.raises(ValueError, match="its budgets are 1, 4, inf and its rows Dirichlet; plain"):
        sweep.work_of(small, epsilons=[3.0])
    with pytest.raises(ValueError, match="give 1 or more"):
        sweep.work_of(small, seeds=0)


def test_reproduce_runs_what_is_missing_and_then_nothing(listed, tmp_path, capsys):
    places = {"results": tmp_path / "results", "runs": tmp_path / "runs"}
    first = reproduce.reproduce("small", epsilon=[1.0], show_progress=False, **places)
    assert first["finished"] == ["Dirichlet, ε = 1, seed 0"]
    assert "1 of 1 runs are missing" in capsys.readouterr().err
    second = reproduce.reproduce("small", show_progress=False, **places)
    assert second["skipped"] == first["finished"]
    assert len(second["finished"]) == 2
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.json")}
    third = reproduce.reproduce("small", show_progress=False, **places)
    assert (third["finished"], len(third["skipped"])) == ([], 3)
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*.json")} == before
    assert "3 there already" in reproduce.text_of(third)
    json.dumps(third, allow_nan=False)


def test_results_of_another_revision_are_made_again_and_said(listed, tmp_path, monkeypatch, capsys):
    places = {"results": tmp_path / "results", "runs": tmp_path / "runs"}
    reproduce.reproduce("small", epsilon=[1.0], show_progress=False, **places)
    for path in (tmp_path / "results").rglob("*.json"):
        record = json.loads(path.read_text()) | {"revision": 0}
        path.with_stem("0" * 16).write_text(json.dumps(record))
        path.unlink()
    again = reproduce.reproduce("small", epsilon=[1.0], show_progress=False, **places)
    assert len(again["finished"]) == 1
    assert "of revision 0 of dirichlet, left out" in capsys.readouterr().err


def test_a_computed_table_is_written(tmp_path):
    done = reproduce.reproduce("r-star-alpha", results=tmp_path)
    assert {Path(f).name for f in done["files"]} == {
        "r-star-alpha.json",
        "r-star-alpha.md",
        "r-star-alpha.tex",
    }
    assert "written:" in reproduce.text_of(done)


def test_an_unknown_name_lists_all(tmp_path):
    with pytest.raises(ValueError, match=r"'table 9'.*fashion-mnist.*r-star.*cost"):
        reproduce.reproduce("table 9", results=tmp_path)


def test_a_failed_run_is_reported_and_does_not_stop_the_rest(small, tmp_path):
    work = sweep.work_of(small)
    broken = dataclasses.replace(work[0].settings, model="no-such-network")
    work[0] = dataclasses.replace(work[0], settings=broken)
    swept = go(work, tmp_path)
    assert len(swept.finished) == 2
    assert "no-such-network" in swept.failed[work[0].label]
    assert len(records.load(tmp_path / "results").records) == 2


# A run writes its configuration, a checkpoint, the model, its outcome, two statements, a record.
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("room", [0, 2, 4, 6])
def test_a_full_disk_stops_the_sweep_and_keeps_what_is_done(
    room, number, small, tmp_path, monkeypatch
):
    work = sweep.work_of(small)
    go(work[:1], tmp_path)
    real = os.fsync
    written = []

    def flush(descriptor: int) -> None:
        written.append(descriptor)
        if len(written) > room:
            raise OSError(number, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", flush)
    with pytest.raises(sweep.DiskFull, match="the disk is full; make room"):
        go(work[1:], tmp_path)
    assert len(written) == room + 1
    monkeypatch.setattr(os, "fsync", real)
    assert len(records.load(tmp_path / "results").records) == 1
    assert len(go(work[1:], tmp_path).finished) == 2
    assert len(records.load(tmp_path / "results").records) == 3


def test_a_finished_folder_without_a_record_is_not_trained_again(small, tmp_path, monkeypatch):
    work = sweep.work_of(small)[:1]
    go(work, tmp_path)
    (record,) = (tmp_path / "results").rglob("*.json")
    content = record.read_bytes()
    record.unlink()
    monkeypatch.setattr(methods, "run", None)
    go(work, tmp_path)
    assert record.read_bytes() == content


def test_the_time_that_is_given_is_kept_and_the_run_goes_on(small, tmp_path):
    """Also in sittings that are shorter than the time between checkpoints."""
    assert training.SECONDS_BETWEEN_CHECKPOINTS > 30
    endless = {"steps": 2_000_000, "evaluations": 1}
    work = sweep.work_of(small, only="plain", over=endless)
    saved = tmp_path / "runs" / work[0].key / "checkpoint.safetensors"
    reached = []
    for _ in range(2):
        swept = go(work, tmp_path, deadline=time.monotonic() + 2)
        assert (swept.left, swept.finished) == ([work[0].label], [])
        key = work[0].settings.key(1)
        reached.append(checkpoint.read(saved, key).step)
    assert 0 < reached[0] < reached[1]


def test_what_does_not_stop_by_itself_is_interrupted(monkeypatch):
    monkeypatch.setattr(sweep, "GRACE", 0.1)
    began = time.monotonic()
    with pytest.raises(sweep.OutOfTime), sweep.time_limit(began + 0.1):
        time.sleep(60)


def test_what_failed_before_the_disk_was_full_is_said(listed, tmp_path, monkeypatch, capsys):
    problems = iter([ValueError("no such network"), OSError(errno.ENOSPC, "No space left")])
    monkeypatch.setattr(sweep, "train", lambda *_: (_ for _ in ()).throw(next(problems)))
    with pytest.raises(sweep.DiskFull):
        reproduce.reproduce(
            "small", results=tmp_path / "results", runs=tmp_path / "runs", show_progress=False
        )
    assert "no such network" in capsys.readouterr().err


def test_short_sittings_come_to_an_end(listed, tmp_path):
    places = {"results": tmp_path / "results", "runs": tmp_path / "runs"}
    sitting = {"budget_minutes": 0.5 / 60, "only": "plain", "show_progress": False}
    none = {**sitting, "budget_minutes": 1e-9}
    first = reproduce.reproduce("small", **none, **places)
    assert (first["finished"], len(first["left"])) == ([], 1)
    deadline = time.monotonic() + 120
    while not reproduce.reproduce("small", **sitting, **places)["skipped"]:
        assert time.monotonic() < deadline


def test_several_processes_are_refused(small, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"in one process; use --ray.*--import-run"):
        reproduce.reproduce("digits", results=tmp_path)


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("r-star", {"seeds": 2}, "r-star does not use --seeds"),
        ("r-star", {"budget_minutes": 1.0}, "r-star does not use --budget-minutes"),
        ("cost", {"epsilon": [3.0], "only": "x"}, "cost does not use --epsilon, --only"),
        ("digits", {"ray_address": "auto"}, "without --ray"),
        ("digits", {"epsilon": [1.0, 3.0]}, "its budgets are 1, inf"),
    ],
)
def test_an_option_without_effect_is_refused(name, given, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        reproduce.reproduce(name, results=tmp_path, **given)
    assert not any(tmp_path.iterdir())


def test_two_sweeps_do_not_make_the_same_run(small, tmp_path):
    work = sweep.work_of(small)[:2]
    with sweep.locked(tmp_path / "runs", work[0].key):
        swept = go(work, tmp_path)
    assert swept.elsewhere == [work[0].label]
    assert swept.finished == [work[1].label]
    assert go(work[:1], tmp_path).finished == [work[0].label]


CHILD = """
import sys
from pathlib import Path
from simplexdp import training
from simplexdp.paper import sweep
from simplexdp.settings import Settings
training.SECONDS_BETWEEN_CHECKPOINTS = float(sys.argv[3])
settings = Settings(data="digits", model="logistic", batch_size=8, steps=int(sys.argv[2]), seed=0)
root = Path(sys.argv[1])
sweep.sweep(
    [sweep.Work("a-key", "small", "a label", settings)],
    root / "results", root / "runs",
)
"""


def test_a_killed_sweep_goes_on_where_it_was(tmp_path):
    """A real process, really killed; the second one resumes and the weights are as without it."""
    steps = "1500"
    command = [sys.executable, "-c", CHILD, str(tmp_path), steps]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*command, "0.2"], env=environment)
    folder = tmp_path / "runs/a-key"
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / "metrics.jsonl").exists():
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert (folder / "checkpoint.safetensors").exists(), "it ended before it could be killed"
    subprocess.run([*command, "60"], env=environment, check=True)
    settings = Settings(data="digits", model="logistic", batch_size=8, steps=int(steps), seed=0)
    methods.run(settings, tmp_path / "whole")
    whole, cut = (p / "model.safetensors" for p in (tmp_path / "whole", folder))
    assert whole.read_bytes() == cut.read_bytes()
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    steps_seen = [json.loads(line)["step"] for line in lines]
    assert steps_seen == sorted(set(steps_seen))
    assert len(list((tmp_path / "results").rglob("*.json"))) == 1


@pytest.mark.parametrize("left", [(), (".run.json.x1y2",)])
def test_a_folder_of_a_run_killed_before_it_began_is_no_obstacle(left, small, tmp_path):
    work = sweep.work_of(small)[:1]
    folder = tmp_path / "runs" / work[0].key
    folder.mkdir(parents=True)
    for name in left:
        (folder / name).write_text("{")
    assert go(work, tmp_path).finished == [work[0].label]


def test_an_experiment_on_a_part_refuses_the_whole(small, tmp_path):
    work = sweep.work_of(dataclasses.replace(small, records=7))[:1]
    swept = go(work, tmp_path)
    assert swept.finished == []
    assert "trains on 7 records" in swept.failed[work[0].label]


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_trained(
    listed, tmp_path, monkeypatch
):
    monkeypatch.setattr(sweep, "train", lambda *_: pytest.fail("it was trained"))
    monkeypatch.setattr(os, "access", lambda path, mode: "results" not in str(path))
    with pytest.raises(ValueError, match="cannot be written to; name another folder"):
        reproduce.reproduce("small", results=tmp_path / "results", runs=tmp_path / "runs")


def test_the_time_is_told_by_the_records_of_runs_like_them(small):
    work = sweep.work_of(small, seeds=2)
    of = {w.settings.method: w for w in work}
    made = [
        {"configuration": of["plain"].settings.to_json(), "seconds": seconds}
        for seconds in (60.0, 120.0, 600.0)
    ]
    assert reproduce.expected(work, []) == ""
    plain = [w for w in work if w.settings.method == "plain"]
    said = reproduce.expected(plain, made)
    assert said.startswith(f"; about {2 * len(plain)} minutes, by")  # the median is two
    said = reproduce.expected(work, made)
    assert f"for all but {len(work) - len(plain)} of them" in said
