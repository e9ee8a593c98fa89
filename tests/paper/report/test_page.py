"""The page in a real browser: no errors, charts shown, filters work, no request made."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess

import pytest

from simplexdp.paper import grid, records
from simplexdp.paper.report import gather, page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture
def written(results, tmp_path):
    page.write(results, tmp_path / "out/report.html")
    return tmp_path / "out/report.html"


@pytest.fixture
def dom(written, tmp_path):
    """The page's elements that are shown after its script has run, for a hash.

    Of the two drawings of a chart, the one for a phone is left out.
    """
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        pytest.skip("no Chromium found")

    def load(hash_: str = "", width: int = 1200, script: str = "") -> str:
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        shown = written.with_name("shown.html")
        script += """
          document.querySelectorAll("[hidden], .slim").forEach((node) => node.remove());
        """
        shown.write_text(f"{written.read_text()}<script>{script}</script>")
        address = f"{shown.as_uri()}#{hash_}"
        done = subprocess.run(
            [browser, *FLAGS, profile, f"--window-size={width},1600", "--dump-dom", address],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        return done.stdout

    return load


def section(html: str, name: str) -> str:
    return html.split(f'<section id="{name}">')[1].split("</section>")[0]


def chart(html: str) -> str:
    """The section of the accuracies without the tables beneath, which no filter changes."""
    return re.sub(r"<details>.*?</details>", "", section(html, "accuracy"), flags=re.S)


def test_the_page_is_whole_and_asks_the_network_for_nothing(written):
    text = written.read_text()
    outside = re.sub(r"http://www\.w3\.org/2000/svg", "", text)  # a name, not an address
    assert not re.search(r"(https?:)?//[a-z0-9.-]+\.[a-z]{2,}", outside.replace("://#", ""))
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=\"(?!data:)", text)
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text
    assert "/*" not in text.split("<style>")[0]


@pytest.mark.parametrize("hostile", ["</script><script>alert(1)</script>", "<!--<script>"])
def test_markup_in_the_data_stays_data(hostile):
    text = page.render({"title": hostile}, {})
    assert hostile not in text
    inside = text.split('id="content">')[1].split("</script>")[0]
    assert "<" not in inside
    assert json.loads(inside)["title"] == hostile


def test_a_record_with_markup_does_not_blank_the_page(results, make_record, written, dom):
    """`<!--<script>` in a script element keeps the parser from seeing where it ends."""
    settings = dataclasses.replace(grid.experiment("digits").cells[0].settings, alpha=5.0)
    record = make_record(settings, "digits", 0.9, model="<!--<script>")
    records.write(record, results)
    page.write(results, written)
    html = dom("data=digits")
    assert 'data-ready="yes"' in html
    assert 'data-problems=""' in html
    assert "&lt;!--&lt;script&gt;" in section(html, "accuracy")
    assert "&lt;!--&lt;script&gt;" in section(html, "methods")


def test_pictures_are_embedded(results, tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures/one-record.png").write_bytes(b"\x89PNG")
    found = page.gathered(gather.load(results), tmp_path / "pictures")["pictures"]
    assert found == [{"caption": "one record", "source": "data:image/png;base64,iVBORw=="}]
    with pytest.raises(ValueError, match="no folder of pictures"):
        page.gathered(gather.load(results), tmp_path / "nowhere")


def test_lost_classes_and_other_software_are_on_the_page(results):
    (results / "certified").mkdir()
    of = {"accuracy": 0.9, "deviation": 0.01, "runs": 3, "seconds": 1.0}
    step = {"records": 10, "width": 4, "ratio": 8.0}
    step |= {"certified_seconds": 0.1, "opacus_seconds": 0.8}
    same = {"steps": 40, "epsilon": 1.0, "certified_accuracy": 0.9, "opacus_accuracy": 0.9}
    same |= {"certified_seconds": 0.1, "opacus_seconds": 0.8}
    budget = {"epsilon": 1.0, "certified": of, "diffprivlib": of}
    one = {"budgets": [budget], "step": step, "opacus": same}
    (results / "certified/peers.json").write_text(json.dumps({"data": {"digits": one}}))
    content = page.gathered(gather.load(results))
    assert content["classes"]["heads"][-1] == "never predicted"
    assert content["classes"]["cells"][0][-1] == "melanoma, nevi"
    assert content["classes"]["notes"][0].startswith("Accuracy hides lost classes.")
    (peers,) = [t for t in content["tables"] if t["title"] == "The same columns, other software"]
    assert peers["cells"] == [["digits", "1", "90.00 ± 1.00 [3]", "1", "90.00 ± 1.00 [3]", "1"]]
    assert "(δ = 0)" in peers["notes"][0]  # the two figures do not say the same
    assert content["other_deltas"].startswith("At δ = 3.71e-05")


def cells(html: str) -> list[tuple[str, str]]:
    """The class and the text of every cell of a table."""
    found = re.findall(r"<td([^>]*)><span>([^<]*)</span>", html)
    return [("".join(re.findall(r'class="([^"]*)"', about)), text) for about, text in found]


def lines(html: str) -> list[str]:
    """The look of every curve of a section's charts."""
    charts = re.sub(r'<p class="legend">.*?</p>', "", html, flags=re.S)
    found = re.findall(
        r'<g(?: data-method="[^"]*")?><path d="M[^"]* L [^"]*" style="([^"]*)"></path><(?:defs|g)',
        charts,
    )
    return [style for style in found if "fill: none" in style]


def dashed(html: str) -> int:
    return sum("dasharray" in style for style in lines(html))


def test_it_loads_without_errors_and_draws(dom):
    html = dom()
    assert 'data-ready="yes"' in html
    assert 'data-problems=""' in html
    accuracy = chart(html)
    # ours: Dirichlet at two learning rates and with another accountant, DP-SGD; the paper's two
    assert (len(lines(accuracy)), dashed(accuracy)) == (6, 2)
    assert accuracy.count("(ours)</span>") == 5  # one of a single point
    assert accuracy.count("fill-opacity: 0.13") >= 2  # bands
    assert "81.02 ± 5.91 % (5 runs)" in accuracy
    assert "DP-SGD, tanh-cnn, Papernot et al. 2021, ε = 2.7: 86.10 %<" in accuracy  # runs unsaid
    rates = section(html, "learning-rate")
    assert len(lines(rates)) == 2 * 9
    assert rates.count("<svg") == 1 + 9  # and a legend
    assert "in the place of the paper's CIFAR10" in rates
    assert len(lines(section(html, "mechanism"))) == 4
    assert "under assumptions that Algorithm 1 breaks; not the weights" in section(html, "methods")
    audits = section(html, "audits")
    assert ("number no", "4.50 / 1.00") in cells(audits)  # above the claim of 1
    # held against the claim for pairs, which is above the one for a record in or out
    assert ("number yes", "1.50 / 2.15") in cells(audits)
    assert ("number", "3.01") in cells(audits)  # nothing is claimed, nothing is judged
    assert "0.514" in audits
    assert "canary in out: ε ≥" in audits
    # an attack filed alone; a bound is not rounded up, nor a claim down
    assert ("number no", "3.25 / 1.01") in cells(audits)
    assert "confidence 95 %" in audits
    assert "At δ = 3.71e-05, claim and bound: digits, certified linear, canary." in audits
    assert "Not measured on this data set." in section(html, "classes")
    assert "an-old-audit" not in audits
    assert "old.json: of revision 0 of dirichlet, left out" in html
    assert "unsigned.json: without its methods' revisions, left out" in html
    assert "Every point of ours comes from a recorded run" in html
    assert "yes, with fixed features" in section(html, "covers")
    assert section(html, "tables").count("<details>") >= 5


def pressed(html: str) -> list[str]:
    """The methods that are chosen."""
    buttons = html.split('id="method-filter"')[1].split("</div>")[0]
    return re.findall(r'aria-pressed="true">([^<]*)<', buttons)


def test_the_filters_work(dom):
    html = dom("data=mnist&method=dpsgd&figure=published")
    assert 'data-state="mnist|dpsgd|published"' in html
    assert 'data-problems=""' in html
    accuracy = chart(html)
    assert "Abadi et al. 2016" in accuracy
    assert "Dirichlet (Algorithm 1), inception" not in accuracy
    assert "No runs of ours for this choice." in section(html, "methods")
    assert "As published: CIFAR10, ResNet-18" in section(html, "learning-rate")
    assert "test accuracy, % (log of the error)" in accuracy  # figures between 90 and 99.5
    cifar = chart(dom("data=cifar10&method=dirichlet"))
    assert "(log of the error)" not in cifar
    # the paper prints no deviation at ε = 3: a band over 1 and 2, another over 4, 6 and 8
    assert cifar.count("fill-opacity: 0.13") == 2
    lost = section(dom("data=dermamnist"), "classes")
    assert ("no", "melanoma, nevi") in cells(lost)
    assert "Accuracy hides lost classes." in lost
    alone = dom("data=digits&method=plain")
    assert "plain, mlp, ε = ∞: 97.00 %" in chart(alone)
    assert "plain, mlp" in section(alone, "methods")
    assert "Dirichlet (Algorithm 1), mlp" not in section(alone, "methods")
    # plain training of a recipe is its row's ε = ∞: no row of its own, and no button
    without = dom("data=fashion-mnist&method=plain")
    assert pressed(without) == ["Dirichlet (Algorithm 1)", "DP-SGD"]
    assert "Dirichlet, inception, lr auto, ε = ∞: 84.20 ± 0.28 % (2 runs)" in without
    assert pressed(alone) == ["plain"]
    unknown = dom("data=nonsense&method=nonsense", width=400)
    assert 'data-state="fashion-mnist|dirichlet,dpsgd,' in unknown
    assert 'data-problems=""' in unknown


def test_the_buttons_work(dom):
    press = """
      const press = (place, text) => {
        const buttons = [...document.querySelectorAll(`#${place} button`)];
        buttons.find((b) => b.textContent === text).click();
      };
      press("data-filter", "MNIST");
      press("method-filter", "Dirichlet (Algorithm 1)");
      press("learning-rate-source", "the paper, CIFAR10");
    """
    before, after = dom(), dom(script=press)
    assert 'data-state="fashion-mnist|' in before
    assert 'data-problems=""' in after
    state = after.split('data-state="')[1].split('"')[0].split("|")
    assert state[0] == "mnist"
    assert "dirichlet" not in state[1]
    assert "dpsgd" in state[1]
    assert state[2] == "published"
    assert "Abadi et al. 2016" in section(after, "accuracy")
    assert "Dirichlet (Algorithm 1), inception" not in chart(after)


def test_an_empty_results_folder_still_gives_a_page(tmp_path):
    (tmp_path / "results").mkdir()
    done = page.write(tmp_path / "results", tmp_path / "report.html")
    assert done == {"page": str(tmp_path / "report.html"), "runs": 0, "left_out": []}


def test_a_missing_results_folder_is_said(tmp_path):
    with pytest.raises(ValueError, match="there is no results folder"):
        page.write(tmp_path / "nowhere", tmp_path / "report.html")
