"""The figures for papers: every one drawn, the same results giving the same bytes."""

from __future__ import annotations

from simplexdp.report import figures


def test_every_figure_and_table_is_written(results, tmp_path):
    written = figures.write(results, tmp_path / "figures", endings=("svg",))
    names = {path.name for path in written}
    for stem in ("accuracy-fashion-mnist", "learning-rate-ours", "learning-rate-published"):
        assert f"{stem}.svg" in names
    assert {"asymptotics.svg", "r-star.tex", "r-star.md", "fashion-mnist-test.tex"} <= names
    svg = (tmp_path / "figures/asymptotics.svg").read_bytes()
    assert b"<svg" in svg
    again, pdf = figures._save(figures._asymptotics(), tmp_path / "again", ["svg", "pdf"])
    assert again.read_bytes() == svg
    assert pdf.read_bytes().startswith(b"%PDF")
