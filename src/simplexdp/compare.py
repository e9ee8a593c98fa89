"""Several methods on one data set at one budget, side by side."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simplexdp import audit as attacks
from simplexdp import data, files, methods, progress, runs
from simplexdp.files import check_picture, finite
from simplexdp.ledger import Event, Ledger, identity
from simplexdp.methods import OF_ALGORITHM_1
from simplexdp.methods.fixed_features import OF_A_NETWORK
from simplexdp.settings import DEFAULTS, Settings
from simplexdp.statement import rounded_up

# Methods on fixed features take their steps by their own rule here.
_NOT_FIXED = (*OF_A_NETWORK, "steps")
_NOT_FOR = {
    "certified": _NOT_FIXED,
    "gaussian-features": (*_NOT_FIXED, "lr"),
}


@dataclass(frozen=True)
class Row:
    """One method's line of the comparison; accuracies are shares, one for each seed.

    `covers_weights` is what the method's figure is about where its assumptions hold.
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
        """Whether the figure covers the weights that these runs released."""
        return self.covers_weights and not self.broken_assumptions

    @property
    def mean(self) -> float:
        return statistics.fmean(self.accuracies)

    @property
    def deviation(self) -> float | None:
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else None


def compare(
    settings: Settings,
    out: Path,
    names: Sequence[str] = tuple(methods.METHODS),
    seeds: int = 3,
    show_progress: bool = False,
    ledger: Ledger | None = None,
) -> list[Row]:
    """Train every method `seeds` times, each into a run folder of its own below `out`.

    With a seed in the settings the runs are reproducible and not private; without one each has
    a fresh secret seed.  Every run is counted in the ledger, so comparing five methods on
    private data costs what five trainings cost.
    """
    if seeds < 1:
        raise ValueError(f"the number of seeds is {seeds}; at least 1 is needed")
    if twice := sorted({name for name in names if list(names).count(name) > 1}):
        raise ValueError(f"{', '.join(twice)} is named twice; name each method once")
    chosen = {name: settings_of(name, settings) for name in names}
    for one in chosen.values():
        methods.check_used(one)  # refuses an unknown name before anything is trained
    for field in _NOT_FIXED:
        asked, usual = getattr(settings, field), getattr(DEFAULTS, field)
        if asked != usual and all(getattr(one, field) == usual for one in chosen.values()):
            raise ValueError(f"{', '.join(names)} train no network and take no {field} here")
    dataset = data.load(settings.data, **settings.data_options)
    events = [rehearse(one, out, dataset) for one in chosen.values()]
    if ledger is not None:
        ledger.check(identity(settings.data), seeds * events)
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
                outcome, _ = methods.run(run, folder, dataset=dataset, ledger=ledger)
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


class _Rehearsed(Exception):
    """A run has come to the point at which it is counted."""

    def __init__(self, event: Event) -> None:
        self.event = event


class _Rehearsal(Ledger):
    """Stops a run where it would be counted, and tells what it would have cost."""

    def reserve(self, data: str, method: str, event: Event, *rest: Any, **named: Any) -> str:
        raise _Rehearsed(event)


def rehearse(settings: Settings, out: Path, dataset: data.Dataset) -> Event:
    """What a run would cost; what it would be refused for is raised, and nothing is left of it."""
    try:
        methods.run(settings, out / "rehearsal", dataset=dataset, ledger=_Rehearsal(out))
    except _Rehearsed as stopped:
        return stopped.event
    finally:
        if out.is_dir() and not any(out.iterdir()):
            out.rmdir()
    raise AssertionError(f"{settings.method} trains without being counted")


def settings_of(name: str, settings: Settings) -> Settings:
    """The settings with those that this method has no use for at their defaults."""
    unused = (*(() if name == "dirichlet" else OF_ALGORITHM_1), *_NOT_FOR.get(name, ()))
    usual = {field: getattr(DEFAULTS, field) for field in unused}
    return dataclasses.replace(settings, method=name, **usual)


def audit(settings: Settings, rows: Sequence[Row], show_progress: bool = False) -> dict[str, str]:
    """What a canary audit says of each method at this budget, by method."""
    chosen = dataclasses.replace(settings, model=None, steps=None, batch_size=None, epochs=None)
    found = {}
    for row in rows:
        attacked = settings_of(row.method, chosen)
        record = attacks.run(attacked, "canary", seed=0, show_progress=show_progress)
        found[row.method] = str(record["summary"])
    return found


def to_json(settings: Settings, rows: Sequence[Row]) -> dict[str, Any]:
    """The comparison as data."""
    return {
        "data": settings.data,
        "epsilon": finite(settings.epsilon),
        "delta": settings.delta,
        "methods": [
            {**dataclasses.asdict(row), "accuracy": row.mean, "deviation": row.deviation}
            for row in rows
        ],
        "version": runs.version(),
        "machine": runs.machine(),
    }


def to_text(rows: Sequence[Row], audits: Mapping[str, str] | None = None) -> str:
    """The comparison as a Markdown table."""
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
    """Accuracy of each method; a filled bar where the figure covers the released weights."""
    check_picture(path)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 0.6 * len(rows) + 1.4), layout="constrained")
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
        "filled: the figure covers the released weights; hollow: it does not",
        fontsize=10,
    )
    files.write_picture(figure, path)
