"""DP-SGD: clipped per-example gradients and Gaussian noise, after Abadi et al. (2016).

Gradients by record, or their norms alone where that is less, come from one backward pass
(``layers``), dp-accounting gives the composition. The batches are our Poisson
batches, the steps are those of the settings, and an empty batch is a step of noise alone.

Formal guarantee
    Statement: the weights of every step are (ε, δ)-differentially private under zero-out, that is
    add/remove at a fixed sampling rate and divisor: the number of records n is public and sets the
    rate q and the divisor n·q, so both stay when a record comes or goes. ε is the larger of both
    directions by privacy loss distribution (accounting/sampled_gaussian.py), for exactly these
    steps, this rate and this noise; a ledger charges the same.
    Why it holds: a record's gradient, averaged over its augmented copies, is clipped to norm
    ``clip``; noise of standard deviation σ·clip is added to the sum; the sum is divided by the
    public n·q and never by the size of the batch; batch normalisation, whatever else is seen to
    mix records or to keep statistics of them, and a network whose gradients are seen not to be
    those of single records, are refused.
    Where records are grouped by person, persons are sampled, each with all records, whose
    gradients are clipped together to ``clip``, and n is the number of persons: the same holds for
    a person that comes or goes.
    Assumptions: the noise is single-precision Gaussian (``normals``, from a secret seed), which is
    not protected against attacks on its lowest bits as that of ``certified`` is. The accountant is
    in floating point too, and refuses where what that may move exceeds a tenth of δ.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

from torch import Tensor, nn

from simplexdp import data, distributed, models, plugins, sampling, training
from simplexdp.accounting import events
from simplexdp.accounting.sampled_gaussian import MOST_NOISE, calibrate, check_budget, cost
from simplexdp.bundle import Description
from simplexdp.claims import (
    BESIDE_THE_WEIGHTS,
    PERSON,
    RECORD,
    WEIGHTS,
    Assumption,
    Coverage,
    common_assumptions,
    large_delta,
)
from simplexdp.methods import _network
from simplexdp.methods.base import Audited, Prepared, Run, Trained, option, positive
from simplexdp.methods.dpsgd.probe import check_by_record, hooked
from simplexdp.methods.dpsgd.step import (
    SUMS,
    StepParameters,
    check_precision,
    clipped_sum,
    set_noisy_gradient,
    tell,
)
from simplexdp.schedule import ADAPTIVE_LEARNING_RATE
from simplexdp.settings import ADAPTIVE, Settings

NUMBERS_AT_ONCE = 2**26  # of activations and gradients by record: a quarter of a gigabyte
FEWEST_AT_ONCE = 8
FIXED = "the rate and the divisor n·q stay as they are when a record comes or goes"
ONE_OF_SEVERAL = (
    "One alone of a person's records that comes or goes while the others stay: that moves a sum by "
    "up to twice the clip."
)
FLOATING_POINT = (
    "Clipped sums and noise are floating point, whose rounding is not accounted for, and the noise "
    "comes from a statistical generator (Philox) and not a cryptographic one."
)
OWN_NETWORK = "if this network treats each record by itself, which a probe cannot prove"
LEARNING_RATE = 0.5


@dataclass(frozen=True)
class DPSGDOptions(_network.NetworkOptions):
    """The options of DP-SGD."""

    clip: float = option(1.0, "The norm to which each record's gradient is clipped.")
    noise_multiplier: float | None = option(None, "The noise; calibrated unless given.")
    rescale_to_unit_norm: bool = option(False, "Divide the update by the clip (De et al., 2022).")
    augmentation_multiplicity: int = option(1, "Augmented copies of each record in a step.")
    microbatch: int | None = option(None, "Records whose gradients are in memory at once.")
    replace_batch_norm: bool = option(False, "Put group normalisation in the place of batch norm.")

    def __post_init__(self) -> None:
        super().__post_init__()
        given = self.noise_multiplier
        if given is not None and not 0 < given <= MOST_NOISE:
            raise ValueError(
                f"the noise multiplier is {given}; it must be positive, and at most {MOST_NOISE:g}"
            )
        positive("clip", self.clip)
        if self.augmentation_multiplicity < 1:
            raise ValueError("augmentation_multiplicity must be at least 1")
        if self.microbatch is not None and self.microbatch < 1:
            raise ValueError(f"the microbatch is {self.microbatch}; at least 1 record is needed")


class DPSGD(_network.NetworkMethod):
    """Train a network on clipped per-record gradients with Gaussian noise."""

    name = "dpsgd"
    title = "DP-SGD"
    persons = True
    bound = "privacy loss distribution"
    revision = 2  # 1: σ by Opacus' PRV accountant, for the removal of a record alone
    Options = DPSGDOptions
    audited = Audited(removes=True, rate=0.1, steps=20)

    def options(self, settings: Settings) -> DPSGDOptions:
        """Return its own options; refuse what it would ignore."""
        options: DPSGDOptions = super().options(settings)
        if options.augmentation_multiplicity > 1 and not settings.augment:
            raise ValueError("augmentation_multiplicity needs augmentations; give --augment")
        return options

    def prepare(self, settings: Settings, dataset: data.Dataset, seed: int) -> Prepared:
        """Settle everything about a training and spend nothing."""
        check_precision()
        options = self.options(settings)
        records = dataset.train.persons  # the units of privacy
        batch_size, steps = _network.by_epochs(settings, records, min(1024, records // 10))
        sample_rate = batch_size / records
        name, model = _network.model_for(settings, dataset, seed, channels_last=False)
        model = without_batch_norm(model, options.replace_batch_norm)
        check_separate(model, dataset.input_shape)
        noise_multiplier, epsilon = noise_for(settings, options, sample_rate, steps)
        by_rule = default_rate(settings.optimizer, options)
        lr = _network.Descent(settings, options, model, steps, by_rule).lr
        held = check_by_record(model, dataset.input_shape, dataset.classes)
        chosen = step_parameters(
            settings, options, noise_multiplier, batch_size, held, dataset.pixels
        )

        def start(run: Run) -> Trained:
            descent = _network.Descent(settings, options, model, steps, by_rule)
            hooks = hooked(model)

            def update(inputs: Tensor, labels: Tensor, step: int) -> float | None:
                draws = sampling.stream(distributed.own_seed(seed), "copies", step)
                groups = dataset.train.groups
                persons = None if groups is None else groups[job.rows(step, run.without)]
                totals = clipped_sum(model, inputs, labels, chosen, draws, persons)
                noise = sampling.stream(seed, "dpsgd-noise", step)
                set_noisy_gradient(model, totals, chosen, noise)
                tell(model, totals, chosen, run.on_release)
                descent.set_rate(step)
                descent.optimizer.step()
                descent.average(step)
                return None  # the exact loss of a batch is not covered by the guarantee

            job = descent.job(
                update,
                dataset,
                sample_rate,
                seed,
                epsilon_spent=lambda step: epsilon if step == steps else None,
                augments=False,  # in the step, once for each copy
                channels_last=False,
            )
            try:
                with warnings.catch_warnings():
                    # The first layer's inputs need no gradient; torch remarks on that once a layer.
                    warnings.filterwarnings("ignore", message="Full backward hook is firing")
                    return training.train(job, run)
            finally:
                hooks.remove_hooks()

        return Prepared(
            event=events.sampled_gaussian(noise_multiplier, sample_rate, steps),
            coverage=coverage(settings, dataset, chosen),
            model=model,
            model_name=name,
            steps=steps,
            resolved={
                "batch_size": batch_size,
                "sample_rate": sample_rate,
                "lr": lr,
                "clip": chosen.clip,
                "noise_multiplier": noise_multiplier,
                "microbatch": chosen.microbatch,
            },
            start=start,
            notes=(*dataset.provenance, *large_delta(settings.delta, records)),
            releases={SUMS: math.sqrt(steps) / noise_multiplier},
        )

    def rebuild(self, description: Description) -> nn.Module:
        """Return the untrained network that a bundle describes."""
        replaced = bool(description.options.get("replace_batch_norm"))
        return without_batch_norm(super().rebuild(description), replaced)


def without_batch_norm(model: nn.Module, replace_it: bool) -> nn.Module:
    """Refuse batch normalisation, or put group normalisation in its place where asked to."""
    if not models.has_batch_norm(model):
        return model
    if not replace_it:
        raise ValueError(
            "the model has batch normalisation, which mixes the records of a batch; use --norm "
            "group, or the option replace_batch_norm=true"
        )
    fixed: nn.Module = plugins.extra("opacus.validators", "dpsgd").ModuleValidator.fix(model)
    return fixed


def check_separate(model: nn.Module, input_shape: tuple[int, ...]) -> None:
    """Refuse a network of the user's own that is seen to mix records or to keep statistics."""
    if models.couples_records(model, input_shape):
        raise ValueError(
            "the model's output for one record depends on the others of its batch, so clipping "
            "bounds nothing; use a network that treats each by itself"
        )
    if models.writes_buffers(model, input_shape):
        raise ValueError(
            "the model keeps statistics of its inputs in its buffers or frozen parameters, which "
            "would be released without noise; switch them off (track_running_stats=False)"
        )


def noise_for(
    settings: Settings, options: DPSGDOptions, sample_rate: float, steps: int
) -> tuple[float, float]:
    """Return the noise multiplier and its ε: calibrated, or as given within the budget."""
    given = options.noise_multiplier
    if given is None:
        return calibrate(settings.epsilon, settings.delta, sample_rate, steps)
    check_budget(settings.epsilon)
    epsilon = cost(float(given), sample_rate, steps, settings.delta)
    if epsilon > settings.epsilon:
        raise ValueError(
            f"noise_multiplier {given} for {steps} steps costs ε = {epsilon:.4g}, above the "
            f"budget of {settings.epsilon:g}; leave it out to have it calibrated"
        )
    return float(given), epsilon


def step_parameters(
    settings: Settings,
    options: DPSGDOptions,
    noise_multiplier: float,
    batch_size: int,
    held: int,
    pixels: bool,
) -> StepParameters:
    """Return what every step does; microbatches by what it holds for a record if not given."""
    copies = options.augmentation_multiplicity
    fitting = max(FEWEST_AT_ONCE, NUMBERS_AT_ONCE // (held * copies))
    return StepParameters(
        clip=float(options.clip),
        noise_multiplier=noise_multiplier,
        expected_batch=float(batch_size),
        rescale=options.rescale_to_unit_norm,
        copies=copies,
        augmentations=settings.augment,
        # An expected batch need not be whole, nor as large as one record.
        microbatch=options.microbatch or min(fitting, math.ceil(batch_size)),
        pixels=pixels,
    )


def default_rate(optimizer: str, options: DPSGDOptions) -> float:
    """Return half a unit of clipped gradient a step, or adaptive methods' customary rate."""
    if optimizer in ADAPTIVE:
        return ADAPTIVE_LEARNING_RATE
    return LEARNING_RATE / (1.0 if options.rescale_to_unit_norm else float(options.clip))


def coverage(settings: Settings, dataset: data.Dataset, chosen: StepParameters) -> Coverage:
    """Return what the bound covers: the weights of every step."""
    records, own = dataset.train.persons, ":" in (settings.model or "")
    grouped = dataset.train.groups is not None
    unit = PERSON if grouped else RECORD
    return Coverage(
        method="dpsgd",
        covers=WEIGHTS,
        accountant=f"privacy loss distribution, the larger of adding and removing a {unit}",
        epsilon=lambda event: events.compose([event], settings.delta),
        delta=settings.delta,
        relation="add/remove",  # at a fixed rate and divisor, as the next line says
        sampling=f"Poisson, rate {chosen.expected_batch:g}/{records}{' persons' * grouped}; "
        + FIXED.replace(RECORD, unit),
        covered=("the released weights, the weights of every step, and averages of them",),
        not_covered=(
            "Replacing an input by another one: by group privacy that is (2ε, (1 + e^ε)·δ).",
            *([ONE_OF_SEVERAL] if grouped else []),
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
        mechanism={
            "name": "sampled Gaussian",
            "noise_multiplier": chosen.noise_multiplier,
            "clip": chosen.clip,
            "augmentation_multiplicity": chosen.copies,
            "normaliser": f"the public {chosen.expected_batch:g} expected {unit}s",
            "noise": "floating-point Gaussian, not protected in its lowest bits",
        },
        proviso=OWN_NETWORK if own else "",
        unit=unit,
    )


METHOD = DPSGD()
