"""The table: what it measures, how it is shown, and where it is put."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path

import pytest

from simplexdp import audit, data, files
from simplexdp.audit import attacks, schedules, tables
from simplexdp.settings import Settings

ROOT = Path(__file__).parents[2]


def test_a_row_has_every_column(
    images: data.Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tables.data, "load", lambda name, **options: images)
    for name, value in {"SMALL_RECORDS": 60, "SMALL_BATCH": 6, "SMALL_STEPS": 20}.items():
        monkeypatch.setattr(schedules, name, value)
    monkeypatch.setattr(tables.one_run, "CANARIES", 48)
    record = audit.table(
        Settings(data="images"),
        ("dirichlet",),
        trials=40,
        models=4,
        out=tmp_path,
        show_progress=False,
    )
    (row,) = record["rows"]
    assert row["claimed_epsilon"] == 1.0
    assert row["covers_weights"] is False
    assert row["canary"]["epsilon_lower"] > 1.0
    assert row["canary"]["trials"] == 40
    assert row["transcript"] is row["canary"]["by_curve"] is row["one_run"]["by_curve"] is None
    assert row["one_run"]["trials"] == row["one_run_in_out"]["trials"] == 48
    assert row["one_run_in_out"]["relation"] == "in or out (its input zeroed)"
    assert 0.0 <= row["membership"]["auc"] <= 1.0
    assert json.loads((tmp_path / "images.json").read_text()) == record
    assert {"confidence", "seconds", "version", "machine", "seed"} <= set(record)
    line = audit.to_markdown(record).splitlines()[2]
    assert line.startswith(
        "| dirichlet | 1 | **no** | – | 1 | **"
    )  # a bound above the figure is bold
    shown = audit.as_text(record)
    assert "**" not in shown
    assert f"| {math.floor(100 * row['canary']['epsilon_lower']) / 100:.2f} ! |" in shown
    assert "Marked with !: above the claim" in shown

    page = tmp_path / "page.md"
    page.write_text(
        "a\n<!-- audit table: images -->\nstale row\n<!-- end audit table: images -->\nb\n"
    )
    for _ in range(2):
        audit.place(page, record)
        text = page.read_text()
        assert line in text
        assert "stale row" not in text
        assert text.startswith("a\n")
        assert text.endswith("\nb\n")
    page.write_text("no markers")
    with pytest.raises(ValueError, match="no markers"):
        audit.place(page, record)


@pytest.mark.parametrize("name", ["digits"])
def test_the_committed_page_shows_the_committed_results(name: str, tmp_path: Path) -> None:
    committed = (ROOT / "docs" / "protects.md").read_text("utf-8")
    page = tmp_path / "protects.md"
    page.write_text(committed, "utf-8")
    audit.place(page, files.read_json(ROOT / "results" / "audit" / f"{name}.json"))
    assert page.read_text("utf-8") == committed, (
        f"put results/audit/{name}.json on the page with simplexdp.audit.place"
    )


def test_the_committed_page_shows_the_committed_catch_rates() -> None:
    found = importlib.util.spec_from_file_location(
        "audit_power", ROOT / "benchmarks" / "audit_power.py"
    )
    assert found is not None
    assert found.loader is not None
    power = importlib.util.module_from_spec(found)
    found.loader.exec_module(power)
    rows = files.read_json(power.OUT)["rows"]
    assert power.table(rows) in power.PAGE.read_text("utf-8")
    for name, row in rows.items():
        if name.startswith("transcript"):
            assert row["1"]["caught"] == 0
            assert row["0.9"]["caught"] == row["0.9"]["of"] > 0


@pytest.mark.parametrize("name", ["digits"])
def test_the_committed_summaries_are_what_the_code_says_today(name: str) -> None:
    rows = files.read_json(ROOT / "results" / "audit" / f"{name}.json")["rows"]
    parts = [part for row in rows for part in row.values() if isinstance(part, dict)]
    found = [part for part in parts if "summary" in part]
    assert len(found) == 5 * len(rows) - 2  # of two methods no release is heard
    for record in found:
        assert record["summary"] == attacks.summarise(record)


def test_a_claim_for_pairs_at_another_delta_is_said() -> None:
    record = files.read_json(ROOT / "results" / "audit" / "digits.json")
    said = "dpsgd's claim for pairs, and the bounds held against it, are at δ = 3.72e-05."
    assert said in audit.to_markdown(record)  # 3.7183e-05, rounded up
    for row in record["rows"]:
        row["claimed_for_pairs"]["delta"] = record["delta"]
    assert "are at δ" not in audit.to_markdown(record)


def test_an_unknown_method_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(ValueError, match="unknown method"):
        audit.table(names=("magic",), show_progress=False)


@pytest.mark.parametrize(
    ("given", "message"),
    [({"trials": 0}, "number of trials is 0"), ({"confidence": 1.0}, "confidence is 1.0")],
)
def test_what_no_attack_can_be_made_with_is_refused_first(
    given: dict[str, float], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_row", lambda *args: pytest.fail("attacked first"))
    with pytest.raises(ValueError, match=message):
        audit.table(show_progress=False, **given)
    with pytest.raises(ValueError, match=message):
        audit.run(Settings(), **given)


def test_names_of_files() -> None:
    assert tables.file_name("digits") == "digits"
    assert tables.file_name("fashion-mnist") == "fashion-subset"
