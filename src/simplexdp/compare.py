"""Comparison of several methods on one data set at one budget."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simplexdp import __version__, claims, data, files, methods, progress, runs
from simplexdp import audit as attacks
from simplexdp.files import check_picture, finite
from simplexdp.ledger import WEIGHTS, Ledger, identity
from simplexdp.methods.base import OF_A_NETWORK, OPTIONAL
from simplexdp.rounding import rounded_up
from simplexdp.settings import DEFAULTS, Settings


@dataclass(frozen=True)
class Row:
    """One method's line of the comparison; accuracies are shares, one for each seed.

    `covers_weights` is what the method's bound is about where its assumptions hold.
    """

    method: str
    model: str
    accuracies: tuple[float, ...]
    seconds: float
    epsilon: float | None
    delta: float | None
    accountant: str
    covers_weights: bool
    broken_assumptions: tuple[str, ...]

    @property
    def covered(self) -> bool:
        """Return whether the bound covers the weights that these runs released."""
        return self.covers_weights and not self.broken_assumptions

    @property
    def mean(self) -> float:
        """Return the mean accuracy over seeds."""
        return statistics.fmean(self.accuracies)

    @property
    def deviation(self) -> float | None:
        """Return the standard deviation over seeds; None for one seed."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else None


def compare(
    settings: Settings,
    out: Path,
    names: Sequence[str] | None = None,
    seeds: int = 3,
    show_progress: bool = False,
    ledger: Ledger | None = None,
    allow_large_delta: bool = False,
) -> list[Row]:
    """Train every method `seeds` times, each into a run folder of its own below `out`.

    With a seed in the settings the runs are reproducible and not private; without one each has
    a fresh secret seed. Every run is counted in the ledger, so comparing five methods on
    private data costs what five trainings cost.

    Args:
        settings: What all methods are trained with, as far as they use it.
        out: The folder for the runs.
        names: The methods; all built-in ones unless given.
        seeds: Trainings of each method.
        show_progress: Whether a bar is shown.
        ledger: What counts the runs.
        allow_large_delta: Whether a δ of 1 / records or more is taken.

    Returns:
        One row a method.

    Raises:
        ValueError: If one of the runs would be refused; then none is trained.
    """
    if seeds < 1:
        raise ValueError(f"the number of seeds is {seeds}; at least 1 is needed")
    names = methods.names() if names is None else names
    if twice := sorted({name for name in names if list(names).count(name) > 1}):
        raise ValueError(f"{', '.join(twice)} is named twice; name each method once")
    chosen = {name: settings_of(name, settings) for name in names}
    for name, one in chosen.items():
        methods.lookup(name).options(one)  # refuses before anything is trained
    for field in sorted(OF_A_NETWORK - {"lr"}):
        asked, usual = getattr(settings, field), getattr(DEFAULTS, field)
        if asked != usual and all(getattr(one, field) == usual for one in chosen.values()):
            raise ValueError(f"{', '.join(names)} train no network and take no {field} here")
    dataset = data.load(settings.data, **settings.data_options)
    if not allow_large_delta:
        claims.refuse_large_delta(settings.delta, len(dataset.train.labels))
    prepared = [methods.prepare(one, dataset) for one in chosen.values()]
    if ledger is not None:
        ledger.check(
            identity(settings.data),
            seeds * [one.event for one in prepared],
            uncovered=any(o.coverage.covers != WEIGHTS or o.coverage.broken() for o in prepared),
        )
    rows = []
    with progress.bars(show_progress) as bar:
        task = bar.add_task("comparing", total=len(names) * seeds)
        for name in names:
            outcomes = []
            for number in range(seeds):
                bar.update(task, description=f"{name}, {number + 1} of {seeds}")
                seed = None if settings.seed is None else settings.seed + number
                run = dataclasses.replace(chosen[name], seed=seed)
                folder = out / f"{name}-{number}"
                outcome, _ = methods.run(
                    run,
                    folder,
                    dataset=dataset,
                    ledger=ledger,
                    allow_large_delta=allow_large_delta,
                )
                outcomes.append(outcome)
                bar.advance(task)
            statement = outcomes[0].statement
            rows.append(
                Row(
                    method=name,
                    model=outcomes[0].model_name,
                    accuracies=tuple(outcome.accuracy for outcome in outcomes),
                    seconds=statistics.fmean(outcome.seconds for outcome in outcomes),
                    epsilon=statement.epsilon,
                    delta=statement.delta,
                    accountant=statement.accountant,
                    covers_weights=statement.covers_weights,
                    broken_assumptions=tuple(statement.to_json()["broken_assumptions"]),
                )
            )
    return rows


def settings_of(name: str, settings: Settings) -> Settings:
    """Return the settings with those that this method has no use for at their defaults.

    A method that trains no network takes its steps by its own rule.
    """
    asked = dataclasses.replace(settings, method=name)
    method = methods.lookup(name)
    unused = set(OPTIONAL) - method.takes(asked)
    if not method.trains_network(asked):
        unused.add("steps")
    usual = {field: getattr(DEFAULTS, field) for field in unused}
    return dataclasses.replace(asked, **usual)


def audit(settings: Settings, rows: Sequence[Row], show_progress: bool = False) -> dict[str, str]:
    """Return what a canary audit says of each method at this budget, by method."""
    chosen = dataclasses.replace(settings, model=None, steps=None, batch_size=None, epochs=None)
    found = {}
    for row in rows:
        attacked = settings_of(row.method, chosen)
        record = attacks.run(attacked, "canary", seed=0, show_progress=show_progress)
        found[row.method] = str(record["summary"])
    return found


def to_json(settings: Settings, rows: Sequence[Row]) -> dict[str, Any]:
    """Return the comparison as data."""
    return {
        "data": settings.data,
        "epsilon": finite(settings.epsilon),
        "delta": settings.delta,
        "methods": [
            {**dataclasses.asdict(row), "accuracy": row.mean, "deviation": row.deviation}
            for row in rows
        ],
        "version": __version__,
        "machine": runs.machine(),
    }


def to_text(rows: Sequence[Row], audits: Mapping[str, str] | None = None) -> str:
    """Return the comparison as a Markdown table."""
    head = ["method", "model", "accuracy", "seconds", "ε", "accountant", "covers the weights"]
    lines = [[*head, *(["audit"] if audits else [])]]
    lines.append(["---"] * len(lines[0]))
    for row in rows:
        spread = "" if row.deviation is None else f" ± {100 * row.deviation:.2f}"
        cells = [
            row.method,
            row.model,
            f"{100 * row.mean:.2f} %{spread}",
            f"{row.seconds:.1f}",
            "none" if row.epsilon is None else rounded_up(row.epsilon, 3),
            row.accountant,
            "yes" if row.covered else "no: breaks an assumption" if row.covers_weights else "no",
        ]
        lines.append([*cells, *([audits.get(row.method, "")] if audits else [])])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plot(path: Path, settings: Settings, rows: Sequence[Row]) -> None:
    """Draw the accuracy of each method; a bar is filled where the bound covers the weights."""
    check_picture(path)
    figure = files.figure(figsize=(7, 0.6 * len(rows) + 1.4), layout="constrained")
    axes = figure.subplots()
    names = [f"{row.method} ({row.model})" for row in rows]
    bars = axes.barh(
        names,
        [100 * row.mean for row in rows],
        xerr=[100 * (row.deviation or 0.0) for row in rows],
        color=["#2a6f97" if row.covered else "white" for row in rows],
        edgecolor="#2a6f97",
        capsize=3,
    )
    axes.bar_label(bars, fmt="%.1f", padding=6)
    axes.invert_yaxis()
    axes.set_xlim(0, 108)
    axes.set_xlabel("test accuracy (%)")
    axes.set_title(
        f"{settings.data} at ε = {settings.epsilon:g}, δ = {rounded_up(settings.delta, 6)}\n"
        "filled: the bound covers the released weights; hollow: it does not",
        fontsize=10,
    )
    files.write_picture(figure, path)
