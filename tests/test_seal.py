"""The seal: what does not fit is refused in one line that names the file."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simplexdp import Plan, files, load_model, methods, runs, seal
from simplexdp.accounting import ACCOUNTANTS, events
from simplexdp.ledger import Ledger
from simplexdp.settings import Settings
from simplexdp.statement import WITHOUT_NOISE, Statement, from_json

HANDED_OUT = {
    *("model.json", "model.safetensors", "preprocessing.json"),
    *("statement.json", "statement.md"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose bound does not cover its weights, and one whose bound does."""
    base = tmp_path_factory.mktemp("runs")
    book = Ledger(base / "ledger.jsonl")
    methods.run(Settings(steps=5, batch_size=20, seed=0), base / "dirichlet", ledger=book)
    covered = Settings(method="certified", options={"features": "columns"})
    methods.run(covered, base / "certified", ledger=book)
    return base


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(trained / name, tmp_path / name))


def edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def refused(folder: Path, names: str) -> str:
    """Return the one line in which verify and load_model refuse a folder."""
    lines = []
    for check in (seal.verify, load_model):
        with pytest.raises(ValueError, match=re.escape(names)) as caught:
            check(folder)
        lines.append(str(caught.value))
    assert lines[0] == lines[1]
    assert "\n" not in lines[0]
    return lines[0]


@pytest.mark.parametrize("name", ["dirichlet", "certified"])
def test_the_manifest_names_what_was_trained(trained: Path, name: str) -> None:
    folder = trained / name
    sealed = seal.verify(folder)
    assert set(sealed.digests) == HANDED_OUT
    for file, digest in sealed.digests.items():
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest
    (entry,) = [e for e in Ledger(trained / "ledger.jsonl").entries() if e.method == name]
    assert (sealed.ledger_entry, sealed.method) == (entry.id, name)
    assert sealed.revision == methods.lookup(name).revision
    assert sealed.covered is (name == "certified")


def claim_much(record: dict[str, Any]) -> None:
    record.update(epsilon=0.01, covers_weights=True, assumptions=[], does_not_cover=[])


def test_a_statement_that_was_edited_is_refused(run: Callable[[str], Path]) -> None:
    """ε = 0.01 and covered weights, beside the weights of Algorithm 1."""
    folder = run("dirichlet")
    edit(folder / "statement.json", claim_much)
    refused(folder, "statement.json is not the file that manifest.json names")
    # Also by an editor who writes the digest anew.
    digest = hashlib.sha256((folder / "statement.json").read_bytes()).hexdigest()
    edit(folder / "manifest.json", lambda r: r["files"].update({"statement.json": digest}))
    said = refused(folder, "statement.json is not as it was written")
    assert "never the released weights" in said
    with pytest.raises(ValueError, match="never the released weights"):
        seal.seal_again(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epsilon": 0.01}, "it claims epsilon = 0.01, and its event costs"),
        ({"epsilon": None}, "covers something without a bound"),
        ({"epsilon": float("nan")}, "claims epsilon = nan"),
        ({"epsilon": True}, "field epsilon is of another type"),
        ({"delta": 1e-9}, "and its event costs"),
        ({"delta": 1.5}, "its delta is 1.5"),
        ({"delta": None}, "its delta is None"),
        ({"event": None}, "names no event"),
        ({"event": {"class": "LaplaceDpEvent"}}, "does not know an event"),
        ({"event": events.to_json(events.gaussian(0.5))}, "and its event costs"),
        ({"event": events.to_json(events.gaussian(1e9))}, "its mu is not that of its event"),
        ({"event": events.to_json(events.no_guarantee())}, "the claim covers weights"),
        ({"covers": [1]}, "field covers is of another type"),
        ({"steps": "many"}, "field steps is of another type"),
        ({"assumptions": [{"zz": 1}]}, "damaged or was edited"),
        ({"assumptions": [{"text": "x", "holds": "yes"}]}, "field assumptions is of another type"),
        ({"surplus": 1}, "damaged or was edited"),
        ({"mechanism": []}, "field mechanism is of another type"),
    ],
)
def test_a_claim_that_its_event_does_not_bear_is_refused(
    run: Callable[[str], Path], change: dict[str, Any], said: str
) -> None:
    """However well the digests fit."""
    folder = run("certified")
    edit(folder / "statement.json", lambda record: record.update(change))
    digest = hashlib.sha256((folder / "statement.json").read_bytes()).hexdigest()
    edit(folder / "manifest.json", lambda r: r["files"].update({"statement.json": digest}))
    assert said in refused(folder, "statement.json")


@pytest.mark.parametrize("name", sorted(ACCOUNTANTS))
def test_claims_of_every_accountant_are_computed_anew(name: str) -> None:
    seen = ACCOUNTANTS[name].participation
    plan = Plan(1.0, 1e-5, records=1000, batch_size=4, steps=20, accountant=name)
    coverage, event = plan.coverage(), plan.event()
    statement = from_json(json.loads(json.dumps(Statement.of(event, coverage, 20).to_json())))
    assert statement.epsilon is not None
    seal.check_claim(statement)
    with pytest.raises(ValueError, match="and its event costs"):
        seal.check_claim(dataclasses.replace(statement, epsilon=0.99 * statement.epsilon))
    if seen == "hidden":
        visible = events.dirichlet(plan.r, 3.0, 0.004, 20, "visible")
        with pytest.raises(ValueError, match="needs hidden batches"):
            seal.check_claim(dataclasses.replace(statement, event=visible))


@pytest.mark.parametrize("name", sorted(HANDED_OUT))
def test_a_flipped_bit_is_refused(run: Callable[[str], Path], name: str) -> None:
    path = run("certified") / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    refused(path.parent, f"{name} is not the file that manifest.json names")


def test_a_manifest_of_another_run_is_refused(run: Callable[[str], Path]) -> None:
    one, other = run("dirichlet"), run("certified")
    shutil.copy(other / "manifest.json", one / "manifest.json")
    refused(one, "is not the file that manifest.json names")
    shutil.copy(other / "statement.json", one / "statement.json")
    shutil.copy(other / "statement.md", one / "statement.md")
    refused(one, "model.json is not the file that manifest.json names")


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: '{"name": "app", "icons": []}',
        lambda text: "[" * 100_000,
        lambda text: "null",
        lambda text: "7",
        lambda text: text.replace('"format": 1', '"format": 2'),
        lambda text: text.replace('"method": "certified"', '"method": "dirichlet"'),
        lambda text: text.replace('"method": "certified"', '"method": 3'),
        lambda text: text.replace('"statement.md"', '"../statement.md"'),
        lambda text: text.replace('"statement.md"', '"\\u001b[2J"'),
        lambda text: text.replace('"statement.json"', '"other.json"'),
        lambda text: text.replace('"files": {', '"files": {"more": 3, '),
        lambda text: text.replace('"revision"', '"edition"'),
        lambda text: text.replace('"revision": ', '"revision": true, "was": '),
    ],
)
def test_a_manifest_that_is_none_is_refused(
    run: Callable[[str], Path], change: Callable[[str], str]
) -> None:
    path = run("certified") / "manifest.json"
    changed = change(path.read_text())
    assert changed != path.read_text()
    path.write_text(changed)
    assert "\x1b" not in refused(path.parent, "m")


def test_preprocessing_nested_too_deep_is_refused_though_its_digest_fits(
    run: Callable[[str], Path],
) -> None:
    folder = run("certified")
    (folder / "preprocessing.json").write_text("[" * 100_000)
    manifest = json.loads((folder / "manifest.json").read_text())
    content = (folder / "preprocessing.json").read_bytes()
    manifest["files"]["preprocessing.json"] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=r"preprocessing\.json is not as it was written \(nested"):
        load_model(folder)


def test_a_file_that_would_block_or_is_gone_is_refused(run: Callable[[str], Path]) -> None:
    folder = run("certified")
    (folder / "statement.md").unlink()
    refused(folder, "statement.md is missing")
    os.mkfifo(folder / "statement.md")
    refused(folder, "statement.md is no regular file")


def test_a_folder_of_an_earlier_version_says_how_it_is_sealed(
    run: Callable[[str], Path], succeed: Callable[..., dict[str, Any]], fail: Callable[..., str]
) -> None:
    folder = run("certified")
    before = seal.verify(folder)
    (folder / "manifest.json").unlink()
    said = refused(folder, "has no manifest.json")
    assert f"simplexdp verify --seal {folder}" in said
    assert "has no manifest.json" in fail("verify", str(folder))
    record = succeed("verify", "--seal", str(folder))
    assert record["files"] == dict(before.digests)
    assert record["revision"] == before.revision  # as run.json has it
    assert succeed("verify", str(folder))["covered"] is True


def test_a_kill_before_the_manifest_leaves_a_run_that_goes_on(tmp_path: Path, killed: Any) -> None:
    """The manifest is there before the run counts as finished."""
    settings = Settings(steps=5, batch_size=20, seed=0)
    with killed(files, "write_json", lambda path, record: path.name == "manifest.json"):
        methods.run(settings, tmp_path / "run")
    assert not runs.RunFolder(tmp_path / "run").finished()
    methods.run(settings, tmp_path / "run", resume=True)
    seal.verify(tmp_path / "run")


def test_what_is_released_is_what_may_be_handed_out(
    run: Callable[[str], Path], tmp_path: Path, succeed: Callable[..., dict[str, Any]]
) -> None:
    folder, bundle = run("certified"), tmp_path / "bundle"
    record = succeed("release", str(folder), "--to", str(bundle))
    assert {p.name for p in bundle.iterdir()} == HANDED_OUT | {"manifest.json", *seal.CARDS}
    text = (bundle / "README.md").read_text()
    assert "\n---\n\n# The released weights are covered by a privacy bound\n" in text
    assert record["covered"] is True
    for name in HANDED_OUT:
        assert (bundle / name).read_bytes() == (folder / name).read_bytes()
    before, after = seal.verify(folder), seal.verify(bundle)
    assert after.ledger_entry == before.ledger_entry
    assert after.revision == before.revision
    assert set(after.digests) == HANDED_OUT | set(seal.CARDS)


def test_weights_that_nothing_covers_are_not_released_unasked(
    run: Callable[[str], Path], tmp_path: Path, fail: Callable[..., str]
) -> None:
    folder, bundle = run("dirichlet"), tmp_path / "bundle"
    said = fail("release", str(folder), "--to", str(bundle))
    assert "no bound covers the weights" in said
    assert "--although-not-covered" in said
    assert not bundle.exists()
    seal.release(folder, bundle, although_not_covered=True)
    text = (bundle / "README.md").read_text()
    assert "\n---\n\n# NOT COVERED: no privacy bound holds" in text
    with pytest.raises(ValueError, match="exists; name a new folder"):
        seal.release(folder, bundle, although_not_covered=True)
    # The line cannot be taken away unnoticed.
    (bundle / "README.md").write_text("# A private model\n")
    refused(bundle, "README.md is not the file that manifest.json names")


def test_an_audits_numbers_are_not_released(run: Callable[[str], Path], tmp_path: Path) -> None:
    folder = run("certified")
    before = (folder / "statement.json").read_bytes()
    statement = seal.verify(folder).statement
    audited = dataclasses.replace(
        statement,
        audited={"summary": "a bound of 0.123"},
        does_not_cover=(*statement.does_not_cover, WITHOUT_NOISE),
    )
    runs.RunFolder(folder).save_statement(audited)
    assert "0.123" in (folder / "statement.md").read_text()
    seal.release(folder, tmp_path / "bundle")
    assert (tmp_path / "bundle/statement.json").read_bytes() == before
    assert "0.123" not in (tmp_path / "bundle/statement.md").read_text()


def test_files_that_are_named_later_are_checked_the_same_way(
    run: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal, "HANDED_OUT", (*seal.HANDED_OUT, "notes.json"))
    folder = run("certified")
    (folder / "notes.json").write_text("{}")
    with pytest.raises(ValueError, match=r"does not name notes\.json"):
        seal.verify(folder).read("notes.json")  # unsealed, it is never read
    seal.seal_again(folder)
    assert seal.verify(folder).read("notes.json") == b"{}"
    seal.release(folder, tmp_path / "bundle")
    assert seal.verify(tmp_path / "bundle").read("notes.json") == b"{}"
    (tmp_path / "bundle/notes.json").write_text('{"bounds": [0, 1]}')
    refused(tmp_path / "bundle", "notes.json is not the file")


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_signature_tells_who_sealed_it(
    run: Callable[[str], Path],
    tmp_path: Path,
    succeed: Callable[..., dict[str, Any]],
    fail: Callable[..., str],
) -> None:
    for name in ("mine", "other"):
        quiet = ("-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(tmp_path / name))
        subprocess.run(["ssh-keygen", *quiet], check=True)
    signers = tmp_path / "signers"
    signers.write_text(f"me@example.org {(tmp_path / 'mine.pub').read_text()}")
    bundle, asked = tmp_path / "bundle", (signers, "me@example.org")
    sealed = seal.release(run("certified"), bundle, sign_with=tmp_path / "mine")
    seal.check_signature(sealed, *asked)
    shown = ("verify", "bundle", "--signers", str(signers), "--signer", "me@example.org")
    assert succeed(*shown)["signer"] == "me@example.org"
    assert "both --signers FILE and --signer" in fail(*shown[:4])
    # An editor who computes every digest anew cannot sign.
    (bundle / "statement.md").write_text("# Private\n")
    changed = seal.seal_again(bundle)
    assert "is no signature of me@example.org" in fail(*shown)
    seal.sign(bundle, tmp_path / "other")
    with pytest.raises(ValueError, match=r"is no signature of me@example\.org"):
        seal.check_signature(changed, *asked)
    (bundle / "manifest.json.sig").unlink()
    with pytest.raises(ValueError, match="nobody signed it"):
        seal.check_signature(changed, *asked)
    with pytest.raises(ValueError, match="was not signed with"):
        seal.sign(bundle, tmp_path / "no key")
