"""The statement: JSON and Markdown say the same, and neither says too much."""

from __future__ import annotations

import dataclasses
import json

import pytest
from sklearn.datasets import load_iris

from simplexdp import CertifiedClassifier, Plan, claims, methods, statement
from simplexdp.settings import Settings


def released(
    seed_known: bool, computed_from_data: tuple[str, ...], covers_weights: bool = True
) -> statement.Statement:
    """A statement as methods make it whose figure covers what they release."""
    return statement.Statement(
        method="m",
        mechanism={"name": "Gaussian"},
        epsilon=1.0,
        delta=1e-5,
        accountant="exact",
        relation="zero-out",
        sampling="none",
        steps=1,
        covers_draws=True,
        covers_weights=covers_weights,
        covers=("what is released",),
        does_not_cover=(),
        assumptions=tuple(claims.common_assumptions(seed_known, computed_from_data)),
    )


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


def test_where_every_assumption_may_hold_the_figure_covers_the_weights():
    made = released(False, ())
    assert made.headline() == "ε = 1, δ = 1e-05 (exact); covers the released weights."
    # Never a δ below the one that was paid for: 1 / 54210 = 1.84468e-05.
    small = dataclasses.replace(made, delta=1 / 54_210)
    assert small.headline().startswith("ε = 1, δ = 1.85e-05 ")
    assert "| Covers the released weights | yes |" in made.to_markdown()
    assert "## What the bound covers" in made.to_markdown()


@pytest.mark.parametrize(
    ("seed_known", "computed"), [(True, ()), (False, ("bounds of age",)), (True, ("a mean",))]
)
def test_a_broken_assumption_leaves_the_run_without_protection(seed_known, computed):
    """The headline and the table say so; the record keeps what the method's figure is about."""
    made = released(seed_known, computed)
    assert "would cover the released weights" in made.headline()
    assert made.headline().endswith("breaks an assumption: NOT private as it stands.")
    page = made.to_markdown()
    for what in ("draws", "released weights"):
        assert f"| Covers the {what} | **no**: this run breaks an assumption |" in page
    assert "## What the bound would cover" in page
    assert made.to_json()["covers_weights"] is True
    assert len(made.broken()) == seed_known + bool(computed)


def test_a_broken_assumption_uncovers_draws_too():
    assert "covers the draws only" in released(False, (), covers_weights=False).headline()
    broken = released(True, (), covers_weights=False)
    assert "under assumptions that this run breaks" in broken.headline()
    assert "Covers the draws | **no**" in broken.to_markdown()


def test_a_known_seed_shows_in_the_headline_of_a_covered_method():
    rows, labels = load_iris(return_X_y=True)
    secret, known = (
        CertifiedClassifier(random_state=seed).fit(rows, labels).statement_ for seed in (None, 3)
    )
    assert secret.headline().endswith("; covers the released weights.")
    assert known.headline().endswith("NOT private as it stands.")


@pytest.mark.parametrize("relation", ["zero-out", "add/remove", "replace-input"])
def test_a_reader_is_told_what_a_relation_is_and_never_that_a_label_is_protected(relation):
    made = dataclasses.replace(released(False, ()), relation=relation)
    row = next(line for line in made.to_markdown().splitlines() if "Neighbouring" in line)
    assert f"{relation}" in row
    assert "label stays" in row or "label and the number of records are public" in row
    assert made.to_json()["relation"] == relation


@pytest.mark.parametrize("method", ["certified", "dpsgd", "gaussian-features", "dirichlet"])
def test_what_every_statement_says_of_bounds_of_replacing_and_of_bits(tmp_path, blobs, method):
    settings = Settings(method=method, steps=2 if method in ("dpsgd", "dirichlet") else None)
    outcome, _ = methods.run(settings, tmp_path / "run", dataset=blobs)
    found = [a for a in outcome.statement.assumptions if "bounds, categories and sizes" in a.text]
    assert [assumption.holds for assumption in found] == [None]
    replaced = any("Replacing an input" in text for text in outcome.statement.does_not_cover)
    assert replaced is (method != "dirichlet")
    exact = any("independent random bits" in a.text for a in outcome.statement.assumptions)
    assert exact is (method in ("certified", "gaussian-features"))


def test_predictions_on_the_training_records_are_not_covered():
    X, y = load_iris(return_X_y=True)
    made = CertifiedClassifier(epsilon=1.0, bounds=(0.0, 8.0)).fit(X, y).statement_
    assert any("Predictions on the training records" in line for line in made.does_not_cover)
    assert "Covers the draws" not in made.to_markdown()  # it makes none
    assert not made.broken()
