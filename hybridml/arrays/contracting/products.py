"""Sums of products of two tensors: `tensordot`, `vecdot`, `inner`, `dot`, `outer`, `kron`, `cross`, `addmm`, ..."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.shapes import axis_index
from hybridml_compiler.ops.table import OPS

from ...core.tensor import Tensor
from ..indexing.selecting import lifted
from ..shaping.manipulation import expand_dims, moveaxis, stack

_reshape, _permute, _matmul, _multiply, _sum = (
    OPS[name] for name in ("reshape", "permute_dims", "matmul", "multiply", "sum")
)


def _aval(x: Tensor) -> Aval:
    return Aval(x.shape, x.dtype)


def conjugate(x: Tensor) -> Tensor:
    """x, or the conjugate of a complex one."""
    return OPS["conj"].fn(x) if x.dtype.kind == "c" else x


def _summed(products: Tensor, axis: int) -> Tensor:
    """Sums of products keep the dtype, as `matmul` does; of bool they are logical."""
    if products.dtype.kind == "b":
        return OPS["any"].fn(products, axis)
    return _sum.fn(products, axis, False, products.dtype)


def outer(x: Tensor, y: Tensor, /) -> Tensor:
    """x_i * y_j: a matrix from two vectors; tensors with more axes are flattened first. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.outer(hm.tensor([1, 2]), hm.tensor([3, 4])).tolist()
    [[3, 4], [6, 8]]
    """
    x, y = (v if v.ndim == 1 else _reshape.fn(v, (v.numel(),)) for v in map(lifted, (x, y)))
    found: Tensor = _multiply.fn(x[:, None], y)  # keys and products are native calls, a program for each size is not
    return found


def vecdot(x: Tensor, y: Tensor, /, *, axis: int = -1) -> Tensor:
    """Sum of conj(x) * y along an axis, whose size must be equal (ShapeError); the other axes broadcast.

    The axis is counted in each operand, and the result has their common dtype. Raises AxisError where one has no such
    axis. Source: array API standard.

    >>> import hybridml as hm
    >>> hm.vecdot(hm.tensor([[1, 2], [3, 4]]), hm.tensor([10, 1])).tolist()
    [12, 34]
    """
    x, y = lifted(x), lifted(y)
    j, k = axis_index("vecdot", axis, _aval(x)), axis_index("vecdot", axis, _aval(y))
    if x.shape[j] != y.shape[k]:
        raise ShapeError(f"vecdot: axis {axis} of {_aval(x)} and {_aval(y)} has sizes {x.shape[j]} and {y.shape[k]}")
    if axis != -1:
        x, y = moveaxis(x, j, -1), moveaxis(y, k, -1)
    return _summed(_multiply.fn(conjugate(x), y), -1)


def vdot(x: Tensor, y: Tensor, /) -> Tensor:
    """Sum of conj(x) * y over all elements of two tensors of one size. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.vdot(hm.tensor([[1, 2]]), hm.tensor([[3], [4]])).item()
    11
    """
    x, y = lifted(x), lifted(y)
    if x.numel() != y.numel():
        raise ShapeError(f"vdot: {_aval(x)} and {_aval(y)} have {x.numel()} and {y.numel()} elements; make them equal")
    return vecdot(_reshape.fn(x, (x.numel(),)), _reshape.fn(y, (y.numel(),)))


def inner(x: Tensor, y: Tensor, /) -> Tensor:
    """Sums of products over the last axes of both, for every pair of the other indices. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.inner(hm.tensor([[1, 2], [3, 4]]), hm.tensor([10, 1])).tolist()
    [12, 34]
    """
    x, y = lifted(x), lifted(y)
    return _multiply.fn(x, y) if not x.ndim or not y.ndim else tensordot(x, y, axes=([-1], [-1]))


def dot(x: Tensor, y: Tensor, /) -> Tensor:
    """Sums of products over the last axis of x and the last but one of y (the only one of a vector). Source: NumPy.

    >>> import hybridml as hm
    >>> hm.dot(hm.tensor([1.0, 2.0]), hm.tensor([3.0, 4.0])).item()
    11.0
    """
    if not (type(x) is Tensor and type(y) is Tensor):
        x, y = lifted(x), lifted(y)
    m, n = len(x._array.shape), len(y._array.shape)
    if 0 < m < 3 and 0 < n < 3:
        return x @ y
    return tensordot(x, y, axes=([-1], [-2 if n > 1 else -1])) if m and n else _multiply.fn(x, y)


def matvec(x: Tensor, y: Tensor, /) -> Tensor:
    """Matrices (..., m, n) times vectors (..., n): (..., m); the axes in front broadcast. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.matvec(hm.tensor([[1, 2], [3, 4]]), hm.tensor([10, 1])).tolist()
    [12, 34]
    """
    x, y = lifted(x), lifted(y)
    if x.ndim < 2 or not y.ndim:
        raise ShapeError(f"matvec: takes matrices and vectors, got {_aval(x)} and {_aval(y)}")
    return _squeezed(_matmul.fn(x, expand_dims(y, -1)), -1)


def vecmat(x: Tensor, y: Tensor, /) -> Tensor:
    """Conjugated vectors (..., m) times matrices (..., m, n): (..., n); the axes in front broadcast. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.vecmat(hm.tensor([10, 1]), hm.tensor([[1, 2], [3, 4]])).tolist()
    [13, 24]
    """
    x, y = lifted(x), lifted(y)
    if y.ndim < 2 or not x.ndim:
        raise ShapeError(f"vecmat: takes vectors and matrices, got {_aval(x)} and {_aval(y)}")
    return _squeezed(_matmul.fn(expand_dims(conjugate(x), -2), y), -2)


def _squeezed(x: Tensor, axis: int) -> Tensor:
    sizes = list(x.shape)
    del sizes[axis]
    return _reshape.fn(x, tuple(sizes))


def tensordot(x: Tensor, y: Tensor, /, axes: int | Sequence[Any] = 2) -> Tensor:
    """Sums of products over pairs of axes: the last `axes` of x with the first of y, or the axes of two lists.

    The other axes of x come first in the result, then those of y. Source: array API standard, NumPy. ShapeError where
    the sizes of a pair differ or an axis is named twice, ArgumentError for other forms of `axes`.

    >>> import hybridml as hm
    >>> hm.tensordot(hm.ones((2, 3, 4)), hm.ones((3, 4, 5)), axes=2).shape
    (2, 5)
    >>> hm.tensordot(hm.ones((2, 3, 4)), hm.ones((5, 2)), axes=(0, 1)).shape
    (3, 4, 5)
    """
    x, y = lifted(x), lifted(y)
    left, right = _pairs(axes, x, y)
    if [x.shape[a] for a in left] != [y.shape[a] for a in right]:
        raise ShapeError(f"tensordot: axes {left} of {_aval(x)} and {right} of {_aval(y)} differ in size")
    rows = [k for k in range(x.ndim) if k not in left]
    columns = [k for k in range(y.ndim) if k not in right]
    over = math.prod(x.shape[a] for a in left)
    ends = [x.shape[k] for k in rows], [y.shape[k] for k in columns]
    a = _reshape.fn(_permute.fn(x, (*rows, *left)), (math.prod(ends[0]), over))
    b = _reshape.fn(_permute.fn(y, (*right, *columns)), (over, math.prod(ends[1])))
    return _reshape.fn(_matmul.fn(a, b), (*ends[0], *ends[1]))


def _pairs(axes: Any, x: Tensor, y: Tensor) -> tuple[list[int], list[int]]:
    try:
        n = operator.index(axes)
    except TypeError:
        pass
    else:
        if not 0 <= n <= min(x.ndim, y.ndim):
            raise ShapeError(f"tensordot: {_aval(x)} and {_aval(y)} do not have {n} axes each to sum over")
        return list(range(x.ndim - n, x.ndim)), list(range(n))
    if not isinstance(axes, Sequence) or len(axes) != 2:
        raise ArgumentError(f"tensordot: axes is a number, or a pair of axes or of lists of them, got {axes!r}")
    found = [
        [axis_index("tensordot", a, _aval(t)) for a in (named if isinstance(named, Sequence) else [named])]
        for named, t in zip(axes, (x, y), strict=True)
    ]
    if len(found[0]) != len(found[1]) or any(len(set(named)) < len(named) for named in found):
        raise ShapeError(f"tensordot: axes {axes} must name as many axes of both, each once")
    return found[0], found[1]


def kron(x: Tensor, y: Tensor, /) -> Tensor:
    """Kronecker product: y times each element of x, as blocks; the one with fewer axes gets some in front.

    >>> import hybridml as hm
    >>> hm.kron(hm.tensor([1, 10]), hm.tensor([[1, 2], [3, 4]])).tolist()
    [[1, 2, 10, 20], [3, 4, 30, 40]]
    """
    x, y = lifted(x), lifted(y)
    n = max(x.ndim, y.ndim)
    sizes = [((1,) * (n - t.ndim) + tuple(t.shape)) for t in (x, y)]
    wide = _reshape.fn(x, tuple(v for m in sizes[0] for v in (m, 1)))
    narrow = _reshape.fn(y, tuple(v for m in sizes[1] for v in (1, m)))
    return _reshape.fn(_multiply.fn(wide, narrow), tuple(a * b for a, b in zip(*sizes, strict=True)))


def cross(x: Tensor, y: Tensor, /, *, axis: int = -1) -> Tensor:
    """Cross product of vectors of 3 elements along an axis (ShapeError for other sizes); the other axes broadcast.

    Raises AxisError where one has no such axis. Source: array API standard.

    >>> import hybridml as hm
    >>> hm.cross(hm.tensor([1, 0, 0]), hm.tensor([0, 1, 0])).tolist()
    [0, 0, 1]
    """
    x, y = lifted(x), lifted(y)
    places = [axis_index("cross", axis, _aval(t)) for t in (x, y)]
    if any(t.shape[k] != 3 for t, k in zip((x, y), places, strict=True)):
        raise ShapeError(f"cross: axis {axis} of {_aval(x)} and {_aval(y)} must have size 3 in both")
    a, b = ([moveaxis(t, k, -1)[..., i] for i in range(3)] for t, k in zip((x, y), places, strict=True))
    parts = [a[(i + 1) % 3] * b[(i + 2) % 3] - a[(i + 2) % 3] * b[(i + 1) % 3] for i in range(3)]
    return stack(parts, axis=axis)


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)``, for one product or a batch of them. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.addmm(hm.ones(2), hm.ones((2, 3)), hm.ones((3, 2)), beta=2).tolist()
    [[5.0, 5.0], [5.0, 5.0]]
    """
    product = _matmul.fn(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    return product if beta == 0 else product + (input if beta == 1 else lifted(input) * beta)


baddbmm = addmm


def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """``beta * input + alpha * (batch1 @ batch2).sum(0)``: (b, n, m) by (b, m, p), added up. Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.addbmm(hm.zeros((1, 1)), hm.ones((4, 1, 3)), hm.ones((4, 3, 1))).tolist()
    [[12.0]]
    """
    first, second = lifted(batch1), lifted(batch2)
    if first.ndim != 3 or second.ndim != 3 or first.shape[0] != second.shape[0]:
        raise ShapeError(f"addbmm: takes (b, n, m) and (b, m, p), got {_aval(first)} and {_aval(second)}")
    rows = moveaxis(first, 0, 1)  # one product with the batch as a part of what is summed
    rows = rows.reshape((rows.shape[0], rows.shape[1] * rows.shape[2]))
    if first.shape[2] != second.shape[1]:
        raise ShapeError(f"addbmm: takes (b, n, m) and (b, m, p), got {_aval(first)} and {_aval(second)}")
    return addmm(input, rows, second.reshape((-1, second.shape[2])), beta=beta, alpha=alpha)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1' W_o x2 for each o: (..., in1), (..., in2) and weight (out, in1, in2) -> (..., out). Source: PyTorch.

    >>> import hybridml as hm
    >>> hm.bilinear(hm.ones((4, 2)), hm.ones((4, 3)), hm.ones((5, 2, 3))).shape
    (4, 5)
    """
    first, second = lifted(input1), lifted(input2)
    rows = tensordot(first, weight, axes=([-1], [1]))  # (..., out, in2)
    out = _summed(_multiply.fn(rows, expand_dims(second, -2)), -1)
    return out if bias is None else out + bias


for _method in (addbmm, addmm, cross, dot, inner, kron, outer, tensordot, vdot, vecdot):
    setattr(Tensor, _method.__name__, _method)

__all__ = [
    "addbmm", "addmm", "baddbmm", "bilinear", "cross", "dot", "inner", "kron", "matvec", "outer", "tensordot", "vdot",
    "vecdot", "vecmat",
]  # fmt: skip
