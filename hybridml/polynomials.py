"""Polynomials as vectors of coefficients, the highest power first: NumPy's `polyval`, `polyfit`, `roots`, ..."""

from __future__ import annotations

from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.table import OPS

from .arrays.elementwise import _floating
from .arrays.numerical import convolve
from .arrays.shaping.assembly import atleast_1d, diagflat, vander
from .arrays.shaping.manipulation import _tensor, expand_dims
from .core import ops
from .core.tensor import Tensor

_concat, _sum = (OPS[name] for name in ("concat", "sum"))


def _full(n: int, value: float, like: Tensor) -> Tensor:
    return ops.full(shape=(n,), value=value, dtype=like.dtype)


def polyval(p: Tensor, x: Tensor, /) -> Tensor:
    """p[0] * x**(n-1) + ... + p[n-1] by Horner's rule, elementwise in x.

    >>> import hybridml as hm
    >>> hm.polyval(hm.tensor([3.0, 0.0, 1.0]), hm.tensor([5.0, 2.0])).tolist()
    [76.0, 13.0]
    """
    p, x = atleast_1d(_tensor(p)), _tensor(x)
    y = ops.multiply(x, 0)
    for k in range(p.shape[0]):
        y = y * x + p[k]
    return y


def polyadd(p: Tensor, q: Tensor, /) -> Tensor:
    """The sum of two polynomials.

    >>> import hybridml as hm
    >>> hm.polyadd(hm.tensor([1, 2]), hm.tensor([9, 5, 4])).tolist()
    [9, 6, 6]
    """
    return ops.add(*_aligned(p, q))


def polysub(p: Tensor, q: Tensor, /) -> Tensor:
    """The difference of two polynomials.

    >>> import hybridml as hm
    >>> hm.polysub(hm.tensor([9, 5, 4]), hm.tensor([1, 2])).tolist()
    [9, 4, 2]
    """
    return ops.subtract(*_aligned(p, q))


def _aligned(p: Any, q: Any) -> tuple[Tensor, Tensor]:
    p, q = atleast_1d(_tensor(p)), atleast_1d(_tensor(q))
    n = max(p.shape[0], q.shape[0])
    a, b = (t if t.shape[0] == n else ops.pad(t, ((n - t.shape[0], 0),)) for t in (p, q))
    return a, b


def polymul(p: Tensor, q: Tensor, /) -> Tensor:
    """The product of two polynomials: the convolution of their coefficients.

    >>> import hybridml as hm
    >>> hm.polymul(hm.tensor([1, 2]), hm.tensor([1, -2])).tolist()
    [1, 0, -4]
    """
    return convolve(p, q)


def polydiv(u: Tensor, v: Tensor, /) -> tuple[Tensor, Tensor]:
    """Quotient and remainder of two polynomials. Leading zeros of the remainder are left out: a size that is data.

    >>> import hybridml as hm
    >>> [t.tolist() for t in hm.polydiv(hm.tensor([3.0, 5.0, 2.0]), hm.tensor([2.0, 1.0]))]
    [[1.5, 1.75], [0.25]]
    """
    r, v = _floating(atleast_1d(_tensor(u))), _floating(atleast_1d(_tensor(v)))
    m, n = r.shape[0], v.shape[0]
    if m < n:
        return _full(1, 0, r), r
    found = []
    for k in range(m - n + 1):
        found.append(r[k] / v[0])
        r = _concat([r[:k], r[k : k + n] - found[-1] * v, r[k + n :]], axis=0)
    while r.shape[0] > 1 and bool(ops.abs(r[0]) <= 1e-8):
        r = r[1:]
    return ops.concat([expand_dims(q, 0) for q in found], axis=0), r


def polyder(p: Tensor, /, m: int = 1) -> Tensor:
    """The m-th derivative of a polynomial.

    >>> import hybridml as hm
    >>> hm.polyder(hm.tensor([1, 2, 3])).tolist()
    [2, 2]
    """
    if m < 0:
        raise ArgumentError(f"polyder: the order must not be negative, got {m}")
    p = atleast_1d(_tensor(p))
    for _ in range(m):
        n = p.shape[0] - 1
        p = p[:-1] * ops.arange(start=n, stop=0, step=-1, dtype=p.dtype)
    return p


def polyint(p: Tensor, /, m: int = 1, k: Any = None) -> Tensor:
    """The m-th integral of a polynomial; `k`: the constants of integration (0), one for each order.

    >>> import hybridml as hm
    >>> hm.polyint(hm.tensor([2.0, 2.0]), k=5.0).tolist()
    [1.0, 2.0, 5.0]
    """
    if m < 0:
        raise ArgumentError(f"polyint: the order must not be negative, got {m}")
    p = _floating(atleast_1d(_tensor(p)))
    constants = _full(m, 0, p) if k is None else atleast_1d(_tensor(k)).astype(p.dtype, copy=False)
    if constants.shape[0] == 1 < m:
        constants = ops.broadcast_to(constants, (m,))
    if constants.shape[0] < m:
        raise ShapeError(f"polyint: {constants.shape[0]} constants for an integral of order {m}")
    for j in range(m):
        powers = ops.arange(start=p.shape[0], stop=0, step=-1, dtype=p.dtype)
        p = _concat([p / powers, constants[j : j + 1]], axis=0)
    return p


def poly(zeros: Tensor, /) -> Tensor:
    """The polynomial with leading coefficient 1 and the given zeros; the characteristic polynomial of a square matrix.

    >>> import hybridml as hm
    >>> hm.poly(hm.tensor([1.0, 2.0])).tolist()
    [1.0, -3.0, 2.0]
    """
    z = atleast_1d(_tensor(zeros))
    square = z.ndim == 2 and z.shape[0] == z.shape[1] > 0
    if square:
        from . import linalg

        real_matrix = z.dtype.kind != "c"
        found = poly(linalg.eigvals(z))
        return ops.real(found) if real_matrix else found
    if z.ndim != 1:
        raise ShapeError(f"poly: needs a vector of zeros or a square matrix, got shape {z.shape}")
    z = _floating(z)
    p = _full(1, 1, z)
    for k in range(z.shape[0]):
        p = convolve(p, _concat([_full(1, 1, z), -z[k : k + 1]], axis=0))
    return p


def roots(p: Tensor, /) -> Tensor:
    """The zeros of a polynomial: eigenvalues of its companion matrix. Leading and trailing zero coefficients are data.

    Source: NumPy.

    >>> import hybridml as hm
    >>> sorted(hm.roots(hm.tensor([1.0, -3.0, 2.0])).numpy().real.round(4).tolist())
    [1.0, 2.0]
    """
    from . import linalg

    p = _floating(atleast_1d(_tensor(p)))
    if p.ndim != 1:
        raise ShapeError(f"roots: needs a vector of coefficients, got shape {p.shape}")
    used = np.flatnonzero(np.asarray(ops.not_equal(p, 0)))
    if not used.size:
        return p[:0]
    trailing = p.shape[0] - 1 - int(used[-1])
    p = p[int(used[0]) : int(used[-1]) + 1]
    n = p.shape[0]
    if n < 2:
        return _full(trailing, 0, p)
    first = expand_dims(-p[1:] / p[0], 0)
    companion = _concat([first, diagflat(_full(n - 2, 1, p), -1)[1:]], axis=0) if n > 2 else first
    found = linalg.eigvals(companion)
    return _concat([found, _full(trailing, 0, found)], axis=0) if trailing else found


def polyfit(
    x: Tensor, y: Tensor, deg: int, /, rcond: float | None = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:
    """The polynomial of a degree that is nearest to the points (x, y) in least squares, y a vector or columns of them.

    `w`: weights of the residuals. `cov`: also the covariance of the coefficients (scaled by the residuals, unless
    "unscaled"). `full`: also what `linalg.lstsq` says. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.polyfit(hm.tensor([0.0, 1.0, 2.0]), hm.tensor([1.0, 3.0, 5.0]), 1).numpy().round(3).tolist()
    [2.0, 1.0]
    """
    from . import linalg
    from .arrays.inspection import finfo

    x, y = _floating(x), _floating(y)
    if x.ndim != 1 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0] or not x.numel():
        raise ShapeError(f"polyfit: needs a vector x and as many y, got shapes {x.shape} and {y.shape}")
    if deg < 0:
        raise ArgumentError(f"polyfit: the degree must not be negative, got {deg}")
    left, right = vander(x, deg + 1), y
    if w is not None:
        weights = _floating(w)
        left = left * expand_dims(weights, 1)
        right = right * (expand_dims(weights, 1) if y.ndim == 2 else weights)
    scale = ops.sqrt(_sum(left * left, 0))
    left = left / scale
    rcond = x.shape[0] * float(finfo(x.dtype).eps) if rcond is None else rcond
    c, residuals, rank, singular = linalg.lstsq(left, right, rcond=rcond)
    c = c / (expand_dims(scale, 1) if c.ndim == 2 else scale)
    if full:
        return c, residuals, rank, singular, rcond
    if cov is False:
        return c
    base = linalg.inv(ops.matmul(ops.permute_dims(left, (1, 0)), left))
    base = base / (expand_dims(scale, 1) * expand_dims(scale, 0))
    base = expand_dims(base, -1) if y.ndim == 2 else base
    if cov == "unscaled":
        return c, base
    free = x.shape[0] - (deg + 1)
    if free <= 0:
        raise ArgumentError(
            f"polyfit: {x.shape[0]} points do not say how good a fit of degree {deg} is; cov='unscaled'"
        )
    return c, base * (residuals / free)


__all__ = [
    "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub", "polyval", "roots",
]  # fmt: skip
