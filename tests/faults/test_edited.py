"""Files that were edited or damaged are refused in a sentence, whatever is in them."""

from __future__ import annotations

import json
import math
import struct
import zipfile

import numpy as np
import pytest
from safetensors.torch import load_file, save

from simplexdp import Plan, data, methods, runs, statement, training
from simplexdp.cli.shell import pair
from simplexdp.data.schema import read_schema
from simplexdp.runs import checkpoint
from simplexdp.settings import Settings

SETTINGS = Settings(data="blobs", method="plain", model="logistic", batch_size=9, steps=6, seed=0)
OTHERS = (None, [], {}, "text", -1, 1.5, True, 10**400, [[None]], {"a": {}})


@pytest.fixture
def unfinished(tmp_path, blobs, killed):
    with killed(training, "evaluate"):
        methods.run(SETTINGS, tmp_path / "run", dataset=blobs)
    return runs.RunFolder(tmp_path / "run")


def test_no_edit_of_a_configuration_is_a_traceback(unfinished, blobs):
    """Every value of run.json and of its settings becomes every other type."""
    path = unfinished.path / "run.json"
    whole = unfinished.configuration()
    before = unfinished.checkpoint.read_bytes()
    edits = [*OTHERS, *({**whole, name: other} for name in whole for other in OTHERS)]
    settings = whole["settings"]
    edits += [
        {**whole, "settings": {**settings, name: other}}
        for name in settings
        for other in (None, [], "text", -1, 10**400)
    ]
    refused = 0
    for edit in edits:
        path.write_text(json.dumps(edit))
        unfinished.checkpoint.write_bytes(before)
        try:
            begun = unfinished.settings()
            methods.run(begun, unfinished.path, resume=True, dataset=blobs)
        except ValueError:
            refused += 1
        assert path.exists()
        for name in ("model.safetensors", "statement.json"):
            (unfinished.path / name).unlink(missing_ok=True)
    assert refused > 0.7 * len(edits)


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\x00", b"\xe9"])
def test_a_configuration_that_is_no_json_is_refused(unfinished, content):
    (unfinished.path / "run.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"run\.json is not valid JSON"):
        unfinished.settings()


def test_no_edit_of_a_checkpoint_is_used(unfinished):
    key = SETTINGS.key(methods.lookup("plain").revision)
    path = unfinished.checkpoint
    found = checkpoint.read(path, key)
    tensors = load_file(path)
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])["__metadata__"]
    assert found.step == 0
    record = json.loads(header["run"])
    edits = [{**record, name: other} for name in record for other in OTHERS]
    edits += [{k: v for k, v in record.items() if k != name} for name in record]
    edits += ["[" * 100_000, None, 5, [], "text"]
    for edit in edits:
        text = edit if isinstance(edit, str) else json.dumps(edit)
        if text == header["run"]:
            continue
        path.write_bytes(save(tensors, {**header, "run": text}))
        with pytest.raises(ValueError, match="is damaged"):
            checkpoint.read(path, key)
    name = next(name for name in tensors if tensors[name].numel() > 1)
    tensors[name] = tensors[name] + 1
    path.write_bytes(save(tensors, header))
    with pytest.raises(ValueError, match="is damaged"):
        checkpoint.read(path, key)


def npz_with(path, member: bytes, flags: int = 0, method: int = 0):
    """An .npz of one array X whose directory has other flags and another method."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", member)
        archive.writestr("y.npy", member)
    raw = bytearray(path.read_bytes())
    for magic, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = 0
        while (start := raw.find(magic, start)) >= 0:
            struct.pack_into("<HH", raw, start + at, flags, method)
            start += 4
    path.write_bytes(raw)
    return path


def header_of(shape: str) -> bytes:
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (118 - len(text) - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


@pytest.mark.parametrize(
    ("member", "flags", "method", "message"),
    [
        (header_of(f"({58 * 2**40},)"), 0, 0, "more memory than there is|damaged"),
        (header_of("(" * 40 + ")" * 40), 0, 0, "damaged"),
        (header_of("(3,)") + b"abc", 1, 0, "cannot be unpacked"),  # encrypted
        (header_of("(3,)") + b"abc", 0, 97, "cannot be unpacked"),  # no known compression
    ],
)
def test_an_npz_that_cannot_be_read_is_refused(tmp_path, member, flags, method, message):
    path = npz_with(tmp_path / "d.npz", member, flags, method)
    with pytest.raises(data.DataError, match=message):
        data.load(path)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"columns": ' + "1" * 5000 + "}", '{"label": 5}', '{"label": null}']
)
def test_a_schema_that_cannot_be_used_is_refused(tmp_path, text):
    (tmp_path / "s.json").write_text(text)
    with pytest.raises(data.DataError, match="schema"):
        read_schema(tmp_path / "s.json")


@pytest.mark.parametrize("value", ["[" * 100_000, "1" * 5000])
def test_an_option_too_deep_or_long_to_read_is_refused(value):
    with pytest.raises(ValueError, match="--option clip"):
        pair(f"clip={value}")


@pytest.mark.parametrize("name", [f for f in Settings.__dataclass_fields__ if f != "augment"])
@pytest.mark.parametrize("value", [10**400, -(10**400), [1], b"x", math.nan])
def test_settings_of_no_use_are_refused(name, value):
    if name in ("lr", "epsilon", "delta", "epochs", "alpha") or not isinstance(value, float):
        with pytest.raises((ValueError, TypeError), match=name):
            Settings(**{name: value})


def test_a_number_is_a_number_whatever_its_type():
    assert Settings(epsilon=2, lr=1, steps=5).epsilon == 2
    with pytest.raises(TypeError, match="steps is True; give a whole number or None"):
        Settings(steps=True)
    with pytest.raises(TypeError, match="augment has something in it that is no text"):
        Settings(augment=("a", 5))
    assert np.isinf(Settings(epsilon=math.inf).epsilon)


@pytest.mark.parametrize("name", ["covers_weights", "epsilon", "steps", "covers", "assumptions"])
@pytest.mark.parametrize("value", [{}, "no", 10**400, [5], [{"text": 5}]])
def test_a_statement_that_was_edited_claims_nothing(name, value):
    """Text in the place of no would be read as yes."""
    record = Plan(1.0, 1e-5, records=1000, batch_size=4, steps=10).statement().to_json()
    assert statement.from_json(record).to_json() == record
    if (name in ("epsilon", "steps") and value == 10**400) or (name, value) == ("assumptions", {}):
        return  # a number, and none of them
    with pytest.raises(ValueError, match=r"damaged|of another type|no text|neither holds"):
        statement.from_json({**record, name: value})


@pytest.mark.parametrize("record", [{}, [], None, "text", {"assumptions": 5}])
def test_what_is_no_statement_is_refused(record):
    with pytest.raises(ValueError, match=r"damaged|of another type|no text|neither holds"):
        statement.from_json(record)
