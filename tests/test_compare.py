"""`simplexdp compare --audit`: one more column, and each line is about its own method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from simplexdp import audit, compare, methods
from simplexdp.audit import canary
from simplexdp.cli import commands
from simplexdp.ledger import Ledger
from simplexdp.settings import Settings

METHODS = ("dirichlet", "plain")
ASKED = ["compare", "--methods", ",".join(METHODS), "--seeds", "1", "--seed", "0", "--quiet"]
SHORT = ["--steps", "3", "--batch-size", "8"]


def test_an_audit_adds_its_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "TRIALS", 40)  # enough to contradict a figure of 1
    monkeypatch.setenv("SIMPLEXDP_LEDGER", str(tmp_path / "ledger.jsonl"))
    out = str(tmp_path / "runs")
    done = CliRunner().invoke(commands(), [*ASKED, *SHORT, "--audit", "--json", "--out", out])
    assert done.exit_code == 0, done.output
    audits = json.loads(done.stdout)["audits"]
    kept = json.loads((tmp_path / "runs" / "comparison.json").read_text())
    assert {**kept, "runs": out} == json.loads(done.stdout)
    assert tuple(audits) == METHODS
    assert "canary (40 trainings)" in audits["dirichlet"]
    assert "; above the bound of 1 in that relation" in audits["dirichlet"]
    assert "does not cover the weights" in audits["dirichlet"]
    assert audits["plain"].endswith("; nothing is claimed")


def test_what_fails_after_the_trainings_does_not_lose_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object, **named: object) -> None:
        raise ValueError("no audit today")

    monkeypatch.setattr(compare, "audit", broken)
    monkeypatch.setenv("SIMPLEXDP_LEDGER", str(tmp_path / "ledger.jsonl"))
    done = CliRunner().invoke(
        commands(), [*ASKED, *SHORT, "--audit", "--out", str(tmp_path / "runs")]
    )
    assert str(done.exception) == "no audit today"
    kept = json.loads((tmp_path / "runs" / "comparison.json").read_text())
    assert [row["method"] for row in kept["methods"]] == list(METHODS)


def test_a_method_named_twice_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="plain is named twice"):
        compare.compare(Settings(), tmp_path / "runs", ("plain", "dirichlet", "plain"))
    assert not (tmp_path / "runs").exists()


def test_no_budget_is_no_number_in_json() -> None:
    record = compare.to_json(Settings(epsilon=float("inf")), [])
    assert json.loads(json.dumps(record, allow_nan=False))["epsilon"] is None


def test_a_picture_without_a_folder_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    plot = ["--plot", str(tmp_path / "none" / "p.png"), "--out", str(tmp_path / "runs")]
    done = CliRunner().invoke(commands(), [*ASKED, *SHORT, *plot])
    assert "there is no folder" in str(done.exception)
    assert not (tmp_path / "runs").exists()


def test_methods_on_a_table_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMPLEXDP_LEDGER", str(tmp_path / "ledger.jsonl"))
    lines = ["age,sex,y", *(f"{k},{'fm'[k % 3 == 0]},{int(k > 50)}" for k in range(100))]
    table = tmp_path / "people.csv"
    table.write_text("\n".join(lines))
    given = [
        "--data",
        str(table),
        "--label",
        "y",
        "--bounds",
        "age=0:100",
        "--test-fraction",
        "0.5",
    ]
    given += ["--categories", "sex=f|m", "--out", str(tmp_path / "runs"), "--json"]
    done = CliRunner().invoke(commands(), [*ASKED, *SHORT, *given])
    assert done.exit_code == 0, done.output
    statement = json.loads((tmp_path / "runs" / "plain-0" / "run.json").read_text())
    assert statement["settings"]["data_options"]["test_fraction"] == 0.5
    assert [row["method"] for row in json.loads(done.stdout)["methods"]] == list(METHODS)


def test_what_a_method_has_no_use_for_is_left_out_before_anything_is_trained() -> None:
    settings = Settings(alpha=5.0, accountant="exact", optimizer="adam", model="mlp", steps=3)
    for name in methods.names():
        methods.lookup(name).options(compare.settings_of(name, settings))
    assert compare.settings_of("dirichlet", settings).alpha == 5.0
    assert compare.settings_of("dpsgd", settings).optimizer == "adam"
    assert compare.settings_of("certified", settings).optimizer == "sgd"
    assert compare.settings_of("certified", settings).steps is None
    assert compare.settings_of("gaussian-features", settings).optimizer == "sgd"


def test_the_audit_attacks_each_method_with_settings_that_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def attack(settings: Settings, *given: Any, **named: Any) -> dict[str, Any]:
        methods.lookup(settings.method).options(settings)
        return {"summary": settings.optimizer}

    monkeypatch.setattr(audit, "run", attack)
    rows = [
        compare.Row(name, "model", (0.5,), 1.0, 1.0, 1e-5, "accountant", True, ())
        for name in ("dpsgd", "certified", "gaussian-features")
    ]
    asked = Settings(optimizer="adam", alpha=5.0)
    found = compare.audit(asked, rows)
    assert found == {"dpsgd": "adam", "certified": "sgd", "gaussian-features": "sgd"}


@pytest.mark.parametrize(
    ("covers_weights", "broken", "cell"),
    [
        (True, (), "yes"),
        (True, ("The random seed is secret.",), "no: breaks an assumption"),
        (False, (), "no"),
        (False, ("The random seed is secret.",), "no"),
    ],
)
def test_a_run_that_breaks_an_assumption_does_not_cover_its_weights(
    covers_weights: bool, broken: tuple[str, ...], cell: str
) -> None:
    row = compare.Row("m", "mlp", (0.5,), 1.0, 1.0, 1e-5, "x", covers_weights, broken)
    assert compare.to_text([row]).splitlines()[-1].endswith(f"| x | {cell} |")


def test_the_text_shows_each_audit_beside_its_method() -> None:
    rows = [compare.Row(name, "mlp", (0.5,), 1.0, 1.0, 1e-5, "x", False, ()) for name in METHODS]
    audits = {name: f"what was found of {name}" for name in METHODS}
    plain, audited = (compare.to_text(rows, found).splitlines() for found in (None, audits))
    assert audited[0] == plain[0] + " audit |"
    for name, line, before in zip(METHODS, audited[2:], plain[2:], strict=True):
        assert line == f"{before} what was found of {name} |"


def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMPLEXDP_LEDGER", str(tmp_path / "ledger.jsonl"))
    out = tmp_path / "runs"
    picture = str(tmp_path / "bars.txt")
    done = CliRunner().invoke(commands(), [*ASKED, *SHORT, "--plot", picture, "--out", str(out)])
    assert isinstance(done.exception, ValueError)
    assert not out.exists()


def test_an_option_that_no_method_uses_is_refused(tmp_path: Path) -> None:
    asked = Settings(steps=50)
    with pytest.raises(ValueError, match="certified train no network and take no steps"):
        compare.compare(asked, tmp_path / "runs", ("certified",), seeds=1)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("change", "names", "budget", "words"),
    [
        ({}, ("certified", "plain"), 50.0, "one of them has no privacy mechanism"),
        ({}, ("certified", "gaussian-features"), 1.2, "these 2 runs would take digits"),
        ({"model": "nope"}, ("certified", "dirichlet"), None, "no model 'nope'"),
        ({"batch_size": 5000}, ("certified", "dirichlet"), None, "batch"),
    ],
)
def test_what_can_be_known_beforehand_is_refused_before_anything_is_counted(
    change: dict[str, Any],
    names: tuple[str, ...],
    budget: float | None,
    words: str,
    tmp_path: Path,
) -> None:
    book = Ledger(tmp_path / "ledger.jsonl")
    if budget is not None:
        book.set_budget("digits", budget, 1e-5)
    with pytest.raises(ValueError, match=words):
        compare.compare(Settings(**change), tmp_path / "runs", names, seeds=1, ledger=book)
    assert book.entries() == []
    assert not (tmp_path / "runs").exists()


def test_a_comparison_that_fits_its_budget_is_counted_once(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "ledger.jsonl")
    book.set_budget("digits", 1.6, 1e-5)  # two runs of ε = 1 are 1.47 together
    names = ("certified", "gaussian-features")
    rows = compare.compare(Settings(), tmp_path / "runs", names, seeds=1, ledger=book)
    assert [row.method for row in rows] == list(names)
    assert [entry.method for entry in book.entries()] == list(names)
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == [f"{n}-0" for n in names]
