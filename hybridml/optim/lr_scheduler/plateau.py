"""ReduceLROnPlateau: rates that fall where a metric has stopped to improve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError

from ... import arrays as xp
from ...core.context import no_grad
from ...core.states import check_entries
from ...core.tensor import Tensor, adopt
from ...nn.parameter import commit
from ..optimizer import Optimizer
from .base import LRScheduler, Number, as_float64, for_groups

COUNTS = ("best", "num_bad_epochs", "cooldown_counter")


class ReduceLROnPlateau(LRScheduler):
    """Learning rate multiplied by `factor` after `patience` epochs without a better metric.

    ``step(metric)`` takes a number or a tensor (), also in a traced function. With `mode` "min" a metric is better
    below the best one by the share `threshold`, or with `threshold_mode` "abs" by so much; with "max" above it. After a
    reduction `cooldown` epochs do not count. Rates stay above `min_lr`; what would change one by `eps` or less is not
    done. Raises ArgumentError for a `factor` of 1 or more or another mode, TypeError for an `optimizer` that is none.

    >>> opt = hm.optim.SGD([hm.ones((1,))], lr=1.0)
    >>> schedule = ReduceLROnPlateau(opt, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     schedule.step(loss)
    >>> schedule.get_last_lr()
    [0.5]
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float | Sequence[float] = 0,
        eps: float = 1e-8,
    ) -> None:
        if not factor < 1:
            raise ArgumentError("ReduceLROnPlateau: Factor should be < 1.0.")
        if mode not in ("min", "max"):
            raise ArgumentError(f"ReduceLROnPlateau: mode {mode} is unknown!")
        if threshold_mode not in ("rel", "abs"):
            raise ArgumentError(f"ReduceLROnPlateau: threshold mode {threshold_mode} is unknown!")
        self.mode, self.factor, self.patience, self.cooldown, self.eps = mode, factor, patience, cooldown, eps
        self.threshold, self.threshold_mode = threshold, threshold_mode
        worst = math.inf if mode == "min" else -math.inf
        self._counts = {name: adopt(np.asarray(worst if name == "best" else 0.0)) for name in COUNTS}
        super().__init__(optimizer)
        self.min_lrs = for_groups("min_lr", optimizer, min_lr)

    best = property(lambda self: float(self._counts["best"]), doc="The best metric so far.")
    num_bad_epochs = property(lambda self: int(self._counts["num_bad_epochs"]), doc="Epochs since it, or a reduction.")
    cooldown_counter = property(lambda self: int(self._counts["cooldown_counter"]), doc="Epochs that do not count yet.")

    def rate(self, base: float, epoch: Tensor, group: int) -> Number:
        return self.optimizer.param_groups[group]["lr"]

    def step(self, metrics: Any = None) -> None:
        """Goes to the next epoch, whose metric is `metrics`, and sets its rate (TypeError without a metric)."""
        if metrics is None:
            raise TypeError("ReduceLROnPlateau.step() missing 1 required positional argument: 'metrics'")
        with no_grad():
            current = as_float64(metrics)
            best, bad, cooling = (self._counts[name] for name in COUNTS)
            better = self._better(current, best)
            waits = cooling > 0
            bad = xp.where(xp.logical_or(better, waits), 0.0, bad + 1)
            reduces = bad > self.patience
            cooling = xp.where(reduces, float(self.cooldown), xp.where(waits, cooling - 1, cooling))
            new = (xp.where(better, current, best), xp.where(reduces, 0.0, bad), cooling)
            rates: list[Number] = []
            for group, lowest in zip(self.optimizer.param_groups, self.min_lrs, strict=True):
                lr = group["lr"]
                lower = xp.maximum(lr * self.factor, lowest)
                rates.append(xp.where(xp.logical_and(reduces, lr - lower > self.eps), lower, lr))
            counts = zip(self._counts.values(), new, strict=True)
            commit([(self._epoch, self._epoch + 1), *counts, *self._rates(rates)])

    def _better(self, current: Tensor, best: Tensor) -> Tensor:
        sign = -1 if self.mode == "min" else 1
        bound = best * (1 + sign * self.threshold) if self.threshold_mode == "rel" else best + sign * self.threshold
        return current < bound if self.mode == "min" else current > bound

    def state_dict(self) -> dict[str, Any]:
        """Settings, counts and the rates that are set, by PyTorch's names."""
        return {**super().state_dict(), **{name: getattr(self, name) for name in COUNTS}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores settings, counts and rates (ArgumentError where one is missing)."""
        check_entries(self, state_dict, *COUNTS)
        super().load_state_dict({"base_lrs": self.base_lrs, **state_dict})
        with no_grad():
            commit([(t, xp.asarray(float(state_dict[n]), dtype=xp.float64)) for n, t in self._counts.items()])
