"""A method of one file outside the package does all that the built-in ones do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import simplexdp
from simplexdp import bundle, claims, compare, data, methods, runs
from simplexdp.accounting import events
from simplexdp.accounting.gaussian import calibrate_mu, gaussian_epsilon
from simplexdp.audit import attacks
from simplexdp.ledger import Ledger
from simplexdp.methods.base import Prepared
from simplexdp.settings import Settings

NAME = "centroids:METHOD"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent / "outside")


def settings(**given: object) -> Settings:
    return Settings(data="digits", method=NAME, epsilon=4.0, **given)  # type: ignore[arg-type]


def test_it_is_where_the_package_does_not_know_it() -> None:
    sources = Path(simplexdp.__file__).parent.rglob("*.py")
    assert not [path for path in sources if "centroids" in path.read_text(encoding="utf-8")]


def test_it_trains_is_counted_and_loads(tmp_path: Path) -> None:
    book = Ledger(tmp_path / "ledger.jsonl")
    outcome, folder = methods.run(settings(), tmp_path / "run", ledger=book)
    assert outcome.accuracy > 0.6
    assert outcome.statement.covers_weights
    assert outcome.statement.epsilon == pytest.approx(4.0, rel=1e-6)
    assert book.spent("digits", 1e-5).weights == pytest.approx(4.0, rel=1e-6)
    assert folder.configuration()["revision"] == 4
    with pytest.raises(ValueError, match=f"give --trust {NAME}"):
        bundle.load_model(folder.path)
    loaded = bundle.load_model(folder.path, method=methods.lookup(NAME))
    test = data.load("digits").test
    found = loaded.predict(test.inputs)
    assert float((np.asarray(found) == test.labels).mean()) == pytest.approx(outcome.accuracy)


def test_a_known_seed_repeats_it_and_a_finished_run_is_not_resumed(tmp_path: Path) -> None:
    first, _ = methods.run(settings(seed=1), tmp_path / "a")
    second, folder = methods.run(settings(seed=1), tmp_path / "b")
    for one, other in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert one.equal(other)
    with pytest.raises(ValueError, match="finished"):
        methods.run(settings(seed=1), folder.path, resume=True)


def test_it_goes_on_after_a_kill_and_is_counted_once_a_try(tmp_path: Path, killed) -> None:
    """It draws all its noise at once, so a killed try begins anew, and is another release."""
    book = Ledger(tmp_path / "ledger.jsonl")
    with killed(runs.RunFolder, "save_model"):
        methods.run(settings(), tmp_path / "run", ledger=book)
    outcome, _ = methods.run(settings(), tmp_path / "run", resume=True, ledger=book)
    assert outcome.accuracy > 0.6
    both = gaussian_epsilon(np.sqrt(2.0) * calibrate_mu(4.0, 1e-5), 1e-5)
    assert book.spent("digits", 1e-5).weights == pytest.approx(both, rel=1e-6)


def test_the_command_line_trains_describes_resumes_and_compares(
    tmp_path: Path, succeed, fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent / "outside"), prepend=":")
    run = tmp_path / "run"
    trained = ["--method", NAME, "--epsilon", "4", "--option", "radius=2.0"]
    record = succeed("train", *trained, "--out", str(run), "--quiet")
    assert (record["method"], record["radius"]) == (NAME, 2.0)
    assert record["statement"]["covers_weights"] is True
    told = succeed("methods", NAME)["methods"][0]
    assert (told["title"], told["options"][0]["name"]) == ("noisy centroids", "radius")
    assert "radius" in fail("train", *trained[:-1], "radius=big", "--out", str(tmp_path / "x"))
    assert "leave it out" in fail("train", *trained, "--lr", "1", "--out", str(tmp_path / "x"))
    assert "give it with --method too" in fail("train", "--resume", "--out", str(run))
    assert "finished" in fail("train", "--resume", "--out", str(run), "--method", NAME)
    rows = succeed("compare", "--methods", f"{NAME},plain", "--out", str(tmp_path / "compared"))
    assert [row["method"] for row in rows["methods"]] == [NAME, "plain"]


def test_the_command_line_predicts_where_it_is_trusted(tmp_path: Path, succeed, fail) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(200) % 2
    np.savez(tmp_path / "x.npz", X=rng.normal(size=(200, 3)) + 4 * labels[:, None], y=labels)
    asked = ("--data", "x.npz", "--bounds=-4:8", "--method", NAME, "--epsilon", "50")
    succeed("train", *asked, "--out", "run", "--quiet")
    succeed("release", "run", "--to", "given")
    told = fail("predict", "given", "x.npz")
    assert f"give --trust {NAME}" in told
    assert "needs code" in fail("predict", "given", "x.npz", "--trust", "other:METHOD")
    counts = succeed("predict", "given", "x.npz", "--trust", NAME)["classes"]
    assert min(counts.values()) > 80


def test_it_is_compared_and_audited(tmp_path: Path) -> None:
    rows = compare.compare(settings(seed=0), tmp_path / "runs", (NAME, "certified"))
    assert [row.covers_weights for row in rows] == [True, True]
    found = attacks.run(
        replace(settings(), epsilon=1.0), "one-run", trials=200, seed=0, out=tmp_path / "audits"
    )
    assert found["covers_weights"] is True
    assert found["epsilon_lower"] <= found["claim"]["epsilon"]
    assert found["revisions"] == {NAME: 4}
    assert json.loads(next((tmp_path / "audits").glob("*.json")).read_text())["method"] == NAME


@pytest.mark.parametrize(
    ("event", "covers"),
    [
        (events.no_guarantee(), claims.WEIGHTS),
        (events.gaussian(2.0), claims.NOTHING),
        (events.dirichlet(0.2, 3.0, 0.01, 10), claims.WEIGHTS),
    ],
)
def test_event_and_coverage_cannot_contradict_each_other(event, covers) -> None:
    """Statement and ledger entry have no other source, so they cannot either."""
    prepared = methods.prepare(settings(seed=0), data.load("digits"))
    coverage = replace(prepared.coverage, covers=covers)
    with pytest.raises(ValueError, match=r"covers"):
        Prepared(event, coverage, prepared.model, "x", 1, {}, prepared.start)


@pytest.mark.parametrize("claimed", [None, 0.01])
def test_a_bound_is_not_below_what_the_ledger_charges(claimed) -> None:
    prepared = methods.prepare(settings(seed=0), data.load("digits"))
    coverage = replace(prepared.coverage, epsilon=lambda event: claimed)
    with pytest.raises(ValueError, match=r"claim covers weights with"):
        replace(prepared, coverage=coverage)


def test_a_broken_assumption_is_told_to_the_ledger() -> None:
    prepared = methods.prepare(settings(seed=0), data.load("digits"))
    with pytest.raises(ValueError, match="has no mark"):
        replace(prepared.coverage, assumptions=(claims.Assumption("x", False),))


def test_persons_are_not_claimed_of_records(monkeypatch: pytest.MonkeyPatch) -> None:
    method = methods.lookup(NAME)
    honest = type(method).prepare

    def boasting(self, *given):
        found = honest(self, *given)
        return replace(found, coverage=replace(found.coverage, unit=claims.PERSON))

    monkeypatch.setattr(type(method), "prepare", boasting)
    with pytest.raises(ValueError, match="not grouped by person"):
        methods.prepare(settings(seed=0), data.load("digits"))
