"""The words that people read: errors of at most 25 words, modules that say what they provide."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent.parent / "src" / "simplexdp"
FILES = sorted(SOURCES.rglob("*.py"))
MOST_WORDS = 25


def text(node: ast.expr) -> str | None:
    """Return a message as it reads, each value in it as one word; None for what is no literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(p.value if isinstance(p, ast.Constant) else "x" for p in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text(node.left), text(node.right)
        return (left or "x") + (right or "x") if left or right else None
    return None


def errors(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and message of every error that is raised with a literal."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            message = text(node.exc.args[0])
            if message is not None:
                yield node.lineno, message


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCES)))
def test_an_error_has_at_most_25_words(path: Path) -> None:
    found = errors(ast.parse(path.read_text("utf-8")))
    long = [(line, len(said.split()), said) for line, said in found]
    assert [one for one in long if one[1] > MOST_WORDS] == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCES)))
def test_a_module_says_what_it_provides_and_asks_nothing(path: Path) -> None:
    said = ast.get_docstring(ast.parse(path.read_text("utf-8")))
    assert said is not None
    assert "?" not in said.split("\n\n")[0]


def test_the_walk_sees_plain_joined_and_added_messages() -> None:
    tree = ast.parse(
        "raise ValueError('a b')\nraise KeyError(f'{x} c {y}')\n"
        "raise OSError('a ' + b)\nraise ValueError(message)\nraise error from None\n"
    )
    assert list(errors(tree)) == [(1, "a b"), (2, "x c x"), (3, "a x")]
