"""One step of DP-SGD: clip by record, sum, add noise, average.

Formal guarantee
    Statement: ``clipped_sum`` changes by at most ``clip`` in norm when a record comes or goes, and
    ``set_noisy_gradient`` adds Gaussian noise of standard deviation noise_multiplier·clip to it;
    what follows is post-processing with public numbers.
    Assumptions: the model treats every record by itself (no batch normalisation), the gradients
    that Opacus' hooks leave are those of single records (their number is checked here in every
    step, their values by ``probe`` before the run), and sums are in floating point, whose
    rounding is not accounted for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch import distributed as processes
from torch.nn import functional

from simplexdp import batches, distributed
from simplexdp.data.augment import augment
from simplexdp.methods.base import OnRelease
from simplexdp.noise import unheard

SUMS = "noisy sums"


@dataclass(frozen=True)
class StepParameters:
    """What one step does with its batch."""

    clip: float
    noise_multiplier: float
    expected_batch: float
    rescale: bool
    copies: int
    augmentations: tuple[str, ...]
    microbatch: int
    pixels: bool = True  # inputs are stored as bytes, and scaled to [-1, 1]


def clipped_sum(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    chosen: StepParameters,
    rng: np.random.Generator,
) -> list[Tensor]:
    """Return the sum of clipped per-example gradients, by parameter, over all processes.

    Microbatches bound the memory (a virtual step): the sum is the same whatever their size.
    """
    parameters = trainable(model)
    totals = [torch.zeros_like(p) for p in parameters]
    for first in range(0, len(labels), chosen.microbatch):
        part = slice(first, first + chosen.microbatch)
        batch, targets = copies_of(inputs[part], labels[part], chosen, rng)
        loss = functional.cross_entropy(model(batch), targets, reduction="sum")
        loss.backward()
        gradients = [per_record(p, len(labels[part]), chosen.copies) for p in parameters]
        _add_clipped(totals, gradients, chosen.clip)
        for p in parameters:
            p.grad_sample = None  # type: ignore[attr-defined]
            p.grad = None
    if distributed.world() > 1:
        for total in totals:
            processes.all_reduce(total)
    return totals


def _add_clipped(totals: list[Tensor], gradients: list[Tensor], clip: float) -> None:
    """Add every record's gradient, scaled down to the clip over all parameters together."""
    with torch.autocast(gradients[0].device.type, enabled=False):  # it would shorten the sums
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
        factors = (clip / norms.clamp_min(1e-12)).clamp_max(1.0)
        whole = torch.isfinite(norms)
        for total, gradient in zip(totals, gradients, strict=True):
            # A gradient that is not finite cannot be clipped: it contributes nothing.
            kept = gradient if bool(whole.all()) else gradient[whole]
            total += torch.tensordot(factors[whole], kept, dims=1)


def per_record(parameter: nn.Parameter, records: int, copies: int = 1) -> Tensor:
    """Return a parameter's gradient for each record, averaged over its copies."""
    gradient = getattr(parameter, "grad_sample", None)
    if gradient is None:
        raise ValueError(
            "a parameter of the model gets no gradient by record from Opacus; freeze it "
            "(requires_grad=False), or use it in every training pass"
        )
    if isinstance(gradient, list):
        gradient = torch.stack(gradient).sum(dim=0)  # a layer that is used more than once
    # Mixed precision in the network makes them shorter, and norms and sums of such are not bounded
    # by the clip.
    by_copy = torch.as_tensor(gradient).float()
    if len(by_copy) != records * copies:
        raise ValueError(
            f"a layer sees {len(by_copy)} rows where there are {records * copies} records; "
            "keep records, and nothing else, in the first dimension of every layer's input"
        )
    if copies == 1:
        return by_copy
    return by_copy.reshape(-1, copies, *parameter.shape).mean(dim=1)


def check_precision() -> None:
    """Refuse where torch may round each clipped gradient to fewer bits when it sums them."""
    if torch.get_float32_matmul_precision() != "highest":
        raise ValueError(
            "torch may multiply in fewer bits than single precision has, so that one record could "
            "do more than the clip; call torch.set_float32_matmul_precision('highest')"
        )


def copies_of(
    inputs: Tensor, labels: Tensor, chosen: StepParameters, rng: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Return each record as many times as asked for, each copy augmented by its own draw."""
    if not chosen.augmentations:
        return inputs, labels
    stored = inputs.repeat_interleave(chosen.copies, dim=0)
    if chosen.pixels:  # back to bytes, in which zero is black, as the augmentation expects it
        stored = ((stored * 0.5 + 0.5) * 255.0).round().to(torch.uint8)
    return (
        batches.to_network(augment(stored, chosen.augmentations, rng), channels_last=False),
        labels.repeat_interleave(chosen.copies, dim=0),
    )


def tell(
    model: nn.Module, totals: list[Tensor], chosen: StepParameters, on_release: OnRelease
) -> None:
    """Let an audit hear the sum and the noisy gradient, both divided as the gradient is."""
    if on_release is unheard:
        return
    scale = divisor(chosen)
    gradients = [torch.as_tensor(p.grad) for p in trainable(model)]
    exact, noisy = (
        torch.cat([tensor.detach().cpu().ravel() for tensor in tensors]).double().numpy()
        for tensors in ([total / scale for total in totals], gradients)
    )
    sigma = chosen.noise_multiplier * chosen.clip / scale
    heard = torch.from_numpy(on_release(SUMS, exact, noisy, sigma)).float()
    sizes = [gradient.numel() for gradient in gradients]
    for gradient, part in zip(gradients, heard.split(sizes), strict=True):
        gradient.copy_(part.view_as(gradient))


def divisor(chosen: StepParameters) -> float:
    """Return the public number by which a noisy sum is divided."""
    return chosen.expected_batch * (chosen.clip if chosen.rescale else 1.0)


def set_noisy_gradient(
    model: nn.Module, totals: list[Tensor], chosen: StepParameters, rng: np.random.Generator
) -> None:
    """Set the gradient to (sum + σ·clip·N) / (n·q), over the clip too where it is rescaled."""
    scale = divisor(chosen)
    for parameter, total in zip(trainable(model), totals, strict=True):
        draw = rng.standard_normal(tuple(total.shape)) * (chosen.noise_multiplier * chosen.clip)
        added = torch.from_numpy(np.asarray(draw)).to(total.device, torch.float32)
        parameter.grad = (total + added) / scale


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that get a gradient, in a fixed order."""
    return [p for p in model.parameters() if p.requires_grad]
