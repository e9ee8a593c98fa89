"""Steps, clip, rate and shares of the budget, by rule from public numbers.

Everything here is a function of n, of the shape of the features and of μ, never of an accuracy.
Whitened features have a norm of 1, so T steps of rate η at noise multiplier σ = √T/μ add noise of
η·√T·σ·clip/n = H·clip/(n·μ) to a logit, with the horizon H = η·T: the number of steps drops out,
and what is chosen is the horizon. See docs/certified-proofs.md for what was looked at while the
constants were set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from simplexdp.linear import whitening
from simplexdp.linear.noisy_gd import Schedule

MEAN_SHARE = 0.02
MOMENT_SHARE = 0.15
CLIP = 0.5
# Logit noise H·clip/(n·μ) that the horizon aims at.
LOGIT_NOISE = 1.2
LARGEST_RATE = 400.0
# The Hessian of a softmax is at most half the second moment of the rows, so descent is stable below
# a rate of 4 over the largest eigenvalue of that moment.
STABLE = 4.0
FEWEST_STEPS, MOST_STEPS = 40, 240
# The ridge in units of 1/μ: the size of a one-dimensional release of the same budget.
RIDGE = 1.5
WIDTH = 2048
# Second moments whose noise is above so many of their mean eigenvalues say nothing.
NOISE_IN_MOMENTS = 4.0


@dataclass(frozen=True)
class Rule:
    """What a fit uses; shares are of μ², and what is left is for the steps.

    Attributes:
        schedule: Steps, clip and learning rate.
        mean_share: Share of the private mean.
        moment_share: Share of the second moments.
        ridge: Added to the moments before whitening.
        width: Coordinates kept at most.
        capped: Whether the rate is also held below `STABLE` over the largest eigenvalue that the
            released moments show; not where the user fixed it.

    Raises:
        ValueError: If nothing is left for the steps.
    """

    schedule: Schedule
    mean_share: float
    moment_share: float
    ridge: float
    width: int
    capped: bool = False

    def __post_init__(self) -> None:
        if min(self.mean_share, self.moment_share) < 0 or not self.step_share > 0:
            raise ValueError("the shares of mean and moments must leave a part for the steps")

    @property
    def step_share(self) -> float:
        """Return the share of the steps."""
        return 1.0 - self.mean_share - self.moment_share

    def stable(self, largest: float | None) -> Rule:
        """Return the rule with a rate that descent on rows of such moments bears."""
        if not self.capped or largest is None:
            return self
        lr = min(self.schedule.lr, STABLE / largest)
        return replace(self, schedule=replace(self.schedule, lr=lr))


def choose(
    records: int,
    mu: float,
    shape: tuple[int, int],
    *,
    steps: int | None = None,
    clip: float | None = None,
    lr: float | None = None,
    mean_share: float = MEAN_SHARE,
    moment_share: float | None = None,
    ridge: float | None = None,
    largest: float | None = None,
) -> Rule:
    """Return the rule, with whatever the user fixed instead.

    ``largest`` is the largest eigenvalue of the second moment of rows that public images whitened:
    they are not whitened again. Where no moments of the private rows are released, their largest
    eigenvalue may be far above that of public images, or of 1/d: the horizon is then cut into the
    most steps, which cost time alone, for the smallest rate.
    """
    if moment_share is None:
        pays = largest is None and moments_pay(records, mu, shape)
        moment_share = MOMENT_SHARE if pays else 0.0
    clip = CLIP if clip is None else clip
    if not (clip > 0 and math.isfinite(clip)):
        raise ValueError(f"the clip is {clip}; it must be positive")
    if steps is not None and steps < 1:
        raise ValueError(f"the number of steps is {steps}; at least 1 is needed")
    horizon = LOGIT_NOISE * records * mu / clip
    most = LARGEST_RATE if largest is None else min(LARGEST_RATE, STABLE / largest)
    if steps is None:
        fewest = MOST_STEPS if moment_share == 0 and lr is None else FEWEST_STEPS
        steps = int(min(max(math.ceil(horizon / (lr or most)), fewest), MOST_STEPS))
    capped = lr is None
    if lr is None:
        lr = min(horizon / steps, most)
    return Rule(
        Schedule(steps, clip, lr),
        mean_share,
        moment_share,
        RIDGE / mu if ridge is None else ridge,
        WIDTH,
        capped,
    )


def moments_pay(records: int, mu: float, shape: tuple[int, int]) -> bool:
    """Return whether second moments would stand out of their noise.

    The noise of a symmetric c×c release has a spectral norm of about √(2c) of its scale, and the
    eigenvalues of rows of norm 1 are n/c in the mean.
    """
    sigma = whitening.moment_scale(mu * math.sqrt(MOMENT_SHARE), shape[1])
    size = max(shape)
    return math.sqrt(2.0 * size) * sigma <= NOISE_IN_MOMENTS * records / size
