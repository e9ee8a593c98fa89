"""Files of measurements: what is said of audits, and of a file that is none."""

from __future__ import annotations

import json

import pytest

from simplexdp.paper.report import gather, measured, page, tables


@pytest.mark.parametrize(
    ("place", "content"),
    [
        ("audit/digits.json", "[]"),
        ("benchmarks/classes.json", "{}"),
        ("benchmarks/cost.json", "[]"),
        ("accounting/paper_table.json", "{}"),
        ("certified/peers.json", "[]"),
        ("audit/digits.json", '{"revisions": {}, "epsilon_lower": 1}'),
        ("audit/digits.json", '{"revisions": {}, "rows": 5}'),
        ("audit/digits.json", '{"revisions": {}, "epsilon_lower": NaN}'),
        ("benchmarks/classes.json", '{"rows": [{}]}'),
        ("benchmarks/cost.json", '{"revisions": {}, "networks": [{}]}'),
        ("accounting/paper_table.json", '{"rows": [{}]}'),
        ("certified/peers.json", '{"data": {"x": {}}}'),
    ],
)
def test_a_file_of_another_kind_or_shape_is_named(results, place, content):
    (results / place).parent.mkdir(exist_ok=True)
    (results / place).write_text(content)
    with pytest.raises(ValueError, match=f"{place}.*make it again"):
        page.gathered(gather.load(results))


def test_a_claim_at_another_delta_is_said(results):
    rows = measured.audits(results)
    said = "At δ = 3.71e-05, claim and bound: digits, certified linear, canary."  # rounded up
    assert measured.other_deltas(rows) == said
    assert measured.other_deltas([r for r in rows if r["method"] != "certified"]) == ""


def test_the_loop_stands_beside_a_tight_one_with_its_spread(results):
    path = results / "benchmarks" / "speed.json"
    path.parent.mkdir(exist_ok=True)
    kinds = ("plain", "dirichlet", "dirichlet, link log")
    one = {kind: {"ratio": 1.234, "middle_half": [1.1, 1.3]} for kind in kinds}
    path.write_text(json.dumps({"rounds": 7, "MLP": {"batch": 8, "tight plain loop": {}, **one}}))
    table = tables.make("speed", gather.load(results))
    assert table.rows == (
        {"network": "MLP", "batch": 8} | dict.fromkeys(kinds, "1.23 (1.10 to 1.30)"),
    )
    path.write_text(json.dumps({"MLP": {"tight plain loop": {}}}))
    with pytest.raises(ValueError, match=r"speed\.json.*make it again"):
        tables.make("speed", gather.load(results))
