"""The command line: fixed names, JSON alone on standard output, one line for what is wrong."""

from __future__ import annotations

import json
import tempfile

import pytest

from simplexdp import cli, plugins, runs
from simplexdp.settings import Settings

SCHEDULE = ["--delta", "1e-5", "--alpha", "3", "--sample-rate", "0.005", "--steps", "20000"]
COST_KEYS = {"r", "epsilon", "delta", "alpha", "sample_rate", "steps", "accountant", "order"}


def test_calibrate_and_account_agree(succeed):
    found = succeed("calibrate", "--epsilon", "1", *SCHEDULE)
    assert set(found) == COST_KEYS
    assert round(found["r"], 3) == 0.235  # the paper's r* for CIFAR10
    assert found["epsilon"] <= 1.0
    assert found["order"] >= 2
    cost = succeed("account", "--r", str(found["r"]), *SCHEDULE)
    assert cost == found


def test_visible_participation_costs_more(succeed):
    hidden = succeed("account", "--r", "0.235", *SCHEDULE)
    visible = succeed("account", "--r", "0.235", *SCHEDULE, "--accountant", "visible")
    assert hidden["epsilon"] < 1.01
    assert visible["epsilon"] == pytest.approx(13, rel=0.05)


def test_train_prints_one_json_object_and_writes_a_run(process, tmp_path):
    arguments = ["train", "--steps", "300", "--batch-size", "8", "--json", "--out", "r"]
    done = process(*arguments)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    wanted = {"accuracy", "method", "data", "model", "epsilon", "delta", "seconds", "run"}
    assert wanted | {"statement"} <= set(record)
    assert record["statement"]["covers_weights"] is False
    assert record["epsilon"] <= 1.0
    assert 0.3 < record["accuracy"] <= 1.0
    assert (tmp_path / "r" / "model.safetensors").exists()
    assert json.loads((tmp_path / "r" / "statement.json").read_text()) == record["statement"]


def test_train_tells_a_person_what_is_not_covered(command):
    done = command("train", "--steps", "50", "--batch-size", "8", "--quiet", "--verbose")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "% interval" in lines[0]
    assert "360 test records)" in lines[0]
    assert "NOT on the weights" in lines[1]
    assert lines[4].startswith("Next: simplexdp predict ")  # and not release
    assert lines[5] == ""  # five lines, and more only when asked for
    assert "Back-propagation is not post-processing" in done.stdout


def test_a_covered_run_is_told_how_it_is_released(command):
    done = command("train", "--method", "certified", "--features", "columns", "--quiet")
    assert "\nNext: simplexdp release runs/" in done.stdout, done.stderr
    run = done.stdout.partition("Next: simplexdp release ")[2].split()[0]
    assert command("release", run, "--to", "MODEL").returncode == 0
    assert command("report", run).stdout == "report.html from 1 run\n"


def test_a_label_that_a_program_reserved_under_is_found(command, fail, tmp_path):
    """`Ledger.reserve` took it, and `ledger --data` called it a file that is not there."""
    from simplexdp.accounting import events
    from simplexdp.ledger import Ledger

    book = ["--path", "book.jsonl"]
    path = tmp_path / "book.jsonl"
    Ledger(path).reserve("mine", "own", events.gaussian(noise_multiplier=5.0), "a", "weights")
    assert command("ledger", "--data", "mine", *book).stdout.startswith("mine: 1 run\n")
    assert command("ledger", "--data", "mine", "--set-budget", "2", *book).returncode == 0
    assert Ledger(path).budget("mine") == (2.0, 1e-5)
    assert "no data set 'mien'" in fail("ledger", "--data", "mien", "--set-budget", "2", *book)


def write_pictures(root, per_class=10):
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (root / name).mkdir(parents=True)
        for k in range(per_class):
            pixels = rng.integers(0, 256, (6, 4), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{k}.png")


def test_what_a_certified_run_needs_is_asked_for_before_anything_is_spent(fail, tmp_path):
    """It trained, entered ε in the ledger, and only then said NOT private."""
    write_pictures(tmp_path / "pets")
    line = fail("train", "--data", "pets", "--method", "certified", "--epsilon", "2")
    assert "give --image-size 6x4x1" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pets"]


def test_data_of_ones_own_need_a_method(fail, command, tmp_path):
    write_pictures(tmp_path / "pets")
    line = fail("train", "--data", "pets", "--image-size", "6x4x1")
    assert "--method certified to release the model" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pets"]


def test_in_a_terminal_the_method_is_asked_for(monkeypatch, capsys):
    from simplexdp.cli import train

    for stream in (train.sys.stdin, train.sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(train.typer, "prompt", lambda *_, **__: "dirichlet")
    assert train._asked_for(__file__, as_json=False) == {"method": "dirichlet"}
    assert len(capsys.readouterr().err.splitlines()) == 2
    assert train._asked_for("mnist", as_json=False) == train._asked_for(None, False) == {}


def test_few_test_records_are_called_few(command, tmp_path):
    write_pictures(tmp_path / "pets", 5)
    arguments = ["--data", "pets", "--image-size", "6x4x1", "--method", "plain", "--steps", "9"]
    done = command("train", *arguments, "--quiet")
    assert done.returncode == 0, done.stderr
    assert "2 test records: too few to say much)" in done.stdout
    assert len(done.stdout.splitlines()) == 5


def test_a_delta_of_one_over_n_is_asked_for_twice(fail, succeed, tmp_path):
    line = fail("train", "--method", "certified", "--delta", "0.5")
    assert "some record may be published whole" in line
    assert not (tmp_path / "ledger.jsonl").exists()
    assert fail("compare", "--methods", "certified", "--delta", "0.001") != ""
    done = succeed("train", "--method", "certified", "--delta", "0.001", "--allow-large-delta")
    assert done["delta"] == 0.001


def test_a_cost_is_one_line_and_its_assumptions_are_asked_for(command):
    done = command("account", "--r", "0.235", *SCHEDULE)
    assert len(done.stdout.splitlines()) == 1
    assert "costs ε = " in done.stdout
    assert "NOT the weights" in done.stdout
    assert "It holds only if:" in command("account", "--r", "0.1", *SCHEDULE, "--verbose").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--epsilon", "0"], "epsilon is 0"),
        (["train", "--epsilon", "-1"], "epsilon is -1"),
        (["train", "--delta", "0"], "delta is 0"),
        (["train", "--delta", "1"], "delta is 1"),
        (["train", "--batch-size", "5000"], "below the 1437 records"),
        (["train", "--batch-size", "64", "--epochs", "30"], "a batch size of at most"),
        (["train", "--steps", "5", "--epochs", "5"], "give one of them"),
        (["train", "--data", "nothing"], "nothing"),
        (["train", "--model", "nothing"], "nothing"),
        (["train", "--method", "nothing"], "unknown method"),
        (["train", "--optimizer", "nothing"], "unknown optimizer"),
        (["train", "--lr", "fast"], "give a number or auto"),
        (["train", "--method", "dpsgd", "--option", "clip=NaN"], "clip is 'NaN'; give a number"),
        (["train", "--method", "dpsgd", "--option", "clip=1e999"], "'1e999'; give a number"),
        (["train", "--option", "class_weights=null"], "leave it out or use balanced"),
        (
            [
                "account",
                "--r",
                "1e-200",
                "--sample-rate",
                "0.01",
                "--steps",
                "9",
                "--accountant",
                "pld",
            ],
            "too large or too small",
        ),
        (["train", "--resume"], "--resume needs the run folder"),
        (["train", "--resume", "--out", "none"], "not a run folder"),
        (["train", "--nonsense"], "No such option"),
        (["train", "--device", "nonsense"], "no device"),
        (["train", "--device", "meta"], "no device"),
        (["train", "--threads", "999999"], "threads is 999999; give at most 1024"),
        (["train", "--workers", "-1"], "workers is -1; give 0 or more"),
        (["train", "--lr", "1e308"], "lr is 1e+308; give at most 1e+30"),
        (["train", "--alpha", "nan"], "alpha is nan; it must be positive"),
        (["compare", "--methods", "none"], "name one or more"),
        (["train", "--option", "foo=1"], "does not know the option"),
        (["train", "--resume", "--out", "none", "--epsilon", "2"], "give --out alone"),
        (["account", "--r", "3", *SCHEDULE], "alpha"),
        (["account", "--r", "0.1", "--sample-rate", "1", "--steps", "5"], "rate"),
        (["calibrate", "--epsilon", "0", *SCHEDULE], "epsilon"),
        (["calibrate", "--epsilon", "1", "--accountant", "x", *SCHEDULE], "unknown accountant"),
        (["account", "--r", "0.1", "--sample-rate", "0.1", "--steps", "9" * 400], "at most 2^53"),
        (["calibrate", "--epsilon", "1", "--alpha", "1e-300", *SCHEDULE[4:]], "between 1e-06 and"),
        (["train", "--data", "~nosuchuser/x.csv"], "no home folder is known"),
        (["nonsense"], "No such command"),
        (["reproduce"], "fashion-mnist"),
        (["reproduce", "nonsense"], "fashion-mnist"),
        (["reproduce", "digits", "--budget-minutes", "nan"], "positive"),
        (["reproduce", "digits", "--budget-minutes", "-1"], "positive"),
        (["ledger", "--data", "fashion_mnist", "--set-budget", "1"], "fashion-mnist"),
        (["ledger", "--path", "slip.jsonl"], "there is no ledger slip.jsonl"),
    ],
)
def test_what_is_wrong_is_one_line_and_exit_code_2(fail, tmp_path, arguments, message):
    assert message in fail(*arguments)
    assert [path.name for path in tmp_path.rglob("*")] in ([], ["runs"])  # no run, no ledger


def test_a_budget_on_ones_own_data_is_kept(succeed, fail, tmp_path):
    import numpy as np

    rng = np.random.default_rng(0)
    np.savez(tmp_path / "own.npz", X=rng.normal(size=(300, 4)), y=np.arange(300) % 2)
    train = [
        "train",
        "--method",
        "dirichlet",
        "--data",
        "own.npz",
        "--bounds",
        "-3:3",
        "--steps",
        "5",
        "--batch-size",
        "2",
    ]
    succeed(*train)
    spent = succeed("ledger", "--data", "own.npz")["data"][0]
    assert spent["runs"] == 1
    succeed("ledger", "--data", "own.npz", "--set-budget", str(spent["epsilon_together"]))
    assert "budget" in fail(*train, "--quiet")
    assert succeed("ledger", "--data", "own.npz")["data"][0]["runs"] == 1


def test_a_recipe_gives_way_to_what_is_asked_for(fail):
    """The method decides whether the weights are covered: it must not be dropped silently."""
    message = fail("train", "--recipe", "fashion-mnist", "--method", "nonsense")
    assert "unknown method" in message


def test_a_run_goes_on_where_it_is_told_to(fail, tmp_path):
    runs.RunFolder.create(tmp_path / "run", Settings(seed=0))
    out = str(tmp_path / "run")
    assert "no device 'moon'" in fail("train", "--resume", "--out", out, "--device", "moon")


def test_an_existing_run_folder_is_refused(fail, tmp_path):
    (tmp_path / "taken").mkdir()
    assert "exists" in fail("train", "--out", "taken")


def test_without_a_command_the_help_stands_as_it_is(command):
    done = command()
    assert done.returncode == 2
    assert "\n  reproduce " in done.stdout + done.stderr


def test_an_account_shows_the_r_that_was_given(command):
    assert "r = 0.235 costs" in command("account", "--r", "0.235", *SCHEDULE).stdout


def test_a_failed_run_of_a_sweep_is_an_exit_code(command):
    done = command("reproduce", "digits", "--only", "plain", "--device", "nonsense", "--quiet")
    assert done.returncode == 2
    assert done.stderr.count("no device") == 1
    assert "no device" not in done.stdout


def test_an_interruption_says_how_to_go_on(monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["simplexdp", "account", "--r", "0.2", *SCHEDULE])
    monkeypatch.setattr("simplexdp.accounting.account", interrupt)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "give the command again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--run", "r", "--data", "digits"], "leave out --data: the run has its own"),
        (["--run", "r", "--epsilon", "8", "--label", "y"], "--epsilon, options of the data"),
        (["--attack", "reconstruct", "--confidence", "0.9"], "leave out --confidence"),
        (["--attack", "reconstruct", "--out", "p", "--trials", "4"], "leave out --trials"),
    ],
)
def test_an_audit_refuses_what_it_would_ignore(command, arguments, message):
    done = command("audit", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize("arguments", [["--json"], []])
def test_a_result_is_not_lost_for_letters_that_the_terminal_lacks(command, arguments):
    given = ("--method", "certified", "--steps", "3", "--quiet", *arguments)
    done = command("train", *given, encoding="ascii")
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout


def test_an_error_of_the_system_names_the_file_that_was_given(command, tmp_path):
    done = command("report", "--results", str(tmp_path), "--out", str(tmp_path))
    assert done.returncode == 2
    assert (
        done.stderr
        == f"simplexdp: {tmp_path}: Is a directory; give another path, or mend this one\n"
    )


def test_filing_one_run_takes_no_table(command, tmp_path):
    done = command("reproduce", "digits", "--import-run", str(tmp_path))
    assert done.returncode == 2
    assert "leave out the table" in done.stderr


def test_a_full_disk_is_told_with_what_to_do(monkeypatch, capsys):
    def full(**given: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cli, "commands", lambda: full)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "the disk is full; make room first" in capsys.readouterr().err


def test_a_plug_in_that_cannot_be_imported_is_told_in_a_line(monkeypatch, capsys, tmp_path):
    def missing(group: str, name: str) -> None:
        raise ModuleNotFoundError("No module named 'something'")

    monkeypatch.setattr(plugins, "load", missing)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("simplexdp: this is a fault of simplexdp (Mod")
