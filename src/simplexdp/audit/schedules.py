"""On which schedule is a method attacked?  Small trainings, each calibrated to the whole budget.

The claim is (ε, δ) for the schedule that is trained, so a short training at ε = 1 puts it to the
test as well as a long one, and can be repeated hundreds of times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from simplexdp import methods
from simplexdp.audit.claims import IN_OUT, PAIR
from simplexdp.audit.shadow import Shadow
from simplexdp.settings import Settings

# Their updates carry no noise: whatever of the input is in a gradient stays in the weights.
NOISELESS = ("plain", "dirichlet")

CANARY_RECORDS = 100
CANARY_STEPS = 10
CANARY_RATE = 0.3
# At a lower rate the PRV accountant, which every training asks, is several times faster.
DPSGD_RATE, DPSGD_STEPS = 0.1, 20

# One training or a few of them: long enough that every record is seen about six times.
SMALL_RECORDS = 400
SMALL_STEPS = 200
SMALL_BATCH = 12


# Pixels as features, so that the attack sees its input.
COLUMNS = {"features": "columns"}
# A random whitening would blur the projection; its share of the budget goes to the steps.
PLAINLY = {"certified": {**COLUMNS, "moment_share": 0.0}}
# Rows are not centred either: then an input of zeros is the null record of zero-out.
UNCENTRED = {"certified": {**PLAINLY["certified"], "mean_share": 0.0}}
FEATURES = {PAIR: PLAINLY, IN_OUT: UNCENTRED}


def canary(settings: Settings, records: int, relation: str = PAIR) -> Settings:
    """The same method and budget in few steps; softmax regression unless a model is asked for."""
    sampled = settings.method == "dpsgd"
    rate = DPSGD_RATE if sampled else CANARY_RATE
    steps = DPSGD_STEPS if sampled else CANARY_STEPS
    return _adapted(settings, round(rate * records), steps, "logistic", FEATURES[relation])


def one_run(settings: Settings, relation: str = PAIR) -> Settings:
    """The same method and budget on `SMALL_RECORDS` records, as softmax regression."""
    return _adapted(settings, SMALL_BATCH, SMALL_STEPS, "logistic", FEATURES[relation])


def membership(settings: Settings) -> Settings:
    """The same method and budget on `SMALL_RECORDS` records, with the multilayer perceptron."""
    return _adapted(settings, SMALL_BATCH, SMALL_STEPS, "mlp", {})


def is_open(settings: Settings) -> bool:
    """Whether the schedule is left to rules, and so to the audit."""
    return settings.batch_size is None and settings.steps is None and settings.epochs is None


def _adapted(
    settings: Settings,
    batch_size: int,
    steps: int,
    model: str,
    options: Mapping[str, Mapping[str, Any]],
) -> Settings:
    if methods.on_features(settings):
        chosen = {**options.get(settings.method, COLUMNS), **settings.options}
        return dataclasses.replace(
            settings, batch_size=None, epochs=None, augment=(), options=chosen
        )
    return dataclasses.replace(
        settings,
        batch_size=batch_size,
        steps=steps,
        epochs=None,
        augment=(),
        model=settings.model or model,
    )


def used(result: Shadow, records: int) -> dict[str, Any]:
    """What was trained, for the record."""
    chosen = {k: result.chosen.get(k) for k in ("r", "noise_multiplier", "clip", "lr", "warmup")}
    return {
        "records": records,
        "steps": result.statement.steps,
        "sampling": result.statement.sampling,
        **{k: v for k, v in chosen.items() if v is not None},
    }
