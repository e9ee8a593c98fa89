"""Which figures go into a paper?  The page's charts as SVG or PDF, drawn by matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import files
from ..experiments import computed
from ..experiments.table import save
from . import gather, tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "dirichlet": "#1f5fbf",
    "dpsgd": "#b4600a",
    "gaussian-features": "#2c7a4b",
    "certified": "#7b3fa0",
    "plain": "#6b7280",
}
MARKERS = "osD^"
INFINITE = 1.6  # ∞ stands at this multiple of the largest finite budget


def write(results: Path, folder: Path, endings: Sequence[str] = ("svg", "pdf")) -> list[Path]:
    """Every figure in every format, and every table that has rows as Markdown and LaTeX."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "simplexdp"  # the same results, the same file
    folder.mkdir(parents=True, exist_ok=True)
    found = gather.load(results)
    paths: list[Path] = []
    series = gather.accuracy_series(found.groups)
    for name, split in dict.fromkeys((s["data"], s["split"]) for s in series):
        own = [s for s in series if (s["data"], s["split"]) == (name, split)]
        of_split = "" if split == "test" else f"-{split}"
        drawn = _accuracy(own, split)
        paths += _save(drawn, folder / f"accuracy-{name}{of_split}".replace(" ", "-"), endings)
    rates = gather.learning_rates(found.groups)
    for source in ("ours", "published"):
        curves = rates[source]
        if curves:
            paths += _save(_learning_rate(curves), folder / f"learning-rate-{source}", endings)
    paths += _save(_asymptotics(), folder / "asymptotics", endings)
    for name in tables.names():
        made = tables.make(name, found)
        if made.rows:
            paths += save(made, folder)
    return paths


def _accuracy(series: Sequence[dict[str, Any]], split: str) -> Any:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4.4), layout="constrained")
    finite = sorted({p["epsilon"] for s in series for p in s["points"] if p["epsilon"]})
    infinite = finite[-1] * INFINITE if finite else 1.0  # where training without privacy stands
    seen: dict[str, int] = {}
    for one in series:
        published = one["source"] == "published"
        kind = one["method"] + one["source"]
        seen[kind] = seen.get(kind, -1) + 1
        _draw(axes, one, published, MARKERS[seen[kind] % 4], infinite)
    axes.set_xscale("log")
    axes.set_xticks([*finite, infinite], [*(f"{e:g}" for e in finite), "∞"])
    axes.minorticks_off()
    axes.set_xlabel("budget ε")
    axes.set_ylabel(f"{split} accuracy, %")
    axes.legend(fontsize=7, frameon=False)
    axes.grid(axis="y", alpha=0.3)
    return figure


def _draw(axes: Axes, one: dict[str, Any], published: bool, mark: str, infinite: float) -> None:
    colour = COLOURS[one["method"]]
    style: dict[str, Any] = {"color": colour, "marker": mark, "alpha": 0.7 if published else 1.0}
    points = sorted((p for p in one["points"] if p["epsilon"]), key=lambda p: float(p["epsilon"]))
    label = one["label"] + ("" if published else " (ours)")
    x = [p["epsilon"] for p in points]
    axes.plot(
        x,
        [p["mean"] for p in points],
        "--" if published else "-",
        label=label,
        markersize=4,
        **style,
    )
    spread = [p for p in points if p["std"] is not None]
    if len(spread) > 1:
        axes.fill_between(
            [p["epsilon"] for p in spread],
            [p["mean"] - p["std"] for p in spread],
            [p["mean"] + p["std"] for p in spread],
            color=colour,
            alpha=0.12,
            linewidth=0,
        )
    alone = spread if len(spread) == 1 else []
    for p in [*alone, *(p for p in one["points"] if p["epsilon"] is None)]:
        x_of = infinite if p["epsilon"] is None else p["epsilon"]
        axes.errorbar([x_of], [p["mean"]], yerr=p["std"], linestyle="none", markersize=4, **style)


def _learning_rate(curves: Sequence[dict[str, Any]]) -> Any:
    from matplotlib import colormaps, pyplot

    figure, both = pyplot.subplots(1, 2, figsize=(8.4, 3.6), sharey=True, layout="constrained")
    colours = colormaps["viridis"]
    for number, curve in enumerate(curves):
        for axes, scale in zip(both, (1.0, curve["kappa"]), strict=True):
            axes.plot(
                [lr * scale for lr, _ in curve["points"]],
                [accuracy for _, accuracy in curve["points"]],
                marker=MARKERS[number % 4],
                markersize=3.5,
                color=colours(0.9 * number / max(1, len(curves) - 1)),
                label=f"α = {curve['alpha']:g}",
            )
            axes.set_xscale("log")
            axes.grid(alpha=0.25)
    both[0].set_xlabel("learning rate γ")
    both[1].set_xlabel("effective learning rate γ·κ")
    both[0].set_ylabel("test accuracy, %")
    both[1].legend(fontsize=7, frameon=False)
    return figure


def _asymptotics() -> Any:
    from matplotlib import pyplot

    rows: list[Any] = list(computed.compute("asymptotics").rows)
    figure, both = pyplot.subplots(1, 2, figsize=(8.4, 3.4), layout="constrained")
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
    from matplotlib import pyplot

    paths = [stem.with_name(f"{stem.name}.{ending}") for ending in endings]
    for path in paths:
        # No date inside: a figure changes when the results do.
        when = "CreationDate" if path.suffix == ".pdf" else "Date"
        files.write_picture(figure, path, metadata={when: None})
    pyplot.close(figure)
    return paths
