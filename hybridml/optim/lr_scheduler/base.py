"""LRScheduler and FactorLR: rates from the count of steps, written into the tensor that the optimizer reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError

from ... import arrays as xp
from ...core.context import no_grad
from ...core.states import check_entries
from ...core.tensor import Tensor, adopt
from ...nn.parameter import Writes, commit
from ..optimizer import Optimizer

Number = Tensor | float


class LRScheduler:
    """Base class of learning-rate schedules: subclasses write ``rate(base, epoch, group)``.

    Construction sets the rate of epoch 0, or of the one after `last_epoch`; each ``step()`` sets that of the next one,
    in the tensor that the optimizer reads. `epoch` is a float64 tensor (), so that a step may be traced. Raises
    TypeError for an `optimizer` that is none, KeyError for a `last_epoch` of an optimizer that had no schedule,
    NotImplementedError without `rate`.

    >>> class Halved(LRScheduler):
    ...     def rate(self, base, epoch, group):
    ...         return base * 0.5**epoch
    >>> schedule = Halved(hm.optim.SGD([hm.ones((1,))], lr=1.0))
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"{type(self).__name__}: {type(optimizer).__name__} is not an Optimizer; a schedule needs an Optimizer"
            )
        self.optimizer = optimizer
        for number, group in enumerate(optimizer.param_groups):  # of several schedules the first one finds it
            if last_epoch != -1 and "initial_lr" not in group:
                raise KeyError(f"param 'initial_lr' is not specified in param_groups[{number}] when resuming scheduler")
            group.setdefault("initial_lr", float(group["lr"]))
        self.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        self._epoch = adopt(np.asarray(last_epoch + 1.0))  # float64, as the learning rates
        if last_epoch == -1:
            self._write(self._epoch)

    # --- for subclasses ---------------------------------------------------------------------------------------------

    def rate(self, base: float, epoch: Tensor, group: int) -> Number:
        """The learning rate of a group at `epoch`, a float64 scalar tensor."""
        raise NotImplementedError(f"{type(self).__name__} has no rate method")

    def following(self, lr: Number, base: float, epoch: Tensor, group: int) -> Number:
        """The rate at `epoch` after `lr`, which other schedules or the user may have changed."""
        return self.rate(base, epoch, group)

    def begun(self, lr: Number, base: float, epoch: Tensor, group: int) -> Number:
        """The rate at `epoch` 0 where this schedule takes over from another one, which leaves `lr`."""
        return self.rate(base, epoch, group)

    def others(self, epoch: Tensor) -> Writes:
        """The writes at `epoch` beside the rates."""
        return []

    # --- use --------------------------------------------------------------------------------------------------------

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
        settings = [f"{name}={value!r}" for name, value in self._settings().items() if name != "base_lrs"]
        rates = ", ".join(f"{rate:.6g}" for rate in self.get_last_lr())
        return f"{type(self).__name__}({', '.join([*settings, f'epoch={self.last_epoch}', f'lr={rates}'])})"

    def state_dict(self) -> dict[str, Any]:
        """Settings, base rates, the count of steps and the rates that are set, by PyTorch's names."""
        counts = {"last_epoch": self.last_epoch, "_step_count": self.last_epoch + 1}
        return {**self._settings(), **counts, "_last_lr": self.get_last_lr()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores settings, base rates and the count, and sets the rate that belongs to them.

        Raises ArgumentError for a state with another number of groups.
        """
        check_entries(self, state_dict, "base_lrs", "last_epoch")
        if len(state_dict["base_lrs"]) != len(self.base_lrs):
            raise ArgumentError(
                f"{type(self).__name__}.load_state_dict: has {len(self.base_lrs)} groups, the state "
                f"{len(state_dict['base_lrs'])}"
            )
        for name in self._settings().keys() & state_dict.keys():
            setattr(self, name, state_dict[name])
        self.base_lrs = [float(lr) for lr in state_dict["base_lrs"]]
        epoch = xp.asarray(float(state_dict["last_epoch"]), dtype=xp.float64, device="cpu")
        rates = state_dict.get("_last_lr") or [self.rate(base, epoch, k) for k, base in enumerate(self.base_lrs)]
        with no_grad():
            commit([(self._epoch, epoch), *self._rates(rates)])
            commit(self.others(epoch))  # what has gone on to this epoch already stays there

    # --- inside -----------------------------------------------------------------------------------------------------

    def _settings(self) -> dict[str, Any]:
        """Public attributes that are values: a function has no text, and is given anew."""
        kept = {k: v for k, v in vars(self).items() if k != "optimizer" and not k.startswith("_")}
        return {name: value for name, value in kept.items() if not _has_functions(value)}

    def _write(self, epoch: Tensor) -> None:
        groups = zip(self.optimizer.param_groups, self.base_lrs, strict=True)
        with no_grad():
            rates = [self.following(group["lr"], base, epoch, k) for k, (group, base) in enumerate(groups)]
            commit([(self._epoch, epoch), *self._rates(rates), *self.others(epoch)])

    def _rates(self, rates: Sequence[Number]) -> Writes:
        groups = zip(self.optimizer.param_groups, rates, strict=True)
        return [write for group, rate in groups for write in number_set(group, "lr", rate)]


def number_set(group: Any, name: str, value: Number) -> Writes:
    """The write that sets a number of a parameter group: the first of "betas", else the number `name`."""
    held = group["betas"][0] if name == "betas" else group[name]
    if not isinstance(held, Tensor):  # of an optimizer that writes `step` itself
        group[name] = (float(value), *group["betas"][1:]) if name == "betas" else float(value)
        return []
    return [(held, xp.astype(as_float64(value), held.dtype))]


def as_float64(value: Number) -> Tensor:
    """A number as a float64 tensor (): without a dtype Python's would be a float32 one."""
    return xp.astype(value, xp.float64) if isinstance(value, Tensor) else xp.asarray(float(value), dtype=xp.float64)


def for_groups(name: str, optimizer: Optimizer, given: Any) -> list[float]:
    """One number per parameter group, of one for all or of a list; ArgumentError for a list of another length."""
    count = len(optimizer.param_groups)
    if isinstance(given, list | tuple) and len(given) != count:
        raise ArgumentError(
            f"{name} must have the same length as optimizer.param_groups. {name} has {len(given)} values, "
            f"param_groups has {count}."
        )
    return [float(number) for number in (given if isinstance(given, list | tuple) else [given] * count)]


def _has_functions(value: Any) -> bool:
    """Whether a setting is functions, whose text would be an address."""
    return any(map(callable, value if isinstance(value, list | tuple) else [value]))


class FactorLR(LRScheduler):
    """Base class of schedules that multiply the rate: subclasses write ``multiplier(epoch, group)``.

    A step multiplies the rate that is set by the quotient of two factors, so that several such schedules multiply, as
    PyTorch's do. Raises as `LRScheduler`.

    >>> class Halved(FactorLR):
    ...     def multiplier(self, epoch, group):
    ...         return 0.5**epoch
    >>> schedule = Halved(hm.optim.SGD([hm.ones((1,))], lr=1.0))
    >>> schedule.step()
    >>> schedule.get_last_lr()
    [0.5]
    """

    def multiplier(self, epoch: Tensor, group: int) -> Tensor:
        """The factor of the base rate at `epoch`, a float64 scalar tensor."""
        raise NotImplementedError(f"{type(self).__name__} has no multiplier method")

    def rate(self, base: float, epoch: Tensor, group: int) -> Number:
        return base * self.multiplier(epoch, group)

    def following(self, lr: Number, base: float, epoch: Tensor, group: int) -> Number:
        before = self.multiplier(xp.maximum(epoch - 1, 0.0), group)
        first = xp.logical_or(xp.equal(epoch, 0), xp.equal(before, 0))  # after a factor of 0 the rate is 0
        return lr * (self.multiplier(epoch, group) / xp.where(first, 1.0, before))
