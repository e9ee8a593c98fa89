"""One form of result for every attack; it reaches the run's statement; bad input is one line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from simplexdp import audit, data, methods
from simplexdp.audit import attacks, schedules
from simplexdp.runs import RunFolder
from simplexdp.settings import Settings

FIELDS = {"attack", "epsilon_lower", "confidence", "trials", "relation", "seconds", "summary"}


def run(images: data.Dataset, attack: str, **more: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"batch_size": 10, "steps": 40, "model": "logistic"}
    settings = Settings(method="dirichlet", **{**options, **more.pop("settings", {})})
    return audit.run(settings, attack, dataset=images, seed=3, **more)


def test_every_attack_gives_the_fields_of_a_statement(images: data.Dataset, tmp_path: Path) -> None:
    for attack, trials in (("canary", 24), ("one-run", 64), ("membership", 4)):
        result = run(images, attack, trials=trials, out=tmp_path)
        assert set(result) >= FIELDS
        assert result["attack"] == attack
        assert result["trials"] == trials
        written = json.loads((tmp_path / f"images-dirichlet-{attack}.json").read_text())
        assert written == result
    assert (tmp_path / "images-dirichlet-roc.png").stat().st_size > 1000


@pytest.mark.parametrize("form", ["fixed", "trained"])
@pytest.mark.parametrize("attack", ["canary", "one-run", "membership", "reconstruct"])
def test_both_forms_of_gaussian_features_can_be_attacked(
    images: data.Dataset, monkeypatch: pytest.MonkeyPatch, form: str, attack: str
) -> None:
    for name, value in {"SMALL_RECORDS": 60, "SMALL_BATCH": 6, "SMALL_STEPS": 5}.items():
        monkeypatch.setattr(schedules, name, value)
    settings = Settings(method="gaussian-features", options={"form": form})
    trials = {"canary": 140, "one-run": 48, "membership": 4, "reconstruct": 2}[attack]
    result = audit.run(settings, attack, trials, dataset=images, seed=3)
    assert result["method"] == "gaussian-features"
    if attack == "reconstruct":  # below noise that trains too, the update is made of raw inputs
        assert (result["recovered"] > 0) is (form == "trained")


def test_what_was_found_before_an_attack_fails_is_kept(
    images: data.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacks.canary, "TRIALS", 40)
    with pytest.raises(ValueError, match="300 canaries do not fit"):
        run(images, "all", out=tmp_path)
    kept = json.loads((tmp_path / "images-dirichlet-all.json").read_text())["audits"]
    assert [found["attack"] for found in kept] == ["canary"]


def test_a_reconstruction_is_drawn(images: data.Dataset, tmp_path: Path) -> None:
    result = run(images, "reconstruct", settings={"model": "mlp"}, trials=2, out=tmp_path)
    assert result["recovered"] == 2
    assert (tmp_path / "images-dirichlet.png").read_bytes().startswith(b"\x89PNG")


def test_in_or_out_is_held_against_the_claim_itself(images: data.Dataset, tmp_path: Path) -> None:
    settings = Settings(method="certified", steps=3)
    result = audit.run(
        settings, "canary", 60, dataset=images, seed=3, out=tmp_path, relation="in-out"
    )
    assert result["relation"] == "in or out (zero-out)"
    assert result["claim"]["epsilon"] == pytest.approx(1.0)
    assert "not above the bound of 1 in that relation" in result["summary"]
    assert (tmp_path / "images-certified-canary-in-out.json").is_file()


def test_the_same_seed_gives_the_same_audit(images: data.Dataset) -> None:
    first, second = (run(images, "one-run", trials=64) for _ in range(2))
    for record in (first, second):
        del record["seconds"]
    assert first == second


def test_the_summary_says_how_the_bound_stands_to_the_figure(images: data.Dataset) -> None:
    result = run(images, "canary", trials=40)
    assert "above the bound of 1" in result["summary"]
    assert "does not cover the weights" in result["summary"]
    certified = audit.run(
        Settings(method="certified", steps=3), "canary", 136, dataset=images, seed=3
    )
    assert "not above the bound of 2.16" in certified["summary"]


def test_an_audit_of_a_run_reaches_its_statement(images: data.Dataset, tmp_path: Path) -> None:
    settings = Settings(method="dirichlet", model="logistic", batch_size=10, steps=40)
    _, folder = methods.run(settings, tmp_path / "run", dataset=images)
    before = json.loads((folder.path / "statement.json").read_text())
    assert before["audited"] is None
    result = audit.run(Settings(), "one-run", 64, folder=folder.path, dataset=images, seed=1)
    after = json.loads((folder.path / "statement.json").read_text())
    assert set(after["audited"]) == FIELDS | {"schedule"}
    assert after["audited"]["epsilon_lower"] == result["epsilon_lower"]
    assert after["audited"]["schedule"] == result["schedule"]
    (added,) = set(after["does_not_cover"]) - set(before["does_not_cover"])
    assert "private records without noise" in added
    same = {"audited": None, "does_not_cover": before["does_not_cover"]}
    assert {**after, **same} == before
    page = (folder.path / "statement.md").read_text()
    assert f"{result['summary']}; trained on this run's own schedule" in page


def test_a_bound_from_another_schedule_is_marked_in_the_statement(
    images: data.Dataset, tmp_path: Path
) -> None:
    """The canary audit trains its own few steps, and no audit with canaries augments."""
    settings = Settings(method="dirichlet", model="logistic", batch_size=10, steps=40)
    augmented = dataclasses.replace(settings, augment=("horizontal_flip",))
    for name, run_settings, attack, trials, trained in (
        ("few", settings, "canary", 24, "100 records, 10 steps, sampling: Poisson, rate 30/100"),
        ("flipped", augmented, "one-run", 64, "120 records, 40 steps, sampling: Poisson, rate 10/"),
    ):
        _, folder = methods.run(run_settings, tmp_path / name, dataset=images)
        audit.run(Settings(), attack, trials, folder=folder.path, dataset=images, seed=1)
        page = (folder.path / "statement.md").read_text()
        assert f"; trained on another schedule than this run's: {trained}" in page
    assert attacks.trained({}, own=False) == "trained on another schedule than this run's"


def bound(attack: str, epsilon: float, confidence: float) -> dict[str, Any]:
    return {
        "attack": attack,
        "epsilon_lower": epsilon,
        "confidence": confidence,
        "trials": 9,
        "relation": "replace-input",
        "covers_weights": True,
        "claim": {"epsilon": 1.0},
        "seconds": 0.0,
    }


def test_the_strongest_result_is_what_a_statement_shows() -> None:
    results = [{"epsilon_lower": None}, bound("canary", 0.5, 0.95), bound("one-run", 2.0, 0.95)]
    assert attacks.strongest(results, 0.9)["epsilon_lower"] == 2.0
    assert attacks.strongest(results[:1], 0.9) == results[0]


def test_all_attacks_share_the_error_that_is_allowed(
    images: data.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two bounds at 95 % leave 90 % for both: a statement at 95 % needs each at 97.5 %."""
    asked: dict[str, float] = {}

    def attack(name: str, epsilon: float | None) -> Any:
        def found(job: attacks.Job, advance: Any) -> dict[str, Any]:
            asked[name] = job.confidence
            if epsilon is None:
                return {"epsilon_lower": None, "trials": 1, "recovered": 0}
            return bound(name, epsilon, job.confidence)

        return found

    monkeypatch.setattr(attacks, "ATTACKS", ("canary", "one-run", "reconstruct"))
    for name, epsilon in {"canary": 0.5, "one-run": 2.0, "reconstruct": None}.items():
        monkeypatch.setitem(attacks.ATTACK, name, attack(name, epsilon))
    settings = Settings(method="dirichlet", model="logistic", batch_size=10, steps=2)
    _, folder = methods.run(settings, tmp_path / "run", dataset=images)
    record = audit.run(Settings(), "all", folder=folder.path, dataset=images, seed=1)
    assert asked == {
        "canary": pytest.approx(0.975),
        "one-run": pytest.approx(0.975),
        "reconstruct": 0.95,
    }
    audited = json.loads((folder.path / "statement.json").read_text())["audited"]
    assert (audited["attack"], audited["epsilon_lower"]) == ("one-run", 2.0)
    assert audited["confidence"] == 0.95
    assert "at 95 % confidence" in audited["summary"]
    assert "at 97.5 % confidence" in record["audits"][1]["summary"]

    audit.run(Settings(), "one-run", folder=folder.path, dataset=images, seed=1)
    assert asked["one-run"] == 0.95


def test_a_run_whose_data_is_gone_is_refused(images: data.Dataset, tmp_path: Path) -> None:
    settings = Settings(data=str(tmp_path / "gone.npz"), model="logistic", batch_size=10, steps=2)
    _, folder = methods.run(settings, tmp_path / "run", dataset=images)
    with pytest.raises(ValueError, match="is not at hand"):
        audit.run(Settings(), "one-run", folder=folder.path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: audit.run(Settings(), "guess"), "unknown attack 'guess'"),
        (lambda: audit.run(Settings(), confidence=95.0), "confidence"),
        (lambda: audit.run(Settings(), relation="both"), "unknown relation 'both'"),
        (
            lambda: audit.run(Settings(), "membership", relation="in-out"),
            "membership has no use for --relation in-out",
        ),
        (lambda: audit.run(Settings(method="magic")), "unknown method"),
        (lambda: audit.run(Settings(), folder=Path("nowhere")), "not a run folder"),
    ],
)
def test_bad_input_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_an_unfinished_run_is_refused_before_it_is_attacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacks, "make", lambda *given: pytest.fail("attacked first"))
    folder = RunFolder.create(tmp_path / "run", Settings())
    with pytest.raises(ValueError, match="not finished"):
        audit.run(Settings(), folder=folder.path)


def test_a_run_of_another_device_is_attacked_where_the_records_are(
    images: data.Dataset, tmp_path: Path
) -> None:
    settings = Settings(model="logistic", batch_size=10, steps=4, seed=0)
    _, folder = methods.run(settings, tmp_path / "run", dataset=images)
    path = folder.path / "run.json"
    path.write_text(path.read_text().replace('"device": "cpu"', '"device": "cuda"'))
    assert folder.settings().device == "cuda"
    result = audit.run(Settings(), "one-run", 64, folder=folder.path, dataset=images, seed=3)
    assert result["schedule"]["steps"] == 4
