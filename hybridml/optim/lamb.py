"""LAMB (You et al. 2019): Adam whose step is as long as the parameter, for large batches."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from .. import arrays as xp
from ..core.tensor import Tensor
from .formulas import moving_mean, moving_square, over_root
from .group import ParameterGroup
from .per_parameter import New, PerParameter


class LAMB(PerParameter):
    """LAMB: Adam's direction, scaled to the norm of its parameter (You et al. 2019).

    ``weight_decay * p`` is added to the direction; where the norm of parameter or direction is 0 the scale is 1.
    Arguments and errors are those of `Adam`.

    >>> w = hm.tensor([3.0, 4.0], requires_grad=True)
    >>> w.sum().backward()
    >>> LAMB([w], lr=0.1, weight_decay=0).step()
    >>> [round(x, 4) for x in w.tolist()]
    [2.6464, 3.6464]
    """

    numbers = ("lr", "betas", "eps", "weight_decay")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        *,
        maximize: bool = False,
    ) -> None:
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "maximize": maximize})

    def state_names(self, group: ParameterGroup) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        beta1, beta2 = group["betas"]
        own = {"of_mean": 1 / (1 - beta1**steps), "of_square": 1 / (1 - beta2**steps)}
        betas = {"rest1": 1 - beta1, "beta2": beta2, "rest2": 1 - beta2}
        return {**own, **betas, "lr": group["lr"], "eps": group["eps"], "decay": group["weight_decay"]}

    def decayed(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        return value, g  # the decay is part of the direction

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        mean = moving_mean.here(state["exp_avg"], g, s.rest1)
        square = moving_square.here(state["exp_avg_sq"], g, s.beta2, s.rest2)
        direction = over_root.here(mean * s.of_mean, square * s.of_square, s.eps) + value * s.decay
        length, step = (xp.sqrt((x * x).sum()) for x in (value, direction))
        both = xp.logical_and(length > 0, step > 0)
        trust = xp.where(both, length / xp.where(both, step, 1.0), 1.0)
        return value - direction * (s.lr * trust), {"exp_avg": mean, "exp_avg_sq": square}
