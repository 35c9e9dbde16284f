"""Products of vectors and matrices, and views of matrices (`..products` has those of tensors)."""

from __future__ import annotations

from collections.abc import Sequence

from hybridml_compiler.errors import ShapeError
from hybridml_compiler.ops.table import OPS

from ..arrays.contracting.products import cross, tensordot, vecdot
from ..arrays.shaping.manipulation import matrix_transpose
from ..core.tensor import Tensor
from .operands import described, matrices, tensor


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Product of matrices (..., m, k) and (..., k, n) -> (..., m, n).

    Leading axes broadcast, and a vector is a row on the left and a column on the right. Raises ShapeError where the
    sizes do not fit.

    >>> hm.linalg.matmul(hm.ones((2, 3)), hm.ones((3,))).tolist()
    [3.0, 3.0]
    """
    found: Tensor = OPS["matmul"].fn(x1, x2)
    return found


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Outer product ``x1[i] * x2[j]`` of two vectors (m,) and (n,): (m, n). Raises ShapeError for other shapes.

    >>> hm.linalg.outer(hm.asarray([1.0, 2.0]), hm.asarray([3.0, 4.0])).tolist()
    [[3.0, 4.0], [6.0, 8.0]]
    """
    x1, x2 = tensor(x1), tensor(x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ShapeError(f"outer: needs two vectors, got {described(x1)} and {described(x2)}; flatten them")
    return x1[:, None] * x2


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """Diagonal (..., k) of matrices (..., m, n), `offset` places right of the main one; a view.

    Raises ShapeError for less than two axes, ArgumentError for an `offset` that is no integer.

    >>> import hybridml as hm
    >>> hm.linalg.diagonal(hm.asarray([[1, 2], [3, 4]])).tolist()
    [1, 4]
    """
    found: Tensor = matrices("diagonal", x).diagonal(offset=offset, axis1=-2, axis2=-1)
    return found


def multi_dot(arrays: Sequence[Tensor], /) -> Tensor:
    """Product of two matrices or more in the order that takes the fewest multiplications.

    Shapes (m, k), ..., (l, n) -> (m, n); the first and the last may be vectors. Raises ShapeError for fewer than two,
    or other axes. Source: Cormen et al., Introduction to Algorithms, section 15.2.

    >>> import hybridml as hm
    >>> hm.linalg.multi_dot([hm.ones((10, 100)), hm.ones((100, 5)), hm.ones((5,))]).shape
    (10,)
    """
    found = [tensor(x) for x in arrays]
    if len(found) < 2:
        raise ShapeError(f"multi_dot: needs two matrices or more, got {len(found)}")
    first, last = found[0].ndim == 1, found[-1].ndim == 1
    if first:
        found[0] = found[0][None]
    if last:
        found[-1] = found[-1][:, None]
    for x in found:
        if x.ndim != 2:
            raise ShapeError(f"multi_dot: takes matrices, and vectors at both ends, got {described(x)}")
    out = _chained(found, _cuts([*(x.shape[0] for x in found), found[-1].shape[1]]), 0, len(found) - 1)
    return out[(0 if first else slice(None), 0 if last else slice(None))]


def _cuts(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Matrix after which to cut the product of the matrices i to j, for each (i, j)."""
    n = len(sizes) - 1
    cost = {(i, i): 0 for i in range(n)}
    cuts: dict[tuple[int, int], int] = {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            choices = [cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)]
            cost[i, j] = min(choices)
            cuts[i, j] = i + choices.index(cost[i, j])
    return cuts


def _chained(found: list[Tensor], cuts: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if i == j:
        return found[i]
    k = cuts[i, j]
    return _chained(found, cuts, i, k) @ _chained(found, cuts, k + 1, j)


__all__ = ["cross", "diagonal", "matmul", "matrix_transpose", "multi_dot", "outer", "tensordot", "vecdot"]
