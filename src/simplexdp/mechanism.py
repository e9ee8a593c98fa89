"""The Dirichlet mechanism: draws, the perturbed loss, and its closed forms.

The Dirichlet mechanism replaces a probability vector s by p ~ Dir(r·s + α·1).  Training uses
the negative log-likelihood −log p_y of the draw, differentiated along the draw (pathwise).

The link "log" gives the mechanism, in place of s, the vector with φ(s_y) = B/(B − ln s_y) at the
true class y and the rest in proportion to s.  The expected loss of the softmax itself is all but
linear in s_y where r is small against α, and gives up classes; with the link its gradient is close
to that of the cross entropy.  It is a variant of ours and not the published algorithm.

Formal guarantee
----------------
Statement (one draw): at parameters θ that do not depend on x, publishing one draw from
    Dir(r·g_θ(x) + α·1) is (λ, λ r² ψ'(α − (λ−1) r))-RDP under replacement of the input x,
    for 1 ≤ λ < 1 + α/r.
Source: Ponnoprat, "Dirichlet mechanism for differentially private KL divergence minimization"
    (the paper's RDP lemma).
With a link: the lemma holds for any two vectors of the simplex at the same label, since its proof
    uses nothing of g_θ(x) but that it is one.  The label y is public and the same for both inputs;
    φ maps [0, 1] into [0, 1], so the linked vector is one as well.  r and every bound stay.
Assumption: the draw is a real vector.  The one made here is floating point, from numpy's Gamma
    sampler, and its rounding is not accounted for; round what you publish.
Not covered: the gradient of the loss with respect to the parameters.  It is the product of a
    function of the draw with ∂z/∂θ, and ∂z/∂θ is evaluated at the raw input; it is not
    post-processing of the draw.

Numerics: concentrations, draws and derivatives are float64, and Gamma variables are kept as
logarithms, so that α = 0.05 neither underflows nor is clamped.  numpy draws the variables from
the generator that the caller passes; torch supplies the derivative of a Gamma variable with
respect to its concentration.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
import torch
from scipy import special
from torch import Tensor
from torch.nn import functional

Estimator = Literal["marginal", "full", "draw-only"]
ESTIMATORS: tuple[Estimator, ...] = ("marginal", "full", "draw-only")
Link = Literal["softmax", "log"]
LINKS: tuple[Link, ...] = ("softmax", "log")
LINK_BOUND = 10.0  # B: a record of probability 0 pulls 1/B as far as one that is all but right
Array = npt.NDArray[np.float64]


class _LogGamma(torch.autograd.Function):
    """log G with G ~ Gamma(concentration), differentiable in the concentration."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor, rng: np.random.Generator) -> Tensor:
        log_g, slope = _drawn(concentration.detach().cpu().numpy(), rng)
        ctx.save_for_backward(torch.from_numpy(slope).to(concentration.device))
        return torch.from_numpy(log_g).to(concentration.device)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        _refuse_second_derivative()
        return grad_outputs[0] * ctx.saved_tensors[0], None


def _refuse_second_derivative() -> None:
    """Refuse to be differentiated again: a draw's slope would count as a constant, unnoticed."""
    if torch.is_grad_enabled():  # in a backward pass: by create_graph
        raise ValueError("the perturbed loss has no second derivative; leave create_graph out")


def _drawn(a: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return log G with G ~ Gamma(a), and its derivative along the draw.

    For a < 1 the draw is G_a = G_{a+1}·U^{1/a} in logarithms, which cannot underflow.
    """
    small = a < 1.0
    gamma = rng.standard_gamma(a + small)
    minus_log_u = rng.standard_exponential(a.shape)
    # torch's implicit derivative of a Gamma draw; unlike those of Beta and Dirichlet it has
    # no bias where one concentration is small and the total is large.
    slope = torch._standard_gamma_grad(torch.from_numpy(a + small), torch.from_numpy(gamma))
    log_g, slope_of_log = np.log(gamma), slope.numpy() / gamma
    if small.any():
        minus_log_u *= small
        log_g -= minus_log_u / a
        slope_of_log += minus_log_u / a**2
    return log_g, slope_of_log


class _Marginal(torch.autograd.Function):
    """−log p_y of one draw for each record, from the logits, in one node.

    The operations are those that torch would take one by one, in its order, so that every bit is
    theirs; small arrays cost numpy a third.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        labels: Tensor,
        r: float,
        alpha: float,
        rng: np.random.Generator,
        link: Link,
        bound: float,
    ) -> Tensor:
        log_s = torch.log_softmax(logits, 1)
        log_s_y = log_s.gather(1, labels[:, None])[:, 0].double().cpu()
        at_y, rest = _linked(log_s_y, link, bound)
        a = np.empty((2, len(labels)))
        a[0] = r * at_y.numpy() + alpha
        a[1] = r * rest.numpy() + (logits.shape[1] - 1) * alpha
        log_g, slope = _drawn(a, rng)
        # −log(G_y / (G_y + G_rest)), precise also where p_y is all but 1.
        odds = torch.from_numpy(log_g[1] - log_g[0])
        ctx.of = labels, log_s, log_s_y, at_y, rest, slope, odds, r, link, bound
        return torch.logaddexp(odds, torch.zeros_like(odds)).to(logits.device)

    @staticmethod
    def backward(ctx: Any, given: Tensor) -> tuple[Tensor | None, ...]:
        _refuse_second_derivative()
        labels, log_s, log_s_y, at_y, rest, slope, odds, r, link, bound = ctx.of
        at_y, rest = at_y.numpy(), rest.numpy()
        to_odds = given.cpu().numpy() / (1.0 + torch.exp(-odds).numpy())
        to_y, to_rest = -to_odds * slope[0] * r, to_odds * slope[1] * r
        if link == "softmax":
            to_log_s_y = to_y * at_y - to_rest * (1.0 - rest)
        else:
            below = bound - log_s_y.numpy()
            to_log_s_y = to_rest * (rest / below) - to_rest / below
            to_log_s_y += to_y * bound * np.square(np.reciprocal(below))
        at_label = torch.from_numpy(to_log_s_y[:, None]).to(log_s)
        at_label = torch.zeros_like(log_s).scatter_(1, labels[:, None], at_label)
        to_logits = torch._log_softmax_backward_data(at_label, log_s, 1, log_s.dtype)
        return (to_logits, *[None] * 6)


def log_gamma_draw(concentration: Tensor, rng: np.random.Generator) -> Tensor:
    """Return log G for G ~ Gamma(concentration) elementwise, with its pathwise derivative."""
    draw: Tensor = cast(Any, _LogGamma).apply(concentration, rng)
    return draw


def draw(probabilities: Tensor, r: float, alpha: float, rng: np.random.Generator) -> Tensor:
    """Draw from Dir(r·s + α·1) for each probability vector s in the last dimension.

    A sum that misses 1 by at most 1e-4, as rounding may make it, is divided out: the lemma is
    about vectors that sum to 1, and a sum that differs between two inputs would tell them apart.

    Args:
        probabilities: Softmax outputs, one vector a record.
        r: Scale of the mechanism, between 0 and `alpha`.
        alpha: Concentration of the mechanism.
        rng: Generator of numpy's; secret where the draw is to protect anything.

    Returns:
        Draws in float64, differentiable in `probabilities`.

    Raises:
        ValueError: If a probability is negative or not finite, a vector does not sum to 1, or a
            parameter is outside its range.

    Example:
        >>> import numpy as np
        >>> import torch
        >>> from simplexdp import mechanism
        >>> softmax = torch.tensor([[0.7, 0.2, 0.1]])
        >>> drawn = mechanism.draw(softmax, 0.2, 3.0, np.random.default_rng())
        >>> drawn.shape, round(float(drawn.sum()), 6)
        (torch.Size([1, 3]), 1.0)
    """
    check_parameters(r, alpha)
    s = probabilities.double()
    if not bool(torch.isfinite(s).all()) or bool((s < 0).any()):
        raise ValueError("a probability is negative or not finite; pass softmax outputs")
    if s.numel() and float((s.sum(-1) - 1.0).abs().max()) > 1e-4:
        raise ValueError("probabilities do not sum to 1; pass softmax outputs, not logits")
    s = s / s.sum(-1, keepdim=True)
    return torch.softmax(log_gamma_draw(r * s + alpha, rng), dim=-1)


def perturbed_nll(
    logits: Tensor,
    labels: Tensor,
    r: float,
    alpha: float,
    rng: np.random.Generator,
    estimator: Estimator = "marginal",
    link: Link = "softmax",
    bound: float = LINK_BOUND,
) -> Tensor:
    """−log p_y of one draw for each record, as a float64 vector differentiable in the logits.

    `full` draws the whole vector p, as Algorithm 1 is written.  `marginal` draws only p_y, which
    is Beta(r s_y + α, r (1 − s_y) + (d−1) α): the same loss in distribution and, since a+b is
    constant, a gradient with the same mean κ·(s − e_y), at a cost that does not grow with d.
    `draw-only` puts (p·(r + dα) − α)/r − e_y in the place of the gradient in the logits: a function
    of draw and label alone, unbiased for s − e_y, whose noise grows as 1/r.
    With a link, φ(s_y) is in the place of s_y.
    """
    check_parameters(r, alpha)
    check_link(estimator, link, bound)
    check_batch(logits, labels)
    classes = logits.shape[1]
    if estimator == "marginal":
        losses: Tensor = cast(Any, _Marginal).apply(logits, labels, r, alpha, rng, link, bound)
    else:
        given = torch.softmax(logits.double(), dim=1)
        if link != "softmax":
            given = linked_vector(logits, labels, link, bound)
        if estimator == "draw-only":
            given = given.detach()
        log_g = log_gamma_draw(r * given + alpha, rng)
        log_y = log_g.gather(1, labels[:, None])[:, 0]
        log_rest = log_g.scatter(1, labels[:, None], -torch.inf).logsumexp(dim=1)
        odds = log_rest - log_y
        losses = torch.logaddexp(odds, torch.zeros_like(odds))
    if estimator == "draw-only":
        error = (torch.softmax(log_g, dim=1) * (r + classes * alpha) - alpha) / r
        error = error - functional.one_hot(labels, classes)
        pull = (error * logits.double()).sum(dim=1)
        losses = losses + (pull - pull.detach())
    if not bool(torch.isfinite(losses).all()):
        raise ValueError(
            "the logits hold NaN or infinity; lower the learning rate or check the inputs"
        )
    return losses


def _linked(log_s_y: Tensor, link: Link, bound: float) -> tuple[Tensor, Tensor]:
    """φ(s_y) and 1 − φ(s_y) from ln s_y, precise where s_y is all but 0 or 1."""
    if link == "softmax":
        return log_s_y.exp(), -torch.expm1(log_s_y)
    return bound / (bound - log_s_y), -log_s_y / (bound - log_s_y)


def linked_vector(
    logits: Tensor, labels: Tensor, link: Link = "log", bound: float = LINK_BOUND
) -> Tensor:
    """Return what the mechanism is given: φ(s_y) at the label, the rest in proportion to s.

    >>> linked_vector(torch.zeros(1, 2), torch.tensor([0])).sum().item()
    1.0
    """
    at = labels[:, None]
    z = logits.double()
    at_y, rest = _linked(torch.log_softmax(z, dim=1).gather(1, at)[:, 0], link, bound)
    others = torch.softmax(z.scatter(1, at, -torch.inf), dim=1)  # precise also where s_y is 1
    return (rest[:, None] * others).scatter(1, at, at_y[:, None])


# Theorem 2: moments of the perturbed loss in terms of the true class's probability s_y. It is
# about φ(s_y), whatever the link; the chain rule gives the attenuation its dφ/d(ln s_y).


def linked(s_y: npt.ArrayLike, link: Link = "softmax", bound: float = LINK_BOUND) -> Array:
    """φ(s_y): s_y itself, or B/(B − ln s_y)."""
    s = np.asarray(s_y, dtype=np.float64)
    if link == "softmax":
        return s
    with np.errstate(divide="ignore"):
        return np.asarray(bound / (bound - np.log(s)))


def expected_loss(
    s_y: npt.ArrayLike,
    r: float,
    alpha: float,
    classes: int,
    link: Link = "softmax",
    bound: float = LINK_BOUND,
) -> Array:
    """F = ψ(r + dα) − ψ(r φ + α)."""
    a = r * linked(s_y, link, bound) + alpha
    return np.asarray(special.digamma(r + classes * alpha) - special.digamma(a))


def attenuation(
    s_y: npt.ArrayLike,
    r: float,
    alpha: float,
    link: Link = "softmax",
    bound: float = LINK_BOUND,
) -> Array:
    """κ = r φ̇ ψ'(r φ + α): the expected gradient is κ times that of the cross entropy.

    φ̇ = dφ/d(ln s_y) is s_y for the softmax itself and φ²/B for the link.
    """
    phi = linked(s_y, link, bound)
    slope = phi if link == "softmax" else phi**2 / bound
    return np.asarray(r * slope * special.polygamma(1, r * phi + alpha))


def loss_variance(
    s_y: npt.ArrayLike,
    r: float,
    alpha: float,
    classes: int,
    link: Link = "softmax",
    bound: float = LINK_BOUND,
) -> Array:
    """Var = ψ'(r φ + α) − ψ'(r + dα)."""
    a = r * linked(s_y, link, bound) + alpha
    return np.asarray(special.polygamma(1, a) - special.polygamma(1, r + classes * alpha))


def share_given_up(r: float, alpha: float, link: Link = "softmax") -> float:
    """ψ'(α + r)/ψ'(α): if no class is more than this share of the likeliest, that one gets all.

    For records that look alike, with shares π of the classes, the expected loss Σ π_k F(s_k) is
    convex in the prediction s; s = e_1 minimises it over the simplex if and only if
    π_1 ψ'(α + r) ≥ π_k ψ'(α) for every other k (Karush, Kuhn, Tucker).  With the link "log" it is
    0: −dF/ds = κ/s grows without bound as s → 0, so that every class with records keeps a share.
    """
    if link == "log":
        return 0.0
    return float(special.polygamma(1, alpha + r) / special.polygamma(1, alpha))


def check_link(estimator: str, link: str, bound: float) -> None:
    """Refuse an estimator or a link that is not known, or that leaves the simplex."""
    if estimator not in ESTIMATORS:
        raise ValueError(f"unknown estimator {estimator!r}; use one of {', '.join(ESTIMATORS)}")
    if link not in LINKS:
        raise ValueError(f"unknown link {link!r}; use one of {', '.join(LINKS)}")
    if not 0.0 < bound < np.inf:
        raise ValueError(f"the link's bound is {bound}; it must be positive, or φ leaves [0, 1]")
    if estimator == "draw-only" and link != "softmax":
        raise ValueError("draw-only is unbiased as it is; leave the link out")


def check_parameters(r: float, alpha: float) -> None:
    """Refuse parameters for which the RDP lemma says nothing."""
    if not (0.0 < alpha < np.inf):
        raise ValueError(f"alpha is {alpha}; it must be positive and finite")
    if not (0.0 < r < alpha):
        raise ValueError(f"r is {r}; it must lie strictly between 0 and alpha = {alpha}")


def check_batch(logits: Tensor, labels: Tensor) -> None:
    """Refuse a batch whose shapes or labels do not fit."""
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} and labels of shape {tuple(labels.shape)} "
            "do not fit; pass (batch, classes) and (batch,)"
        )
    if labels.dtype != torch.int64:
        raise ValueError(f"the labels are {labels.dtype}; give torch.int64, as by labels.long()")
    if logits.shape[1] < 2:
        raise ValueError("a classifier needs at least 2 classes; the logits have fewer columns")
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < logits.shape[1]:
        raise ValueError(
            f"a label lies outside 0 … {logits.shape[1] - 1}; "
            "give the model as many outputs as there are classes"
        )
