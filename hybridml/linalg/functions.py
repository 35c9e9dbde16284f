"""Numbers and matrices that belong to a matrix: determinants, rank, trace, powers, the exponential."""

from __future__ import annotations

from typing import Any, NamedTuple

from hybridml_compiler.errors import ShapeError
from hybridml_compiler.ops.shapes import integer
from hybridml_compiler.ops.table import OPS

from ..core.context import placed
from ..core.library import compiled_when_small
from ..core.tensor import Tensor
from .factorizations import svdvals
from .operands import described, floating, matrices, precision, tensor
from .products import diagonal


class SlogdetResult(NamedTuple):
    """Result of `slogdet`: the `sign` of the determinant and the logarithm of its modulus, `logabsdet`.

    >>> hm.linalg.slogdet(hm.eye(2)).sign.item()
    1.0
    """

    sign: Tensor
    logabsdet: Tensor


def det(x: Tensor, /) -> Tensor:
    """Determinant (...) of square matrices (..., n, n); its gradient is exact for singular ones too.

    Raises ShapeError where they are not square.

    >>> import hybridml as hm
    >>> hm.linalg.det(hm.asarray([[2.0, 0.0], [1.0, 4.0]])).item()
    8.0
    """
    found: Tensor = OPS["det"].fn(x)
    return found


@compiled_when_small
def slogdet(x: Tensor, /) -> SlogdetResult:
    """Sign and logarithm of the modulus of the determinant of square matrices (..., n, n), which do not overflow.

    The sign is 1 or -1, of complex matrices a number of modulus 1; a singular matrix has 0 and -inf, and no gradient
    (LinAlgError). Raises ShapeError where they are not square.

    >>> import hybridml as hm
    >>> sign, logabsdet = hm.linalg.slogdet(hm.asarray([[0.0, 1.0], [1.0, 0.0]]))
    >>> sign.item(), logabsdet.item()
    (-1.0, 0.0)
    """
    return SlogdetResult(*OPS["slogdet"].fn(x))


def matrix_exp(x: Tensor, /) -> Tensor:
    """Exponential, the sum of ``x^k / k!``, of square matrices (..., n, n).

    By Pade approximants, scaling and squaring (Higham, The scaling and squaring method for the matrix exponential
    revisited, 2005); gradients are blocks of the exponential of a matrix twice as large (Mathias 1996). Raises
    ShapeError where they are not square.

    >>> import hybridml as hm
    >>> hm.linalg.matrix_exp(hm.asarray([[0.0, 1.0], [0.0, 0.0]])).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    found: Tensor = OPS["matrix_exp"].fn(x)
    return found


@placed
def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """Power n of square matrices (..., m, m) by squaring; of the inverse for negative n.

    Raises ShapeError where they are not square, ArgumentError for an n that is no integer, LinAlgError for a negative n
    and a singular matrix.

    >>> import hybridml as hm
    >>> hm.linalg.matrix_power(hm.asarray([[1.0, 1.0], [0.0, 1.0]]), 5).tolist()
    [[1.0, 5.0], [0.0, 1.0]]
    """
    x, n = matrices("matrix_power", x), integer("matrix_power", "n", n)
    if x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"matrix_power: needs square matrices, got {described(x)}")
    if n < 0:
        x, n = OPS["inv"].fn(x), -n
    if n == 0:
        return OPS["broadcast_to"].fn(OPS["eye"].fn(x.shape[-1], dtype=x.dtype), x.shape)
    found: Tensor | None = None
    while True:
        if n % 2:
            found = x if found is None else found @ x
        n //= 2
        if not n:
            assert found is not None
            return found
        x = x @ x


@placed
def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """Rank (...), int64: the number of singular values of (..., m, n) above `rtol` times the largest.

    `rtol` is a number, or one for each matrix; None is ``max(m, n)`` times the precision of the dtype.
    Raises ShapeError for less than two axes, LinAlgError for infinities and nans.

    >>> import hybridml as hm
    >>> hm.linalg.matrix_rank(hm.ones((3, 3))).item()
    1
    """
    x = floating(matrices("matrix_rank", x))
    values = svdvals(x)
    if not values.shape[-1]:
        return values.sum(axis=-1).astype("int64")
    limit = tensor(precision(x) if rtol is None else rtol).astype(values.dtype)
    return (values > values[..., :1] * limit[..., None]).sum(axis=-1).astype("int64")


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """Sum (...) along a diagonal of matrices (..., m, n), `offset` places right of the main one; dtypes as of `sum`.

    Raises ShapeError for less than two axes, ArgumentError for an `offset` that is no integer.

    >>> import hybridml as hm
    >>> hm.linalg.trace(hm.asarray([[1.0, 2.0], [3.0, 4.0]])).item()
    5.0
    """
    found: Tensor = diagonal(matrices("trace", x), offset=offset).sum(axis=-1, dtype=dtype)
    return found
