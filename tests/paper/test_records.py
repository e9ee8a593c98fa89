"""Records: one a run, by its whole configuration, never across versions, never half written."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path

import pytest

from simplexdp import __version__, methods, runs, training
from simplexdp import settings as settings_module
from simplexdp.paper import identity, records
from simplexdp.paper.report import gather
from simplexdp.runs import folder as folder_module
from simplexdp.settings import Settings

SETTINGS = Settings(data="digits", model="logistic", batch_size=8, steps=20, seed=0)


@pytest.fixture
def finished(tmp_path: Path) -> runs.RunFolder:
    return methods.run(SETTINGS, tmp_path / "run")[1]


def test_a_record_says_what_was_run_and_what_came_out(finished, tmp_path):
    path = records.import_run(finished.path, tmp_path / "results")
    record = json.loads(path.read_text())
    outcome = finished.configuration()["outcome"]
    assert Settings.from_json(record["configuration"]) == SETTINGS
    assert record["accuracy"] == outcome["accuracy"]
    assert record["epsilon"] == outcome["epsilon"] <= 1.0
    assert record["evaluations"][-1] == [20, record["accuracy"]]
    assert record["covers_weights"] is False
    assert record["seconds"] > 0
    assert record["versions"]["simplexdp"] == __version__
    assert record["revision"] == methods.lookup(SETTINGS.method).revision
    assert record["seed"] == 0
    assert "load_digits" in record["provenance"][0]
    assert str(tmp_path) not in path.read_text()  # nothing of where it was run


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_says_on_which_machines_it_was_trained(tmp_path, blobs, monkeypatch, killed, kept):
    """Its seconds are those of all of them; without its checkpoint it begins anew on the last."""
    settings = dataclasses.replace(SETTINGS, data="blobs", model="mlp", epsilon=8.0, steps=60)
    here = runs.machine()
    first = {**here, "threads": here["threads"] + 1}
    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "machine", lambda: first)
        for resume in (False, True):  # the same machine again is not another
            with killed(training, "evaluate"):
                methods.run(settings, tmp_path / "run", resume=resume, dataset=blobs)
    if not kept:
        (tmp_path / "run/checkpoint.safetensors").unlink()
    _, folder = methods.run(settings, tmp_path / "run", resume=True, dataset=blobs)
    record = records.record_of_run(folder)
    assert record["machine"]["threads"] == here["threads"]
    assert record.get("earlier_machines") == ([first] if kept else None)


def test_a_record_is_written_once(finished, tmp_path):
    path = records.import_run(finished.path, tmp_path / "results")
    before = path.stat().st_mtime_ns
    assert records.import_run(finished.path, tmp_path / "results") == path
    assert path.stat().st_mtime_ns == before
    assert len(records.load(tmp_path / "results").records) == 1


def test_a_second_run_without_a_known_seed_is_refused_and_not_dropped(tmp_path):
    unseeded = dataclasses.replace(SETTINGS, seed=None)
    for name in ("one", "other"):
        methods.run(unseeded, tmp_path / name)
    path = records.import_run(tmp_path / "one", tmp_path / "results")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="another result of the same settings; runs without a"):
        records.import_run(tmp_path / "other", tmp_path / "results")
    assert path.read_bytes() == before


def test_the_same_run_again_is_the_same_record(finished, tmp_path):
    """It took other seconds; with another result the seed is not to blame."""
    path = records.import_run(finished.path, tmp_path / "results")
    before = path.read_bytes()
    again = methods.run(SETTINGS, tmp_path / "again")[1]
    assert records.import_run(again.path, tmp_path / "results") == path
    changed = again.configuration()
    changed["outcome"]["accuracy"] = 0.5
    (again.path / runs.CONFIGURATION).write_text(json.dumps(changed))
    with pytest.raises(ValueError, match="and the same seed, perhaps of another machine"):
        records.import_run(again.path, tmp_path / "results")
    assert path.read_bytes() == before


@pytest.mark.parametrize(("norm", "refused"), [("batch", True), ("group", False)])
def test_batch_normalisation_over_shards_is_another_model(norm, refused, tmp_path, monkeypatch):
    settings = dataclasses.replace(SETTINGS, norm=norm)
    folder = methods.run(settings, tmp_path / "run")[1]
    configuration = folder.configuration()
    assert configuration["processes"] == 1
    changed = {**configuration, "processes": 4}
    (folder.path / runs.CONFIGURATION).write_text(json.dumps(changed))
    if refused:
        with pytest.raises(ValueError, match="4 processes with batch normalisation"):
            records.import_run(folder.path, tmp_path / "results")
    else:
        record = json.loads(records.import_run(folder.path, tmp_path / "results").read_text())
        assert record["processes"] == 4


@pytest.mark.parametrize(
    "change",
    [
        {"version": None},
        {"machine": None},
        {"outcome": 5},
        {"outcome": {}},
        {"outcome": {"accuracy": 7.0}},
        {"settings": 1},
        {"processes": "x"},
    ],
)
def test_a_damaged_run_is_named(finished, tmp_path, change):
    whole = finished.configuration()
    if isinstance(change.get("outcome"), dict) and change["outcome"]:
        change = {"outcome": {**whole["outcome"], **change["outcome"]}}
    damaged = {k: v for k, v in {**whole, **change}.items() if v is not None}
    (finished.path / runs.CONFIGURATION).write_text(json.dumps(damaged))
    with pytest.raises(
        ValueError, match=rf"^{finished.path} is not as it was written \(.+\); delete"
    ):
        records.import_run(finished.path, tmp_path / "results")


def test_a_run_of_another_revision_is_not_called_damaged(finished, tmp_path):
    other = finished.configuration()
    other["revision"] = 2
    other["settings"]["momentum"] = 0.9
    (finished.path / runs.CONFIGURATION).write_text(json.dumps(other))
    with pytest.raises(ValueError, match="of revision 2 of dirichlet, left out; this is 1: "):
        records.import_run(finished.path, tmp_path / "results")


def test_a_record_says_what_a_run_breaks_of_its_claim(tmp_path, blobs):
    """But for a known seed, which all records have so that they can be made again."""
    settings = Settings(data="blobs", method="certified", seed=0)
    computed = dataclasses.replace(blobs, computed_from_data=("the bounds of the column age",))
    for name, dataset in (("kept", blobs), ("broken", computed)):
        methods.run(settings, tmp_path / name, dataset=dataset)
    kept, broken = (
        records.record_of_run(runs.RunFolder(tmp_path / name)) for name in ("kept", "broken")
    )
    assert records.BROKEN not in kept
    assert any("the bounds of the column age" in said for said in broken[records.BROKEN])
    (group,) = gather.groups([broken])
    assert group.covers.startswith("nothing: a run breaks an assumption")


@pytest.mark.parametrize(
    "content",
    [
        "1",
        "null",
        '{"zz": 1}',
        '{"method": "plain", "data_options": 5}',
        '{"method": "plain", "zz": 1}',
        '{"method": "plain", "steps": "5"}',
    ],
)
def test_a_record_with_a_damaged_configuration_is_named(tmp_path, content):
    path = tmp_path / "runs" / "digits" / "a.json"
    path.parent.mkdir(parents=True)
    path.write_text(f'{{"key": "a", "revision": 1, "configuration": {content}}}')
    with pytest.raises(ValueError, match=rf"^{path} is not as it was written \(.+\); delete it"):
        records.load(tmp_path)
    path.write_text("[" * 200_000)
    with pytest.raises(ValueError, match=f"^{path} is not valid JSON"):
        records.load(tmp_path)


def test_an_unfinished_run_is_refused(tmp_path):
    runs.RunFolder.create(tmp_path / "run", SETTINGS)
    with pytest.raises(ValueError, match="not finished; go on with it"):
        records.import_run(tmp_path / "run", tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not a run folder"):
        records.import_run(tmp_path, tmp_path / "results")


def test_a_file_in_the_way_of_a_record_is_said(finished, tmp_path):
    """Edited by hand: no run of another revision has this run's key."""
    path = records.import_run(finished.path, tmp_path)
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "revision": 9}))
    with pytest.raises(ValueError, match=r"of revision 9 of .*in the way of this run's record"):
        records.write(record, tmp_path)
    path.write_text("{")
    with pytest.raises(ValueError, match="delete it and reproduce it again"):
        records.write(record, tmp_path)
    assert path.read_text() == "{"


def test_a_damaged_record_of_another_table_does_not_stop_a_sweep(finished, tmp_path):
    path = records.import_run(finished.path, tmp_path)
    (tmp_path / "runs/mnist").mkdir()
    (tmp_path / "runs/mnist/0.json").write_text("{")
    assert [r["key"] for r in records.load(tmp_path, path.parent.name).records] == [path.stem]
    with pytest.raises(ValueError, match=r"mnist/0\.json"):
        records.load(tmp_path)


def test_a_record_of_another_revision_is_left_out_and_said(finished, tmp_path, monkeypatch):
    records.import_run(finished.path, tmp_path / "results")
    monkeypatch.setattr(type(methods.lookup(SETTINGS.method)), "revision", 99)
    loaded = records.load(tmp_path / "results")
    assert loaded.records == ()
    assert "of revision 1 of dirichlet, left out; this is 99" in loaded.left_out[0]
    with pytest.raises(ValueError, match="of revision 1 of dirichlet, left out; this is 99"):
        records.import_run(finished.path, tmp_path / "other")


def test_another_version_of_the_package_finds_all_records(monkeypatch):
    """Of the repository's own results; the version is said of each and decides nothing."""
    results = Path(__file__).parents[2] / "results"
    there = len(list((results / "runs").glob("*/*.json")))
    for module in [m for name, m in sys.modules.items() if name.startswith("simplexdp")]:
        if hasattr(module, "__version__"):
            monkeypatch.setattr(module, "__version__", "99.0")
    found = records.load(results)
    assert (len(found.records), found.left_out) == (there, ())
    assert there > 300


def test_a_record_imports_no_code_that_it_names(finished, tmp_path, monkeypatch):
    """A method of somebody's own is taken at the revision that the record tells."""
    configuration = dataclasses.replace(SETTINGS, method="no_such_package:METHOD")
    record = records.record_of_run(finished) | {
        "configuration": configuration.to_json(),
        "key": identity.key(configuration, 3),
        "revision": 3,
    }
    records.write(record, tmp_path)
    assert [r["key"] for r in records.load(tmp_path).records] == [record["key"]]


def test_a_record_edited_by_hand_is_refused(finished, tmp_path):
    path = records.import_run(finished.path, tmp_path / "results")
    whole = json.loads(path.read_text())
    record = json.loads(path.read_text())
    record["configuration"]["epsilon"] = 0.5
    path.write_text(json.dumps(record))
    with pytest.raises(ValueError, match="edited by hand"):
        records.load(tmp_path / "results")
    for change in ({"accuracy": 0.9999}, {"accuracy": "high"}, {"note": "more"}):
        edited = {**json.loads(json.dumps(whole)), **change}
        path.write_text(json.dumps(edited))
        with pytest.raises(ValueError, match="not as it was written"):
            records.load(tmp_path / "results")
    path.write_text(json.dumps({k: v for k, v in whole.items() if k != "seconds"}))
    with pytest.raises(ValueError, match="not as it was written"):
        records.load(tmp_path / "results")
    path.write_text(json.dumps(whole))  # laid out otherwise, and the same
    assert records.load(tmp_path / "results").records == (whole,)
    path.write_text("{")
    with pytest.raises(ValueError, match="not valid JSON"):
        records.load(tmp_path / "results")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon", 2.0),
        ("lr", 0.1),
        ("seed", 1),
        ("steps", 21),
        ("accountant", "pld"),
        ("norm", "none"),
        ("options", {"clip": 1.0}),
    ],
)
def test_other_settings_have_another_key(field, value):
    other = dataclasses.replace(SETTINGS, **{field: value})
    assert identity.key(other) != identity.key(SETTINGS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("device", "cuda"),
        ("threads", 2),
        ("workers", 3),
        ("data_options", {"data_dir": "/data"}),
        ("data_options", {"allow_unverified": True}),  # digits have no files
    ],
)
def test_where_it_runs_does_not_change_the_key(field, value):
    other = dataclasses.replace(SETTINGS, **{field: value})
    assert identity.key(other) == identity.key(SETTINGS)
    assert identity.cell(other) == identity.cell(SETTINGS)


def test_another_revision_has_another_key():
    assert identity.key(SETTINGS, 1) != identity.key(SETTINGS, 2)


def test_a_setting_that_is_new_and_not_given_changes_no_key(monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class More(Settings):
        novelty: int = 5

    monkeypatch.setattr(settings_module, "_USUAL", More().to_json())
    assert More(seed=0, steps=7).key(1) == Settings(seed=0, steps=7).key(1)
    assert More(seed=0, novelty=6).key(1) != Settings(seed=0).key(1)


def test_training_without_privacy_has_no_budget():
    plain = dataclasses.replace(SETTINGS, method="plain")
    endless = dataclasses.replace(plain, epsilon=math.inf, delta=1e-3)
    assert identity.key(plain) == identity.key(endless)
    assert identity.canonical(plain).epsilon == math.inf


def test_leave_to_take_unverified_files_counts_where_there_are_some():
    """So that the tables of several data sets find what is there with and without it."""
    for name, differs in (("dermamnist", True), ("mnist", False), ("own.csv", False)):
        plain = dataclasses.replace(SETTINGS, data=name)
        allowed = dataclasses.replace(plain, data_options={"allow_unverified": True})
        assert (identity.key(plain) != identity.key(allowed)) is differs


def test_a_cell_asks_for_no_seed_and_no_copy_of_the_data():
    other = dataclasses.replace(SETTINGS, seed=7, data_options={"allow_unverified": True})
    assert identity.cell(other) == identity.cell(SETTINGS)
    assert identity.cell(dataclasses.replace(SETTINGS, lr=0.1)) != identity.cell(SETTINGS)
