"""Which tables can be made from the results?  Those of the guide, of the page and for papers."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import files
from ..experiments import computed, grid, identity, labels, recipes
from ..experiments.table import Column, Table, Value
from . import gather, measured
from .gather import Group, Results

LATE = 5  # so many last evaluations, of runs with at least four times as many
PAPERS_OWN_RATE = (
    "The paper's Dirichlet figures are at its own learning rate, with theorem1 and without class "
    "weights, also where our row says otherwise."
)
HIDES = (
    "Accuracy hides lost classes. Least recall: that of the class found least often on the test "
    "set; never predicted: classes that the network gives to no record of it."
)


def names() -> tuple[str, ...]:
    """The tables that a page can ask for."""
    return (*grid.names(), "dermamnist-validation", *computed.names(), *BUILT)


def make(name: str, found: Results) -> Table:
    """The table of this name."""
    if name not in names():
        raise ValueError(f"no table {name!r}; use one of {', '.join(names())}")
    if name in computed.names():
        return computed.compute(name)
    if name in BUILT:
        return BUILT[name](found)
    if name == "dermamnist-validation":
        return accuracy("dermamnist", found.groups, "validation")
    if name in grid.ACCURACY_TABLES:
        return accuracy(name, found.groups)
    return study(name, found.groups)


def accuracy(name: str, found: Sequence[Group], split: str = "test") -> Table:
    """An accuracy table: ours, row by row, over the rows of the paper."""
    series = [s for s in gather.accuracy_series(found) if s["data"] == name and s["split"] == split]
    budgets = sorted({_size(p["epsilon"]) for s in series for p in s["points"]})
    columns = [Column("row", "method"), Column("source", "source")]
    columns += [Column(labels.epsilon_label(e), labels.epsilon_label(e)) for e in budgets]
    rows = []
    for one in sorted(series, key=lambda s: s["source"]):
        row: dict[str, Value] = {"row": one["label"], "source": one["source"]}
        for point in one["points"]:
            row[labels.epsilon_label(_size(point["epsilon"]))] = percent(
                point["mean"], point["std"], point["runs"] if one["source"] == "ours" else None
            )
        rows.append(row)
    notes = [
        f"{split.capitalize()} accuracy in percent; ± is the standard deviation over runs, "
        "[n] the number of our runs where it is not 1.",
        "Dirichlet: ε bounds the draws under assumptions that Algorithm 1 breaks, and not the "
        "weights; at ε = ∞ it is plain training. DP-SGD, certified and our Gaussian features: "
        "ε covers the weights.",
    ]
    notes += grid.experiment(name).notes
    copies = {p["provenance"] for s in series for p in s["points"] if p.get("provenance")}
    notes += [f"Our runs used this data: {copy}." for copy in sorted(copies)]
    return Table(
        f"{name}-{split}", grid.experiment(name).title, tuple(columns), tuple(rows), tuple(notes)
    )


def study(name: str, found: Sequence[Group]) -> Table:
    """A study: ours and the paper's for every cell that was run."""
    experiment = grid.experiment(name)
    own = [group for group in found if group.experiment == name]
    pairs = [(cell, group) for cell in experiment.cells for group in own if _fills(group, cell)]
    rows: list[dict[str, Value]] = []
    for cell, group in pairs:
        steps, usual = group.settings.steps, cell.settings.steps
        of_usual = "" if usual is None else f" of {usual}"
        shorter = "" if steps == usual else f", {steps}{of_usual} steps"
        copy = gather.provenance(group.runs[0])
        of_copy = "" if copy is None else f", {copy.split(', ')[0]}"
        mean, std = gather.mean_and_spread(group.accuracies())
        rows.append(
            {
                "row": cell.row + shorter + of_copy,
                "column": cell.column,
                "ours": percent(mean, std, len(group.runs)),
                "published": None if cell.published is None else percent(*cell.published, None),
            }
        )
    columns = (
        Column("row", "row"),
        Column("column", "point"),
        Column("ours", "ours"),
        Column("published", experiment.head),
    )
    notes = (*experiment.notes, *_copies([group for _, group in pairs]))
    return Table(name, experiment.title, columns, tuple(rows), notes)


def readme(found: Results) -> Table:
    """The one table of the README: every data set at ε = 1 and ∞, ours beside the paper's."""
    rows: list[dict[str, Value]] = []
    in_rows: list[Group] = []
    for name in (*grid.ACCURACY_TABLES, "digits"):
        for group in found.groups:
            settings = group.settings
            if group.of_study or group.data != name:
                continue
            budget = math.inf if settings.method == "plain" else settings.epsilon
            if budget not in (1.0, math.inf):
                continue
            paper = recipes.published_accuracy(
                name, group.family, str(settings.model), group.epsilon
            )
            in_rows.append(group)
            mean, std = gather.mean_and_spread(group.accuracies())
            rows.append(
                {
                    "data": name,
                    "row": group.label,
                    "epsilon": labels.epsilon_label(budget),
                    "ours": percent(mean, std, len(group.runs)),
                    "published": None if paper is None else percent(*paper, None),
                    "covers": group.covers,
                }
            )
    columns = (
        Column("data", "data set"),
        Column("row", "method"),
        Column("epsilon", "budget"),
        Column("ours", "ours, %"),
        Column("published", "paper, %"),
        Column("covers", "ε covers"),
    )
    notes = (
        PAPERS_OWN_RATE,
        *_lost(measured.classes(found.folder, gather.keys(in_rows))),
        *_copies(in_rows),
    )
    return Table("readme", "Test accuracy", columns, tuple(rows), notes)


def covers(found: Results) -> Table:
    """What each method's figure covers."""
    rows: tuple[dict[str, Value], ...] = (
        {
            "method": "Dirichlet (Algorithm 1)",
            "figure": "Theorem 1; exact Rényi; PLD; visible participation",
            "draws": "only under assumptions that Algorithm 1 breaks",
            "weights": "no",
        },
        {"method": "DP-SGD", "figure": "PRV (Opacus)", "draws": "–", "weights": "yes"},
        {"method": "certified linear", "figure": "Gaussian, exact", "draws": "–", "weights": "yes"},
        {
            "method": "Gaussian features",
            "figure": "Gaussian",
            "draws": "yes, with fixed features",
            "weights": "yes, with fixed features",
        },
        {"method": "plain", "figure": "none", "draws": "–", "weights": "no"},
    )
    columns = (
        Column("method", "method"),
        Column("figure", "figure"),
        Column("draws", "covers the draws"),
        Column("weights", "covers the weights"),
    )
    return Table("covers", "What a figure covers", columns, rows)


def classes(found: Results) -> Table:
    """The recall of the class that a network finds least, and the classes it never predicts."""
    rows: list[dict[str, Value]] = []
    for row in measured.classes(found.folder, gather.keys(found.groups)):
        epsilon = "∞ (plain)" if row["epsilon"] is None else f"{row['epsilon']:g}"
        by = "" if row["accountant"] == "theorem1" else f" ({row['accountant']})"
        rows.append(
            {
                "data": row["experiment"],
                "epsilon": epsilon + by,
                "rate": rate_of(row),
                "steps": f"{row['steps']:,}",
                "seed": row["seed"],
                "accuracy": f"{100 * row['accuracy']:.2f}",
                "recall": f"{100 * min(row['recall']):.1f}",
                "never": ", ".join(row["never_predicted"]) or None,
            }
        )
    columns = (
        Column("data", "data"),
        Column("epsilon", "ε"),
        Column("rate", "learning rate"),
        Column("steps", "steps"),
        Column("seed", "seed"),
        Column("accuracy", "accuracy, %"),
        Column("recall", "least recall, %"),
        Column("never", "never predicted"),
    )
    return Table("classes", "Classes that are lost", columns, tuple(rows), (HIDES,))


def rate_of(row: Mapping[str, Any]) -> str:
    """The learning rate of a measured run, and what the loss was beside it."""
    rate = "auto" if row["lr"] is None else f"{row['lr']:g}"
    return rate + (", class weights" if row["class_weights"] else "")


def _lost(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Which of these runs never predict some class."""
    lost = [
        f"{len(row['never_predicted'])} of {len(row['recall'])} classes of {row['experiment']} "
        f"by a network at {100 * row['accuracy']:.2f} %"
        for row in rows
        if row["never_predicted"]
    ]
    said = f"Accuracy hides lost classes. Never predicted: {'; '.join(dict.fromkeys(lost))}."
    return [f"{said} Which they are: docs/results.md."] if lost else []


def cost(found: Results) -> Table:
    """Seconds of a step by method and network."""
    ratios = ("dirichlet_over_plain", "dpsgd_over_dirichlet")
    with files.well_formed(found.folder / measured.COST):
        rows: list[dict[str, Value]] = [
            {
                "network": row["network"],
                "batch": row["batch_size"],
                **{name: float(row["seconds"][name]) for name in ("plain", "dirichlet", "dpsgd")},
                **{name: _ratio(row, name) for name in ratios},
            }
            for row in measured.cost(found.folder)
        ]
    paper = recipes.published()["cost"]
    seconds = paper["resnet18_cifar10_epoch_seconds"]
    columns = (
        Column("network", "network"),
        Column("batch", "batch"),
        Column("plain", "plain, s", 3),
        Column("dirichlet", "Dirichlet, s", 3),
        Column("dpsgd", "DP-SGD, s", 3),
        Column("dirichlet_over_plain", "Dirichlet / plain"),
        Column("dpsgd_over_dirichlet", "DP-SGD / Dirichlet"),
    )
    notes = (
        "Processor seconds of one step on one thread, step by step beside each other; medians, and "
        "95 % intervals for the median ratio.",
        f"The paper: an epoch of CIFAR10 with ResNet-18 on a {paper['device']} takes "
        f"{seconds['dirichlet']} s with Dirichlet and {seconds['dpsgd']} s with DP-SGD.",
    )
    return Table("cost", "The cost of a step", columns, tuple(rows), notes)


def _ratio(row: Mapping[str, Any], name: str) -> str:
    """A median ratio with its interval, where there were rounds enough for one."""
    interval = row[f"{name}_interval"]
    spread = "" if interval is None else f" ({interval[0]:.4g} to {interval[1]:.4g})"
    return f"{row[name]:.4g}{spread}"


def _peer_rows(name: str, one: Mapping[str, Any]) -> list[dict[str, Value]]:
    rows: list[dict[str, Value]] = []
    for budget in one["budgets"]:
        row: dict[str, Value] = {"data": name, "epsilon": f"{budget['epsilon']:g}"}
        for method in ("certified", "diffprivlib"):
            of = budget[method]
            spread = 100 * of["deviation"] if of["runs"] > 1 else None
            row[method] = percent(100 * of["accuracy"], spread, of["runs"])
            row[f"{method}_seconds"] = of["seconds"]
        rows.append(row)
    return rows


def _peer_notes(name: str, one: Mapping[str, Any]) -> list[str]:
    step, same = one["step"], one["opacus"]
    return [
        f"{name}: a step over {step['records']} records of {step['width']} scattering features "
        f"takes {step['certified_seconds']:.4f} s, and {step['opacus_seconds']:.4f} s with "
        f"Opacus' per-example gradients ({step['ratio']:.1f} times as long; processor time).",
        f"{name}: the same {same['steps']} steps on the columns at ε = {same['epsilon']:g}, "
        f"without private mean and moments: {100 * same['certified_accuracy']:.2f} % in "
        f"{same['certified_seconds']:.2f} s, and with Opacus "
        f"{100 * same['opacus_accuracy']:.2f} % in {same['opacus_seconds']:.2f} s.",
    ]


def peers(found: Results) -> Table:
    """The certified method beside diffprivlib's logistic regression, and Opacus' time of a step."""
    path = found.folder / "certified" / "peers.json"
    by_data = measured.entry(path, "data") if path.exists() else {}
    rows: list[dict[str, Value]] = []
    notes = [
        "diffprivlib's figure is pure ε (δ = 0), which is more than (ε, 1e-5) and needs more "
        "noise; on digits it has the best of three C by test accuracy."
    ]
    with files.well_formed(path):
        for name, one in by_data.items():
            rows += _peer_rows(name, one)
            notes += _peer_notes(name, one)
    columns = (
        Column("data", "data set"),
        Column("epsilon", "ε"),
        Column("certified", "certified, %"),
        Column("certified_seconds", "seconds", 2),
        Column("diffprivlib", "diffprivlib, %"),
        Column("diffprivlib_seconds", "seconds", 2),
    )
    return Table("peers", "The same columns, other software", columns, tuple(rows), tuple(notes))


def collapse(found: Results) -> Table:
    """The learning-rate study by effective rate γκ: one curve, if Theorem 2's factor is right."""
    figure = gather.learning_rates(found.groups)
    points = [
        (rate * curve["kappa"], curve["alpha"], rate, accuracy)
        for curve in figure["ours"]
        for rate, accuracy in curve["points"]
    ]
    rows: list[dict[str, Value]] = [
        {"effective": effective, "alpha": alpha, "rate": rate, "ours": f"{accuracy:.2f}"}
        for effective, alpha, rate, accuracy in sorted(points)
    ]
    columns = (
        Column("effective", "γκ", 3),
        Column("alpha", "α", 3),
        Column("rate", "γ", 3),
        Column("ours", "test accuracy, %"),
    )
    title = "Learning rates by their effect"
    return Table("collapse", title, columns, tuple(rows), tuple(figure["notes"]))


def accountants(found: Results) -> Table:
    """What a tighter accountant buys: the same recipe and budget, another r, another accuracy."""
    wanted = [c for c in grid.experiment("fashion-mnist").cells if c.settings.lr is None]
    cells = {identity.cell(group.settings): group for group in found.groups}
    asked = [(c.settings, cells.get(identity.cell(c.settings))) for c in wanted]
    pairs = [(settings, group) for settings, group in asked if group is not None]
    budgets = [s.epsilon for s, _ in pairs if s.accountant != "theorem1"]
    rows: list[dict[str, Value]] = [
        {
            "epsilon": f"{settings.epsilon:g}",
            "accountant": settings.accountant,
            "r": float(group.runs[0]["r"]),
            "lr": float(group.runs[0]["lr"]),
            "ours": percent(*gather.mean_and_spread(group.accuracies()), len(group.runs)),
            "late": _late(group),
        }
        for settings, group in sorted(pairs, key=lambda pair: pair[0].epsilon)
        if settings.epsilon in budgets
    ]
    columns = (
        Column("epsilon", "ε"),
        Column("accountant", "accountant"),
        Column("r", "r", 3),
        Column("lr", "learning rate by the rule", 3),
        Column("ours", "test accuracy, %"),
        Column("late", f"last {LATE} evaluations, mean (range)"),
    )
    return Table("accountants", "What a tighter accountant buys", columns, tuple(rows))


def _late(group: Group) -> str | None:
    """How steady the end of the training was: with a constant rate the last iterate is noisy."""
    often = [run["evaluations"] for run in group.runs if len(run["evaluations"]) >= 4 * LATE]
    late = [100 * accuracy for evaluations in often for _, accuracy in evaluations[-LATE:]]
    if not late:
        return None
    return f"{statistics.fmean(late):.2f} ({min(late):.2f} to {max(late):.2f})"


BUILT: dict[str, Callable[[Results], Table]] = {
    "readme": readme,
    "covers": covers,
    "classes": classes,
    "cost": cost,
    "peers": peers,
    "accountants": accountants,
    "collapse": collapse,
}


def _copies(groups: Sequence[Group]) -> list[str]:
    """Which data sets were not the originals."""
    found = {(g.data, said) for g in groups if (said := gather.provenance(g.runs[0]))}
    return [f"{name}: {said}." for name, said in sorted(found)]


def percent(mean: float, std: float | None, runs: int | None) -> str:
    """A mean with its spread, and the number of runs where it is not obvious."""
    text = f"{mean:.2f}" + ("" if std is None else f" ± {std:.2f}")
    return text + (f" [{runs}]" if runs is not None and runs > 1 else "")


def _fills(group: Group, cell: grid.Cell) -> bool:
    """Whether a group is a cell's, perhaps with other steps, which its row then says."""
    same_steps = dataclasses.replace(group.settings, steps=cell.settings.steps)
    return identity.cell(same_steps) == identity.cell(cell.settings)


def _size(epsilon: float | None) -> float:
    return float("inf") if epsilon is None else float(epsilon)
