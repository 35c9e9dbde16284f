"""Functions of a matrix: inverses, determinants, exponentials.

A target's routine or NumPy computes them, one call per batch ([Note: LAPACK]). Rules of analytic functions are plain
transposes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import ShapeError
from . import movement
from .contraction import matmul
from .creation import arange, eye
from .elementwise import where
from .factorizations import svd
from .matrices import (
    Array,
    Row,
    adjoint,
    column,
    conj,
    conjugated,
    diagonal_of,
    endless,
    finite,
    general,
    lapack,
    matrices,
    on,
    row,
    samples,
    singular,
    square,
    turned,
)
from .op import Op
from .routines import of_square
from .samples import fails
from .shapes import broadcast

# ---------------------------------------------------------------- inverses

inv = Op(
    "inv",
    "opaque",
    inputs=("x",),
    infer=lambda x: Aval((*square("inv", x)[0], *x.shape[-2:]), x.dtype),
    fails=True,
    eager=lapack("inv", np.linalg.inv, np.linalg.inv, singular),
    vjp=(lambda g, out: -matmul(matmul(turned(out), g), turned(out)),),
    samples=samples(*(([(general, shape)], {}) for shape in [(3, 3), (2, 2, 2), (1, 1), (0, 0), (0, 2, 2)])),
    error_samples=lambda: (
        fails(ShapeError, "inv: needs square matrices, got f32[2,3]", (2, 3)),
        fails(np.linalg.LinAlgError, "inv: matrix 0 of f32[2,3,3] is singular: its rank is 0 of 3", (2, 3, 3)),
    ),
    routine=of_square,
    accepts="inexact",
    doc="The inverse of square matrices; LinAlgError for a singular one.",
)


def _infer_pinv(x: Aval, rtol: Aval) -> Aval:
    batch, rows, columns = matrices("pinv", x)
    if broadcast("pinv", Aval(batch, x.dtype), Aval(rtol.shape, x.dtype)) != batch:
        raise ShapeError(f"pinv: rtol of shape {rtol.shape} is not one number for each matrix of {x}")
    return Aval((*batch, columns, rows), x.dtype)


def _rest(product: Any) -> Any:
    """The identity minus a product of matrices."""
    return eye(n=product.shape[-1], dtype=product.dtype) - product


@conjugated
def _pinv_rule(g: Any, x: Any, out: Any) -> Any:
    """Golub and Pereyra, The differentiation of pseudo-inverses, 1973: of matrices whose rank does not change."""
    h, p = adjoint(g), adjoint(out)
    left, right = _rest(matmul(x, out)), _rest(matmul(out, x))
    return matmul(matmul(left, matmul(h, out)), p) + matmul(matmul(p, matmul(out, h)), right) - matmul(matmul(p, g), p)


pinv = Op(
    "pinv",
    "opaque",
    inputs=("x", "rtol"),
    infer=_infer_pinv,
    fails=True,
    eager=finite("pinv", lambda x, rtol: np.linalg.pinv(x, rtol=rtol), np.linalg.pinv, endless),
    vjp=(_pinv_rule, None),
    samples=samples(
        *(
            ([(general, shape), (lambda rng, _: np.array(1e-6), ())], {})
            for shape in [(3, 3), (2, 4, 2), (2, 3), (1, 1), (0, 2), (2, 0), (0, 2, 3)]
        ),
    ),
    error_samples=lambda: (
        fails(ShapeError, "pinv: needs a matrix or a batch of them, got f32[2]", (2,), ()),
        fails(ShapeError, "pinv: rtol of shape (3,) is not one number for each matrix", (1, 2, 2), (3,)),
    ),
    accepts="inexact",
    doc="The pseudo-inverse (Moore and Penrose): singular values below `rtol` times the largest count as 0.",
)

# ---------------------------------------------------------------- determinants


def _cofactor(x: Array) -> Array:
    """det(x) x^-T, of singular matrices too: of x = U S V the product of the cofactors of each."""
    u, s, v = np.linalg.svd(x)
    ones = np.ones_like(s[..., :1])
    before = np.cumprod(np.concatenate([ones, s[..., :-1]], axis=-1), axis=-1)
    after = np.cumprod(np.concatenate([ones, s[..., :0:-1]], axis=-1), axis=-1)[..., ::-1]
    turn = np.linalg.det(u) * np.linalg.det(v)
    found: Array = (turn[..., None, None] * (u.conj() * (before * after)[..., None, :])) @ v.conj()
    return found if x.shape[-1] else x


def _before(t: Any) -> Any:
    """The product of the elements that come before each along the last axis."""
    ahead = movement.pad(t[..., :-1], widths=((0, 0),) * (len(t.shape) - 1) + ((1, 0),), value=1)
    return ahead.cumulative_prod(axis=-1)


def _but_two(s: Any) -> Any:
    """(..., n, n): the product of all elements of s but i and j; 0 for i = j. No division: zeros are exact."""
    n = s.shape[-1]
    place = arange(start=0, stop=n, dtype=dtypes.int64)
    later = row(place) > column(place)
    between = _before(where(later, row(s), 1.0))  # of row i: those from i + 1 to j - 1
    after = _before(s.flip(axis=-1)).flip(axis=-1)
    found = where(later, column(_before(s)) * between * row(after), 0.0)
    return found + turned(found)


def _cofactor_rule(g: Any, x: Any) -> Any:
    """Gradient of cofactors. With E = U^H dx V^H, cofactor (i, i) of S + E is the product of s_k + E_kk for k != i, and
    (i, j) to first order -E_ji times the product of all s but s_i and s_j. The map is symmetric, as the second
    derivative of det is."""
    if not x.shape[-1]:
        return g
    u, s, v = svd(x)
    inner, but_two = matmul(matmul(adjoint(u), g), adjoint(v)), _but_two(s)
    crossed = on(matmul(but_two, column(diagonal_of(inner)))[..., 0]) - but_two * turned(inner)
    return column(column(det(u) * det(v))) * matmul(matmul(conj(u), crossed), conj(v))


_SQUARE: tuple[Row, ...] = tuple(([(general, shape)], {}) for shape in [(3, 3), (2, 2, 2), (1, 1), (0, 0), (0, 2, 2)])
_SINGULAR: Row = ([(lambda rng, shape: general(rng, shape) @ np.diag([1.0, 0.0, 1.0]), (3, 3))], {})

cofactor = Op(
    "cofactor",
    "opaque",
    public=False,
    inputs=("x",),
    infer=lambda x: Aval((*square("cofactor", x)[0], *x.shape[-2:]), x.dtype),
    fails=True,
    eager=finite("cofactor", _cofactor, np.linalg.svd, endless),
    vjp=(_cofactor_rule,),
    samples=samples(*_SQUARE),
    error_samples=lambda: (fails(ShapeError, "cofactor: needs square matrices, got f32[2,3]", (2, 3)),),
    accepts="inexact",
    doc="The cofactors of square matrices, the gradient of the determinant: det(x) x^-T where there is an inverse.",
)

det = Op(
    "det",
    "opaque",
    inputs=("x",),
    infer=lambda x: Aval(square("det", x)[0], x.dtype),
    eager=lapack("det", np.linalg.det, np.linalg.det, singular),
    vjp=(lambda g, x: column(column(g)) * cofactor(x),),
    samples=samples(*_SQUARE, _SINGULAR),
    error_samples=lambda: (fails(ShapeError, "det: needs square matrices, got f32[2,3]", (2, 3)),),
    routine=of_square,
    accepts="inexact",
    doc="The determinant of square matrices. Its gradient is exact for singular ones too; slogdet does not overflow.",
)


def _slogdet_rule(g: Any, x: Any, out: Any) -> Any:
    """Gradient of slogdet. With t = tr(x^-1 dx): the logarithm moves by Re t, the sign by i Im t times itself."""
    by_sign, by_log = g
    total = None if by_log is None else by_log
    if by_sign is not None and x.dtype.kind == "c":
        moved = by_sign * out[0]
        turn = (moved - conj(moved)) * 0.5
        total = turn if total is None else total + turn
    if total is None:  # signs of real matrices do not move
        return x * 0
    return column(column(total)) * turned(inv(x))


slogdet = Op(
    "slogdet",
    "opaque",
    inputs=("x",),
    results=("sign", "logabsdet"),
    infer=lambda x: (Aval(square("slogdet", x)[0], x.dtype), Aval(x.shape[:-2], dtypes.real_of(x.dtype))),
    eager=lapack("slogdet", np.linalg.slogdet, np.linalg.slogdet, singular),
    vjp=(_slogdet_rule,),
    samples=samples(*_SQUARE),
    error_samples=lambda: (fails(ShapeError, "slogdet: needs square matrices, got f32[2,3]", (2, 3)),),
    routine=of_square,
    accepts="inexact",
    doc="Sign (of modulus 1, or 0) and logarithm of the modulus of the determinant of square matrices.",
)

# ---------------------------------------------------------------- exponential

# Degrees of Pade approximants and the 1-norms up to which they are exact to float64's and float32's precision.
# Source: Higham, The scaling and squaring method for the matrix exponential revisited, 2005, table 2.3; for float32 as
# Higham, Functions of Matrices, 2008, section 10.3.
_DEGREES = {
    8: ((3, 1.495585217958292e-2), (5, 2.539398330063230e-1), (7, 9.504178996162932e-1), (9, 2.097847961257068),
        (13, 5.371920351148152)),
    4: ((3, 4.258730016922831e-1), (5, 1.880152677804762), (7, 3.925724783138660)),
}  # fmt: skip


def _pade(x: Array, degree: int) -> Array:
    """The diagonal Pade approximant of exp: of its numerator V + U, U has the odd powers and V the even ones."""
    f = math.factorial
    b = [f(2 * degree - k) * f(degree) / (f(2 * degree) * f(k) * f(degree - k)) for k in range(degree + 1)]
    one, power, x2 = np.eye(x.shape[-1], dtype=x.dtype), None, x @ x
    odd, even = b[1] * one, b[0] * one
    for k in range(2, degree, 2):
        power = x2 if power is None else power @ x2
        odd, even = odd + b[k + 1] * power, even + b[k] * power
    odd = x @ odd
    return np.linalg.solve(even - odd, even + odd)


def _matrix_exp(x: Array) -> Array:
    """e^x of each matrix, by the smallest degree that is enough, or the largest for x / 2^s, squared s times."""
    if not x.size:
        return x
    flat = x.reshape(-1, *x.shape[-2:])
    out = np.full_like(flat, np.nan)
    norms = abs(flat).sum(axis=-2).max(axis=-1)
    degrees = _DEGREES[x.real.dtype.itemsize]
    top, most = degrees[-1]
    places = np.searchsorted([bound for _, bound in degrees], norms)
    halvings = np.where(~(norms <= most), np.ceil(np.log2(np.maximum(norms, most) / most)), 0.0)
    for place, times in {(int(p), float(t)) for p, t in zip(places, halvings, strict=True) if np.isfinite(t)}:
        chosen = (places == place) & (halvings == times)
        found = _pade(flat[chosen] / flat.real.dtype.type(2.0**times), degrees[place][0] if times == 0 else top)
        for _ in range(int(times)):
            found = found @ found
        out[chosen] = found
    return out.reshape(x.shape)


def _exp_rule(g: Any, x: Any) -> Any:
    """The derivative in a direction is a block of exp of a matrix twice as large (Mathias, A chain rule for matrix
    functions, 1996), and the transpose of that map is the derivative at x^T."""
    n = x.shape[-1]
    x = turned(x)
    whole = movement.concat([movement.concat([x, g], axis=-1), movement.concat([x * 0, x], axis=-1)], axis=-2)
    return matrix_exp(whole)[..., :n, n:]


matrix_exp = Op(
    "matrix_exp",
    "opaque",
    inputs=("x",),
    infer=lambda x: Aval((*square("matrix_exp", x)[0], *x.shape[-2:]), x.dtype),
    fails=True,
    eager=lapack("matrix_exp", _matrix_exp, _matrix_exp, singular),
    vjp=(_exp_rule,),
    memory_order="operands",
    samples=samples(
        *(([(None, shape)], {}) for shape in [(3, 3), (2, 2, 2), (1, 1), (0, 0), (0, 2, 2)]),
        ([(lambda rng, shape: rng.normal(size=shape) * np.array([1e-3, 1.0, 9.0])[:, None, None], (3, 2, 2))], {}),
    ),
    error_samples=lambda: (fails(ShapeError, "matrix_exp: needs square matrices, got f32[2,3]", (2, 3)),),
    accepts="inexact",
    doc="The exponential of square matrices, sum of x^k / k!, by scaling and squaring (Higham 2005).",
)

ROWS = (inv, pinv, cofactor, det, slogdet, matrix_exp)
