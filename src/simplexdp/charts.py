"""A chart of ε over r, α, q and T.

No accountant depends on the number of classes, by design: between two vertices of the simplex the
other coordinates cancel from the likelihood ratio, so the last panel is flat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simplexdp import files
from simplexdp.accounting import ACCOUNTANTS, account

STYLES = {  # which accountants are drawn: color and mark
    "theorem1": ("#1b6ca8", "o"),
    "exact": ("#d1495b", "s"),
    "pld": ("#2e8b57", "^"),
    "visible": ("#7a5195", "D"),
}
NOTE = (
    "These figures bound at most the draws, under each accountant's\nassumptions. "
    "None covers the released weights.\n\n"
    "pld rests on dominance of the vertex pair: a proof by this\nproject, not yet peer reviewed "
    "(docs/dominance.md)."
)


@dataclass(frozen=True)
class Curve:
    """ε by one accountant over one parameter; not a number where it refuses."""

    accountant: str
    parameter: str
    values: tuple[float, ...]
    epsilon: tuple[float, ...]


def _epsilon(name: str, setting: dict[str, Any], delta: float) -> float:
    steps = round(setting["steps"])
    try:
        return account(name, **{**setting, "steps": steps}, delta=delta).epsilon
    except ValueError:
        return math.nan  # outside what the accountant covers: a gap in the curve


def curves(
    *,
    r: float = 0.235,
    alpha: float = 3.0,
    sample_rate: float = 0.005,
    steps: int = 20_000,
    delta: float = 1e-5,
    points: int = 9,
) -> list[Curve]:
    """Compute ε by every accountant, each parameter in turn moved around the setting given."""
    setting: dict[str, Any] = {"r": r, "alpha": alpha, "sample_rate": sample_rate, "steps": steps}
    # Refuses what is no setting at all; what one accountant cannot do is a gap in its curve.
    account("theorem1", **setting, delta=delta)
    spans = {
        "r": (r / 8.0, min(4.0 * r, 0.95 * alpha)),
        "alpha": (max(alpha / 8.0, 1.05 * r), 8.0 * alpha),
        "sample_rate": (sample_rate / 16.0, min(8.0 * sample_rate, 0.5)),
        "steps": (max(1.0, steps / 64.0), 4.0 * steps),
    }
    found = []
    for parameter, (low, high) in spans.items():
        values = tuple(float(value) for value in np.geomspace(low, high, points))
        for name in STYLES:
            costs = tuple(_epsilon(name, setting | {parameter: v}, delta) for v in values)
            found.append(Curve(name, parameter, values, costs))
    classes = (2.0, 10.0, 100.0, 1e3, 1e4, 1e5)
    for name in STYLES:
        flat = _epsilon(name, setting, delta)
        found.append(Curve(name, "classes", classes, (flat,) * len(classes)))
    return found


_LABELS = {
    "r": "r",
    "alpha": "α",
    "sample_rate": "sampling rate q",
    "steps": "steps T",
    "classes": "number of classes (no accountant depends on it)",
}


def plot_accountants(path: Path, found: list[Curve], note: str) -> None:
    """Write the chart to `path`; its suffix (png, svg, pdf) gives the format."""
    files.check_picture(path)
    figure = files.figure(figsize=(13.0, 7.6), layout="constrained")
    axes = figure.subplots(2, 3).flatten()
    for panel, parameter in zip(axes, _LABELS, strict=False):
        for curve in (c for c in found if c.parameter == parameter):
            color, mark = STYLES[curve.accountant]
            panel.plot(
                curve.values,
                curve.epsilon,
                color=color,
                marker=mark,
                markersize=4,
                label=f"{curve.accountant}: {ACCOUNTANTS[curve.accountant].title}",
            )
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel(_LABELS[parameter])
        panel.set_ylabel("ε of the draws")
        panel.grid(visible=True, which="major", alpha=0.3)
    handles, labels = axes[0].get_legend_handles_labels()
    axes[5].axis("off")
    axes[5].legend(handles, labels, loc="upper left", frameon=False, fontsize=8)
    axes[5].text(
        0.02,
        0.35,
        f"{note}\n\n{NOTE}",
        transform=axes[5].transAxes,
        fontsize=9,
        verticalalignment="top",
    )
    figure.suptitle("What the Dirichlet draws cost, by accountant")
    files.write_picture(figure, path, dpi=130)
