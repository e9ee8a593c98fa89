"""The schedules of attacked trainings: small ones, each calibrated to the whole budget.

The claim is (ε, δ) for the schedule that is trained, so a short training at ε = 1 puts it to the
test as well as a long one, and can be repeated hundreds of times.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from simplexdp import __version__, methods, runs
from simplexdp.audit.claims import PAIR, Claim
from simplexdp.audit.shadow import Shadow
from simplexdp.settings import Settings

CANARY_RECORDS = 100

# One training or a few of them: long enough that every record is seen about six times.
SMALL_RECORDS = 400
SMALL_STEPS = 200
SMALL_BATCH = 12


def canary(settings: Settings, records: int, relation: str = PAIR) -> Settings:
    """Return the same method and budget in few steps; softmax regression unless one is given."""
    facts = methods.lookup(settings.method).audited
    options = facts.pairs if relation == PAIR else facts.in_out
    return _adapted(settings, round(facts.rate * records), facts.steps, "logistic", options)


def transcript(settings: Settings, records: int) -> Settings:
    """Return the same method and budget in few steps, with every release that it can make."""
    facts = methods.lookup(settings.method).audited
    return _adapted(settings, round(facts.rate * records), facts.steps, "logistic", facts.heard)


def one_run(settings: Settings, relation: str = PAIR) -> Settings:
    """Return the same method and budget on `SMALL_RECORDS` records, as softmax regression."""
    facts = methods.lookup(settings.method).audited
    options = facts.pairs if relation == PAIR else facts.in_out
    return _adapted(settings, SMALL_BATCH, SMALL_STEPS, "logistic", options)


def membership(settings: Settings) -> Settings:
    """Return the same method and budget on `SMALL_RECORDS` records, as a small network."""
    visible = methods.lookup(settings.method).audited.visible
    return _adapted(settings, SMALL_BATCH, SMALL_STEPS, "mlp", visible)


def is_open(settings: Settings) -> bool:
    """Return whether the schedule is left to rules, and so to the audit."""
    return settings.batch_size is None and settings.steps is None and settings.epochs is None


def trains_network(settings: Settings) -> bool:
    """Return whether the method trains a network here, and no model on fixed features."""
    return methods.lookup(settings.method).trains_network(settings)


def _adapted(
    settings: Settings, batch_size: int, steps: int, model: str, options: Mapping[str, Any]
) -> Settings:
    if not trains_network(settings):
        chosen = {**options, **settings.options}
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


def told(result: Shadow, claim: Claim, records: int) -> dict[str, Any]:
    """Return what every attack tells of the claim, and of what was trained."""
    chosen = {k: result.chosen.get(k) for k in ("r", "noise_multiplier", "clip", "lr", "warmup")}
    schedule = {
        "records": records,
        "steps": result.statement.steps,
        "sampling": result.statement.sampling,
        **{k: v for k, v in chosen.items() if v is not None},
    }
    covers = {"covers_weights": result.statement.covers_weights}
    return {**covers, "claim": asdict(claim), "schedule": schedule}


def made_by(*names: str) -> dict[str, Any]:
    """Return the package, the methods' revisions and the machine that an audit is of."""
    revisions = {name: methods.lookup(name).revision for name in names}
    return {"version": __version__, "revisions": revisions, "machine": runs.machine()}
