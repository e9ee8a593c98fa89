"""What do the results say?  Records grouped into series, beside what the paper printed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import accounting, files, mechanism
from ..experiments import grid, identity, recipes, records
from ..plan import TYPICAL_TRUE_CLASS_PROBABILITY
from ..settings import Settings

Record = Mapping[str, Any]
# Runs of these vary something else than method and budget; they have figures of their own.
STUDIES = ("learning-rate", "sampling-rate", "adam", "svhn-part")
PAPER_RUNS = 5  # of every cell that the paper prints with a standard deviation
COVERS_DRAWS = "at most the draws, not the weights"
COVERS_WEIGHTS = "the released weights"
COVERS_NOTHING = "nothing: no privacy mechanism"
ON_FEATURES = ("certified", "gaussian-features")
TITLES = {
    "dirichlet": "Dirichlet (Algorithm 1)",
    "dpsgd": "DP-SGD",
    "certified": "certified linear",
    "gaussian-features": "Gaussian features",
    "plain": "plain",
}


@dataclass(frozen=True)
class Group:
    """The runs of one configuration, all seeds together; accuracies are in percent."""

    settings: Settings
    experiment: str
    runs: tuple[Record, ...]

    @property
    def label(self) -> str:
        return label(self.settings, self.runs[0])

    def accuracies(self, split: str = "test") -> list[float]:
        name = "accuracy" if split == "test" else "validation_accuracy"
        return [100 * run[name] for run in self.runs if run.get(name) is not None]

    @property
    def epsilon(self) -> float | None:
        plain = self.settings.method == "plain" or math.isinf(self.settings.epsilon)
        return None if plain else self.settings.epsilon

    @property
    def covers(self) -> str:
        run = self.runs[0]
        if run["covers_weights"]:
            return COVERS_WEIGHTS
        return COVERS_NOTHING if run.get("epsilon") is None else COVERS_DRAWS


def groups(found: Sequence[Record]) -> list[Group]:
    """Records by configuration, in the order of the grid where it has one."""
    by_cell: dict[tuple[str, str], list[Record]] = {}
    for record in found:
        settings = Settings.from_json(record["configuration"])
        by_cell.setdefault((record["experiment"], identity.cell(settings)), []).append(record)
    made = [
        Group(
            Settings.from_json(runs[0]["configuration"]),
            experiment,
            tuple(sorted(runs, key=lambda run: run["seed"] or 0)),
        )
        for (experiment, _), runs in by_cell.items()
    ]
    return sorted(made, key=lambda g: (g.experiment, g.label, g.settings.epsilon))


def label(settings: Settings, record: Record) -> str:
    """What sets a run apart, as a person says it."""
    for name in grid.ACCURACY_TABLES.get(settings.data, ()):
        usual = recipes.settings(name)
        family = "dirichlet" if settings.method == "plain" else settings.method
        if usual.method == family and usual.model == settings.model:
            return grid.row_label(settings, usual)
    # A feature map's name goes on with its version, which the record has.
    network = str(record.get("model"))
    name = network.partition("-")[0] if settings.method in ON_FEATURES else network
    parts = [TITLES.get(settings.method, settings.method), name]
    parts += [f"{name} {value}" for name, value in sorted(settings.options.items())]
    if settings.steps is not None:
        parts.append(f"{settings.steps} steps")
    return ", ".join(parts)


def mean_and_spread(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and standard deviation where there are several runs."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def accuracy_series(found: Sequence[Group]) -> list[dict[str, Any]]:
    """Accuracy against ε: ours and the paper's, one series a row of the tables."""
    series: list[dict[str, Any]] = []
    compared = [g for g in found if g.experiment not in STUDIES]
    for name in dict.fromkeys([*grid.ACCURACY_TABLES, *(g.settings.data for g in compared)]):
        own = [g for g in compared if g.settings.data == name]
        for split in ("test", "validation"):
            with_split = [g for g in own if g.accuracies(split)]
            for text in dict.fromkeys(g.label for g in with_split):
                same = [g for g in with_split if g.label == text]
                method = same[0].settings.method
                series.append(
                    {
                        "data": name,
                        "split": split,
                        "source": "ours",
                        "method": "dirichlet" if method == "plain" else method,
                        "label": text,
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
        "provenance": provenance(group.runs),
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
            "label": f"{TITLES[method]}, {model}, {cited or 'the paper'}",
            "points": points,
        }


def learning_rates(found: Sequence[Group]) -> dict[str, Any]:
    """Both axes of the learning-rate figure, ours and the paper's."""
    figure = recipes.published()["learning_rate_figure"]
    published = [
        {
            "alpha": curve["alpha"],
            "kappa": curve["kappa"],
            "points": [[p["lr"], p["accuracy"]] for p in curve["points"]],
        }
        for curve in figure["curves"]
    ]
    ours: dict[float, dict[str, Any]] = {}
    for group in found:
        # κ depends on the steps, so that a shorter run belongs to another curve.
        if group.experiment != "learning-rate" or group.settings.steps != grid.STUDY_STEPS:
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
        "note": " ".join(grid.IN_PLACE),
    }


def methods_side_by_side(found: Sequence[Group]) -> list[dict[str, Any]]:
    """Every configuration with accuracy, time and what its figure covers."""
    rows = []
    for group in found:
        if group.experiment in STUDIES:
            continue
        mean, std = mean_and_spread(group.accuracies())
        rows.append(
            {
                "data": group.settings.data,
                "method": group.settings.method,
                "label": group.label,
                "epsilon": group.epsilon,
                "mean": round(mean, 2),
                "std": None if std is None else round(std, 2),
                "runs": len(group.runs),
                "seconds": round(statistics.fmean(run["seconds"] for run in group.runs), 1),
                "covers": group.covers,
                "provenance": provenance(group.runs),
            }
        )
    return rows


def audits(results: Path) -> list[dict[str, Any]]:
    """What the attacks found beside the claims, where audits were run.

    A bound is held against the claim for its own neighbouring relation: two inputs in each
    other's place may differ by more than an input and none.
    """
    rows = []
    for path in sorted((results / "audit").glob("*.json")):
        content = files.read_json(path)
        for row in content.get("rows", ()) if isinstance(content, dict) else ():
            attacks = {n: f for n, f in row.items() if isinstance(f, dict) and "epsilon_lower" in f}
            bounds = {
                name: {
                    "lower": found["epsilon_lower"],
                    "claim": found.get("claim", {}).get("epsilon", row.get("claimed_epsilon")),
                    "relation": found.get("relation"),
                }
                for name, found in attacks.items()
                if found["epsilon_lower"] is not None
            }
            if attacks:
                rows.append(
                    {
                        "data": content.get("data", path.stem),
                        "method": row["method"],
                        "claimed": row.get("claimed_epsilon"),
                        "covers_weights": row.get("covers_weights"),
                        "confidence": content.get("confidence"),
                        "bounds": bounds,
                        "auc": row.get("membership", {}).get("auc"),
                    }
                )
    return rows


def accountants(results: Path) -> list[dict[str, Any]]:
    """ε at the paper's r by every accountant, where the table was made."""
    path = results / "accounting" / "paper_table.json"
    if not path.exists():
        return []
    return [
        {
            "data": row["data"],
            "epsilon": row["epsilon"],
            "r": row["r"],
            **{name: row["epsilon_at_r"].get(name) for name in accounting.ACCOUNTANTS},
        }
        for row in files.read_json(path)["rows"]
    ]


def cost(results: Path) -> list[dict[str, Any]]:
    """Seconds of a step, where they were measured."""
    path = results / "benchmarks" / "cost.json"
    if not path.exists():
        return []
    found: list[dict[str, Any]] = files.read_json(path).get("networks", [])
    return found


def load(results: Path) -> tuple[list[Group], tuple[str, ...]]:
    """The groups of this version's records, and what was left out."""
    if not results.is_dir():
        raise ValueError(f"there is no results folder {results}; name it with --results")
    loaded = records.load(results)
    return groups(loaded.records), loaded.left_out


def provenance(runs: Sequence[Record]) -> str | None:
    """Where the data was not the original, that sentence without its checksums."""
    for sentence in runs[0]["provenance"]:
        if " not " in sentence and "own file" in sentence:
            return str(sentence.split(" (sha256")[0].split(": ")[0])
    return None
