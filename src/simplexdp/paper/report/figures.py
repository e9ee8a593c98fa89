"""Which figures go into a paper?  The page's charts as SVG or PDF, drawn by matplotlib."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simplexdp import files
from simplexdp.paper import computed
from simplexdp.paper.report import gather, tables
from simplexdp.paper.table import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "dirichlet": "#1f5fbf",
    "dpsgd": "#b4600a",
    "gaussian-features": "#2c7a4b",
    "certified": "#7b3fa0",
    "plain": "#6b7280",
}
MARKERS = "os^D"
AS_PUBLISHED = "As published: CIFAR10, ResNet-18, ε = 1, 10 runs a point."
NEAR_HUNDRED = 97.0  # percent; above it the axis goes by the log of the error
INFINITE = 1.6  # ∞ stands at this multiple of the largest finite budget
APART = 1.05  # and the series' points at ∞ at this multiple of each other


def write(results: Path, folder: Path, endings: Sequence[str] = ("svg", "pdf")) -> list[Path]:
    """Every figure in every format, and every table that has rows as Markdown and LaTeX."""
    folder.mkdir(parents=True, exist_ok=True)
    found = gather.load(results)
    paths: list[Path] = []
    series = [s for s in gather.accuracy_series(found.groups) if not s["shortened"]]
    for name, split in dict.fromkeys((s["data"], s["split"]) for s in series):
        own = [s for s in series if (s["data"], s["split"]) == (name, split)]
        of_split = "" if split == "test" else f"-{split}"
        drawn = _accuracy(own, split)
        paths += _save(drawn, folder / f"accuracy-{name}{of_split}".replace(" ", "-"), endings)
    rates = gather.learning_rates(found.groups)
    for source in ("ours", "published"):
        curves = rates[source]
        if curves:
            said = rates["notes"] if source == "ours" else [AS_PUBLISHED]
            drawn = _learning_rate(curves, " ".join(said))
            paths += _save(drawn, folder / f"learning-rate-{source}", endings)
    paths += _save(_asymptotics(), folder / "asymptotics", endings)
    for name in tables.names():
        made = tables.make(name, found)
        if made.rows:
            paths += save(made, folder)
    return paths


def _accuracy(series: Sequence[dict[str, Any]], split: str) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.2), layout="constrained")
    axes = figure.subplots()
    finite = sorted({p["epsilon"] for s in series for p in s["points"] if p["epsilon"]})
    infinite = finite[-1] * INFINITE if finite else 1.0  # where training without privacy stands
    seen: dict[str, int] = {}
    # Points at ∞ stand beside each other: training without privacy is the same for several series.
    ending = [one["label"] for one in series if any(p["epsilon"] is None for p in one["points"])]
    first = infinite * APART ** -((len(ending) - 1) / 2)
    for one in series:
        published = one["source"] == "published"
        kind = one["method"] + one["source"]
        seen[kind] = seen.get(kind, -1) + 1
        own = first * APART ** ending.index(one["label"]) if one["label"] in ending else infinite
        _draw(axes, one, published, seen[kind], own)
    axes.set_xscale("log")
    if finite and ending:
        axes.axvline(math.sqrt(finite[-1] * first), color="#5d636e", linewidth=0.8, linestyle=":")
    apart = [e for e, before in zip(finite, [0.0, *finite], strict=False) if e > 1.15 * before]
    at_infinity = [infinite] if ending else []
    axes.set_xticks(
        [*apart, *at_infinity], [*(f"{e:g}" for e in apart), *("∞" for _ in at_infinity)]
    )
    for x in at_infinity:
        above = axes.get_xaxis_transform()
        axes.text(x, 1.01, "no privacy", transform=above, ha="center", fontsize=7.5)
    axes.minorticks_off()
    axes.set_xlabel("budget ε")
    near = max(p["mean"] for s in series for p in s["points"]) > NEAR_HUNDRED
    axes.set_ylabel(f"{split} accuracy, %" + (" (log of the error)" if near else ""))
    if near:
        _spread_near_hundred(axes)
    axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside lower left", ncols=2, fontsize=6.5, frameon=False)
    return figure


def _spread_near_hundred(axes: Axes) -> None:
    """Near 100 % what is wrong is told apart, and not what is right."""
    import numpy as np

    def rightness(y: Any) -> Any:
        return -np.log(np.maximum(0.05, 100 - y))

    def percent(z: Any) -> Any:
        return 100 - np.exp(-z)

    bottom, top = rightness(axes.dataLim.intervaly)
    room = 0.06 * (top - bottom)
    low, high = float(percent(bottom - room)), float(percent(top + room))
    axes.set_yscale("function", functions=(rightness, percent))
    axes.set_ylim(low, high)
    ticks = [t for t in (0, 20, 50, 80, 90, 95, 98, 99, 99.5, 99.8, 99.9) if low <= t <= high]
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks])


def _marker(number: int) -> dict[str, Any]:
    """Four shapes, then the same hollow, as on the page."""
    hollow = {"markerfacecolor": "white"} if number // 4 % 2 else {}
    return {"marker": MARKERS[number % 4], **hollow}


def _draw(axes: Axes, one: dict[str, Any], published: bool, number: int, infinite: float) -> None:
    colour = COLOURS[one["method"]]
    style = {"color": colour, "alpha": 0.7 if published else 1.0, **_marker(number)}
    points = sorted((p for p in one["points"] if p["epsilon"]), key=lambda p: float(p["epsilon"]))
    label = one["label"] + ("" if published else " (ours)")
    x = [p["epsilon"] for p in points]
    axes.plot(
        x,
        [p["mean"] for p in points],
        "--" if published else "-",
        label=textwrap.fill(label, 60),
        markersize=4,
        **style,
    )
    bands = list(_bands(points))
    for spread in bands:
        axes.fill_between(
            [p["epsilon"] for p in spread],
            [p["mean"] - p["std"] for p in spread],
            [p["mean"] + p["std"] for p in spread],
            color=colour,
            alpha=0.12,
            linewidth=0,
        )
    banded = [p for spread in bands for p in spread]
    alone = [p for p in points if p["std"] is not None and p not in banded]
    for p in [*alone, *(p for p in one["points"] if p["epsilon"] is None)]:
        x_of = infinite if p["epsilon"] is None else p["epsilon"]
        axes.errorbar([x_of], [p["mean"]], yerr=p["std"], linestyle="none", markersize=4, **style)


def _bands(points: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Neighbours that have a spread; a band does not reach over a point without one."""
    for has, found in itertools.groupby(points, key=lambda p: p["std"] is not None):
        band = list(found)
        if has and len(band) > 1:
            yield band


def _learning_rate(curves: Sequence[dict[str, Any]], said: str) -> Any:
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    both = figure.subplots(1, 2, sharey=True)
    colours = colormaps["viridis"]
    for number, curve in enumerate(curves):
        for axes, scale in zip(both, (1.0, curve["kappa"]), strict=True):
            axes.plot(
                [lr * scale for lr, _ in curve["points"]],
                [accuracy for _, accuracy in curve["points"]],
                markersize=3.5,
                color=colours(0.9 * number / max(1, len(curves) - 1)),
                label=f"α = {curve['alpha']:g}",
                **_marker(number),
            )
            axes.set_xscale("log")
            axes.grid(alpha=0.25)
    both[0].set_xlabel("learning rate γ")
    both[1].set_xlabel("effective learning rate γ·κ")
    both[0].set_ylabel("test accuracy, %")
    both[1].legend(fontsize=7, frameon=False)
    figure.suptitle(textwrap.fill(said, 130), fontsize=7.5)
    return figure


def _asymptotics() -> Any:
    from matplotlib.figure import Figure

    rows: list[Any] = list(computed.compute("asymptotics").rows)
    figure = Figure(figsize=(8.4, 3.4), layout="constrained")
    both = figure.subplots(1, 2)
    for axes, what, label in zip(
        both, ("kappa", "variance"), ("κ", "variance of the loss"), strict=True
    ):
        alphas = [row["alpha"] for row in rows]
        axes.plot(
            alphas, [r[f"linear_{what}"] for r in rows], "--", label="r = cα", color="#6b7280"
        )
        axes.plot(alphas, [r[f"calibrated_{what}"] for r in rows], label="r = r*", color="#1f5fbf")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("α")
        axes.set_ylabel(label)
        axes.legend(frameon=False)
    return figure


def _save(figure: Any, stem: Path, endings: Sequence[str]) -> list[Path]:
    from matplotlib import rc_context

    paths = [stem.with_name(f"{stem.name}.{ending}") for ending in endings]
    # The same results, the same file; fonts of a kind that publishers take.
    with rc_context({"svg.hashsalt": "simplexdp", "pdf.fonttype": 42}):
        for path in paths:
            # No date inside: a figure changes when the results do.
            when = "CreationDate" if path.suffix == ".pdf" else "Date"
            files.write_picture(figure, path, metadata={when: None})
    return paths
