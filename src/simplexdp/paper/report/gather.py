"""Records grouped into series, beside what the paper printed."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simplexdp import mechanism, methods
from simplexdp.data import catalog
from simplexdp.paper import grid, identity, labels, recipes, records
from simplexdp.paper.report import measured
from simplexdp.runs import CHECKSUMS
from simplexdp.schedule import TYPICAL_TRUE_CLASS_PROBABILITY
from simplexdp.settings import Settings

Record = Mapping[str, Any]
PAPERS_RATES = "cifar10-learning-rate"  # if this study has runs, it is shown and not its stand-in
AS_PUBLISHED = "As published: CIFAR10, ResNet-18, ε = 1, 10 runs a point."
PAPER_RUNS = 5  # of every cell that the paper prints with a standard deviation
COVERS_DRAWS = "draws, under assumptions that Algorithm 1 breaks; not the weights"
COVERS_WEIGHTS = "the released weights"
COVERS_BROKEN = "nothing: a run breaks an assumption under which ε would cover the weights"
COVERS_NOTHING = "nothing: no privacy mechanism"


@dataclass(frozen=True)
class Group:
    """The runs of one configuration, all seeds together; accuracies are in percent."""

    settings: Settings
    experiment: str
    runs: tuple[Record, ...]
    apart: str = ""  # what tells two groups of one label apart

    @property
    def label(self) -> str:
        """Return how a table calls it."""
        return label(self.settings, self.runs[0]) + self.apart

    @property
    def family(self) -> str:
        """Return the method whose row it stands in: that of a recipe, also at ε = ∞."""
        no_privacy = self.settings.method == "plain" and grid.recipe_of(self.settings) is not None
        return "dirichlet" if no_privacy else self.settings.method

    @property
    def data(self) -> str:
        """Return the data set's name; of a person's own data that of the file or folder alone."""
        name = self.settings.data
        return name if name in catalog.names() else f"own data {Path(name).name}"

    @property
    def of_study(self) -> bool:
        """Return whether its experiment varies more than method and budget."""
        return self.experiment in grid.study_names()

    @property
    def shortened(self) -> bool:
        """Return whether it has fewer steps than the paper's recipe: no result of the recipe."""
        recipe = grid.recipe_of(self.settings)
        if recipe is None or recipe.steps is None:
            return False
        return any(run["steps"] < recipe.steps for run in self.runs)

    def accuracies(self, split: str = "test") -> list[float]:
        """Return the accuracies of the runs on a split, in percent."""
        name = "accuracy" if split == "test" else "validation_accuracy"
        return [100 * run[name] for run in self.runs if run.get(name) is not None]

    @property
    def epsilon(self) -> float | None:
        """Return the budget; None without privacy."""
        return None if math.isinf(self.settings.epsilon) else self.settings.epsilon

    @property
    def covers(self) -> str:
        """Return what the bound of its runs covers."""
        run = self.runs[0]
        if run["covers_weights"]:
            broken = any(records.BROKEN in one for one in self.runs)
            return COVERS_BROKEN if broken else COVERS_WEIGHTS
        return COVERS_NOTHING if run.get("epsilon") is None else COVERS_DRAWS


@dataclass(frozen=True)
class Results:
    """The runs of a folder, read once for everything that is made from them."""

    folder: Path
    groups: list[Group]
    left_out: tuple[str, ...]


def groups(found: Sequence[Record]) -> list[Group]:
    """Return records by configuration and by whether the data were the original."""
    by_cell: dict[tuple[str, str, str], list[Record]] = {}
    for record in found:
        cell = identity.cell(Settings.from_json(record["configuration"]))
        copy = f"{_copy(record)} {record.get(CHECKSUMS)}"
        by_cell.setdefault((record["experiment"], cell, copy), []).append(record)
    made = [
        Group(
            Settings.from_json(runs[0]["configuration"]),
            experiment,
            tuple(sorted(runs, key=lambda run: run["seed"] or 0)),
        )
        for (experiment, _, _), runs in by_cell.items()
    ]
    for group in made:
        if len({run["seed"] for run in group.runs}) < len(group.runs):
            keys = ", ".join(str(run["key"]) for run in group.runs)
            raise ValueError(
                f"{group.label} in {group.experiment} has one seed twice; delete one of {keys}"
            )
    alike = Counter((g.data, g.label, g.epsilon) for g in made)
    places = Counter(data for data, _ in {(g.data, g.settings.data) for g in made})
    made = [
        dataclasses.replace(g, apart=f", run {g.runs[0]['key']}")
        if (alike[g.data, g.label, g.epsilon] > 1 and not g.of_study) or places[g.data] > 1
        else g
        for g in made
    ]
    return sorted(made, key=lambda g: (g.experiment, g.label, g.settings.epsilon))


def keys(found: Iterable[Group]) -> set[str]:
    """Return the keys of these groups' runs."""
    return {run["key"] for group in found for run in group.runs}


def label(settings: Settings, record: Record) -> str:
    """Return what sets a run apart, as a person says it."""
    copy = provenance(record)
    of_copy = [] if copy is None else [copy.split(", ")[0]]
    recipe = grid.recipe_of(settings)
    if recipe is not None:
        return ", ".join([labels.row_label(settings, recipe), *of_copy])
    # A feature map's name goes on with its version, which the record has.
    network = str(record.get("model"))
    built_in = settings.method in methods.names()
    on_features = built_in and not methods.lookup(settings.method).trains_network(settings)
    name = network.partition("-")[0] if on_features else network
    rate = [] if settings.lr is None else [f"lr {settings.lr:g}"]
    title = labels.title(settings.method)
    apart = labels.apart(settings, Settings(data=settings.data, method=settings.method))
    return ", ".join([title, name, *rate, *apart, *of_copy])


def mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean, and the standard deviation where there are several runs."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def percent(mean: float, std: float | None, runs: int | None) -> str:
    """Return a mean with its spread, and the number of runs where it is not obvious."""
    text = f"{mean:.2f}" + ("" if std is None else f" ± {std:.2f}")
    return text + (f" [{runs}]" if runs is not None and runs > 1 else "")


def accuracy_series(found: Sequence[Group]) -> list[dict[str, Any]]:
    """Return accuracy against ε, ours and the paper's, one series a row of the tables."""
    series: list[dict[str, Any]] = []
    compared = [g for g in found if not g.of_study]
    for name in dict.fromkeys([*grid.ACCURACY_TABLES, *(g.data for g in compared)]):
        own = [g for g in compared if g.data == name]
        for split in ("test", "validation"):
            with_split = [g for g in own if g.accuracies(split)]
            for text in dict.fromkeys(g.label for g in with_split):
                same = [g for g in with_split if g.label == text]
                series.append(
                    {
                        "data": name,
                        "split": split,
                        "source": "ours",
                        "method": same[0].family,
                        "label": text,
                        "shortened": same[0].shortened,
                        "points": [_point(g, split) for g in same],
                    }
                )
        series += _published_series(name)
    return series


def _point(group: Group, split: str) -> dict[str, Any]:
    values = group.accuracies(split)
    mean, std = mean_and_spread(values)
    return {
        "epsilon": group.epsilon,
        "mean": mean,
        "std": std,
        "runs": len(values),
        "covers": group.covers,
        "provenance": provenance(group.runs[0]),
    }


def _published_series(name: str) -> Iterable[dict[str, Any]]:
    rows: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in recipes.published()["accuracy"]:
        if row["data"] == name and row["recipe"] != "cifar10-adam":
            cited = row["cited_from"]
            key = (row["split"], row["method"], row["model"], cited)
            point = {"epsilon": row["epsilon"], "mean": row["mean"], "std": row["std"]}
            point["runs"] = PAPER_RUNS if row["std"] is not None else None  # else it does not say
            rows.setdefault(key, []).append(point)
    for (split, method, model, cited), points in rows.items():
        yield {
            "data": name,
            "split": split,
            "source": "published",
            "method": method,
            "label": f"{labels.title(method)}, {model}, {cited or 'the paper'}",
            "shortened": False,
            "points": points,
        }


def learning_rates(found: Sequence[Group]) -> dict[str, Any]:
    """Return both axes of the learning-rate figure, ours and the paper's."""
    figure = recipes.published()["learning_rate_figure"]
    published = [
        {
            "alpha": curve["alpha"],
            "kappa": curve["kappa"],
            "points": [[p["lr"], p["accuracy"]] for p in curve["points"]],
        }
        for curve in figure["curves"]
    ]
    own = {group.experiment for group in found}
    study = grid.experiment(PAPERS_RATES if PAPERS_RATES in own else "learning-rate")
    # One point of the paper's own study is a run of its accuracy table, and filed there.
    in_table = recipes.settings(figure["recipe"], epsilon=figure["epsilon"])
    shared = identity.cell(in_table) if study.name == PAPERS_RATES else None
    ours: dict[float, dict[str, Any]] = {}
    for group in found:
        # κ depends on the steps, so that a shorter run belongs to another curve.
        usual = group.settings.steps == study.cells[0].settings.steps
        of_study = group.experiment == study.name or identity.cell(group.settings) == shared
        if not of_study or not usual:
            continue
        alpha, run = group.settings.alpha, group.runs[0]
        kappa = float(mechanism.attenuation(TYPICAL_TRUE_CLASS_PROBABILITY, run["r"], alpha))
        curve = ours.setdefault(alpha, {"alpha": alpha, "kappa": kappa, "points": []})
        mean, _ = mean_and_spread(group.accuracies())
        curve["points"].append([group.settings.lr, round(mean, 3)])
    for curve in ours.values():
        curve["points"].sort()
    return {
        "published": published,
        "ours": [ours[alpha] for alpha in sorted(ours)],
        "notes": list(study.notes),
    }


def methods_side_by_side(found: Sequence[Group]) -> list[dict[str, Any]]:
    """Return every configuration with accuracy, time and what its bound covers."""
    rows = []
    for group in found:
        if group.of_study:
            continue
        mean, std = mean_and_spread(group.accuracies())
        rows.append(
            {
                "data": group.data,
                "method": group.family,
                "label": group.label,
                "epsilon": group.epsilon,
                "mean": round(mean, 2),
                "std": None if std is None else round(std, 2),
                "runs": len(group.runs),
                "seconds": round(statistics.fmean(run["seconds"] for run in group.runs), 1),
                "covers": group.covers,
                "provenance": provenance(group.runs[0]),
            }
        )
    return rows


def load(results: Path) -> Results:
    """Return the groups of these revisions' records, and what was left out."""
    if not results.is_dir():
        raise ValueError(f"there is no results folder {results}; name it with --results")
    loaded = records.load(results)
    left_out = (*loaded.left_out, *measured.left_out(results))
    return Results(results, groups(loaded.records), left_out)


def provenance(record: Record) -> str | None:
    """Return, where the data was not the original, that sentence without its checksums."""
    copy = _copy(record)
    return None if copy is None else copy.split(" (sha256")[0].split(": ")[0]


def _copy(record: Record) -> str | None:
    """Return, where the data was not the original, which copy it was."""
    for sentence in record.get("provenance", ()):
        if " not " in sentence and "own file" in sentence:
            return str(sentence)
    return None
