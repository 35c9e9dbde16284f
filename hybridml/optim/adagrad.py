"""Adagrad (Duchi et al. 2011) and Adadelta (Zeiler 2012): steps over the root of squares of all gradients."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, ClassVar

from ..core.tensor import Tensor
from .checks import Check
from .formulas import adadelta_change, adagrad_step, moving_square
from .group import ParameterGroup
from .optimizer import full
from .per_parameter import New, PerParameter


class Adagrad(PerParameter):
    """Adagrad: steps along the gradient over the root of the sum of all squares (Duchi et al. 2011).

    The rate is divided by ``1 + lr_decay * (step - 1)``, sums start at `initial_accumulator_value`; `weight_decay` and
    `maximize` are as of `SGD`. `foreach` and `fused` choose among PyTorch's implementations and say nothing here.
    Of sparse gradients (`nn.Embedding(..., sparse=True)`) only rows are touched. Raises ArgumentError and TypeError
    as `Adam`, GradientError for a sparse gradient with `weight_decay`.

    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Adagrad([w], lr=0.25).step()
    >>> w.tolist()
    [0.75]
    """

    numbers = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")
    tensors = ("sum",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        fused: bool | None = None,
    ) -> None:
        settings = {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**settings, "initial_accumulator_value": initial_accumulator_value})

    def refuses_sparse(self, group: ParameterGroup) -> str:
        return "weight_decay option is not compatible with sparse gradients" if group.uses("weight_decay") else ""

    def initial(self, name: str, parameter: Tensor, group: ParameterGroup) -> Tensor:
        return full(parameter, float(group["initial_accumulator_value"]))

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        return {"lr": group["lr"] / (1 + (steps - 1) * group["lr_decay"]), "eps": group["eps"]}

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        total = state["sum"] + g * g
        return adagrad_step.here(value, g, total, s.lr, s.eps), {"sum": total}


class Adadelta(PerParameter):
    """Adadelta: steps in the units of the parameter, over the root of the mean square of gradients (Zeiler 2012).

    `rho` is the weight of the running means; `weight_decay` and `maximize` are as of `SGD`. `foreach` and `capturable`
    choose among PyTorch's implementations and say nothing here. Raises ArgumentError and TypeError as `Adam`.

    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Adadelta([w], rho=0.5, eps=1.0).step()
    >>> round(w.item(), 4)
    -0.1547
    """

    numbers = ("lr", "rho", "eps", "weight_decay")
    tensors = ("square_avg", "acc_delta")
    checks: ClassVar[dict[str, Check]] = {
        "rho": Check("Invalid rho value: {value}", lambda rho: 0 <= rho <= 1, "must be in [0, 1]")
    }

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
    ) -> None:
        settings = {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "maximize": maximize})

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        return {"rest": 1 - group["rho"], **{name: group[name] for name in ("lr", "rho", "eps")}}

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        square = moving_square.here(state["square_avg"], g, s.rho, s.rest)
        change = adadelta_change.here(g, square, state["acc_delta"], s.eps)
        new = {"square_avg": square, "acc_delta": moving_square.here(state["acc_delta"], change, s.rho, s.rest)}
        return value - change * s.lr, new
