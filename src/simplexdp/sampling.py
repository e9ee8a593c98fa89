"""Poisson batches, at a cost set by the batch and not by the data set.

Randomness is addressed by counter: what happens in step t is a function of (seed, purpose, t).
A run that was cut off therefore goes on at step t with nothing but the seed, and no step is
ever drawn twice from different states.

Formal guarantee
----------------
Statement: `poisson_batch` includes each of `records` records independently with probability
    `sample_rate`; batches of different steps are independent.  This is PoissonSample
    (Definition 4 of the paper; Zhu and Wang, 2019), the sampling that the subsampled
    accountants assume.
Argument: the gaps between successive members of a Bernoulli(q) sequence are independent
    Geometric(q) variables, and conversely; drawing the gaps costs O(q·records).
Assumptions: numpy's Philox stream behaves as independent uniform bits, its geometric sampler is
    exact to double precision, and the seed is secret.  Philox is a statistical generator with a
    128-bit key, not a cipher that was analysed as one.
"""

from __future__ import annotations

import math
import secrets
import zlib
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

POOL_WORDS = 4  # of numpy's SeedSequence
Indices = npt.NDArray[np.int64]


def fresh_seed() -> int:
    """Return a secret 128-bit seed from the operating system."""
    return secrets.randbits(128)


def stream(seed: int, purpose: str, step: int) -> np.random.Generator:
    """Return the generator for one purpose ("batch", "noise", …) in one step of one run."""
    return np.random.Generator(_philox(seed, purpose, step))


def first_word(seed: int, purpose: str, step: int) -> int:
    """Return the first 64 bits of a stream, without making a generator around it."""
    return int(_philox(seed, purpose, step).random_raw())


def _philox(seed: int, purpose: str, step: int) -> np.random.Philox:
    """Return Philox under the key SeedSequence(entropy=seed, spawn_key=(crc32 of purpose, step)).

    The words that numpy makes of these are put together here, in a third of the time.
    """
    words = [*_words(seed), *_word(zlib.crc32(purpose.encode())), *_word(step)]
    return np.random.Philox(np.random.SeedSequence(np.array(words, dtype=np.uint32)))


@lru_cache(maxsize=8)
def _words(seed: int) -> tuple[int, ...]:
    """Return the words of a seed, at least as many as SeedSequence's pool has."""
    check_seed(seed)
    words = _word(int(seed))
    return words + (0,) * (POOL_WORDS - len(words))


def _word(number: int) -> tuple[int, ...]:
    """Return a whole number as words of 32 bits, the lowest first."""
    if number < 2**32:
        return (number,)
    return (number & 0xFFFFFFFF, *_word(number >> 32))


def poisson_batch(
    records: int,
    sample_rate: float,
    rng: np.random.Generator,
    gaps_at_once: int | None = None,
) -> Indices:
    """Return the sorted indices of one Poisson batch; an empty one is still a step."""
    check_sampling(records, sample_rate)
    if gaps_at_once is None:
        mean = records * sample_rate
        # Six deviations of head room: one round of gaps suffices but for 1e-9 of all batches.
        gaps_at_once = int(mean + 6.0 * math.sqrt(mean) + 16)
    taken: list[Indices] = []
    position = -1
    while position < records:
        gaps = rng.geometric(sample_rate, size=gaps_at_once)
        # A gap beyond the data set ends the batch; cutting it there keeps the sum within int64.
        members = position + np.cumsum(np.minimum(gaps, records + 1), dtype=np.int64)
        taken.append(members[members < records])
        position = int(members[-1])
    return np.concatenate(taken)


def batch_of_step(records: int, sample_rate: float, seed: int, step: int) -> Indices:
    """Return the Poisson batch of one step of a run, a function of the run's seed."""
    return poisson_batch(records, sample_rate, stream(seed, "batch", step))


def poisson_batches(
    records: int, sample_rate: float, steps: int, seed: int, start: int = 0
) -> Iterator[Indices]:
    """Yield the batches of steps start … steps-1; any `start` gives the same batches as 0."""
    for step in range(start, steps):
        yield batch_of_step(records, sample_rate, seed, step)


def check_sampling(records: int, sample_rate: float) -> None:
    """Refuse a sampling rate or a size that is not one."""
    if records < 1:
        raise ValueError(f"the data set has {records} records; at least 1 is needed")
    if not 0.0 < sample_rate < 1.0:
        raise ValueError(
            f"the sampling rate is {sample_rate}; it must lie strictly between 0 and 1 "
            "(choose a batch size below the number of records)"
        )


def check_seed(seed: int) -> None:
    """Refuse a seed that numpy would not take."""
    if seed < 0 or seed != int(seed):
        raise ValueError(f"seed is {seed}; give an integer of 0 or more")
