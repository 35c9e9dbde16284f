"""Common parts of linear algebra's rows: shape rules, transposes, LAPACK's errors, rules in the usual convention."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..aval import Aval, of
from ..errors import LinAlgError, ShapeError
from .creation import eye
from .diagonal import on_diagonal
from .elementwise import where
from .op import Rule, Sample
from .shapes import Shape

Array = np.ndarray[Any, Any]


def matrices(name: str, x: Aval) -> tuple[Shape, Any, Any]:
    """Batch, rows and columns."""
    if x.ndim < 2:
        raise ShapeError(f"{name}: needs a matrix or a batch of them, got {x}; reshape it to (..., rows, columns)")
    return x.shape[:-2], x.shape[-2], x.shape[-1]


def square(name: str, x: Aval) -> tuple[Shape, Any]:
    """Batch and size of square matrices."""
    batch, rows, columns = matrices(name, x)
    if rows != columns:
        raise ShapeError(f"{name}: needs square matrices, got {x}; their last two sizes must be equal")
    return batch, rows


# ---------------------------------------------------------------- errors


def lapack(name: str, compute: Callable[..., Any], probe: Callable[[Array], Any], why: Callable[[Array], str]) -> Any:
    """`compute`, with an error that names the matrix that LAPACK has refused, as it does `probe`, and says `why`."""

    def eager(x: Array, *more: Array, **params: Any) -> Any:
        try:
            with np.errstate(all="ignore"):  # infinities and nans are results
                return compute(x, *more, **params)
        except np.linalg.LinAlgError:
            index = next((index for index in np.ndindex(x.shape[:-2]) if _refuses(probe, x[index])), ())
            raise LinAlgError(f"{name}: {which(x, index)} {why(x[index])}") from None

    return eager


def finite(name: str, compute: Callable[..., Any], probe: Callable[[Array], Any], why: Callable[[Array], str]) -> Any:
    """`lapack` for routines that do not end, or print, or give anything but nan, for infinities and nans."""
    checked = lapack(name, compute, probe, why)

    def eager(x: Array, *more: Array, **params: Any) -> Any:
        check_finite(name, x)
        return checked(x, *more, **params)

    return eager


def check_finite(name: str, x: Array) -> None:
    """LinAlgError for infinities and nans."""
    if not np.isfinite(x).all():
        index = next(index for index in np.ndindex(x.shape[:-2]) if not np.isfinite(x[index]).all())
        raise LinAlgError(f"{name}: {which(x, index)} holds nan or infinity; debug_nans finds where it comes from")


def _refuses(probe: Callable[[Array], Any], x: Array) -> bool:
    try:
        probe(x)
    except np.linalg.LinAlgError:
        return True
    return False


def which(x: Array, index: tuple[int, ...]) -> str:
    return f"matrix {index[0] if len(index) == 1 else index} of {of(x)}" if index else str(of(x))


def singular(x: Array) -> str:
    return f"is singular: its rank is {np.linalg.matrix_rank(x)} of {x.shape[-1]}; use pinv or lstsq"


def endless(x: Array) -> str:
    return f"takes more iterations than LAPACK allows; scale it (its largest element is {abs(x).max():.3g})"


# ---------------------------------------------------------------- rules


def conj(x: Any) -> Any:
    return x if x is None or x.dtype.kind != "c" else x.conj()


def turned(x: Any) -> Any:
    """The transpose of the matrices."""
    n = len(x.shape)
    return x.permute_dims(axes=(*range(n - 2), n - 1, n - 2))


def adjoint(x: Any) -> Any:
    """The conjugate transpose of the matrices."""
    return conj(turned(x))


def row(v: Any) -> Any:
    """(..., n) -> (..., 1, n): factors of columns."""
    return v.reshape(shape=(*v.shape[:-1], 1, v.shape[-1]))


def column(v: Any) -> Any:
    """(..., n) -> (..., n, 1): factors of rows."""
    return v.reshape(shape=(*v.shape, 1))


def diagonal_of(x: Any) -> Any:
    return x.diagonal(offset=0, axis1=-2, axis2=-1)


def on(v: Any) -> Any:
    """Diagonal matrices with these diagonals."""
    return on_diagonal(v, (*v.shape, v.shape[-1]), v.dtype, 0, -2, -1)


def half_real(x: Any) -> Any:
    """The Hermitian part, (x + x^H) / 2."""
    return (x + adjoint(x)) * 0.5


def over(x: Any, y: Any) -> Any:
    """x / y. By 0 it is infinite, but 0 where x is 0: of vectors that are not determined (of equal values) a loss has
    no derivative, unless they do not enter it. By factors, so that this holds in derivatives of any order."""
    zero, most = y == 0, float(np.finfo(y.dtype).max)
    factor = where(zero, most, 1.0 / where(zero, 1.0, y))
    return x * factor * where(zero, factor, 1.0)


def over_gaps(x: Any, gaps: Any) -> Any:
    """`over` for differences of values, with zeros on the diagonal."""
    return over(x.triu(k=1) + x.tril(k=-1), gaps + eye(n=gaps.shape[-1], dtype=gaps.dtype))


def conjugated(rule: Rule) -> Rule:
    """A rule as papers and PyTorch write them: g and its result are conjugates of ours (see op.py's `vjp`).

    For rules of functions that are not analytic, such as those with an adjoint in their definition.
    """

    @functools.wraps(rule)
    def ours(g: Any, **kept: Any) -> Any:
        return conj(rule(tuple(map(conj, g)) if isinstance(g, tuple) else conj(g), **kept))

    return ours


# ---------------------------------------------------------------- samples


def general(rng: np.random.Generator, shape: Shape) -> Array:
    """Singular values 1, 2, 3, ..., far from each other and from zero."""
    k = min(shape[-2:])
    left, _ = np.linalg.qr(rng.standard_normal((*shape[:-1], k)))
    right, _ = np.linalg.qr(rng.standard_normal((*shape[:-2], shape[-1], k)))
    found: Array = (left * np.arange(1.0, k + 1)) @ right.mT
    return found


def symmetric(rng: np.random.Generator, shape: Shape) -> Array:
    """Symmetric matrices with eigenvalues -0.3, 0.7, 1.7, ...: with a trace of 0, LAPACK changes the sign of a
    vector."""
    basis, _ = np.linalg.qr(rng.standard_normal(shape))
    found: Array = (basis * (np.arange(shape[-1]) - 0.3)) @ basis.mT
    return found


def positive(rng: np.random.Generator, shape: Shape) -> Array:
    return symmetric(rng, shape) + 3 * np.eye(shape[-1])


def diagonalizable(rng: np.random.Generator, shape: Shape) -> Array:
    """Real eigenvalues 1, 2, 3, ... with vectors that are not orthogonal."""
    basis = np.eye(shape[-1]) + 0.2 * rng.standard_normal(shape)
    found: Array = (basis * np.arange(1.0, shape[-1] + 1)) @ np.linalg.inv(basis)
    return found


def lower(rng: np.random.Generator, shape: Shape) -> Array:
    return np.tril(rng.standard_normal(shape), -1) + np.arange(1.0, shape[-1] + 1) * np.eye(shape[-1])


# quoted: numpy.random is slow to import, and only tests need it
Made: TypeAlias = "tuple[Callable[[np.random.Generator, Shape], Array] | None, Shape]"
Row: TypeAlias = "tuple[Sequence[Made], dict[str, Any]]"
# What A stays under D A D^H with a diagonal D of phases, and not between any two of them.
_SIMILAR = (symmetric, positive, diagonalizable, lower)


def samples(*rows: Row, phases: bool = True) -> Any:
    """Samples of `((maker, shape), ...), params`, in float64 and complex128 with gradients, the first in float32.

    A maker of None gives plain normal numbers. `phases=False`: those of complex results are LAPACK's choice, which
    differences see and rules do not.
    """

    def generate(rng: np.random.Generator) -> Iterator[Sample]:
        for k, (made, params) in enumerate(rows):
            arrays = tuple(rng.standard_normal(shape) if make is None else make(rng, shape) for make, shape in made)
            yield Sample(arrays, params)
            if k == 0:
                yield Sample(tuple(a.astype("f4") for a in arrays), params, grad=False)
            if arrays[0].size:
                turned = tuple(_complex(rng, a, make in _SIMILAR) for a, (make, _) in zip(arrays, made, strict=True))
                yield Sample(turned, params, grad=phases)

    return generate


def _complex(rng: np.random.Generator, x: Array, similar: bool) -> Array:
    """The matrix in complex numbers: its rows and columns times phases."""
    if x.ndim < 2:
        return x + 1j * x[::-1] if x.ndim else x
    first, second = np.exp(2j * np.pi * rng.random((2, max(x.shape[-2:]))))
    found: Array = x * first[: x.shape[-2], None] * (first if similar else second)[: x.shape[-1]].conj()
    return found
