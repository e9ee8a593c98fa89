"""A privacy plan: r calibrated to a budget once, with the matching sampler, loss and claim.

Because sampler, loss and accountant come from one object, the mechanism that runs is the one
that is accounted: a step beyond the schedule, or more draws in a step than its batch has records,
is refused. That the draws of a step are of different records, one each, is up to the loop.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from simplexdp import accounting, mechanism, sampling
from simplexdp.accounting import events
from simplexdp.accounting.totals import COUPLED
from simplexdp.claims import (
    DRAWS,
    LABELS_ARE_PUBLIC,
    Assumption,
    Coverage,
    common_assumptions,
    large_delta,
)
from simplexdp.loss import PrivateLoss
from simplexdp.rounding import rounded_down, rounded_up
from simplexdp.schedule import (
    EFFECTIVE_LEARNING_RATE,
    LEAST_USEFUL_R,
    TYPICAL_TRUE_CLASS_PROBABILITY,
    largest_useful_rate,
    rate_for,
    schedule,
)
from simplexdp.settings import OPTIMIZERS
from simplexdp.statement import Statement
from simplexdp.stepping import BudgetExhausted, Stepped, steps_of

if TYPE_CHECKING:
    from dp_accounting import DpEvent

WEIGHTS_NOT_COVERED = (
    "The released weights.  Back-propagation is not post-processing of the draws: the gradient "
    "contains the derivative of the logits with respect to the weights, which is evaluated at "
    "the raw input.  In a linear first layer the input is exactly the ratio of the weight "
    "gradient to the bias gradient, whatever r is."
)

VARIANT = (
    "The link {link} with B = {bound:g} stands between softmax and mechanism: a variant, and not "
    "Algorithm 1 as published. The lemma and every bound hold for any two vectors of the simplex "
    "at the same public label, and cover what they cover without it."
)
DRAW_ONLY = (
    "The error in the logits is (p·(r + dα) − α)/r − e_y, a function of draw and label alone. The "
    "derivative of the logits with respect to the weights, by which it is multiplied, still reads "
    "the raw input."
)


class Plan(Stepped):
    """A budget for Algorithm 1 in a training loop of your own, and everything that follows from it.

    The plan calibrates the scale r of the Dirichlet mechanism to a budget, and hands out the
    batches, the loss, the learning rate and the statement that belong to it. **Its bound covers
    the draws, and not the trained weights.** A plan is for one training: it cannot be copied,
    pickled or used in another process, since that would repeat its noise.

    Args:
        epsilon (float): Budget ε of the whole schedule.
        delta (float): Budget δ; choose it far below 1 / `records`.
        records (int): Number of training records, which is public.
        batch_size (int, optional): Expected records in a batch; by rule unless given.
        steps (int, optional): Number of batches; by rule unless given.
        epochs (float, optional): Passes over the data, for `steps`.
        alpha (float, default 3.0): Concentration α of the mechanism.
        accountant (str, default "theorem1"): One of `simplexdp.accounting.ACCOUNTANTS`.
        estimator (str, default "marginal"): "marginal" draws the true class's coordinate alone,
            "full" the whole vector; the loss has the same distribution. "draw-only" descends along
            an error in the logits that is a function of draw and label alone.
        link (str, default "softmax"): What the mechanism is given of a softmax output: the output
            itself, or with "log" a variant whose gradient is near that of the cross entropy.
        link_bound (float, default 10.0): B of the link "log".
        seed (int, optional): Makes the training reproducible, and no longer private. Unless given,
            a secret seed comes from the operating system.

    Attributes:
        r (float): The calibrated scale: the largest that meets the budget.
        epsilon (float): What the whole schedule costs, at most the budget.
        order (int or None): The Rényi order that gave `epsilon`, for accountants that have one.
        batch_size (int): Expected records in a batch.
        steps (int): Number of batches.
        sample_rate (float): `batch_size` / `records`.
        steps_done (int): Steps taken so far.

    Raises:
        ValueError: If no useful r meets the budget, or an argument is outside its range.

    Example:
        >>> import torch
        >>> from simplexdp import Plan
        >>> inputs, labels = torch.randn(1000, 20), torch.randint(0, 3, (1000,))
        >>> model = torch.nn.Linear(20, 3)
        >>> plan = Plan(epsilon=1.0, delta=1e-5, records=1000, batch_size=4, steps=10)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=plan.learning_rate())
        >>> criterion = plan.loss()
        >>> for x, y in plan.batches((inputs, labels)):
        ...     optimizer.zero_grad()
        ...     criterion(model(x), y).backward()
        ...     optimizer.step()
        >>> plan.steps_done, plan.epsilon <= 1.0, plan.statement().covers_weights
        (10, True, False)
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        records: int,
        *,
        batch_size: int | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        alpha: float = 3.0,
        accountant: str = "theorem1",
        estimator: mechanism.Estimator = "marginal",
        link: mechanism.Link = "softmax",
        link_bound: float = mechanism.LINK_BOUND,
        seed: int | None = None,
    ) -> None:
        accounting.lookup(accountant)
        mechanism.check_link(estimator, link, link_bound)
        of = (records, epsilon, delta)
        if epochs is not None:
            batch_size, _ = schedule(*of, batch_size, steps, alpha, accountant)
            steps = steps_of(epochs, steps, records, batch_size)
        self.batch_size, self.steps = schedule(*of, batch_size, steps, alpha, accountant)
        self.records = records
        self.delta = delta
        self.alpha = alpha
        self.accountant = accountant
        self.estimator = estimator
        self.link = link
        self.link_bound = link_bound
        self.sample_rate = self.batch_size / records
        sampling.check_sampling(records, self.sample_rate)
        self.r, self.epsilon, self.order = self._calibrate(epsilon)
        self._begin(seed)

    def _calibrate(self, epsilon: float) -> tuple[float, float, int | None]:
        schedule = self._schedule(self.steps)
        found = accounting.calibrate(self.accountant, epsilon=epsilon, **schedule)
        least = LEAST_USEFUL_R * self.alpha
        if found.r >= least:
            return found.r, found.epsilon, found.order
        floor = accounting.account(self.accountant, r=least, **schedule).epsilon
        rate = largest_useful_rate(self.accountant, epsilon, self.delta, self.alpha, self.steps)
        limit = int(rate * self.records)
        batch = f"a batch size of at most {limit}" if limit >= 1 else "more records"
        raise ValueError(
            f"epsilon = {epsilon:g} leaves no useful r at batch size {self.batch_size} for "
            f"{self.steps} steps; use {batch}, fewer steps, or an epsilon of "
            f"{rounded_up(floor, 3)}"
        )

    def _schedule(self, steps: int) -> dict[str, Any]:
        rate = {"sample_rate": self.sample_rate, "steps": steps}
        return {"delta": self.delta, "alpha": self.alpha, **rate}

    def learning_rate(self, optimizer: str = "sgd") -> float:
        """Return the learning rate by rule.

        For plain descent it is γ = γ_eff / κ at s_y = 0.9, which undoes the mechanism's
        attenuation κ (Theorem 2); adaptive methods have their customary rate.

        Args:
            optimizer: One of `simplexdp.settings.OPTIMIZERS`.

        Returns:
            The rate, without a warm-up.

        Raises:
            ValueError: If the optimizer is unknown.

        Example:
            >>> from simplexdp import Plan
            >>> plan = Plan(epsilon=1.0, delta=1e-5, records=60_000, batch_size=250, steps=9600)
            >>> round(plan.learning_rate(), 2), plan.learning_rate("adam")
            (0.89, 0.001)
        """
        if optimizer not in OPTIMIZERS:
            raise ValueError(f"unknown optimizer {optimizer!r}; use one of {', '.join(OPTIMIZERS)}")
        return rate_for(optimizer, EFFECTIVE_LEARNING_RATE / self.attenuation)

    @property
    def attenuation(self) -> float:
        """κ at s_y = 0.9: about what a gradient is of the cross entropy's."""
        if self.estimator == "draw-only":
            return 1.0
        typical = TYPICAL_TRUE_CLASS_PROBABILITY
        return float(mechanism.attenuation(typical, self.r, self.alpha, self.link, self.link_bound))

    def loss(self, class_weights: ArrayLike | None = None) -> PrivateLoss:
        """Return the perturbed loss, to be called with logits and labels once for each batch.

        Args:
            class_weights: One weight a class, such as `balanced_weights`; they multiply the losses
                after the draws. Where they follow from public facts the bound is the same.

        Returns:
            A callable (logits, labels) that gives the mean loss of a batch.

        Raises:
            ValueError: If a weight is negative or not finite.

        Example:
            >>> import torch
            >>> from simplexdp import Plan
            >>> plan = Plan(epsilon=1.0, delta=1e-5, records=1000, batch_size=4, steps=3)
            >>> logits = torch.zeros(2, 3, requires_grad=True)
            >>> step = plan.begin_step(2)
            >>> plan.loss()(logits, torch.tensor([0, 1])).backward()
            >>> logits.grad.shape
            torch.Size([2, 3])
        """
        return PrivateLoss(self, class_weights)

    def noise(self, batch_records: int) -> np.random.Generator:
        """Return the generator for the draws of so many records of the current batch.

        Records are counted and not told apart: give each of the batch's to the loss once.

        Args:
            batch_records: How many records the draws are for.

        Returns:
            A generator of numpy's.

        Raises:
            BudgetExhausted: If the batch has fewer records left.
        """
        self._refuse_elsewhere()
        if batch_records > self._draws_open:
            raise BudgetExhausted(
                "the loss was asked for more draws than the current batch has records; "
                "call it once for each batch that plan.batches() gives"
            )
        rng = sampling.stream(self._seed, f"noise-{self._draws_open}", self.steps_done)
        self._draws_open -= batch_records
        return rng

    def epsilon_spent(self, steps: int | None = None) -> float:
        """Return what the steps so far have cost at this plan's r and δ.

        Args:
            steps: Another number of steps.

        Returns:
            ε of these steps, by the plan's accountant.
        """
        steps = self.steps_done if steps is None else steps
        if steps == 0:
            return 0.0
        if steps == self.steps:
            return self.epsilon
        return accounting.account(self.accountant, r=self.r, **self._schedule(steps)).epsilon

    def event(self) -> DpEvent:
        """Return what all steps of the plan are charged in a ledger (`Ledger.reserve`).

        Returns:
            A `dp_accounting.DpEvent`, known before the first step.
        """
        return self._event(self.steps)

    def _event(self, steps: int) -> DpEvent:
        participation = accounting.lookup(self.accountant).participation
        return events.dirichlet(self.r, self.alpha, self.sample_rate, steps, participation)

    def _bound(self, event: DpEvent) -> float:
        """Return ε of an event of this plan's own, by its accountant."""
        steps = getattr(event, "count", 0)
        if steps and event != self._event(steps):
            raise ValueError("the event is not this plan's; ask the plan that made it")
        return self.epsilon_spent(steps)

    def coverage(
        self,
        *,
        separate: bool | None = None,
        computed_from_data: Sequence[str] = (),
        poisson: bool | None = None,
    ) -> Coverage:
        """Return what the bound of this plan's events covers.

        Args:
            separate: Whether a record's softmax output depends on that record alone; None where
                it is not known.
            computed_from_data: What was computed from the private inputs before the training.
            poisson: Whether all batches are Poisson samples; as seen so far unless given.

        Returns:
            The coverage, which a claim is made of together with an event of the plan.
        """
        accountant = accounting.ACCOUNTANTS[self.accountant]
        poisson = self._all_poisson if poisson is None else poisson
        holds = {
            accounting.THROUGH_DRAWS: False,  # Algorithm 1 back-propagates through raw inputs
            accounting.POISSON: True if poisson else None,
            accounting.SECRET_BATCHES: False if self.seed_known else None,
            accounting.SEPARATE: separate,
        }
        marks = {accounting.SEPARATE: COUPLED}
        link = {"link": self.link, "link_bound": self.link_bound}
        return Coverage(
            method="dirichlet (Algorithm 1)",
            covers=DRAWS,
            accountant=accountant.title,
            epsilon=self._bound,
            delta=self.delta,
            relation=accountant.relation,
            sampling=("" if poisson else "not seen; the bound is for ")
            + f"Poisson, rate {self.batch_size}/{self.records}",
            covered=("the sequence of Dirichlet draws, if every assumption below held",),
            not_covered=(
                WEIGHTS_NOT_COVERED,
                "Predictions of the trained model, its checkpoints and its test accuracy.",
                LABELS_ARE_PUBLIC,
            ),
            assumptions=(
                *(
                    Assumption(text, holds.get(text), marks.get(text, ""))
                    for text in accountant.assumptions
                ),
                *common_assumptions(self.seed_known, computed_from_data),
            ),
            mechanism={
                "name": "Dirichlet",
                "r": self.r,
                "alpha": self.alpha,
                "estimator": self.estimator,
                **({} if self.link == "softmax" else link),
            },
        )

    def notes(self) -> tuple[str, ...]:
        """Return what a statement says beside the claim.

        Returns:
            Sentences, none of them where there is nothing to add.
        """
        variant = VARIANT.format(link=self.link, bound=self.link_bound)
        return (
            *large_delta(self.delta, self.records),
            *([] if self.link == "softmax" else [variant]),
            *([DRAW_ONLY] if self.estimator == "draw-only" else []),
        )

    def statement(
        self,
        *,
        separate: bool | None = None,
        computed_from_data: Sequence[str] = (),
        notes: Sequence[str] = (),
    ) -> Statement:
        """Return what may be claimed after the steps so far.

        Args:
            separate: Whether a record's softmax output depends on that record alone; None where
                it is not known.
            computed_from_data: What was computed from the private inputs before the training.
            notes: Sentences to add.

        Returns:
            The statement, which says too what is not covered.
        """
        done = self._event(self.steps_done) if self.steps_done else events.nothing()
        coverage = self.coverage(separate=separate, computed_from_data=computed_from_data)
        return Statement.of(done, coverage, self.steps_done, (*notes, *self.notes()))

    def __repr__(self) -> str:
        return (
            f"<Plan: ε = {rounded_up(self.epsilon)}, δ = {self.delta:g} ({self.accountant}), "
            f"r = {rounded_down(self.r)}, {self.steps_done} of {self.steps} steps, "
            f"batches of {self.batch_size} of {self.records} records>"
        )

    def _repr_html_(self) -> str:
        return f"<p><b>Plan</b> {html.escape(repr(self)[6:-1])}</p>"
