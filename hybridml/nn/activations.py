"""Activations and dropout as modules: each holds the arguments of its function."""

from __future__ import annotations

from typing import Any, Literal

from hybridml_compiler.errors import ArgumentError

from .. import functional as F
from ..tensor import Tensor
from .module import Module


class ReLU(Module):
    """`functional.relu`. `inplace` is taken for compatibility and has no effect."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input)


class ReLU6(Module):
    """`functional.relu6`. `inplace` is taken for compatibility and has no effect."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.relu6(input)


class LeakyReLU(Module):
    """`functional.leaky_relu`. `inplace` is taken for compatibility and has no effect."""

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}"


class ELU(Module):
    """`functional.elu`. `inplace` is taken for compatibility and has no effect."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}"


class GELU(Module):
    """`functional.gelu`."""

    def __init__(self, approximate: Literal["none", "tanh"] = "none") -> None:
        super().__init__()
        self.approximate: Literal["none", "tanh"] = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """`functional.silu`. `inplace` is taken for compatibility and has no effect."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input)


class Softplus(Module):
    """`functional.softplus`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Sigmoid(Module):
    """`functional.sigmoid`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.sigmoid(input)


class Tanh(Module):
    """`functional.tanh`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanh(input)


class _AlongAxis(Module):
    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongAxis):
    """`functional.softmax` along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)


class LogSoftmax(_AlongAxis):
    """`functional.log_softmax` along `dim`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim)


class Dropout(Module):
    """`functional.dropout` in training, nothing in evaluation. `inplace` has no effect."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentError(f"Dropout: p is a probability, 0 <= p <= 1, got {p}")
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


def activation(name_or_function: Any) -> Any:
    """An activation given by name ("relu", "gelu") or as a function."""
    named = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "tanh": F.tanh}
    if callable(name_or_function):
        return name_or_function
    if name_or_function not in named:
        raise ArgumentError(f"activation must be a function or one of {sorted(named)}, got {name_or_function!r}")
    return named[name_or_function]
