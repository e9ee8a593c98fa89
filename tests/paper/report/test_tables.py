"""Tables from results: grouping, labels and notes."""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path

import pytest

from simplexdp import files
from simplexdp.paper import grid, records
from simplexdp.paper.report import gather, tables
from simplexdp.paper.table import Column, Table, to_latex, to_markdown
from simplexdp.settings import Settings

ROOT = Path(__file__).parents[3]
JPEG = "JPEG copy, not MedMNIST's own file: dermamnist.npz (sha256 abc); results on it are not"


def made(name, results):
    return tables.make(name, gather.load(results))


def row_of(table, row, source):
    (found,) = [r for r in table.rows if r["row"] == row and r["source"] == source]
    return found


def test_an_accuracy_table_has_ours_over_the_paper_s(results):
    table = made("fashion-mnist", results)
    heads = [c.head for c in table.columns]
    assert heads == ["method", "source", "ε = 0.5", "ε = 1", "ε = 2", "ε = 2.7", "ε = 4", "ε = ∞"]
    ours = row_of(table, "Dirichlet, inception, lr auto", "ours")
    values = [80.0, 80.4]  # the two made-up seeds of the first cell
    spread = statistics.stdev(values)
    assert ours["ε = 0.5"] == f"80.20 ± {spread:.2f} [2]"
    paper = row_of(table, "Dirichlet (Algorithm 1), inception, the paper", "published")
    assert paper["ε = 0.5"] == "81.02 ± 5.91"  # typed from the paper
    assert paper["ε = ∞"] == "93.13"
    assert [r["source"] for r in table.rows] == sorted(r["source"] for r in table.rows)
    assert any("not the weights" in note for note in table.notes)


def test_training_without_privacy_is_the_last_column_of_its_row(results):
    ours = row_of(made("fashion-mnist", results), "Dirichlet, inception, lr 0.1", "ours")
    assert ours["ε = ∞"] == "89.00"


def test_a_copy_of_the_data_is_said(results):
    table = made("dermamnist", results)
    assert row_of(table, "Dirichlet, resnet9, lr auto, JPEG copy", "ours")["ε = 1"] == "74.00"
    assert any("993 validation images" in note for note in table.notes)
    assert "Our runs used this data: JPEG copy, not MedMNIST's own file." in table.notes
    validation = made("dermamnist-validation", results)
    ours = row_of(validation, "Dirichlet, resnet9, lr auto, JPEG copy", "ours")
    assert ours["ε = 1"] == "75.00"
    paper = row_of(validation, "Dirichlet (Algorithm 1), resnet9, the paper", "published")
    assert paper["ε = 1"] == "74.98 ± 2.04"


def test_runs_on_a_copy_and_on_the_original_are_not_averaged(results, make_record):
    settings = grid.experiment("dermamnist").cells[0].settings  # ε = 1 on the copy is there: 74 %
    original = make_record(settings, "dermamnist", 0.77)
    table = tables.accuracy("dermamnist", gather.groups([*records.load(results).records, original]))
    assert row_of(table, "Dirichlet, resnet9, lr auto, JPEG copy", "ours")["ε = 1"] == "74.00"
    assert row_of(table, "Dirichlet, resnet9, lr auto", "ours")["ε = 1"] == "77.00"


@pytest.mark.parametrize("known", [True, False])
def test_runs_on_two_copies_are_not_averaged(make_record, known):
    """Known ones say their checksum, the record of a run on others has it."""
    settings = grid.experiment("dermamnist").cells[0].settings
    found = [
        make_record(settings, "dermamnist", value, seed, provenance=[JPEG.replace("abc", checksum)])
        if known
        else {
            **make_record(settings, "dermamnist", value, seed, provenance=[JPEG]),
            "data_checksums": {"dermamnist.npz": checksum},
        }
        for seed, (value, checksum) in enumerate([(0.2, "aaa"), (0.9, "bbb")])
    ]
    table = tables.accuracy("dermamnist", gather.groups(found))
    ours = {row["row"]: row["ε = 1"] for row in table.rows if row["source"] == "ours"}
    label = "Dirichlet, resnet9, lr auto, JPEG copy"
    assert ours == {
        f"{label}, run {found[0]['key']}": "20.00",
        f"{label}, run {found[1]['key']}": "90.00",
    }


def test_runs_that_read_alike_are_told_apart(make_record):
    """One asked for the network that the other got by default."""
    named, unnamed = (Settings(data="digits", model=model) for model in ("mlp", None))
    found = [make_record(named, "digits", 0.9), make_record(unnamed, "digits", 0.8, model="mlp")]
    ours = [row for row in tables.accuracy("digits", gather.groups(found)).rows]
    assert sorted(row["ε = 1"] for row in ours) == ["80.00", "90.00"]
    assert len({row["row"] for row in ours}) == 2


def test_the_figure_s_point_that_the_paper_s_table_has_is_taken_from_there(results, make_record):
    study = grid.experiment("cifar10-learning-rate").cells
    other = next(c for c in study if (c.settings.alpha, c.settings.lr) == (3.0, 0.2))
    table = grid.experiment("cifar10").cells
    shared = next(c for c in table if (c.settings.epsilon, c.settings.lr) == (1.0, 0.1))
    neighbour = next(c for c in table if (c.settings.epsilon, c.settings.lr) == (2.0, 0.1))
    found = [
        make_record(other.settings, "cifar10-learning-rate", 0.86),
        make_record(shared.settings, "cifar10", 0.82),
        make_record(neighbour.settings, "cifar10", 0.85),
    ]
    (curve,) = gather.learning_rates(gather.groups(found))["ours"]
    assert curve["points"] == [[0.1, 82.0], [0.2, 86.0]]
    assert gather.learning_rates(gather.groups(found[1:]))["ours"] == []


def test_what_covers_the_draws_is_what_the_readme_says(results):
    text = (ROOT / "README.md").read_text("utf-8")
    (line,) = [one for one in text.splitlines() if "| `gaussian-features` |" in one]
    (row,) = [r for r in made("covers", results).rows if r["method"] == "Gaussian features"]
    assert line.split(" | ")[-2:] == [str(row["draws"]), f"{row['weights']} |"]


def test_one_seed_twice_is_refused(make_record):
    settings = grid.experiment("digits").cells[0].settings
    twice = [make_record(settings, "digits", value) for value in (0.9, 0.8)]
    with pytest.raises(ValueError, match="has one seed twice; delete one of"):
        gather.groups(twice)


def test_accountants_stand_side_by_side_at_the_budgets_that_several_were_run_at(results):
    rows = made("accountants", results).rows
    assert [(row["epsilon"], row["accountant"]) for row in rows] == [
        ("0.5", "theorem1"),
        ("0.5", "pld"),
        ("1", "theorem1"),
        ("1", "pld"),
    ]
    # The made-up runs end at steps 16 to 20, the odd ones a point lower.
    cells = [c.row for c in grid.experiment("fashion-mnist").cells]
    first = cells.index("Dirichlet, inception, lr auto, accountant pld")
    assert rows[1]["ours"] == f"{80 + first:.2f}"
    assert rows[1]["late"] == f"{80 + first - 0.4:.2f} ({79 + first:.2f} to {80 + first:.2f})"


def test_learning_rates_are_sorted_by_their_effect(results):
    rows = made("collapse", results).rows
    assert len(rows) == 60
    assert [r["effective"] for r in rows] == sorted(r["effective"] for r in rows)
    three = next(r for r in rows if r["alpha"] == 3.0)
    kappa = three["effective"] / three["rate"]
    # the made-up r of 0.25 at α = 3: near the paper's r* = 0.2349, whose κ is 0.0771
    assert kappa == pytest.approx(0.0771 * 0.25 / 0.2349, rel=0.05)


def test_a_study_stands_beside_what_it_stands_for(results):
    table = made("sampling-rate", results)
    assert len(table.rows) == 3
    assert table.rows[0] == {
        "row": "lr auto",
        "column": "q = 0.001",
        "ours": "80.00",
        "published": "89.41 ± 3.63",
    }
    assert "in the place of the paper's CIFAR10" in table.notes[0]


def test_shorter_runs_are_labelled_as_such(results, make_record):
    cell = grid.experiment("cifar10").cells[0]
    short = dataclasses.replace(cell.settings, steps=500)
    assert gather.label(short, {}) == "Dirichlet, resnet18, lr auto, 500 of 20000 steps"
    cell = grid.experiment("svhn-part").cells[0]
    short = dataclasses.replace(cell.settings, steps=300)
    records.write(make_record(short, "svhn-part", 0.25), results)
    (row,) = made("svhn-part", results).rows
    assert row["row"] == "Dirichlet, lr auto, 300 of 2930 steps"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"alpha": 10.0}, "alpha 10"),
        ({"delta": 1e-3}, "delta 0.001"),
        ({"estimator": "full"}, "estimator full"),
        ({"augment": ("random_crop",)}, "augment random_crop"),
        ({"steps": None, "epochs": 3.0}, "3 epochs"),
    ],
)
def test_whatever_sets_a_run_apart_is_in_its_label(changed, said):
    settings = dataclasses.replace(grid.experiment("fashion-mnist").cells[0].settings, **changed)
    assert gather.label(settings, {}) == f"Dirichlet, inception, lr auto, {said}"


def test_runs_outside_the_recipes_are_told_apart(results, make_record):
    usual = Settings(data="fashion-mnist", model="tanh-cnn", steps=500, norm="none")
    changes = [
        ({"lr": 0.1}, "lr 0.1, no norm, 500 steps"),
        ({"lr": 1.0}, "lr 1, no norm, 500 steps"),
        (
            {"optimizer": "adam", "accountant": "pld", "alpha": 10.0},
            "adam, accountant pld, no norm, 500 steps, alpha 10",
        ),
    ]
    for changed, _ in changes:
        settings = dataclasses.replace(usual, **changed)
        record = make_record(settings, "fashion-mnist", 0.8) | {"model": "tanh-cnn"}
        records.write(record, results)
    rows = [row["row"] for row in made("fashion-mnist", results).rows]
    for _, said in changes:
        assert rows.count(f"Dirichlet (Algorithm 1), tanh-cnn, {said}") == 1


def test_two_runs_in_one_cell_are_told_apart(results, make_record):
    settings = grid.experiment("fashion-mnist").cells[0].settings
    other = dataclasses.replace(settings, data_options={"test_fraction": 0.5})
    records.write(make_record(other, "fashion-mnist", 0.9), results)
    rows = made("fashion-mnist", results).rows
    there = [
        row["row"] for row in rows if row["row"].startswith("Dirichlet, inception, lr auto, run")
    ]
    assert len(set(there)) == 2


def test_training_without_privacy_has_no_budget(results, make_record):
    for cell in grid.experiment("digits").cells:
        records.write(make_record(cell.settings, "digits", 0.9), results)
    found = {row["row"]: row["column"] for row in made("digits", results).rows}
    assert (found["plain"], found["dirichlet"]) == ("ε = ∞", "ε = 1")


@pytest.mark.parametrize("name", tables.names())
def test_every_table_can_be_written(name, results):
    table = made(name, results)
    for row in to_markdown(table).split("\n\n")[0].splitlines():
        assert row.count(" | ") == len(table.columns) - 1
    latex = to_latex(table)
    assert latex.count(r"\\") == len(table.rows) + 1
    # Accented Latin letters are LaTeX's own; Greek ones and signs have to be commands.
    assert [c for c in latex if not (c.isascii() or (c.isalpha() and ord(c) < 0x180))] == []


def test_an_unknown_table_lists_those_there_are(results):
    with pytest.raises(ValueError, match=r"no table 'nine'; use one of cifar10"):
        made("nine", results)
    with pytest.raises(ValueError, match="there is no results folder"):
        gather.load(results / "nowhere")


@pytest.mark.parametrize(
    ("given", "done", "shortened"),
    [
        ({}, 6006, False),
        ({"steps": 300}, 300, True),
        ({"steps": None, "epochs": 5.0}, 500, True),
        ({"steps": None, "epochs": 60.0}, 6006, False),
    ],
)
def test_a_run_of_fewer_steps_than_its_recipe_is_not_in_the_readme(
    tmp_path, make_record, given, done, shortened
):
    cell = grid.experiment("dermamnist").cells[0]
    settings = dataclasses.replace(cell.settings, **given)
    records.write(make_record(settings, "dermamnist", 0.7, 0, steps=done), tmp_path)
    assert len(made("readme", tmp_path).rows) == (0 if shortened else 1)


def test_the_readme_says_which_run_is_of_a_part_of_its_data_set(tmp_path, make_record):
    for cell in grid.experiment("fast").cells:
        at_one = (cell.settings.epsilon, cell.settings.norm) == (1.0, "group")
        if at_one and cell.settings.data in ("mnist", "svhn"):
            records.write(make_record(cell.settings, "fast", 0.9), tmp_path)
    named = [row["data"] for row in made("readme", tmp_path).rows]
    assert named == ["mnist", "svhn, a part: 8,000 records"]


def test_the_readme_has_the_certified_features_of_a_data_set_in_one_row(tmp_path, make_record):
    cells = {c.row: c for c in grid.experiment("digits").cells}
    records.write(make_record(cells["certified"].settings, "digits", 0.8), tmp_path)
    (chosen,) = (c for c in grid.experiment("certified").cells if c.row == "digits")
    records.write(make_record(chosen.settings, "certified", 0.9), tmp_path)
    assert [row["certified"] for row in made("readme", tmp_path).rows] == ["90.00"]


def test_the_readme_shows_an_encoder_beside_the_features_that_need_none(tmp_path, make_record):
    cell = next(c for c in grid.experiment("fast").cells if c.settings.data == "mnist")
    settings = dataclasses.replace(cell.settings, epsilon=1.0)
    records.write(make_record(settings, "fast", 0.9), tmp_path)
    of = {"data": "mnist", "fits": {"1": {"0": {"accuracy": 0.8}, "1": {"accuracy": 0.9}}}}
    path = tmp_path / "benchmarks" / "certified_features.json"
    path.parent.mkdir()
    files.write_json(path, {"a": {**of, "category": "ImageNet"}})
    (row,) = made("readme", tmp_path).rows
    assert row["encoder"] == "85.00 ± 7.07 [2]"
    files.write_json(path, {"a": {**of, "category": "no public data"}})
    (row,) = made("readme", tmp_path).rows
    assert "encoder" not in row


def test_a_long_table_may_be_broken_in_latex():
    def of(rows):
        return Table("t", "T", (Column("a", "A"), Column("b", "B")), ({"a": "x", "b": 1},) * rows)

    assert r"\begin{table}" in to_latex(of(40))
    long = to_latex(of(41)).splitlines()
    assert long[0] == r"\begin{longtable}{lc}"
    assert long[1:5] == [r"\toprule", r"A & B \\", r"\midrule", r"\endhead"]
    assert long[5:46] == [r"x & 1 \\"] * 41
    assert long[46:] == [r"\bottomrule", r"\caption{T.}\label{tab:t}", r"\end{longtable}"]
