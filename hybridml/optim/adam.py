"""Adam (Kingma and Ba 2014) and AdamW (Loshchilov and Hutter 2017)."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from .. import arrays as xp
from ..core.tensor import Tensor
from .formulas import adam_step, moving_mean, moving_square
from .group import ParameterGroup
from .per_parameter import New, PerParameter


class Moments(PerParameter):
    """Base class of optimizers with running means of gradients and of their squares, whose weights are `betas`.

    Subclasses write `rule` by the `moments` after the gradient. Raises as `Optimizer`.
    """

    numbers: tuple[str, ...] = ("lr", "betas", "eps", "weight_decay")
    tensors = ("exp_avg", "exp_avg_sq")

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        beta1, beta2 = group["betas"]
        return {"rest1": 1 - beta1, "beta2": beta2, "rest2": 1 - beta2, "eps": group["eps"]}

    def moments(self, s: SimpleNamespace, g: Tensor, state: dict[str, Any]) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Both means after the gradient, and the state that they are."""
        mean = moving_mean.here(state["exp_avg"], g, s.rest1)
        square = moving_square.here(state["exp_avg_sq"], g, s.beta2, s.rest2)
        return mean, square, {"exp_avg": mean, "exp_avg_sq": square}


class Adam(Moments):
    """Adam: steps along the mean of the gradients over the root of their mean square (Kingma and Ba 2014).

    Both means are corrected for their start at zero. `params` are tensors, (name, tensor) pairs or groups, dicts with
    "params"; `betas` are the weights of the two running means. `weight_decay` adds ``weight_decay * p`` to the
    gradient, or with `decoupled_weight_decay` shrinks the parameter; `amsgrad` divides by the largest second moment so
    far (Reddi et al. 2018), `maximize` ascends. `foreach`, `capturable` and `fused` choose among PyTorch's
    implementations and say nothing here. Raises ArgumentError for no parameters, computed ones, one given twice
    or negative settings, or a beta of 1 or more, TypeError for parameters that are not float tensors.

    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Adam([w], lr=0.5).step()
    >>> round(w.item(), 6)
    0.5
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        super().__init__(params, {**settings, "maximize": maximize, "decoupled_weight_decay": decoupled_weight_decay})

    def state_names(self, group: ParameterGroup) -> tuple[str, ...]:
        return (*self.tensors, "max_exp_avg_sq") if group["amsgrad"] else self.tensors

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        beta1, beta2 = group["betas"]
        own = {"step_size": group["lr"] / (1 - beta1**steps), "correction": xp.sqrt(1 - beta2**steps)}
        return {**super().coefficients(group, steps), **own}

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        mean, square, new = self.moments(s, g, state)
        if group["amsgrad"]:
            new["max_exp_avg_sq"] = square = xp.maximum(state["max_exp_avg_sq"], square)
        return adam_step.here(value, mean, square, s.step_size, s.correction, s.eps), new


class AdamW(Adam):
    """Adam with decoupled weight decay, which multiplies parameters by ``1 - lr * weight_decay``.

    The decay does not enter the gradient's means. Arguments and errors as of `Adam`. Source: Loshchilov and Hutter
    2017.

    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * 0).sum().backward()
    >>> AdamW([w], lr=0.5, weight_decay=0.5).step()
    >>> w.tolist()
    [0.75]
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, decoupled_weight_decay=True)
