"""Schedules of schedules: one after the other, or all at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError

from ... import arrays as xp
from ...core.tensor import Tensor
from ...nn.parameter import Writes
from ..optimizer import Optimizer
from .base import LRScheduler, Number, as_float64
from .plateau import ReduceLROnPlateau


class _Combined(LRScheduler):
    """Base class of schedules of schedules, which all belong to one optimizer."""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], last_epoch: int = -1) -> None:
        name = type(self).__name__
        for number, schedule in enumerate(schedulers):
            if not isinstance(schedule, LRScheduler):
                raise TypeError(f"{name} at index {number} should have `optimizer` as its attribute.")
            if isinstance(schedule, ReduceLROnPlateau):
                raise ArgumentError(
                    f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional kwargs to be "
                    f"specified when calling `step`, but got one at index {number} in the given schedulers sequence."
                )
            if schedule.optimizer is not optimizer:
                raise ArgumentError(
                    f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                    f"{type(schedule).__name__} at index {number}, which has another one."
                )
        self._schedulers = list(schedulers)
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """The state of each schedule, and under "_schedulers" the states of those that it has."""
        return {**super().state_dict(), "_schedulers": [schedule.state_dict() for schedule in self._schedulers]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the schedules, the count, and the rate that belongs to them (ArgumentError for other schedules)."""
        states = state_dict.get("_schedulers", [])
        if len(states) != len(self._schedulers):
            raise ArgumentError(
                f"{type(self).__name__}.load_state_dict: has {len(self._schedulers)} schedules, the state {len(states)}"
            )
        for schedule, state in zip(self._schedulers, states, strict=True):
            schedule.load_state_dict(state)
        # PyTorch's state has no base rates of its own, and of chained schedules no count.
        first = {"base_lrs": self._schedulers[0].base_lrs, "last_epoch": self._schedulers[0].last_epoch}
        super().load_state_dict({**first, **state_dict})


class SequentialLR(_Combined):
    """Learning rate of one schedule after the other: of the next one from each of `milestones` on, as its epoch 0.

    Raises ArgumentError unless there is one milestone fewer than `schedulers`, and for schedules of another optimizer,
    TypeError for an `optimizer` that is none.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> warm, decay = hm.optim.LinearLR(opt, 0.5, total_iters=2), hm.optim.ExponentialLR(opt, gamma=0.5)
    >>> schedule, rates = SequentialLR(opt, [warm, decay], milestones=[2]), []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [0.5, 0.75, 1.0, 0.5]
    """

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                f"SequentialLR: {len(schedulers)} schedules need {len(schedulers) - 1} milestones, got {milestones}"
            )
        self._milestones = list(milestones)
        super().__init__(optimizer, schedulers, last_epoch)

    def rate(self, base: float, epoch: Tensor, group: int) -> Number:
        first, *later = self._schedulers
        found = as_float64(first.rate(base, epoch, group))
        for at, schedule in zip(self._milestones, later, strict=True):
            own = xp.maximum(epoch - at, 0.0)
            found = xp.where(epoch >= at, as_float64(schedule.rate(schedule.base_lrs[group], own, group)), found)
        return found

    def following(self, lr: Number, base: float, epoch: Tensor, group: int) -> Number:
        found = lr = xp.where(xp.equal(epoch, 0), base, as_float64(lr))
        for at, schedule in zip([0, *self._milestones], self._schedulers, strict=True):
            own, its = xp.maximum(epoch - at, 0.0), schedule.base_lrs[group]
            begun = as_float64(schedule.begun(lr, its if at else base, own, group))
            new = xp.where(xp.equal(own, 0), begun, schedule.following(lr, its, own, group))
            found = xp.where(epoch >= at, new, found)
        return found

    begun = following

    def state_dict(self) -> dict[str, Any]:
        """The state of each schedule, with the milestones and the states of the schedules."""
        return {**super().state_dict(), "_milestones": list(self._milestones)}

    def others(self, epoch: Tensor) -> Writes:
        """The epochs of the schedules, and what the present one writes beside the rate."""
        writes: Writes = []
        found: dict[int, tuple[Tensor, Tensor]] = {}
        for schedule, at, end in zip(
            self._schedulers, [0, *self._milestones], [*self._milestones, math.inf], strict=True
        ):
            own = xp.minimum(xp.maximum(epoch - at, 0.0), end - at - 1.0)
            writes.append((schedule._epoch, own))
            for target, value in schedule.others(own):
                before = found.get(id(target), (target, target))[1]
                found[id(target)] = target, xp.where(epoch >= at, value, before)
        return [*writes, *found.values()]


class ChainedScheduler(_Combined):
    """Learning rate of several schedules at once: each goes on from the rate that the one before it has set.

    Raises ArgumentError for no `schedulers`, and for schedules of another optimizer.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> warm, decay = hm.optim.ConstantLR(opt, factor=0.5, total_iters=2), hm.optim.ExponentialLR(opt, gamma=0.5)
    >>> schedule, rates = ChainedScheduler([warm, decay]), []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [0.5, 0.25, 0.25, 0.125]
    """

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if len(schedulers) < 1:
            raise ArgumentError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        super().__init__(optimizer or schedulers[0].optimizer, schedulers)

    def begun(self, lr: Number, base: float, epoch: Tensor, group: int) -> Number:
        return self._chained(base, [(schedule, epoch) for schedule in self._schedulers], group)

    def following(self, lr: Number, base: float, epoch: Tensor, group: int) -> Number:
        # Made, it leaves the rate that its schedules have set.
        return xp.where(xp.equal(epoch, 0), as_float64(lr), as_float64(self._chained(lr, self._own(epoch), group)))

    def _chained(self, lr: Number, epochs: Sequence[tuple[LRScheduler, Tensor]], group: int) -> Number:
        for schedule, epoch in epochs:
            lr = schedule.following(lr, schedule.base_lrs[group], epoch, group)
        return lr

    def others(self, epoch: Tensor) -> Writes:
        """The epochs of the schedules, and what they write beside the rate."""
        return [w for schedule, own in self._own(epoch) for w in [(schedule._epoch, own), *schedule.others(own)]]

    def _own(self, epoch: Tensor) -> list[tuple[LRScheduler, Tensor]]:
        """The schedules, which may have begun before, with their epochs."""
        return [(schedule, schedule._epoch + (epoch - self._epoch)) for schedule in self._schedulers]
