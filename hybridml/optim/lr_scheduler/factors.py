"""Schedules that multiply the rate: steps, powers, lines, functions of the epoch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError

from ... import arrays as xp
from ...core.tensor import Tensor
from ..optimizer import Optimizer
from .base import FactorLR, LRScheduler, Number

Factor = Callable[[int], float]


class StepLR(FactorLR):
    """Learning rate multiplied by `gamma` every `step_size` epochs.

    Raises TypeError for an `optimizer` that is none.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule = StepLR(opt, step_size=2, gamma=0.5)
    >>> for _ in range(4):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def multiplier(self, epoch: Tensor, group: int) -> Tensor:
        return self.gamma ** xp.floor(epoch / self.step_size)


class MultiStepLR(FactorLR):
    """Learning rate multiplied by `gamma` at each epoch in `milestones`.

    A milestone that is listed twice counts twice. Raises TypeError for an `optimizer` that is none.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule = MultiStepLR(opt, milestones=[1, 3], gamma=0.5)
    >>> for _ in range(3):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def multiplier(self, epoch: Tensor, group: int) -> Tensor:
        passed = sum((xp.astype(epoch >= at, epoch.dtype) for at in self.milestones.elements()), start=epoch * 0)
        return self.gamma**passed


class ExponentialLR(FactorLR):
    """Learning rate multiplied by `gamma` every epoch.

    Raises TypeError for an `optimizer` that is none.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule = ExponentialLR(opt, gamma=0.5)
    >>> for _ in range(3):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [0.125]
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def multiplier(self, epoch: Tensor, group: int) -> Tensor:
        return self.gamma**epoch


class ConstantLR(FactorLR):
    """Learning rate times `factor` in the first `total_iters` epochs, and then as it was.

    Raises ArgumentError for a `factor` outside of 0 .. 1, TypeError for an `optimizer` that is none.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule, rates = ConstantLR(opt, factor=0.5, total_iters=2), []
    >>> for _ in range(3):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [0.5, 0.5, 1.0]
    """

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        if not 0 <= factor <= 1:
            raise ArgumentError("ConstantLR: Constant multiplicative factor expected to be between 0 and 1.")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def multiplier(self, epoch: Tensor, group: int) -> Tensor:
        return self.factor + xp.floor(_passed(epoch, self.total_iters)) * (1 - self.factor)


class LinearLR(FactorLR):
    """Learning rate times a factor that goes linearly from `start_factor` to `end_factor`: a warm-up.

    The factor reaches its end after `total_iters` epochs. Raises ArgumentError for a factor outside of 0 .. 1 or a
    `start_factor` of 0, TypeError for an `optimizer` that is none.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule = LinearLR(opt, start_factor=0.5, total_iters=2)
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.75]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0 < start_factor <= 1:
            raise ArgumentError(
                "LinearLR: Starting multiplicative factor expected to be greater than 0 and less or equal to 1."
            )
        if not 0 <= end_factor <= 1:
            raise ArgumentError("LinearLR: Ending multiplicative factor expected to be between 0 and 1.")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def multiplier(self, epoch: Tensor, group: int) -> Tensor:
        return self.start_factor + (self.end_factor - self.start_factor) * _passed(epoch, self.total_iters)


class PolynomialLR(FactorLR):
    """Learning rate down to 0 in `total_iters` epochs, as a power of the share that is left.

    Raises TypeError for an `optimizer` that is none.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule = PolynomialLR(opt, total_iters=4, power=2.0)
    >>> for _ in range(2):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def multiplier(self, epoch: Tensor, group: int) -> Tensor:
        return (1 - _passed(epoch, self.total_iters)) ** self.power


def _passed(epoch: Tensor, total: int) -> Tensor:
    """The share of `total` epochs that have passed; 0 without any, where PyTorch's rates stay at their start."""
    return xp.minimum(epoch / total, 1.0) if total else epoch * 0


class LambdaLR(LRScheduler):
    """Learning rate times ``lr_lambda(epoch)``, a function of a Python integer.

    `lr_lambda` is one function, or one per parameter group (ArgumentError for another number of them). It is for steps
    outside of traced functions: inside the epoch is not a Python integer.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule = LambdaLR(opt, lambda epoch: 1 / (1 + epoch))
    >>> for _ in range(3):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Factor | Sequence[Factor], last_epoch: int = -1) -> None:
        count = len(getattr(optimizer, "param_groups", ()))
        self.lr_lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != count:
            raise ArgumentError(
                f"{type(self).__name__}: Expected {count} lr_lambdas, but got {len(self.lr_lambdas)}: one function "
                f"per parameter group"
            )
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: Tensor, group: int) -> float:
        return base * self.lr_lambdas[group](int(epoch))

    def state_dict(self) -> dict[str, Any]:
        """The state of each schedule; functions are not in it, as in PyTorch's."""
        return {**super().state_dict(), "lr_lambdas": [None] * len(self.lr_lambdas)}


class MultiplicativeLR(LambdaLR):
    """Learning rate multiplied by ``lr_lambda(epoch)`` every epoch.

    `lr_lambda` is as of `LambdaLR`; epoch 0 has the rate of the optimizer.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule = MultiplicativeLR(opt, lambda epoch: 0.5)
    >>> for _ in range(3):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [0.125]
    """

    def rate(self, base: float, epoch: Tensor, group: int) -> float:
        for passed in range(1, int(epoch) + 1):
            base = base * self.lr_lambdas[group](passed)
        return base

    def following(self, lr: Number, base: float, epoch: Tensor, group: int) -> Number:
        count = int(epoch)
        return lr * self.lr_lambdas[group](count) if count else lr

    begun = following
