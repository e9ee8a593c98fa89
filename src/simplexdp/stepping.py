"""What the plans for a loop of one's own share: batches, counted steps, and no copies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.utils.data import DataLoader

from simplexdp import distributed, sampling
from simplexdp.batches import Data, Place, gather, size_of

# What was calibrated together stays together.
FIXED = ("epsilon", "delta", "records", "batch_size", "steps", "sample_rate", "alpha", "r", "order",
         "accountant", "estimator", "link", "link_bound", "clip", "noise_multiplier")  # fmt: skip


class BudgetExhausted(ValueError):
    """A step or a draw was asked for that the plan has not paid for."""


def steps_of(epochs: float, steps: int | None, records: int, batch_size: int) -> int:
    """Return the steps of so many passes over the data."""
    if steps is not None:
        raise ValueError("both steps and epochs are given; give one of them")
    if not 0 < epochs < float("inf"):
        raise ValueError(f"epochs is {epochs}; it must be positive")
    return max(1, round(epochs * records / batch_size))


class Stepped:
    """A schedule of Poisson batches, of which every step is counted and none is taken twice."""

    records: int
    batch_size: int
    steps: int
    sample_rate: float

    def _begin(self, seed: int | None) -> None:
        """Begin the schedule, with a secret seed unless one is given."""
        self.seed_known = seed is not None
        self._seed = sampling.fresh_seed() if seed is None else seed
        sampling.check_seed(self._seed)
        self.steps_done = 0
        self._draws_open = 0
        self._iteration = 0
        self._all_poisson = True
        self._process = os.getpid()

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuse to change what was calibrated together; the steps that are done may count."""
        if name in FIXED and name in self.__dict__:
            raise AttributeError(f"{name} was calibrated with the rest; make another Plan")
        super().__setattr__(name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse copy, deepcopy, pickle and whatever sends objects to other processes."""
        raise TypeError(
            "a copy of a plan would draw the same noise again; make another Plan for another "
            "training"
        )

    def batches(
        self, data: Data, workers: int = 0, label: Place = None
    ) -> Iterator[tuple[Any, Tensor]]:
        """Yield the Poisson batches of the steps that are left, and count each as a step.

        Args:
            data: A pair (inputs, labels) of tensors or arrays, or a map-style data set of pairs;
                with `label`, tuples or dictionaries of any form. Not a loader: the plan draws the
                batches itself.
            workers: Processes that read a data set ahead.
            label: Where a record has its label, such as 2, "y" or ("target", 0).

        Yields:
            Inputs and labels of one batch, or with `label` the whole batch and its labels; an
            empty batch is a step too.

        Raises:
            ValueError: If the data do not have the plan's number of records.
            BudgetExhausted: If all steps are spent, or another iteration has begun.

        Example:
            >>> import torch
            >>> from simplexdp import Plan
            >>> plan = Plan(epsilon=1.0, delta=1e-5, records=1000, batch_size=4, steps=3)
            >>> len(list(plan.batches((torch.zeros(1000, 2), torch.zeros(1000, dtype=torch.long)))))
            3
        """
        if isinstance(data, DataLoader | list | Tensor):
            raise ValueError(
                f"the plan draws the batches itself: give it the data set or a tuple (inputs, "
                f"labels), not a {type(data).__name__}"
            )
        if distributed.world() > 1:
            raise ValueError(
                f"each of {distributed.world()} processes would draw a whole batch a step where "
                "one is accounted for; train in several with torchrun -m simplexdp train"
            )
        size = size_of(data)
        if size != self.records:
            raise ValueError(
                f"the plan is for {self.records} records and the data has {size}; "
                "make a plan for this data"
            )
        self._refuse_beyond_schedule()
        self._iteration += 1
        iteration = self._iteration
        indices = sampling.poisson_batches(
            self.records, self.sample_rate, self.steps, self._seed, self.steps_done
        )
        for batch in gather(data, indices, workers, label):
            if iteration != self._iteration:
                # Two iterations at once would give the same batch to two steps.
                raise BudgetExhausted(
                    "another iteration over this plan's batches has begun; go on with that one"
                )
            self.begin_step(len(batch[1]), poisson=True)
            self._hand_out(batch)
            yield batch

    def begin_step(self, batch_records: int, poisson: bool = False) -> int:
        """Count a step for a batch of your own; its number keys the step's randomness.

        Args:
            batch_records: How many records the batch has, so how many draws the loss may make.
            poisson: Whether every record entered independently at the plan's rate; the statement
                repeats it.

        Returns:
            The number of the step.

        Raises:
            BudgetExhausted: If all steps are spent.
        """
        self._refuse_beyond_schedule()
        self._all_poisson = self._all_poisson and poisson
        self.steps_done += 1
        self._draws_open = batch_records
        return self.steps_done - 1

    def _hand_out(self, batch: Any) -> None:
        """Take note of the batch of the step that has begun."""

    def _refuse_elsewhere(self) -> None:
        if self._process != os.getpid():
            raise BudgetExhausted(
                "this is another process than the plan's and would draw the same noise again; make "
                "a Plan in the process that trains"
            )

    def _refuse_beyond_schedule(self) -> None:
        self._refuse_elsewhere()
        if self.steps_done >= self.steps:
            raise BudgetExhausted(
                f"all {self.steps} steps of the plan are spent; make a new plan and add its cost"
            )

    def resume_at(self, step: int) -> None:
        """Go on after `step` finished steps, with the randomness that belongs to the next.

        Args:
            step: Finished steps, as `steps_done` was when the checkpoint was written.

        Raises:
            ValueError: If the plan is past that step, or has fewer.
        """
        if not self.steps_done <= step <= self.steps:
            raise ValueError(f"cannot go from step {self.steps_done} to {step} of {self.steps}")
        self.steps_done, self._draws_open = step, 0
