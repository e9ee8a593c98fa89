"""The speed of each recipe's training step on this machine, and the share of it that is data.

Every recipe's network runs in the project's own loop on real data where it is present, else on
noise of the same shape (the time does not depend on the pixels). The share of data is what the
loop spends outside the update: sampling, gathering, augmenting, scaling, seeding. DP-SGD recipes
are timed with an ordinary step, without per-example gradients, on batches of at most 250.
Beside the clock on the wall stands the processor time of this process, which other load on the
machine disturbs far less; the shares are shares of it. The best of the repeats is reported.

    python benchmarks/throughput.py --threads 1 --out results/throughput.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from simplexdp import Plan, data, models, training
from simplexdp.paper import recipes
from simplexdp.settings import Settings

SHAPES = {
    "mnist": (1, 28, 28),
    "fashion-mnist": (1, 28, 28),
    "dermamnist": (3, 28, 28),
    "cifar10": (3, 32, 32),
    "svhn": (3, 32, 32),
}
CLASSES = {"dermamnist": 7}
LARGEST_BATCH = 250
# The activations of 250 images would take gigabytes in the deep networks that train in batches
# of thousands.
DEEP, DEEP_BATCH = ("wrn-16-4", "wrn-40-4"), 32
MOST_STEPS = 40


def train_split(name: str, records: int) -> tuple[data.Split, str]:
    """The training images, or noise of their shape; and which of the two."""
    if data.present(name):
        return data.load(name).train, "real"
    rng = np.random.default_rng(0)
    shape, classes = SHAPES[name], CLASSES.get(name, 10)
    inputs = rng.integers(0, 256, (records, *shape), dtype=np.uint8)
    return data.Split(inputs, rng.integers(0, classes, records)), "noise"


def dataset_of(name: str, split: data.Split) -> data.Dataset:
    """The split with a single test record, so that the loop's evaluation costs nothing."""
    test = data.Split(split.inputs[:1], split.labels[:1])
    labels = tuple(str(k) for k in range(CLASSES.get(name, 10)))
    return data.Dataset(name, split, test, None, labels)


class Stopwatch:
    """Counts the images and the processor seconds of an update."""

    def __init__(self, update: Callable[[Tensor, Tensor], None]) -> None:
        self.update, self.images, self.seconds = update, 0, 0.0

    def __call__(self, inputs: Tensor, labels: Tensor, step: int) -> float | None:
        began = time.process_time()
        if len(labels):
            self.update(inputs, labels)
        self.seconds += time.process_time() - began
        self.images += len(labels)
        return None


def make_update(
    recipe: recipes.Recipe, model: nn.Module, batch: int
) -> tuple[Callable[[Tensor, Tensor], None], torch.optim.Optimizer]:
    optimizer = torch.optim.SGD(model.parameters(), lr=recipe.lr)
    if recipe.method != "dirichlet":

        def plain(inputs: Tensor, labels: Tensor) -> None:
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()

        return plain, optimizer
    plan = Plan(1.0, recipe.delta, recipe.records, batch_size=batch, steps=recipe.steps)
    criterion = plan.loss()

    def private(inputs: Tensor, labels: Tensor) -> None:
        plan.begin_step(len(labels))
        optimizer.zero_grad(set_to_none=True)
        criterion(model(inputs), labels).backward()
        optimizer.step()

    return private, optimizer


@dataclass(frozen=True)
class Timing:
    """Some steps of the loop: wall and processor seconds, those inside the updates, images."""

    wall: float
    processor: float
    inside: float
    images: int

    @property
    def per_second(self) -> float:
        return round(self.images / self.wall, 1)

    @property
    def per_processor_second(self) -> float:
        return round(self.images / self.processor, 1)

    @property
    def data_share(self) -> float:
        return round(1 - self.inside / self.processor, 5)


def run_once(
    recipe: recipes.Recipe, dataset: data.Dataset, model: nn.Module, batch: int, steps: int
) -> Timing:
    settings = Settings(data=recipe.data, augment=recipe.augment, evaluations=1, seed=0)
    update, optimizer = make_update(recipe, model, batch)
    watch = Stopwatch(update)
    job = training.Job(
        model=model,
        update=watch,
        dataset=dataset,
        sample_rate=batch / len(dataset.train),
        steps=steps,
        seed=0,
        settings=settings,
        optimizer=optimizer,
    )
    began = time.process_time()
    wall = training.train(job, None).seconds
    return Timing(wall, time.process_time() - began, watch.seconds, watch.images)


def measure(recipe: recipes.Recipe, seconds: float, repeats: int) -> dict[str, Any]:
    split, kind = train_split(recipe.data, recipe.records)
    dataset = dataset_of(recipe.data, split)
    batch = min(recipe.batch_size, DEEP_BATCH if recipe.model in DEEP else LARGEST_BATCH)
    torch.manual_seed(0)
    model = models.build(recipe.model, dataset.input_shape, dataset.classes, recipe.norm)
    model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    first = run_once(recipe, dataset, model, batch, 1)
    steps = max(1, min(MOST_STEPS, round(seconds / first.processor)))
    runs = [run_once(recipe, dataset, model, batch, steps) for _ in range(repeats)]
    best = max(runs, key=lambda run: run.per_processor_second)
    return {
        "recipe": recipe.name,
        "data": recipe.data,
        "images": kind,
        "model": recipe.model,
        "norm": recipe.norm,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "batch_size": batch,
        "steps_timed": steps,
        "load_average": round(os.getloadavg()[0], 2),
        "nice": os.nice(0),
        "step": "Dirichlet loss" if recipe.method == "dirichlet" else "cross entropy",
        "images_per_second": max(run.per_second for run in runs),
        "images_per_processor_second": best.per_processor_second,
        "data_share": best.data_share,
        "repeats": [
            {
                "images_per_second": run.per_second,
                "images_per_processor_second": run.per_processor_second,
                "data_share": run.data_share,
            }
            for run in runs
        ],
        "processor_hours_for_the_recipe": (
            None
            if recipe.steps is None
            else round(recipe.steps * recipe.batch_size / best.per_processor_second / 3600, 2)
        ),
    }


def distinct(names: tuple[str, ...]) -> list[recipes.Recipe]:
    """One recipe for each network, normalisation, data set and kind of step."""
    chosen: dict[tuple[object, ...], recipes.Recipe] = {}
    for name in names:
        found = recipes.recipe(name)
        if "features" not in found.options:
            key = (found.data, found.model, found.norm, found.method, found.augment)
            chosen.setdefault(key, found)
    return list(chosen.values())


def machine(threads: int) -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": model[0] if model else platform.processor(),
        "cores": os.cpu_count(),
        "threads": threads,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


def kept(path: Path, here: dict[str, Any], measured_now: set[str]) -> list[dict[str, Any]]:
    """The rows of earlier measurements on this machine and these versions."""
    if not path.exists():
        return []
    earlier = json.loads(path.read_text())
    if earlier["machine"] != here:
        return []
    return [row for row in earlier["recipes"] if row["recipe"] not in measured_now]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of one repeat")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--recipes", nargs="*", default=list(recipes.names()))
    parser.add_argument("--out", type=Path, default=Path("results/throughput.json"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    here, chosen = machine(options.threads), distinct(tuple(options.recipes))
    rows = kept(options.out, here, {recipe.name for recipe in chosen})
    for recipe in chosen:
        row = measure(recipe, options.seconds, options.repeats)
        rows.append(row)
        print(
            f"{row['recipe']:32} {row['model']:20} {row['images_per_second']:8.1f} images/s, "
            f"{row['images_per_processor_second']:8.1f} per processor second, "
            f"data {100 * row['data_share']:.2f} %",
            flush=True,
        )
        options.out.parent.mkdir(parents=True, exist_ok=True)
        record = {"machine": here, "recipes": rows}
        options.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
