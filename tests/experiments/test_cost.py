"""The cost of a step: rounds add up, a second call goes on, ratios are within rounds."""

from __future__ import annotations

import json

import pytest

from simplexdp.experiments import cost


def test_rounds_are_added_until_there_are_enough(tmp_path, monkeypatch):
    made, first = [], []

    def one_round(network, order):
        made.append(network)
        first.append(order[0])
        slow = 1.0 + 9.0 * (len(made) % 2)  # the machine is slow in every other round
        return {"plain": 1.0 * slow, "dirichlet": 1.1 * slow, "dpsgd": 3.3 * slow}

    monkeypatch.setattr(cost, "one_round", one_round)
    path = cost.run(tmp_path, networks=["mlp", "resnet18"], rounds=2)
    assert made == ["mlp", "resnet18"] * 2
    assert first == ["plain", "plain", "dirichlet", "dirichlet"]  # nobody is always first
    cost.run(tmp_path, networks=["mlp"], rounds=3)
    assert len(made) == 5  # only what was missing
    found = json.loads(path.read_text())
    rows = {row["network"]: row for row in found["networks"]}
    assert rows["mlp"]["rounds"] == 3
    for row in rows.values():
        assert row["dirichlet_over_plain"] == pytest.approx(1.1)
        assert row["dpsgd_over_dirichlet"] == pytest.approx(3.0)
    cost.run(tmp_path, networks=["mlp"], rounds=9, budget_minutes=1e-9)
    assert len(made) == 5  # no time, no round


def test_a_step_of_each_kind_takes_time():
    found = cost.one_round("mlp", ("plain", "dirichlet"))
    assert set(found) == {"plain", "dirichlet"}
    assert all(0 < seconds < 60 for seconds in found.values())
