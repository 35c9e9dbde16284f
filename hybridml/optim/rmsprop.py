"""RMSprop (Tieleman and Hinton 2012, in PyTorch's form)."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from ..core.tensor import Tensor
from .formulas import moving_mean, moving_square, over_root
from .group import ParameterGroup
from .per_parameter import New, PerParameter


class RMSprop(PerParameter):
    """RMSprop: steps along the gradient over the root of its running mean square (Tieleman and Hinton 2012).

    `alpha` is the weight of the running mean, `centered` subtracts the squared mean of the gradients, `momentum` and
    `weight_decay` are as of `SGD`. Raises ArgumentError for no parameters, computed ones, one given twice or negative
    settings, TypeError for parameters that are not float tensors.

    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> RMSprop([w], lr=0.01).step()
    >>> round(w.item(), 4)
    0.9
    """

    numbers = ("lr", "alpha", "eps", "weight_decay", "momentum")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        settings = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, {**settings, "centered": centered, "maximize": maximize})

    def state_names(self, group: ParameterGroup) -> list[str]:
        wanted = {"square_avg": True, "momentum_buffer": group.uses("momentum"), "grad_avg": group["centered"]}
        return [name for name, needed in wanted.items() if needed]

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        return {"rest": 1 - group["alpha"], **{name: group[name] for name in ("lr", "alpha", "eps", "momentum")}}

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        square = moving_square.here(state["square_avg"], g, s.alpha, s.rest)
        new = {"square_avg": square}
        if group["centered"]:
            new["grad_avg"] = mean = moving_mean.here(state["grad_avg"], g, s.rest)
            square = square - mean * mean
        direction = over_root.here(g, square, s.eps)
        if group.uses("momentum"):
            new["momentum_buffer"] = direction = state["momentum_buffer"] * s.momentum + direction
        return value - direction * s.lr, new
