"""The tables that are made from the results: of the guide, of the page and for papers."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from simplexdp import files, methods
from simplexdp.paper import computed, fast, grid, identity, labels, recipes
from simplexdp.paper.report import gather, measured
from simplexdp.paper.report.gather import Group, Results
from simplexdp.paper.report.measured_tables import classes, cost, lost, peers, speed
from simplexdp.paper.table import Column, Table, Value, columns, to_markdown

MARKED = re.compile(r"(<!-- table:(?P<name>[\w-]+) -->\n).*?(<!-- /table -->)", re.S)
NOTHING_YET = "No results yet."
ENCODED = (
    "On an ImageNet encoder: ε does not cover what the encoder tells of ImageNet. Which features "
    "stand beside it, SVHN without it, and how its steps were chosen: results/tables.md."
)
LATE = 5  # so many last evaluations, of runs with at least four times as many


def names() -> tuple[str, ...]:
    """Return the tables that a page can ask for."""
    return (*grid.names(), "dermamnist-validation", *computed.TABLES, *BUILT)


def make(name: str, found: Results) -> Table:
    """Return the table of this name."""
    if name not in names():
        raise ValueError(f"no table {name!r}; use one of {', '.join(names())}")
    if name in computed.TABLES:
        return computed.TABLES[name]()
    if name in BUILT:
        return BUILT[name](found)
    if name == "dermamnist-validation":
        return accuracy("dermamnist", found.groups, "validation")
    if name in grid.ACCURACY_TABLES:
        return accuracy(name, found.groups)
    if name == fast.NAME:
        return by_fast_recipes(found.groups)
    return study(name, found.groups)


def accuracy(name: str, found: Sequence[Group], split: str = "test") -> Table:
    """Return an accuracy table: ours, row by row, over the rows of the paper."""
    series = [s for s in gather.accuracy_series(found) if s["data"] == name and s["split"] == split]
    budgets = sorted({_size(p["epsilon"]) for s in series for p in s["points"]})
    by_budget = (Column(labels.epsilon_label(e), labels.epsilon_label(e)) for e in budgets)
    heads = (*columns(row="method", source="source"), *by_budget)
    rows = []
    for one in sorted(series, key=lambda s: s["source"]):
        row: dict[str, Value] = {"row": one["label"], "source": one["source"]}
        for point in one["points"]:
            row[labels.epsilon_label(_size(point["epsilon"]))] = gather.percent(
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
    notes += grid.experiment(name).notes if name in grid.names() else ()
    copies = {p["provenance"] for s in series for p in s["points"] if p.get("provenance")}
    notes += [f"Our runs used this data: {copy}." for copy in sorted(copies)]
    title = f"{labels.DATA_TITLES.get(name, name)}: {split} accuracy by budget"
    return Table(f"{name}-{split}", title, heads, tuple(rows), tuple(notes))


def study(name: str, found: Sequence[Group]) -> Table:
    """Return a study: ours and the paper's for every cell that was run."""
    experiment = grid.experiment(name)
    own = [group for group in found if group.experiment == name]
    pairs = []  # of a cell and what fills it, perhaps with other steps, which its row then says
    for cell in experiment.cells:
        wanted, steps = identity.cell(cell.settings), cell.settings.steps
        for group in own:
            if identity.cell(dataclasses.replace(group.settings, steps=steps)) == wanted:
                pairs.append((cell, group))
    rows: list[dict[str, Value]] = []
    for cell, group in pairs:
        steps, usual = group.settings.steps, cell.settings.steps
        of_usual = "" if usual is None else f" of {usual}"
        shorter = "" if steps == usual else f", {steps}{of_usual} steps"
        copy = gather.provenance(group.runs[0])
        of_copy = "" if copy is None else f", {copy.split(', ')[0]}"
        mean, std = gather.mean_and_spread(group.accuracies())
        row: dict[str, Value] = {"row": cell.row + shorter + of_copy, "column": cell.column}
        row["ours"] = gather.percent(mean, std, len(group.runs))
        paper = cell.published
        row["published"] = None if paper is None else gather.percent(*paper, None)
        rows.append(row)
    heads = columns(row="row", column="point", ours="ours", published=experiment.head)
    notes = (*experiment.notes, *_copies([group for _, group in pairs]))
    return Table(name, experiment.title, heads, tuple(rows), notes)


def by_fast_recipes(found: Sequence[Group]) -> Table:
    """Return the fast recipes: accuracy, the class that is found least often, and the time."""
    rows: list[dict[str, Value]] = []
    shown = []
    own = [group for group in found if group.experiment == fast.NAME]
    for cell in grid.experiment(fast.NAME).cells:
        for group in (g for g in own if identity.cell(g.settings) == identity.cell(cell.settings)):
            shown.append(group)
            validation = group.accuracies("validation")
            row: dict[str, Value] = {"row": cell.row, "column": cell.column}
            row["ours"] = _percent(group.accuracies())
            row["validation"] = _percent(validation) if validation else None
            row["worst"] = f"{100 * min(run['worst_recall'] for run in group.runs):.0f}"
            row["minutes"] = statistics.median(run["seconds"] for run in group.runs) / 60
            row["published"] = (
                None if cell.published is None else gather.percent(*cell.published, None)
            )
            rows.append(row)
    heads = columns(
        row="data set",
        column="budget",
        ours="test, %",
        validation="validation, %",
        worst="recall of the worst class, %",
        minutes=("minutes", 1),
        published="the paper, test, %",
    )
    notes = (
        f"ε by Theorem 1 as published, for exactly the recipe's steps; it bounds "
        f"{gather.COVERS_DRAWS}. At ε = ∞: plain training by the same recipe.",
        "Batch norm breaks one more assumption: a record's draw depends on its batch.",
        "[n]: runs, where it is not 1. Worst class: over all runs. Minutes: of wall time on one "
        "core, the median.",
        *_copies(shown),
    )
    return Table(fast.NAME, "Fast recipes by budget", heads, tuple(rows), notes)


def _percent(accuracies: list[float]) -> str:
    return gather.percent(*gather.mean_and_spread(accuracies), len(accuracies))


def readme(found: Results) -> Table:
    """Return the table of the README: a row a data set, at ε = 1 with the default accountant.

    Runs shorter than the paper's recipe, and settings beside the recipes' own, are left to the
    tables of their data sets.
    """
    rows: list[dict[str, Value]] = []
    shown: list[Group] = []
    encoded = measured.on_an_encoder(found.folder)
    for name in (*grid.ACCURACY_TABLES, "digits"):
        own: list[dict[str, Value]] = []
        for group in found.groups:
            column = _readme_column(group)
            if column is None or group.data != name:
                continue
            shown.append(group)
            mean, std = gather.mean_and_spread(group.accuracies())
            known = fast.RECIPES.get(fast.PREFIX + name)
            part = known.records if known and column == "fast" else None
            label = name if part is None else f"{name}, a part: {part:,} records"
            row = next((r for r in own if column not in r and r["data"] == label), None)
            if row is None:
                row = {"data": label}
                own.append(row)
            row[column] = gather.percent(mean, std, len(group.runs))
            network = known.published if known and column == "fast" else str(group.settings.model)
            paper = recipes.published_accuracy(name, "dirichlet", network, 1.0)
            if group.family == "dirichlet" and paper is not None and part is None:
                row["published"] = gather.percent(*paper, None)
        if own and name in encoded:
            own[0]["encoder"] = _percent(encoded[name])
        rows += own
    heads = columns(
        data="data set",
        certified="certified, ε = 1",
        encoder="the same on an ImageNet encoder",
        fast="Dirichlet with link, fast recipe, ε = 1",
        rule="Dirichlet, ε = 1",
        rate="Dirichlet at the paper's rate, ε = 1",
        published="Dirichlet, the paper, ε = 1",
        plain="without privacy",
    )
    notes = (
        f"Test accuracy in percent. certified: ε covers {gather.COVERS_WEIGHTS}. Dirichlet: ε "
        f"covers {gather.COVERS_DRAWS}. The paper's accuracies are at its own learning rate.",
        *((ENCODED,) if any("encoder" in row for row in rows) else ()),
        *lost(measured.classes(found.folder, gather.keys(shown))),
        *_copies(shown),
    )
    return Table("readme", "Test accuracy", heads, tuple(rows), notes)


def _readme_column(group: Group) -> str | None:
    """Return where a group stands in the README's table; None if it does not."""
    settings = group.settings
    if group.experiment == fast.NAME:
        return "fast" if settings.epsilon == 1.0 and settings.norm == "group" else None
    chosen = settings.options.keys() - {"features"}
    if group.of_study or group.shortened or chosen or settings.optimizer == "adam":
        return None
    if settings.method == "plain":
        return "plain"
    if settings.epsilon != 1.0 or settings.accountant != "theorem1":
        return None
    if settings.method == "dirichlet":
        return "rule" if settings.lr is None else "rate"
    return "certified" if group.experiment == "certified" else None


def covers(found: Results) -> Table:
    """Return what each method's bound covers."""
    rows: list[dict[str, Value]] = [
        {
            "method": method.title,
            "figure": method.bound,
            "draws": method.covers_draws,
            "weights": method.covers_weights,
        }
        for method in map(methods.lookup, labels.by_title())
    ]
    heads = columns(
        method="method", figure="figure", draws="covers the draws", weights="covers the weights"
    )
    return Table("covers", "What a figure covers", heads, tuple(rows))


def collapse(found: Results, source: str = "ours") -> Table:
    """Return the learning-rate study by γκ: one curve, if Theorem 2's factor is right."""
    figure = gather.learning_rates(found.groups)
    points = [
        (rate * curve["kappa"], curve["alpha"], rate, accuracy)
        for curve in figure[source]
        for rate, accuracy in curve["points"]
    ]
    rows: list[dict[str, Value]] = [
        {"effective": effective, "alpha": alpha, "rate": rate, "ours": f"{accuracy:.2f}"}
        for effective, alpha, rate, accuracy in sorted(points)
    ]
    heads = columns(effective=("γκ", 3), alpha=("α", 3), rate=("γ", 3), ours="test accuracy, %")
    title = "Learning rates by their effect"
    name = "collapse" if source == "ours" else f"collapse-{source}"
    notes = tuple(figure["notes"]) if source == "ours" else (gather.AS_PUBLISHED,)
    return Table(name, title, heads, tuple(rows), notes)


def accountants(found: Results) -> Table:
    """Return what a tighter accountant buys: another r and accuracy at the same budget."""
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
            "ours": gather.percent(*gather.mean_and_spread(group.accuracies()), len(group.runs)),
            "late": _late(group),
        }
        for settings, group in sorted(pairs, key=lambda pair: pair[0].epsilon)
        if settings.epsilon in budgets
    ]
    heads = columns(
        epsilon="ε",
        accountant="accountant",
        r=("r", 3),
        lr=("learning rate by the rule", 3),
        ours="test accuracy, %",
        late=f"last {LATE} evaluations, mean (range)",
    )
    return Table("accountants", "What a tighter accountant buys", heads, tuple(rows))


def _late(group: Group) -> str | None:
    """Return how steady the end of the training was; with a constant rate it is noisy."""
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
    "speed": speed,
    "accountants": accountants,
    "collapse": collapse,
}


def _copies(groups: Sequence[Group]) -> list[str]:
    """Return which data sets were not the originals."""
    found = {(g.data, said) for g in groups if (said := gather.provenance(g.runs[0]))}
    return [f"{name}: {said}." for name, said in sorted(found)]


def _size(epsilon: float | None) -> float:
    return float("inf") if epsilon is None else float(epsilon)


def refreshed(text: str, found: Results) -> str:
    """Return a page with every table between <!-- table:NAME --> and <!-- /table --> made anew."""

    def fill(match: re.Match[str]) -> str:
        table = make(match["name"], found)
        body = to_markdown(table) if table.rows else NOTHING_YET
        return f"{match[1]}\n{body}\n\n{match[3]}"

    return MARKED.sub(fill, text)


def refresh(pages: Sequence[Path], results: Path) -> list[Path]:
    """Rewrite the pages whose tables are not those of the results; says which."""
    found = gather.load(results)
    changed = []
    for page in pages:
        before = page.read_text(encoding="utf-8")
        after = refreshed(before, found)
        if after != before:
            files.write_atomically(page, after.encode())
            changed.append(page)
    return changed
