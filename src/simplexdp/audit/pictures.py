"""Pictures of reconstructions: original above recovered, for each method alike."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

from simplexdp import __version__, data, files, methods, runs, sampling
from simplexdp.audit import reconstruct, schedules
from simplexdp.settings import Settings

BATCH = 8


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
            attacks.append(reconstruct.attack(settings, dataset, records, rng))
            found.append({"method": method, **reconstruct.summary(attacks[-1])})
        path = out / f"{stem}-{kind}.png"
        reconstruct.draw(attacks, dataset.input_shape, path)
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
        "version": __version__,
        "revisions": {name: methods.lookup(name).revision for name in methods.names()},
        "machine": runs.machine(),
    }
    files.write_json(out / f"{stem}-reconstruct.json", record)
    return record
