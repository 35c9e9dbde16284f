"""Adam (Kingma and Ba 2014) and AdamW (Loshchilov and Hutter 2017)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from .. import arrays as xp
from ..core.context import no_grad
from ..core.tensor import Tensor
from ..nn.parameter import Writes
from .formulas import adam_step, moving_mean, moving_square
from .group import ParameterGroup
from .optimizer import full
from .parts import held_as, parts
from .per_parameter import New, PerParameter
from .rows import touched


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
    implementations and say nothing here.

    With `lazy`, rows of the first axis whose gradient is zero stay as they are, with their moments, and cost nothing
    where the gradient is sparse (`nn.Embedding(..., sparse=True)`, or in a traced step any few look-ups). When a row
    has a gradient again, its moments first decay for the steps that it has missed: they are those of a step on all
    rows. Only the way that such rows would have gone by their mean, and their weight decay, are left out.

    Raises ArgumentError for no parameters, computed ones, one given twice or negative settings, or a beta of 1 or more,
    TypeError for parameters that are not float tensors, GradientError for sparse gradients unless it is lazy.

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
        lazy: bool = False,
    ) -> None:
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        switches = {"maximize": maximize, "decoupled_weight_decay": decoupled_weight_decay, "lazy": lazy}
        super().__init__(params, {**settings, **switches})

    def state_names(self, group: ParameterGroup) -> tuple[str, ...]:
        own = {"amsgrad": "max_exp_avg_sq", "lazy": "last_step"}
        return (*self.tensors, *[name for setting, name in own.items() if group[setting]])

    def fits(self, name: str, parameter: Tensor) -> bool:
        return name != "last_step" or parameter.ndim > 0

    def initial(self, name: str, parameter: Tensor, group: ParameterGroup) -> Tensor:
        if name != "last_step":
            return super().initial(name, parameter, group)
        counts = next(c for g, c in zip(self.param_groups, self._steps, strict=True) if g is group)
        k = next(k for k, p in enumerate(group["params"]) if p is parameter)
        return full(parameter, counts._array[k], parameter.shape[:1], np.dtype(np.int64))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        # The moments of an optimizer that was not lazy are those of its last step, in all rows.
        entries = state_dict["state"]
        for group, steps, saved in zip(self.param_groups, self._steps, state_dict["param_groups"], strict=True):
            for k, (parameter, key) in enumerate(zip(group["params"], saved["params"], strict=True)):
                last = self.state[parameter].get("last_step")
                if last is not None and "last_step" not in entries.get(key, entries.get(str(key), {})):
                    with no_grad():
                        last.copy_(steps[k].astype(last.dtype))

    def refuses_sparse(self, group: ParameterGroup) -> str:
        return "" if group["lazy"] else f"{super().refuses_sparse(group)}, or lazy=True"

    def found(self, group: ParameterGroup, k: int, steps: Tensor) -> dict[str, Any]:
        held = super().found(group, k, steps)
        if "last_step" not in held:
            return held
        missed = steps[k] - 1 - held["last_step"].astype(steps.dtype)
        pairs = zip(self.tensors, group["betas"], strict=True)
        return {**held, **{name: _decayed(held[name], beta, missed) for name, beta in pairs}}

    def update(self, group: ParameterGroup, ready: list[int], steps: Tensor) -> Writes:
        writes = super().update(group, ready, steps)
        kept: dict[int, Tensor] = {}
        for k in ready:
            parameter = group["params"][k]
            held = self.state[parameter]
            if "last_step" in held:
                last = held["last_step"]
                writes.append((last, xp.broadcast_to(steps[k].astype(last.dtype), last.shape)))
                if group["lazy"]:
                    rows = touched(parameter)
                    kept |= {id(t): rows for t in (parameter, *held.values())}
                    kept[id(last)] = rows.reshape(last.shape)
        return [(t, xp.where(kept[id(t)], held_as(new, t.dtype), t) if id(t) in kept else new) for t, new in writes]

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
        lazy: bool = False,
    ) -> None:
        switches = {"maximize": maximize, "decoupled_weight_decay": True, "lazy": lazy}
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **switches)


def _decayed(moments: Tensor, beta: Tensor, missed: Tensor) -> Tensor:
    """Moments (n, ...) after the steps that each row has missed."""
    moments = parts(moments)
    factors = (beta.astype(missed.dtype) ** missed).astype(moments.dtype)
    return moments * factors.reshape((-1, *[1] * (moments.ndim - 1)))
