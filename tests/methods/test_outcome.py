"""What a run's entry in the ledger says of it is what its own statement says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simplexdp import data, methods
from simplexdp.ledger import Ledger
from simplexdp.settings import Settings

SHORT: dict[str, dict[str, Any]] = {
    "certified": {"method": "certified", "steps": 2, "options": {"features": "columns"}},
    "fixed": {"method": "gaussian-features", "options": {"features": "columns"}},
    "trained": {
        "method": "gaussian-features",
        "model": "logistic",
        "batch_size": 20,
        "steps": 1,
        "options": {"form": "trained"},
    },
    "dpsgd": {"method": "dpsgd", "model": "logistic", "batch_size": 20, "steps": 1},
}
WORDS = {"seed": "random seed", "computed": "Preprocessing"}


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("computed", [(), ("the image size",)])
def test_an_entry_is_marked_where_the_statement_calls_an_assumption_broken(
    name: str, seed: int | None, computed: tuple[str, ...], tmp_path: Path
) -> None:
    book = Ledger(tmp_path / "ledger.jsonl")
    dataset = replace(data.load("digits"), computed_from_data=computed)
    settings = Settings(seed=seed, epsilon=8.0, **SHORT[name])
    outcome, _ = methods.run(settings, tmp_path / "run", dataset=dataset, ledger=book)
    (entry,) = book.entries()
    told = outcome.statement.broken()
    assert set(entry.broken) == {
        mark for mark, words in WORDS.items() if any(words in text for text in told)
    }
    assert ("seed" in entry.broken) is (seed is not None)
    assert ("computed" in entry.broken) is bool(computed)
