"""DP-SGD: clipped per-example gradients and Gaussian noise, after Abadi et al. (2016).

Opacus gives the per-example gradients and the PRV accountant. The batches are our Poisson batches,
the steps are those of the settings, and an empty batch is a step of noise alone.

Formal guarantee
    Statement: the weights of every step are (ε, δ)-differentially private under zero-out, that is
    add/remove at a fixed sampling rate and divisor: the number of records n is public and sets the
    rate q and the divisor n·q, so both stay when a record comes or goes. ε is from the PRV
    accountant (Gopi et al., 2021) for exactly these steps, this rate and this noise.
    Why it holds: a record's gradient, averaged over its augmented copies, is clipped to norm
    ``clip``; noise of standard deviation σ·clip is added to the sum; the sum is divided by the
    public n·q and never by the size of the batch; batch normalisation, whatever else is seen to
    mix records or to keep statistics of them, and a network whose gradients by Opacus' hooks are
    seen not to be those of single records, are refused.
    Assumptions: the noise is floating-point Gaussian (numpy's, from a secret seed), which is not
    protected against attacks on its lowest bits as that of ``certified`` is. The accountant is in
    floating point too, and is refused where its rounding may reach a tenth of δ.
"""

from __future__ import annotations

import copy
import math
import warnings
from dataclasses import replace
from typing import Any

from opacus.validators import ModuleValidator
from torch import Tensor, nn

from simplexdp import data, distributed, ledger, models, sampling, training
from simplexdp.accounting.inputs import check_epsilon
from simplexdp.methods.dpsgd_probe import with_gradients_by_record
from simplexdp.methods.dpsgd_step import (
    StepParameters,
    average_into,
    check_precision,
    clipped_sum,
    set_noisy_gradient,
    trainable,
)
from simplexdp.methods.outcome import (
    BESIDE_THE_WEIGHTS,
    Outcome,
    by_epochs,
    has_pixels,
    model_for,
    number_of,
    refuse_options,
    reserve,
    seed_of,
)
from simplexdp.methods.prv import calibrate, epsilon_of, numerical_error
from simplexdp.runs import RunFolder
from simplexdp.schedule import ADAPTIVE_LEARNING_RATE
from simplexdp.settings import ADAPTIVE, Settings
from simplexdp.statement import Assumption, Statement, common_assumptions, large_delta

DEFAULTS: dict[str, Any] = {
    "clip": 1.0,
    "noise_multiplier": None,  # calibrated to the budget
    "rescale_to_unit_norm": False,
    "augmentation_multiplicity": 1,
    "weight_average": 0.0,
    "microbatch": None,  # by the model's size
    "replace_batch_norm": False,
}
NUMBERS = {  # and whether they are whole
    "clip": False,
    "noise_multiplier": False,
    "augmentation_multiplicity": True,
    "weight_average": False,
    "microbatch": True,
}
LARGEST_NOISE = 1e6  # beyond it nothing is learnt, and the accountant overflows
# Per-example gradients of this many numbers at once: half a gigabyte on a device; on a processor
# 16 megabytes, which the allocator reuses from one microbatch to the next.
GRADIENT_NUMBERS, GRADIENT_NUMBERS_CPU = 2**27, 2**22
FEWEST_AT_ONCE = 8
FIXED = "the rate and the divisor n·q stay as they are when a record comes or goes"
FLOATING_POINT = (
    "Clipped sums and noise are floating point, whose rounding is not accounted for, and the noise "
    "comes from a statistical generator (Philox) and not a cryptographic one."
)
OWN_NETWORK = "if this network treats each record by itself, which a probe cannot prove"
LEARNING_RATE = 0.5


def schedule(settings: Settings, records: int) -> tuple[int, int]:
    """Batch size and steps, by rule where not given."""
    return by_epochs(settings, records, min(1024, records // 10))


def train(
    settings: Settings, dataset: data.Dataset, run: RunFolder | None, show_progress: bool = False
) -> Outcome:
    """Train with DP-SGD; the noise is calibrated to the budget for exactly these steps."""
    check_precision()
    options = checked_options(settings)
    records = len(dataset.train.labels)
    batch_size, steps = schedule(settings, records)
    sample_rate = batch_size / records
    # Augmentation happens in the step, once for each copy, and not in the loop.
    loop_settings = replace(settings, augment=())
    seed = distributed.agree(seed_of(loop_settings, run))
    name, model = model_for(settings, dataset, seed, channels_last=False)
    model = without_batch_norm(model, bool(options["replace_batch_norm"]))
    check_separate(model, dataset.input_shape)
    noise_multiplier, epsilon = noise_for(settings, options, sample_rate, steps)
    pixels = has_pixels(dataset)
    chosen = step_parameters(settings, options, noise_multiplier, batch_size, model, pixels)
    lr = settings.lr or default_rate(settings.optimizer, options)
    averaged = copy.deepcopy(model) if options["weight_average"] else None
    hooked = with_gradients_by_record(model, dataset.input_shape, dataset.classes)
    optimizer = training.make_optimizer(settings.optimizer, model, lr)

    def update(inputs: Tensor, labels: Tensor, step: int) -> float | None:
        draws = sampling.stream(distributed.own_seed(seed), "copies", step)
        totals = clipped_sum(model, inputs, labels, chosen, draws)
        set_noisy_gradient(model, totals, chosen, sampling.stream(seed, "dpsgd-noise", step))
        optimizer.step()
        if averaged is not None:
            average_into(averaged, model, float(options["weight_average"]), step)
        return None  # the exact loss of a batch is not covered by the guarantee

    event = ledger.sampled_gaussian(noise_multiplier, sample_rate, steps)
    try:
        with warnings.catch_warnings():
            # The first layer's inputs need no gradient; torch remarks on that once a layer.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            trained = training.train(
                training.Job(
                    model=model,
                    update=update,
                    dataset=dataset,
                    sample_rate=sample_rate,
                    steps=steps,
                    seed=seed,
                    settings=loop_settings,
                    optimizer=optimizer,
                    epsilon_spent=lambda step: epsilon if step == steps else None,
                    reserve=lambda: reserve(
                        settings, run, event, ledger.WEIGHTS, dataset.computed_from_data
                    ),
                    channels_last=False,
                    evaluated=averaged,
                ),
                run,
                show_progress,
            )
    finally:
        hooked.remove_hooks()
    return Outcome.of(
        trained,
        model if averaged is None else averaged,
        name,
        statement(settings, dataset, chosen, steps, epsilon),
        {
            "batch_size": batch_size,
            "sample_rate": sample_rate,
            "lr": lr,
            "clip": chosen.clip,
            "noise_multiplier": noise_multiplier,
            "microbatch": chosen.microbatch,
        },
    )


def checked_options(settings: Settings) -> dict[str, Any]:
    """The method's own options with their defaults, refused where they make no sense."""
    refuse_options(settings, tuple(DEFAULTS))
    options: dict[str, Any] = {**DEFAULTS, **settings.options}
    for name in ("rescale_to_unit_norm", "replace_batch_norm"):
        if not isinstance(options[name], bool):
            raise ValueError(f"the option {name} is {options[name]!r}; give true or false")
    for name, whole in NUMBERS.items():
        if options[name] is not None or DEFAULTS[name] is not None:
            number_of(options, name, 0.0, whole)
    given = options["noise_multiplier"]
    if given is not None and not 0 < given <= LARGEST_NOISE:
        raise ValueError(
            f"the noise multiplier is {given}; it must be positive, and at most {LARGEST_NOISE:g}"
        )
    if not 0 < options["clip"] < math.inf:
        raise ValueError(f"the clip is {options['clip']}; it must be positive")
    if options["augmentation_multiplicity"] < 1:
        raise ValueError("augmentation_multiplicity must be at least 1")
    if options["augmentation_multiplicity"] > 1 and not settings.augment:
        raise ValueError("augmentation_multiplicity needs augmentations; give --augment")
    if not 0 <= options["weight_average"] < 1:
        raise ValueError("weight_average must lie in [0, 1), such as 0.999")
    return options


def without_batch_norm(model: nn.Module, replace_it: bool) -> nn.Module:
    """Refuse batch normalisation, or put group normalisation in its place where asked to."""
    if not models.has_batch_norm(model):
        return model
    if not replace_it:
        raise ValueError(
            "the model has batch normalisation, which mixes the records of a batch; use --norm "
            "group, or the option replace_batch_norm=true"
        )
    fixed: nn.Module = ModuleValidator.fix(model)
    return fixed


def check_separate(model: nn.Module, input_shape: tuple[int, ...]) -> None:
    """Refuse a network of the user's own that is seen to mix records or to keep statistics."""
    if models.couples_records(model, input_shape):
        raise ValueError(
            "in training the model's output for one record depends on the others of its batch, so "
            "clipping cannot bound what one record does; use a network that treats each by itself"
        )
    if models.writes_buffers(model, input_shape):
        raise ValueError(
            "the model keeps statistics of its inputs in its buffers or frozen parameters, which "
            "would be released without noise; switch them off (track_running_stats=False)"
        )


def noise_for(
    settings: Settings, options: dict[str, Any], sample_rate: float, steps: int
) -> tuple[float, float]:
    """The noise multiplier and its ε: calibrated, or as given if that is within the budget."""
    given = options["noise_multiplier"]
    if given is None:
        return calibrate(settings.epsilon, settings.delta, sample_rate, steps)
    check_epsilon(settings.epsilon)
    error = numerical_error(settings.epsilon)
    epsilon = epsilon_of(float(given), sample_rate, steps, settings.delta, error)
    if epsilon > settings.epsilon:
        raise ValueError(
            f"noise_multiplier {given} for {steps} steps costs ε = {epsilon:.4g}, above the "
            f"budget of {settings.epsilon:g}; leave it out to have it calibrated"
        )
    return float(given), epsilon


def step_parameters(
    settings: Settings,
    options: dict[str, Any],
    noise_multiplier: float,
    batch_size: int,
    model: nn.Module,
    pixels: bool,
) -> StepParameters:
    """What every step does; microbatches by the model's size where not given."""
    copies = int(options["augmentation_multiplicity"])
    size = sum(p.numel() for p in trainable(model))
    numbers = GRADIENT_NUMBERS_CPU if settings.device == "cpu" else GRADIENT_NUMBERS
    fitting = max(FEWEST_AT_ONCE, numbers // (size * copies))
    given = options["microbatch"]
    # An expected batch need not be whole, nor as large as one record.
    microbatch = min(fitting, math.ceil(batch_size)) if given is None else int(given)
    if microbatch < 1:
        raise ValueError(f"the microbatch is {microbatch}; at least 1 record is needed")
    return StepParameters(
        clip=float(options["clip"]),
        noise_multiplier=noise_multiplier,
        expected_batch=float(batch_size),
        rescale=bool(options["rescale_to_unit_norm"]),
        copies=copies,
        augmentations=settings.augment,
        microbatch=microbatch,
        pixels=pixels,
    )


def default_rate(optimizer: str, options: dict[str, Any]) -> float:
    """Half a unit of clipped gradient a step, or the customary rate of adaptive methods."""
    if optimizer in ADAPTIVE:
        return ADAPTIVE_LEARNING_RATE
    return LEARNING_RATE / (1.0 if options["rescale_to_unit_norm"] else float(options["clip"]))


def statement(
    settings: Settings,
    dataset: data.Dataset,
    chosen: StepParameters,
    steps: int,
    epsilon: float,
) -> Statement:
    """What may be claimed of the weights."""
    records, own = len(dataset.train.labels), ":" in (settings.model or "")
    return Statement(
        method="dpsgd (Opacus)",
        mechanism={
            "name": "sampled Gaussian",
            "noise_multiplier": chosen.noise_multiplier,
            "clip": chosen.clip,
            "augmentation_multiplicity": chosen.copies,
            "normaliser": f"the public {chosen.expected_batch:g} expected records",
            "noise": "floating-point Gaussian, not protected in its lowest bits",
        },
        epsilon=epsilon,
        delta=settings.delta,
        accountant="PRV (Opacus), upper bound with its numerical error",
        relation="add/remove",  # at a fixed rate and divisor, as the next line says
        sampling=f"Poisson, rate {chosen.expected_batch:g}/{records}; {FIXED}",
        steps=steps,
        covers_draws=False,
        covers_weights=True,
        covers=("the released weights, the weights of every step, and averages of them",),
        does_not_cover=(
            "Replacing an input by another one: by group privacy that is (2ε, (1 + e^ε)·δ).",
            *BESIDE_THE_WEIGHTS,
        ),
        assumptions=(
            Assumption(
                "A record's gradient depends on that record alone (no batch norm).",
                # Of a network of the user's own, a probe only shows no coupling.
                holds=None if own else True,
            ),
            Assumption("It is hidden which records each batch holds.", None),
            Assumption(FLOATING_POINT, None),
            *common_assumptions(settings.seed is not None, dataset.computed_from_data),
        ),
        notes=(*dataset.provenance, *large_delta(settings.delta, records)),
        proviso=OWN_NETWORK if own else "",
    )
