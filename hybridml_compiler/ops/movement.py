"""Rows that move elements and compute nothing: reshape, permute, broadcast, slice, pad, flip, concat.

`eager` answers views where NumPy can; whoever writes in place owns the copy.
"""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from ..aval import Aval
from ..compile_policy import OPERATION
from ..errors import ArgumentError, DTypeError, OutOfBoundsError, ShapeError
from ..hooks import hooks
from ..sizes.dims import same
from .creation import Number, full, number
from .indexing import Index, Load, Scalar, all_of, at, reshaped
from .op import REQUIRED, Op
from .samples import cases, fails
from .shapes import (
    Positions,
    Shape,
    axes_tuple,
    axis_index,
    broadcast,
    count,
    integer,
    integers,
    is_empty,
    is_within,
    listing,
    may_be_many,
    positions,
    shape_tuple,
    slices_of,
)

# ---------------------------------------------------------------- reshape


def _reshape_shape(x: Aval, shape: Any) -> Shape:
    wanted = integers("reshape", "shape", shape)
    known = math.prod(n for n in wanted if n != -1)
    found = tuple([x.size // known if n == -1 and known and wanted.count(-1) == 1 else n for n in wanted])
    if any(n < 0 for n in found) or math.prod(found) != x.size:
        raise ShapeError(
            f"reshape: cannot make shape {wanted} ({known if -1 not in wanted else f'{known} x ?'} elements) from {x} "
            f"({x.size} elements); keep the number of elements, with at most one -1"
        )
    return found


def _reshape_large(x: np.ndarray, shape: Any) -> np.ndarray:
    try:
        return x.reshape(shape, copy=False)
    except ValueError:
        return hooks.contiguous(x).reshape(shape)


reshape = Op(
    "reshape",
    "movement",
    inputs=("x",),
    params={"shape": REQUIRED},
    canon=lambda x, shape: {"shape": _reshape_shape(x, shape)},
    infer=lambda x, shape: Aval(_reshape_shape(x, shape), x.dtype),
    eager=lambda x, shape: x.reshape(shape) if x.size < OPERATION else _reshape_large(x, shape),
    lower=lambda s, i, x, shape: x(reshaped(s, i, shape, x.shape)),
    vjp=(lambda g, x_shape: g.reshape(shape=x_shape),),
    is_view=True,
    element_map="flat",
    covers=("x",),
    samples=cases(
        ([(4, 6)], {"shape": (2, 12)}),
        ([(4,)], {"shape": (1, 4, 1)}),
        ([(2, 3, 4)], {"shape": (4, -1)}),
        ([()], {"shape": (1, 1)}),
        ([(1, 1)], {"shape": ()}),
        ([(3, 5)], {"shape": -1}),
        ([(0, 3)], {"shape": (3, 0, 2)}),
    ),
    error_samples=lambda: (
        fails(ShapeError, "reshape: cannot make shape (4, 2)", (2, 3), shape=(4, 2)),
        fails(ShapeError, "reshape: cannot make shape (4, -1)", (2, 3), shape=(4, -1)),
        fails(ShapeError, "at most one -1", (2, 3), shape=(-1, -1)),
        fails(ArgumentError, "reshape: shape must be an integer", (2, 3), shape=(2.0, 3)),
    ),
    method="reshape",
    doc="The same elements, row-major, in another shape; one size may be -1 (worked out from the others).",
)

# ---------------------------------------------------------------- permute, broadcast


def _permutation(x: Aval | Shape, axes: Any) -> tuple[int, ...]:
    ndim = x.ndim if isinstance(x, Aval) else len(x)
    if axes is None:
        return tuple(reversed(range(ndim)))
    order = tuple(axis_index("permute_dims", k, x) for k in axes)
    if sorted(order) != list(range(ndim)):
        raise ShapeError(f"permute_dims: axes {tuple(axes)} do not order the {ndim} axes of {x}; name each axis once")
    return order


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


permute_dims = Op(
    "permute_dims",
    "movement",
    inputs=("x",),
    params={"axes": None},
    canon=lambda x, axes: {"axes": _permutation(x, axes)},
    infer=lambda x, axes: Aval(tuple(x.shape[k] for k in _permutation(x, axes)), x.dtype),
    eager=lambda x, axes: x.transpose(axes),
    lower=lambda s, i, x, axes: x(tuple(i[k] for k in inverse(axes))),
    vjp=(lambda g, x_shape, axes: g.permute_dims(axes=inverse(_permutation(x_shape, axes))),),
    is_view=True,
    covers=("x",),
    samples=cases(
        ([(3, 4, 5)], {"axes": (2, 0, 1)}),
        ([(3, 17)], {}),
        ([()], {}),
        ([(2, 0, 3)], {"axes": (-1, 0, 1)}),
    ),
    error_samples=lambda: (
        fails(ShapeError, "permute_dims: axes (0, 0)", (2, 3), axes=(0, 0)),
        fails(ShapeError, "permute_dims: axis 2 does not exist", (2, 3), axes=(0, 2)),
    ),
    method="permute_dims",
    doc="Axis k of the result is axis `axes[k]` of x; reversed order without `axes`.",
)


def _broadcast_shape(x: Aval, shape: Any) -> Shape:
    wanted = shape_tuple("broadcast_to", shape)
    fits = len(wanted) >= x.ndim and all(
        n in (1, m) for n, m in zip(x.shape, wanted[len(wanted) - x.ndim :], strict=True)
    )
    if not fits:
        raise ShapeError(
            f"broadcast_to: {x} does not broadcast to shape {wanted}; only axes of size 1 stretch, aligned at the right"
        )
    return wanted


def _broadcast(x: np.ndarray, shape: Shape) -> np.ndarray:
    """`np.broadcast_to` of shapes that fit, in half of its time."""
    if not x.flags.c_contiguous:
        return np.broadcast_to(x, shape)
    lead = len(shape) - x.ndim
    strides = (0,) * lead + tuple([0 if n == 1 else s for n, s in zip(x.shape, x.strides, strict=True)])
    view = np.ndarray(shape, x.dtype, x, 0, strides)
    view.flags.writeable = False
    return view


broadcast_to = Op(
    "broadcast_to",
    "movement",
    inputs=("x",),
    params={"shape": REQUIRED},
    canon=lambda x, shape: {"shape": _broadcast_shape(x, shape)},
    infer=lambda x, shape: Aval(_broadcast_shape(x, shape), x.dtype),
    eager=_broadcast,
    lower=lambda s, i, x, shape: at(x, i),
    vjp=(lambda g: g,),  # the engine sums over stretched axes
    is_view=True,
    element_map="broadcast",
    covers=("x",),
    samples=cases(
        ([(3, 1)], {"shape": (2, 3, 4)}),
        ([()], {"shape": (3,)}),
        ([(1,)], {"shape": (0,)}),
        ([(3, 4)], {"shape": (3, 4)}),
    ),
    error_samples=lambda: (
        fails(ShapeError, "broadcast_to: f32[3] does not broadcast", (3,), shape=(3, 4)),
        fails(ShapeError, "broadcast_to: f32[2,3] does not broadcast", (2, 3), shape=(3,)),
    ),
    method="broadcast_to",
    doc="x stretched to `shape` by NumPy's rule.",
)

# ---------------------------------------------------------------- slices


def _ranges(name: str, x: Aval | Shape, starts: Any, stops: Any, steps: Any) -> tuple[Positions, ...]:
    """One Python range per axis. Bounds are positions, not Python's wrapped indices: stop -1 ends before position 0."""
    shape = x.shape if isinstance(x, Aval) else x
    n = len(shape)
    bounds = (integers(name, "starts", starts, n), integers(name, "stops", stops, n))
    by = (1,) * n if steps is None else integers(name, "steps", steps, n)
    if 0 in by:
        raise ArgumentError(f"{name}: step 0 at axis {by.index(0)} of {x}; use a positive or negative step")
    found = tuple(map(positions, *bounds, by)) if n else ()
    for axis, (r, size) in enumerate(zip(found, shape, strict=True)):
        if not is_within(r, size):
            raise OutOfBoundsError(
                f"{name}: positions {r[0]} to {r[-1]} at axis {axis} are not in {x}; use 0 to {size - 1} "
                "(the front end's x[a:b] wraps and clips for you)"
            )
    return found


def _slice_canon(name: str, x: Aval, starts: Any, stops: Any, steps: Any) -> dict[str, Any]:
    """Tight bounds: one form for one set of elements."""
    ranges = _ranges(name, x, starts, stops, steps)
    tight = [range(0) if is_empty(r) else r if may_be_many(r) else positions(r[0], r[0] + 1, 1) for r in ranges]
    return {
        "starts": tuple(r.start for r in tight),
        "stops": tuple(0 if is_empty(r) else r[-1] + (1 if r.step > 0 else -1) for r in tight),
        "steps": tuple(r.step for r in tight),
    }


@functools.lru_cache(maxsize=1024)
def _key(starts: Shape, stops: Shape, steps: Shape | None) -> tuple[builtins.slice, ...]:
    """NumPy's key for parameters that have been checked."""
    return slices_of(map(positions, starts, stops, (1,) * len(starts) if steps is None else steps))


def _slice_lower(s: Any, i: Index, x: Load, starts: Shape, stops: Shape, steps: Shape) -> Scalar:
    def position(k: Scalar, start: int, step: int) -> Scalar:
        scaled = k if step == 1 else s.mul(k, step)
        return scaled if same(start, 0) else s.add(scaled, start)

    return x(tuple(map(position, i, starts, steps)))


slice = Op(
    "slice",
    "movement",
    public=False,
    inputs=("x",),
    params={"starts": REQUIRED, "stops": REQUIRED, "steps": None},
    canon=lambda x, starts, stops, steps: _slice_canon("slice", x, starts, stops, steps),
    infer=lambda x, starts, stops, steps: Aval(tuple(map(count, _ranges("slice", x, starts, stops, steps))), x.dtype),
    eager=lambda x, starts, stops, steps: x[(*_key(starts, stops, steps), ...)],  # a view also of no axes
    lower=_slice_lower,
    vjp=(
        lambda g, x_shape, x_dtype, starts, stops, steps: slice_update(
            full(shape=x_shape, value=0.0, dtype=x_dtype), g, starts=starts, stops=stops, steps=steps
        ),
    ),
    is_view=True,
    put_back=lambda x, v, starts, stops, steps=None: slice_update(x, v, starts=starts, stops=stops, steps=steps),
    axis_params={"starts": "each", "stops": "each", "steps": "each"},
    samples=cases(
        ([(5, 6)], {"starts": (1, 0), "stops": (4, 6)}),
        ([(5, 6)], {"starts": (4, 1), "stops": (-1, 6), "steps": (-1, 2)}),
        ([(7,)], {"starts": (5,), "stops": (0,), "steps": (-3,)}),
        ([(3, 2)], {"starts": (0, 1), "stops": (0, 2)}),
        ([()], {"starts": (), "stops": ()}),
    ),
    error_samples=lambda: (
        fails(OutOfBoundsError, "slice: positions 0 to 3 at axis 0", (3,), starts=(0,), stops=(4,)),
        fails(ArgumentError, "slice: step 0 at axis 0", (3,), starts=(0,), stops=(2,), steps=(0,)),
        fails(ArgumentError, "slice: starts needs 2 numbers", (3, 4), starts=(0,), stops=(2, 2)),
    ),
    doc="Elements starts, starts + steps, ... before stops of every axis. Bounds are positions and never wrap "
    "(a stop of -1 ends before position 0), so that negative steps can reach position 0.",
)


def _update_infer(x: Aval, v: Aval, starts: Any, stops: Any, steps: Any) -> Aval:
    window = tuple(map(count, _ranges("slice_update", x, starts, stops, steps)))
    target = Aval(window, x.dtype)
    if v.ndim > x.ndim or broadcast("slice_update", target, v) != window:
        raise ShapeError(
            f"slice_update: {v} does not fit the slice of {x}, which has shape {window}; reshape the value"
        )
    return Aval(x.shape, x.dtype)


def _update_eager(x: np.ndarray, v: np.ndarray, starts: Any, stops: Any, steps: Any) -> np.ndarray:
    out = np.array(x)
    out[slices_of(_ranges("slice_update", x.shape, starts, stops, steps))] = v
    return out


def _update_lower(s: Any, i: Index, x: Load, v: Load, starts: Shape, stops: Shape, steps: Shape) -> Scalar:
    inside, source = [], []
    for k, size, r in zip(i, x.shape, map(positions, starts, stops, steps), strict=True):
        if is_empty(r):
            return x(i)
        low, high, step = (r[0], r[-1], r.step) if r.step > 0 else (r[-1], r[0], -r.step)
        if not same(low, 0):
            inside.append(s.ge(k, low))
        if not same(high, size - 1):
            inside.append(s.le(k, high))
        offset = k if same(low, 0) else s.sub(k, low)
        if step > 1:
            inside.append(s.eq(s.mod(offset, step), 0))
            offset = s.floordiv(offset, step)
        source.append(s.sub(count(r) - 1, offset) if r.step < 0 else offset)
    condition = all_of(s, inside)
    if condition is None:
        return at(v, tuple(source))
    return s.masked(condition, lambda: at(v, tuple(source)), x(i))


def _zero_slice(g: Any, x_dtype: Any, starts: Any, stops: Any, steps: Any) -> Any:
    return slice_update(g, full(shape=(), value=0.0, dtype=x_dtype), starts=starts, stops=stops, steps=steps)


slice_update: Op = Op(
    "slice_update",
    "movement",
    public=False,
    inputs=("x", "v"),
    params={"starts": REQUIRED, "stops": REQUIRED, "steps": None},
    canon=lambda x, v, starts, stops, steps: _slice_canon("slice_update", x, starts, stops, steps),
    infer=_update_infer,
    eager=_update_eager,
    lower=_update_lower,
    vjp=(_zero_slice, lambda g, starts, stops, steps: slice(g, starts=starts, stops=stops, steps=steps)),
    memory_order="first",
    is_update=True,
    covers=("v",),
    axis_params={"starts": "each", "stops": "each", "steps": "each"},
    samples=cases(
        ([(5, 6), (3, 6)], {"starts": (1, 0), "stops": (4, 6)}),
        ([(5, 6), ()], {"starts": (4, 1), "stops": (-1, 6), "steps": (-2, 2)}),
        ([(7,), (3,)], {"starts": (6,), "stops": (-1,), "steps": (-3,)}),
        ([(3, 4), (4,)], {"starts": (0, 0), "stops": (3, 4)}),
        ([(3, 2), (0, 2)], {"starts": (0, 0), "stops": (0, 2)}),
        ([(), ()], {"starts": (), "stops": ()}),
    ),
    error_samples=lambda: (
        fails(ShapeError, "slice_update: f32[1,2] does not fit", (3,), (1, 2), starts=(0,), stops=(2,)),
        fails(ShapeError, "slice_update: shapes f32[2] and f32[3]", (3,), (3,), starts=(0,), stops=(2,)),
        fails(OutOfBoundsError, "slice_update: positions", (3,), (), starts=(2,), stops=(5,)),
    ),
    unify=(0, 1),
    doc="A copy of x whose slice (as in `slice`) is replaced by v, which broadcasts to it.",
)

# ---------------------------------------------------------------- pad, flip, concat


def _pad_widths(x: Aval, widths: Any) -> tuple[tuple[int, int], ...]:
    try:
        if isinstance(widths, int | np.integer):
            widths = ((widths, widths),) * x.ndim
        pairs = tuple((integer("pad", "width", a), integer("pad", "width", b)) for a, b in widths)
    except (TypeError, ValueError) as bad:
        if isinstance(bad, ArgumentError):
            raise
        raise ArgumentError(f"pad: widths must be a number or (before, after) pairs, got {widths!r}") from None
    if len(pairs) != x.ndim:
        raise ArgumentError(
            f"pad: {x} needs {x.ndim} pairs of widths, got {len(pairs)}: {pairs}; give one for each axis"
        )
    if any(w < 0 for pair in pairs for w in pair):
        raise ArgumentError(f"pad: widths cannot be negative, got {pairs}; slice to make an array smaller")
    return pairs


def _pad_canon(x: Aval, widths: Any, value: Any) -> dict[str, Any]:
    return {"widths": _pad_widths(x, widths), "value": _fill("pad", x, value)}


def _fill(name: str, x: Aval, value: Any) -> Number:
    fill: Any = value if x.dtype.kind == "c" and isinstance(value, complex) else number(name, "value", value)
    if x.dtype.kind in "iu" and not (math.isfinite(fill) and np.iinfo(x.dtype).min <= fill <= np.iinfo(x.dtype).max):
        raise DTypeError(f"{name}: {x} cannot hold the value {fill}; convert x with astype or use a value in its range")
    found: Number = x.dtype.type(fill).item()
    return found


def _pad_infer(x: Aval, widths: Any, value: Any) -> Aval:
    shape = tuple(n + before + after for n, (before, after) in zip(x.shape, _pad_widths(x, widths), strict=True))
    return Aval(shape, x.dtype)


def _pad_eager(x: np.ndarray, widths: Any, value: Any) -> np.ndarray:
    pairs = _pad_widths(Aval(x.shape, x.dtype), widths)
    out = np.full(tuple(n + a + b for n, (a, b) in zip(x.shape, pairs, strict=True)), value, x.dtype)
    out[tuple(builtins.slice(a, a + n) for n, (a, _) in zip(x.shape, pairs, strict=True))] = x
    return out


def _pad_lower(s: Any, i: Index, x: Load, widths: Sequence[tuple[int, int]], value: Number) -> Scalar:
    inside, source = [], []
    for k, n, (before, after) in zip(i, x.shape, widths, strict=True):
        if before:
            inside.append(s.ge(k, before))
        if after:
            inside.append(s.lt(k, before + n))
        source.append(s.bounded(s.sub(k, before) if before else k, n))
    condition = all_of(s, inside)
    return x(i) if condition is None else s.masked(condition, lambda: x(tuple(source)), s.const(value, x.dtype))


def _pad_vjp(g: Any, x_shape: Any, x_dtype: Any, widths: Any) -> Any:
    pairs = _pad_widths(Aval(x_shape, x_dtype), widths)
    return slice(
        g,
        starts=tuple(before for before, _ in pairs),
        stops=tuple(before + n for n, (before, _) in zip(x_shape, pairs, strict=True)),
    )


pad = Op(
    "pad",
    "movement",
    inputs=("x",),
    params={"widths": REQUIRED, "value": 0},
    canon=_pad_canon,
    infer=_pad_infer,
    eager=_pad_eager,
    lower=_pad_lower,
    vjp=(_pad_vjp,),
    covers=lambda widths, value: ("x",) if all(w >= 0 for pair in widths for w in pair) else (),
    axis_params={"widths": "each"},
    samples=cases(
        ([(3, 4)], {"widths": ((1, 2), (0, 3)), "value": 0.5}),
        ([(3,)], {"widths": 2}),
        ([(3, 4)], {"widths": ((0, 0), (0, 0))}),
        ([()], {"widths": ()}),
        values=[([(2, 0)], {"widths": ((0, 0), (1, 1)), "value": float("-inf")})],
        dtypes="f8 f4 c16",
    ),
    error_samples=lambda: (
        fails(ArgumentError, "pad: widths cannot be negative", (3,), widths=((-1, 0),)),
        fails(ArgumentError, "pad: f32[3,4] needs 2 pairs", (3, 4), widths=((1, 1),)),
        fails(ArgumentError, "pad: widths must be a number or", (3,), widths=(1, 1)),
        fails(DTypeError, "pad: i32[3] cannot hold the value", np.zeros(3, "i4"), widths=1, value=float("inf")),
    ),
    doc="x with `widths[k] = (before, after)` elements of `value` added around axis k; one number for all sides.",
)


@functools.lru_cache(maxsize=256)
def _reversed(ndim: int, axis: Any) -> tuple[Any, ...]:
    """The index that reverses axes."""
    axes = range(ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    chosen = {k % ndim for k in axes}
    return (*(builtins.slice(None, None, -1 if k in chosen else None) for k in range(ndim)), ...)


flip: Op = Op(
    "flip",
    "movement",
    inputs=("x",),
    params={"axis": None},
    canon=lambda x, axis: {"axis": axes_tuple("flip", axis, x)},
    infer=lambda x, axis: Aval(x.shape, x.dtype) if axes_tuple("flip", axis, x) is not None else x,
    eager=lambda x, axis: x[_reversed(x.ndim, axis)],
    lower=lambda s, i, x, axis: x(tuple(s.sub(x.shape[k] - 1, v) if k in axis else v for k, v in enumerate(i))),
    vjp=(lambda g, axis: flip(g, axis=axis),),
    is_view=True,
    covers=("x",),
    axis_params={"axis": "named"},
    samples=cases(
        ([(3, 4)], {"axis": 0}),
        ([(3, 4, 5)], {"axis": (0, -1)}),
        ([(17,)], {}),
        ([()], {}),
        ([(0, 3)], {"axis": 0}),
    ),
    error_samples=lambda: (
        fails(ShapeError, "flip: axis 2 does not exist in f32[3,4]", (3, 4), axis=2),
        fails(ShapeError, "flip: axis (0, 0) names an axis", (3, 4), axis=(0, 0)),
    ),
    method="flip",
    doc="The elements of `axis` (all axes without one) in reverse order.",
)


def _concat_infer(xs: Sequence[Aval], axis: Any) -> Aval:
    if not xs:
        raise ArgumentError("concat: needs at least one array, got none")
    first = xs[0]
    k = axis_index("concat", axis, first)
    for x in xs[1:]:
        if x.ndim != first.ndim or any(
            n != m for j, (n, m) in enumerate(zip(x.shape, first.shape, strict=True)) if j != k
        ):
            raise ShapeError(f"concat: {listing(xs)} differ outside of axis {k}; make the other sizes equal")
    return Aval((*first.shape[:k], sum(x.shape[k] for x in xs), *first.shape[k + 1 :]), first.dtype)


def _concat_lower(s: Any, i: Index, xs: Sequence[Load], axis: int) -> Scalar:
    def read(x: Load, start: int) -> Scalar:
        return x((*i[:axis], i[axis] if same(start, 0) else s.sub(i[axis], start), *i[axis + 1 :]))

    ends = list(accumulate(x.shape[axis] for x in xs))
    parts = [(x, end - x.shape[axis], end) for x, end in zip(xs, ends, strict=True) if not same(x.shape[axis], 0)]
    if len(parts) == 1:
        return read(*parts[0][:2])
    value = s.const(0, xs[0].dtype)
    for x, start, end in parts:
        inside = s.and_(s.ge(i[axis], start), s.lt(i[axis], end))
        value = s.masked(inside, partial(read, x, start), value)
    return value


def _concat_vjp(g: Any, k: int, xs_shapes: Sequence[Shape], axis: Any) -> Any:
    along = axis % len(xs_shapes[k])  # it has been checked
    begin = sum([shape[along] for shape in xs_shapes[:k]])
    starts = [0] * len(xs_shapes[k])
    stops = list(xs_shapes[k])
    starts[along], stops[along] = begin, begin + stops[along]
    return slice(g, starts=tuple(starts), stops=tuple(stops))


concat = Op(
    "concat",
    "movement",
    inputs=("xs",),
    params={"axis": 0},
    canon=lambda *xs, axis: {"axis": axis_index("concat", axis, xs[0]) if xs else axis},
    infer=_concat_infer,
    eager=lambda xs, axis: np.concatenate(xs, axis),
    lower=_concat_lower,
    vjp=(_concat_vjp,),
    memory_order="operands",
    covers=("xs",),
    axis_params={"axis": "named"},
    samples=cases(
        ([[(3, 4), (3, 2)]], {"axis": 1}),
        ([[(2, 3), (0, 3), (4, 3)]], {"axis": -2}),
        ([[(5,)]], {}),
        ([[(0, 2), (3, 2)]], {}),
        ([[(0,), (0,)]], {}),
    ),
    error_samples=lambda: (
        fails(ShapeError, "concat: f32[2,3] and f32[2,4] differ", [(2, 3), (2, 4)], axis=0),
        fails(ShapeError, "concat: f32[2] and f32[2,1] differ", [(2,), (2, 1)]),
        fails(ShapeError, "concat: axis 2 does not exist", [(2,), (2,)], axis=2),
    ),
    unify=(0,),
    variadic=True,
    doc="The arrays one after the other along `axis`; all other sizes must agree.",
)

ROWS = (reshape, permute_dims, broadcast_to, slice, slice_update, pad, flip, concat)
