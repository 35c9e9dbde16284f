"""Linear, Embedding, Flatten and Identity."""

from __future__ import annotations

import math
from typing import Any

import hybridml as hm
from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import functional as F
from ..tensor import Tensor
from . import init
from .module import Module
from .parameter import Parameter


class Linear(Module):
    """``x @ weight.T + bias``: (..., in_features) -> (..., out_features).

    Weight (out, in) and bias (out,) start uniform within ``1 / sqrt(in)``.

    >>> Linear(3, 4)(hm.ones((2, 3))).shape
    (2, 4)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, dtype: Any = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(hm.empty((out_features, in_features)))
        self.register_parameter("bias", Parameter(hm.empty((out_features,))) if bias else None)
        self.reset_parameters()
        self._draw_in(dtype)

    def reset_parameters(self) -> None:
        uniform_by_fan_in(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """A table of `num_embeddings` vectors, looked up by integer: (...) -> (..., embedding_dim). Starts normal.

    `padding_idx` names a row that starts at zero and gets no gradient.

    >>> Embedding(10, 3)(hm.asarray([[1, 2], [3, 4]])).shape
    (2, 2, 3)
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *, dtype: Any = None
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ArgumentError(f"Embedding: padding_idx={padding_idx} is outside of {num_embeddings} rows")
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.weight = Parameter(hm.empty((num_embeddings, embedding_dim)))
        self.reset_parameters()
        self._draw_in(dtype)

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with hm.no_grad():
                self.weight[self.padding_idx] = 0

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class Flatten(Module):
    """Make axes `start_dim` to `end_dim` one axis.

    >>> Flatten()(hm.ones((2, 3, 4))).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        start, end = (d + input.ndim if d < 0 else d for d in (self.start_dim, self.end_dim))
        if not 0 <= start <= end < input.ndim:
            raise ShapeError(
                f"Flatten: axes {self.start_dim} to {self.end_dim} do not exist in order in shape {input.shape}"
            )
        middle = math.prod(input.shape[start : end + 1])
        return input.reshape((*input.shape[:start], middle, *input.shape[end + 1 :]))

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Identity(Module):
    """Gives back its input; takes and ignores any arguments when it is made."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


def uniform_by_fan_in(weight: Tensor, bias: Tensor | None) -> None:
    """The start of linear and convolutional layers: weight and bias uniform within ``1 / sqrt(fan_in)``."""
    init.kaiming_uniform_(weight, a=math.sqrt(5))
    if bias is not None:
        fan_in, _ = init.fans(weight)
        bound = 1 / math.sqrt(fan_in) if fan_in else 0
        init.uniform_(bias, -bound, bound)
