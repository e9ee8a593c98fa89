"""The chart of the accountants."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from simplexdp import charts as accountants
from simplexdp.accounting import account
from simplexdp.charts import STYLES, curves, plot_accountants
from simplexdp.cli import budget


@pytest.fixture(scope="module")
def found():
    return curves(r=0.3, alpha=3.0, sample_rate=0.01, steps=300, points=3)


def test_every_accountant_over_every_parameter(found):
    assert {(c.accountant, c.parameter) for c in found} == {
        (name, parameter)
        for name in STYLES
        for parameter in ("r", "alpha", "sample_rate", "steps", "classes")
    }


def test_curves_move_the_way_the_theorems_do(found):
    for curve in found:
        figures = [e for e in curve.epsilon if not math.isnan(e)]
        assert figures
        if curve.parameter == "classes":
            continue  # a flat line by construction
        if curve.parameter == "alpha":
            assert figures == sorted(figures, reverse=True)
        else:
            assert figures == sorted(figures)


def test_a_point_is_the_accountants_figure(found):
    curve = next(c for c in found if (c.accountant, c.parameter) == ("exact", "steps"))
    cost = account(
        "exact", r=0.3, alpha=3.0, sample_rate=0.01, steps=round(curve.values[-1]), delta=1e-5
    )
    assert curve.epsilon[-1] == cost.epsilon


def test_the_file(tmp_path, found):
    plot_accountants(tmp_path / "chart.png", found, "r = 0.3")
    assert (tmp_path / "chart.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("path", "words"), [("chart.txt", r"\.png"), ("none/chart.png", "no folder")]
)
def test_bad_paths_are_refused_before_anything_is_computed(tmp_path, monkeypatch, path, words):
    monkeypatch.setattr(accountants, "account", lambda *_, **__: pytest.fail("was computed"))
    with pytest.raises(ValueError, match=words):
        plot_accountants(tmp_path / path, [], "")
    with pytest.raises(ValueError, match=words):
        budget.account(r=0.3, sample_rate=0.01, steps=50, plot=tmp_path / path)


@pytest.mark.parametrize("alpha", [3.0, 0.4])
def test_the_chart_says_what_its_figures_rest_on(tmp_path, alpha):
    path: Path = tmp_path / "chart.svg"
    found = curves(alpha=alpha, steps=100, points=2)
    plot_accountants(path, found, f"α = {alpha}")
    text = path.read_text()
    assert "not yet peer" in text
    assert "at most the draws" in text
    assert f"α = {alpha}" in text
