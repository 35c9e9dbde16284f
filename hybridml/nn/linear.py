"""Linear and bilinear maps, tables of vectors."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from .. import functional as F
from ..core.context import no_grad
from ..core.tensor import Tensor
from . import init
from .module import Module
from .parameter import Parameter


class Linear(Module):
    """Linear map ``x @ weight.T + bias``: (..., in_features) -> (..., out_features).

    `weight` (out_features, in_features) and `bias` (out_features,) start uniform within ``1 / sqrt(in_features)``;
    ``bias=False`` leaves the bias out. Raises ShapeError for an input with another last axis.

    >>> Linear(3, 4)(hm.ones((2, 3))).shape
    (2, 4)
    """

    output_axis: ClassVar[int] = 0  # of the weight, along which the outputs are: styles of tensor parallel cut it

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, dtype: Any = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(xp.empty((out_features, in_features)))
        self.register_parameter("bias", Parameter(xp.empty((out_features,))) if bias else None)
        self.reset_parameters()
        self._draw_in(dtype)

    def reset_parameters(self) -> None:
        uniform_by_fan_in(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class Bilinear(Module):
    """Bilinear map ``x1 @ weight[k] @ x2 + bias[k]`` for each output k.

    Shapes (..., in1_features) and (..., in2_features) -> (..., out_features). `weight`
    (out_features, in1_features, in2_features) and `bias` (out_features,) start uniform within
    ``1 / sqrt(in1_features)``. Raises ShapeError for inputs of other sizes.

    >>> Bilinear(3, 4, 5)(hm.ones((2, 3)), hm.ones((2, 4))).shape
    (2, 5)
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, *, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = Parameter(xp.empty((out_features, in1_features, in2_features)))
        self.register_parameter("bias", Parameter(xp.empty((out_features,))) if bias else None)
        self.reset_parameters()
        self._draw_in(dtype)

    def reset_parameters(self) -> None:
        bound = 1 / math.sqrt(self.in1_features) if self.in1_features else 0
        for parameter in (self.weight, self.bias):
            if parameter is not None:
                init.uniform_(parameter, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class Embedding(Module):
    """Table of `num_embeddings` vectors, looked up by integers: (...) -> (..., embedding_dim).

    `weight` (num_embeddings, embedding_dim) starts standard normal. `padding_idx` names a row that starts at zero and
    gets no gradient. With `sparse` the gradient of `weight` has the rows that were looked up alone, which `SGD` without
    momentum, `Adagrad` and `SparseAdam` take: a step does not depend on the size of the table. Raises ArgumentError for
    a `padding_idx` outside of the table, DTypeError for an input that is not of integers, IndexError for one outside of
    the table.

    >>> Embedding(10, 3)(hm.asarray([[1, 2], [3, 4]])).shape
    (2, 2, 3)
    """

    output_axis: ClassVar[int] = 1

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *, sparse: bool = False,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ArgumentError(f"Embedding: padding_idx={padding_idx} is outside of {num_embeddings} rows")
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.sparse = sparse
        self.weight = Parameter(xp.empty((num_embeddings, embedding_dim)))
        self.reset_parameters()
        self._draw_in(dtype)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **options: Any) -> Self:
        """A layer whose table is `embeddings` itself (rows, embedding_dim), without a gradient if `freeze`.

        `options` are those of the class. Raises ShapeError for a table that is no matrix.

        >>> Embedding.from_pretrained(hm.asarray([[1.0, 2.0], [3.0, 4.0]]))(hm.asarray([1])).tolist()
        [[3.0, 4.0]]
        """
        if embeddings.ndim != 2:
            raise ShapeError(f"{cls.__name__}: embeddings must be (rows, embedding_dim), got {embeddings.shape}")
        made = cls(embeddings.shape[0], 0, **options)  # draws nothing
        made.embedding_dim = embeddings.shape[1]
        made.weight = Parameter(embeddings, requires_grad=not freeze)
        return made

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx, sparse=self.sparse)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}" + (", sparse=True" if self.sparse else "")


class EmbeddingBag(Embedding):
    """Mean, sum or maximum of the rows of a table for each bag of integers.

    Called with (input, offsets=None, per_sample_weights=None): input (bags, length), or (n,) with offsets (bags,),
    where each bag starts, -> (bags, embedding_dim). `per_sample_weights`, shaped as the input, are for ``mode="sum"``.
    Raises ArgumentError for another `mode`, ShapeError for other shapes, DTypeError for an input that is not of
    integers. See `functional.embedding_bag`.

    >>> EmbeddingBag(10, 3, mode="sum")(hm.asarray([1, 2, 4, 3]), hm.asarray([0, 3])).shape
    (2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        sparse: bool = False,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx, sparse=sparse, dtype=dtype)
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, mode=self.mode, per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset, padding_idx=self.padding_idx, sparse=self.sparse,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, mode={self.mode!r}"


def uniform_by_fan_in(weight: Tensor, bias: Tensor | None) -> None:
    """Start of linear and convolutional layers: weight and bias uniform within ``1 / sqrt(fan_in)``."""
    init.kaiming_uniform_(weight, a=math.sqrt(5))
    if bias is not None:
        fan_in, _ = init.fans(weight)
        bound = 1 / math.sqrt(fan_in) if fan_in else 0
        init.uniform_(bias, -bound, bound)


__all__ = ["Bilinear", "Embedding", "EmbeddingBag", "Linear"]
