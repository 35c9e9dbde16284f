"""Rows without a kernel that CuPy computes on the GPU: sorts, Fourier transforms, factorizations, special functions.

The table says which function of CuPy is a row's, as routines of LAPACK are declared for the CPU: what the row promises
beside that (nan last, equal elements in their order, errors for values) is made of CuPy's functions here. An operation
that is not here stays on the host, and `reason` says why ([Note: Rows on a GPU]). It was written from the sources of
CuPy 14.2, and runs in the tests on a stand-in for CuPy that NumPy and SciPy compute.

No row may be recorded in a graph: Thrust's sorts wait for the stream, CuPy refuses cuSOLVER and cuBLAS while a stream
is captured, and plans of cuFFT have memory that CuPy frees when it drops the plan. So all stand between two graphs.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ....graph.ir import Graph, Node
from ....record import record

Array = Any  # cupy.ndarray
_LINALG, _SPECIAL = "cupyx.scipy.linalg", "cupyx.scipy.special"


@record(eq=False)
class CuPy:
    """The module `cupy`, and the function that loads others by name: CuPy's of SciPy cannot be loaded everywhere."""

    cupy: Any
    load: Callable[[str], Any]
    planned: threading.local = field(default_factory=threading.local)  # the stream of this thread's plans


@record(eq=False)
class CupyRow:
    """A row's function, of the modules, arrays and parameters, and the characters of the dtypes that it takes. `needs`
    is the library that CuPy asks; one that a machine has not leaves the row to the host."""

    compute: Callable[..., Any]
    needs: str
    dtypes: str


# ---- order


def _nan_last(lib: CuPy, x: Array) -> Array:
    """The array with nans of positive sign, which Thrust's radix sort has last, and zeros of one sign."""
    return lib.cupy.where(x == x, x + 0, x.dtype.type(np.nan)) if x.dtype.kind == "f" else x


def _sort(lib: CuPy, x: Array, axis: int, descending: bool) -> Array:
    ascending = lib.cupy.sort(_nan_last(lib, x), axis)
    return lib.cupy.flip(ascending, axis) if descending else ascending


def _argsort(lib: CuPy, x: Array, axis: int, descending: bool) -> Array:
    if not descending:
        return lib.cupy.argsort(_nan_last(lib, x), axis)  # which is stable, whatever it is asked for
    back = lib.cupy.flip(x, axis)  # equal elements keep their order: sorted from the end, and read from the end
    return x.shape[axis] - 1 - lib.cupy.flip(_argsort(lib, back, axis, False), axis)


def _lexsort(lib: CuPy, keys: Array, axis: int) -> Array:
    """By the first key, then by each of the others with a stable sort: CuPy's own has neither axes nor nans."""
    order = _argsort(lib, keys[0], axis, False)
    for key in keys[1:]:
        later = _argsort(lib, lib.cupy.take_along_axis(key, order, axis), axis, False)
        order = lib.cupy.take_along_axis(order, later, axis)
    return order


def _argtopk(lib: CuPy, x: Array, k: int, axis: int, largest: bool) -> Array:
    order = lib.cupy.moveaxis(_argsort(lib, x, axis, largest), axis, -1)
    return lib.cupy.moveaxis(order[..., :k], -1, axis)


def _searchsorted(lib: CuPy, x1: Array, x2: Array, right: bool) -> Array:
    side = "right" if right else "left"
    if x1.ndim == 1:
        return lib.cupy.searchsorted(x1, x2, side)
    rows, values = x1.reshape(-1, x1.shape[-1]), x2.reshape(-1, x2.shape[-1])
    found = [lib.cupy.searchsorted(row, wanted, side) for row, wanted in zip(rows, values, strict=True)]
    return lib.cupy.stack(found).reshape(x2.shape)


# ---- Fourier transforms


def _planned(compute: Callable[..., Array]) -> Callable[..., Array]:
    """The function, without the plans that CuPy keeps for this thread where they are of another stream: they have
    memory to work in, which is free when work on that stream has come so far."""

    @functools.wraps(compute)
    def planned(lib: CuPy, *operands: Array, **params: Any) -> Array:
        stream, last = lib.cupy.cuda.get_current_stream(), getattr(lib.planned, "stream", None)
        if last is None or last.ptr != stream.ptr:
            drop_plans(lib)
            lib.planned.stream = stream
        return compute(lib, *operands, **params)

    return planned


def drop_plans(lib: CuPy) -> None:
    """Gives back what the plans of this thread work in: CuPy keeps 16 of them, of whatever size."""
    lib.cupy.fft.config.get_plan_cache().clear()


@_planned
def _fft_c2c(lib: CuPy, x: Array, axes: tuple[int, ...], inverse: bool, norm: str) -> Array:
    return (lib.cupy.fft.ifftn if inverse else lib.cupy.fft.fftn)(x, axes=axes, norm=norm)


@_planned
def _fft_r2c(lib: CuPy, x: Array, axes: tuple[int, ...], norm: str) -> Array:
    return lib.cupy.fft.rfftn(x, axes=axes, norm=norm)


@_planned
def _fft_c2r(lib: CuPy, x: Array, axes: tuple[int, ...], size: int, norm: str) -> Array:
    """Axis by axis, as cuFFT does not say what it makes of a frequency 0 (or size / 2) that is no real number."""
    x = lib.cupy.fft.ifftn(x, axes=axes[:-1], norm=norm) if len(axes) > 1 else x.copy()
    rows = lib.cupy.moveaxis(x, axes[-1], 0)
    for k in (0, size // 2) if size % 2 == 0 else (0,):
        rows[k] = rows[k].real
    return lib.cupy.fft.irfft(x, size, axis=axes[-1], norm=norm)


# ---- linear algebra


def _finite(compute: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which refuses nan and infinity, as the row does."""

    @functools.wraps(compute)
    def checked(lib: CuPy, x: Array, *more: Array, **params: Any) -> Any:
        if not lib.cupy.isfinite(x).all():
            raise np.linalg.LinAlgError("nan or infinity")
        return compute(lib, x, *more, **params)

    return checked


def _symmetrised(x: Array) -> Array:
    return (x + x.conj().swapaxes(-1, -2)) * x.real.dtype.type(0.5)


def _by_matrix(compute: Callable[..., Any], lib: CuPy, x: Array) -> Any:
    """The results for a batch of matrices by a function of one."""
    found = [compute(matrix) for matrix in x.reshape(-1, *x.shape[-2:])]
    if not isinstance(found[0], tuple):
        return lib.cupy.stack(found).reshape(x.shape)
    return tuple(lib.cupy.stack(part).reshape(*x.shape[:-2], *part[0].shape) for part in zip(*found, strict=True))


def _lu(lib: CuPy, x: Array) -> Any:
    def factors(matrix: Array) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # that it is singular
            return lib.load(_LINALG).lu(matrix, check_finite=False)

    return _by_matrix(factors, lib, x)


def _system(lib: CuPy, x: Array, y: Array) -> tuple[Array, Array]:
    """Both sides of a system with the same batch, and columns on the right."""
    y = y[:, None] if y.ndim == 1 else y
    batch = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return lib.cupy.broadcast_to(x, (*batch, *x.shape[-2:])), lib.cupy.broadcast_to(y, (*batch, *y.shape[-2:]))


def _solve(lib: CuPy, x: Array, y: Array) -> Array:
    found = lib.cupy.linalg.solve(*_system(lib, x, y))
    return found if y.ndim > 1 else found[..., 0]


def _solve_triangular(lib: CuPy, x: Array, y: Array, upper: bool, unit: bool) -> Array:
    if not unit and (lib.cupy.diagonal(x, axis1=-2, axis2=-1) == 0).any():
        raise np.linalg.LinAlgError("a zero on the diagonal")
    left, right = _system(lib, x, y)
    found = lib.load(_LINALG).solve_triangular(left, right, lower=not upper, unit_diagonal=unit)
    return found if y.ndim > 1 else found[..., 0]


def _pinv(lib: CuPy, x: Array, rtol: Array) -> Array:
    return lib.cupy.linalg.pinv(x, lib.cupy.asarray(rtol))


def _cofactor(lib: CuPy, x: Array) -> Array:
    """The product of the cofactors of the three factors of singular values, as the row has it."""
    cupy = lib.cupy
    u, s, v = cupy.linalg.svd(x)
    ones = cupy.ones_like(s[..., :1])
    before = cupy.cumprod(cupy.concatenate([ones, s[..., :-1]], axis=-1), axis=-1)
    after = cupy.flip(cupy.cumprod(cupy.concatenate([ones, cupy.flip(s[..., 1:], -1)], axis=-1), axis=-1), -1)
    turn = cupy.linalg.det(u) * cupy.linalg.det(v)
    return cupy.matmul(turn[..., None, None] * (u.conj() * (before * after)[..., None, :]), v.conj())


def _matrix_exp(lib: CuPy, x: Array) -> Array:
    def exponential(matrix: Array) -> Array:
        if lib.cupy.isfinite(matrix).all():
            return lib.load(_LINALG).expm(matrix)
        return lib.cupy.full_like(matrix, np.nan)

    return _by_matrix(exponential, lib, x)


# ---- special functions


def _in_float64(name: str) -> CupyRow:
    """A function of `cupyx.scipy.special`, computed in float64 as the row is, and rounded at the end."""

    def compute(lib: CuPy, *operands: Array) -> Array:
        return getattr(lib.load(_SPECIAL), name)(*[x.astype(np.float64) for x in operands])

    return CupyRow(compute, "kernels", "fd")


def _kernel(name: str, dtypes: str) -> CupyRow:
    return CupyRow(lambda lib, *operands: getattr(lib.cupy, name)(*operands), "kernels", dtypes)


_REAL, _INEXACT, _INTEGER = "fd", "fdFD", "bhilqBHILQ"


def _factorization(compute: Callable[..., Any]) -> CupyRow:
    return CupyRow(compute, "cuSOLVER", _INEXACT)


# fmt: off
ROWS = {
    "sort": CupyRow(_sort, "Thrust", "?" + _INTEGER + _INEXACT),
    "argsort": CupyRow(_argsort, "Thrust", "?" + _INTEGER + _INEXACT),
    "lexsort": CupyRow(_lexsort, "Thrust", "?" + _INTEGER + _REAL),
    "argtopk": CupyRow(_argtopk, "Thrust", "?" + _INTEGER + _REAL),
    "searchsorted": CupyRow(_searchsorted, "kernels", _INTEGER + _REAL),
    "fft_c2c": CupyRow(_fft_c2c, "cuFFT", _INEXACT),
    "fft_r2c": CupyRow(_fft_r2c, "cuFFT", _REAL),
    "fft_c2r": CupyRow(_fft_c2r, "cuFFT", _INEXACT),
    "cholesky": _factorization(_finite(lambda lib, x: lib.cupy.linalg.cholesky(_symmetrised(x)))),
    "lu": CupyRow(_finite(_lu), "cuSOLVER", _REAL),  # pivots of complex numbers would be other ones
    "qr": _factorization(_finite(lambda lib, x, mode: lib.cupy.linalg.qr(x, mode))),
    "svd": _factorization(_finite(lambda lib, x, full_matrices: lib.cupy.linalg.svd(x, full_matrices))),
    "svdvals": _factorization(_finite(lambda lib, x: lib.cupy.linalg.svd(x, compute_uv=False))),
    "eigh": _factorization(_finite(lambda lib, x: lib.cupy.linalg.eigh(_symmetrised(x)))),
    "eigvalsh": _factorization(_finite(lambda lib, x: lib.cupy.linalg.eigvalsh(_symmetrised(x)))),
    "solve": _factorization(_solve),
    "solve_triangular": _factorization(_solve_triangular),
    "inv": _factorization(lambda lib, x: lib.cupy.linalg.inv(x)),
    "pinv": _factorization(_finite(_pinv)),
    "det": _factorization(lambda lib, x: lib.cupy.linalg.det(x)),
    "slogdet": _factorization(lambda lib, x: lib.cupy.linalg.slogdet(x)),
    "cofactor": _factorization(_finite(_cofactor)),
    "matrix_exp": _factorization(_matrix_exp),
    "gammainc": _in_float64("gammainc"),
    "gammaincc": _in_float64("gammaincc"),
    "betainc": _in_float64("betainc"),
    "gcd": _kernel("gcd", _INTEGER),
    "lcm": _kernel("lcm", _INTEGER),
    "ldexp": _kernel("ldexp", _REAL + _INTEGER),
    "frexp": _kernel("frexp", _REAL),
}
# fmt: on

# What shows that a machine has the library: CuPy loads each when it is first asked for something.
_PROBES: dict[str, Callable[[CuPy], Any]] = {
    "Thrust": lambda lib: lib.cupy.sort(lib.cupy.zeros(2, "f4")),
    "cuFFT": lambda lib: lib.cupy.fft.fft(lib.cupy.zeros(2, "c8")),
    "cuSOLVER": lambda lib: (lib.load(_LINALG), lib.cupy.linalg.cholesky(lib.cupy.ones((1, 1), "f4"))),
    "kernels": lambda lib: (lib.load(_SPECIAL), lib.cupy.gcd(lib.cupy.ones(1, "i8"), lib.cupy.ones(1, "i8"))),
}


def lack(lib: CuPy, needs: str) -> str:
    """The reason why CuPy cannot ask a library on this machine; "" where it can."""
    try:
        _PROBES[needs](lib)
    except Exception as error:  # of the loader, of the compiler, of CUDA
        return f"CuPy cannot use {needs} here ({type(error).__name__}: {error})".partition("\n")[0]
    return ""


def reason(graph: Graph, lacks: Callable[[str], str]) -> str:
    """The reason why the host computes a graph of one operation; "" where CuPy does. `lacks`: see `lack`."""
    node = _operation(graph)
    assert node.op is not None
    row = ROWS.get(node.op.name)
    if row is None:
        return f"no function of CuPy's is {node.op.name}"
    dtypes = [n.dtype for n in node.inputs if not n.is_constant]
    if not all(dtype.char in row.dtypes for dtype in dtypes):
        return f"CuPy's {node.op.name} is not for {', '.join(map(str, dtypes))}"
    if any(n.aval.size == 0 for n in node.inputs):
        return "an operand is empty"
    return lacks(row.needs)


def compute(lib: CuPy, graph: Graph, arrays: Sequence[Array]) -> list[Array]:
    """The outputs of a graph of one operation that has no `reason` for the host. numpy.linalg.LinAlgError for values
    that it refuses."""
    node, given = _operation(graph), dict(zip(graph.inputs, arrays, strict=True))
    assert node.op is not None
    row = ROWS.get(node.op.name)
    assert row is not None
    operands = [given[n] if n in given else lib.cupy.asarray(n.value) for n in node.inputs]
    params = {name: value for name, value in node.params.items() if name != "result"}
    with lib.load("cupyx").errstate(linalg="raise"):  # else singular matrices give anything
        found = row.compute(lib, *operands, **params)
    return [found[n.params["result"]] if node.op.results else found for n in graph.outputs]


def _operation(graph: Graph) -> Node:
    """The first node of the operation, which has one for each of its results."""
    return graph.outputs[0]
