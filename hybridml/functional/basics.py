"""Linear maps and table look-ups."""

from __future__ import annotations

import math
from typing import Any

from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError

from .. import arrays as xp
from ..arrays.contracting.products import conjugate
from ..arrays.indexing.selecting import from_zero
from ..arrays.indexing.sparse_rows import rows_of, takes_sparse
from ..autograd import Function
from ..core.context import placed
from ..core.library import compiled, compiled_for_lengths, compiled_when_small
from ..core.tensor import Tensor


@compiled_for_lengths(input=(-2,))
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Linear map ``input @ weight.T + bias``: (..., in) with weight (out, in) and bias (out,) -> (..., out).

    Raises ShapeError where the sizes do not fit.

    >>> linear(hm.ones((2, 3)), hm.ones((4, 3))).shape
    (2, 4)
    """
    if weight.ndim == 2 and input.ndim >= 2:
        product = _Linear.apply(input, weight)
    else:
        product = xp.matmul(input, weight.mT if weight.ndim > 1 else weight)
    return product if bias is None else product + bias


@compiled
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Bilinear map ``input1 @ weight[k] @ input2 + bias[k]`` for each k.

    Shapes (..., i) and (..., j) with weight (o, i, j) and bias (o,) -> (..., o). Raises ShapeError where the sizes do
    not fit.

    >>> bilinear(hm.ones((5, 2)), hm.ones((5, 3)), hm.ones((4, 2, 3))).shape
    (5, 4)
    """
    if weight.ndim != 3 or (input1.shape[-1:], input2.shape[-1:]) != (weight.shape[1:2], weight.shape[2:3]):
        raise ShapeError(
            f"bilinear: weight must be (out, {input1.shape[-1:]}, {input2.shape[-1:]}) of the inputs' last axes, got "
            f"{weight.shape}"
        )
    if input1.shape[:-1] != input2.shape[:-1]:
        raise ShapeError(f"bilinear: inputs {input1.shape} and {input2.shape} must be equal but for the last axis")
    out, first, second = weight.shape
    rows = xp.matmul(input1, xp.permute_dims(weight, (1, 0, 2)).reshape((first, out * second)))
    product = (rows.reshape((*input1.shape[:-1], out, second)) * input2[..., None, :]).sum(axis=-1)
    return product if bias is None else product + bias


class _Linear(Function):
    """``input @ weight.T`` whose weight gradient is made in the layout of the weight.

    The rule of `matmul` makes the transpose of it: a strided array that the optimizer would have to copy
    ([Note: Layout]).
    """

    is_composite = True

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(input, weight)
        return xp.matmul(input, weight.mT)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        input, weight = ctx.saved_tensors
        wants_input, wants_weight = ctx.needs_input_grad
        count = math.prod(input.shape[:-1])  # -1 is no number where an axis is empty
        rows, sources = g.reshape((count, g.shape[-1])), conjugate(input).reshape((count, input.shape[-1]))
        by_input = xp.matmul(g, conjugate(weight)) if wants_input else None
        return by_input, xp.matmul(rows.mT, sources) if wants_weight else None


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, *, sparse: bool = False) -> Tensor:
    """Rows of `weight` (count, width) named by integer `input` (...) -> (..., width).

    Rows equal to `padding_idx` get no gradient. With `sparse` the gradient of a leaf `weight` names the rows that were
    looked up and has no others, as PyTorch's (see `SGD` and `SparseAdam`). An index outside of the table raises an
    IndexError. Raises DTypeError for an input that is not of integers.

    >>> embedding(hm.asarray([[0, 2]]), hm.ones((3, 5))).shape
    (1, 2, 5)
    """
    find = rows_of if sparse and takes_sparse(input, weight) else _embedding
    return find(input, weight, padding_idx)


@compiled
def _embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    if input.dtype.kind not in "iu":
        raise DTypeError(f"embedding: input must be integers, got {input.dtype.name}; cast it with .astype(hm.int64)")
    rows = xp.take(weight, from_zero(input, weight.shape[0]), axis=0)
    if padding_idx is None:
        return rows
    index = padding_idx if padding_idx >= 0 else padding_idx + weight.shape[0]
    return xp.where(xp.equal(input, index)[..., None], rows.detach(), rows)


@compiled_when_small
@placed
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Indices as rows of zeros and a 1: integer (...) -> int64 (..., num_classes). -1 takes the largest index + 1.

    >>> one_hot(hm.asarray([0, 2])).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    if num_classes == -1:
        num_classes = int(tensor.max()) + 1
    return xp.astype(tensor[..., None] == xp.arange(num_classes, dtype=tensor.dtype), xp.int64)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    *,
    mode: str = "mean",
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
    sparse: bool = False,
) -> Tensor:
    """Mean, sum or maximum of rows of `weight` (count, width) for each bag of integers -> (bags, width).

    `input` (bags, length), or (n,) with `offsets` (bags,), where each bag starts; with `include_last_offset` the last
    offset is where the last one ends. `per_sample_weights`, shaped as input, weights a sum. Rows equal to
    `padding_idx` count in no bag, and an empty bag is 0. `sparse` is as of `embedding`. An index outside of the table
    raises an IndexError. Other modes are an ArgumentError, other shapes a ShapeError.

    >>> table = hm.asarray([[1.0], [2.0], [6.0]])
    >>> embedding_bag(hm.asarray([0, 1, 2]), table, hm.asarray([0, 1])).tolist()
    [[1.0], [4.0]]
    """
    if padding_idx is not None and padding_idx < 0:
        padding_idx += weight.shape[0]
    looked_up = sparse and takes_sparse(input, weight)
    table = rows_of(input, weight, None) if looked_up else weight
    return _bags(input, table, offsets, mode, per_sample_weights, include_last_offset, padding_idx, looked_up)


@compiled
def _bags(
    input: Tensor, table: Tensor, offsets: Tensor | None, mode: str, per_sample_weights: Tensor | None,
    include_last_offset: bool, padding_idx: int | None, looked_up: bool,
) -> Tensor:  # fmt: skip
    """`embedding_bag` of a table, or of the rows that have been `looked_up` in it."""
    what = "embedding_bag"
    if mode not in ("mean", "sum", "max"):
        raise ArgumentError(f"{what}: mode must be 'mean', 'sum' or 'max', got {mode!r}")
    if per_sample_weights is not None and (mode != "sum" or per_sample_weights.shape != input.shape):
        raise ArgumentError(f"{what}: per_sample_weights are for mode 'sum', with the shape of input {input.shape}")
    if input.ndim not in (1, 2) or (offsets is None) != (input.ndim == 2):
        raise ShapeError(f"{what}: input must be (bags, length), or (n,) with offsets, got shape {input.shape}")
    rows = table if looked_up else _embedding(input, table)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[..., None]
    counts = xp.ones(input.shape, dtype=xp.bool)
    if padding_idx is not None:
        counts = xp.not_equal(input, padding_idx)
    if offsets is not None:
        bags = int(offsets.shape[0]) - include_last_offset
        # Bag 1 starts where the first offset stands: what comes before it, or counts in none, goes to bag 0.
        marks = xp.scatter_add(xp.zeros((input.shape[0] + 1,), dtype=xp.int64), offsets, xp.ones_like(offsets), axis=0)
        bag = xp.where(counts, xp.cumulative_sum(marks, axis=0)[:-1], 0)
        shape = (offsets.shape[0] + 1, table.shape[-1])
        number = xp.scatter_add(xp.zeros(shape[:1], dtype=table.dtype), bag, xp.astype(counts, table.dtype), axis=0)
        if mode == "max":
            found = xp.scatter_max(xp.full(shape, -xp.inf, dtype=table.dtype), bag, rows, axis=0)
        else:
            found = xp.scatter_add(xp.zeros(shape, dtype=table.dtype), bag, rows, axis=0)
        found, number = found[1 : bags + 1], number[1 : bags + 1, None]
    else:
        number = xp.astype(counts, table.dtype).sum(axis=1)[:, None]
        empty = -xp.inf if mode == "max" else 0
        rows = xp.where(counts[..., None], rows, empty)
        found = rows.max(axis=1) if mode == "max" else rows.sum(axis=1)
    if mode == "max":
        return xp.where(number > 0, found, 0)
    return found if mode == "sum" else found / xp.maximum(number, 1)


__all__ = ["bilinear", "embedding", "embedding_bag", "linear", "one_hot"]
