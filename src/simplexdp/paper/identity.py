"""What a run is called, and what a cell of a table asks for."""

from __future__ import annotations

import dataclasses
import json
import math

from simplexdp import methods
from simplexdp.data.catalog import may_be_unverified
from simplexdp.settings import DEFAULTS, NOT_PART_OF_A_RUN, Settings

# Where the files lie, and whether a copy of them is good enough, says nothing about the recipe;
# what the files were is said by the record's provenance.
ABOUT_FILES = ("data_dir", "allow_unverified")


def canonical(settings: Settings) -> Settings:
    """Return the settings under which a run is filed: what changes nothing is at its default.

    Training without privacy has no budget, so its ε is infinite whatever was asked for. Leave to
    take unverified files is of no effect for data sets that have none.
    """
    plain = settings.method == "plain"
    idle = {"data_dir"} if may_be_unverified(settings.data) else set(ABOUT_FILES)
    return dataclasses.replace(
        settings,
        epsilon=math.inf if plain else float(settings.epsilon),
        delta=DEFAULTS.delta if plain else settings.delta,
        alpha=float(settings.alpha),
        data_options={k: v for k, v in settings.data_options.items() if k not in idle},
    )


def key(settings: Settings, revision: int | None = None) -> str:
    """Return the name of exactly this run, under its method's revision unless one is given."""
    if revision is None:
        revision = methods.lookup(settings.method).revision
    return canonical(settings).key(revision)


def other_revision(method: str, revision: object) -> str | None:
    """Say that another revision of a method made something, or return None.

    Only built-in methods are asked: nothing is imported because a file names it.
    """
    if method not in methods.names() or revision == methods.lookup(method).revision:
        return None
    made_by = "without a revision" if revision is None else f"of revision {revision}"
    return f"{made_by} of {method}, left out; this is {methods.lookup(method).revision}"


def cell(settings: Settings) -> str:
    """Return what a cell asks for: the run without its seed and without the files' place."""
    record = canonical(settings).to_json()
    record["data_options"] = {
        name: value for name, value in settings.data_options.items() if name not in ABOUT_FILES
    }
    left_out = (*NOT_PART_OF_A_RUN, "seed")
    return json.dumps({k: v for k, v in record.items() if k not in left_out}, sort_keys=True)
