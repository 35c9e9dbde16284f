"""PerParameter: optimizers that update each parameter by one rule, from its gradient and its own state."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from .. import arrays as xp
from ..core.context import current_interpreter
from ..core.tensor import Tensor
from ..nn.parameter import Writes
from .group import ParameterGroup
from .optimizer import Optimizer
from .parts import parts
from .scalars import Scalars

New = tuple[Tensor, dict[str, Tensor]]  # the parameter and the state after a step


class PerParameter(Optimizer):
    """Base class of optimizers that are a formula and its numbers: subclasses write `coefficients` and `rule`.

    Numbers are computed once per group, in float64, and cast to the dtype of each parameter. Complex parameters are
    pairs of real numbers. Weight decay and `maximize` are applied before the rule. Raises as `Optimizer`.

    >>> class Signs(PerParameter):
    ...     def rule(self, group, s, value, g, state):
    ...         return value - hm.sign(g) * s.lr, {}
    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Signs([w], {"lr": 0.25}).step()
    >>> w.tolist()
    [0.75]
    """

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        """The numbers of the rule: 0-d, or vectors with one number per parameter."""
        return {"lr": group["lr"]}

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        """The parameter and the state that follow; `s` has the coefficients in the parameter's dtype."""
        raise NotImplementedError(f"{type(self).__name__} has no rule method")

    def advanced(self, group: ParameterGroup, steps: Tensor) -> Mapping[str, Tensor]:
        """New values of the numbers that the state has for each parameter (`per_parameter`)."""
        return {}

    def decayed(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        """Value and gradient with weight decay: decoupled it shrinks the parameter and stays out of the gradient."""
        return (value * s.shrink, g) if group.get("decoupled_weight_decay") else (value, g + value * s.weight_decay)

    def found(self, group: ParameterGroup, k: int, steps: Tensor) -> dict[str, Any]:
        """The state of parameter k as the rule of this step finds it."""
        return self.state[group["params"][k]]

    def update(self, group: ParameterGroup, ready: list[int], steps: Tensor) -> Writes:
        numbers = self.coefficients(group, steps)
        decays = "weight_decay" in group and group.uses("weight_decay")
        if decays:
            decay = group["weight_decay"]
            numbers = {**numbers, "weight_decay": decay, "shrink": 1 - group["lr"] * decay}
        scalars, traced = Scalars(**numbers), current_interpreter() is not None
        writes: Writes = []
        for k in ready:
            p = group["params"][k]
            value, g = parts(p), parts(p.grad)
            # Number k of a vector is two operations of a trace, with its axis one; alone it meets any device's tensors.
            own = slice(k, k + 1) if traced and value.shape and value.device == steps.device else k
            s, held = scalars.at(value.dtype, own), self.state[p]
            if group.get("maximize"):
                g = -g
            if decays:
                value, g = self.decayed(group, s, value, g)
            state = {name: parts(tensor) for name, tensor in self.found(group, k, steps).items()}
            value, new = self.rule(group, s, value, g, state)
            writes += [(held[name], tensor) for name, tensor in new.items()]
            writes.append((p, value))
        for name, new_vector in self.advanced(group, steps).items():
            old = group.vectors[name]
            if len(ready) < len(group["params"]):
                moved = xp.asarray([k in ready for k in range(len(group["params"]))], device="cpu")
                new_vector = xp.where(moved, new_vector, old)
            writes.append((old, new_vector))
        return writes
