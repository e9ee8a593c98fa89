"""DP-SGD in a training loop of one's own: batches, noisy gradients and the claim from one plan.

Formal guarantee
    Statement: the parameters that follow from the gradients of ``DPSGDPlan.gradient``, at most
    ``steps`` times on the batches of ``DPSGDPlan.batches``, are (ε, δ)-differentially private under
    zero-out, at the plan's fixed rate and divisor.
    Why it holds: the loss of each record is computed on a batch of that record alone, so its
    gradient depends on no other record, whatever the module does; it is clipped to ``clip`` over
    all trainable parameters together, and ``step.set_noisy_gradient`` adds the noise.
    Assumptions: those of ``methods.dpsgd``; the loss reads the record that it is given and no
    other data; nothing else of the records moves a parameter, and the module's buffers do not
    change (checked at every step).
"""

from __future__ import annotations

import hashlib
import html
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from simplexdp import sampling
from simplexdp.accounting import events
from simplexdp.accounting.sampled_gaussian import calibrate
from simplexdp.batches import mapped, parts
from simplexdp.claims import (
    BESIDE_A_LOOP,
    WEIGHTS,
    Assumption,
    Coverage,
    common_assumptions,
    large_delta,
)
from simplexdp.methods.base import positive
from simplexdp.methods.dpsgd import FIXED, FLOATING_POINT
from simplexdp.methods.dpsgd.step import (
    StepParameters,
    check_precision,
    set_noisy_gradient,
    trainable,
)
from simplexdp.rounding import rounded_up
from simplexdp.statement import Statement
from simplexdp.stepping import BudgetExhausted, Stepped, steps_of

if TYPE_CHECKING:
    from dp_accounting import DpEvent

Loss = Callable[[nn.Module, Any], Tensor]
MICROBATCH = 32
# What torch says, at length, of a module whose gradients by record cannot be had.
READS_VALUES = (
    ("item()", "dynamic shape", "data pointer", "numpy()"),
    "its loss or module takes a value out of a tensor (.item(), an if, a mask, numpy); use tensor "
    "operations alone",
)
MIXES_RECORDS = (
    ("running_mean", "in-place", "inplace", "more than 1 value per channel"),
    "it mixes records or changes a tensor in place, as batch normalisation does; use nn.GroupNorm",
)


class DPSGDPlan(Stepped):
    """A budget for DP-SGD in a training loop of your own, whose claim covers the weights.

    The plan calibrates the noise to a budget and hands out the batches, the noisy gradients and
    the statement that belong to it. It cannot be copied, pickled or used in another process.

    Args:
        epsilon (float): Budget ε of the whole schedule.
        delta (float): Budget δ; choose it far below 1 / `records`.
        records (int): Number of training records, which is public.
        batch_size (int): Expected records in a batch.
        steps (int, optional): Number of batches.
        epochs (float, optional): Passes over the data, for `steps`.
        clip (float, default 1.0): The norm to which each record's gradient is clipped.
        microbatch (int, default 32): Records whose gradients are in memory at once.
        seed (int, optional): Makes the training reproducible, and no longer private.

    Attributes:
        noise_multiplier (float): The calibrated noise, in units of the clip.
        epsilon (float): What the whole schedule costs, at most the budget.
        steps_done (int): Steps taken so far.

    Raises:
        ValueError: If no noise meets the budget, or an argument is outside its range.

    Example:
        >>> import torch
        >>> from simplexdp import DPSGDPlan
        >>> inputs, labels = torch.randn(200, 5), torch.randint(0, 3, (200,))
        >>> model = torch.nn.Linear(5, 3)
        >>> plan = DPSGDPlan(epsilon=2.0, delta=1e-5, records=200, batch_size=20, epochs=0.2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> def loss(model, batch):
        ...     return torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        >>> for batch in plan.batches((inputs, labels)):
        ...     plan.gradient(model, batch, loss)
        ...     optimizer.step()
        >>> plan.steps_done, plan.statement().covers_weights
        (2, True)
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        records: int,
        *,
        batch_size: int,
        steps: int | None = None,
        epochs: float | None = None,
        clip: float = 1.0,
        microbatch: int = MICROBATCH,
        seed: int | None = None,
    ) -> None:
        if not isinstance(batch_size, int) or not 1 <= batch_size < records:
            raise ValueError(f"the batch size is {batch_size}; give 1 to {records - 1} records")
        if epochs is not None:
            steps = steps_of(epochs, steps, records, batch_size)
        if not isinstance(steps, int) or steps < 1:
            raise ValueError(f"the number of steps is {steps}; give steps of 1 or more, or epochs")
        if not isinstance(microbatch, int) or microbatch < 1:
            raise ValueError(f"the microbatch is {microbatch}; at least 1 record is needed")
        positive("clip", clip)
        self.records, self.delta = records, delta
        self.batch_size, self.steps = batch_size, steps
        self.sample_rate = batch_size / records
        sampling.check_sampling(records, self.sample_rate)
        self.clip, self.microbatch = float(clip), microbatch
        self.noise_multiplier, self.epsilon = calibrate(epsilon, delta, self.sample_rate, steps)
        self._begin(seed)
        self._used = 0  # the step whose gradient was taken last
        self._drawn: set[str] = set()  # of the current batch; empty for a batch of the user's own

    def resume_at(self, step: int) -> None:
        """Go on after `step` finished steps, as `Plan.resume_at`.

        Args:
            step: Finished steps, as `steps_done` was when the checkpoint was written.
        """
        super().resume_at(step)
        self._used = step

    def begin_step(self, batch_records: int, poisson: bool = False) -> int:
        """Count a step for a batch of your own, as `Plan.begin_step`; its records are not checked.

        Args:
            batch_records: How many records the batch has.
            poisson: Whether every record entered independently at the plan's rate.

        Returns:
            The number of the step.
        """
        self._drawn = set()
        return super().begin_step(batch_records, poisson)

    def _hand_out(self, batch: Any) -> None:
        self._drawn = {_digest(part) for part in parts(batch)}

    def gradient(self, model: nn.Module, batch: Any, loss: Loss) -> None:
        """Set the parameters' `grad` to the noisy mean of the batch's clipped gradients.

        Call it once for each batch, and then `optimizer.step()`. Nothing is returned: the loss of
        a batch is not covered by the bound.

        Args:
            model: Any module; its parameters that require a gradient are trained.
            batch: What `batches` gave: tensors in tuples or dictionaries, one row a record.
            loss: A function of the module and a batch of a single record, which gives its loss.

        Raises:
            ValueError: If the records' gradients cannot be had, or the module keeps statistics.
            BudgetExhausted: If the batch was used before, or is not as `batches` gave it; what
                changes a record belongs into the loss.
        """
        self._refuse_elsewhere()
        check_precision()
        sizes = {len(part) for part in parts(batch)}
        if len(sizes) != 1:
            raise ValueError("the parts of the batch differ in length; give one row a record each")
        (size,) = sizes
        if self._used == self.steps_done or size > self._draws_open:
            raise BudgetExhausted(
                "this batch is not the plan's current one, or its gradient was taken before; call "
                "gradient once for each batch of batches()"
            )
        if self._drawn and not self._drawn.issuperset(_digest(part) for part in parts(batch)):
            raise BudgetExhausted(
                "these are not the records that batches() gave for this step; pass them as they "
                "are, and change records in the loss"
            )
        self._used = self.steps_done
        totals = clipped_sums(model, batch, size, loss, self.clip, self.microbatch)
        chosen = StepParameters(
            clip=self.clip,
            noise_multiplier=self.noise_multiplier,
            expected_batch=float(self.batch_size),
            rescale=False,
            copies=1,
            augmentations=(),
            microbatch=self.microbatch,
        )
        draws = sampling.stream(self._seed, "dpsgd-noise", self.steps_done - 1)
        set_noisy_gradient(model, totals, chosen, draws)

    def event(self) -> DpEvent:
        """Return what all steps of the plan are charged in a ledger (`Ledger.reserve`)."""
        return events.sampled_gaussian(self.noise_multiplier, self.sample_rate, self.steps)

    def coverage(self, computed_from_data: Sequence[str] = ()) -> Coverage:
        """Return what the bound of the plan's event covers.

        Args:
            computed_from_data: What was computed from the private inputs before the training.
        """
        return Coverage(
            method="dpsgd in a loop of one's own",
            covers=WEIGHTS,
            accountant="privacy loss distribution, the larger of adding and removing a record",
            epsilon=lambda event: events.compose([event], self.delta),
            delta=self.delta,
            relation="add/remove",
            sampling=f"Poisson, rate {self.batch_size}/{self.records}; {FIXED}",
            covered=("the weights of every step, if the optimizer saw these gradients alone",),
            not_covered=(
                "Replacing an input by another one: by group privacy that is (2ε, (1 + e^ε)·δ).",
                *BESIDE_A_LOOP,
            ),
            assumptions=(
                Assumption("Batches are the plan's Poisson samples.", self._all_poisson or None),
                Assumption("Every change of a parameter came from the plan's gradients.", None),
                Assumption("The loss of a record reads that record alone.", None),
                Assumption("It is hidden which records each batch holds.", None),
                Assumption(FLOATING_POINT, None),
                *common_assumptions(self.seed_known, computed_from_data),
            ),
            mechanism={
                "name": "sampled Gaussian",
                "noise_multiplier": self.noise_multiplier,
                "clip": self.clip,
            },
            proviso="if the loop around the plan is as the assumptions say",
        )

    def statement(
        self, computed_from_data: Sequence[str] = (), notes: Sequence[str] = ()
    ) -> Statement:
        """Return what may be claimed, of the whole schedule even where it ended early.

        Args:
            computed_from_data: What was computed from the private inputs before the training.
            notes: Sentences to add.
        """
        said = (*notes, *large_delta(self.delta, self.records))
        return Statement.of(self.event(), self.coverage(computed_from_data), self.steps, said)

    def __repr__(self) -> str:
        return (
            f"<DPSGDPlan: ε = {rounded_up(self.epsilon)}, δ = {self.delta:g}, noise "
            f"{rounded_up(self.noise_multiplier)}, {self.steps_done} of {self.steps} steps, "
            f"batches of {self.batch_size} of {self.records} records>"
        )

    def _repr_html_(self) -> str:
        return f"<p><b>DPSGDPlan</b> {html.escape(repr(self)[11:-1])}</p>"


class _Loss(nn.Module):
    """The loss of one record as a module around the model, whose parameters are exchanged."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model = model
        self.loss = loss

    def forward(self, batch: Any) -> Tensor:
        found = self.loss(self.model, batch)
        if not isinstance(found, Tensor) or found.numel() != 1:
            raise ValueError("the loss of one record must be one number; return a mean or a sum")
        return found.reshape(())


def _reason(error: Exception) -> str:
    """Return in one sentence why a module has no gradients by record."""
    said = str(error).strip() or repr(error)
    for signs, reason in (READS_VALUES, MIXES_RECORDS):
        if any(sign in said for sign in signs):
            return reason
    return said.splitlines()[0].split(". ")[0]


def _digest(part: Any) -> str:
    """Return what tells a tensor's content from another one's, wherever it is kept."""
    values = torch.as_tensor(part).detach().cpu().contiguous()
    content = values.flatten().view(torch.uint8).numpy()
    return hashlib.sha256(
        f"{values.dtype}{tuple(values.shape)}".encode() + content.data
    ).hexdigest()


def _slice(rows: slice, part: Any) -> Any:
    return part[rows]


def clipped_sums(
    model: nn.Module, batch: Any, size: int, loss: Loss, clip: float, microbatch: int
) -> list[Tensor]:
    """Return the sum of the records' clipped gradients, by trainable parameter.

    Each record's loss is computed on a batch of that record alone.
    """
    wrapped = _Loss(model, loss)
    names = {f"model.{name}": p for name, p in model.named_parameters() if p.requires_grad}
    weights = {name: p.detach() for name, p in names.items()}
    totals = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    before = dict(model.named_buffers())  # torch refuses to change them in place

    if not names:
        raise ValueError("no parameter of the module requires a gradient; unfreeze what to train")
    called: list[nn.Module] = []

    def of_one(parameters: Mapping[str, Tensor], record: Any) -> Tensor:
        alone = mapped(record, lambda part: part.unsqueeze(0))
        hooks = [
            m.register_forward_pre_hook(lambda m, _: called.append(m)) for m in model.modules()
        ]
        try:
            found: Tensor = functional_call(wrapped, dict(parameters), (alone,))
        finally:
            for hook in hooks:
                hook.remove()
        return found

    for first in range(0, size, microbatch):
        rows = mapped(batch, partial(_slice, slice(first, first + microbatch)))
        try:
            by_record = vmap(grad(of_one), in_dims=(None, 0), randomness="different")(weights, rows)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"no gradients by record: {_reason(error)}") from error
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in by_record.values()]).norm(dim=0)
        # A gradient that is not finite cannot be clipped: it contributes nothing.
        factors = torch.where(norms.isfinite(), (clip / norms.clamp_min(1e-12)).clamp_max(1.0), 0.0)
        if not called:  # seen by the calls: gradients of 0 would tell of a null record
            raise ValueError("no parameter moves the loss; call the module that loss is given")
        for name, gradient in by_record.items():
            totals[name] += torch.einsum("n,n...->...", factors, gradient.nan_to_num(0.0, 0.0, 0.0))
    if any(b is not before.get(name) for name, b in model.named_buffers()):
        raise ValueError(
            "the module keeps statistics of its inputs in its buffers, which no noise covers; "
            "switch them off (track_running_stats=False)"
        )
    by_parameter = {id(p): totals[name] for name, p in names.items()}
    return [by_parameter[id(p)] for p in trainable(model)]
