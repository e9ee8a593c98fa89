"""The statement: JSON and Markdown say the same, and neither says too much."""

from __future__ import annotations

import json

from simplexdp import Plan, statement


def test_json_round_trip():
    made = Plan(epsilon=4.0, delta=1e-5, records=400, batch_size=2, steps=9, seed=1).statement()
    record = json.loads(json.dumps(made.to_json()))
    again = statement.from_json(record)
    assert again.to_markdown() == made.to_markdown()
    assert again.to_json() == made.to_json()


def test_markdown_names_every_layer():
    text = Plan(epsilon=4.0, delta=1e-5, records=400, batch_size=2, steps=9).statement()
    page = text.to_markdown()
    for layer in (
        "Unit of privacy",
        "Neighbouring relation",
        "Public",
        "Mechanism",
        "Sampling",
        "Accountant",
        "Covers the released weights | **no**",
        "What it does not cover",
        "Assumptions",
        "BROKEN by this run",
        "no audit was run",
    ):
        assert layer in page, layer


def test_what_was_computed_from_the_data_breaks_an_assumption():
    plan = Plan(epsilon=4.0, delta=1e-5, records=400, batch_size=2, steps=9)
    broken = plan.statement(computed_from_data=("bounds of age",)).to_json()["broken_assumptions"]
    assert any("bounds of age" in text for text in broken)
