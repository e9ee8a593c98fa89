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
import threading
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

POOL_WORDS = 4  # of numpy's SeedSequence
UINT32 = 2**32 - 1
Indices = npt.NDArray[np.int64]


def fresh_seed() -> int:
    """Return a secret 128-bit seed from the operating system."""
    return secrets.randbits(128)


def stream(seed: int, purpose: str, step: int) -> np.random.Generator:
    """Return the generator for one purpose ("batch", "noise", …) in one step of one run."""
    key: Any = _Key(_key(seed, purpose, step))  # numpy's types know no other SeedSequence
    return np.random.Generator(np.random.Philox(key))


def first_word(seed: int, purpose: str, step: int) -> int:
    """Return the first 64 bits of a stream, without making a generator around it."""
    return int(_moved(seed, purpose, step).bit_generator.random_raw())


class _Key(np.random.bit_generator.ISeedSequence):
    """A key that is there already, where numpy would derive one."""

    def __init__(self, key: tuple[int, int]) -> None:
        self.key = key

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> npt.NDArray[Any]:
        return np.array(self.key, dtype=np.uint64)


class _Mine(threading.local):
    """A generator of this thread's own, for those who need no one's but for a moment."""

    def __init__(self) -> None:
        self.generator = np.random.Generator(np.random.Philox(0))


_mine = _Mine()


def _moved(seed: int, purpose: str, step: int) -> np.random.Generator:
    """Return this thread's generator at the beginning of a stream; it is anyone's afterwards.

    To move one costs a tenth of making one.
    """
    _mine.generator.bit_generator.state = {
        "bit_generator": "Philox",
        "state": {"counter": (0, 0, 0, 0), "key": _key(seed, purpose, step)},
        "buffer": (0, 0, 0, 0),
        "buffer_pos": 4,
        "has_uint32": 0,
        "uinteger": 0,
    }
    return _mine.generator


def _key(seed: int, purpose: str, step: int) -> tuple[int, int]:
    """Return the key that SeedSequence(entropy=seed, spawn_key=(crc32 of purpose, step)) gives.

    numpy mixes one word after the other into a pool of four; here that of the seed is kept, and
    the words of purpose and step are mixed in as numpy does it.
    """
    pool, mask = _pool(seed)
    for word in (zlib.crc32(purpose.encode()), *_word(step)):
        mixed = []
        for held in pool:
            hashed = word ^ mask
            mask = mask * 0x931E8875 & UINT32
            hashed = hashed * mask & UINT32
            held = (0xCA01F9DD * held - 0x4973F715 * (hashed ^ hashed >> 16)) & UINT32
            mixed.append(held ^ held >> 16)
        pool = tuple(mixed)
    key, mask = [], 0x8B51F9DD
    for held in pool:
        hashed = held ^ mask
        mask = mask * 0x58F38DED & UINT32
        hashed = hashed * mask & UINT32
        key.append(hashed ^ hashed >> 16)
    return key[0] | key[1] << 32, key[2] | key[3] << 32


@lru_cache(maxsize=8)
def _pool(seed: int) -> tuple[tuple[int, ...], int]:
    """Return numpy's pool after the words of a seed, and the mask of the next word."""
    check_seed(seed)
    words = _word(int(seed))
    words += (0,) * (POOL_WORDS - len(words))
    pool = np.random.SeedSequence(np.array(words, dtype=np.uint32)).pool
    # Every word but the first ones is mixed into each of the pool's; the first, once and with
    # each of the three others.
    mask = 0x43B0D7E5 * pow(0x931E8875, POOL_WORDS * len(words), 2**32) & UINT32
    return tuple(int(word) for word in pool), mask


def _word(number: int) -> tuple[int, ...]:
    """Return a whole number as words of 32 bits, the lowest first."""
    if number < 2**32:
        return (number,)
    return (number & UINT32, *_word(number >> 32))


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
        members = np.minimum(gaps, records + 1, out=gaps).cumsum()
        members += position
        position = int(members[-1])
        taken.append(members[: members.searchsorted(records)])
    return taken[0] if len(taken) == 1 else np.concatenate(taken)


def batch_of_step(records: int, sample_rate: float, seed: int, step: int) -> Indices:
    """Return the Poisson batch of one step of a run, a function of the run's seed."""
    return poisson_batch(records, sample_rate, _moved(seed, "batch", step))


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
