"""Learning-rate schedules in closed form over the step count: they write into the tensor that the optimizer reads.

Each schedule is ``lr = rate(base, epoch)`` with `epoch` a tensor, so ``scheduler.step()`` may stand inside a traced
function. The values are PyTorch's for the same arguments; unlike PyTorch's chained form, a rate that was changed by
hand is overwritten by the next `step`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from ..core.context import no_grad
from ..core.spellings import advise
from ..core.states import check_entries
from ..core.tensor import Tensor, adopt
from ..nn.parameter import commit
from .optimizer import Optimizer


class LRScheduler:
    """Base class of learning-rate schedules: subclasses write ``rate(base, epoch, group)``.

    Construction sets the rate of epoch 0, each ``step()`` that of the next one, in the tensor that the optimizer
    reads. `epoch` is a float64 tensor (), so that a step may be traced. Raises TypeError for an `optimizer` that is
    none, NotImplementedError without `rate`.

    >>> class Halved(LRScheduler):
    ...     def rate(self, base, epoch, group):
    ...         return base * 0.5**epoch
    >>> schedule = Halved(hm.optim.SGD([hm.ones((1,))], lr=1.0))
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__}: needs an Optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        for group in optimizer.param_groups:  # of several schedules the first one finds it
            group.setdefault("initial_lr", float(group["lr"]))
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self._epoch = adopt(np.zeros(()))  # float64, as the learning rates
        self._write(self._epoch)

    def rate(self, base: float, epoch: Tensor, group: int) -> Tensor | float:
        """The learning rate of a group at `epoch`, a float64 scalar tensor."""
        raise NotImplementedError(f"{type(self).__name__} has no rate method")

    def step(self) -> None:
        """Goes to the next epoch and sets its rate."""
        self._write(self._epoch + 1)

    @property
    def last_epoch(self) -> int:
        """Number of steps taken so far."""
        return int(self._epoch)

    def get_last_lr(self) -> list[float]:
        """Rates that are set now, one per parameter group."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    def __repr__(self) -> str:
        kept = {k: v for k, v in vars(self).items() if k not in ("optimizer", "base_lrs") and not k.startswith("_")}
        settings = [f"{name}={value!r}" for name, value in kept.items() if not _has_functions(value)]
        rates = ", ".join(f"{rate:.6g}" for rate in self.get_last_lr())
        return f"{type(self).__name__}({', '.join([*settings, f'epoch={self.last_epoch}', f'lr={rates}'])})"

    def state_dict(self) -> dict[str, Any]:
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores the count and the base rates, and sets the rate that belongs to them.

        Raises ArgumentError for a state with another number of groups.
        """
        check_entries(self, state_dict, "base_lrs", "last_epoch")
        if len(state_dict["base_lrs"]) != len(self.base_lrs):
            raise ArgumentError(
                f"{type(self).__name__}.load_state_dict: has {len(self.base_lrs)} groups, the state "
                f"{len(state_dict['base_lrs'])}"
            )
        self.base_lrs = [float(lr) for lr in state_dict["base_lrs"]]
        self._write(xp.asarray(float(state_dict["last_epoch"]), dtype=xp.float64, device="cpu"))

    def _write(self, epoch: Tensor) -> None:
        with no_grad():
            writes = [(self._epoch, epoch)]
            for number, (group, base) in enumerate(zip(self.optimizer.param_groups, self.base_lrs, strict=True)):
                rate = self.rate(base, epoch, number)
                if not isinstance(group["lr"], Tensor):  # of an optimizer that writes `step` itself
                    group["lr"] = float(rate)
                    continue
                value = rate if isinstance(rate, Tensor) else xp.asarray(rate, dtype=xp.float64, device="cpu")
                writes.append((group["lr"], xp.astype(value, group["lr"].dtype)))
            commit(writes)


def _has_functions(value: Any) -> bool:
    """Whether a setting is functions, whose text would be an address."""
    return any(map(callable, value if isinstance(value, list | tuple) else [value]))


class StepLR(LRScheduler):
    """Learning rate multiplied by `gamma` every `step_size` epochs.

    Raises TypeError for an `optimizer` that is none.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule = StepLR(opt, step_size=2, gamma=0.5)
    >>> for _ in range(4):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1) -> None:
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer)

    def rate(self, base: float, epoch: Tensor, group: int) -> Tensor:
        return base * self.gamma ** xp.floor(epoch / self.step_size)


class MultiStepLR(LRScheduler):
    """Learning rate multiplied by `gamma` at each epoch in `milestones`.

    A milestone that is listed twice counts twice. Raises TypeError for an `optimizer` that is none.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule = MultiStepLR(opt, milestones=[1, 3], gamma=0.5)
    >>> for _ in range(3):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [0.25]
    """

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1) -> None:
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer)

    def rate(self, base: float, epoch: Tensor, group: int) -> Tensor:
        passed = sum((xp.astype(epoch >= at, epoch.dtype) for at in self.milestones), start=epoch * 0)
        return base * self.gamma**passed


class ExponentialLR(LRScheduler):
    """Learning rate multiplied by `gamma` every epoch.

    Raises TypeError for an `optimizer` that is none.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule = ExponentialLR(opt, gamma=0.5)
    >>> for _ in range(3):
    ...     schedule.step()
    >>> schedule.get_last_lr()
    [0.125]
    """

    def __init__(self, optimizer: Optimizer, gamma: float) -> None:
        self.gamma = gamma
        super().__init__(optimizer)

    def rate(self, base: float, epoch: Tensor, group: int) -> Tensor:
        return base * self.gamma**epoch


class CosineAnnealingLR(LRScheduler):
    """Learning rate along half a cosine, from the base rate to `eta_min` over `T_max` epochs.

    The rate goes up again after `T_max` epochs. Source: Loshchilov and Hutter 2016. Raises TypeError for an
    `optimizer` that is none.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule = CosineAnnealingLR(opt, T_max=2)
    >>> schedule.step()
    >>> round(schedule.get_last_lr()[0], 6)
    0.5
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer)

    def rate(self, base: float, epoch: Tensor, group: int) -> Tensor:
        return _cosine(base, self.eta_min, epoch / self.T_max)


class LinearLR(LRScheduler):
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
        self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5
    ) -> None:
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            raise ArgumentError(f"LinearLR: factors must be between 0 and 1, got {start_factor} and {end_factor}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer)

    def rate(self, base: float, epoch: Tensor, group: int) -> Tensor:
        share = xp.minimum(epoch / self.total_iters, 1.0)
        return base * (self.start_factor + (self.end_factor - self.start_factor) * share)


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

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]]
    ) -> None:
        count = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != count:
            raise ArgumentError(f"LambdaLR: {len(self.lr_lambdas)} functions for {count} parameter groups")
        super().__init__(optimizer)

    def rate(self, base: float, epoch: Tensor, group: int) -> float:
        return base * self.lr_lambdas[group](int(epoch))


class SequentialLR(LRScheduler):
    """Learning rate of one schedule after the other: of the next one from each of `milestones` on, as its epoch 0.

    Raises ArgumentError unless there is one milestone fewer than `schedulers`, TypeError for an `optimizer` that is
    none.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> warm, decay = LinearLR(opt, 0.5, total_iters=2), ExponentialLR(opt, gamma=0.5)
    >>> schedule, rates = SequentialLR(opt, [warm, decay], milestones=[2]), []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [0.5, 0.75, 1.0, 0.5]
    """

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]) -> None:
        if len(milestones) != len(schedulers) - 1:
            raise ArgumentError(
                f"SequentialLR: {len(schedulers)} schedules need {len(schedulers) - 1} milestones, got {milestones}"
            )
        self.milestones, self._schedulers = list(milestones), list(schedulers)
        super().__init__(optimizer)

    def rate(self, base: float, epoch: Tensor, group: int) -> Tensor | float:
        first, *later = self._schedulers
        found = first.rate(base, epoch, group)
        for at, schedule in zip(self.milestones, later, strict=True):
            found = xp.where(epoch >= at, schedule.rate(base, xp.maximum(epoch - at, 0.0), group), found)
        return found


class OneCycleLR(LRScheduler):
    """Learning rate up to `max_lr` in the first `pct_start` of the steps, then down, along cosines.

    It starts at ``max_lr / div_factor`` and ends at that over `final_div_factor`; unlike in PyTorch the momentum is
    not changed. The steps are `total_steps`, or `steps_per_epoch` in each of `epochs`. Source: Smith and Topin
    2017. Raises ArgumentError unless ``total_steps > 1`` and ``0 < pct_start < 1``.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule = OneCycleLR(opt, max_lr=1.0, total_steps=10, pct_start=0.4)
    >>> for _ in range(3):
    ...     schedule.step()
    >>> round(schedule.get_last_lr()[0], 6)
    1.0
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int | None = None,
        pct_start: float = 0.3,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        *,
        epochs: int = 0,
        steps_per_epoch: int = 0,
    ) -> None:
        if total_steps is None:
            total_steps = epochs * steps_per_epoch
        if total_steps < 2 or not 0 < pct_start < 1:
            raise ArgumentError(f"OneCycleLR: needs total_steps > 1, 0 < pct_start < 1, got {total_steps}, {pct_start}")
        self.max_lr, self.total_steps, self.pct_start = max_lr, total_steps, pct_start
        self.initial_lr = max_lr / div_factor
        self.final_lr = self.initial_lr / final_div_factor
        super().__init__(optimizer)

    def rate(self, base: float, epoch: Tensor, group: int) -> Tensor:
        turn = self.pct_start * self.total_steps - 1
        up = _cosine(self.initial_lr, self.max_lr, epoch / turn)
        share = xp.minimum((epoch - turn) / (self.total_steps - 1 - turn), 1.0)
        return xp.where(epoch <= turn, up, _cosine(self.max_lr, self.final_lr, share))


def _cosine(start: float, end: float, share: Tensor) -> Tensor:
    return end + (start - end) * 0.5 * (xp.cos(share * math.pi) + 1)


advise(globals())
