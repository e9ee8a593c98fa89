"""Tables of what was measured beside the runs: classes found, times of steps, peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simplexdp import files
from simplexdp.paper import recipes
from simplexdp.paper.report import gather, measured
from simplexdp.paper.report.gather import Results
from simplexdp.paper.table import Table, Value, columns

HIDES = (
    "Accuracy hides lost classes. Least recall: that of the class found least often on the test "
    "set; never predicted: classes that the network gives to no record of it."
)


def classes(found: Results) -> Table:
    """Return the least recall of a class by each network, and the classes it never predicts."""
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
    heads = columns(
        data="data",
        epsilon="ε",
        rate="learning rate",
        steps="steps",
        seed="seed",
        accuracy="accuracy, %",
        recall="least recall, %",
        never="never predicted",
    )
    return Table("classes", "Classes that are lost", heads, tuple(rows), (HIDES,))


def rate_of(row: Mapping[str, Any]) -> str:
    """Return the learning rate of a measured run, how it was reached, and what weighed its loss."""
    rate = "auto" if row["lr"] is None else f"{row['lr']:g}"
    warmup = row.get("warmup")
    if warmup is not None:
        rate += f", warm-up {warmup}" if warmup else " at once"
    return rate + (", class weights" if row["class_weights"] else "")


def lost(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return which of these runs never predict some class."""
    lost = [
        f"{len(row['never_predicted'])} of {len(row['recall'])} classes of {row['experiment']} "
        f"by a network at {100 * row['accuracy']:.2f} %"
        for row in rows
        if row["never_predicted"]
    ]
    said = f"Accuracy hides lost classes. Never predicted: {'; '.join(dict.fromkeys(lost))}."
    return [f"{said} Which they are: results/tables.md."] if lost else []


def cost(found: Results) -> Table:
    """Return the seconds of a step by method and network."""
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
    heads = columns(
        network="network",
        batch="batch",
        plain=("plain, s", 3),
        dirichlet=("Dirichlet, s", 3),
        dpsgd=("DP-SGD, s", 3),
        dirichlet_over_plain="Dirichlet / plain",
        dpsgd_over_dirichlet="DP-SGD / Dirichlet",
    )
    notes = (
        "Processor seconds of one step on one thread, step by step beside each other, with group "
        "normalisation in all three; medians, and 95 % intervals for the median ratio.",
        f"The paper: an epoch of CIFAR10 with ResNet-18 on a {paper['device']} takes "
        f"{seconds['dirichlet']} s with Dirichlet and {seconds['dpsgd']} s with DP-SGD.",
    )
    return Table("cost", "The cost of a step", heads, tuple(rows), notes)


def _ratio(row: Mapping[str, Any], name: str) -> str:
    """Return a median ratio with its interval, where there were rounds enough for one."""
    interval = row[f"{name}_interval"]
    spread = "" if interval is None else f" ({interval[0]:.4g} to {interval[1]:.4g})"
    return f"{row[name]:.4g}{spread}"


SPEED, STEP = Path("benchmarks") / "speed.json", Path("benchmarks") / "dpsgd.json"


def speed(found: Results) -> Table:
    """Return the loop beside a tight plain one, network by network."""
    kinds = ("plain", "dirichlet", "dirichlet, link log")
    path, rows = found.folder / SPEED, list[dict[str, Value]]()
    notes = [
        "Processor time over that of a tight plain loop with the same network and batches, "
        "alternated in one run on one thread: medians, with the middle half of the rounds. "
        "The tight loop is twenty lines: tensors in memory, batches drawn beforehand, no seed. It "
        "gives a step's memory back to the system, which the loop here does not: hence below 1."
    ]
    if path.exists():
        with files.well_formed(path):
            for name, of in files.read_json(path, files.ANEW).items():
                if isinstance(of, dict) and "tight plain loop" in of:
                    told = {kind: _over(of[kind]) for kind in kinds}
                    rows.append({"network": name, "batch": of["batch"], **told})
    path = found.folder / STEP
    if path.exists():
        with files.well_formed(path):
            told = {
                one["network"]: one["ratios"]["ours over opacus' best"]["median"]
                for one in files.read_json(path, files.ANEW)["networks"]
            }
        said = ", ".join(f"{ratio:.2f} on {name}" for name, ratio in told.items())
        notes.append(f"DP-SGD's step over the faster of Opacus' hooks and ghost clipping: {said}.")
    heads = columns(
        network="network",
        batch="batch",
        plain="plain / tight",
        dirichlet="Dirichlet / tight",
        **{"dirichlet, link log": "with the link / tight"},
    )
    return Table("speed", "The loop beside a tight one", heads, tuple(rows), tuple(notes))


def _over(one: Mapping[str, Any]) -> str:
    low, high = one["middle_half"]
    return f"{one['ratio']:.2f} ({low:.2f} to {high:.2f})"


def _peer_rows(name: str, one: Mapping[str, Any]) -> list[dict[str, Value]]:
    rows: list[dict[str, Value]] = []
    for budget in one["budgets"]:
        row: dict[str, Value] = {"data": name, "epsilon": f"{budget['epsilon']:g}"}
        for method in ("certified", "diffprivlib"):
            of = budget[method]
            spread = 100 * of["deviation"] if of["runs"] > 1 else None
            row[method] = gather.percent(100 * of["accuracy"], spread, of["runs"])
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
    """Return the certified method beside diffprivlib's logistic regression and Opacus' times."""
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
    heads = columns(
        data="data set",
        epsilon="ε",
        certified="certified, %",
        certified_seconds=("seconds", 2),
        diffprivlib="diffprivlib, %",
        diffprivlib_seconds=("seconds", 2),
    )
    return Table("peers", "The same columns, other software", heads, tuple(rows), tuple(notes))
