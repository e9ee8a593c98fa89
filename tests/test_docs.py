"""Every code block of the guide runs.

For each page, in order and in one folder of its own: the ```python blocks in one namespace, and in
```console blocks the lines `$ simplexdp …` (a trailing backslash continues a line). A block
```output that follows is what was printed, with `...` for what may vary. A comment
`<!-- not run: reason -->` right before a block leaves it out.

The tables that benchmarks put on results/tables.md are those of the files they wrote.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import io
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(
    r"^(?P<skip><!-- not run: [^\n]+ -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
CHECKER = doctest.OutputChecker()


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    line: int
    skip: bool


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    for match in FENCE.finditer(page):
        line = page.count("\n", 0, match.start("text")) + 1
        yield Block(match["kind"], match["text"], line, match["skip"] is not None)


def run_python(block: Block, page: Path, namespace: dict[str, Any]) -> str:
    """Runs a block with its page's line numbers, and gives what it printed."""
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    return printed.getvalue()


def commands(block: Block) -> list[list[str]]:
    """The `$ simplexdp …` lines of a block, as argument lists without the program."""
    joined = block.text.replace("\\\n", " ")
    lines = [shlex.split(line[2:]) for line in joined.splitlines() if line.startswith("$ ")]
    return [words[1:] for words in lines if words[0] == "simplexdp"]


def run_console(
    block: Block, page: Path, command: Callable[..., subprocess.CompletedProcess[str]]
) -> str:
    """Runs the commands of a block, each of which must succeed."""
    printed = ""
    for arguments in commands(block):
        done = command(*arguments)
        where = f"{page.name}, line {block.line}: simplexdp {shlex.join(arguments)}"
        assert done.returncode == 0, f"{where}\n{done.stderr}"
        printed += done.stdout
    return printed


@pytest.mark.parametrize("page", PAGES, ids=[str(p.relative_to(ROOT)) for p in PAGES])
def test_page(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__page__"}
    printed = ""
    for block in blocks(page.read_text("utf-8")):
        if block.skip:
            continue
        if block.kind == "python":
            printed = run_python(block, page, namespace)
        elif block.kind == "console":
            printed = run_console(block, page, command)
        elif block.kind == "output":
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            message = f"{page.name}, line {block.line}: printed\n{printed}"
            assert CHECKER.check_output(block.text, printed, flags), message


def test_the_runner_sees_blocks_outputs_and_skips(tmp_path: Path) -> None:
    page = (
        "# T\n```python\nx = 1\n```\n<!-- not run: needs a network -->\n```console\n$ rm x\n```\n"
        "```console\n$ simplexdp data \\\n  list\n$ other thing\nprinted\n```\n"
        "```output\na ...\n```\n"
    )
    found = list(blocks(page))
    assert [(b.kind, b.skip) for b in found] == [
        ("python", False),
        ("console", True),
        ("console", False),
        ("output", False),
    ]
    assert found[0].line == 3
    assert commands(found[2]) == [["data", "list"]]
    assert commands(found[1]) == []
    with pytest.raises(ZeroDivisionError):
        run_python(Block("python", "1 / 0\n", 1, False), tmp_path / "page.md", {})


WITH_EXAMPLES = [
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "src").rglob("*.py"))
    if ">>> " in path.read_text("utf-8")
]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_docstrings(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize(
    ("marker", "benchmark", "function", "results", "rows"),
    [
        ("paper table", "accounting", "table", "accounting/paper_table", "rows"),
        ("times", "accounting", "times_table", "accounting/times", None),
        ("dpsgd", "dpsgd", "page_table", "benchmarks/dpsgd", None),
        ("search", "dominance_search", "page_table", "accounting/dominance", None),
        ("lost", "lost_classes", "table", "benchmarks/lost_classes", "rows"),
        ("standstill", "standstill", "table", "benchmarks/standstill", "rows"),
        ("given up", "lost_classes", "share_table", "benchmarks/lost_classes", "shares"),
        ("ledger table", "ledger", "table", "benchmarks/ledger", "rows"),
        ("persons", "persons", "table", "benchmarks/persons", None),
        ("features table", "certified_features", "table", "benchmarks/certified_features", None),
    ],
)
def test_the_committed_tables_of_benchmarks_are_those_of_their_results(
    marker: str,
    benchmark: str,
    function: str,
    results: str,
    rows: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")  # some share a function
    path = ROOT / "benchmarks" / f"{benchmark}.py"
    spec = importlib.util.spec_from_file_location(f"benchmark_{benchmark}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = json.loads((ROOT / "results" / f"{results}.json").read_text())
    made = getattr(module, function)(found if rows is None else found[rows])
    pages = (ROOT / "results" / "tables.md", ROOT / "docs" / "certified.md")
    text = "".join(page.read_text("utf-8") for page in pages)
    shown = text.split(f"<!-- {marker} -->\n")[1].split(f"\n<!-- end {marker} -->")[0]
    assert shown == made, f"run: python benchmarks/{benchmark}.py"
