"""The figures for papers: every one drawn, the same results giving the same bytes."""

from __future__ import annotations

import pytest

from simplexdp.paper import records
from simplexdp.paper.report import figures, gather, page
from simplexdp.settings import Settings


def test_a_data_set_with_runs_without_privacy_alone(results):
    plain = [
        {**one, "points": [p for p in one["points"] if p["epsilon"] is None]}
        for one in gather.accuracy_series(gather.load(results).groups)
    ]
    (axes,) = figures.accuracy([one for one in plain if one["points"]], "test").axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["∞"]


def test_every_figure_and_table_is_written(results, tmp_path):
    written = figures.write(results, tmp_path / "figures", endings=("svg",))
    names = {path.name for path in written}
    for stem in ("accuracy-fashion-mnist", "learning-rate-ours", "learning-rate-published"):
        assert f"{stem}.svg" in names
    assert {"asymptotics.svg", "r-star.tex", "r-star.md", "fashion-mnist-test.tex"} <= names
    assert "accuracy-dermamnist-validation.svg" in names  # what the page draws is here too
    series = gather.accuracy_series(gather.load(results).groups)
    fashion = [s for s in series if (s["data"], s["split"]) == ("fashion-mnist", "test")]
    figure = figures.accuracy(fashion, "test")
    (axes,) = figure.axes
    drawn = {round(float(y), 2) for line in axes.lines for y in line.get_ydata()}
    assert {81.02, 86.35, 91.13, 91.69, 93.13, 77.37, 86.10} <= drawn  # typed from the paper
    assert {80.2, 89.0} <= drawn  # made up: two seeds of the first cell, and one of the last
    assert len(figure.legends[0].get_texts()) == len(fashion)
    rates = gather.learning_rates(gather.load(results).groups)
    drawn = figures.learning_rate(rates["ours"], " ".join(rates["notes"]))
    assert "FashionMNIST" in drawn.get_suptitle()  # and not the paper's CIFAR10
    svg = (tmp_path / "figures/asymptotics.svg").read_bytes()
    assert b"<svg" in svg
    again, pdf = figures._save(figures.asymptotics(), tmp_path / "again", ["svg", "pdf"])
    assert again.read_bytes() == svg
    assert pdf.read_bytes().startswith(b"%PDF")
    assert b"/Type3" not in pdf.read_bytes()  # which some publishers refuse


def test_a_band_does_not_reach_over_a_point_without_a_spread(results):
    """The paper prints no deviation for CIFAR10 at ε = 3."""
    series = gather.accuracy_series(gather.load(results).groups)
    (paper,) = [s for s in series if s["data"] == "cifar10" and s["method"] == "dirichlet"]
    points = [p for p in paper["points"] if p["epsilon"]]
    assert [[p["epsilon"] for p in band] for band in figures._bands(points)] == [[1, 2], [4, 6, 8]]


def test_near_a_hundred_percent_errors_are_told_apart(results):
    """98 and 99 % are as far from each other as 90 and 95: half the errors each."""
    series = gather.accuracy_series(gather.load(results).groups)
    (axes,) = figures.accuracy([s for s in series if s["data"] == "mnist"], "test").axes
    place = axes.transData.transform
    height = {y: place((1.0, y))[1] for y in (90, 95, 98, 99)}
    assert height[99] - height[98] == pytest.approx(height[95] - height[90])
    low, high = axes.get_ylim()
    drawn = [float(y) for line in axes.lines[:-1] for y in line.get_ydata()]
    assert low < min(drawn) < max(drawn) < high
    assert {90, 95, 98, 99} <= set(axes.get_yticks())


def test_own_data_is_shown_without_its_place(make_record, tmp_path):
    """A path would be no file name, and tells where somebody keeps private records."""
    for number, place in enumerate(("a/xray.csv", "b/xray.csv", "b/mnist")):
        settings = Settings(data=f"/home/person/{place}", method="certified", epsilon=1.0 + number)
        records.write(make_record(settings, "unlisted", 0.8, 0), tmp_path / "results")
    found = gather.load(tmp_path / "results")
    ours = [s for s in gather.accuracy_series(found.groups) if s["source"] == "ours"]
    assert sorted(s["data"] for s in ours) == ["own data mnist", *["own data xray.csv"] * 2]
    assert [len(s["points"]) for s in ours] == [1, 1, 1]  # of two places: no curve through both
    written = figures.write(tmp_path / "results", tmp_path / "figures", endings=("svg",))
    assert tmp_path / "figures" / "accuracy-own-data-xray.csv.svg" in written
    assert "/home/person" not in page.render(page.gathered(found), page.charts(found))
