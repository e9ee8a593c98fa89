"""The card of a model: valid for registries, true for people, silent where nothing is covered."""

from __future__ import annotations

import html.parser
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from simplexdp import methods, seal
from simplexdp.card import as_yaml
from simplexdp.evaluation import interval
from simplexdp.settings import Settings

yaml = pytest.importorskip("yaml")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("card") / "digits"
    methods.run(Settings(method="certified", options={"features": "columns"}), folder)
    return folder


def front(text: str) -> dict[str, Any]:
    head, _, rest = text.removeprefix("---\n").partition("\n---\n")
    assert rest.startswith("\n# ")
    found: dict[str, Any] = yaml.safe_load(head)
    return found


def test_a_released_card_is_valid_and_tells_no_accuracy(run: Path, tmp_path: Path) -> None:
    outcome = json.loads((run / "run.json").read_text())["outcome"]
    seal.release(run, tmp_path / "m", licence="apache-2.0")
    text = (tmp_path / "m/README.md").read_text()
    head = front(text)
    assert head["license"] == "apache-2.0"
    assert head["library_name"] == "simplexdp"
    assert "model-index" not in head
    told = (text, *((tmp_path / "m" / name).read_text() for name in seal.CARDS[1:]))
    for page in told:
        assert f"{100 * outcome['accuracy']:.2f}" not in page
        assert "Recall of" not in page
    assert "| ε | 1 |" in text
    assert "| μ (Gaussian) | " in text
    assert "| Features | columns-1 |" in text


def test_metrics_are_told_where_they_are_asked_for(run: Path, tmp_path: Path) -> None:
    outcome = json.loads((run / "run.json").read_text())["outcome"]
    seal.release(run, tmp_path / "m", with_metrics=True)
    text = (tmp_path / "m/README.md").read_text()
    (result,) = front(text)["model-index"][0]["results"]
    assert result["metrics"][0]["value"] == outcome["accuracy"]
    low, high = interval(outcome["accuracy"], 360)
    assert f"(95 % interval {100 * low:.1f} to {100 * high:.1f} %)" in text
    assert text.count("| Recall of ") == 10
    assert outcome["worst_recall"] == min(outcome["recalls"])
    seal.release(tmp_path / "m", tmp_path / "again")
    assert "Recall of" not in (tmp_path / "again/README.md").read_text()
    with pytest.raises(ValueError, match=r"run\.json is missing"):
        seal.release(tmp_path / "m", tmp_path / "third", with_metrics=True)


def test_what_people_fill_in_is_sealed_with_the_rest(
    run: Path, tmp_path: Path, command: Callable[..., Any]
) -> None:
    said = ("--licence", "mit", "--intended-use", "sorting <post>", "--curator", "The | Post")
    done = command("release", str(run), "--to", "m", *said)
    assert done.returncode == 0, done.stderr
    text, page, entry = ((tmp_path / "m" / name).read_text() for name in seal.CARDS)
    assert "| Intended use | sorting <post> |" in text
    assert "| Data held by | The \\| Post |" in text
    assert "sorting &lt;post&gt;" in page
    product = yaml.safe_load(entry)["deployment"]["product"]
    assert product["data_curators"] == ["The | Post"]
    assert product["intended_use"] == "sorting <post>"
    assert "not stated" not in text + page + entry
    (tmp_path / "m/NOTES.md").write_text("Whatever else is to be told stands beside it.")
    seal.verify(tmp_path / "m")


class Page(html.parser.HTMLParser):
    """A page whose every element is closed in order; it loads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not {"src", "href"} & {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone(run: Path, tmp_path: Path) -> None:
    seal.release(run, tmp_path / "m")
    assert "<td>m</td>" in (tmp_path / "m/card.html").read_text()  # printed and filed by its name
    for path in (run / "card.html", tmp_path / "m/card.html"):
        page = Page()
        page.feed(path.read_text())
        assert page.open == []
    assert "Recall of" in (run / "card.html").read_text()


def test_the_entry_for_a_registry_says_what_the_statement_says(run: Path, tmp_path: Path) -> None:
    sealed = seal.release(run, tmp_path / "m")
    entry = yaml.safe_load((tmp_path / "m/deployment.yaml").read_text())
    loss = entry["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"]["epsilon"] == sealed.statement.epsilon
    assert loss["privacy_parameters"]["delta"] == 1e-5
    assert loss["privacy_parameters"]["mu"] == sealed.statement.mechanism["mu"]
    assert entry["deployment"]["dp_flavor"]["name"] == "Approximate DP"


def test_a_model_that_nothing_covers_is_called_that_everywhere(tmp_path: Path) -> None:
    methods.run(Settings(steps=2, batch_size=8), tmp_path / "run")
    seal.release(tmp_path / "run", tmp_path / "m", although_not_covered=True)
    text = (tmp_path / "m/README.md").read_text()
    assert "# NOT COVERED" in text
    assert "not-private" in front(text)["tags"]
    assert "NOT COVERED" in (tmp_path / "m/card.html").read_text()
    entry = yaml.safe_load((tmp_path / "m/deployment.yaml").read_text())
    assert entry["deployment"]["dp_flavor"]["name"].startswith("None")


def test_yaml_of_anything_reads_back() -> None:
    content = {
        "a": {"b": ["- x: #1", None, True], "c": "é: 'q'\n"},
        "d": {},
        "e": 1e-05,
        "f": [{"g": 1e-9, "h": 2.5e-07}],
    }
    assert yaml.safe_load(as_yaml(content)) == content


def test_the_entry_for_a_registry_says_which_assumptions_are_broken(tmp_path: Path) -> None:
    methods.run(
        Settings(method="certified", seed=1, options={"features": "columns"}), tmp_path / "r"
    )
    seal.release(tmp_path / "r", tmp_path / "m", although_not_covered=True)
    entry = yaml.safe_load((tmp_path / "m/deployment.yaml").read_text())
    told = entry["deployment"]["implementation"]["justification"]
    assert " (BROKEN by this run) " in told
    covers = entry["deployment"]["accounting"]["post_processing"]
    assert covers.startswith("What the bound would cover: the released weights")
    for name in ("statement.md", "README.md", "card.html"):
        text = (tmp_path / "m" / name).read_text()
        assert "What the bound would cover" in text
        assert "What the bound covers" not in text
    assert (
        "chosen without looking at the private inputs or at results on them. (not checked)" in told
    )
