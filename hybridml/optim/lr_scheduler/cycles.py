"""Schedules of cosines and triangles: annealing, warm restarts, cycles of rate and momentum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hybridml_compiler.errors import ArgumentError

from ... import arrays as xp
from ...core.tensor import Tensor
from ...nn.parameter import Writes
from ..optimizer import Optimizer
from .base import LRScheduler, Number, as_float64, for_groups, number_set


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

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: Tensor, group: int) -> Tensor:
        return cosine(base, self.eta_min, epoch / self.T_max)

    def following(self, lr: Number, base: float, epoch: Tensor, group: int) -> Number:
        """The rate whose distance from `eta_min` is to that of `lr` as the cosine goes."""
        before, now = (1 + xp.cos((epoch - back) * (math.pi / self.T_max)) for back in (1, 0))
        # From eta_min itself there is no quotient, and the rate goes up as the base rate's does.
        lowest = xp.equal(xp.remainder(epoch - 1 - self.T_max, 2.0 * self.T_max), 0)
        up = lr + (base - self.eta_min) * (1 - math.cos(math.pi / self.T_max)) / 2
        along = now / xp.where(lowest, 1.0, before) * (lr - self.eta_min) + self.eta_min
        return xp.where(xp.equal(epoch, 0), lr, xp.where(lowest, up, along))


class CosineAnnealingWarmRestarts(LRScheduler):
    """Learning rate along half a cosine down to `eta_min`, again and again from the base rate.

    The first descent takes `T_0` epochs, each other one `T_mult` times as many as the one before. Source: Loshchilov
    and Hutter 2016. Raises ArgumentError unless both are positive integers.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule, rates = CosineAnnealingWarmRestarts(opt, T_0=2), []
    >>> for _ in range(4):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> [round(rate, 6) for rate in rates]
    [1.0, 0.5, 1.0, 0.5]
    """

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        if T_0 <= 0 or T_0 != int(T_0):
            raise ArgumentError(f"CosineAnnealingWarmRestarts: Expected positive integer T_0, but got {T_0}")
        if T_mult < 1 or T_mult != int(T_mult):
            raise ArgumentError(f"CosineAnnealingWarmRestarts: Expected integer T_mult >= 1, but got {T_mult}")
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        super().__init__(optimizer, last_epoch)

    def step(self, epoch: float | Tensor | None = None) -> None:
        """Goes to the next epoch, or to `epoch`, which may lie between two, and sets its rate."""
        if isinstance(epoch, int | float) and epoch < 0:
            raise ArgumentError(f"CosineAnnealingWarmRestarts: Expected non-negative epoch, but got {epoch}")
        self._write(self._epoch + 1 if epoch is None else as_float64(epoch))

    def state_dict(self) -> dict[str, Any]:
        """The state of each schedule, with the present descent: its length `T_i` and the epochs `T_cur` in it."""
        passed, length = float(self._epoch), self.T_0
        while passed >= length:
            passed, length = passed - length, length * self.T_mult
        return {**super().state_dict(), "T_cur": passed, "T_i": length}

    def rate(self, base: float, epoch: Tensor, group: int) -> Tensor:
        if self.T_mult == 1:
            return cosine(base, self.eta_min, xp.remainder(epoch, float(self.T_0)) / self.T_0)
        # Restarts so far; the 1e-9 is for logarithms of whole powers, which may come out below.
        share = epoch / self.T_0 * (self.T_mult - 1) + 1
        power = self.T_mult ** xp.floor(xp.log(share) / math.log(self.T_mult) + 1e-9)
        return cosine(base, self.eta_min, (epoch / self.T_0 - (power - 1) / (self.T_mult - 1)) / power)


class CyclingLR(LRScheduler):
    """Base class of schedules that cycle the momentum too: against the rate, of betas the first one.

    Subclasses write ``momentum(low, high, epoch)``. Raises as `LRScheduler`, and ArgumentError for `cycle_momentum`
    and an optimizer without momentum or betas.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        cycle_momentum: bool,
        base_momentum: float | list[float],
        max_momentum: float | list[float],
        last_epoch: int,
    ) -> None:
        defaults = getattr(optimizer, "defaults", {})
        if cycle_momentum and not {"momentum", "betas"} & defaults.keys():
            raise ArgumentError(
                f"{type(self).__name__}: optimizer must support momentum or beta1 with `cycle_momentum` option enabled"
            )
        self.cycle_momentum, self._name = cycle_momentum, "betas" if "betas" in defaults else "momentum"
        if cycle_momentum:
            self.base_momentums = for_groups("base_momentum", optimizer, base_momentum)
            self.max_momentums = for_groups("max_momentum", optimizer, max_momentum)
            for group, highest in zip(optimizer.param_groups, self.max_momentums, strict=True):
                if last_epoch == -1:  # by the group: a momentum of zero is not in the program of a traced step
                    group[self._name] = (highest, *group["betas"][1:]) if self._name == "betas" else highest
        super().__init__(optimizer, last_epoch)

    def momentum(self, low: float, high: float, epoch: Tensor) -> Tensor:
        """The momentum at `epoch`, between its bounds."""
        raise NotImplementedError(f"{type(self).__name__} has no momentum method")

    def others(self, epoch: Tensor) -> Writes:
        if not self.cycle_momentum:
            return []
        bounds = zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums, strict=True)
        return [
            write
            for group, low, high in bounds
            for write in number_set(group, self._name, self.momentum(low, high, epoch))
        ]


class OneCycleLR(CyclingLR):
    """Learning rate up to `max_lr` in the first `pct_start` of the steps, then down; the momentum the other way.

    It starts at ``max_lr / div_factor`` and ends at that over `final_div_factor`, along cosines or lines
    (`anneal_strategy`); with `three_phase` it falls as it rose and then to the end. The steps are `total_steps`, or
    `steps_per_epoch` in each of `epochs`. Source: Smith and Topin 2017. Raises ArgumentError unless
    ``total_steps > 1`` and ``0 < pct_start < 1``, and with `cycle_momentum` for an optimizer that has none.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0, momentum=0.9)
    >>> schedule = OneCycleLR(opt, max_lr=1.0, total_steps=10, pct_start=0.4)
    >>> for _ in range(3):
    ...     schedule.step()
    >>> round(schedule.get_last_lr()[0], 6), round(opt.param_groups[0]["momentum"].item(), 6)
    (1.0, 0.85)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ArgumentError(
                    "OneCycleLR: You must define either total_steps OR (epochs AND steps_per_epoch); total_steps > 1"
                )
            total_steps = epochs * steps_per_epoch
        if total_steps < 2 or not 0 < pct_start < 1:
            raise ArgumentError(f"OneCycleLR: needs total_steps > 1, 0 < pct_start < 1, got {total_steps}, {pct_start}")
        if anneal_strategy not in ANNEALING:
            raise ArgumentError(
                f"OneCycleLR: anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}"
            )
        self.max_lrs, self.total_steps, self.pct_start = (
            for_groups("max_lr", optimizer, max_lr),
            total_steps,
            pct_start,
        )
        self.anneal_strategy, self.three_phase = anneal_strategy, three_phase
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        for group, highest in zip(optimizer.param_groups, self.max_lrs, strict=True):
            group["initial_lr"] = highest / div_factor
        super().__init__(optimizer, cycle_momentum, base_momentum, max_momentum, last_epoch)

    def rate(self, base: float, epoch: Tensor, group: int) -> Tensor:
        highest = self.max_lrs[group]
        start = highest / self.div_factor
        return self._phases([start, highest, *[start] * self.three_phase, start / self.final_div_factor], epoch)

    def momentum(self, low: float, high: float, epoch: Tensor) -> Tensor:
        return self._phases([high, low, high, *[high] * self.three_phase], epoch)

    def _phases(self, values: list[float], epoch: Tensor) -> Tensor:
        """Annealed from each value to the next one, in the phases of the cycle."""
        turn = self.pct_start * self.total_steps
        ends = [0.0, turn - 1, *[2 * turn - 2] * self.three_phase, self.total_steps - 1.0]
        anneal, found = ANNEALING[self.anneal_strategy], epoch * 0
        for k in reversed(range(len(ends) - 1)):
            share = (epoch - ends[k]) / (ends[k + 1] - ends[k])
            last = k == len(ends) - 2
            value = anneal(values[k], values[k + 1], xp.minimum(share, 1.0) if last else share)
            found = value if last else xp.where(epoch <= ends[k + 1], value, found)
        return found


class CyclicLR(CyclingLR):
    """Learning rate up and down between `base_lr` and `max_lr`, in triangles; the momentum the other way.

    It goes up in `step_size_up` steps and down in `step_size_down`. By `mode` all triangles are alike ("triangular"),
    each half as high as the one before ("triangular2"), or multiplied by ``gamma ** step`` ("exp_range"); `scale_fn`, a
    function of the cycle or of the step (`scale_mode`) as a Python integer, takes the place of a mode outside of traced
    functions. Source: Smith 2017. Raises ArgumentError for another mode, and with `cycle_momentum` for an optimizer
    that has none.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule, rates = CyclicLR(opt, 0.0, 1.0, step_size_up=2), []
    >>> for _ in range(5):
    ...     rates += schedule.get_last_lr()
    ...     schedule.step()
    >>> rates
    [0.0, 0.5, 1.0, 0.5, 0.0]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.8,
        max_momentum: float | list[float] = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise ArgumentError("CyclicLR: mode is invalid and scale_fn is None")
        self.total_size = float(step_size_up + (step_size_up if step_size_down is None else step_size_down))
        self.step_ratio = step_size_up / self.total_size
        self.mode, self.gamma, self._scale_fn, self.scale_mode = mode, gamma, scale_fn, scale_mode
        lowest, self.max_lrs = for_groups("base_lr", optimizer, base_lr), for_groups("max_lr", optimizer, max_lr)
        if last_epoch == -1:
            for group, lr in zip(optimizer.param_groups, lowest, strict=True):
                group["lr"] = lr
        super().__init__(optimizer, cycle_momentum, base_momentum, max_momentum, last_epoch)
        self.base_lrs = lowest  # also where a schedule before it has set the initial rate
        self._write(self._epoch)

    def rate(self, base: float, epoch: Tensor, group: int) -> Tensor:
        return base + (self.max_lrs[group] - base) * self._height(epoch)

    def momentum(self, low: float, high: float, epoch: Tensor) -> Tensor:
        return high - (high - low) * self._height(epoch)

    def state_dict(self) -> dict[str, Any]:
        """The state of each schedule; functions are not in it, as in PyTorch's."""
        return {**super().state_dict(), "_scale_fn_custom": None}

    def _height(self, epoch: Tensor) -> Tensor:
        """Share of the way up."""
        cycle = xp.floor(1 + epoch / self.total_size)
        x = 1 + epoch / self.total_size - cycle
        ratio = self.step_ratio
        height = xp.where(x <= ratio, x / (ratio or 1.0), (x - 1) / (ratio - 1 or 1.0))
        if self._scale_fn is not None:
            return height * self._scale_fn(int(cycle if self.scale_mode == "cycle" else epoch))
        if self.mode == "triangular":
            return height
        return height * (0.5 ** (cycle - 1) if self.mode == "triangular2" else self.gamma**epoch)


def cosine(start: float, end: float, share: Tensor) -> Tensor:
    """The number on half a cosine from `start` to `end`."""
    return end + (start - end) * 0.5 * (xp.cos(share * math.pi) + 1)


ANNEALING: dict[str, Callable[[float, float, Tensor], Tensor]] = {
    "cos": cosine,
    "linear": lambda start, end, share: start + (end - start) * share,
}
