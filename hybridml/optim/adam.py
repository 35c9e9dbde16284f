"""Adam (Kingma and Ba 2014) and AdamW (Loshchilov and Hutter 2017)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import arrays as xp
from ..core.context import current_interpreter
from ..core.tensor import Tensor
from ..nn.parameter import Writes
from .formulas import adam_step, moving_mean, moving_square
from .group import ParameterGroup
from .optimizer import Optimizer
from .parts import parts
from .scalars import Scalars


class Adam(Optimizer):
    """Adam: steps along the mean of the gradients over the root of their mean square (Kingma and Ba 2014).

    Both means are corrected for their start at zero. `params` are tensors, (name, tensor) pairs or groups, dicts with
    "params"; `betas` are the weights of the two running means. `weight_decay` adds ``weight_decay * p`` to the
    gradient, `amsgrad` divides by the largest second moment so far (Reddi et al. 2018), `maximize` ascends.
    `foreach` and `fused` choose among PyTorch's implementations and say nothing here. Raises ArgumentError for no
    parameters, computed ones, one given twice or negative settings, or a beta of 1 or more, TypeError for parameters
    that are not float tensors.

    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Adam([w], lr=0.5).step()
    >>> round(w.item(), 6)
    0.5
    """

    numbers = ("lr", "betas", "eps", "weight_decay")
    decoupled = False  # weight decay shrinks the parameter and stays out of the gradient

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
        fused: bool | None = None,
    ) -> None:
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "amsgrad": amsgrad, "maximize": maximize})

    def state_names(self, group: ParameterGroup) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else []))

    def update(self, group: ParameterGroup, ready: list[int], steps: Tensor) -> Writes:
        lr, (beta1, beta2) = group["lr"], group["betas"]
        scalars = Scalars(
            step_size=lr / (1 - beta1**steps),  # one a parameter
            correction=xp.sqrt(1 - beta2**steps),
            eps=group["eps"],
            rest1=1 - beta1,
            beta2=beta2,
            rest2=1 - beta2,
            weight_decay=group["weight_decay"],
            shrink=1 - lr * group["weight_decay"],
        )
        decays = group.uses("weight_decay")
        # Number k of a vector is two operations of a trace, with its axis one; alone it meets any device's tensors.
        traced = current_interpreter() is not None
        mean_of, square_of, stepped = moving_mean.here, moving_square.here, adam_step.here
        writes: Writes = []
        for k in ready:
            p = group["params"][k]
            value, g = parts(p), parts(p.grad)
            state, s = self.state[p], scalars.of(value.dtype)
            if group["maximize"]:
                g = -g
            if decays and self.decoupled:
                value = value * s.shrink
            elif decays:
                g = g + value * s.weight_decay
            mean = mean_of(parts(state["exp_avg"]), g, s.rest1)
            square = square_of(parts(state["exp_avg_sq"]), g, s.beta2, s.rest2)
            writes += [(state["exp_avg"], mean), (state["exp_avg_sq"], square)]
            if group["amsgrad"]:
                square = xp.maximum(parts(state["max_exp_avg_sq"]), square)
                writes.append((state["max_exp_avg_sq"], square))
            own = slice(k, k + 1) if traced and value.shape and value.device == steps.device else k
            step_size, correction = s.step_size[own], s.correction[own]
            writes.append((p, stepped(value, mean, square, step_size, correction, s.eps)))
        return writes


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

    decoupled = True

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
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize)
