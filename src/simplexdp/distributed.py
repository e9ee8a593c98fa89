"""One model trained by several processes: shards of one Poisson batch, one accountant.

Started with `torchrun --nproc-per-node N -m simplexdp train …`, every process (rank) draws the
same global batch, which is a function of (seed, step), and keeps the records of its own shard.
Gradients are weighted by the records of the global batch, so the update is the one that a
single process would make, and one plan accounts for it.

Formal guarantee
----------------
Statement: the records that rank k keeps are a Poisson sample, at the plan's rate, of its shard;
    the samples of different ranks are independent and their union is the global Poisson batch.
Argument: Poisson sampling decides every record by a coin of its own.  Restricting the decisions
    to a fixed part of the records keeps exactly the coins of that part, and disjoint parts have
    disjoint coins.  The shards (record i belongs to rank i mod N) do not depend on the data, so
    accounting for the global batch at its rate accounts for all ranks together.
Assumptions: all ranks have the same seed (`agree`) and the same records (`check_same`), and each
    rank draws its noise and its dropout from streams of its own (`own_seed`): shared between ranks
    they would tie two records to each other, which the accountants exclude.
A method that sums over all records in every step (`certified`) has a part of the rows in each
process instead (`part`). Its sums are whole numbers, added exactly (`everywhere`), and its noise is
drawn once, by the first process, and sent to the others (`same_bits`): all of them know the exact
sums and the noise, so the processes and what connects them must be as trusted as one.
Batch normalisation sees the shard and not the batch, so with it N ranks train another model than
one process does; with group normalisation they train the same one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from simplexdp import sampling
from simplexdp.noise import Bits

SEED_BYTES = 64


def rank() -> int:
    """Return the number of this process, 0 where it is alone; torchrun's outside the group."""
    if distributed.is_initialized():
        return distributed.get_rank()
    return int(os.environ.get("RANK", "0"))


def launched() -> int:
    """Return how many processes torchrun has started, in a group or not yet."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def world() -> int:
    """Return how many processes train together."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def is_first() -> bool:
    """Return whether this is the process that writes files and talks to the person."""
    return rank() == 0


@contextmanager
def group(device: str) -> Iterator[None]:
    """Join the processes that torchrun started; without torchrun, or inside a group, nothing."""
    if launched() < 2 or distributed.is_initialized():
        yield
        return
    backend = "nccl" if device.startswith("cuda") else "gloo"
    if backend == "nccl":
        torch.cuda.set_device(device)  # what is sent lies on the card of this process
    distributed.init_process_group(backend, timeout=timedelta(minutes=30))
    try:
        yield
    finally:
        distributed.destroy_process_group()


def local_device(device: str) -> str:
    """Return the device of this process: under torchrun, the card of its number for `cuda`."""
    if device == "cuda" and "LOCAL_RANK" in os.environ:
        return f"cuda:{os.environ['LOCAL_RANK']}"
    return device


def shard(indices: sampling.Indices) -> sampling.Indices:
    """Return this process's members of a global batch: record i is of rank i mod N."""
    return indices if world() == 1 else indices[indices % world() == rank()]


def part(blocks: Sequence[slice]) -> slice:
    """Return this process's part of blocks that follow each other: a run of them, maybe empty."""
    first, last = (len(blocks) * k // world() for k in (rank(), rank() + 1))
    return slice(blocks[first].start, blocks[last - 1].stop) if first < last else slice(0, 0)


def everywhere(total: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the sum of whole numbers over all processes, on each of them."""
    if world() == 1:
        return total
    sent = torch.from_numpy(total.copy()).to(_device())
    distributed.all_reduce(sent)
    return np.asarray(sent.cpu().numpy())


def same_bits(bits: Bits) -> Bits:
    """Return the first process's source of random bits, for all of them to call together."""
    if world() == 1:
        return bits

    def shared(count: int) -> npt.NDArray[np.uint64]:
        drawn = bits(count).copy() if is_first() else np.zeros(count, dtype=np.uint64)
        sent = torch.from_numpy(drawn.view(np.int64)).to(_device())
        distributed.broadcast(sent, src=0)
        return np.asarray(sent.cpu().numpy()).view(np.uint64)

    return shared


def agree(seed: int) -> int:
    """Return the seed of the first process, on all of them."""
    if world() == 1:
        return seed
    if seed.bit_length() > 8 * SEED_BYTES:
        raise ValueError(f"the seed has more than {8 * SEED_BYTES} bits; give a smaller one")
    sent = torch.tensor(list(seed.to_bytes(SEED_BYTES, "big")), device=_device())
    distributed.broadcast(sent, src=0)
    return int.from_bytes(sent.tolist(), "big")


OTHER_RECORDS = (
    "the processes do not have the same training records; "
    "give all of them the same files, since each takes its share of every batch"
)


def check_same(fingerprint: str, otherwise: str = OTHER_RECORDS) -> None:
    """Refuse, on all processes alike, where they do not have the same training records.

    A rate and a noise that fit the records of one would be applied to those of another.

    Args:
        fingerprint: Of what has to be the same.
        otherwise: What is said where it is not.
    """
    if world() == 1:
        return
    digest = hashlib.sha256(fingerprint.encode()).digest()
    least = torch.tensor(list(digest), device=_device())
    most = least.clone()
    distributed.all_reduce(least, op=distributed.ReduceOp.MIN)
    distributed.all_reduce(most, op=distributed.ReduceOp.MAX)
    if not torch.equal(least, most):
        raise ValueError(otherwise)


def own_seed(seed: int) -> int:
    """Return a seed of this process's own; the first one keeps the run's."""
    if world() == 1 or is_first():
        return seed
    words = sampling.stream(seed, "rank", rank()).integers(0, 2**32, size=4)
    return sum(int(word) << (32 * i) for i, word in enumerate(words))


def parallel(model: nn.Module) -> nn.Module:
    """Return the model as training calls it: torch's DistributedDataParallel, or itself."""
    if world() == 1:
        return model
    return DistributedDataParallel(model)


def descend(
    model: nn.Module,
    optimizer: Optimizer,
    criterion: Callable[[Tensor, Tensor], Tensor],
    inputs: Tensor,
    labels: Tensor,
) -> float | None:
    """Step down the mean loss of the global batch; return this shard's loss, None if empty.

    `model` is what `parallel` gave. Without records in any shard, the step changes nothing.
    """
    everywhere = batch_records(len(labels))
    if everywhere == 0:
        return None
    optimizer.zero_grad(set_to_none=True)
    loss = criterion(forward(model, inputs), labels)
    backward(loss, len(labels), everywhere)
    optimizer.step()
    return float(loss.detach())


def batch_records(here: int) -> int:
    """Return the number of records of the global batch."""
    if world() == 1:
        return here
    count = torch.tensor([here], device=_device())
    distributed.all_reduce(count)
    return int(count)


def forward(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return logits; an empty shard takes part without touching running statistics."""
    if len(inputs) == 0:
        model.eval()
    logits: Tensor = model(inputs)
    return logits


def backward(loss: Tensor, here: int, everywhere: int) -> None:
    """Back-propagate this shard's mean loss, so that the gradient is the global batch's mean.

    DistributedDataParallel divides the sum over ranks by N; the weight N·here/everywhere turns
    its mean of means into the mean over all records.
    """
    if world() > 1:
        loss = loss * (world() * here / everywhere)
    loss.backward()


def _device() -> torch.device:
    on_gpu = distributed.get_backend() == "nccl"
    return torch.device("cuda" if on_gpu else "cpu")
