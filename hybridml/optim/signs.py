"""Steps by the signs of gradients: Rprop (Riedmiller and Braun 1993) and Lion (Chen et al. 2023)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from ..core.tensor import Tensor
from .formulas import clipped, lion_step, rprop_factor, rprop_gradient, weighted
from .group import ParameterGroup
from .optimizer import full
from .per_parameter import New, PerParameter


class Rprop(PerParameter):
    """Rprop: each element has its step size, longer while its gradient keeps its sign (Riedmiller and Braun 1993).

    Step sizes start at `lr`, are multiplied by the smaller of `etas` where the sign turned and by the greater one
    where it did not, and stay within `step_sizes`. For gradients of whole data. `foreach` and `capturable` choose among
    PyTorch's implementations and say nothing here. Raises ArgumentError and TypeError as `Adam`.

    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Rprop([w], lr=0.25).step()
    >>> w.tolist()
    [0.75]
    """

    numbers = ("lr", "etas", "step_sizes")
    tensors = ("prev", "step_size")

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, {"lr": lr, "etas": etas, "step_sizes": step_sizes, "maximize": maximize})

    def _check(self, settings: Mapping[str, Any]) -> None:
        super()._check(settings)
        shorter, longer = settings["etas"]
        if not 0 < float(shorter) < 1 < float(longer):
            raise ArgumentError(f"Rprop: Invalid eta values: {shorter}, {longer}; it must be 0 < etas[0] < 1 < etas[1]")

    def initial(self, name: str, parameter: Tensor, group: ParameterGroup) -> Tensor:
        return full(parameter, float(group["lr"]) if name == "step_size" else 0.0)

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        (shorter, longer), (low, high) = group["etas"], group["step_sizes"]
        first = xp.astype(xp.equal(steps, 1), steps.dtype)
        return {"lr": group["lr"], "first": first, "shorter": shorter, "longer": longer, "low": low, "high": high}

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        previous = state["prev"]
        # The rate of the first step, which a schedule may have set since the optimizer was made.
        step_size = xp.where(s.first > 0, s.lr, state["step_size"])
        step_size = clipped.here(step_size, rprop_factor.here(g, previous, s.shorter, s.longer), s.low, s.high)
        g = rprop_gradient.here(g, previous)
        return value - xp.sign(g) * step_size, {"prev": g, "step_size": step_size}


class Lion(PerParameter):
    """Lion: steps of one length along the signs of a mean of gradients (Chen et al. 2023).

    `betas` are the weights of the mean in the step and in the mean that is kept. Weight decay is decoupled, as in
    `AdamW`; rates are 3 to 10 times smaller than Adam's. Raises ArgumentError and TypeError as `Adam`.

    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Lion([w], lr=0.25).step()
    >>> w.tolist()
    [0.75]
    """

    numbers = ("lr", "betas", "weight_decay")
    tensors = ("exp_avg",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        settings = {"lr": lr, "betas": betas, "weight_decay": weight_decay, "maximize": maximize}
        super().__init__(params, {**settings, "decoupled_weight_decay": True})

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        beta1, beta2 = group["betas"]
        return {"lr": group["lr"], "beta1": beta1, "rest1": 1 - beta1, "beta2": beta2, "rest2": 1 - beta2}

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        mean = state["exp_avg"]
        stepped = lion_step.here(value, mean, g, s.beta1, s.rest1, s.lr)
        return stepped, {"exp_avg": weighted.here(mean, g, s.beta2, s.rest2)}
