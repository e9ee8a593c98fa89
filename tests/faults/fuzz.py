"""What people and damaged disks may hand in, made up at random: no trace, no hang, no ε too large.

`TARGETS` are functions of hypothesis' `data`. Each draws an input, hands it in, and fails where
anything else comes out than a result or a sentence (`ValueError`, `TypeError`, `OSError`).
tests/faults/test_fuzz.py runs a few cases of each; benchmarks/fuzz.py runs and counts many.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from hypothesis import strategies as st
from PIL import Image

from simplexdp import (
    CertifiedClassifier,
    Plan,
    accounting,
    cli,
    data,
    load_model,
    methods,
    runs,
    seal,
    statement,
    training,
)
from simplexdp.accounting import events
from simplexdp.data import readers
from simplexdp.ledger import Ledger
from simplexdp.settings import Settings

SECONDS = 20
EVIL = ["", " ", "-", "--", "nan", "inf", "-1", "0", "1e400", "1" * 400, "\x1b[2J", "a\u202eb",
        "[" * 9000, "x=" + "{" * 50, "../..", "a:b", ":", "x:", ":x", "os:system", "é", "\ud800",
        "none", "auto", "0x10", "1_000", "٣", "true", "null", "a,b,,c", "=", "x=0:1", "x=1:0",
        "28x28x1", "9" * 30, "~nosuchuser/x", "/dev/null", "."]  # fmt: skip
NUMBERS = st.one_of(
    st.integers(-5, 5), st.floats(), st.sampled_from([10**400, -(10**400), 2**63, 1e308, 5e-324])
)
ANY = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=9), st.sampled_from(EVIL)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Fail where it takes 20 seconds."""

    def ring(*_: Any) -> None:
        raise AssertionError(f"it takes more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def sentence(work: Callable[[], Any]) -> Any:
    """Return what the work gives, or None where it is refused in a sentence."""
    with limited(), contextlib.redirect_stderr(io.StringIO()):
        try:
            return work()
        except (ValueError, TypeError, OSError):
            return None


@functools.cache
def folder() -> Path:
    return Path(tempfile.mkdtemp())


@functools.cache
def finished() -> Path:
    """Return a run that is finished, and beside it one that is not."""
    from campaign import BLOBS, TRAININGS

    home = folder()
    settings = TRAININGS["plain"]
    with contextlib.redirect_stderr(io.StringIO()):
        methods.run(settings, home / "whole", dataset=BLOBS)
        asked, usual = iter([False, True]), training.SECONDS_BETWEEN_CHECKPOINTS
        training.SECONDS_BETWEEN_CHECKPOINTS = -1.0
        try:
            with contextlib.suppress(training.OutOfTime):
                methods.run(settings, home / "begun", dataset=BLOBS, stop=lambda: next(asked))
        finally:
            training.SECONDS_BETWEEN_CHECKPOINTS = usual
    return home / "whole"


def mutated(draw: Any, content: bytes) -> bytes:
    """Return content with a few bytes cut, put in, turned over or repeated."""
    changed = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(changed) - 1)))
        kind = draw(st.sampled_from(["flip", "cut", "put", "drop", "again", "number"]))
        if kind == "flip" and changed:
            changed[at] ^= draw(st.integers(1, 255))
        elif kind == "cut":
            del changed[at:]
        elif kind == "put":
            changed[at:at] = draw(st.binary(max_size=8))
        elif kind == "drop":
            del changed[at : at + draw(st.integers(1, 40))]
        elif kind == "again":
            changed[at:at] = changed[at : at + 60]
        else:
            changed[at : at + 8] = draw(st.sampled_from([b"\xff" * 8, b"\x00" * 8, b"99999999"]))
    return bytes(changed)


def edited(draw: Any, record: Any) -> Any:
    """Return a JSON value with one place in it replaced, removed or added."""
    if isinstance(record, dict) and record and draw(st.integers(0, 5)):
        name = draw(st.sampled_from(sorted(record)))
        kind = draw(st.integers(0, 8))
        if kind == 0:
            return {k: v for k, v in record.items() if k != name}
        if kind == 1:
            return {**record, draw(st.text(max_size=5)): draw(ANY)}
        return {**record, name: edited(draw, record[name])}
    if isinstance(record, list) and record and draw(st.integers(0, 3)):
        at = draw(st.integers(0, len(record) - 1))
        return [*record[:at], edited(draw, record[at]), *record[at + 1 :]]
    return draw(ANY)


def put(draw: Any, path: Path, original: bytes) -> None:
    """Write a damaged version of a file: as JSON where it is that, or byte by byte."""
    if path.suffix == ".json" and draw(st.booleans()):
        path.write_text(json.dumps(edited(draw, json.loads(original))))
    else:
        path.write_bytes(mutated(draw, original))


# The targets.


def constructors(draw: Any) -> None:
    """Settings, plans, classifiers and calibrations of any arguments."""
    kind = draw(st.sampled_from(["settings", "plan", "classifier", "calibrate", "options"]))
    if kind == "settings":
        names = draw(st.lists(st.sampled_from(sorted(Settings.__dataclass_fields__)), max_size=4))
        given = {name: draw(ANY) for name in names}
        sentence(lambda: Settings(**given))
        sentence(lambda: Settings.from_json(given))
    elif kind == "options":
        method = draw(st.sampled_from(methods.names()))
        options = {"clip": draw(ANY), draw(st.text(max_size=4)): draw(ANY)}
        options = {k: options[k] for k in draw(st.lists(st.sampled_from(sorted(options))))}
        sentence(lambda: methods.lookup(method).options(Settings(method=method, options=options)))
    elif kind == "plan":
        usual = {"epsilon": 1.0, "delta": 1e-5, "records": 1000, "batch_size": 4, "steps": 10}
        usual |= {"alpha": 3.0, "accountant": "theorem1", "estimator": "marginal", "seed": 1}
        changed = draw(st.lists(st.sampled_from(sorted(usual)), max_size=2))
        given = {**usual, **{name: draw(st.one_of(NUMBERS, ANY)) for name in changed}}
        plan = sentence(lambda: Plan(**given))
        if plan is not None:
            assert plan.epsilon <= given["epsilon"]
    elif kind == "classifier":
        names = ("epsilon", "delta", "bounds", "steps", "clip", "random_state", "features")
        given = {name: draw(ANY) for name in draw(st.lists(st.sampled_from(names), max_size=2))}
        rng = np.random.default_rng(0)
        rows, labels = rng.random((30, 4)), np.arange(30) % 2
        sentence(lambda: CertifiedClassifier(**{"bounds": (0, 1), **given}).fit(rows, labels))
    else:
        given = {"epsilon": 1.0, "delta": 1e-5, "alpha": 3.0, "sample_rate": 0.01, "steps": 100}
        for name in draw(st.lists(st.sampled_from(sorted(given)), max_size=2)):
            given[name] = draw(NUMBERS)
        accountant = draw(st.sampled_from(["theorem1", "visible"]))
        found = sentence(lambda: accounting.calibrate(accountant, **given))
        if found is not None:
            assert found.epsilon <= given["epsilon"]


@functools.cache
def samples() -> dict[str, bytes]:
    """Return a small right file of each format that is read."""
    home = folder() / "samples"
    home.mkdir(exist_ok=True)
    rows = np.arange(24, dtype=np.uint8)
    np.savez(home / "d.npz", X=rows.reshape(8, 3), y=rows[:8] % 2)
    (home / "t.csv").write_text("a,b,y\n" + "".join(f"{k},{k % 3},{k % 2}\n" for k in range(12)))
    table = pa.table({"a": list(range(12)), "y": [str(k % 2) for k in range(12)]})
    pyarrow.parquet.write_table(table, home / "t.parquet")
    (home / "s.json").write_text(
        '{"label": "y", "columns": {"a": {"bounds": [0, 12]}, "b": {"categories": ["0", "1"]}}}'
    )
    for kind in ("png", "jpg"):
        Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(home / f"i.{kind}")
    return {path.name: path.read_bytes() for path in sorted(home.iterdir())}


def reading(draw: Any) -> None:
    """Files of every format, damaged."""
    name = draw(st.sampled_from(sorted(samples())))
    path = folder() / f"damaged-{name}"
    put(draw, path, samples()[name])
    public = {"label": "y", "public_columns": "*"}
    if name == "d.npz":
        sentence(lambda: data.load(path))
        sentence(lambda: data.read_inputs(path))
    elif name.startswith("t."):
        sentence(lambda: data.load(path, **public))
    elif name == "s.json":
        table = folder() / "samples" / "t.csv"
        sentence(lambda: data.load(table, schema=path))
    else:
        sentence(lambda: data.read_inputs(path, image_size="8x8x1"))


def known_formats(draw: Any) -> None:
    """Parsers of the known data sets, on anything."""
    content = draw(
        st.one_of(st.binary(max_size=64), st.binary(max_size=8).map(b"\0\0\x08".__add__))
    )
    parse = draw(
        st.sampled_from([readers.parse_idx, readers.parse_cifar_bin, readers.parse_cifar_py])
    )
    sentence(lambda: parse(content, "file"))


def loading(draw: Any) -> None:
    """A model's folder, with one of its files damaged."""
    whole, copy = finished(), folder() / "bundle"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy)
    there = [one for one in seal.HANDED_OUT if (whole / one).exists()]
    name = draw(st.sampled_from(there))
    put(draw, copy / name, (whole / name).read_bytes())
    loaded = sentence(lambda: load_model(copy))
    if loaded is not None:
        sentence(lambda: loaded.predict(np.zeros((2, *loaded.input_shape), dtype=np.float32)))


def resuming(draw: Any) -> None:
    """An unfinished run, with one of its files damaged."""
    from campaign import BLOBS

    finished()
    begun, copy = folder() / "begun", folder() / "resumed"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(begun, copy)
    name = draw(st.sampled_from(sorted(path.name for path in begun.iterdir())))
    put(draw, copy / name, (begun / name).read_bytes())

    def resume() -> None:
        settings = runs.RunFolder.open(copy).settings()
        if settings.code():
            return
        methods.run(settings, copy, resume=True, dataset=BLOBS)

    sentence(resume)


@functools.cache
def book() -> bytes:
    path = folder() / "book.jsonl"
    kept = Ledger(path)
    kept.set_budget("blobs", 2.0, 1e-5)
    kept.reserve("blobs", "mine", events.gaussian(noise_multiplier=5.0), "r", "weights", run_id="r")
    return path.read_bytes()


def ledgers(draw: Any) -> None:
    """A damaged ledger is refused, or its total is not smaller than what whole lines say."""
    path = folder() / "damaged.jsonl"
    lines = book().splitlines()
    if draw(st.booleans()):
        at = draw(st.integers(0, len(lines) - 1))
        lines = [
            *lines[:at],
            json.dumps(edited(draw, json.loads(lines[at]))).encode(),
            *lines[at + 1 :],
        ]
        path.write_bytes(b"\n".join(lines) + b"\n")
    else:
        path.write_bytes(mutated(draw, book()))
    kept = Ledger(path)
    spent = sentence(lambda: kept.spent("blobs", 1e-5))
    if spent is not None:
        assert not math.isnan(spent.together)
        assert spent.together >= 0
    event = events.gaussian(noise_multiplier=draw(st.sampled_from([1.0, 5.0, 50.0])))
    if sentence(lambda: kept.reserve("blobs", "mine", event, "s", "weights")) is not None:
        budget = kept.budget("blobs")
        assert budget is None or kept.spent("blobs", budget[1]).together <= budget[0]


def statements(draw: Any) -> None:
    """An edited statement is refused, or can be shown."""
    record = json.loads((finished() / "statement.json").read_text())
    changed = edited(draw, record)
    found = sentence(lambda: statement.from_json(changed))
    if found is not None:
        sentence(lambda: (found.to_markdown(), found.headline(), found.to_json()))


OPTIONS = [
    "--epsilon", "--delta", "--alpha", "--sample-rate", "--steps", "--r", "--accountant", "--json",
    "--data", "--label", "--bounds", "--categories", "--schema", "--option", "--method", "--model",
    "--lr", "--batch-size", "--out", "--resume", "--ledger", "--results", "--run", "--help",
    "--image-size", "--test-fraction", "--device", "--threads", "--augment", "--recipe", "--quiet",
]  # fmt: skip
COMMANDS = [
    ["calibrate"], ["account"], ["train"], ["data", "check"], ["data", "fetch"], ["methods"],
    ["ledger"], ["ledger", "show"], ["audit"], ["compare"], ["report"], ["reproduce"], [],
    ["nothing"],
]  # fmt: skip


def command_lines(draw: Any) -> None:
    """A command with any options: exit code 0, or 2 with one line."""
    home = folder() / "here"
    home.mkdir(exist_ok=True)
    words = list(draw(st.sampled_from(COMMANDS)))
    if words in (["train"], ["audit"], ["compare"]):  # nothing is trained here
        words += ["--data", "nowhere.csv"]
    for option in draw(st.lists(st.sampled_from(OPTIONS), max_size=5)):
        words.append(option)
        if draw(st.integers(0, 5)):
            words.append(draw(st.sampled_from([*EVIL, "1", "0.5", "1e-5", "digits", "100"])))
    words = [w.encode("utf-8", "replace").decode().replace("\0", "") for w in words]
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv, os.getcwd(), cli.signals.install
    code: Any = 0
    try:
        sys.argv = ["simplexdp", *words]
        os.chdir(home)
        cli.signals.install = lambda _: None
        with limited(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.main()
    except SystemExit as stop:
        code = stop.code
    finally:
        sys.argv, cli.signals.install = before[0], before[2]
        os.chdir(before[1])
    said = err.getvalue()
    assert code in (0, 2), (words, code, said)
    assert "a fault of simplexdp" not in said, (words, said)
    assert "\x1b[2J" not in said + out.getvalue()
    if code == 2 and "Usage" not in said + out.getvalue():
        assert said.startswith("simplexdp: "), (words, said)
    if code == 0 and words[0] == "calibrate" and "--json" in words and "--help" not in words:
        asked = [float(b) for a, b in pairwise(words) if a == "--epsilon"]
        assert json.loads(out.getvalue())["epsilon"] <= (asked[-1] if asked else math.inf)


TARGETS: dict[str, Callable[[Any], None]] = {
    "command lines": command_lines,
    "constructors": constructors,
    "files of one's own": reading,
    "known formats": known_formats,
    "load_model": loading,
    "resume": resuming,
    "ledger": ledgers,
    "statement": statements,
}
