"""A call of every NumPy function that takes tensors: what the tests run, and what the count on docs/numpy.md is of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.lib import recfunctions, stride_tricks

RNG = np.random.default_rng(0)
A = RNG.uniform(0.5, 2.0, (3, 4))  # positive
B = RNG.uniform(0.5, 2.0, (3, 4))
S = RNG.standard_normal((3, 4))  # of both signs
V = RNG.standard_normal(5)
W = RNG.uniform(0.5, 2.0, 5)
X3 = RNG.standard_normal((2, 3, 4))
M = RNG.standard_normal((3, 3)) + 3 * np.eye(3)
SYM = M @ M.T
UP = np.sort(RNG.uniform(-2, 2, 6))
INTS = np.array([[3, 1, 2, 0], [1, 1, 5, 4], [7, 0, 2, 2]])
J = np.array([2, 0, 1])
K = np.array([4, 1, 1, 3, 2])
MASK = A > 1.2
MOST = np.arange(12).reshape(3, 4) % 5 != 0
N = S.copy()
N[0, 1] = N[2, 3] = np.nan
Z = RNG.standard_normal((3, 4)) + 1j * RNG.standard_normal((3, 4))
T6 = (RNG.standard_normal((6, 6)) + 3 * np.eye(6)).reshape(2, 3, 6)
U8 = np.array([[3, 255], [128, 7]], np.uint8)


POLYNOMIAL: Any = np.polynomial.polynomial  # whose stubs lack polyvalnd


@dataclass(frozen=True)
class Sample:
    """A call: arrays among the arguments become tensors."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    grad: bool = True  # whether the derivative is compared with a difference quotient of NumPy's function
    written: bool = False  # whether the call writes into its first argument, which is then what is compared
    rtol: float = 1e-9
    take: Any = None  # what of the result is determined

    def __str__(self) -> str:
        return f"{getattr(self.func, '__module__', 'numpy')}.{self.func.__name__}".removeprefix("numpy.")


def sample(
    func: Any, *args: Any, grad: bool = True, written: bool = False, rtol: float = 1e-9, take: Any = None, **kw: Any
) -> Sample:
    return Sample(func, args, kw, grad, written, rtol, take)


def doubled(x: Any, *args: Any) -> Any:
    return np.sum(x * x)


def _values(first: Any, *rest: Any) -> Any:
    return np.sum(first * first, axis=rest[0] if rest else None, keepdims=True)


# What is determined of results that have several right answers (signs of vectors, the order of eigenvalues).
def _size_of_parts(found: Any) -> Any:
    return [np.abs(part) for part in found]


def _sorted_values(found: Any) -> Any:
    return np.sort(np.real(found), axis=-1)


def _eig_values(found: Any) -> Any:
    return _sorted_values(found[0])


_BASIC = (np.sum, np.prod, np.mean, np.std, np.var, np.max, np.min)
_NAN = (np.nansum, np.nanprod, np.nanmean, np.nanstd, np.nanvar, np.nanmax, np.nanmin)

REDUCTIONS = [
    *(sample(f, S, axis=1) for f in (*_BASIC, np.amax, np.amin, np.ptp)),
    *(sample(f, S) for f in (*_BASIC, np.ptp)),
    *(sample(f, S, 0, keepdims=True, where=MOST) for f in (np.sum, np.prod, np.mean, np.std, np.var)),
    *(sample(f, S, initial=0.5, where=MASK) for f in (np.sum, np.prod, np.max, np.min)),
    *(sample(f, S, axis=(0, 1), ddof=1) for f in (np.std, np.var)),
    sample(np.var, S, axis=1, keepdims=True, mean=S.mean(axis=1, keepdims=True)),
    sample(np.std, S, axis=1, correction=1),
    sample(np.sum, INTS, dtype=np.float64),
    *(sample(f, MASK, axis=0) for f in (np.all, np.any)),
    *(sample(f, INTS, keepdims=True, where=MASK) for f in (np.all, np.any)),
    *(sample(f, S, axis=1) for f in (np.argmax, np.argmin, np.nanargmax, np.nanargmin)),
    *(sample(f, INTS) for f in (np.argmax, np.argmin, np.count_nonzero)),
    sample(np.count_nonzero, INTS, axis=1, keepdims=True),
    *(sample(f, S, axis=1) for f in (np.cumsum, np.cumprod)),
    *(sample(f, S) for f in (np.cumsum, np.cumprod)),
    *(sample(f, S, axis=1, include_initial=True) for f in (np.cumulative_sum, np.cumulative_prod)),
    *(sample(f, N, axis=0, grad=False) for f in _NAN),
    *(sample(f, N, grad=False) for f in _NAN),
    *(sample(f, S, axis=1) for f in _NAN),
    *(sample(f, N, axis=1, grad=False) for f in (np.nanargmax, np.nanargmin, np.nancumsum, np.nancumprod)),
    *(sample(f, S) for f in (np.nancumsum, np.nancumprod)),
]  # fmt: skip

STATISTICS = [
    sample(np.average, S, axis=1),
    sample(np.average, S, weights=A, returned=True),
    sample(np.average, S, axis=0, weights=A[:, 0]),
    sample(np.median, S, axis=1),
    sample(np.median, X3, axis=(0, 2), keepdims=True),
    sample(np.nanmedian, N, axis=0, grad=False),
    sample(np.nanmedian, S),
    *(sample(f, S, 0.3, axis=1) for f in (np.quantile, np.nanquantile)),
    *(sample(f, S, [30, 50.0], axis=0, keepdims=True) for f in (np.percentile, np.nanpercentile)),
    *(sample(np.quantile, S, [0.1, 0.35, 0.5, 0.8, 1.0], method=method, grad=False) for method in (
        "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull",
        "linear", "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest",
    )),
    sample(np.nanquantile, N, 0.4, axis=0, grad=False),
    sample(np.quantile, S, [0.2, 0.7, 1.0], weights=A, method="inverted_cdf"),
    sample(np.percentile, S, 40, axis=1, weights=A[0], method="inverted_cdf", keepdims=True),
    sample(np.nanpercentile, N, [40], axis=1, weights=A, method="inverted_cdf", grad=False),
    sample(np.quantile, N, 0.4, axis=0, grad=False),
    sample(np.cov, S),
    sample(np.cov, S, B, ddof=0, rowvar=False),
    sample(np.cov, S, fweights=np.array([1, 2, 1, 3]), aweights=A[0]),
    sample(np.cov, V, bias=True),
    sample(np.corrcoef, S),
    sample(np.corrcoef, V, W),
    sample(np.histogram, S, 5, grad=False),
    sample(np.histogram, S, bins=4, range=(-1.0, 1.0), density=True, grad=False),
    sample(np.histogram, S, UP, weights=A, grad=False),
    sample(np.histogram_bin_edges, S, 3),
    sample(np.histogram, S, "sturges", grad=False),
    sample(np.histogram2d, V, W, [2, 3], grad=False),
    sample(np.histogramdd, S, 2, density=True, grad=False),
    sample(np.bincount, K),
    sample(np.bincount, K, weights=V, minlength=8),
    sample(np.digitize, S, UP),
    sample(np.digitize, S, UP[::-1].copy(), right=True),
    sample(np.correlate, V, W, "full"),
    sample(np.correlate, W[:2], V, "same"),
    sample(np.convolve, V, W[:3]),
    sample(np.convolve, V, W[:2], mode="same"),
    sample(np.convolve, V, W[:4], mode="valid"),
    sample(np.gradient, V),
    sample(np.gradient, S, 2.0, axis=1, edge_order=2),
    sample(np.gradient, X3[0], np.array([0.0, 1.0, 3.0]), 0.5),
    sample(np.gradient, S, np.array([0.0, 1.0, 3.0, 3.5]), axis=1, edge_order=2),
    sample(np.trapezoid, S, dx=0.5),
    sample(np.trapezoid, S, A[:, 0], axis=0),
    sample(np.interp, V, UP, W[[0, 1, 2, 3, 4, 0]]),
    sample(np.interp, V * 3, UP, UP * UP, left=-1.0, right=-2.0),
    sample(np.interp, V * 5, UP, UP * UP, period=3.0),
    sample(np.unwrap, V * 4),
    sample(np.unwrap, np.array([0, 1, 2, -1, 0, 7, 9]), period=4),
    sample(np.diff, S, n=2),
    sample(np.diff, S, axis=0, prepend=0.0),
    sample(np.ediff1d, S, to_begin=1.0, to_end=V),
]  # fmt: skip

CREATION = [
    *(sample(f, (2, 3), like=A) for f in (np.ones, np.zeros)),
    sample(np.empty, (0, 3), like=A),
    sample(np.full, (2, 3), 1.5, dtype=np.float64, like=A),
    sample(np.ones_like, A),
    sample(np.zeros_like, A, dtype=np.int32),
    sample(np.full_like, A, 2.5, shape=(2,)),
    sample(np.empty_like, A, shape=(0, 2)),
    sample(np.eye, 3, 4, k=1, like=A),
    sample(np.identity, 3, like=A),
    sample(np.tri, 3, 4, -1, like=A),
    sample(np.arange, 2, 9, 3, like=A),
    *(sample(f, [[1, 2], [3, 4]], like=A) for f in (np.array, np.asarray, np.asanyarray)),
    *(sample(f, A) for f in (np.copy,)),
    sample(np.ascontiguousarray, [1, 2], like=A),
    sample(np.asfortranarray, [1, 2], like=A),
    sample(np.array, 5, ndmin=2, like=A),
    sample(np.require, [1, 2], np.float32, like=A),
    sample(np.fromfunction, doubled, (2, 3), like=A),
    sample(np.frombuffer, b"\1\2\3", np.uint8, like=A),
    sample(np.fromiter, (1, 2, 3), int, like=A),
    sample(np.fromstring, "1 2 3", sep=" ", dtype=int, like=A),
    sample(np.loadtxt, ["1 2", "3 4"], like=A),
    sample(np.genfromtxt, ["1,2", "3,4"], delimiter=",", like=A),
    sample(np.linspace, A[0], B[0], 4),
    sample(np.linspace, A[0], 3.0, 4, endpoint=False, axis=1, retstep=True),
    sample(np.logspace, A[0], B[0], 3),
    sample(np.geomspace, A[0], B[0], 4),
    sample(np.astype, A, np.float32, rtol=1e-6, grad=False),
]  # fmt: skip

QUESTIONS = [
    sample(np.shape, A),
    sample(np.ndim, A),
    sample(np.size, A),
    sample(np.size, A, 1),
    sample(np.can_cast, A, np.float32),
    sample(np.common_type, A, A),
    sample(np.min_scalar_type, A),
    sample(np.result_type, A, A),
    sample(np.may_share_memory, A, A),
    sample(np.shares_memory, A, A),
    sample(np.iscomplexobj, A),
    sample(np.isrealobj, A),
    sample(np.array2string, A, precision=3),
    sample(np.array_repr, A),
    sample(np.array_str, A),
    sample(np.einsum_path, "ij,kj->ik", A, B),
    sample(np.allclose, A, A + 1e-9),
    sample(np.array_equal, N, N, equal_nan=True),
    sample(np.array_equiv, A, A[:1]),
    sample(np.isclose, N, N + 1e-9, equal_nan=True, grad=False),
]

SHAPES = [
    sample(np.reshape, A, (2, -1)),
    sample(np.reshape, A, 12, order="F"),
    sample(np.ravel, A),
    sample(np.ravel, A, "F"),
    sample(np.transpose, X3, (2, 0, 1)),
    sample(np.transpose, A),
    sample(np.moveaxis, X3, 0, -1),
    sample(np.rollaxis, X3, 2),
    sample(np.swapaxes, X3, 0, 2),
    sample(np.matrix_transpose, X3),
    sample(np.expand_dims, A, (0, 2)),
    sample(np.squeeze, A[None]),
    sample(np.broadcast_to, A[0], (2, 4)),
    sample(np.broadcast_arrays, A, A[0]),
    sample(np.meshgrid, V, W),
    sample(np.meshgrid, V, W, sparse=True, indexing="ij"),
    sample(np.flip, A),
    *(sample(f, A) for f in (np.fliplr, np.flipud, np.rot90, np.atleast_1d, np.atleast_2d, np.atleast_3d)),
    sample(np.rot90, X3, 3, axes=(1, 2)),
    sample(np.atleast_3d, V, A),
    sample(np.roll, A, 2, axis=1),
    sample(np.roll, A, (1, 2), axis=(0, 1)),
    sample(stride_tricks.sliding_window_view, A, 2, axis=1),
    sample(np.tril, A, -1),
    sample(np.triu, A, 1),
    *(sample(f, A) for f in (np.diag, np.diagonal)),
    sample(np.diag, V, -1),
    sample(np.diagonal, X3, 1, 1, 2),
    sample(np.diagflat, A, 1),
    sample(np.vander, V, 3),
    sample(np.tril_indices_from, M),
    sample(np.triu_indices_from, A, 1),
    sample(np.diag_indices_from, M),
    sample(np.unstack, A, axis=1),
    sample(np.resize, A, (2, 7)),
]  # fmt: skip

ASSEMBLING = [
    sample(np.concatenate, (A, B), 1),
    sample(np.concatenate, [A, V], axis=None),
    sample(np.stack, [A, B], axis=-1),
    *(sample(f, (A, B)) for f in (np.hstack, np.vstack, np.dstack)),
    sample(np.column_stack, (A, A[:, 0])),
    sample(np.block, [[A, B], [B, A]]),
    sample(np.append, A, V),
    sample(np.append, A, B, 0),
    sample(np.insert, A, 1, 5.0),
    sample(np.insert, A, [0, 2], A[:, :2], axis=1),
    sample(np.insert, A, 1, A[:, 0], axis=1),
    sample(np.delete, A, [0, 5]),
    sample(np.delete, A, slice(1, 3), axis=1),
    sample(np.split, A, [1, 2], axis=1),
    sample(np.array_split, V, 2),
    sample(np.hsplit, A, 2),
    sample(np.vsplit, A, 3),
    sample(np.dsplit, X3, 2),
    sample(np.tile, A, (2, 1)),
    sample(np.repeat, A, 2, axis=1),
    sample(np.repeat, A, [1, 0, 2], axis=0),
    *(sample(np.pad, A, ((1, 2), (0, 1)), mode) for mode in (
        "edge", "reflect", "symmetric", "wrap", "linear_ramp", "maximum", "mean", "median", "minimum",
    )),
    sample(np.pad, A, 1, constant_values=2.0),
    sample(np.pad, V, 2, "reflect", reflect_type="odd"),
    sample(np.pad, V, 2, "mean", stat_length=3),
]  # fmt: skip

SELECTING = [
    sample(np.where, MASK, A, B),
    sample(np.where, MASK),
    *(sample(f, INTS) for f in (np.nonzero, np.argwhere, np.flatnonzero)),
    sample(np.take, A, J),
    sample(np.take, A, K, axis=1, mode="wrap"),
    sample(np.take, A, K, axis=0, mode="clip"),
    sample(np.take_along_axis, A, INTS % 4, 1),
    sample(np.take_along_axis, A, np.array([[0], [2], [1]]), axis=1),
    sample(np.choose, INTS % 2, [A, B]),
    sample(np.choose, INTS, [A, B], mode="wrap"),
    sample(np.compress, [True, False, True], A, axis=0),
    sample(np.extract, MASK, A),
    sample(np.select, [MASK, S > 0], [A, B], 7.0),
    sample(np.piecewise, S, [S < 0, S > 0.5], [np.sin, lambda x: 2 * x, 3.0]),
    sample(np.copyto, A, B, where=MASK, written=True),
    sample(np.putmask, A, MASK, W, written=True),
    sample(np.place, A, MASK, V, written=True),
    sample(np.put, A, [0, 5, -1], V, written=True),
    sample(np.put_along_axis, A, np.array([[0], [2], [1]]), V[:3, None], 1, written=True),
    sample(np.fill_diagonal, A, V[:3], written=True),
    sample(np.sort, S, axis=0),
    sample(np.sort, S, axis=None),
    sample(np.argsort, S),
    sample(np.argsort, INTS, axis=0, stable=True),
    sample(np.partition, V, 2, take=lambda found: found[2]),
    sample(np.argpartition, V, 2, take=lambda found: found[2]),
    sample(np.sort_complex, Z[0]),
    sample(np.lexsort, (K, np.array([1, 0, 1, 0, 0]))),
    sample(np.searchsorted, UP, S),
    sample(np.searchsorted, UP[::-1].copy(), S, side="right", sorter=np.arange(6)[::-1].copy()),
    sample(np.isin, INTS, J),
    sample(np.isin, INTS, J, invert=True),
    sample(np.unique, INTS),
    sample(np.unique, INTS, return_index=True, return_inverse=True, return_counts=True),
    *(sample(f, INTS) for f in (np.unique_all, np.unique_counts, np.unique_inverse)),
    sample(np.unique_values, INTS, take=_sorted_values),
    *(sample(f, K, J) for f in (np.union1d, np.intersect1d, np.setdiff1d, np.setxor1d)),
    sample(np.intersect1d, K, J, return_indices=True),
    sample(np.trim_zeros, np.array([0.0, 0.0, 1.0, 0.0, 2.0, 0.0]), grad=False),
    sample(np.ix_, J, K),
    sample(np.unravel_index, K, (2, 3)),
    sample(np.unravel_index, K, (2, 3), order="F"),
    sample(np.ravel_multi_index, (J, J), (3, 4)),
    sample(np.ravel_multi_index, (J, K[:3]), (3, 4), mode=("raise", "wrap"), order="F"),
    sample(np.packbits, MASK),
    sample(np.packbits, MASK, axis=1, bitorder="little"),
    sample(np.unpackbits, U8),
    sample(np.unpackbits, U8, axis=1, count=10),
    sample(np.apply_along_axis, np.cumsum, 1, A),
    sample(np.apply_along_axis, doubled, 0, X3),
    sample(np.apply_over_axes, np.sum, X3, (0, 2)),
    sample(np.clip, S, -0.5, 0.5),
    sample(np.clip, S, min=-0.5),
    *(sample(f, S, 1, grad=False) for f in (np.round, np.around)),
    sample(np.round, INTS * 13, -1),
    sample(np.fix, S),
    sample(np.nan_to_num, N, nan=2.0, grad=False),
    sample(np.nan_to_num, S),
    *(sample(f, np.array([1.0, np.inf, -np.inf, np.nan]), grad=False) for f in (np.isposinf, np.isneginf)),
    sample(np.i0, V),
    sample(np.sinc, V),
]  # fmt: skip

POLYNOMIALS = [
    sample(np.poly, V),
    sample(np.poly, SYM, rtol=1e-8),
    sample(np.polyadd, V, W[:3]),
    sample(np.polysub, V, W[:3]),
    sample(np.polymul, V, W),
    sample(np.polydiv, V, W[:3]),
    sample(np.polyder, V, 2),
    sample(np.polyint, V, 2, k=[1.0, 2.0]),
    sample(np.polyval, V, A),
    sample(np.polyfit, UP, W[[0, 1, 2, 3, 4, 1]], 2, rtol=1e-7),
    sample(np.polyfit, UP, np.stack([UP, UP**2], 1), 2, w=A.ravel()[:6], cov="unscaled", rtol=1e-7),
    sample(np.polynomial.polynomial.polyval2d, V, W, A),
    sample(np.polynomial.polynomial.polygrid2d, V, A, M),
    sample(np.roots, np.array([1.0, -6.0, 11.0, -6.0]), take=_sorted_values, rtol=1e-7),
]

LINEAR_ALGEBRA = [
    sample(np.dot, A, V[:4]),
    sample(np.dot, X3, A.T),
    sample(np.inner, A, B),
    sample(np.vdot, A, B),
    sample(np.outer, A, V),
    sample(np.kron, A, M),
    sample(np.cross, A[:, :3], M),
    sample(np.cross, M, M.T, axisa=0, axisc=0),
    sample(np.tensordot, X3, A, axes=([1, 2], [0, 1])),
    sample(np.einsum, "ij,kj->ik", A, B),
    sample(np.trace, A, 1),
    sample(np.trace, X3, axis1=1, axis2=2),
    *(sample(f, M) for f in (np.linalg.det, np.linalg.inv, np.linalg.slogdet, np.linalg.pinv)),
    sample(np.linalg.cholesky, SYM, grad=False),  # NumPy's looks at one triangle
    sample(np.linalg.eigvalsh, SYM),
    sample(np.linalg.eigh, SYM, take=_size_of_parts),
    sample(np.linalg.eig, SYM, take=_eig_values, grad=False),
    sample(np.linalg.eigvals, SYM, take=_sorted_values, grad=False),
    sample(np.linalg.svd, A, full_matrices=False, take=_size_of_parts),
    sample(np.linalg.svd, A, compute_uv=False),
    sample(np.linalg.svdvals, A),
    sample(np.linalg.qr, M, take=_size_of_parts),
    sample(np.linalg.solve, M, A),
    sample(np.linalg.solve, M, A[:, 0]),
    sample(np.linalg.lstsq, A.T, V[:4], take=lambda found: found[0]),
    sample(np.linalg.matrix_rank, A),
    sample(np.linalg.matrix_power, M, 3),
    sample(np.linalg.matrix_power, M, -2),
    *(sample(np.linalg.cond, M, p) for p in (None, -2, "fro", 1)),
    *(sample(np.linalg.norm, A, p) for p in (None, "fro", "nuc", 2, 1, np.inf)),
    sample(np.linalg.norm, V),
    sample(np.linalg.norm, V, 3),
    sample(np.linalg.norm, X3, axis=(0, 2), keepdims=True),
    sample(np.linalg.vector_norm, A, axis=1),
    sample(np.linalg.matrix_norm, X3),
    sample(np.linalg.cross, A[:, :3], M),
    sample(np.linalg.diagonal, X3, offset=1),
    sample(np.linalg.trace, X3),
    sample(np.linalg.matmul, A, B.T),
    sample(np.linalg.matrix_transpose, X3),
    sample(np.linalg.outer, V, W),
    sample(np.linalg.tensordot, A, B, axes=2),
    sample(np.linalg.vecdot, A, B),
    sample(np.linalg.multi_dot, [A, B.T, M, V[:3]]),
    sample(np.linalg.tensorinv, T6),
    sample(np.linalg.tensorsolve, T6, A[:2, :3]),
]

FOURIER = [
    *(sample(getattr(np.fft, name), X3) for name in (
        "fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "rfft", "rfft2", "rfftn", "ihfft", "fftshift", "ifftshift",
    )),
    *(sample(getattr(np.fft, name), Z, norm="ortho") for name in (
        "irfft", "irfft2", "irfftn", "hfft", "fft",
    )),
    sample(np.fft.fft, X3, n=3, axis=1, norm="forward"),
]  # fmt: skip

COMPLEX = [
    *(sample(f, Z) for f in (np.real, np.imag, np.angle, np.iscomplex, np.isreal)),
    *(sample(f, S, grad=False) for f in (np.real, np.imag, np.angle, np.iscomplex, np.isreal, np.real_if_close)),
    sample(np.real_if_close, Z.real + 0j, grad=False),
    *(sample(f, A) for f in (np.emath.sqrt, np.emath.log, np.emath.log2, np.emath.log10)),
    *(sample(f, S) for f in (np.emath.sqrt, np.emath.log, np.emath.log2, np.emath.log10)),
    *(sample(f, A / 3) for f in (np.emath.arccos, np.emath.arcsin, np.emath.arctanh)),
    sample(np.emath.arctanh, S * 3),
    *(sample(f, S * 3, grad=False) for f in (np.emath.arccos, np.emath.arcsin)),  # on the cut of their branches
    sample(np.emath.logn, 2.0, A),
    sample(np.emath.power, A, 1.5),
    sample(np.emath.power, S, 0.5),
]

# Records without named fields are arrays of numbers.
RECORDS = [
    sample(recfunctions.repack_fields, A),
    sample(recfunctions.require_fields, INTS, np.float64),
    sample(recfunctions.assign_fields_by_name, A, B, written=True),
    sample(recfunctions.stack_arrays, (V, W), usemask=False),
]

NEWER: list[Sample] = []
if np.lib.NumpyVersion(np.__version__) >= "2.5.0":
    NEWER = [
        *(sample(f, x, descending=True, stable=True) for f in (np.sort, np.argsort) for x in (S, INTS, MASK)),
        sample(np.sort, N, descending=True, grad=False),
        sample(np.argsort, N, descending=True, stable=True),
        sample(np.sort, Z, axis=0, descending=True),
        sample(np.argsort, U8, axis=None, descending=True, stable=True),
        sample(POLYNOMIAL.polyvalnd, (V, W, V), X3),
        sample(POLYNOMIAL.polyvalnd, [V, W], V),
        sample(POLYNOMIAL.polyvalnd, (V,), A),
    ]


SAMPLES: list[Sample] = [
    *REDUCTIONS, *STATISTICS, *CREATION, *QUESTIONS, *SHAPES, *ASSEMBLING, *SELECTING, *POLYNOMIALS, *LINEAR_ALGEBRA,
    *FOURIER, *COMPLEX, *RECORDS, *NEWER,
]  # fmt: skip

# Elementwise functions: operands inside of all domains, unless a row says others.
_WITH_MEMORY = ("_center", "_ljust", "_rjust", "_zfill", "_expandtabs")
_PLACES = np.array([0, 1, 2]), np.array([4, 3, 5])
_UFUNCS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("count", "find", "rfind", "startswith", "endswith"), ("abcab", "ab", *_PLACES)),
    **dict.fromkeys(("index", "rindex"), ("ababab", "ab", _PLACES[0], _PLACES[1] + 3)),
    **dict.fromkeys(("_center", "_ljust", "_rjust"), ("ab", _PLACES[1], "-")),
    **dict.fromkeys(("_zfill", "_expandtabs", "_expandtabs_length"), ("a\tb", _PLACES[1])),
    "_slice": ("abcdef", *_PLACES, np.array([1, 2, 1])),
    **dict.fromkeys(("arccos", "arcsin", "arctanh"), (S / 4,)),
    **dict.fromkeys(("arccosh",), (A + 1,)),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "gcd", "lcm"), (INTS, INTS[0])),
    **dict.fromkeys(("left_shift", "right_shift"), (INTS, INTS[0])),
    **dict.fromkeys(("bitwise_count", "invert"), (INTS,)),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), (INTS, MASK)),
    **dict.fromkeys(("floor_divide", "remainder", "fmod", "divmod", "copysign", "arctan2"), (S, B)),
    "ldexp": (A, INTS), "clip": (S, -0.5, 0.5), "matmul": (A, B.T), "vecdot": (A, B), "matvec": (X3, V[:4]),
    "vecmat": (V[:3], X3), "conjugate": (Z,), "real": (Z,), "imag": (Z,), "heaviside": (S, 0.5), "nextafter": (S, B),
}  # fmt: skip
_NO_GRADIENT = {"spacing", "nextafter", "heaviside", "divmod", "floor_divide", "frexp"}


def ufunc_sample(ufunc: np.ufunc) -> Sample:
    args = _UFUNCS.get(ufunc.__name__) or (A, B, A)[: ufunc.nin]
    if (
        len(args) == 1
        and args[0] is A
        and ufunc.__name__ in ("abs", "absolute", "cbrt", "ceil", "floor", "sign", "tanh")
    ):
        args = (S,)
    # Those that NumPy calls with memory for their strings go by the function that makes it.
    func = getattr(np.strings, ufunc.__name__[1:]) if ufunc.__name__ in _WITH_MEMORY else ufunc
    return Sample(func, args, grad=ufunc.__name__ not in _NO_GRADIENT)
