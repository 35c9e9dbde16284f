"""Norms of vectors and matrices, and the condition number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from hybridml_compiler import dtypes
from hybridml_compiler.errors import ArgumentError, LinAlgError, ShapeError
from hybridml_compiler.ops.shapes import axes_tuple, axis_index
from hybridml_compiler.ops.table import OPS

from ..arrays.shaping.manipulation import root
from ..core.library import compiled
from ..core.precision.composites import in_float32
from ..core.tensor import Tensor
from .factorizations import svdvals
from .operands import described, floating, matrices
from .systems import inv

Order = float | Literal["fro", "nuc"] | None
_where, _abs, _square, _pow, _equal = (OPS[name].fn for name in ("where", "abs", "square", "pow", "equal"))


def _squares(x: Tensor) -> Tensor:
    """The squares of moduli."""
    if x.dtype.kind != "c":
        squares: Tensor = _square(x)
        return squares
    return _squares(OPS["real"].fn(x)) + _squares(OPS["imag"].fn(x))


def _powers(moduli: Tensor, order: float) -> Tensor:
    """moduli^order, whose slope at 0 is taken as 0 where it is infinite."""
    if order >= 1:
        found: Tensor = _pow(moduli, order)
        return found
    zero = _equal(moduli, 0)
    return _where(zero, 0.0 if order > 0 else math.inf, _pow(_where(zero, 1.0, moduli), order))


def _root(total: Tensor, order: float) -> Tensor:
    """total^(1 / order); where the norm is 0 its gradient is 0, one of those that it has there."""
    if order == 2:
        return root(total)
    zero = _equal(total, 0)
    return _where(zero, 0.0 if order > 0 else math.inf, _pow(_where(zero, 1.0, total), 1.0 / order))


@in_float32
@compiled
def vector_norm(
    x: Tensor, /, *, axis: int | tuple[int, ...] | None = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """Norm of x as one vector (``axis=None``), or of the vectors along one axis or several: real.

    `ord`: 2, 1, any p for the p-th root of the sum of p-th powers of moduli, inf and -inf for the largest and the
    smallest modulus, 0 for the number of elements that are not 0. Raises AxisError for an axis that does not exist,
    ArgumentError for an `ord` that is no number. The gradient of the norm of zeros is 0, and for orders below 1
    that of elements that are 0. float16 and bfloat16 are summed in float32.

    >>> import hybridml as hm
    >>> hm.linalg.vector_norm(hm.asarray([3.0, 4.0])).item()
    5.0
    """
    x = floating(x)
    axes = axes_tuple("vector_norm", axis, described(x))
    keep = bool(keepdims)
    if ord == 2:
        return _root(_squares(x).sum(axis=axes, keepdims=keep), 2)
    if ord == 0:
        return OPS["not_equal"].fn(x, 0).astype(dtypes.real_of(x.dtype)).sum(axis=axes, keepdims=keep)
    moduli: Tensor = _abs(x)
    if ord == math.inf:
        return moduli.max(axis=axes, keepdims=keep)
    if ord == -math.inf:
        return moduli.min(axis=axes, keepdims=keep)
    if ord == 1:
        return moduli.sum(axis=axes, keepdims=keep)
    if not isinstance(ord, int | float):
        raise ArgumentError(f"vector_norm: ord is a number, got {ord!r}")
    return _root(_powers(moduli, float(ord)).sum(axis=axes, keepdims=keep), float(ord))


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Order = "fro") -> Tensor:
    """Norm (...) of matrices (..., m, n): real.

    `ord`: "fro" the root of the sum of squares, "nuc" the sum of singular values, 2 and -2 the largest and the
    smallest one, 1 and -1 the largest and the smallest sum of moduli of a column, inf and -inf of a row. Raises
    ArgumentError for others, ShapeError for less than two axes.

    >>> import hybridml as hm
    >>> hm.linalg.matrix_norm(hm.asarray([[3.0, 0.0], [4.0, 0.0]]), ord=1).item()
    7.0
    """
    x = floating(matrices("matrix_norm", x))
    found = _of_matrices(x, ord)
    return found[..., None, None] if keepdims else found


def _of_matrices(x: Tensor, ord: Order) -> Tensor:
    if ord in ("fro", None):
        return vector_norm(x, axis=(-2, -1))
    if ord in ("nuc", 2, -2):
        values = svdvals(x)
        return values.sum(axis=-1) if ord == "nuc" else values.max(axis=-1) if ord == 2 else values.min(axis=-1)
    if ord in (1, -1, math.inf, -math.inf):
        sums = _abs(x).sum(axis=-2 if ord in (1, -1) else -1)
        found: Tensor = sums.max(axis=-1) if ord in (1, math.inf) else sums.min(axis=-1)
        return found
    raise ArgumentError(f"matrix_norm: ord is 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, got {ord!r}")


def norm(x: Tensor, /, ord: Order = None, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
    """Norm of vectors along one axis, of matrices in two, or of all of x, with NumPy's arguments.

    Without `axis`, x with one axis is a vector and x with two a matrix; without `ord` too, x of any shape is one
    vector. Orders as `vector_norm` and `matrix_norm`. Raises ShapeError where neither is meant, AxisError for
    an axis that does not exist, ArgumentError for an order that does not.

    >>> import hybridml as hm
    >>> hm.linalg.norm(hm.asarray([[3.0, 0.0], [4.0, 0.0]])).item(), hm.linalg.norm(hm.ones((2, 4)), axis=1).tolist()
    (5.0, [2.0, 2.0])
    """
    x = floating(x)
    if axis is None and ord is None:
        return vector_norm(x, keepdims=keepdims)
    if axis is None and x.ndim not in (1, 2):
        raise ShapeError(f"norm: {described(x)} is neither a vector nor a matrix; name one axis or two")
    axes = tuple(range(x.ndim)) if axis is None else tuple(axis) if isinstance(axis, Sequence) else (axis,)
    axes = tuple(axis_index("norm", k, described(x)) for k in axes)
    if len(axes) == 1:
        if isinstance(ord, str):
            raise ArgumentError(f"norm: {ord!r} is a norm of matrices; name two axes")
        return vector_norm(x, axis=axes[0], keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2 or axes[0] == axes[1]:
        raise ShapeError(f"norm: a vector has one axis and a matrix two different ones, got axis={axis}")
    rest = [k for k in range(x.ndim) if k not in axes]
    found = _of_matrices(x.permute_dims(axes=(*rest, *axes)), ord)
    return found.reshape(tuple(1 if k in axes else n for k, n in enumerate(x.shape))) if keepdims else found


def dist(x: Tensor, y: Tensor, /, p: float = 2) -> Tensor:
    """Norm (), of order `p` as of `vector_norm`, of ``x - y`` as one vector; x and y broadcast. Source: PyTorch.

    Raises ShapeError for shapes that do not broadcast, ArgumentError for a `p` that is no number.

    >>> import hybridml as hm
    >>> hm.linalg.dist(hm.asarray([3.0, 0.0]), hm.asarray([0.0, 4.0])).item()
    5.0
    """
    return vector_norm(floating(x) - floating(y), ord=p)


def renorm(x: Tensor, /, p: float, axis: int, maxnorm: float) -> Tensor:
    """Slices of x along `axis`, scaled down to the norm `maxnorm` of order `p` where theirs is greater: (...) -> (...).

    Raises AxisError for an axis that does not exist, ArgumentError for a `p` that is no number. Source: PyTorch, whose
    factor ``maxnorm / (norm + 1e-7)`` it has.

    >>> import hybridml as hm
    >>> hm.linalg.renorm(hm.asarray([[3.0, 4.0], [0.0, 1.0]]), 1, 0, 7.0).tolist()
    [[3.0, 4.0], [0.0, 1.0]]
    """
    x = floating(x)
    k = axis_index("renorm", axis, described(x))
    rest = tuple(j for j in range(x.ndim) if j != k)
    norms = vector_norm(x, axis=rest, keepdims=True, ord=p) if rest else _abs(x)
    greater = norms > maxnorm
    return x * _where(greater, maxnorm / (_where(greater, norms, 1.0) + 1e-7), 1.0)


def cond(x: Tensor, /, p: Order = None) -> Tensor:
    """Condition number (...) of matrices: the norm times that of the inverse, by singular values for p = 2 (None).

    -2 is the inverse of that of 2. Singular matrices have inf, with other orders LinAlgError, which those
    without elements always raise. Raises ShapeError for less than two axes, ArgumentError for an order that
    `matrix_norm` does not have.

    >>> import hybridml as hm
    >>> hm.linalg.cond(hm.asarray([[4.0, 0.0], [0.0, 2.0]])).item()
    2.0
    """
    x = floating(matrices("cond", x))
    if p in (None, 2, -2):
        values = svdvals(x)
        if not values.shape[-1]:
            raise LinAlgError(f"cond: {described(x)} has no singular values")
        first, last = values[..., 0], values[..., -1]
        return last / first if p == -2 else first / last
    return _of_matrices(x, p) * _of_matrices(inv(x), p)
