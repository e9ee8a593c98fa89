"""The ledger: totals against closed forms, budgets, refusals."""

from __future__ import annotations

import json
import random
import shutil

import pytest

from simplexdp import ledger, methods
from simplexdp.accounting import account, events
from simplexdp.accounting.gaussian import gaussian_epsilon
from simplexdp.ledger import BudgetExceeded, Ledger
from simplexdp.settings import Settings


@pytest.fixture
def book(tmp_path):
    return Ledger(tmp_path / "deep" / "ledger.jsonl")


def test_gaussian_runs_compose_exactly(book):
    """Two releases of μ = 0.3 and μ = 0.4 are one of μ = 0.5, at any δ."""
    book.reserve("digits", "certified", events.gaussian(1 / 0.3), "a", "weights")
    book.reserve("digits", "certified", events.gaussian(10 / 0.4, 100), "b", "weights")
    for delta in (1e-5, 1e-20):
        spent = book.spent("digits", delta)
        assert spent.weights == pytest.approx(gaussian_epsilon(0.5, delta), rel=1e-9)
        assert spent.together == spent.weights
        assert spent.draws == 0.0


def test_running_totals_are_those_of_every_entry_counted_anew(book):
    """80 runs of seven kinds in any order, read back line by line."""
    kinds = [
        (events.gaussian(60.0, 9), "weights"),
        (events.gaussian(75.5), "weights"),
        (events.sampled_gaussian(3.0, 0.02, 40), "weights"),
        (events.sampled_gaussian(2.0, 0.01, 30), "weights"),
        (events.dirichlet(0.2, 3.0, 0.01, 60), "draws"),
        (events.dirichlet(0.1, 3.0, 0.02, 60, "visible"), "draws"),
        (events.gaussian(90.0), "draws"),
    ]
    rng = random.Random(3)
    for number in range(80):
        event, covers = rng.choice(kinds)
        book.reserve("digits", "m", event, f"runs/{number}", covers)
        if number % 20 == 19:
            entries = Ledger(book.path).entries("digits")
            assert len(entries) == number + 1
            spent = Ledger(book.path).spent("digits", 1e-5)
            for covered, found in (("weights", spent.weights), ("draws", spent.draws)):
                anew = [e.event for e in entries if e.covers == covered]
                assert found == pytest.approx(events.compose(anew, 1e-5), rel=1e-9)
            whole = events.compose([e.event for e in entries], 1e-5)
            assert spent.together == pytest.approx(whole, rel=1e-9)


def test_totals_are_kept_apart(book):
    run = {"r": 0.4, "alpha": 3.0, "sample_rate": 0.01, "steps": 500}
    book.reserve("digits", "dirichlet", events.dirichlet(**run), "a", "draws")
    book.reserve("digits", "dpsgd", events.sampled_gaussian(1.5, 0.01, 300), "b", "weights")
    book.reserve("other", "plain", events.no_guarantee(), "c", "nothing")
    spent = book.spent("digits", 1e-5)
    figure = account("pld", **run, delta=1e-5).epsilon
    assert spent.draws == pytest.approx(figure, rel=0.02)
    assert max(spent.draws, spent.weights) < spent.together < spent.draws + spent.weights
    assert (spent.runs, spent.uncovered) == (2, 1)
    assert ledger.summary(book.spent("other", 1e-5))["epsilon_together"] is None
    assert any("no bound covers" in line for line in ledger.describe(spent))
    assert book.data_sets() == ["digits", "other"]


def test_a_total_says_what_it_rests_on(book):
    run = {"r": 0.9, "alpha": 3.0, "sample_rate": 0.1, "steps": 5}
    book.reserve("d", "certified", events.gaussian(5.0), "a", "weights")
    spent = book.spent("d", 1e-5)
    text = "\n".join(ledger.describe(spent))
    assert "exact composition of Gaussian" in text
    assert "zero-out" in text
    assert "not the sum" in text
    assert "hidden participation" not in text
    assert "dominates" not in text
    book.reserve("d", "dirichlet", events.dirichlet(**run), "b", "draws")
    spent = book.spent("d", 1e-5)
    text = "\n".join(ledger.describe(spent))
    assert "composition of privacy loss distributions" in text
    assert "hidden participation is assumed" in text
    assert "not yet peer reviewed" in text
    assert "charged at its pld cost" in text
    record = ledger.summary(spent)
    assert record["accountants"]["weights"].startswith("exact composition")
    assert record["accountants"]["draws"] == "composition of privacy loss distributions"
    assert record["relation"].startswith("zero-out")
    assert "participation is visible" not in text
    small = {**run, "alpha": 0.49, "r": 0.4}
    book.reserve("d", "dirichlet", events.dirichlet(**small, participation="visible"), "c", "draws")
    caveats = "\n".join(book.spent("d", 1e-5).caveats)
    assert "proof by this project" in caveats
    assert "where participation is visible, the null record is sampled as any other" in caveats


def test_a_total_is_never_printed_below_itself(book):
    book.reserve("d", "certified", events.gaussian(5.0), "a", "weights")
    spent = book.spent("d", 1e-5)
    shown = float(ledger.describe(spent)[1].split("epsilon = ")[1].split()[0])
    assert spent.weights <= shown <= 1.001 * spent.weights


def test_a_delta_below_the_rounding_is_refused(book):
    run = {"r": 0.5, "alpha": 3.0, "sample_rate": 0.01, "steps": 2000}
    book.reserve("d", "dirichlet", events.dirichlet(**run), "a", "draws")
    with pytest.raises(ValueError, match="too small for pld"):
        book.spent("d", 1e-11)


def test_the_run_that_would_exceed_the_budget_is_refused_and_not_written(book):
    book.set_budget("digits", 1.0, 1e-5)
    event = events.gaussian(5.0)  # about 0.7 once, above 1 twice
    book.reserve("digits", "certified", event, "a", "weights")
    before = book.path.read_bytes()
    with pytest.raises(BudgetExceeded, match="nothing has started"):
        book.reserve("digits", "certified", event, "b", "weights")
    assert book.path.read_bytes() == before
    with pytest.raises(BudgetExceeded):
        book.reserve("digits", "plain", events.no_guarantee(), "c", "nothing")
    book.reserve("other data", "certified", event, "b", "weights")
    book.set_budget("digits", 2.0, 1e-5)
    book.reserve("digits", "certified", event, "b", "weights")
    assert book.budget("digits") == (2.0, 1e-5)
    assert len(book.entries("digits")) == 2


def test_a_resumed_run_is_counted_once_and_a_new_one_again(book):
    event = events.gaussian(10.0)
    first = book.reserve("digits", "certified", event, "a", "weights", run_id="1")
    assert book.reserve("digits", "certified", event, "moved", "weights", run_id="1") == first
    # Another run in a folder that was emptied, and one that nobody can recognise.
    assert book.reserve("digits", "certified", event, "a", "weights", run_id="2") != first
    assert book.reserve("digits", "certified", event, "a", "weights") != first
    assert book.reserve("digits", "certified", event, "a", "weights") != first
    assert len(book.entries()) == 4
    changed = events.gaussian(9.0)
    assert book.reserve("digits", "certified", changed, "a", "weights", run_id="1") != first


def test_what_is_written_is_plain_json_without_private_values(book):
    book.reserve("digits", "dpsgd", events.sampled_gaussian(1.0, 0.01, 10), "runs/a", "weights")
    line = json.loads(book.path.read_text())
    keys = {"kind", "id", "data", "method", "run", "run_id", "covers", "event", "broken", "time"}
    assert set(line) == {*keys, "prev"}


def test_bad_input(book):
    with pytest.raises(ValueError, match="never the released weights"):
        book.reserve("d", "dirichlet", events.dirichlet(0.4, 3.0, 0.01, 5), "a", "weights")
    with pytest.raises(ValueError, match="covers is"):
        book.reserve("d", "m", events.gaussian(1.0), "a", "all")
    with pytest.raises(ValueError, match="epsilon"):
        book.set_budget("d", 0.0, 1e-5)
    with pytest.raises(ValueError, match="delta"):
        book.spent("d", 1.0)
    with pytest.raises(ValueError, match="noise multiplier"):
        events.gaussian(0.0)
    with pytest.raises(ValueError, match="participation"):
        events.dirichlet(0.4, 3.0, 0.01, 5, "perhaps")
    assert book.entries() == []


def test_the_path_comes_from_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("SIMPLEXDP_LEDGER", str(tmp_path / "x.jsonl"))
    assert ledger.default_path() == tmp_path / "x.jsonl"


def test_a_run_without_privacy_is_not_told_to_plan_a_smaller_budget(book):
    book.set_budget("digits", 3.0, 1e-5)
    with pytest.raises(BudgetExceeded, match="no privacy mechanism, and no budget allows that"):
        book.reserve("digits", "plain", events.no_guarantee(), "a", "nothing")


SEED, COMPUTED = ["seed"], ["computed"]
DRAWS, DRAWS_TO_EXCESS = (events.dirichlet(0.4, 3.0, 0.01, steps) for steps in (5, 100_000))


def test_runs_that_break_an_assumption_are_charged_and_named(book):
    event = events.gaussian(9.0)
    for number, marks in enumerate((SEED, [*SEED, *COMPUTED], [])):
        book.reserve("d", "certified", event, str(number), "weights", broken=marks)
    spent = book.spent("d", 1e-5)
    assert spent.weights == pytest.approx(gaussian_epsilon(3**0.5 / 9.0, 1e-5), rel=1e-9)
    assert (spent.uncovered, spent.broken) == (2, {"seed": 2, "computed": 1, "coupled": 0})
    text, record = "\n".join(ledger.describe(spent)), ledger.summary(spent)
    for said in (text, "\n".join(record["caveats"])):
        assert "2 runs were made with a known seed: their bounds hold only against those" in said
        assert "1 run used values computed from the private inputs" in said
    assert record["runs_that_break_an_assumption"] == spent.broken
    assert [entry.broken for entry in book.entries()] == [("seed",), ("seed", "computed"), ()]


def test_a_resumed_run_is_the_same_whatever_its_marks(book):
    """An earlier version wrote no marks."""
    first = book.reserve("d", "m", events.gaussian(9.0), "a", "weights", run_id="1")
    again = events.gaussian(9.0)
    assert book.reserve("d", "m", again, "a", "weights", run_id="1", broken=SEED) == first


@pytest.mark.parametrize(
    ("event", "broken", "covers", "said"),
    [
        (DRAWS, [], "draws", ["counts this run's draws; nothing bounds its weights"]),
        (events.gaussian(9.0), SEED, "weights", ["do not know its seed"]),
        (events.gaussian(9.0), COMPUTED, "weights", ["computed from the private"]),
        (DRAWS, SEED, "draws", ["do not know its seed", "nothing bounds"]),
        (events.gaussian(9.0), [], "weights", []),
    ],
)
def test_what_a_budget_does_not_bound_is_said_when_it_admits_a_run(
    book, event, broken, covers, said, capsys
):
    book.reserve("unlimited", "m", event, "a", covers, broken=broken)
    book.set_budget("d", 2.0, 1e-5)
    assert capsys.readouterr().err == ""
    book.reserve("d", "m", event, "a", covers, run_id="1", broken=broken)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert len(lines) == len(said)
    assert all(words in line for words, line in zip(said, lines, strict=True))
    # Neither when it is found again nor when another is refused.
    book.reserve("d", "m", event, "a", covers, run_id="1", broken=broken)
    much = DRAWS_TO_EXCESS if covers == "draws" else events.gaussian(0.1)
    with pytest.raises(BudgetExceeded):
        book.reserve("d", "m", much, "b", covers, broken=SEED)
    assert (out, *capsys.readouterr()) == ("", "", "")
    text = "\n".join(ledger.describe(book.spent("d", 1e-5)))
    assert ("counts the draws of 1 run; nothing bounds" in text) is (covers == "draws")
    assert "the budget counts" not in "\n".join(book.spent("unlimited", 1e-5).caveats)


@pytest.mark.parametrize(
    "runs",
    [
        [events.gaussian(9.0), events.gaussian(9.0)],
        [events.sampled_gaussian(2.0, 0.01, 10), events.gaussian(9.0)],
    ],
)
def test_a_total_over_runs_says_that_they_must_be_fixed_beforehand(book, runs):
    """Also over Gaussian runs: a total at the moment of stopping is no filter's budget."""
    words = "fixed before the first result was seen"
    book.reserve("d", "m", runs[0], "a", "weights")
    assert words not in "\n".join(book.spent("d", 1e-5).caveats)
    book.reserve("d", "m", runs[1], "b", "weights")
    assert words in "\n".join(book.spent("d", 1e-5).caveats)
    book.reserve("d", "plain", events.no_guarantee(), "c", "nothing")
    assert words not in "\n".join(book.spent("d", 1e-5).caveats)  # infinite, however chosen


def split_folder(path):
    for name in ("train", "test"):
        (path / name / "class").mkdir(parents=True)
    return path


def test_a_split_folder_and_its_train_folder_are_the_same_records(tmp_path):
    folder = split_folder(tmp_path / "xray")
    assert ledger.identity(str(folder)) == ledger.identity(str(folder / "train"))
    assert ledger.identity(str(folder)) == str((folder / "train").resolve())
    assert ledger.identity(str(folder / "test")) == str((folder / "test").resolve())
    linked = split_folder(tmp_path / "linked")
    shutil.rmtree(linked / "train")
    (linked / "train").symlink_to(folder / "train")
    assert ledger.identity(str(linked)) == ledger.identity(str(folder))


@pytest.mark.parametrize("gone", [False, True])
def test_what_was_spent_under_the_name_of_the_split_folder_still_counts(book, tmp_path, gone):
    folder = split_folder(tmp_path / "xray")
    old, new = str(folder), ledger.identity(str(folder))
    book.set_budget(old, 1.0, 1e-5)
    event = events.gaussian(5.0)  # about 0.7 once, above 1 twice
    first = book.reserve(old, "certified", event, "a", "weights", run_id="1")
    if gone:
        shutil.rmtree(folder)
    assert book.reserve(new, "certified", event, "a", "weights", run_id="1") == first
    with pytest.raises(BudgetExceeded):
        book.reserve(new, "certified", event, "b", "weights")
    book.set_budget(new, 2.0, 1e-5)
    book.reserve(new, "certified", event, "b", "weights")
    for name in (old, new):
        assert book.knows(name)
        assert book.budget(name) == (2.0, 1e-5)
        assert [entry.run for entry in book.entries(name)] == ["a", "b"]
    assert book.data_sets() == [new]
    assert not book.knows(str(folder / "test"))
    assert not book.knows(str(tmp_path))


def test_draws_of_trained_features_are_no_better_than_those_of_algorithm_1(book):
    """Their event is a sampled Gaussian, whose weights are covered in DP-SGD and not in them."""
    event = events.sampled_gaussian(2.0, 0.05, 40)
    book.reserve("covered", "dpsgd", event, "a", "weights")
    book.reserve("draws", "gaussian-features", event, "b", "draws")
    for data, expected in (("covered", False), ("draws", True)):
        said = "\n".join(book.spent(data, 1e-5).caveats)
        assert ("hidden participation is assumed" in said) is expected
        assert ("at most the draws are covered" in said) is expected


def test_a_network_that_couples_records_is_marked(book, tmp_path):
    for norm, expected in (("batch", ("coupled", "seed")), ("none", ("seed",))):
        settings = Settings(
            data="digits", model="cnn", norm=norm, steps=2, batch_size=2, epsilon=8.0, seed=0
        )
        methods.run(settings, tmp_path / norm, ledger=book)
        assert book.entries()[-1].broken == expected
    assert "in 1 run a record's output depends on other" in "\n".join(
        book.spent("digits", 1e-5).caveats
    )


def test_a_budget_of_a_file_binds_under_every_name_of_it(book, tmp_path, monkeypatch):
    """As the guide has it: `event_` of a fit is entered under the name that the user types."""
    (tmp_path / "here").mkdir()
    path = tmp_path / "here" / "patients.csv"
    path.write_text("age,target\n")
    book.set_budget(str(path), 1.0, 1e-5)
    much = events.gaussian(1.0)  # ε = 4.4
    monkeypatch.chdir(path.parent)
    for name in (str(path), "patients.csv", "./patients.csv", "../here/patients.csv"):
        with pytest.raises(BudgetExceeded):
            book.reserve(name, "certified", much, "run", "weights")
        with pytest.raises(BudgetExceeded):
            book.check(name, [much])
    book.reserve("patients.csv", "certified", events.gaussian(10.0), "run", "weights")
    assert [entry.data for entry in book.entries()] == [str(path)]
    assert book.spent("patients.csv", 1e-5).runs == book.spent(str(path), 1e-5).runs == 1
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"no patients\.csv in this folder.* by its full path"):
        book.reserve("patients.csv", "certified", much, "run", "weights")
    book.reserve("cohort-7", "certified", much, "run", "weights")  # a label, of no file
    assert book.data_sets() == [str(path), "cohort-7"]


def test_a_line_of_a_relative_name_counts_with_the_file(book, tmp_path, monkeypatch):
    """Such lines were written before names were made full."""
    monkeypatch.chdir(tmp_path)
    book.reserve("patients.csv", "certified", events.gaussian(5.0), "a", "weights")
    (tmp_path / "patients.csv").write_text("age,target\n")
    book.reserve(str(tmp_path / "patients.csv"), "certified", events.gaussian(5.0), "b", "weights")
    assert book.spent("patients.csv", 1e-5).runs == 2
    assert len(book.data_sets()) == 1
