"""Gradients by record of a network's layers, or their norms and weighted sums where those are less.

Dense layers, two-dimensional convolutions and group normalisation are taken here, by one backward
pass that computes no gradient over the batch as a whole; every other layer by Opacus' hooks. Of a
weight used once there is a choice, made by its shape:

- the gradients of all records, out × in numbers each;
- the inputs and the gradients at the outputs, from whose Gram matrices come the norms ("ghost
  norms", Li et al. 2022) and from which, once the norms are known, comes the clipped sum in one
  product ("book-keeping", Bu et al. 2023).

Formal guarantee
    Statement: the norm that ``Ghost.squares`` tells of a record's gradient is at least that of the
    gradient of which ``Ghost.add`` adds a multiple, but for the rounding of sums in floating point
    that the statement of a run names.
    Why it holds: |Σ_s g_s a_sᵀ|² = Σ_st (a_s·a_t)(g_s·g_t). Where positions cancel, rounding of the
    right-hand side could take most of it: so a bound on that rounding is added, ``SLACK``·eps·√m
    of (Σ_s |a_s||g_s|)² for dot products of m terms (a probabilistic bound, Higham and Mary 2019,
    with room). The norm of a gradient that is there as numbers is the norm of those numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional

from simplexdp import plugins

SLACK = 8.0
# A product of so many terms takes as long as writing and reading one number of its result: below,
# the gradients of all records are slow to write and not slow to compute.
TERMS_A_NUMBER = 32
KEEP_RECORDS_FIRST = "keep records, and nothing else, in the first dimension of every layer's input"


@dataclass(frozen=True)
class Ghost:
    """The gradients of a weight by record, as the factors of a product.

    Attributes:
        inputs: What the layer saw, as (records, features, positions).
        outputs: The gradients at its outputs, as (records, features, positions).
        rows: The same as the layer has them, with a row for each copy of a record.
        total: The weight's gradient over such rows, those at the outputs with a factor each.
    """

    inputs: Tensor
    outputs: Tensor
    rows: tuple[Tensor, Tensor]
    total: Callable[[Tensor, Tensor], Tensor]

    def squares(self) -> Tensor:
        """Return each record's squared norm, or a little more."""
        a, g = self.inputs, self.outputs
        if a.shape[2] == 1:
            return a.square().sum((1, 2)) * g.square().sum((1, 2))
        seen, sent = torch.bmm(a.mT, a), torch.bmm(g.mT, g)
        sizes = (seen.diagonal(dim1=1, dim2=2) * sent.diagonal(dim1=1, dim2=2)).sqrt()
        terms = a.shape[1] + g.shape[1] + a.shape[2]
        unsure = SLACK * torch.finfo(a.dtype).eps * terms**0.5 * sizes.sum(1).square()
        squares: Tensor = ((seen * sent).sum((1, 2)) + unsure).clamp_min(0.0)
        return squares

    def only(self, records: Tensor) -> Ghost:
        """Return the gradients of some of the records."""
        rows = records.repeat_interleave(len(self.rows[0]) // len(records))
        x, g = self.rows
        return Ghost(self.inputs[records], self.outputs[records], (x[rows], g[rows]), self.total)

    def add(self, total: Tensor, factors: Tensor) -> None:
        """Add every record's gradient times its factor."""
        x, g = self.rows
        copies = len(g) // max(len(factors), 1)
        each = factors.repeat_interleave(copies) / copies if copies > 1 else factors
        total += self.total(x, g * each.reshape(-1, *(1,) * (g.ndim - 1))).reshape(total.shape)

    def gradients(self) -> Tensor:
        """Return the gradients themselves."""
        return torch.bmm(self.outputs, self.inputs.mT)


@dataclass(frozen=True)
class Explicit:
    """The gradients of a parameter by record, as numbers."""

    numbers: Tensor

    def squares(self) -> Tensor:
        """Return each record's squared norm."""
        norms: Tensor = torch.linalg.vector_norm(self.numbers.flatten(1), dim=1)
        return norms.square()

    def only(self, records: Tensor) -> Explicit:
        """Return the gradients of some of the records."""
        return Explicit(self.numbers[records])

    def add(self, total: Tensor, factors: Tensor) -> None:
        """Add every record's gradient times its factor."""
        total += torch.tensordot(factors, self.numbers, dims=1)

    def gradients(self) -> Tensor:
        """Return the gradients themselves."""
        return self.numbers


ByRecord = Ghost | Explicit


class Kind(Protocol):
    """A type of layer."""

    def takes(self, layer: Any) -> bool:
        """Return whether a layer of this type is one that it computes."""

    def forward(self, layer: Any, x: Tensor) -> tuple[Tensor, ...]:
        """Return the layer's output, and what the backward pass needs beside the input."""

    def back(self, layer: Any, x: Tensor, g: Tensor, *kept: Tensor) -> Tensor:
        """Return the gradient at the input."""

    def gradients(self, tap: Tap, x: Tensor, g: Tensor, *kept: Tensor) -> None:
        """Hand the gradients of the parameters to the tap."""


class _Dense:
    """A dense layer; dimensions between the first and the last are positions."""

    def takes(self, layer: nn.Linear) -> bool:
        return True

    def forward(self, layer: nn.Linear, x: Tensor) -> tuple[Tensor, ...]:
        return (functional.linear(x, layer.weight, layer.bias),)

    def back(self, layer: nn.Linear, x: Tensor, g: Tensor, *kept: Tensor) -> Tensor:
        return g @ layer.weight.to(g.dtype)

    def gradients(self, tap: Tap, x: Tensor, g: Tensor, *kept: Tensor) -> None:
        x, g = x.reshape(len(x), -1, x.shape[-1]), g.reshape(len(g), -1, g.shape[-1])

        def total(x: Tensor, g: Tensor) -> Tensor:
            return g.flatten(0, 1).T @ x.flatten(0, 1)

        tap.product(tap.layer.weight, (x, g), (x.mT, g.mT), total)
        tap.explicit(tap.layer.bias, lambda: g.sum(1))


class _Convolution:
    """A convolution in two dimensions, without groups, padded by zeros."""

    def takes(self, layer: nn.Conv2d) -> bool:
        return (
            layer.groups == 1
            and layer.padding_mode == "zeros"
            and not isinstance(layer.padding, str)
        )

    def forward(self, layer: nn.Conv2d, x: Tensor) -> tuple[Tensor, ...]:
        return (layer._conv_forward(x, layer.weight, layer.bias),)

    def _backward(
        self, layer: nn.Conv2d, x: Tensor, g: Tensor, mask: tuple[bool, bool, bool]
    ) -> tuple[Tensor, Tensor]:
        weight = layer.weight.to(g.dtype)
        how = layer.stride, layer.padding, layer.dilation, False, (0, 0), 1
        made = torch.ops.aten.convolution_backward(g, x.to(g.dtype), weight, None, *how, mask)
        return made[0], made[1]

    def back(self, layer: nn.Conv2d, x: Tensor, g: Tensor, *kept: Tensor) -> Tensor:
        return self._backward(layer, x, g, (True, False, False))[0]

    def gradients(self, tap: Tap, x: Tensor, g: Tensor, *kept: Tensor) -> None:
        layer = tap.layer
        plain = layer.kernel_size == layer.stride == (1, 1) and layer.padding == (0, 0)
        seen = (
            x.flatten(2)
            if plain
            else functional.unfold(
                x, layer.kernel_size, layer.dilation, layer.padding, layer.stride
            )
        )

        def total(x: Tensor, g: Tensor) -> Tensor:
            return self._backward(layer, x, g, (False, True, False))[1]

        tap.product(layer.weight, (x, g), (seen, g.flatten(2)), total)
        tap.explicit(layer.bias, lambda: g.flatten(2).sum(2))


class _GroupNorm:
    """Group normalisation with a scale and a shift of each channel."""

    def takes(self, layer: nn.GroupNorm) -> bool:
        return True

    def forward(self, layer: nn.GroupNorm, x: Tensor) -> tuple[Tensor, ...]:
        x = x.contiguous().to(layer.weight.dtype)
        shape = len(x), x.shape[1], x.shape[2:].numel()
        made = torch.native_group_norm(
            x, layer.weight, layer.bias, *shape, layer.num_groups, layer.eps
        )
        return tuple(made)

    def back(self, layer: nn.GroupNorm, x: Tensor, g: Tensor, *kept: Tensor) -> Tensor:
        shape = len(x), x.shape[1], x.shape[2:].numel()
        inner = layer.num_groups, (True, False, False)
        at = g.contiguous(), x.contiguous(), *kept, layer.weight
        made: Tensor = torch.ops.aten.native_group_norm_backward(*at, *shape, *inner)[0]
        return made

    def gradients(self, tap: Tap, x: Tensor, g: Tensor, *kept: Tensor) -> None:
        x, g = x.reshape(*x.shape[:2], -1), g.reshape(*g.shape[:2], -1)
        shift = g.sum(2)
        each = x.shape[1] // tap.layer.num_groups
        mean, scale = (of_group.repeat_interleave(each, dim=1) for of_group in kept)
        tap.explicit(tap.layer.weight, lambda: scale * ((g * x).sum(2) - mean * shift))
        tap.explicit(tap.layer.bias, lambda: shift)


KINDS: dict[type[nn.Module], Kind] = {
    nn.Linear: _Dense(),
    nn.Conv2d: _Convolution(),
    nn.GroupNorm: _GroupNorm(),
}


class Tap:
    """A layer whose passes are taken over while gradients by record are recorded."""

    def __init__(self, layer: nn.Module, shared: bool, book: Book) -> None:
        self.layer: Any = layer
        self.kind = KINDS[type(layer)]
        self.shared = shared
        self.book = book
        self.uses = 0
        self.plain = layer.forward
        layer.forward = self.forward

    def remove(self) -> None:
        """Give the layer its own pass back."""
        del self.layer.forward

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output."""
        if not (self.book.records and torch.is_grad_enabled()):
            out: Tensor = self.plain(x)
            return out
        self.book.check_rows(len(x))
        self.uses += 1
        given = [p for p in self.layer.parameters(recurse=False) if p.requires_grad]
        out = _Pass.apply(self, x, *given)  # type: ignore[no-untyped-call]
        self.book.held += x.numel() + out.numel()
        return out

    def explicit(self, parameter: Tensor | None, make: Callable[[], Tensor]) -> None:
        """Take a parameter's gradients, one for each row of the batch."""
        if parameter is not None and parameter.requires_grad:
            rows = make()
            copies = self.book.copies
            if copies > 1:
                rows = rows.reshape(-1, copies, *rows.shape[1:]).mean(1)
            self.book.take(parameter, Explicit(rows.reshape(-1, *parameter.shape)))

    def product(
        self,
        weight: Tensor,
        rows: tuple[Tensor, Tensor],
        factors: tuple[Tensor, Tensor],
        total: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        """Take a weight's gradients as a product of two (rows, features, positions)."""
        if not weight.requires_grad:
            return
        inputs, outputs = factors
        copies = self.book.copies
        if copies > 1:  # a record's copies are further positions of it
            inputs, outputs = (_side_by_side(one, copies) for one in (inputs, outputs / copies))
        positions, features = inputs.shape[2], inputs.shape[1] + outputs.shape[1]
        fewer = positions**2 * features <= TERMS_A_NUMBER * weight.numel()
        if fewer and self.uses == 1 and not self.shared:
            self.book.take(weight, Ghost(inputs, outputs, rows, total))
        else:
            numbers = torch.bmm(outputs, inputs.mT)
            self.book.take(weight, Explicit(numbers.reshape(-1, *weight.shape)))


def _side_by_side(rows: Tensor, copies: int) -> Tensor:
    """Return (records·copies, features, positions) as (records, features, copies·positions)."""
    return rows.reshape(-1, copies, *rows.shape[1:]).transpose(1, 2).flatten(2)


class _Pass(torch.autograd.Function):
    """A layer's pass, whose backward pass leaves gradients by record and none over the batch."""

    @staticmethod
    def forward(ctx: Any, tap: Tap, x: Tensor, *given: Tensor) -> Tensor:
        out, *kept = tap.kind.forward(tap.layer, x)
        ctx.tap = tap
        ctx.save_for_backward(x, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        tap: Tap = ctx.tap
        x, *kept = (saved.detach() for saved in ctx.saved_tensors)
        at_input = None
        with torch.autocast(g.device.type, enabled=False):
            # Mixed precision makes gradients shorter, and norms and sums of such are not bounded
            # by the clip.
            long = g.float()
            tap.kind.gradients(tap, x.float(), long, *kept)
            if ctx.needs_input_grad[1]:
                at_input = tap.kind.back(tap.layer, x.float(), long, *kept).to(x.dtype)
        return None, at_input, *(None for _ in ctx.needs_input_grad[2:])


class Book:
    """The taps of a model, and what one backward pass leaves in them.

    Args:
        model: A network; its layers are taken over until `remove_hooks`.

    Raises:
        ValueError: If a layer is neither taken here nor by Opacus.
    """

    def __init__(self, model: nn.Module) -> None:
        self.records = self.copies = 0
        self.found: dict[Tensor, ByRecord] = {}
        self.held = 0  # numbers that the last pass kept, roughly
        ours, others = _divided(model)
        uses = Counter(p for layer in ours for p in layer.parameters(recurse=False))
        self._others = _opacus(model, ours) if others else None
        self._taps = [
            Tap(layer, any(uses[p] > 1 for p in layer.parameters(recurse=False)), self)
            for layer in ours
        ]
        _BOOKS[model] = self

    def remove_hooks(self) -> None:
        """Leave the model as it was."""
        for tap in self._taps:
            tap.remove()
        self._taps = []
        if self._others is not None:
            self._others.remove_hooks()

    def check_rows(self, rows: int) -> None:
        """Refuse a layer that sees something else than the records of the batch."""
        if rows != self.records * self.copies:
            raise ValueError(
                f"a layer sees {rows} rows where there are {self.records * self.copies} records; "
                f"{KEEP_RECORDS_FIRST}"
            )

    @contextmanager
    def recording(self, records: int, copies: int) -> Iterator[None]:
        """Record the gradients of a pass forward and back over so many records."""
        self.records, self.copies, self.found, self.held = records, copies, {}, 0
        for tap in self._taps:
            tap.uses = 0
        try:
            yield
        finally:
            self.records = self.copies = 0

    def take(self, parameter: Tensor, gradients: ByRecord) -> None:
        """Take gradients of a parameter, beside those of its earlier uses."""
        kept = gradients.numbers if isinstance(gradients, Explicit) else gradients.inputs
        self.held += kept.numel()
        earlier = self.found.get(parameter)
        if earlier is not None:
            gradients = Explicit(earlier.gradients() + gradients.gradients())
        self.found[parameter] = gradients

    def hand_over(self, parameter: Tensor) -> ByRecord | None:
        """Return a parameter's gradients, which are then no longer kept."""
        return self.found.pop(parameter, None)


_BOOKS: WeakKeyDictionary[nn.Module, Book] = WeakKeyDictionary()


def book_of(model: nn.Module) -> Book | None:
    """Return the book that was opened for a model, or None."""
    return _BOOKS.get(model)


def _divided(model: nn.Module) -> tuple[list[nn.Module], list[nn.Module]]:
    """Return the layers that are taken here, and those with parameters that are not.

    What lies in a module with parameters of its own is not looked into: Opacus may differentiate
    such a module as a whole.
    """
    ours: dict[nn.Module, None] = {}
    others: dict[nn.Module, None] = {}

    def visit(module: nn.Module) -> None:
        if any(p.requires_grad for p in module.parameters(recurse=False)):
            kind = KINDS.get(type(module))
            taken = kind is not None and kind.takes(module)
            (ours if taken else others)[module] = None
            return
        for child in module.children():
            visit(child)

    visit(model)
    theirs = {p for module in others for p in module.parameters()}
    for layer in [one for one in ours if theirs.intersection(one.parameters())]:
        del ours[layer]
        others[layer] = None
    return list(ours), list(others)


def _opacus(model: nn.Module, ours: list[nn.Module]) -> Any:
    """Return Opacus' hooks on all layers but ours."""
    theirs: Any = plugins.extra("opacus.grad_sample.grad_sample_module", "dpsgd")

    class Others(theirs.GradSampleHooks):  # type: ignore[misc]
        def iterate_submodules(self, module: nn.Module) -> Iterator[nn.Module]:
            yield from (one for one in super().iterate_submodules(module) if one not in ours)

    try:
        return Others(model, batch_first=True, loss_reduction="sum")
    except NotImplementedError as error:
        raise ValueError(f"Opacus does not take this model: {error}") from error
