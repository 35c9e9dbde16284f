"""RMSprop (Tieleman and Hinton 2012, in PyTorch's form)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.tensor import Tensor
from ..nn.parameter import Writes
from .formulas import moving_mean, moving_square, over_root
from .group import ParameterGroup
from .optimizer import Optimizer
from .parts import parts
from .scalars import Scalars


class RMSprop(Optimizer):
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
        *,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        settings = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, {**settings, "centered": centered, "maximize": maximize})

    def state_names(self, group: ParameterGroup) -> list[str]:
        wanted = {"square_avg": True, "momentum_buffer": group.uses("momentum"), "grad_avg": group["centered"]}
        return [name for name, needed in wanted.items() if needed]

    def update(self, group: ParameterGroup, ready: list[int], steps: Tensor) -> Writes:
        names = ("lr", "alpha", "eps", "weight_decay", "momentum")
        scalars = Scalars(rest=1 - group["alpha"], **{name: group[name] for name in names})
        mean_of, square_of, direction_of = moving_mean.here, moving_square.here, over_root.here
        decays, keeps_speed = group.uses("weight_decay"), group.uses("momentum")
        writes: Writes = []
        for k in ready:
            p = group["params"][k]
            value, g = parts(p), parts(p.grad)
            state, s = self.state[p], scalars.of(value.dtype)
            if group["maximize"]:
                g = -g
            if decays:
                g = g + value * s.weight_decay
            square = square_of(parts(state["square_avg"]), g, s.alpha, s.rest)
            writes.append((state["square_avg"], square))
            if group["centered"]:
                mean = mean_of(parts(state["grad_avg"]), g, s.rest)
                writes.append((state["grad_avg"], mean))
                square = square - mean * mean
            direction = direction_of(g, square, s.eps)
            if keeps_speed:
                direction = parts(state["momentum_buffer"]) * s.momentum + direction
                writes.append((state["momentum_buffer"], direction))
            writes.append((p, value - direction * s.lr))
        return writes
