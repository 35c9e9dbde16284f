"""Numerical analysis of sampled functions: `gradient`, `trapezoid`, `interp`, `convolve`, `unwrap`. As NumPy's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hybridml_compiler.errors import ArgumentError, ShapeError
from hybridml_compiler.ops.table import OPS

from ..core import ops
from ..core.tensor import Tensor
from .elementwise import _floating
from .searching.orders import argsort, searchsorted
from .shaping.manipulation import _axis, _tensor, expand_dims, moveaxis

_where, _sum, _reshape, _concat = (OPS[name] for name in ("where", "sum", "reshape", "concat"))


def ediff1d(x: Tensor, /, to_end: Any = None, to_begin: Any = None) -> Tensor:
    """Differences of neighbours in x, flattened, with `to_begin` in front and `to_end` behind.

    >>> import hybridml as hm
    >>> hm.ediff1d(hm.tensor([1, 4, 9]), to_end=0).tolist()
    [3, 5, 0]
    """
    x = _line(x)
    parts = [None if part is None else _line(part).astype(x.dtype, copy=False) for part in (to_begin, to_end)]
    return _concat([p for p in (parts[0], x[1:] - x[:-1], parts[1]) if p is not None], axis=0)


def _line(x: Any) -> Tensor:
    x = _tensor(x)
    return _reshape(x, (x.size,))


def trapezoid(y: Tensor, /, x: Tensor | None = None, dx: Any = 1.0, axis: int = -1) -> Tensor:
    """Integral of samples y along an axis by the trapezoidal rule, at places x or at steps of dx.

    >>> import hybridml as hm
    >>> hm.trapezoid(hm.tensor([1.0, 2.0, 3.0])).item()
    4.0
    """
    return _sum(_trapezoids(y, x, dx, axis), -1)


def _trapezoids(y: Any, x: Any, dx: Any, axis: int) -> Tensor:
    """The areas between neighbouring samples, with `axis` as the last one."""
    y = moveaxis(_floating(y), axis, -1)
    if x is not None:
        x = _tensor(x)
        x = moveaxis(x, axis, -1) if x.ndim > 1 else x
        dx = x[..., 1:] - x[..., :-1]
    return dx * (y[..., 1:] + y[..., :-1]) / 2


trapz = trapezoid


def cumulative_trapezoid(y: Tensor, /, x: Tensor | None = None, dx: Any = 1.0, axis: int = -1) -> Tensor:
    """The running integral of `trapezoid` along an axis, from the second sample on. Source: PyTorch, SciPy.

    >>> import hybridml as hm
    >>> hm.cumulative_trapezoid(hm.tensor([1.0, 2.0, 3.0])).tolist()
    [1.5, 4.0]
    """
    return moveaxis(ops.cumulative_sum(_trapezoids(y, x, dx, axis), axis=-1), -1, axis)


def gradient(f: Tensor, /, *spacing: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Derivative of samples f along each of the axes: second-order central differences inside, one-sided ones of
    `edge_order` (1 or 2) at both ends. One tensor for one axis, else a tuple.

    `spacing`: nothing (1), one step for all axes, or for each axis a step or a vector of places. Source: NumPy (the
    formulas for uneven steps too).

    >>> import hybridml as hm
    >>> hm.gradient(hm.tensor([1.0, 2.0, 4.0, 7.0])).tolist()
    [1.0, 1.5, 2.5, 3.0]
    """
    f = _floating(f)
    axes = range(f.ndim) if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    axes = tuple(_axis("gradient", a, f.ndim, f) for a in axes)
    steps: Sequence[Any] = spacing if len(spacing) > 1 else (spacing or (1.0,)) * len(axes)
    if len(steps) != len(axes):
        raise ArgumentError(f"gradient: {len(spacing)} spacings for {len(axes)} axes")
    if edge_order not in (1, 2):
        raise ArgumentError(f"gradient: edge_order must be 1 or 2, got {edge_order}")
    found = tuple(_derivative(f, a, h, edge_order) for a, h in zip(axes, steps, strict=True))
    return found[0] if len(found) == 1 else found


def _derivative(f: Tensor, axis: int, spacing: Any, edge_order: int) -> Tensor:
    n = f.shape[axis]
    if n <= edge_order:
        raise ShapeError(f"gradient: axis {axis} has {n} elements; edge_order={edge_order} needs {edge_order + 1}")
    f = moveaxis(f, axis, -1)
    h = spacing if isinstance(spacing, int | float) else _tensor(spacing)
    if isinstance(h, int | float) or h.ndim == 0:
        inner = (f[..., 2:] - f[..., :-2]) / (2 * h)
        first, last = (f[..., 1] - f[..., 0]) / h, (f[..., -1] - f[..., -2]) / h
        if edge_order == 2:
            first = (-1.5 * f[..., 0] + 2 * f[..., 1] - 0.5 * f[..., 2]) / h
            last = (0.5 * f[..., -3] - 2 * f[..., -2] + 1.5 * f[..., -1]) / h
    else:
        if h.shape != (n,):
            raise ShapeError(f"gradient: places along axis {axis} must have shape ({n},), got {h.shape}")
        d = h[1:] - h[:-1]
        a, b = d[:-1], d[1:]
        inner = (
            f[..., 2:] * (a / (b * (a + b))) + f[..., 1:-1] * ((b - a) / (a * b)) - f[..., :-2] * (b / (a * (a + b)))
        )
        first, last = (f[..., 1] - f[..., 0]) / d[0], (f[..., -1] - f[..., -2]) / d[-1]
        if edge_order == 2:
            a, b = d[0], d[1]
            first = -(2 * a + b) / (a * (a + b)) * f[..., 0] + (a + b) / (a * b) * f[..., 1]
            first = first - a / (b * (a + b)) * f[..., 2]
            a, b = d[-2], d[-1]
            last = b / (a * (a + b)) * f[..., -3] - (a + b) / (a * b) * f[..., -2]
            last = last + (2 * b + a) / (b * (a + b)) * f[..., -1]
    return moveaxis(_concat([expand_dims(first, -1), inner, expand_dims(last, -1)], axis=-1), -1, axis)


def interp(
    x: Tensor, xp: Tensor, fp: Tensor, /, left: Any = None, right: Any = None, period: float | None = None
) -> Tensor:
    """The piecewise linear function through the points (xp, fp) at x; xp increases. Outside of it `left` (fp[0]) and
    `right` (fp[-1]); with a `period` the function goes round. Source: NumPy. ShapeError where xp and fp do not match.

    >>> import hybridml as hm
    >>> hm.interp(hm.tensor([0.5, 9.0]), hm.tensor([0.0, 1.0]), hm.tensor([2.0, 4.0])).tolist()
    [3.0, 4.0]
    """
    x, xp, fp = _floating(x), _floating(xp), _floating(fp)
    if xp.ndim != 1 or xp.shape != fp.shape or not xp.numel():
        raise ShapeError(f"interp: xp and fp must be vectors of one length, got {xp.shape} and {fp.shape}")
    if period is not None:
        if period == 0:
            raise ArgumentError("interp: the period must not be 0")
        period = abs(period)
        x, xp = ops.remainder(x, period), ops.remainder(xp, period)
        order = argsort(xp)
        xp, fp = ops.take(xp, order, 0), ops.take(fp, order, 0)
        xp = _concat([xp[-1:] - period, xp, xp[:1] + period], axis=0)
        fp = _concat([fp[-1:], fp, fp[:1]], axis=0)
        left = right = None
    n = xp.shape[0]
    if n == 1:
        found = x * 0 + fp[0]
    else:
        place = ops.clip(searchsorted(xp, x, side="right") - 1, 0, n - 2)
        x0, x1, f0, f1 = (ops.take(t, p, 0) for t in (xp, fp) for p in (place, place + 1))
        width = x1 - x0
        flat = ops.equal(width, 0)
        found = f0 + (f1 - f0) / _where(flat, 1.0, width) * (x - x0)
        found = _where(x >= xp[-1], fp[-1], found)
    found = _where(x < xp[0], fp[0] if left is None else left, found)
    return found if right is None else _where(x > xp[-1], right, found)


def unwrap(p: Tensor, /, discont: float | None = None, axis: int = -1, *, period: float = 2 * math.pi) -> Tensor:
    """Angles without jumps: neighbours that differ by more than `discont` (half a period) come nearer by whole periods.

    Source: NumPy.

    >>> import hybridml as hm
    >>> hm.unwrap(hm.tensor([0.0, 3.0, -1.0]), period=4.0).tolist()
    [0.0, -1.0, -1.0]
    """
    p = _tensor(p)
    whole = p.dtype.kind in "iu" and isinstance(period, int)
    x = moveaxis(p if whole else _floating(p), axis, -1)
    half = period // 2 if whole else period / 2
    d = x[..., 1:] - x[..., :-1]
    near = ops.remainder(d + half, period) - half
    if not whole or period % 2 == 0:
        near = _where(ops.equal(near, -half) & (d > 0), half, near)
    more = _where(ops.abs(d) < (half if discont is None else discont), 0, near - d)
    return moveaxis(_concat([x[..., :1], x[..., 1:] + ops.cumulative_sum(more, axis=-1)], axis=-1), -1, axis)


_MODES = ("full", "same", "valid")


def convolve(a: Tensor, v: Tensor, /, mode: str = "full") -> Tensor:
    """Convolution of two vectors: `full` has a.size + v.size - 1 elements, `same` the greater of the sizes, `valid`
    those where both overlap entirely. A matrix product of the windows of the longer one. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.convolve(hm.tensor([1.0, 2.0, 3.0]), hm.tensor([1.0, 1.0])).tolist()
    [1.0, 3.0, 5.0, 3.0]
    """
    a, v = _vectors("convolve", a, v, mode)
    if v.numel() > a.numel():
        a, v = v, a
    return _slid(a, ops.flip(v, 0), mode)


def correlate(a: Tensor, v: Tensor, /, mode: str = "valid") -> Tensor:
    """Cross-correlation of two vectors: c[k] is the sum of a[n + k] * conj(v[n]); modes as `convolve`. Source: NumPy.

    >>> import hybridml as hm
    >>> hm.correlate(hm.tensor([1.0, 2.0, 3.0]), hm.tensor([0.0, 1.0])).tolist()
    [2.0, 3.0]
    """
    a, v = _vectors("correlate", a, v, mode)
    if v.dtype.kind == "c":
        v = ops.conj(v)
    return ops.flip(_slid(v, a, mode), 0) if v.size > a.size else _slid(a, v, mode)


def _vectors(name: str, a: Any, v: Any, mode: str) -> tuple[Tensor, Tensor]:
    if mode not in _MODES:
        raise ArgumentError(f"{name}: mode must be one of {', '.join(_MODES)}; got {mode!r}")
    a, v = _tensor(a), _tensor(v)
    a, v = (_reshape(t, (1,)) if t.ndim == 0 else t for t in (a, v))
    if a.ndim != 1 or v.ndim != 1 or not a.numel() or not v.numel():
        raise ShapeError(f"{name}: needs two vectors that are not empty, got shapes {a.shape} and {v.shape}")
    return a, v


def _slid(a: Tensor, v: Tensor, mode: str) -> Tensor:
    """Sums of products of v with the windows of a, which is as long or longer."""
    k = v.numel()
    before = {"full": k - 1, "same": k // 2, "valid": 0}[mode]
    after = {"full": k - 1, "same": k - 1 - k // 2, "valid": 0}[mode]
    wide = ops.pad(a, ((before, after),)) if before or after else a
    return ops.matmul(ops.windows(wide, size=(k,)), v)


__all__ = [
    "convolve", "correlate", "cumulative_trapezoid", "ediff1d", "gradient", "interp", "trapezoid", "trapz", "unwrap",
]  # fmt: skip
