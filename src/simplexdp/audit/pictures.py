"""What does a reconstruction look like?  Original above recovered, for each method alike."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from .. import data, sampling
from ..settings import Settings
from . import reconstruct, schedules

METHODS = ("dirichlet", "dpsgd", "certified")
BATCH = 8


def pictures(
    name: str, out: Path, epsilon: float = 1.0, delta: float = 1e-5, seed: int = 0
) -> dict[str, Any]:
    """Attack one update of each method on a batch of one and on one of eight, and draw both.

    The pictures show training images: draw them of public data.
    """
    began = time.monotonic()
    dataset = data.load(name)
    out.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    written = []
    for records, kind in ((1, "one"), (BATCH, "batch")):
        attacks = []
        for method in METHODS:
            model = None if method in schedules.ON_FEATURES else "mlp"
            settings = Settings(data=name, method=method, model=model, epsilon=epsilon, delta=delta)
            rng = sampling.stream(seed, "audit-pictures", records)
            attacks.append(reconstruct.attack(settings, dataset, records, rng))
            found.append({"method": method, **reconstruct.summary(attacks[-1])})
        path = out / f"{Path(name).stem}-{kind}.png"
        reconstruct.draw(attacks, dataset.input_shape, path)
        written.append(str(path))
    return {
        "attack": "reconstruct",
        "data": name,
        "results": found,
        "pictures": written,
        "seconds": round(time.monotonic() - began, 1),
    }
