"""Linear maps, table look-ups and dropout."""

from __future__ import annotations

from typing import Any

import hybridml as hm
from hybridml_compiler.errors import ArgumentError, DTypeError

from ..autograd import Function
from ..tensor import Tensor
from .compiled import compiled


@compiled
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``: (..., in) with weight (out, in) and bias (out,) -> (..., out).

    >>> linear(hm.ones((2, 3)), hm.ones((4, 3))).shape
    (2, 4)
    """
    if weight.ndim == 2 and input.ndim >= 2:
        product = _Linear.apply(input, weight)
    else:
        product = hm.matmul(input, weight.mT if weight.ndim > 1 else weight)
    return product if bias is None else product + bias


@compiled
def matmul_bfloat16(x: Tensor, y: Tensor) -> Tensor:
    """What a product of bfloat16 stands for. Compiled, it reads them as they lie (see the compiler's narrow.py)."""
    return hm.matmul(x.astype(hm.float32), y.astype(hm.float32)).astype(hm.bfloat16)


class _Linear(Function):
    """``input @ weight.T`` whose weight gradient is made in the layout of the weight.

    The rule of `matmul` makes the transpose of it: a strided array that the optimizer would have to copy (0.9 ms for
    784x512).
    """

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(input, weight)
        return hm.matmul(input, weight.mT)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        input, weight = ctx.saved_tensors
        wants_input, wants_weight = ctx.needs_input_grad
        rows, sources = g.reshape((-1, g.shape[-1])), input.reshape((-1, input.shape[-1]))
        return hm.matmul(g, weight) if wants_input else None, hm.matmul(rows.mT, sources) if wants_weight else None


@compiled
def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of `weight` (count, width) named by integer `input` (...) -> (..., width).

    Rows equal to `padding_idx` get no gradient. An index outside of the table raises an IndexError.

    >>> embedding(hm.asarray([[0, 2]]), hm.ones((3, 5))).shape
    (1, 2, 5)
    """
    if input.dtype.kind not in "iu":
        raise DTypeError(f"embedding: input must be integers, got {input.dtype.name}; cast it with .astype(hm.int64)")
    rows = hm.take(weight, from_zero(input, weight.shape[0]), axis=0)
    if padding_idx is None:
        return rows
    index = padding_idx if padding_idx >= 0 else padding_idx + weight.shape[0]
    return hm.where(hm.equal(input, index)[..., None], rows.detach(), rows)


def from_zero(index: Tensor, size: int) -> Tensor:
    """Indices of which a negative one does not exist, as in PyTorch: it is moved out of the range of -size..size - 1.

    A class of -1 is "no label" in many data sets; counted from the end it would be the last class.
    """
    wide = index if index.dtype == hm.int64 else hm.astype(index, hm.int64)  # int8 cannot hold -size
    return hm.where(hm.less(wide, 0), wide - size, wide)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Integer (...) -> int64 (..., num_classes): 1 at the index, 0 elsewhere. -1 takes the largest index + 1.

    >>> one_hot(hm.asarray([0, 2])).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    if num_classes == -1:
        num_classes = int(tensor.max()) + 1
    return hm.astype(tensor[..., None] == hm.arange(num_classes, dtype=tensor.dtype), hm.int64)


def dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero each element with probability `p` and scale the rest by ``1 / (1 - p)`` (Srivastava et al. 2014).

    Draws from the default generator: the same mask eagerly and traced after the same `hm.manual_seed`.

    >>> dropout(hm.ones((2, 2)), 0.5, training=False).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    if not 0 <= p <= 1:
        raise ArgumentError(f"dropout: p is a probability, 0 <= p <= 1, got {p}")
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0
    keep = hm.random.bernoulli(1 - p, input.shape)
    return hm.where(keep, input * (1 / (1 - p)), 0)
