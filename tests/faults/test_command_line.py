"""The command line: what it imports, waits for and prints, and its last handler."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from simplexdp import cli, methods, runs, seal, training
from simplexdp.cli.shell import emit
from simplexdp.progress import warn
from simplexdp.settings import Settings

CODE = """
from pathlib import Path
Path({mark!r}).write_text("imported")
def factory(shape, classes):
    import torch
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, classes))
def rows(inputs):
    return inputs.reshape(len(inputs), -1) / 8
"""


@pytest.mark.parametrize(
    ("begun", "named"),
    [
        ({"method": "sent:METHOD"}, ["--method", "sent:METHOD"]),
        ({"method": "plain", "model": "sent:factory", "steps": 3}, ["--model", "sent:factory"]),
        (
            {"method": "certified", "steps": 2, "options": {"features": "sent:rows"}},
            ["--option", "features=sent:rows"],
        ),
    ],
)
def test_nothing_is_imported_because_a_folder_names_it(tmp_path, monkeypatch, begun, named):
    """A folder that somebody sent, with code beside it; a name on the command line is trusted."""
    mark = tmp_path / "mark"
    (tmp_path / "sent.py").write_text(CODE.format(mark=str(mark)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "sent", raising=False)
    own = methods.lookup(begun["method"]).revision if ":" not in begun["method"] else 1
    runs.RunFolder.create(tmp_path / "run", Settings(data="digits", **begun), own)
    resume = ["train", "--resume", "--out", str(tmp_path / "run"), "--quiet"]
    assert "which is code" in refused(monkeypatch, *resume)
    assert not mark.exists()
    monkeypatch.setattr(sys, "argv", ["simplexdp", *resume, *named])
    with pytest.raises(SystemExit):
        cli.main()
    assert mark.exists()


def test_an_audit_imports_nothing_that_a_folder_names(tmp_path, monkeypatch):
    mark = tmp_path / "mark"
    (tmp_path / "sent.py").write_text(CODE.format(mark=str(mark)))
    monkeypatch.syspath_prepend(tmp_path)
    folder = runs.RunFolder.create(tmp_path / "run", Settings(method="sent:METHOD", data="digits"))
    refused(monkeypatch, "audit", "--run", str(folder.path))
    for name in seal.HANDED_OUT:
        (folder.path / name).write_text("{}")
    refused(monkeypatch, "audit", "--run", str(folder.path))
    assert not mark.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--data", "pipe.csv", "--label", "y", "--bounds", "x=0:1"],
        ["--data", "pipe.npz"],
        ["--data", "whole.csv", "--label", "y", "--test", "pipe.csv"],
        ["--data", "whole.csv", "--schema", "pipe.json"],
        ["--data", "images", "--image-size", "8x8x1"],
    ],
)
def test_no_pipe_is_waited_for(tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    for name in ("pipe.csv", "pipe.npz", "pipe.json"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "whole.csv").write_text("x,y\n1,a\n2,b\n" * 4)
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        os.mkfifo(tmp_path / "images" / name / "1.png")
    assert "pipe, a socket or a device" in refused(
        monkeypatch, "train", "--method", "plain", *arguments
    )


def refused(monkeypatch, *arguments) -> str:
    """Run a command here, which must end with exit code 2 and one line; returns the line."""
    monkeypatch.setattr(sys, "argv", ["simplexdp", *arguments])
    monkeypatch.setattr(cli.signals, "install", lambda _: None)
    lines: list[str] = []
    said = "simplexdp.progress.print"
    monkeypatch.setattr(said, lambda text, **_: lines.append(text), raising=False)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert len(lines) == 1
    return lines[0]


def test_a_fault_of_ours_is_one_line_and_the_whole_is_for_its_owner_alone(
    monkeypatch, tmp_path, capsys
):
    def broken(**_):
        raise KeyError("a private value")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(cli, "commands", lambda: broken)
    line = refused(monkeypatch)
    assert "KeyError" in line
    assert "private value'" not in line
    (name,) = re.findall(r"in (\S+\.txt)", line)
    assert stat.S_IMODE(os.stat(name).st_mode) == 0o600
    whole = Path(name).read_text()
    assert "in broken" in whole
    assert "a private value" in whole


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "not enough memory"),
        (RecursionError("deep"), "RecursionError"),
        (OverflowError(), "too large or too small"),
        (KeyboardInterrupt(), "interrupted"),
        (RuntimeError(), "RuntimeError"),
    ],
)
def test_every_error_is_one_line(monkeypatch, tmp_path, error, said):
    def broken(**_):
        raise error

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(cli, "commands", lambda: broken)
    assert said in refused(monkeypatch)


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        ("train", "goes on with --resume --out FOLDER"),
        ("reproduce", "the same command goes on where it was"),
        ("verify", "give the command again"),
        ("predict", "give the command again"),
    ],
)
@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
def test_who_is_stopped_is_told_how_that_command_goes_on(monkeypatch, command, advice, error):
    def broken(**_):
        raise error

    monkeypatch.setattr(cli, "commands", lambda: broken)
    said = refused(monkeypatch, command)
    assert said.endswith(advice)
    assert ("--resume" in said) == (command == "train")


def test_without_room_for_the_whole_error_its_line_is_printed_all_the_same(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    monkeypatch.setattr(cli, "commands", lambda: lambda **_: {}["x"])
    assert "no file (" in refused(monkeypatch)


def test_no_name_commands_the_terminal(monkeypatch, capsys):
    """Clear the screen, print from right to left, and a half of a pair that no encoding takes."""
    evil = "a\x1b[2Jb\u202ec\x07\x9b\ud800"
    warn(evil)
    emit({}, False, evil)
    said = capsys.readouterr()
    for text in (said.out, said.err):
        assert r"a\x1b[2Jb\u202ec\x07\x9b\ud800" in text
    emit({"name": evil}, True, "")
    assert json.loads(capsys.readouterr().out) == {"name": evil}


def test_a_full_output_is_one_line(monkeypatch):
    if not Path("/dev/full").exists():
        pytest.skip("no device that is always full")
    monkeypatch.setattr(sys, "stdout", open("/dev/full", "w"))  # noqa: SIM115
    assert "the disk is full" in refused(monkeypatch, "methods")
    sys.stdout.flush()  # as at the end of the process


def test_a_stopped_training_says_how_to_go_on(tmp_path, blobs):
    asked = iter([False, True])
    settings = Settings(data="blobs", method="plain", batch_size=9, steps=5, seed=0)
    with pytest.raises(training.OutOfTime, match=r"after step 2 of 5; go on with --resume --out"):
        methods.run(settings, tmp_path / "run", dataset=blobs, stop=lambda: next(asked))


@pytest.mark.parametrize("arguments", [["--help"], ["data", "list"]])
def test_nothing_heavy_is_loaded_to_look_around(arguments):
    heavy = {"torch", "sklearn", "scipy", "pyarrow", "PIL", "requests", "rich"}
    heavy |= {"numpy"} if arguments == ["--help"] else set()
    code = "import sys; from simplexdp.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    code += "print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    loaded = {name.strip("'[] ").partition(".")[0] for name in done.stderr.split(",")}
    assert "typer" in loaded
    assert loaded & heavy == set()
