"""Maximum pooling over any axes, where it came from, and the way back: three rows without the windows in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import ArgumentError, ShapeError
from . import movement
from .creation import arange
from .indexing import Index, Load, Scalar, all_of
from .op import REQUIRED, Op
from .samples import cases, fails
from .shapes import Shape, integers
from .windows import Cover, axes_of, lengths, over_covers, placed, positions, windows

Widths = tuple[tuple[int, int], ...]
_PARAMS = {"size": REQUIRED, "stride": None, "padding": None, "dilation": None, "axes": None}


class Pool(NamedTuple):
    """Windows in canonical form: an entry for each of `axes`."""

    size: Shape
    stride: Shape
    padding: Widths
    dilation: Shape
    axes: Shape

    def counts(self, shape: Shape) -> Shape:
        """Number of windows along each axis of an array of that shape."""
        padded = (shape[k] + low + high for k, (low, high) in zip(self.axes, self.padding, strict=True))
        return tuple(map(positions, padded, self.size, self.stride, self.dilation))

    def result(self, shape: Shape) -> Shape:
        return placed(shape, self.axes, self.counts(shape))


def _pool(name: str, x: Aval | Shape, size: Any, stride: Any, padding: Any, dilation: Any, axes: Any) -> Pool:
    shape = x.shape if isinstance(x, Aval) else x
    sizes = lengths(name, "size", size, len(integers(name, "size", size)))
    n = len(sizes)
    if n > len(shape):
        raise ShapeError(f"{name}: {n} window sizes {sizes} for {x}; give at most one for each of its axes")
    strides = sizes if stride is None else lengths(name, "stride", stride, n)
    around = ((0, 0),) * n if padding is None else tuple(integers(name, "padding", pair, 2) for pair in padding)
    if len(around) != n or any(w < 0 for pair in around for w in pair):
        raise ArgumentError(f"{name}: padding must be {n} pairs (before, after) of 0 or more, got {padding}")
    pool = Pool(sizes, strides, around, lengths(name, "dilation", dilation, n), axes_of(name, axes, n, len(shape)))  # type: ignore[arg-type]
    if any(count < 1 for count in pool.counts(shape)):
        raise ShapeError(f"{name}: a window of {sizes} does not fit into {x} with padding {around}; pad more")
    return pool


def _lowest(dtype: np.dtype) -> float | int | bool:
    """Value of padding: never larger than an element."""
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def _place_dtype(size: Shape) -> np.dtype:
    return dtypes.uint8 if int(np.prod(size)) <= 256 else dtypes.int32


def _taps(x: np.ndarray, pool: Pool) -> Iterator[np.ndarray]:
    """For each place in the window, in order, the elements at it, an array of the shape of the result."""
    widths = placed(((0, 0),) * x.ndim, pool.axes, pool.padding)
    if np.any(pool.padding):
        x = np.pad(x, widths, constant_values=_lowest(x.dtype))
    counts = pool._replace(padding=((0, 0),) * len(pool.axes)).result(x.shape)
    for place in np.ndindex(*pool.size):
        spans = [
            slice(k * d, k * d + (counts[axis] - 1) * step + 1, step)
            for k, d, step, axis in zip(place, pool.dilation, pool.stride, pool.axes, strict=True)
        ]
        yield x[placed((slice(None),) * x.ndim, pool.axes, spans)]


def _max_eager(x: np.ndarray, **params: Any) -> np.ndarray:
    first, *others = _taps(x, _pool("max_pool", x.shape, **params))
    out = np.array(first, order="C")
    for tap in others:
        np.maximum(out, tap, out=out)
    return out


def _place_eager(x: np.ndarray, **params: Any) -> np.ndarray:
    pool = _pool("argmax_pool", x.shape, **params)
    first, *others = _taps(x, pool)
    best, out = np.array(first), np.zeros(first.shape, _place_dtype(pool.size))
    with np.errstate(invalid="ignore"):
        for k, tap in enumerate(others, 1):
            wins = ~(tap <= best) & (best == best) if x.dtype.kind == "f" else tap > best  # a nan wins, and stays
            np.copyto(best, tap, where=wins)
            np.copyto(out, k, where=wins)
    return out


def _reduced(s: Any, op: str, i: Index, x: Load, pool: Pool) -> Scalar:
    def body(r: Index) -> Scalar:
        inside, source = [], []
        for k, axis in enumerate(pool.axes):
            place = s.add(s.mul(i[axis], pool.stride[k]), s.mul(r[k], pool.dilation[k]))
            place = s.sub(place, pool.padding[k][0])
            inside += [s.ge(place, 0), s.lt(place, x.shape[axis])]
            source.append(s.bounded(place, x.shape[axis]))
        return s.masked(all_of(s, inside), lambda: x(placed(i, pool.axes, source)), s.const(_lowest(x.dtype), x.dtype))

    return s.reduce(op, pool.size, body)


def _pooling(name: str, infer_dtype: Callable[[Aval, Pool], np.dtype], **columns: Any) -> Op:
    """A row that takes the windows of x."""

    def canon(x: Aval, **params: Any) -> dict[str, Any]:
        return _pool(name, x, **params)._asdict()

    def infer(x: Aval, **params: Any) -> Aval:
        pool = _pool(name, x, **params)
        return Aval(pool.result(x.shape), infer_dtype(x, pool))

    return Op(
        name,
        "reduction",
        public=False,
        inputs=("x",),
        params=_PARAMS,
        canon=canon,
        infer=infer,
        samples=cases(
            ([(2, 4, 6)], {"size": (2, 3)}),
            ([(2, 7, 6, 3)], {"size": (3, 2), "stride": (2, 1), "padding": ((1, 0), (0, 1)), "axes": (1, 2)}),
            ([(9, 2)], {"size": 3, "stride": 2, "padding": ((1, 1),), "dilation": 2, "axes": (0,)}),
            ([(2, 1, 3)], {"size": (1, 2), "stride": 1}),
            ([(0, 4)], {"size": (2,)}),
            values=[([np.array([2.0, 7.0, 7.0, np.nan, 1.0, np.nan])], {"size": 3})],
            dtypes="f8 f4 i4 u1",
        ),
        error_samples=lambda: (
            fails(ShapeError, f"{name}: a window of (4,) does not fit", (2, 3), size=(4,)),
            fails(ShapeError, f"{name}: 2 window sizes", (3,), size=(1, 1)),
            fails(ArgumentError, f"{name}: padding must be 1 pairs", (3,), size=2, padding=((-1, 0),)),
            fails(ArgumentError, f"{name}: axes (0, 0) must be 2 different", (3, 3), size=(1, 1), axes=(0, 0)),
        ),
        accepts="numeric",
        memory_order="",
        axis_params={"axes": "named"},
        **columns,
    )


def _max_vjp(g: Any, x: Any, size: Any, stride: Any, padding: Any, dilation: Any, axes: Any) -> Any:
    params = _pool("max_pool", tuple(x.shape), size, stride, padding, dilation, axes)._asdict()
    return unpool(g, argmax_pool(x, **params), shape=tuple(x.shape), **params)


max_pool = _pooling(
    "max_pool",
    lambda x, pool: x.dtype,
    eager=_max_eager,
    lower=lambda s, i, x, **params: _reduced(s, "max", i, x, Pool(**params)),
    vjp=(_max_vjp,),
    doc="Largest element of each window along `axes` (the last ones), one after the other unless there is a `stride`. "
    "Padding never wins. The first of equal maxima gets the gradient, as in PyTorch and JAX.",
)
argmax_pool = _pooling(
    "argmax_pool",
    lambda x, pool: _place_dtype(pool.size),
    eager=_place_eager,
    lower=lambda s, i, x, **params: s.cast(
        _reduced(s, "argmax", i, x, Pool(**params)), _place_dtype(Pool(**params).size)
    ),
    vjp=(None,),
    doc="Where in its window, counted in row-major order, `max_pool` finds the maximum: the first of equal ones, or "
    "of the nans. uint8 for windows of up to 256 elements, int32 for larger ones.",
)

# ---------------------------------------------------------------- the way back


def _unpool(x: Aval, places: Aval, shape: Any, **params: Any) -> tuple[Shape, Pool]:
    whole = integers("unpool", "shape", shape)
    pool = _pool("unpool", whole, **params)
    if not x.shape == places.shape == pool.result(whole):
        raise ShapeError(
            f"unpool: {x} and {places} are not the windows of shape {whole}, which are {pool.result(whole)}; give the "
            "shape that was pooled, and the same parameters"
        )
    return whole, pool


def _unpool_canon(x: Aval, places: Aval, shape: Any, **params: Any) -> dict[str, Any]:
    whole, pool = _unpool(x, places, shape, **params)
    return {"shape": whole, **pool._asdict()}


def _unpool_eager(x: np.ndarray, places: np.ndarray, shape: Any, **params: Any) -> np.ndarray:
    pool = _pool("unpool", tuple(shape), **params)
    padded = [n + sum(pool.padding[pool.axes.index(k)]) if k in pool.axes else n for k, n in enumerate(shape)]
    out = np.zeros(padded, x.dtype)
    bare = pool._replace(padding=((0, 0),) * len(pool.axes))
    for k, tap in enumerate(_taps(out, bare)):  # views of `out`
        tap += np.where(places == k, x, x.dtype.type(0))
    inside = [slice(low, low + shape[axis]) for axis, (low, _) in zip(pool.axes, pool.padding, strict=True)]
    found: np.ndarray = out[placed((slice(None),) * len(shape), pool.axes, inside)]
    return found


def _unpool_lower(s: Any, i: Index, x: Load, places: Load, shape: Shape, **params: Any) -> Scalar:
    pool = Pool(**params)
    covers = list(map(Cover, [x.shape[k] for k in pool.axes], pool.size, pool.stride, pool.dilation))
    at = [s.add(i[axis], low) for axis, (low, _) in zip(pool.axes, pool.padding, strict=True)]

    def read(found: Sequence[Scalar], place: Sequence[Scalar]) -> Scalar:
        source = placed(i, pool.axes, found)
        flat: Scalar = place[0]
        for p, size in zip(place[1:], pool.size[1:], strict=True):
            flat = s.add(s.mul(flat, size), p)
        flat = s.const(flat, places.dtype) if isinstance(flat, int) else s.cast(flat, places.dtype)
        here = s.eq(places(source), flat)  # in the dtype of the places: a byte for each lane
        return s.select(here, x(source), s.const(0, x.dtype))

    return over_covers(s, covers, at, read, x.dtype)


def _unpool_vjp(g: Any, places: Any, size: Any, stride: Any, padding: Any, dilation: Any, axes: Any) -> Any:
    """The element of each window that `places` names."""
    pool = _pool("unpool", tuple(g.shape), size, stride, padding, dilation, axes)
    padded = movement.pad(g, widths=placed(((0, 0),) * len(g.shape), pool.axes, pool.padding))
    views = windows(padded, size=pool.size, stride=pool.stride, dilation=pool.dilation, axes=pool.axes)
    tail = tuple(range(len(g.shape), len(views.shape)))
    numbers = arange(start=0, stop=int(np.prod(pool.size)), dtype=places.dtype).reshape(shape=pool.size)
    here = places.reshape(shape=(*places.shape, *(1,) * len(tail))) == numbers
    return (views * here.astype(dtype=g.dtype)).sum(axis=tail)


unpool: Op = Op(
    "unpool",
    "reduction",
    public=False,
    inputs=("x", "places"),
    params={"shape": REQUIRED, **_PARAMS},
    canon=_unpool_canon,
    infer=lambda x, places, shape, **params: Aval(_unpool(x, places, shape, **params)[0], x.dtype),
    eager=_unpool_eager,
    lower=_unpool_lower,
    vjp=(_unpool_vjp, None),
    reorders="sum",
    memory_order="",
    axis_params={"shape": "each", "axes": "named"},
    samples=cases(
        ([(2, 2, 2), np.array([[[0, 5], [3, 1]], [[2, 2], [4, 0]]], np.uint8)], {"shape": (2, 4, 6), "size": (2, 3)}),
        (
            [(1, 3, 3, 2), np.arange(18, dtype=np.int32).reshape(1, 3, 3, 2) % 9],
            {"shape": (1, 6, 5, 2), "size": (3, 3), "stride": 2, "padding": ((1, 1), (1, 1)), "axes": (1, 2)},
        ),
        (
            [(4, 2), np.arange(8, dtype=np.uint8).reshape(4, 2) % 3],
            {"shape": (9, 2), "size": 3, "stride": 2, "padding": ((1, 1),), "dilation": 2, "axes": (0,)},
        ),
    ),
    error_samples=lambda: (
        fails(ShapeError, "unpool: f32[2] and u8[2] are not the windows", (2,), np.zeros(2, "u1"), shape=(7,), size=2),
    ),
    accepts="any",
    doc="The adjoint of `max_pool`: each x at that place of its window which `places` (of `argmax_pool`) names, zeros "
    "elsewhere, of shape `shape`. Overlaps add in row-major order of the window's elements.",
)

ROWS = (max_pool, argmax_pool, unpool)
