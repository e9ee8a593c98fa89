"""A few made-up inputs of every kind in each run; benchmarks/fuzz.py makes many."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fuzz

CASES = {"command lines": 15, "load_model": 25, "resume": 25, "files of one's own": 40}


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_made_up_input_gets_a_result_or_a_sentence(name):
    @settings(
        max_examples=CASES.get(name, 60),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def one(data):
        fuzz.TARGETS[name](data.draw)

    one()
