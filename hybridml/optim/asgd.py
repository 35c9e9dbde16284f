"""Averaged stochastic gradient descent (Polyak and Juditsky 1992)."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, ClassVar

from .. import arrays as xp
from ..core.tensor import Tensor
from .formulas import averaged, weighted
from .group import ParameterGroup
from .per_parameter import New, PerParameter


class ASGD(PerParameter):
    """Gradient descent that also averages its parameters, in ``state[p]["ax"]`` (Polyak and Juditsky 1992).

    Rates fall as ``lr / (1 + lambd * lr * step) ** alpha``, parameters decay by `lambd`, and the average starts at step
    `t0`. `foreach` and `capturable` choose among PyTorch's implementations and say nothing here. Raises ArgumentError
    and TypeError as `Adam`.

    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> ASGD([w], lr=0.25, lambd=0).step()
    >>> w.tolist()
    [0.5]
    """

    numbers = ("lr", "lambd", "alpha", "t0", "weight_decay")
    tensors = ("ax",)
    per_parameter: ClassVar[dict[str, float]] = {"eta": 0.0, "mu": 1.0}

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
    ) -> None:
        settings = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "maximize": maximize})

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        eta = xp.where(xp.equal(steps, 1), group["lr"], group.vectors["eta"])
        return {"eta": -eta, "kept": 1 - group["lambd"] * eta, "mu": group.vectors["mu"]}

    def advanced(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        lr = group["lr"]
        eta = lr / (1 + group["lambd"] * lr * steps) ** group["alpha"]
        return {"eta": eta, "mu": 1 / xp.maximum(1.0, steps - group["t0"])}

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        value = weighted.here(value, g, s.kept, s.eta)
        return value, {"ax": averaged.here(state["ax"], value, s.mu)}
