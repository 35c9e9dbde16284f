"""Adafactor (Shazeer and Stern 2018): mean squares of a matrix from those of its rows and columns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from ..core.tensor import Tensor
from .checks import Check, not_negative
from .formulas import moving_mean
from .group import ParameterGroup
from .optimizer import full
from .per_parameter import New, PerParameter


class Adafactor(PerParameter):
    """Adafactor: steps along the gradient over the root of a mean square of few numbers (Shazeer and Stern 2018).

    A matrix (..., n, m) keeps mean squares of its rows (..., n, 1) and columns (..., 1, m) alone. The weight of the
    present square is ``step ** beta2_decay``; steps are at most `d` on average, and relative to the parameter, at least
    to ``eps[1]``; ``eps[0]``, by default that of the dtype, keeps squares from zero. Weight decay is decoupled.
    `foreach` says nothing here. Raises ArgumentError for complex parameters too, otherwise as `Adam`.

    >>> w = hm.tensor([1.0], requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Adafactor([w], lr=0.25).step()
    >>> w.tolist()
    [0.75]
    """

    numbers = ("lr", "beta2_decay", "d", "weight_decay")
    tensors = ("row_var", "col_var", "variance")
    checks: ClassVar[dict[str, Check]] = {
        "lr": not_negative("Learning rate should be >= 0 but is: {value}"),
        "beta2_decay": Check("beta2_decay should be <= 0 but is: {value}", lambda value: value <= 0, "is an exponent"),
        "d": Check("Clipping threshold d should be >= 1 but is: {value}", lambda value: value >= 1, "is a root mean"),
        "weight_decay": not_negative("weight_decay should be >= 0 but is: {value}"),
    }

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        settings = {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay}
        super().__init__(params, {**settings, "maximize": maximize})

    def _check(self, settings: Mapping[str, Any]) -> None:
        super()._check(settings)
        for k, number in enumerate(settings["eps"], 1):
            if number is not None and not number >= 0:
                raise ArgumentError(f"Adafactor: epsilon{k} should be >= 0 but is: {number}")
        if any(p.dtype.kind == "c" for p in settings["params"]):
            raise ArgumentError("Adafactor does not support complex parameters")

    def fits(self, name: str, parameter: Tensor) -> bool:
        return (name == "variance") == (parameter.ndim < 2)

    def initial(self, name: str, parameter: Tensor, group: ParameterGroup) -> Tensor:
        *outer, rows, columns = (1, 1, *parameter.shape)
        shapes = {"row_var": (rows, 1), "col_var": (1, columns)}
        return full(parameter, shape=(*outer[2:], *shapes[name]) if name in shapes else None)

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        rate = xp.minimum(group["lr"], 1 / xp.sqrt(steps))
        return {"rate": rate, "share": steps ** group["beta2_decay"], "d": group["d"]}

    def decayed(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        return value, g  # the step is relative to the parameter before its decay

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        eps, least = group["eps"]
        if eps is None:
            eps = float(xp.finfo(value.dtype).eps)
        square = g * g
        if g.ndim > 1:
            row = moving_mean.here(state["row_var"], square.mean(axis=-1, keepdims=True), s.share)
            column = moving_mean.here(state["col_var"], square.mean(axis=-2, keepdims=True), s.share)
            new = {"row_var": row, "col_var": column}
            mean = row * column / xp.maximum(row.mean(axis=-2, keepdims=True), eps)
        else:
            mean = moving_mean.here(state["variance"], square, s.share)
            new = {"variance": mean}
        direction = g / xp.sqrt(xp.maximum(mean, eps * eps))
        root = math.sqrt(g.size)
        step = xp.maximum(_norm(value) / root, least) * s.rate / xp.maximum(_norm(direction) / (s.d * root), 1.0)
        if group.uses("weight_decay"):
            value = value * s.shrink
        return value - direction * step, new


def _norm(x: Tensor) -> Tensor:
    return xp.sqrt((x * x).sum())
