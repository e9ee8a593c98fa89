"""The transcript audit: what each release tells of the worst-case record, over what it may tell.

Every release of a training is heard: the exact sum and what came out. A second training with the
same seed, in which the planted record adds nothing to any sum, is given the first one's releases
in the place of its own. So both are in the same state in every step, and

- the difference of their exact sums is what the record adds, exactly;
- what came out less the exact sum is the noise, number by number;
- both end with the same weights, bit by bit, unless something but the releases carries the data.

The record's share over the noise's standard deviation is μ. Its band is that of a standard
deviation from so many numbers, exact for Gaussian noise. Whether the noise is Gaussian, and no
release repeats the noise of the one before, is tested beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats
from torch import nn
from torch.nn.modules.dropout import _DropoutNd as dropout

from simplexdp import data, methods
from simplexdp.accounting import events
from simplexdp.audit import bounds, claims, crafting, schedules, shadow, tradeoff
from simplexdp.settings import Settings

Array = npt.NDArray[np.float64]

# Trainings go on until each release has drawn so much noise: its deviation is known to 1.4 %.
NUMBERS = 2500
PAIRS = 6  # at least, so that each kind of record is tried twice
ASSUMES = (
    "noise and records meet in the named releases alone, the noise is Gaussian, and the planted "
    "record is the worst"
)
# For the tests of the noise's law: so many numbers of each release name are kept.
KEPT = 100_000


@dataclass
class Transcript:
    """What was heard of one training, in order; with `other`, its releases replace one's own."""

    other: Transcript | None = None
    names: list[str] = field(default_factory=list)
    exact: list[npt.NDArray[Any]] = field(default_factory=list)
    released: list[npt.NDArray[Any]] = field(default_factory=list)
    sigmas: list[float] = field(default_factory=list)

    def hear(
        self, name: str, exact: npt.NDArray[Any], released: npt.NDArray[Any], sigma: float
    ) -> npt.NDArray[Any]:
        """Note a release, and return what the training goes on with."""
        at = len(self.names)
        self.names.append(name)
        self.exact.append(np.array(exact))
        self.released.append(np.array(released))
        self.sigmas.append(sigma)
        if self.other is None:
            return released
        if self.other.names[at : at + 1] != [name] or self.other.exact[at].shape != exact.shape:
            raise ValueError(
                "with and without one record the releases differ in number or shape; call "
                "run.on_release with the same ones"
            )
        return self.other.released[at].copy()

    def noise(self) -> Iterator[tuple[str, Array]]:
        """Yield each release's noise in units of what it should be."""
        for name, exact, released, sigma in zip(
            self.names, self.exact, self.released, self.sigmas, strict=True
        ):
            yield name, ((released - exact) / sigma).ravel().astype(np.float64)

    def shares(self, without: Transcript) -> list[float]:
        """Return the norm of what the record adds to each release, over its noise."""
        pairs = zip(self.exact, without.exact, self.sigmas, strict=True)
        return [float(np.linalg.norm((a - b).astype(np.float64)) / sigma) for a, b, sigma in pairs]


@dataclass
class Heard:
    """What was heard of one name of releases, over all trainings."""

    claimed: float
    squares: float = 0.0
    count: int = 0
    kept: list[Array] = field(default_factory=list)
    last: dict[int, Array] = field(default_factory=dict)  # the latest of each size
    product: float = 0.0
    pairs: int = 0
    shares: list[list[float]] = field(default_factory=list)

    def add(self, noise: Array) -> None:
        """Count a release's noise."""
        self.squares += float(noise @ noise)
        self.count += noise.size
        if sum(part.size for part in self.kept) < KEPT:
            self.kept.append(noise)
        if (last := self.last.get(noise.size)) is not None:
            self.product += float(last @ noise)
            self.pairs += noise.size
        self.last[noise.size] = noise

    def mus(self, sampled: bool) -> list[float]:
        """Return μ of each training's record, were the noise as it should be.

        Where steps sample, it is that of a training in which every step takes the record.
        """
        taken = [sum(share > 0 for share in steps) for steps in self.shares]
        return [
            math.hypot(*steps) * (math.sqrt(len(steps) / max(1, count)) if sampled else 1.0)
            for steps, count in zip(self.shares, taken, strict=True)
        ]

    def result(self, sampled: float | None, level: float) -> dict[str, Any]:
        """Return the band on μ over its claim, and what the tests of the noise say."""
        taking_part = sum(share > 0 for training in self.shares for share in training)
        steps = sum(len(training) for training in self.shares)
        share = max(self.mus(sampled is not None)) / self.claimed
        deviation = math.sqrt(self.squares / self.count)
        low, high = (
            math.sqrt(self.squares / float(stats.chi2.ppf(q, self.count)))
            for q in (1.0 - level / 2.0, level / 2.0)
        )
        noise = np.concatenate(self.kept) / deviation
        # Of two releases' noise, each of so many independent numbers.
        repeated = self.product / (deviation**2 * math.sqrt(self.pairs)) if self.pairs else 0.0
        found = {
            "claimed_mu": self.claimed,
            "low": share / high,
            "high": share / low,
            "noise": [low, high],
            "share": share,
            "releases": steps,
            "numbers": self.count,
            "gaussian_p_value": float(stats.kstest(noise, "norm").pvalue),
            "fresh_p_value": 2.0 * float(stats.norm.sf(abs(repeated))),
        }
        if sampled is not None:
            found["sampled"] = list(bounds.interval(taking_part, steps, 1.0 - level))
            found["claimed_rate"] = sampled
        return found


def audit(
    settings: Settings,
    dataset: data.Dataset,
    rng: np.random.Generator,
    trials: int | None = None,
    confidence: float = 0.95,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Hear pairs of trainings, and return the band of each release and the bound on ε.

    `trials` are the pairs; without, `PAIRS` and as many more as it takes to hear `NUMBERS`.
    """
    method = methods.lookup(settings.method)
    method.check_null(settings, dataset.input_shape)
    records = crafting.subset(dataset, None, rng)
    heard: dict[str, Heard] = {}
    same = True
    pairs = 0

    def done() -> bool:
        if trials is not None:
            return pairs >= trials
        return pairs >= PAIRS and all(of.count >= NUMBERS for of in heard.values())

    while not done():
        (seed,) = shadow.seeds(1, rng)
        one = crafting.extreme(records, pairs, rng)
        pairs += 1
        planted = one.in_or_out(method.audited.removes)
        first = Transcript()
        inside = shadow.train(settings, planted.with_coins([True]), seed, on_release=first.hear)
        if not heard:
            _refuse_dropout(inside.initial)
            heard = {name: Heard(mu) for name, mu in inside.prepared.releases.items()}
            rate = _rate(inside.prepared.event)
        if set(first.names) != set(heard) or not heard:
            raise ValueError(
                f"{settings.method} names the releases {', '.join(heard) or 'none'} and made "
                f"{', '.join(dict.fromkeys(first.names)) or 'none'}; call run.on_release for each"
            )
        second = Transcript(first)
        outside = shadow.train(
            settings, planted.with_coins([False]), seed, planted.without([False]), second.hear
        )
        same = same and _equal(inside, outside)
        shares = first.shares(second)
        for name, of_name in heard.items():
            own = [s for s, n in zip(shares, first.names, strict=True) if n == name]
            of_name.shares.append(own)
        for name, noise in first.noise():
            heard[name].add(noise)
        advance()
    # Each band and each test has its share of the error, so that all of them hold together.
    level = (1.0 - confidence) / (len(heard) * (3 if rate is None else 4))
    found = {name: of_name.result(rate, level) for name, of_name in heard.items()}
    # Of the record that tells most in all: each release's own worst may be another's.
    scale = max(
        math.hypot(*(mu / found[name]["noise"][1] for name, mu in zip(heard, mus, strict=True)))
        for mus in zip(*(of.mus(rate is not None) for of in heard.values()), strict=True)
    ) / math.hypot(*(of.claimed for of in heard.values()))
    curves = tradeoff.family(inside.prepared.event, settings.delta, pairs=False)
    claim = claims.in_or_out(inside.statement, settings.delta)
    return {
        "epsilon_lower": curves(scale).epsilon if curves is not None else 0.0,
        "scale_lower": scale,
        "assumes": ASSUMES,
        "trials": pairs,
        "releases": found,
        "weights_follow": same,
        "suspicious": [name for name, result in found.items() if suspicious(result, level)],
        **schedules.told(inside, claim, len(records.train)),
    }


def contradicts(result: dict[str, Any]) -> bool:
    """Return whether a release tells more than it may, or the weights more than the releases."""
    return bool(
        any(found["low"] > 1.0 for found in result["releases"].values())
        or result["suspicious"]
        or not result["weights_follow"]
    )


def described(result: dict[str, Any]) -> str:
    """Return each release's band, and what else was seen, in a line."""
    bands = ", ".join(
        f"{name} {found['low']:.3f}–{found['high']:.3f}"
        for name, found in result["releases"].items()
    )
    text = f"μ over its claim: {bands}"
    if result["suspicious"]:
        text += f"; the noise or the sampling of {', '.join(result['suspicious'])} is not as said"
    if not result["weights_follow"]:
        text += "; the weights do not follow from the releases alone"
    return text


def suspicious(found: dict[str, Any], level: float) -> bool:
    """Return whether noise is seen to be less than the method says, not Gaussian or not fresh.

    Or whether the planted record is seen in more steps than the sampling rate says.
    """
    often = "sampled" in found and found["sampled"][0] > found["claimed_rate"]
    unlikely = min(found["gaussian_p_value"], found["fresh_p_value"]) < level
    return bool(often or unlikely or found["noise"][1] < 1.0)


def _refuse_dropout(model: nn.Module) -> None:
    """Refuse a network whose other records change when one is left out of a batch."""
    if any(isinstance(layer, dropout) and layer.p > 0 for layer in model.modules()):
        raise ValueError(
            "with dropout, leaving a record out changes the draws of all others; audit a network "
            "without it, or use --attack one-run"
        )


def _rate(event: Any) -> float | None:
    """Return the sampling rate of an event's steps, None where no step samples."""
    rates = {getattr(step, "sampling_probability", None) for step, _ in events.steps_of(event)}
    return rates.pop() if len(rates) == 1 else None


def _equal(one: shadow.Shadow, other: shadow.Shadow) -> bool:
    """Return whether two trainings ended with the same weights, bit by bit."""
    first, second = one.final.state_dict(), other.final.state_dict()
    return first.keys() == second.keys() and all(first[k].equal(second[k]) for k in first)
