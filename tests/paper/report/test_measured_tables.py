"""Tables of what was measured beside the runs."""

from __future__ import annotations

import json

from simplexdp.paper.report import gather, measured_tables, tables


def test_classes_that_are_lost_are_said_of_runs_that_have_a_record(results):
    (row,) = measured_tables.classes(gather.load(results)).rows
    assert row == {
        "data": "dermamnist",
        "epsilon": "1",
        "rate": "auto, warm-up 601",
        "steps": "6,006",
        "seed": 0,
        "accuracy": "74.00",
        "recall": "0.0",
        "never": "melanoma, nevi",
    }
    assert measured_tables.rate_of({"lr": 0.05, "class_weights": True}) == "0.05, class weights"
    by_rule = {"lr": None, "class_weights": False}
    said = [measured_tables.rate_of({**by_rule, "warmup": steps}) for steps in (None, 0, 30)]
    assert said == ["auto", "auto at once", "auto, warm-up 30"]
    (note,) = [n for n in tables.readme(gather.load(results)).notes if "lost classes" in n]
    assert "Never predicted: 2 of 3 classes of dermamnist by a network at 74.00 %." in note
    (results / "benchmarks/classes.json").unlink()
    assert not measured_tables.classes(gather.load(results)).rows
    assert not [n for n in tables.readme(gather.load(results)).notes if "lost classes" in n]


def test_an_encoders_column_never_stands_without_what_its_bound_leaves_open(results):
    assert tables.ENCODED not in tables.readme(gather.load(results)).notes
    row = {"data": "dermamnist", "category": "ImageNet", "fits": {"1": {"0": {"accuracy": 0.5}}}}
    path = results / "benchmarks/certified_features.json"
    path.write_text(json.dumps({"a row": row}))
    table = tables.readme(gather.load(results))
    shown = any("encoder" in row for row in table.rows)
    assert shown
    assert tables.ENCODED in table.notes
