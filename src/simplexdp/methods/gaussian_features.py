"""Features with Gaussian noise, after the idea of Monir and Ghinita (2024).

Two forms. ``fixed`` (the default): features are a fixed map of each record, clipped, and noise is
added to them once; whatever is trained above the noise sees nothing else of the inputs. ``trained``:
a network is cut at its last layer, its features are clipped and noised in every step, and what is
below the noise is trained by back-propagation too. Of the published method only the idea is known
here; this is not a reproduction of it.

Formal guarantee
    fixed: each record's noised features are a Gaussian release of sensitivity 2·clip under
    replace-input (clip under zero-out) with noise σ·clip; all that follows is post-processing, so
    the weights are (ε, δ)-private, exactly (Balle and Wang, 2018). The head may train as long as it
    likes.
    trained: no guarantee for the weights. Gradients below the noise are products of a noised factor
    and of raw inputs, as in Algorithm 1. The figure covers the noised features alone, if no gradient
    ran below them.
    Assumption of both: labels are public.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from .. import data, distributed, features, ledger, noise, progress, sampling, training
from ..accounting.gaussian import calibrate_mu, gaussian_epsilon
from ..runs import RunFolder
from ..settings import Settings
from ..statement import WEIGHTS_NOT_COVERED, Assumption, Statement, common_assumptions
from .certified import BUILT_IN, FeatureLinear, build_model, noise_bits
from .exact_sums import ROW_UNIT, quantize
from .outcome import Outcome, refuse_options, reserve, seed_of, steps_of
from .trained_features import train_below

OPTIONS = ("form", "features", "relation", "dimensions", "penalty", "clip")
FORMS = ("fixed", "trained")
# A public random projection: noise is added to every coordinate, so few of them are kept.
DIMENSIONS = 128
PROJECTION_SEED = 20240801
SENSITIVITY = {"zero-out": 1.0, "replace-input": 2.0}


def train(
    settings: Settings, dataset: data.Dataset, run: RunFolder | None, show_progress: bool = False
) -> Outcome:
    """Train in the form that the options name."""
    refuse_options(settings, OPTIONS)
    form = str(settings.options.get("form", "fixed"))
    if form not in FORMS:
        raise ValueError(f"unknown form {form!r} of gaussian-features; use {' or '.join(FORMS)}")
    if form == "trained":
        return train_below(settings, dataset, run, show_progress)
    return _train_fixed(settings, dataset, run)
