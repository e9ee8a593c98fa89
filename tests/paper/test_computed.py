"""The computed tables against mpmath and against the numbers of the paper."""

from __future__ import annotations

import json
from pathlib import Path

import mpmath
import pytest

from simplexdp.paper import computed, table

ROOT = Path(__file__).parents[2]


def test_r_star_agrees_with_the_paper_and_stays_within_the_budget():
    rows = computed.r_star().rows
    assert len(rows) == 23
    for row in rows:
        assert row["cost"] <= row["epsilon"]
        # the paper prints three digits, a few of them on the far side of the budget
        assert row["r"] == pytest.approx(row["published"], rel=0.015)


def test_r_star_by_alpha():
    rows = {row["alpha"]: row for row in computed.r_star_by_alpha().rows}
    assert list(rows) == [0.1, 0.3, 0.5, 1.0, 2.0, 3.0]
    for row in rows.values():
        assert row["r"] == pytest.approx(row["published"], rel=0.005)
        assert 0.078 < row["ratio"] < 0.0871  # the paper's last column


def test_kappa_against_mpmath_and_the_figure():
    rows = computed.kappa().rows
    assert [row["alpha"] for row in rows] == [0.1, 0.2, 0.3, 0.5, 1, 2, 3, 5, 10]
    for row in rows:
        a = mpmath.mpf("0.9") * mpmath.mpf(row["r"])
        assert row["kappa"] == pytest.approx(float(a * mpmath.psi(1, a + row["alpha"])), rel=1e-9)
        assert row["kappa"] == pytest.approx(row["published"], rel=0.005)


def test_asymptotics_have_the_slopes_of_the_paper_and_the_calibrated_ones():
    rows = computed.asymptotics().rows
    small, large = rows[0], rows[-1]
    assert small["alpha"] == pytest.approx(1e-3)
    assert large["alpha"] == pytest.approx(1e4)
    for name in ("linear", "calibrated"):
        assert small[f"{name}_kappa_slope"] == pytest.approx(-1, abs=0.01)
        assert small[f"{name}_variance_slope"] == pytest.approx(-2, abs=0.01)
        assert large[f"{name}_variance_slope"] == pytest.approx(-1, abs=0.02)
    assert large["linear_kappa_slope"] == pytest.approx(0, abs=0.001)
    assert large["calibrated_kappa_slope"] == pytest.approx(-0.5, abs=0.02)


def test_variance_against_mpmath():
    for row in computed.asymptotics().rows[::5]:
        alpha, r = row["alpha"], row["calibrated_r"]
        wanted = mpmath.psi(1, 0.9 * r + alpha) - mpmath.psi(1, r + 10 * alpha)
        assert row["calibrated_variance"] == pytest.approx(float(wanted), rel=1e-8)


@pytest.mark.parametrize("name", computed.TABLES)
def test_the_committed_tables_are_what_the_command_writes(name, tmp_path):
    for path in table.save(computed.TABLES[name](), tmp_path)[1:]:
        committed = ROOT / "results" / "tables" / path.name
        assert committed.read_text() == path.read_text(), f"give `simplexdp reproduce {name}` again"


def test_a_table_is_written_three_ways(tmp_path):
    found = table.Table(
        "t",
        "A table of 100 %",
        (table.Column("a", "α", 2), table.Column("b", "ε_b")),
        ({"a": 0.12345, "b": "x & y"}, {"a": None, "b": 3}),
        ("A note.",),
    )
    table.save(found, tmp_path)
    assert json.loads((tmp_path / "t.json").read_text())["rows"][0] == {"a": 0.12345, "b": "x & y"}
    markdown = (tmp_path / "t.md").read_text()
    assert "| 0.12 | x & y |\n| – | 3 |" in markdown
    assert markdown.endswith("- A note.\n")
    latex = (tmp_path / "t.tex").read_text()
    assert r"$\alpha$ & $\varepsilon$\_b \\" in latex
    assert r"0.12 & x \& y \\" in latex
    assert r"100 \%" in latex
