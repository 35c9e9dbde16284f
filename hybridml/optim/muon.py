"""Muon (Jordan et al. 2024): momentum of matrices whose singular values are made equal."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

from hybridml_compiler.errors import ArgumentError

from .. import arrays as xp
from ..core.tensor import Tensor
from .checks import Check, not_negative
from .formulas import moving_mean
from .group import ParameterGroup
from .per_parameter import New, PerParameter

# Factors of the rate, by the numbers of rows and columns of the matrix.
ADJUSTMENTS: dict[str, Callable[[int, int], float]] = {
    "original": lambda rows, columns: math.sqrt(max(1, rows / columns)),
    "match_rms_adamw": lambda rows, columns: 0.2 * math.sqrt(max(rows, columns)),
    "spectral_unclamped": lambda rows, columns: math.sqrt(rows / columns),
}


class Muon(PerParameter):
    """Muon: steps along the momentum of a matrix with its singular values made equal (Jordan et al. 2024).

    They are made so by `ns_steps` of Newton and Schulz with `ns_coefficients`, in bfloat16. `adjust_lr_fn` scales the
    rate by the shape: "original", "match_rms_adamw" or "spectral_unclamped". Weight decay is decoupled. Parameters are
    matrices: vectors and embeddings are for `AdamW`. Raises ArgumentError for others, otherwise as `Adam`.

    >>> w = hm.eye(2, requires_grad=True)
    >>> (w * w).sum().backward()
    >>> Muon([w], lr=0.25, weight_decay=0).step()
    >>> (w < hm.eye(2)).sum().item()
    2
    """

    numbers = ("lr", "weight_decay", "momentum")
    tensors = ("momentum_buffer",)
    checks: ClassVar[dict[str, Check]] = {
        "lr": not_negative("Learning rate should be >= 0 but is: {value}"),
        "momentum": not_negative("momentum should be >= 0 but is: {value}"),
        "weight_decay": not_negative("weight decay should be >= 0 but is: {value}"),
    }

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        settings = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "eps": eps}
        own = {"ns_coefficients": ns_coefficients, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn}
        super().__init__(params, {**settings, **own})

    def _check(self, settings: Mapping[str, Any]) -> None:
        super()._check(settings)
        if settings["adjust_lr_fn"] not in (None, *ADJUSTMENTS):
            raise ArgumentError(
                f"Muon: Adjust learning rate function {settings['adjust_lr_fn']} is not supported; there are "
                f"{', '.join(ADJUSTMENTS)}"
            )
        if not settings["ns_steps"] < 100:
            raise ArgumentError("Muon: Number of steps must be less than 100 for computational efficiency")
        if len(settings["ns_coefficients"]) != 3:
            raise ArgumentError("Muon: Coefficients must be a tuple of exactly 3 values")
        for p in settings["params"]:
            if p.ndim != 2:
                raise ArgumentError(
                    f"Muon only supports 2D parameters whereas we found a parameter with size: {p.shape}"
                )
            if p.dtype.kind == "c":
                raise ArgumentError("Muon does not support complex parameters")

    def coefficients(self, group: ParameterGroup, steps: Tensor) -> dict[str, Tensor]:
        return {"lr": group["lr"], "momentum": group["momentum"], "rest": 1 - group["momentum"]}

    def decayed(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        return value * s.shrink, g

    def rule(self, group: ParameterGroup, s: SimpleNamespace, value: Tensor, g: Tensor, state: dict[str, Any]) -> New:
        speed = moving_mean.here(state["momentum_buffer"], g, s.rest)
        direction = moving_mean.here(g, speed, s.momentum) if group["nesterov"] else speed
        made = orthogonal(direction, group["ns_coefficients"], group["ns_steps"], group["eps"])
        scale = ADJUSTMENTS[group["adjust_lr_fn"] or "original"](*value.shape)
        return value - xp.astype(made, value.dtype) * (s.lr * scale), {"momentum_buffer": speed}


def orthogonal(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """A float32 matrix with the singular vectors of `matrix` and singular values near 1, in steps of bfloat16."""
    a, b, c = coefficients
    tall = matrix.shape[0] > matrix.shape[1]
    x = _rounded(matrix.T if tall else matrix)
    x = _rounded(x / xp.maximum(_rounded(xp.sqrt((x * x).sum())), eps))
    for _ in range(steps):
        gram = _rounded(x @ x.T)
        x = _rounded(x * a + _rounded(gram * b + (gram @ gram) * c) @ x)
    return x.T if tall else x


def _rounded(x: Tensor) -> Tensor:
    """The nearest numbers of bfloat16, in float32: products of such matrices are added in float32."""
    return xp.astype(xp.astype(x, xp.bfloat16), xp.float32)
