"""Stochastic gradient descent with momentum (Sutskever et al. 2013, in PyTorch's form)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from ..core.tensor import Tensor
from ..nn.parameter import Writes
from .group import ParameterGroup
from .optimizer import Optimizer
from .scalars import Scalars


class SGD(Optimizer):
    """Stochastic gradient descent ``v = momentum v + (1 - dampening) g; p -= lr v`` (Sutskever et al. 2013).

    At a parameter's first step v = g. `weight_decay` adds ``weight_decay * p`` to the gradient, `nesterov` steps along
    ``g + momentum v``, `maximize` ascends; `foreach` and `fused` choose among PyTorch's implementations and say
    nothing here. Without momentum and weight decay sparse gradients update their rows alone (with them they are a
    GradientError). Raises ArgumentError for no parameters, computed ones, one given twice or
    negative settings, or `nesterov` without momentum or with dampening, TypeError for parameters that are not float
    tensors.

    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> SGD([w], lr=0.25).step()
    >>> w.tolist()
    [0.5]
    """

    numbers = ("lr", "momentum", "dampening", "weight_decay")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
    ) -> None:
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ArgumentError("SGD: nesterov needs momentum > 0 and dampening = 0")
        settings = {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "nesterov": nesterov, "maximize": maximize})

    def state_names(self, group: ParameterGroup) -> tuple[str, ...]:
        return ("momentum_buffer",) if group.uses("momentum") else ()

    def refuses_sparse(self, group: ParameterGroup) -> str:
        used = next((name for name in ("momentum", "weight_decay") if group.uses(name)), "")
        return f"SGD: {used} option is not compatible with sparse gradients" if used else ""

    def update(self, group: ParameterGroup, ready: list[int], steps: Tensor) -> Writes:
        scalars = Scalars(
            lr=group["lr"],
            momentum=group["momentum"],
            share=1 - group["dampening"],
            weight_decay=group["weight_decay"],
        )
        writes: Writes = []
        for k in ready:
            p = group["params"][k]
            s = scalars.of(p.dtype)
            g = -p.grad if group["maximize"] else p.grad
            if group.uses("weight_decay"):
                g = g + p * s.weight_decay
            if group.uses("momentum"):
                held = self.state[p]["momentum_buffer"]
                if group.uses("dampening"):
                    buffer = xp.where(xp.equal(steps[k], 1), g, held * s.momentum + g * s.share)
                else:
                    buffer = held * s.momentum + g
                writes.append((held, buffer))
                g = g + buffer * s.momentum if group["nesterov"] else buffer
            writes.append((p, p - g * s.lr))
        return writes
