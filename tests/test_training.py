"""The loop: resume repeats exactly, steps are counted once, workers change nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from simplexdp import data, methods, runs, training
from simplexdp.ledger import Ledger
from simplexdp.runs import checkpoint
from simplexdp.settings import Settings

SETTINGS = Settings(
    data="blobs", method="dirichlet", model="mlp", epsilon=8.0, batch_size=3, steps=60, seed=4
)


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([value.detach().double().flatten() for value in model.state_dict().values()])


@pytest.mark.parametrize("lost", [False, True])
def test_what_is_measured_again_is_kept_once(tmp_path, blobs, monkeypatch, killed, lost):
    """A kill after the last evaluation, with the checkpoint of the last step or with none."""
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    whole, folder = methods.run(SETTINGS, tmp_path / "whole", dataset=blobs)
    with killed(runs.RunFolder, "save_model"):
        methods.run(SETTINGS, tmp_path / "cut", dataset=blobs)
    if lost:
        (tmp_path / "cut" / runs.CHECKPOINT).unlink()
    cut, resumed = methods.run(SETTINGS, tmp_path / "cut", resume=True, dataset=blobs)
    assert [m["step"] for m in resumed.metrics()] == [m["step"] for m in folder.metrics()]
    assert cut.accuracy == whole.accuracy


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize("stop_at", [1, 23, 59])
def test_resume_gives_the_same_weights(tmp_path, blobs, monkeypatch, killed, optimizer, stop_at):
    settings = dataclasses.replace(SETTINGS, optimizer=optimizer)
    whole, _ = methods.run(settings, tmp_path / "whole", dataset=blobs)
    monkeypatch.setattr(training, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    with killed(training, "_save", lambda job, run, step, _: step == stop_at, after=True):
        methods.run(settings, tmp_path / "cut", dataset=blobs)
    assert checkpoint.read(tmp_path / "cut/checkpoint.safetensors", settings.key(1))
    cut, folder = methods.run(settings, tmp_path / "cut", resume=True, dataset=blobs)
    assert torch.equal(weights(whole.model), weights(cut.model))
    assert [m["step"] for m in folder.metrics()] == sorted({m["step"] for m in folder.metrics()})
    assert cut.statement == whole.statement
    assert not folder.checkpoint.exists()  # it holds the seed


def test_kill_minus_nine_and_resume(tmp_path):
    """A real process, really killed, in the middle of training on the digits."""
    arguments = ["train", "--steps", "2500", "--batch-size", "8", "--seed", "3", "--quiet"]
    ledger = str(tmp_path / "ledger.jsonl")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SIMPLEXDP_LEDGER": ledger}
    begin = [
        sys.executable,
        "-c",
        "from simplexdp import training; training.SECONDS_BETWEEN_CHECKPOINTS = 0.2\n"
        "from simplexdp.cli import main; main()",
    ]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run([*begin, *arguments, "--out", str(whole)], env=environment, check=True)
    process = subprocess.Popen([*begin, *arguments, "--out", str(cut)], env=environment)
    try:
        deadline = time.monotonic() + 120
        while not _step(cut) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert 0 < _step(cut) < 2500, "the process ended before it could be killed"
    resume = ["train", "--resume", "--out", str(cut), "--quiet"]
    subprocess.run([*begin, *resume], env=environment, check=True)
    assert (whole / "model.safetensors").read_bytes() == (cut / "model.safetensors").read_bytes()
    assert runs.RunFolder(cut).metrics()[-1]["step"] == 2500
    assert len(Ledger(ledger).entries("digits")) == 2  # the resumed run is counted once


def _step(folder: Path) -> int:
    path = folder / "checkpoint.safetensors"
    try:
        key = runs.RunFolder(folder).settings().key(1)
        return checkpoint.read(path, key).step
    except FileNotFoundError:
        return 0  # not begun, or finished since


def test_an_unfinished_run_keeps_its_secret_seed(tmp_path, blobs, killed):
    settings = dataclasses.replace(SETTINGS, seed=None)
    with killed(training, "evaluate"):
        methods.run(settings, tmp_path / "run", dataset=blobs)
    saved = checkpoint.read(tmp_path / "run/checkpoint.safetensors", settings.key(1))
    assert saved.seed.bit_length() > 64
    assert (tmp_path / "run/checkpoint.safetensors").stat().st_mode & 0o077 == 0
    assert str(saved.seed) not in (tmp_path / "run/run.json").read_text()


def test_the_same_seed_gives_the_same_weights_and_another_does_not(blobs):
    first, again = (methods.train(SETTINGS, blobs) for _ in range(2))
    other = methods.train(dataclasses.replace(SETTINGS, seed=5), blobs)
    assert torch.equal(weights(first.model), weights(again.model))
    assert not torch.equal(weights(first.model), weights(other.model))


def test_worker_threads_change_nothing(blobs):
    alone = methods.train(SETTINGS, blobs)
    helped = methods.train(dataclasses.replace(SETTINGS, workers=2), blobs)
    assert torch.equal(weights(alone.model), weights(helped.model))


def test_a_damaged_checkpoint_is_refused(tmp_path, blobs, killed):
    with killed(training, "evaluate"):
        methods.run(SETTINGS, tmp_path / "run", dataset=blobs)
    path = tmp_path / "run/checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged"):
        methods.run(SETTINGS, tmp_path / "run", resume=True, dataset=blobs)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path, blobs, killed):
    with killed(training, "evaluate"):
        methods.run(SETTINGS, tmp_path / "run", dataset=blobs)
    other = dataclasses.replace(SETTINGS, epsilon=2.0)
    with pytest.raises(ValueError, match="other settings"):
        methods.run(other, tmp_path / "run", resume=True, dataset=blobs)


@pytest.mark.parametrize("changed", ["a value", "a label", "a record less"])
def test_a_run_does_not_go_on_with_other_records(tmp_path, blobs, killed, changed):
    with killed(training, "evaluate"):
        methods.run(SETTINGS, tmp_path / "run", dataset=blobs)
    inputs, labels = blobs.train.inputs.copy(), blobs.train.labels.copy()
    if changed == "a value":
        inputs[-1, 0] += 1
    elif changed == "a label":
        labels[-1] = (labels[-1] + 1) % blobs.classes
    else:
        inputs, labels = inputs[:-1], labels[:-1]
    other = dataclasses.replace(blobs, train=data.Split(inputs, labels))
    with pytest.raises(ValueError, match=r"not those that .* began with"):
        methods.run(SETTINGS, tmp_path / "run", resume=True, dataset=other)
    methods.run(SETTINGS, tmp_path / "run", resume=True, dataset=blobs)


def test_the_fingerprint_is_of_values_and_keyed_by_the_seed():
    rows = np.arange(30_000, dtype=np.float32).reshape(10_000, 3)
    found = checkpoint.fingerprint_of(7, rows)
    assert checkpoint.fingerprint_of(7, np.asfortranarray(rows)) == found  # not of the layout
    assert checkpoint.fingerprint_of(8, rows) != found
    assert checkpoint.fingerprint_of(7, rows.reshape(3, 10_000)) != found


@pytest.mark.parametrize(
    ("method", "ignored"),
    [
        ("certified", {"optimizer": "adam"}),
        ("certified", {"norm": "batch"}),
        ("certified", {"accountant": "pld"}),
        ("dpsgd", {"alpha": 5.0}),
        ("gaussian-features", {"estimator": "full"}),
        ("plain", {"accountant": "exact"}),
    ],
)
def test_a_setting_without_effect_is_refused(tmp_path, blobs, method, ignored):
    (name,) = ignored
    with pytest.raises(ValueError, match=f"{method} has no use for --{name}"):
        methods.run(Settings(method=method, **ignored), tmp_path / "run", dataset=blobs)
    assert not (tmp_path / "run").exists()


def coupled(input_shape, classes):
    """A network of the user's own that mixes the records of a batch where no layer shows it."""

    class Mixed(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x - x.mean(0))

    return Mixed(input_shape[0], classes)


def apart(input_shape, classes):
    return torch.nn.Linear(input_shape[0], classes)


@pytest.mark.parametrize(("factory", "holds"), [("coupled", False), ("apart", None), ("", True)])
def test_whether_records_are_apart_is_said_as_far_as_it_is_known(
    tmp_path, blobs, monkeypatch, factory, holds
):
    own = types.ModuleType("own_networks")
    own.coupled, own.apart = coupled, apart
    monkeypatch.setitem(sys.modules, "own_networks", own)
    name = f"own_networks:{factory}" if factory else "mlp"
    settings = dataclasses.replace(SETTINGS, model=name, steps=3)
    statement = methods.train(settings, blobs).statement
    (found,) = [a for a in statement.assumptions if "other records" in a.text]
    assert found.holds is holds


@pytest.mark.parametrize(("split", "words"), [("train", "training"), ("test", "test")])
def test_nan_in_the_inputs_is_refused_without_showing_them(blobs, split, words):
    getattr(blobs, split).inputs[:, 2] = np.nan
    with pytest.raises(ValueError, match=f"the {words} inputs hold NaN"):
        methods.train(SETTINGS, blobs)


@pytest.mark.parametrize(
    "change", [{"epsilon": "1"}, {"epsilon": None}, {"steps": "5"}, {"data": 5}, {"augment": None}]
)
def test_settings_that_were_edited_into_nonsense_are_refused(change):
    with pytest.raises(ValueError, match="damaged or was edited"):
        Settings.from_json({**SETTINGS.to_json(), **change})


@pytest.mark.parametrize(("optimizer", "lr"), [("sgd", 0.08), ("momentum", 0.008), ("adam", 0.001)])
def test_the_rate_of_plain_training_is_that_of_its_optimizer(blobs, optimizer, lr):
    settings = dataclasses.replace(SETTINGS, method="plain", optimizer=optimizer, lr=None, steps=1)
    outcome = methods.train(settings, blobs)
    assert outcome.chosen["lr"] == pytest.approx(lr)


def test_plain_training_learns_and_claims_nothing(blobs):
    settings = dataclasses.replace(SETTINGS, method="plain", steps=300, batch_size=10)
    outcome = methods.train(settings, blobs)
    assert outcome.accuracy > 0.8
    assert outcome.statement.epsilon is None
    assert "No privacy guarantee" in outcome.statement.headline()


@pytest.mark.parametrize(
    ("augment", "message"),
    [(("bogus",), "no augmentation 'bogus'"), (("random_crop",), "need images")],
)
@pytest.mark.parametrize("method", ["dirichlet", "dpsgd", "plain"])
def test_an_augmentation_that_cannot_be_done_spends_nothing(
    tmp_path, blobs, method, augment, message
):
    book = Ledger(tmp_path / "ledger.jsonl")
    settings = dataclasses.replace(SETTINGS, method=method, augment=augment)
    with pytest.raises(ValueError, match=message):
        methods.run(settings, tmp_path / "run", dataset=blobs, ledger=book)
    assert not list(tmp_path.rglob("*"))


def test_a_training_that_diverges_says_so(tmp_path, blobs, capsys):
    settings = dataclasses.replace(SETTINGS, method="plain", lr=1e30)
    _, folder = methods.run(settings, tmp_path / "run", dataset=blobs)
    assert "the training diverged" in capsys.readouterr().err
    strict = [
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
        for line in (folder.path / "metrics.jsonl").read_text().splitlines()
    ]
    assert strict[-1]["loss"] is None
    methods.run(SETTINGS, tmp_path / "other", dataset=blobs)
    assert capsys.readouterr().err == ""


def test_a_model_that_knows_one_class_says_so(tmp_path, blobs, capsys):
    only = dataclasses.replace(
        blobs, train=data.Split(blobs.train.inputs, np.zeros_like(blobs.train.labels))
    )
    settings = dataclasses.replace(SETTINGS, method="plain", lr=0.5)
    outcome, _ = methods.run(settings, tmp_path / "run", dataset=only)
    assert outcome.accuracy == pytest.approx(1 / 3)
    said = capsys.readouterr().err
    assert "the model gives every test record the same class" in said
    assert "class_weights=balanced" in said
    by_rule = dataclasses.replace(SETTINGS, options={"warmup": 0})
    methods.run(by_rule, tmp_path / "at once", dataset=only)
    assert "class_weights=balanced" in capsys.readouterr().err.splitlines()[-1]
    methods.train(settings, only)  # as where a few steps are timed
    assert capsys.readouterr().err == ""


def test_a_model_that_loses_a_class_names_it(tmp_path, blobs, capsys):
    """Trained on two of three classes, it cannot give the third, which the test set has."""
    names = ("cat", "dog", "owl")
    two = np.flatnonzero(blobs.train.labels != 1)
    split = data.Split(blobs.train.inputs[two], blobs.train.labels[two])
    without = dataclasses.replace(blobs, train=split, class_names=names)
    settings = dataclasses.replace(SETTINGS, method="plain", lr=0.5)
    methods.run(settings, tmp_path / "run", dataset=without)
    said = capsys.readouterr().err
    assert "never predicts 1 of the 3 classes, of which there are test records (dog)" in said
    assert "class_weights=balanced" in said  # none and 100 records: they differ in size
    seen = np.flatnonzero(blobs.test.labels != 1)
    tested = data.Split(blobs.test.inputs[seen], blobs.test.labels[seen])
    methods.run(settings, tmp_path / "unseen", dataset=dataclasses.replace(without, test=tested))
    assert capsys.readouterr().err == ""


def test_rare_classes_are_named_before_anything_is_spent(tmp_path, blobs, capsys):
    """300 records with 100 of each class; of the third, 10 are left, and then 11."""
    for rare, warned in ((10, True), (11, False)):
        kept = np.flatnonzero((blobs.train.labels < 2) | (np.arange(300) < 3 * rare))
        split = data.Split(blobs.train.inputs[kept], blobs.train.labels[kept])
        lopsided = dataclasses.replace(blobs, train=split)
        methods.run(SETTINGS, tmp_path / f"{rare}", dataset=lopsided)
        assert ("the classes have 10 to 100 records" in capsys.readouterr().err) is warned
        weighted = dataclasses.replace(SETTINGS, options={"class_weights": "balanced"})
        methods.run(weighted, tmp_path / f"{rare}w", dataset=lopsided)
        assert "the classes have" not in capsys.readouterr().err


def test_the_kernels_of_all_batch_sizes_are_kept():
    """Read when torch loads, so that it is set before; ratios are in benchmarks/speed.py."""
    assert int(os.environ["ONEDNN_PRIMITIVE_CACHE_CAPACITY"]) >= 8192


FAULTS = """
import contextlib, resource
import numpy as np
from simplexdp import heap

def faults(around):
    with around:
        for _ in range(8):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            blocks = [np.ones(1_500_000) for _ in range(4)]
            del blocks
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults(contextlib.nullcontext()), faults(heap.kept()))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left alone")
def test_a_step_does_not_ask_for_the_memory_of_the_one_before_again():
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    done = [
        subprocess.run([sys.executable, "-c", FAULTS], env=env, capture_output=True, check=True)
        for env in (clean, {**clean, "MALLOC_TOP_PAD_": "1"})
    ]
    (usual, kept), (_, left_alone) = [[int(n) for n in of.stdout.split()] for of in done]
    assert kept < usual / 10
    assert left_alone > usual / 2  # where the environment says how malloc behaves
