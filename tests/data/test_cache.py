from __future__ import annotations

import dataclasses
import json
import multiprocessing
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_data as made
import numpy as np
import pytest

from simplexdp import data
from simplexdp.data import cache, registry

PATIENCE = 60.0


@pytest.fixture
def fetched(cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The made set in the cache; gives the folder it lies in."""
    monkeypatch.setitem(registry.RECORDS, "made", made.made_record())
    data.fetch("made", data_dir=made.write_files(tmp_path / "files", made.gz_files()))
    return cache_dir / "datasets" / "made"


def test_the_cached_set_is_plain_memory_mapped_arrays(fetched: Path) -> None:
    dataset = data.load("made")
    assert np.array_equal(dataset.train.inputs[:, 0], made.images(12, 1))
    assert isinstance(dataset.train.inputs.base, np.memmap)
    assert not dataset.train.inputs.flags.writeable
    assert np.array_equal(np.load(fetched / "train_inputs.npy")[:, 0], made.images(12, 1))
    assert dataset.provenance == ("Made images: the made idx files, checksums verified",)


def test_load_does_not_need_the_source_again(fetched: Path, tmp_path: Path) -> None:
    for file in (tmp_path / "files").iterdir():
        file.unlink()
    assert len(data.load("made").train) == 12


def flip_last_byte(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(bytes(raw))


def test_check_finds_one_changed_byte(fetched: Path) -> None:
    assert data.check("made")["checked"] == "every array matches its sha256"
    flip_last_byte(fetched / "train_inputs.npy")
    with pytest.raises(ValueError, match=r"train_inputs\.npy does not match its sha256"):
        data.check("made")


def test_check_holds_the_cache_to_the_known_content(
    fetched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed array whose manifest was changed with it is still found."""
    digest = cache.array_digest(made.images(12, 1)[:, None])
    record = dataclasses.replace(made.made_record(), content={"train_inputs": digest})
    monkeypatch.setitem(registry.RECORDS, "made", record)
    data.check("made")
    flip_last_byte(fetched / "train_inputs.npy")
    manifest = json.loads((fetched / "manifest.json").read_text())
    array = np.load(fetched / "train_inputs.npy")
    manifest["arrays"]["train_inputs"]["sha256"] = cache.array_digest(array)
    (fetched / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="content checksum"):
        data.check("made")


@pytest.mark.parametrize("damage", ["truncate", "remove", "manifest", "format"])
def test_a_damaged_copy_is_refused_and_force_mends_it(
    fetched: Path, tmp_path: Path, damage: str
) -> None:
    target = fetched / "train_inputs.npy"
    if damage == "truncate":
        target.write_bytes(target.read_bytes()[:-3])
    elif damage == "remove":
        target.unlink()
    else:
        (fetched / "manifest.json").write_text("{" if damage == "manifest" else "{}")
    with pytest.raises(ValueError, match=r"is damaged .*--force"):
        data.load("made")
    assert data.describe("made")["status"] == "damaged"
    data.fetch("made", data_dir=tmp_path / "files", force=True)
    assert len(data.load("made").train) == 12
    assert [p.name for p in fetched.parent.iterdir() if "partial" in p.name] == []


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def child(mode: str, folder: Path) -> None:
    """Fetches the made set in a forked process, with the store slowed down or stuck."""
    store, write = cache.store, cache._write_array

    def logged_store(*args: Any) -> cache.Entry:
        with (folder / "log").open("a") as log:
            log.write(mode + "\n")
        if mode == "first":
            (folder / "inside").touch()
            wait_for((folder / "second-started").exists)
            time.sleep(0.3)
        return store(*args)

    def stuck_write(path: Path, array: np.ndarray) -> dict[str, Any]:
        facts = write(path, array)
        if path.name == "test_inputs.npy":
            (folder / "inside").touch()
            time.sleep(PATIENCE)
        return facts

    cache.store = logged_store
    if mode == "killed":
        cache._write_array = stuck_write
    (folder / f"{mode}-started").touch()
    data.fetch("made", data_dir=folder / "files")
    (folder / f"{mode}-records").write_text(str(len(data.load("made").train)))


def start(mode: str, folder: Path) -> Any:
    process = multiprocessing.get_context("fork").Process(target=child, args=(mode, folder))
    process.start()
    return process


@pytest.fixture
def files(cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The made set's files, not yet fetched, and its record."""
    monkeypatch.setitem(registry.RECORDS, "made", made.made_record())
    return made.write_files(tmp_path / "files", made.gz_files())


def test_two_processes_at_once_give_one_result(files: Path, tmp_path: Path) -> None:
    first = start("first", tmp_path)
    wait_for((tmp_path / "inside").exists)
    second = start("second", tmp_path)
    for process in (first, second):
        process.join(PATIENCE)
        assert process.exitcode == 0
    assert [(tmp_path / f"{n}-records").read_text() for n in ("first", "second")] == ["12", "12"]
    assert (tmp_path / "log").read_text() == "first\n", "the second waited and found it done"


def test_a_kill_in_the_middle_leaves_nothing_that_loads(
    files: Path, cache_dir: Path, tmp_path: Path
) -> None:
    process = start("killed", tmp_path)
    wait_for((tmp_path / "inside").exists)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    base = cache_dir / "datasets"
    assert [p.name for p in base.iterdir() if "partial" in p.name], "killed while writing"
    assert not data.present("made")
    assert data.describe("made")["status"] == "not present"
    data.fetch("made", data_dir=files)
    assert data.check("made")["checked"] == "every array matches its sha256"
    assert [p.name for p in base.iterdir() if "partial" in p.name] == []
