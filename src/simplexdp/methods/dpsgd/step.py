"""One step of DP-SGD: clip by record, sum, add noise, average.

Formal guarantee
    Statement: ``clipped_sum`` changes by at most ``clip`` in norm when a record comes or goes, or
    with persons when a person does with all records: Σ ‖g‖ over a person is clipped, and so, by
    the triangle inequality, is ‖Σ g‖. ``set_noisy_gradient`` adds Gaussian noise of standard
    deviation noise_multiplier·clip to it; what follows is post-processing with public numbers.
    Assumptions: the model treats every record by itself (no batch normalisation), the gradients
    that ``layers`` and Opacus' hooks leave are those of single records (their number is checked
    here in every step, their values by ``probe`` before the run), sums are in floating point,
    whose rounding is not accounted for, and so is the noise (``normals``).
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch import distributed as processes
from torch.nn import functional

from simplexdp import batches, distributed, sampling
from simplexdp.data.augment import augment
from simplexdp.linear.exact_sums import strides, together
from simplexdp.methods.base import OnRelease
from simplexdp.methods.dpsgd.layers import KEEP_RECORDS_FIRST, ByRecord, Explicit, book_of
from simplexdp.noise import unheard

PAIRS = 2**14  # of normals at once, which stay in the cache
FINER = 2.0**16  # of 2^32 levels; the lowest are drawn with further bits
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
    persons: sampling.Indices | None = None,
) -> list[Tensor]:
    """Return the sum of clipped per-example gradients, by parameter, over all processes.

    Microbatches bound the memory (a virtual step): the sum is the same whatever their size. They
    divide no person, where it is given whose the records are, each person's one after another.
    """
    parameters = trainable(model)
    totals = [torch.zeros_like(p) for p in parameters]
    whose = None if persons is None else np.cumsum(np.diff(persons, prepend=persons[:1]) != 0)
    for part in strides(len(labels), whose, chosen.microbatch) if len(labels) else ():
        batch, targets = copies_of(inputs[part], labels[part], chosen, rng)
        records = len(labels[part])
        found = gradients(model, batch, targets, records, chosen.copies)
        _add_clipped(totals, found, chosen.clip, None if whose is None else whose[part])
    if distributed.world() > 1:
        for total in totals:
            processes.all_reduce(total)
    return totals


def gradients(
    model: nn.Module, inputs: Tensor, labels: Tensor, records: int, copies: int = 1
) -> list[ByRecord]:
    """Return, by parameter, the gradients of the records' losses, each the mean of its copies'.

    The model has hooks (``probe.hooked``); nothing is left behind in it.
    """
    parameters = trainable(model)
    for p in parameters:
        p.grad = None
    book = book_of(model)
    with book.recording(records, copies) if book else nullcontext():
        loss = functional.cross_entropy(model(inputs), labels, reduction="sum")
        loss.backward()
    found: list[ByRecord] = []
    for p in parameters:
        ours = book.hand_over(p) if book else None
        if ours is not None and p.grad is not None:
            raise ValueError(
                "a layer's parameter is used outside of the layer, so that it has no gradient by "
                "record; freeze it (requires_grad=False), or use the layer"
            )
        found.append(Explicit(per_record(p, records, copies)) if ours is None else ours)
        p.grad_sample = None  # type: ignore[attr-defined]
        p.grad = None
    return found


def _add_clipped(
    totals: list[Tensor],
    found: list[ByRecord],
    clip: float,
    persons: sampling.Indices | None = None,
) -> None:
    """Add every record's gradient, scaled down to the clip over all parameters together.

    With persons, the norms of a person's gradients are clipped together.
    """
    # Autocast would shorten the sums.
    with torch.no_grad(), torch.autocast(totals[0].device.type, enabled=False):
        norms = torch.stack([one.squares() for one in found]).sum(dim=0).sqrt()
        if persons is not None:
            norms = together(norms, torch.from_numpy(persons - persons[0]).to(norms.device))
        factors = (clip / norms.clamp_min(1e-12)).clamp_max(1.0)
        whole = torch.isfinite(norms)
        if not bool(whole.all()):
            # A gradient that is not finite cannot be clipped: it contributes nothing.
            found, factors = [one.only(whole) for one in found], factors[whole]
        for total, one in zip(totals, found, strict=True):
            one.add(total, factors)


def per_record(parameter: nn.Parameter, records: int, copies: int = 1) -> Tensor:
    """Return a parameter's gradient for each record from Opacus, averaged over its copies."""
    gradient = getattr(parameter, "grad_sample", None)
    if gradient is None:
        raise ValueError(
            "a parameter of the model gets no gradient by record; freeze it "
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
            f"{KEEP_RECORDS_FIRST}"
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
    noised = [torch.as_tensor(p.grad) for p in trainable(model)]
    exact, noisy = (
        torch.cat([tensor.detach().cpu().ravel() for tensor in tensors]).double().numpy()
        for tensors in ([total / scale for total in totals], noised)
    )
    sigma = chosen.noise_multiplier * chosen.clip / scale
    heard = torch.from_numpy(on_release(SUMS, exact, noisy, sigma)).float()
    sizes = [gradient.numel() for gradient in noised]
    for gradient, part in zip(noised, heard.split(sizes), strict=True):
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
        noise = torch.from_numpy(normals(rng, total.numel())).view(total.shape).to(total.device)
        noise *= chosen.noise_multiplier * chosen.clip
        parameter.grad = noise.add_(total).div_(scale)


def normals(rng: np.random.Generator, count: int) -> npt.NDArray[np.float32]:
    """Return independent standard normals in single precision.

    Formal guarantee
        Statement: they are Box's and Muller's transform of the generator's bits, up to rounding in
        single precision. A pair has 32 bits of angle and 32 of radius, and 53 more where the
        radius is above 4.7, so that the tail is as fine and as long as a Gaussian's.
        Not covered: the lowest bits, which are not those of a rounded Gaussian.
    """
    out = np.empty(count + count % 2, np.float32)
    for first in range(0, len(out), 2 * PAIRS):
        pairs = out[first : first + 2 * PAIRS]
        half = len(pairs) // 2
        words = np.asarray(rng.bit_generator.random_raw(half)).view(np.uint32)
        angle = words[0::2].view(np.int32).astype(np.float32)
        angle *= np.float32(math.pi / 2**31)
        level = words[1::2] + 0.5
        tail = np.flatnonzero(level < FINER)
        if len(tail):
            level[tail] += 0.5 - rng.random(len(tail))
        # Of a level that is uniform between 0 and 2^32, the radius is √(2 log(2^32 / level)).
        np.log(level, out=level)
        np.subtract(math.log(2.0**32), level, out=level)
        radius = level.astype(np.float32)
        radius *= np.float32(2.0)
        np.sqrt(radius, out=radius)
        np.multiply(np.cos(angle), radius, out=pairs[:half])
        np.multiply(np.sin(angle), radius, out=pairs[half:])
    return out[:count]


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that get a gradient, in a fixed order."""
    return [p for p in model.parameters() if p.requires_grad]
