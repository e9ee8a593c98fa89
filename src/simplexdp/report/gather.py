"""What do the results say?  Records grouped into series, beside what the paper printed."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import accounting, files, mechanism, methods
from ..experiments import grid, identity, recipes, records
from ..runs import version
from ..schedule import TYPICAL_TRUE_CLASS_PROBABILITY
from ..settings import Settings
from ..statement import rounded_up

Record = Mapping[str, Any]
# Runs of these vary something else than method and budget; they have figures of their own.
STUDIES = (
    *("learning-rate", "sampling-rate", "adam", "svhn-part"),
    *("cifar10-learning-rate", "cifar10-sampling-rate", "cifar10-adam"),
)
PAPERS_RATES = "cifar10-learning-rate"  # where it was run, nothing stands in its place
PAPER_RUNS = 5  # of every cell that the paper prints with a standard deviation
COVERS_DRAWS = "draws, under assumptions that Algorithm 1 breaks; not the weights"
COVERS_WEIGHTS = "the released weights"
COVERS_NOTHING = "nothing: no privacy mechanism"
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
    apart: str = ""  # where another group would have the same label

    @property
    def label(self) -> str:
        return label(self.settings, self.runs[0]) + self.apart

    @property
    def family(self) -> str:
        """The method whose row it stands in: a recipe without privacy is the recipe's ε = ∞."""
        no_privacy = self.settings.method == "plain" and _recipe(self.settings) is not None
        return "dirichlet" if no_privacy else self.settings.method

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
    """Records by configuration and by whether the data were the original."""
    by_cell: dict[tuple[str, str, str | None], list[Record]] = {}
    for record in found:
        cell = identity.cell(Settings.from_json(record["configuration"]))
        by_cell.setdefault((record["experiment"], cell, _copy(record)), []).append(record)
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
    labels = Counter((g.settings.data, g.label, g.epsilon) for g in made)
    made = [
        dataclasses.replace(g, apart=f", run {g.runs[0]['key']}")
        if labels[g.settings.data, g.label, g.epsilon] > 1 and g.experiment not in STUDIES
        else g
        for g in made
    ]
    return sorted(made, key=lambda g: (g.experiment, g.label, g.settings.epsilon))


def label(settings: Settings, record: Record) -> str:
    """What sets a run apart, as a person says it."""
    copy = provenance(record)
    of_copy = [] if copy is None else [copy.split(", ")[0]]
    recipe = _recipe(settings)
    if recipe is not None:
        return ", ".join([grid.row_label(settings, recipe), *of_copy])
    # A feature map's name goes on with its version, which the record has.
    network = str(record.get("model"))
    name = network.partition("-")[0] if methods.on_features(settings) else network
    rate = [] if settings.lr is None else [f"lr {settings.lr:g}"]
    apart = grid.apart(settings, Settings(data=settings.data, method=settings.method))
    return ", ".join([TITLES.get(settings.method, settings.method), name, *rate, *apart, *of_copy])


def _recipe(settings: Settings) -> Settings | None:
    """The paper's recipe for these data, method and network, where it has one."""
    family = "dirichlet" if settings.method == "plain" else settings.method
    for name in grid.ACCURACY_TABLES.get(settings.data, ()):
        usual = recipes.settings(name)
        if usual.method == family and usual.model == settings.model:
            return usual
    return None


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
                series.append(
                    {
                        "data": name,
                        "split": split,
                        "source": "ours",
                        "method": same[0].family,
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
    """Every configuration with accuracy, time and what its figure covers."""
    rows = []
    for group in found:
        if group.experiment in STUDIES:
            continue
        mean, std = mean_and_spread(group.accuracies())
        rows.append(
            {
                "data": group.settings.data,
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


def audits(results: Path) -> list[dict[str, Any]]:
    """What the attacks found beside the claims, where audits were run.

    A bound is held against the claim for its own neighbouring relation: two inputs in each
    other's place may differ by more than an input and none.
    """
    tables: list[dict[str, Any]] = []
    single: list[dict[str, Any]] = []
    for path in sorted((results / "audit").glob("*.json")):
        content = files.read_json(path)
        if isinstance(content, dict) and of_other_version(content, path) is None:
            (tables if "rows" in content else single).extend(content.get("audits", [content]))
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for content in tables:
        for row in content["rows"]:
            attacks = {n: f for n, f in row.items() if isinstance(f, dict) and "epsilon_lower" in f}
            if attacks:
                rows[content["data"], row["method"]] = {
                    "data": content["data"],
                    "method": row["method"],
                    "claimed": row.get("claimed_epsilon"),
                    "delta": content.get("delta"),
                    "covers_weights": row.get("covers_weights"),
                    "confidence": content.get("confidence"),
                    "bounds": {
                        name: _bound(found, row.get("claimed_epsilon"))
                        for name, found in attacks.items()
                        if found["epsilon_lower"] is not None
                    },
                    "auc": row.get("membership", {}).get("auc"),
                }
    for found in single:  # one attack alone, beside those of the table where there is one
        if found.get("epsilon_lower") is None:
            continue
        claimed = found.get("claim", {}).get("epsilon")
        new = {
            "data": found["data"],
            "method": found["method"],
            "claimed": claimed,
            "delta": found.get("claim", {}).get("delta"),
            "covers_weights": found["covers_weights"],
            "confidence": found["confidence"],
            "bounds": {},
            "auc": None,
        }
        row = rows.setdefault((found["data"], found["method"]), new)
        name = found["attack"].replace("-", "_")
        in_out = "_in_out" if str(found.get("relation")).startswith("in or out") else ""
        if row["confidence"] == found["confidence"]:
            row["bounds"].setdefault(name + in_out, _bound(found, claimed))
    return list(rows.values())


def _bound(found: Mapping[str, Any], claimed: float | None) -> dict[str, Any]:
    return {
        "lower": found["epsilon_lower"],
        "claim": found.get("claim", {}).get("epsilon", claimed),
        "delta": found.get("claim", {}).get("delta"),
        "relation": found.get("relation"),
    }


def other_deltas(rows: Sequence[Mapping[str, Any]]) -> str:
    """Which of the audits' claims are at another δ than the method's own, in a sentence."""
    found: dict[str, list[str]] = {}
    for row in rows:
        for name, bound in row["bounds"].items():
            if bound["delta"] not in (None, row["delta"]):
                method = TITLES.get(row["method"], row["method"])
                which = f"{row['data']}, {method}, {name.replace('_', ' ')}"
                found.setdefault(rounded_up(bound["delta"], 3), []).append(which)
    return " ".join(
        f"At δ = {delta}, claim and bound: {'; '.join(which)}." for delta, which in found.items()
    )


def of_other_version(content: Mapping[str, Any], path: Path) -> str | None:
    """Why a measurement is left out: it does not say that this version of the package made it."""
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a file of measurements; delete it and make it again")
    made_by = content.get("version")
    if made_by == version():
        return None
    return (
        f"{path}: {'without a version' if made_by is None else f'of version {made_by}'}, left out"
    )


def accountants(results: Path) -> list[dict[str, Any]]:
    """ε at the paper's r by every accountant, where the table was made."""
    path = results / "accounting" / "paper_table.json"
    if not path.exists():
        return []
    rows = measured(path, "rows")
    return [
        {
            "data": row["data"],
            "epsilon": row["epsilon"],
            "r": row["r"],
            **{name: row["epsilon_at_r"].get(name) for name in accounting.ACCOUNTANTS},
        }
        for row in rows
    ]


def measured(path: Path, name: str) -> Any:
    """One entry of a file of measurements, or an error that names the file."""
    content = files.read_json(path)
    if not isinstance(content, dict) or name not in content:
        raise ValueError(f"{path} has no {name!r}; delete it and make it again")
    return content[name]


def classes(results: Path, found: Sequence[Group]) -> list[dict[str, Any]]:
    """Which classes the networks of these runs find, where that was measured."""
    path = results / "benchmarks" / "classes.json"
    if not path.exists():
        return []
    keys = {run["key"] for group in found for run in group.runs}
    return [row for row in measured(path, "rows") if row["key"] in keys]


def cost(results: Path) -> list[dict[str, Any]]:
    """Seconds of a step, where they were measured."""
    path = results / "benchmarks" / "cost.json"
    if not path.exists():
        return []
    content = files.read_json(path)
    found: list[dict[str, Any]] = content.get("networks", [])
    return found if of_other_version(content, path) is None else []


def load(results: Path) -> tuple[list[Group], tuple[str, ...]]:
    """The groups of this version's records, and what was left out."""
    if not results.is_dir():
        raise ValueError(f"there is no results folder {results}; name it with --results")
    loaded = records.load(results)
    measured = [*(results / "audit").glob("*.json"), results / "benchmarks" / "cost.json"]
    other = [
        said
        for path in sorted(measured)
        if path.exists() and (said := of_other_version(files.read_json(path), path))
    ]
    return groups(loaded.records), (*loaded.left_out, *other)


def provenance(record: Record) -> str | None:
    """Where the data was not the original, that sentence without its checksums."""
    copy = _copy(record)
    return None if copy is None else copy.split(" (sha256")[0].split(": ")[0]


def _copy(record: Record) -> str | None:
    """Where the data was not the original, which copy it was."""
    for sentence in record.get("provenance", ()):
        if " not " in sentence and "own file" in sentence:
            return str(sentence)
    return None
