"""The charts of the results, drawn by matplotlib for papers and for the page alike."""

from __future__ import annotations

import itertools
import json
import math
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simplexdp import files, methods
from simplexdp.paper import computed
from simplexdp.paper.report import gather, tables
from simplexdp.paper.table import save

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Of the built-in methods in the order of their names, then of others; `page.css` has the same
# colours as --m0, --m1, …, and others for the dark.
COLOURS = ("#7b3fa0", "#1f5fbf", "#b4600a", "#2c7a4b", "#6b7280", "#0b7a80", "#a8326e")
INK, LINE, ACCENT, WARN = "#5d636e", "#e3e1da", "#1f5fbe", "#a3341f"
# From one end of a scale to the other:
SHADES = (ACCENT, "#305aaa", "#405496", "#514f82", "#61496e", "#72445a", "#823f46", "#933932", WARN)
LOOK: Any = {  # of matplotlib
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "axes.axisbelow": True,
    **{f"axes.spines.{side}": False for side in ("top", "right", "left")},
    **{f"{axis}tick.{what}.size": 0 for axis in "xy" for what in ("major", "minor")},
    **{f"{axis}tick.labelcolor": INK for axis in "xy"},
    "grid.color": LINE,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "simplexdp",  # the same results, the same file
    "pdf.fonttype": 42,  # fonts of a kind that publishers take
}
PAPER, WIDE, NARROW = (6.4, 5.2), (9.3, 3.9), (3.6, 3.5)  # inches: a column, a screen, a phone
MARKERS = "os^D"
NEAR_HUNDRED = 97.0  # percent; above it the axis goes by the log of the error
INFINITE = 1.6  # ∞ stands at this multiple of the largest finite budget
APART = 1.05  # and the series' points at ∞ at this multiple of each other


def write(results: Path, folder: Path, endings: Sequence[str] = ("svg", "pdf")) -> list[Path]:
    """Write every figure in every format, and every table that has rows."""
    folder.mkdir(parents=True, exist_ok=True)
    found = gather.load(results)
    paths: list[Path] = []
    for (name, split), series in by_data(gather.accuracy_series(found.groups)).items():
        of_split = "" if split == "test" else f"-{split}"
        stem = folder / f"accuracy-{name}{of_split}".replace(" ", "-")
        paths += _save(accuracy(series, split), stem, endings)
    rates = gather.learning_rates(found.groups)
    for source in ("ours", "published"):
        if rates[source]:
            said = " ".join(rates["notes"]) if source == "ours" else gather.AS_PUBLISHED
            drawn = learning_rate(rates[source], said)
            paths += _save(drawn, folder / f"learning-rate-{source}", endings)
    paths += _save(asymptotics(), folder / "asymptotics", endings)
    for name in tables.names():
        made = tables.make(name, found)
        if made.rows:
            paths += save(made, folder)
    return paths


def by_data(series: Sequence[dict[str, Any]]) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the series of every chart, by data set and split; shortened runs are in no chart."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in series:
        if not one["shortened"]:
            found.setdefault((one["data"], one["split"]), []).append(one)
    return found


def colour_number(method: str) -> int:
    """Return the place of a method's colour in `COLOURS`; others than built-in ones share two."""
    built_in = methods.names()
    return built_in.index(method) if method in built_in else 5 + len(method) % 2


def accuracy(
    series: Sequence[dict[str, Any]], split: str, size: tuple[float, float] = PAPER
) -> Figure:
    """Draw accuracy against ε, one curve a series; what is without privacy stands apart."""
    figure, (axes,) = _panels(1, 1, size)
    finite = sorted({p["epsilon"] for s in series for p in s["points"] if p["epsilon"]})
    infinite = finite[-1] * INFINITE if finite else 1.0  # where training without privacy stands
    # Points at ∞ stand beside each other: training without privacy is the same for several series.
    ending = [one["label"] for one in series if any(p["epsilon"] is None for p in one["points"])]
    apart = 1 + (APART - 1) * PAPER[0] / size[0]
    first = infinite * apart ** -((len(ending) - 1) / 2)
    seen: dict[tuple[str, str], int] = {}
    for one in series:
        kind = (one["method"], one["source"])
        seen[kind] = seen.get(kind, -1) + 1
        own = first * apart ** ending.index(one["label"]) if one["label"] in ending else infinite
        _draw(axes, one, seen[kind], own)
    axes.set_xscale("log")
    if finite and ending:
        axes.axvline(math.sqrt(finite[-1] * first), color=INK, linewidth=0.8, linestyle=":")
    told = 1.15 if size[0] > NARROW[0] else 1.4
    ticks = [e for e, before in zip(finite, [0.0, *finite], strict=False) if e > told * before]
    at_infinity = [infinite] if ending else []
    axes.set_xticks([*ticks, *at_infinity], [f"{e:g}" for e in ticks] + ["∞"] * len(at_infinity))
    for x in at_infinity:
        above = axes.get_xaxis_transform()
        axes.text(x, 1.01, "no privacy", transform=above, ha="center", fontsize="small", color=INK)
    axes.minorticks_off()
    axes.set_xlabel("budget ε (δ = 1e-5)")
    near = max(p["mean"] for s in series for p in s["points"]) > NEAR_HUNDRED
    axes.set_ylabel(f"{split} accuracy, %" + (" (log of the error)" if near else ""))
    if near:
        _spread_near_hundred(axes)
    if size == PAPER:
        figure.legend(loc="outside lower left", ncols=2, fontsize=6.5, frameon=False)
    return figure


def _panels(rows: int, columns: int, size: tuple[float, float]) -> tuple[Figure, Sequence[Axes]]:
    from matplotlib import rc_context

    with rc_context(LOOK):
        figure: Figure = files.figure(figsize=size)
        panels = figure.subplots(rows, columns, squeeze=False, sharey=False).flatten()
    for axes in panels:
        axes.grid(axis="y")
    return figure, list(panels)


def _spread_near_hundred(axes: Axes) -> None:
    """Tell apart what is wrong near 100 %, and not what is right."""
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
    """Return one of four shapes, then the same hollow."""
    hollow = {"markerfacecolor": "white"} if number // 4 % 2 else {}
    return {"marker": MARKERS[number % 4], **hollow}


def _tell(artist: Artist, label: str, titles: Sequence[str] = (), method: str = "") -> None:
    """Leave with an artist what the page's SVG says of it."""
    artist.set_gid(json.dumps({"label": label, "titles": list(titles), "method": method}))


def _draw(axes: Axes, one: dict[str, Any], number: int, infinite: float) -> None:
    published = one["source"] == "published"
    colour = COLOURS[colour_number(one["method"])]
    style = {"color": colour, "alpha": 0.75 if published else 1.0, **_marker(number)}
    style["markersize"] = 4 if published else 5
    points = sorted((p for p in one["points"] if p["epsilon"]), key=lambda p: float(p["epsilon"]))
    label = one["label"] + ("" if published else " (ours)")

    def told(artist: Artist, of: Sequence[dict[str, Any]] = ()) -> None:
        _tell(artist, label, [_said(one["label"], p) for p in of], one["method"])

    (line,) = axes.plot(
        [p["epsilon"] for p in points],
        [p["mean"] for p in points],
        "--" if published else "-",
        label=textwrap.fill(label, 60),
        **style,
    )
    told(line, points)
    bands = list(_bands(points))
    for spread in bands:
        low, high = ([p["mean"] + sign * p["std"] for p in spread] for sign in (-1, 1))
        x = [p["epsilon"] for p in spread]
        told(axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0))
    banded = [p for spread in bands for p in spread]
    endless = [p for p in one["points"] if p["epsilon"] is None]
    (at_infinity,) = axes.plot(
        [infinite] * len(endless), [p["mean"] for p in endless], linestyle="none", **style
    )
    told(at_infinity, endless)
    for p in [*points, *endless]:
        if p["std"] is not None and p not in banded:
            low, high = p["mean"] - p["std"], p["mean"] + p["std"]
            told(axes.vlines(p["epsilon"] or infinite, low, high, color=colour, linewidth=1.2))


def _said(label: str, p: dict[str, Any]) -> str:
    """Return what a point says when it is pointed at."""
    budget = "∞" if p["epsilon"] is None else f"{p['epsilon']:g}"
    spread = "" if p["std"] is None else f" ± {p['std']:.2f}"
    runs = f" ({p['runs']} {'run' if p['runs'] == 1 else 'runs'})" if p["runs"] else ""
    covers = "; no privacy" if p["epsilon"] is None else ""
    if p.get("covers"):
        covers = f"; ε covers {p['covers']}"
    copy = f"; data: {p['provenance']}" if p.get("provenance") else ""
    return f"{label}, ε = {budget}: {p['mean']:.2f}{spread} %{runs}{covers}{copy}"


def _bands(points: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield neighbours that have a spread; a band does not reach over a point without one."""
    for has, found in itertools.groupby(points, key=lambda p: p["std"] is not None):
        band = list(found)
        if has and len(band) > 1:
            yield band


def learning_rate(
    curves: Sequence[dict[str, Any]], said: str = "", size: tuple[float, float] = (8.4, 3.6)
) -> Figure:
    """Draw accuracy over the learning rate, and over the effective one."""
    stacked = size[1] > size[0]
    figure, both = _panels(*((2, 1) if stacked else (1, 2)), size)
    for number, (curve, colour) in enumerate(zip(curves, itertools.cycle(SHADES), strict=False)):
        label = f"α = {curve['alpha']:g}"
        titles = [
            f"{label}, γ = {lr:g}, γκ = {lr * curve['kappa']:.3g}: {reached:.2f} %"
            for lr, reached in curve["points"]
        ]
        for axes, scale in zip(both, (1.0, curve["kappa"]), strict=True):
            (line,) = axes.plot(
                [lr * scale for lr, _ in curve["points"]],
                [reached for _, reached in curve["points"]],
                markersize=4,
                color=colour,
                label=label,
                **_marker(number),
            )
            _tell(line, label, titles)
            axes.set_xscale("log")
            axes.minorticks_off()
    both[0].set_xlabel("learning rate γ")
    both[1].set_xlabel("effective learning rate γ·κ")
    for axes in both if stacked else both[:1]:
        axes.set_ylabel("test accuracy, %")
    if said:
        both[1].legend(fontsize=7, frameon=False)
        figure.suptitle(textwrap.fill(said, 130), fontsize=7.5)
    return figure


def progress(
    runs: Sequence[tuple[str, str, Sequence[dict[str, Any]]]], size: tuple[float, float] = PAPER
) -> Figure:
    """Draw test accuracy over the steps of runs, each with its name, method and metrics."""
    figure, (axes,) = _panels(1, 1, size)
    for number, (name, method, metrics) in enumerate(runs):
        measured = [(m["step"], 100 * m["test_accuracy"]) for m in metrics if "test_accuracy" in m]
        x, y = [step for step, _ in measured], [reached for _, reached in measured]
        colour = COLOURS[colour_number(method)]
        (line,) = axes.plot(x, y, color=colour, label=name, markersize=4, **_marker(number))
        _tell(line, name, [f"{name}, step {step}: {at:.2f} %" for step, at in measured], method)
    axes.set_xlabel("step")
    axes.set_ylabel("test accuracy, %")
    return figure


def asymptotics(size: tuple[float, float] = (8.4, 3.4)) -> Figure:
    """Draw κ and the variance of the loss in α, at r = cα and at r calibrated."""
    rows: list[Any] = list(computed.asymptotics().rows)
    figure, both = _panels(*((2, 1) if size[1] > size[0] else (1, 2)), size)
    for axes, what, shown in zip(
        both, ("kappa", "variance"), ("κ", "variance of the loss"), strict=True
    ):
        for name, label, style, colour in (
            ("linear", "r = cα", "--", INK),
            ("calibrated", "r = r*", "-", ACCENT),
        ):
            values = [row[f"{name}_{what}"] for row in rows]
            alphas = [row["alpha"] for row in rows]
            (line,) = axes.plot(
                alphas, values, style, marker="o", markersize=3, color=colour, label=label
            )
            pairs = zip(alphas, values, strict=True)
            _tell(line, label, [f"{label}, α = {a:.3g}: {value:.3g}" for a, value in pairs])
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.set_xlabel("α")
        axes.set_ylabel(shown)
        if size[0] < WIDE[0] and size[1] < size[0]:
            axes.legend(frameon=False)
    return figure


def _save(figure: Figure, stem: Path, endings: Sequence[str]) -> list[Path]:
    from matplotlib import rc_context

    for artist in figure.findobj():
        artist.set_gid(None)  # which speaks to the page alone
    paths = [stem.with_name(f"{stem.name}.{ending}") for ending in endings]
    with rc_context(LOOK):
        for path in paths:
            # No date inside: a figure changes when the results do.
            when = "CreationDate" if path.suffix == ".pdf" else "Date"
            files.write_picture(figure, path, metadata={when: None})
    return paths
