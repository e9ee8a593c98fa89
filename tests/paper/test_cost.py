"""The cost of a step: rounds add up, a second call goes on, ratios are within rounds."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from scipy import stats

from simplexdp.paper import cost


def test_rounds_are_added_until_there_are_enough(tmp_path, monkeypatch):
    made = []

    def some_rounds(network, rounds):
        made.append((network, rounds))
        slow = [1.0 + 9.0 * (i % 2) for i in range(rounds)]  # a slow machine in every other round
        return [{"plain": s, "dirichlet": 1.1 * s, "dpsgd": 3.3 * s} for s in slow]

    monkeypatch.setattr(cost, "some_rounds", some_rounds)
    path = cost.run(tmp_path, networks=["mlp", "resnet18"], rounds=cost.AT_ONCE + 1)
    some = [("mlp", cost.AT_ONCE), ("resnet18", cost.AT_ONCE)]
    assert made == [*some, ("mlp", 1), ("resnet18", 1)]  # all networks before more of any
    cost.run(tmp_path, networks=["mlp"], rounds=cost.AT_ONCE + 4)
    assert made[4:] == [("mlp", 3)]  # only what was missing
    found = json.loads(path.read_text())
    rows = {row["network"]: row for row in found["networks"]}
    assert rows["mlp"]["rounds"] == cost.AT_ONCE + 4
    for row in rows.values():
        assert row["dirichlet_over_plain"] == pytest.approx(1.1)
        assert row["dpsgd_over_dirichlet"] == pytest.approx(3.0)
        assert row["dirichlet_over_plain_interval"] == pytest.approx([1.1, 1.1])
    cost.run(tmp_path, networks=["mlp"], rounds=99, budget_minutes=1e-9)
    assert len(made) == 5  # no time, no round


def test_a_step_of_each_kind_takes_time():
    found = cost.some_rounds("mlp", 3, ("plain", "dirichlet"))
    assert [set(round_) for round_ in found] == [{"plain", "dirichlet"}] * 3
    assert all(0 < seconds < 60 for round_ in found for seconds in round_.values())


def test_only_the_holder_of_the_baton_runs_and_in_the_order_given(monkeypatch):
    """Trainings that only note who makes a step: one of each in every round."""
    seen = []

    def prepare(settings, dataset):
        def start(run):
            for step in range(settings.steps):
                seen.append(settings.method)
                run.on_step(step)

        return SimpleNamespace(start=start)

    monkeypatch.setattr(cost.methods, "prepare", prepare)
    found = cost.some_rounds("mlp", 6, ("a", "b", "c"))
    assert len(found) == 6
    # What is noted after the call that begins step i is the beginning of turn i + 1.
    turns = ["".join(seen[i : i + 3]) for i in range(0, len(seen), 3)]
    assert turns == ["abc", "abc", "abc", "acb", "bac", "bca", "cab", "cba"]


def test_a_failure_of_one_ends_all(monkeypatch):
    def prepare(settings, dataset):
        def start(run):
            for step in range(settings.steps):
                if (settings.method, step) == ("b", 3):
                    raise ZeroDivisionError
                run.on_step(step)

        return SimpleNamespace(start=start)

    monkeypatch.setattr(cost.methods, "prepare", prepare)
    with pytest.raises(ZeroDivisionError):  # and not that another one had to stop
        cost.some_rounds("mlp", 6, ("a", "b"))


@pytest.mark.parametrize("n", [6, 12, 36, 101])
def test_the_interval_of_the_median_has_its_confidence_and_no_more_than_needed(n):
    low, high = cost.interval([float(i) for i in range(1, n + 1)])
    assert low + high == n + 1
    assert 2 * stats.binom.cdf(low - 1, n, 0.5) <= 0.05 < 2 * stats.binom.cdf(low, n, 0.5)


def test_a_few_values_have_no_interval():
    assert cost.interval([1.0] * 5) is None
    assert cost.interval([1.0] * 6) == (1.0, 1.0)  # six miss the median in 2/64 of all cases


def test_rounds_of_another_machine_are_not_thrown_away(tmp_path, monkeypatch):
    monkeypatch.setattr(
        cost,
        "some_rounds",
        lambda network, n: [dict.fromkeys(cost.METHODS, 1.0)] * n,
    )
    path = cost.run(tmp_path, networks=["mlp"], rounds=3)
    before = path.read_bytes()
    monkeypatch.setattr(cost, "machine", lambda: {"cores": 1000})
    with pytest.raises(ValueError, match=r"on another machine.*another folder with --results"):
        cost.run(tmp_path, networks=["mlp"], rounds=4)
    assert path.read_bytes() == before
