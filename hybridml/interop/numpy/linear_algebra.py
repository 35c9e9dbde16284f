"""Products, `np.linalg`, `np.fft` and the roots and logarithms of `np.emath`, with NumPy's parameters."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, ShapeError

from ... import arrays as xp
from ...arrays.shaping.manipulation import _tensor
from ...core.tensor import Tensor
from .table import implements, same

# -- products


@implements(np.tensordot, np.linalg.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    if isinstance(axes, tuple | list):
        axes = tuple((k,) if isinstance(k, int) else tuple(k) for k in axes)
    return xp.tensordot(_tensor(a), _tensor(b), axes=axes)


@implements(np.outer, np.linalg.outer)
def outer(a: Any, b: Any) -> Any:
    return xp.outer(_tensor(a), _tensor(b))


@implements(np.cross)
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = xp.moveaxis(_tensor(a), axisa, -1), xp.moveaxis(_tensor(b), axisb, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ShapeError(f"np.cross: vectors must have 3 elements, got shapes {a.shape} and {b.shape}")
    return xp.moveaxis(xp.cross(a, b), -1, axisc)


@implements(np.einsum)
def einsum(*operands: Any, optimize: Any = False, dtype: Any = None, **kwargs: Any) -> Any:
    """Einstein sum; `optimize=False` is the same sum in the order that hybridml finds cheap."""
    given = [xp.astype(x, dtype, copy=False) if dtype is not None and isinstance(x, Tensor) else x for x in operands]
    return xp.einsum(*given, optimize=optimize or True)


@implements(np.einsum_path)
def einsum_path(*operands: Any, optimize: Any = "greedy", einsum_call: bool = False) -> Any:
    """The order in which to multiply operands: a question about shapes alone, which NumPy answers."""
    return np.einsum_path(*(_shaped(x) for x in operands), optimize=optimize)


def _shaped(x: Any) -> Any:
    return np.broadcast_to(np.float64(0), x.shape) if isinstance(x, Tensor) else x


@implements(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    return xp.sum(xp.diagonal(_tensor(a), offset=offset, axis1=axis1, axis2=axis2), axis=-1, dtype=dtype)


same(np, "kron dot inner vdot")
same(np.linalg, "cross matmul matrix_transpose vecdot", "linalg.")


# -- np.linalg


def _linalg() -> Any:
    from ... import linalg  # nine modules, which programs without such calls do not load

    return linalg


@implements(np.linalg.eigh)
def eigh(a: Any, UPLO: Any = "L") -> Any:
    return _linalg().eigh(_tensor(a), UPLO=UPLO.upper())


@implements(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: Any = "L") -> Any:
    return _linalg().eigvalsh(_tensor(a), UPLO=UPLO.upper())


@implements(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    x = _tensor(a)
    return _linalg().svd(x, full_matrices=full_matrices) if compute_uv else _linalg().svdvals(x)


@implements(np.linalg.qr)
def qr(a: Any, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(f"np.linalg.qr: mode must be 'reduced', 'complete' or 'r' for tensors, got {mode!r}")
    found = _linalg().qr(_tensor(a), mode="complete" if mode == "complete" else "reduced")
    return found.R if mode == "r" else found


@implements(np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """Least squares. NumPy's residuals have an axis, the columns of b, empty where no equation is left over."""
    found = _linalg().lstsq(_tensor(a), _tensor(b), rcond=rcond)
    m, n = np.shape(a)
    return (found[0], xp.reshape(found[1], (-1,)) if m > n else xp.zeros((0,), dtype=found[1].dtype), *found[2:])


@implements(np.linalg.pinv)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    return _linalg().pinv(_tensor(a), rtol=rcond if rtol is None else rtol)


@implements(np.linalg.matrix_rank)
def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    x = _tensor(A)
    if x.ndim < 2:
        return xp.astype(xp.any(xp.not_equal(x, 0)), xp.int64)
    if tol is not None:
        return xp.count_nonzero(_linalg().svdvals(x) > xp.expand_dims(_tensor(tol), axis=-1), axis=-1)
    return _linalg().matrix_rank(x, rtol=rtol)


same(np.linalg, "cholesky cond det diagonal eig eigvals inv matrix_norm matrix_power multi_dot norm", "linalg.")
same(np.linalg, "slogdet solve svdvals tensorinv tensorsolve trace vector_norm", "linalg.")

# -- np.fft

same(
    "numpy.fft",
    "fft ifft fft2 ifft2 fftn ifftn rfft irfft rfft2 irfft2 rfftn irfftn hfft ihfft fftshift ifftshift",
    "fft.",
)

# -- np.emath: real where the result is, else complex


def _complex_if(x: Any, wanted: Any) -> Tensor:
    """x, complex where `wanted` holds of an element: a value, which a traced program asks for."""
    x = _tensor(x)
    if x.dtype.kind not in "fc":
        x = xp.astype(x, xp.get_default_dtype())
    if x.dtype.kind == "c" or not bool(xp.any(wanted(x))):
        return x
    return xp.astype(x, xp.complex64 if x.dtype == np.float32 else xp.complex128)


def _negative(x: Any) -> Any:
    return x < 0


def _beyond_one(x: Any) -> Any:
    return xp.abs(x) > 1


@implements(np.emath.sqrt)
def sqrt(x: Any) -> Any:
    return xp.sqrt(_complex_if(x, _negative))


@implements(np.emath.log)
def log(x: Any) -> Any:
    return xp.log(_complex_if(x, _negative))


@implements(np.emath.log2)
def log2(x: Any) -> Any:
    return xp.log2(_complex_if(x, _negative))


@implements(np.emath.log10)
def log10(x: Any) -> Any:
    return xp.log10(_complex_if(x, _negative))


@implements(np.emath.logn)
def logn(n: Any, x: Any) -> Any:
    number = isinstance(n, int | float) and n > 0
    return log(x) / (math.log(n) if number else log(n))


@implements(np.emath.power)
def power(x: Any, p: Any) -> Any:
    return xp.pow(_complex_if(x, _negative), p)


@implements(np.emath.arccos)
def arccos(x: Any) -> Any:
    return xp.acos(_complex_if(x, _beyond_one))


@implements(np.emath.arcsin)
def arcsin(x: Any) -> Any:
    return xp.asin(_complex_if(x, _beyond_one))


@implements(np.emath.arctanh)
def arctanh(x: Any) -> Any:
    return xp.atanh(_complex_if(x, _beyond_one))
