"""The reconstruction attack: in a linear first layer an input is a ratio of two changes.

For one record the gradient of the first weights is δ·xᵀ and that of the bias is δ, so in every
row of the layer ΔW/Δb = x: the noise of Algorithm 1 changes δ and nothing else.  In a batch a row
gives Σ_k δ_k·x_k / Σ_k δ_k, which is one input wherever only one record has δ_k ≠ 0; behind ReLU
many hidden units are active for a single record of the batch.  Two rows that give the same input
are the sign of that, which the attacker sees without knowing any input.

The same ratio is taken for the methods that add noise to what they release.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from simplexdp import data, files, methods, sampling
from simplexdp.audit import crafting, schedules, shadow
from simplexdp.settings import Settings

Array = npt.NDArray[np.float64]

# Two rows show one and the same record if they agree this closely; inputs lie in [-1, 1].
AGREEMENT = 1e-2
RECOVERED = 0.05
LIMIT = 1.5
BATCH = 8


@dataclass(frozen=True)
class Attack:
    """The true inputs of a batch, and for each the nearest of the attacker's candidates."""

    method: str
    originals: Array  # (records, features), in the scale of the model's input
    recovered: Array
    errors: Array  # root mean square over features
    candidates: int

    @property
    def exact(self) -> int:
        """Return how many records were recovered to within `RECOVERED`, root mean square."""
        return int((self.errors < RECOVERED).sum())


def ratios(change_weight: Array, change_bias: Array) -> Array:
    """Return ΔW/Δb row by row, for the rows that moved, those that moved most first."""
    order = np.argsort(-np.abs(change_bias))
    order = order[np.abs(change_bias[order]) > 0]
    return np.asarray(change_weight[order] / change_bias[order, None])


def candidates(rows: Array, batch: bool) -> Array:
    """Return what the attacker believes to be inputs.

    From one record: the row that moved most.  From a batch: every row that agrees with another
    one, once each; where there is none, the rows that look most like an input.
    """
    if len(rows) == 0:
        return rows
    if not batch:
        return rows[:1]
    sane = rows[np.abs(rows).max(axis=1) <= LIMIT]
    found: list[Array] = []
    for k, row in enumerate(sane):
        near = _distance(sane, row) < AGREEMENT
        near[k] = False
        new = all(float(_distance(other[None], row)[0]) >= 2 * AGREEMENT for other in found)
        if near.any() and new:
            found.append(row)
    return np.array(found) if found else rows[:20]


def stretched(rows: Array) -> Array:
    """Return rows scaled to fill the range of an input, with either sign."""
    size = np.abs(rows).max(axis=1, keepdims=True)
    scaled = rows / np.maximum(size, 1e-30)
    return np.concatenate([scaled, -scaled])


def attack(
    settings: Settings, dataset: data.Dataset, records: int, rng: np.random.Generator
) -> Attack:
    """Train one step of the method on so many records and read its update.

    Algorithm 1, plain training and DP-SGD make one step on a batch of `records`; `certified` has
    full batches, so its data set is the batch.
    """
    small, members, seed, single = _one_batch(settings, dataset, records, rng)
    result = shadow.train(single, small, seed)
    before, after = shadow.first_layer(result.initial), shadow.first_layer(result.final)
    if not isinstance(before, nn.Linear):
        raise ValueError(
            "the reconstruction needs a linear first layer; give --model mlp or logistic"
        )
    weight = _change(before.weight, after.weight)
    if not schedules.trains_network(settings):
        # The bias is no sum over records, so the rows of the weights are what there is.
        found = stretched(weight)
    else:
        bias = _change(before.bias, after.bias)
        found = candidates(ratios(weight, bias), records > 1)
    originals = small.train.inputs[members].reshape(len(members), -1)
    return _compare(settings.method, originals.astype(np.float64), found)


def _one_batch(
    settings: Settings, dataset: data.Dataset, records: int, rng: np.random.Generator
) -> tuple[data.Dataset, npt.NDArray[np.int64], int, Settings]:
    """Return a small data set, and a seed by which its first Poisson batch has these members."""
    size = max(8, 4 * records)
    small = crafting.subset(dataset, size, rng)
    single = dataclasses.replace(settings, batch_size=records, steps=1, epochs=None, augment=())
    method = methods.lookup(settings.method)
    if not method.trains_network(settings):
        kept = data.Split(small.train.inputs[:records], small.train.labels[:records])
        small = dataclasses.replace(small, train=kept)
        single = dataclasses.replace(
            single,
            batch_size=None,
            steps=1 if "steps" in method.takes(settings) else None,
            options={**method.audited.visible, **settings.options},
        )
        return small, np.arange(records), int(rng.integers(2**62)), single
    while True:
        seed = int(rng.integers(2**62))
        members = sampling.batch_of_step(size, records / size, seed, 0)
        if len(members) == records:
            return small, members, seed, single


def summary(found: Attack) -> dict[str, Any]:
    """Return what the attack achieved, without any input in it."""
    return {
        "epsilon_lower": None,
        "trials": len(found.originals),
        "recovered": found.exact,
        "candidates": found.candidates,
        "root_mean_square_error": [round(float(e), 6) for e in found.errors],
    }


def draw(attacks: Sequence[Attack], shape: tuple[int, ...], path: Path, most: int = 8) -> None:
    """Draw originals in the first row; below, what each method's update gave away."""
    columns = min(most, *(len(found.originals) for found in attacks))
    rows = 2 * len(attacks)
    figure = files.figure(figsize=(1.0 * columns + 1.4, 0.95 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for k, found in enumerate(attacks):
        title = methods.lookup(found.method).title
        for row, inputs, name in (
            (2 * k, found.originals, "original"),
            (2 * k + 1, found.recovered, f"from {title}"),
        ):
            for column in range(columns):
                axes = grid[row][column]
                axes.imshow(_picture(inputs[column], shape), cmap="gray", vmin=0.0, vmax=1.0)
                axes.set(xticks=[], yticks=[])
            grid[row][0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
    files.write_picture(figure, path, dpi=110, metadata={"Software": None})


def pictures(asked: Settings, out: Path, seed: int = 0) -> dict[str, Any]:
    """Attack one update of each method on a batch of one and on one of eight, and draw both.

    Of what is asked for, only the data and the budget are used. The counts are written beside the
    pictures. The pictures show training images: draw them of public data.
    """
    files.check_drawing()
    began = time.monotonic()
    dataset = data.load(asked.data, **asked.data_options)
    out.mkdir(parents=True, exist_ok=True)
    stem = Path(asked.data).stem
    found: list[dict[str, Any]] = []
    written = []
    for records, kind in ((1, "one"), (BATCH, "batch")):
        attacks = []
        for method in methods.names():
            settings = dataclasses.replace(asked, method=method, model=None)
            if "steps" not in methods.lookup(method).takes(settings):
                continue  # there is no update to read
            if schedules.trains_network(settings):
                settings = dataclasses.replace(settings, model="mlp")
            rng = sampling.stream(seed, "audit-pictures", records)
            attacks.append(attack(settings, dataset, records, rng))
            found.append({"method": method, **summary(attacks[-1])})
        path = out / f"{stem}-{kind}.png"
        draw(attacks, dataset.input_shape, path)
        written.append(path.name)
    record = {
        "attack": "reconstruct",
        "data": asked.data,
        "epsilon": asked.epsilon,
        "delta": asked.delta,
        "seed": seed,
        "results": found,
        "pictures": written,
        "seconds": round(time.monotonic() - began, 1),
        **schedules.made_by(*methods.names()),
    }
    files.write_json(out / f"{stem}-reconstruct.json", record)
    return record


def _picture(row: Array, shape: tuple[int, ...]) -> Array:
    channels, height, width = shape if len(shape) == 3 else (1, 1, int(np.prod(shape)))
    image = np.clip((row.reshape(channels, height, width) + 1.0) / 2.0, 0.0, 1.0)
    return np.asarray(image[0] if channels == 1 else image.transpose(1, 2, 0))


def _compare(method: str, originals: Array, found: Array) -> Attack:
    width = originals.shape[1]
    if len(found) == 0 or found.shape[1] != width:
        recovered = np.zeros_like(originals)
    else:
        nearest = [int(np.argmin(_distance(found, x))) for x in originals]
        recovered = found[nearest]
    errors = np.sqrt(((recovered - originals) ** 2).mean(axis=1))
    return Attack(method, originals, recovered, errors, len(found))


def _distance(rows: Array, row: Array) -> Array:
    return np.asarray(np.sqrt(((rows - row) ** 2).mean(axis=1)))


def _change(before: Any, after: Any) -> Array:
    return np.asarray((after - before).detach().double().numpy())
