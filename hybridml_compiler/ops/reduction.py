"""Reductions over one, several or all axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..aval import Aval
from ..errors import ArgumentError, DTypeError, ShapeError
from ..sizes.dims import is_dim, same
from . import movement
from .creation import full
from .elementwise import maximum, where
from .indexing import Index, Load, Scalar
from .op import REQUIRED, Op, Sample
from .samples import Case, Samples, cases, fails
from .shapes import Shape, axes_tuple, axis_index, reduced

# Every reduction runs on these: last, first, several and all axes, sizes 1 and 0, kept and dropped.
_CASES: tuple[Case, ...] = (
    ([(3, 17)], {"axis": -1}),
    ([(17, 3)], {"axis": 0, "keepdims": True}),
    ([(2, 3, 4)], {"axis": (0, 2)}),
    ([(2, 3, 4)], {}),
    ([()], {}),
    ([(3, 1)], {"axis": (1,)}),
    ([(0, 3)], {"axis": 1}),
)
_ZEROS = np.array([[2.0, 3.0, 5.0], [0.0, 2.0, 3.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])  # of products
_COMPLEX: Case = ([np.array([[1 + 2j, 0.5, -3j], [0, complex(-0.0, -0.0), 1 - 1j]])], {"axis": 0})
_EMPTY: Case = ([(2, 0, 3)], {"axis": 1})


def _samples(*more: Case, values: Sequence[Case] = (), dtypes: str = "f8 f4 i8 i4 u1 ?") -> Samples:
    return cases(*_CASES, *more, values=values, domain=(0.5, 2.0), dtypes=dtypes)


def accumulator(dtype: np.dtype) -> np.dtype:
    """dtype of a sum: floats keep theirs (sums run over a tree), integers and bool get 64 bits."""
    if dtype.kind in "fc":
        return dtype
    return dtypes.uint64 if dtype.kind == "u" else dtypes.int64


def _sum_dtype(x: Aval, dtype: Any) -> np.dtype:
    wanted = accumulator(x.dtype) if dtype is None else dtypes.canonical(dtype)
    if x.dtype.kind == "c" and wanted.kind not in "cb":
        raise DTypeError(f"a sum or product of {x} has no value in {wanted.name}; take its real part first")
    return wanted


def kept(g: Any, x_shape: Shape, axis: Any) -> Any:
    """A reduced tensor shaped so that it broadcasts against the operand of its reduction."""
    if not g.shape or len(g.shape) == len(x_shape):
        return g
    axes = axis if type(axis) is tuple else axes_tuple("reduction", axis, x_shape)  # a tuple has been checked
    return g.reshape(shape=reduced(x_shape, axes, True))


def reduce_at(
    s: Any, op: str, i: Index, x: Load, axes: Shape, keepdims: bool, read: Callable[[Index], Scalar]
) -> Scalar:
    """`read` combined over `axes` of x at output index i."""
    free = [k for k in range(len(x.shape)) if k not in axes]
    place = dict(zip(free, [i[k] for k in free] if keepdims else i, strict=True))

    def body(r: Index) -> Scalar:
        full = {**place, **dict(zip(axes, r, strict=True))}
        return read(tuple(full[k] for k in range(len(x.shape))))

    return s.reduce(op, tuple(x.shape[k] for k in axes), body)


def _infer(name: str, x: Aval, axis: Any, keepdims: bool, dtype: np.dtype) -> Aval:
    return Aval(reduced(x.shape, axes_tuple(name, axis, x), bool(keepdims)), dtype)


def _canon(name: str, x: Aval, axis: Any, keepdims: Any) -> dict[str, Any]:
    return {"axis": axes_tuple(name, axis, x), "keepdims": bool(keepdims)}


def _bad_axes(name: str) -> Callable[[], Any]:
    return lambda: (
        fails(ShapeError, f"{name}: axis 2 does not exist in f32[2,3]", (2, 3), axis=2),
        fails(ShapeError, f"{name}: axis (0, -2) names an axis of f32[2,3] twice", (2, 3), axis=(0, -2)),
        fails(ArgumentError, f"{name}: axis must be an integer", (2, 3), axis=0.5),
    )


# ---------------------------------------------------------------- sum, prod


def _by_parts(
    s: Any, op: str, i: Index, x: Load, axis: Shape, keepdims: bool, element: Callable[[Index], Scalar], dtype: np.dtype
) -> Scalar:
    """`reduce_at`, of complex elements part by part; a sum is never -0, as NumPy's."""
    if dtype.kind != "c":
        return reduce_at(s, op, i, x, axis, keepdims, element)
    parts = ((lambda j, part=part: part(element(j))) for part in (s.real, s.imag))
    sums = (reduce_at(s, op, i, x, axis, keepdims, part) for part in parts)
    return s.pair(*(s.add(part, s.const(0, s.dtype(part))) for part in sums))


def _accumulation(name: str, ufunc: Any, op: str, vjp: Any, doc: str) -> Op:
    reduce = ufunc.reduce  # by position: keywords are slow

    def eager(x: np.ndarray, axis: Any, keepdims: bool, dtype: Any) -> Any:
        return reduce(x, axis, accumulator(x.dtype) if dtype is None else dtype, None, keepdims)

    def lower(s: Any, i: Index, x: Load, axis: Shape, keepdims: bool, dtype: np.dtype) -> Scalar:
        if dtype.kind == "b":  # addition and multiplication of bools are logic
            op_of_bool = "or" if op == "add" else "and"
            return reduce_at(s, op_of_bool, i, x, axis, keepdims, lambda j: s.ne(x(j), s.const(0, x.dtype)))
        return _by_parts(s, op, i, x, axis, keepdims, lambda j: s.cast(x(j), dtype), dtype)

    made = Op(
        name,
        "reduction",
        inputs=("x",),
        params={"axis": None, "keepdims": False, "dtype": None},
        canon=lambda x, axis, keepdims, dtype: {**_canon(name, x, axis, keepdims), "dtype": _sum_dtype(x, dtype)},
        infer=lambda x, axis, keepdims, dtype: _infer(name, x, axis, keepdims, _sum_dtype(x, dtype)),
        eager=eager,
        lower=lower,
        vjp=(vjp,),
        samples=_samples(
            _EMPTY,
            ([(3, 4)], {"axis": 0, "dtype": "float64"}),
            ([(3, 4)], {"axis": 1, "dtype": "bool"}),
            ([_ZEROS], {"axis": 1}),
            _COMPLEX,
        ),
        error_samples=_bad_axes(name),
        combine=op,
        reorders="sum" if op == "add" else "product",
        complex_kernels=op == "add",
        over_mask=lambda x, mask, axis, dtype=None: made(
            _filled(x, mask, -0.0 if op == "add" else 1), axis=axis, dtype=dtype
        ),
        method=name,
        doc=doc,
    )
    return made


def _filled(x: Any, mask: Any, fill: float) -> Any:
    """The elements where a mask is true, elsewhere a number that changes no result."""
    return where(mask, x, fill if dtypes.is_inexact(x.dtype) else bool(fill))


def _sum_vjp(g: Any, x_shape: Shape, x_dtype: Any, axis: Any) -> Any:
    return _in_dtype(kept(g, x_shape, axis), x_dtype).broadcast_to(shape=x_shape)


def _in_dtype(g: Any, dtype: Any) -> Any:
    """A cotangent in the dtype of the input: of a real one the real part."""
    if g.dtype is dtype:
        return g
    return (g if dtype.kind == "c" else g.real).astype(dtype=dtype)


def _others(x: Any, axes: Shape) -> Any:
    """The product of all other elements along `axes` for each element, without dividing, so zeros are exact.

    Exclusive prefix times exclusive suffix; each by doubling (Hillis and Steele, 1986) in log2(n) steps.
    """
    shape = tuple(x.shape)
    order = (*(k for k in range(len(shape)) if k not in axes), *axes)
    lead = tuple(shape[k] for k in order[: len(shape) - len(axes)])
    n = math.prod(shape[k] for k in axes)
    flat = x.permute_dims(axes=order).reshape(shape=(*lead, n))

    def shifted(t: Any, by: int) -> Any:
        widths = ((0, 0),) * len(lead) + ((by, 0),)
        return movement.slice(movement.pad(t, widths=widths, value=1), starts=(0,) * len(widths), stops=(*lead, n))

    def before(t: Any) -> Any:
        t, by = shifted(t, 1), 1
        while by < n:
            t, by = t * shifted(t, by), by * 2
        return t

    others = before(flat) * before(flat.flip(axis=-1)).flip(axis=-1)
    return others.reshape(shape=tuple(shape[k] for k in order)).permute_dims(axes=movement.inverse(order))


def _prod_vjp(g: Any, x: Any, x_dtype: Any, axis: Any) -> Any:
    axes = axes_tuple("prod", axis, tuple(x.shape))
    return _in_dtype(kept(g, tuple(x.shape), axes), x_dtype) * _others(x, axes)


sum_ = _accumulation(
    "sum",
    np.add,
    "add",
    _sum_vjp,
    "Sum over `axis`. Integers and bool are summed in 64 bits, floats in their own dtype or the one asked for; "
    "an empty sum is 0.",
)
prod = _accumulation(
    "prod",
    np.multiply,
    "mul",
    _prod_vjp,
    "Product over `axis`, dtypes as `sum`; an empty product is 1. The gradient is the product of the other elements, "
    "never out / x, so zeros have the true one.",
)

# ---------------------------------------------------------------- extremes


def _check_not_empty(name: str, x: Aval, axes: Shape) -> None:
    if any(x.shape[k] == 0 for k in axes):
        raise ShapeError(f"{name}: no elements to choose from: axis {axes} of {x} is empty; check the size first")


def _extreme(name: str, ufunc: Any, last: float) -> Op:
    def infer(x: Aval, axis: Any, keepdims: bool) -> Aval:
        _check_not_empty(name, x, axes_tuple(name, axis, x))
        return _infer(name, x, axis, keepdims, x.dtype)

    def vjp(g: Any, out: Any, x: Any, x_shape: Shape, axis: Any) -> Any:
        ties = x == kept(out, x_shape, axis)
        share = kept(g, x_shape, axis) / ties.sum(axis=axis, keepdims=True).astype(dtype=g.dtype)
        return ties.astype(dtype=g.dtype) * share

    made = Op(
        name,
        "reduction",
        inputs=("x",),
        params={"axis": None, "keepdims": False},
        canon=lambda x, axis, keepdims: _canon(name, x, axis, keepdims),
        infer=infer,
        eager=lambda x, axis, keepdims: ufunc.reduce(x, axis=axis, keepdims=keepdims),
        lower=lambda s, i, x, axis, keepdims: reduce_at(s, name, i, x, axis, keepdims, x),
        vjp=(vjp,),
        samples=_samples(values=[([np.array([1.0, np.nan, 3.0])], {})]),
        error_samples=lambda: (*_bad_axes(name)(), fails(ShapeError, f"{name}: no elements", (2, 0), axis=1)),
        accepts="ordered",
        combine=name,
        over_mask=lambda x, mask, axis: _extreme_over_mask(made, last, x, mask, axis),
        method=name,
        doc=f"The {name}imum over `axis`; nan if any element is nan. Equal extremes share the gradient evenly "
        "(a single choice would depend on the order of a parallel reduction).",
    )
    return made


def _extreme_over_mask(op: Op, last: float, x: Any, mask: Any, axis: Shape) -> Any:
    """The extreme of some elements; the others are filled with `last`, an infinity. Where that is the extreme, all of
    them are equal, and it is taken from their mean, whose gradient is theirs alone."""
    if x.dtype.kind == "b":
        return op(where(mask, x, last > 0), axis=axis)
    if not dtypes.is_inexact(x.dtype):
        return op(where(mask, x, int(np.iinfo(x.dtype).max if last > 0 else np.iinfo(x.dtype).min)), axis=axis)
    found = op(where(mask, x, last), axis=axis)
    return where(found == last, _mean_over_mask(x, mask, axis), found)


max_ = _extreme("max", np.maximum, -math.inf)
min_ = _extreme("min", np.minimum, math.inf)


def _position(name: str, numpy_function: Any) -> Op:
    def axes(x: Aval, axis: Any) -> Shape:
        found = axes_tuple(name, None if axis is None else axis_index(name, axis, x), x)
        _check_not_empty(name, x, found)
        return found

    def canon(x: Aval, axis: Any, keepdims: Any) -> dict[str, Any]:
        return {"axis": None if axis is None else axis_index(name, axis, x), "keepdims": bool(keepdims)}

    def lower(s: Any, i: Index, x: Load, axis: int | None, keepdims: bool) -> Scalar:
        along = tuple(range(len(x.shape))) if axis is None else (axis,)
        return reduce_at(s, name, i, x, along, keepdims, x)

    return Op(
        name,
        "reduction",
        inputs=("x",),
        params={"axis": None, "keepdims": False},
        canon=canon,
        infer=lambda x, axis, keepdims: Aval(reduced(x.shape, axes(x, axis), bool(keepdims)), dtypes.int64),
        eager=lambda x, axis, keepdims: numpy_function(x, axis=axis, keepdims=keepdims),
        lower=lower,
        vjp=(None,),
        samples=cases(
            ([(3, 17)], {"axis": -1}),
            ([(5, 3)], {"axis": 0, "keepdims": True}),
            ([(2, 3, 4)], {}),
            ([()], {}),
            ([np.array([[2.0, 7.0, 7.0], [1.0, np.nan, np.nan]])], {"axis": 1}),
            dtypes="f8 f4 i8 u1 ?",
        ),
        error_samples=lambda: (
            fails(ShapeError, f"{name}: axis 2 does not exist in f32[2,3]", (2, 3), axis=2),
            fails(ShapeError, f"{name}: no elements", (0,)),
        ),
        accepts="ordered",
        combine=name,
        decided_by="axis",
        method=name,
        doc=f"int64 position of the {name[3:]}imum along `axis` (without one, in the flattened array): the first "
        "of equal ones, or of the nans if there are any.",
    )


argmax = _position("argmax", np.argmax)
argmin = _position("argmin", np.argmin)

# ---------------------------------------------------------------- mean, var


_add_reduce: Callable[..., Any] = np.add.reduce


def _count(x_shape: Shape, axis: Any) -> int:
    return math.prod([x_shape[k] for k in (axis if type(axis) is tuple else axes_tuple("mean", axis, x_shape))])


def _over(n: Any, less: float, dtype: Any) -> Any:
    """1 / (n - less) for a rule, with the limit of an empty mean."""
    if is_dim(n):
        return (1.0 / (full(shape=(), value=n, dtype=dtypes.float64) - less)).astype(dtype=dtype)
    n -= less
    return 1.0 / n if n > 0 else math.nan


def _mean_eager(x: np.ndarray, axis: Any, keepdims: bool) -> Any:
    # np.mean would warn about an empty mean; the dtype keeps a Python int from deciding
    total = _add_reduce(x, axis, None, None, keepdims)
    return total / x.dtype.type(x.size // (total.size or 1))


def _mean_lower(s: Any, i: Index, x: Load, axis: Shape, keepdims: bool) -> Scalar:
    total = _by_parts(s, "add", i, x, axis, keepdims, x, x.dtype)
    return s.div(total, s.const(_count(x.shape, axis), x.dtype))


def _chosen(x: Any, mask: Any, axis: Shape) -> Any:
    """The number of elements over `axis` where a mask is true."""
    lead = len(x.shape) - len(mask.shape)
    others = [x.shape[k] for k in axis if k < lead or same(mask.shape[k - lead], 1)]
    return mask.sum() * math.prod(others) if others else mask.sum()


def _over_mask(x: Any) -> tuple[Any, Any]:
    """Elements as a mean computes with them, and the dtype of that."""
    dtype = x.dtype if dtypes.is_inexact(x.dtype) else dtypes.default_float()
    return x.astype(dtype=dtypes.float32 if dtypes.is_narrow(dtype) else dtype), dtype


def _mean_over_mask(x: Any, mask: Any, axis: Shape) -> Any:
    x, dtype = _over_mask(x)
    total = sum_(_filled(x, mask, -0.0), axis=axis)
    return (total / _chosen(x, mask, axis).astype(dtype=x.dtype)).astype(dtype=dtype)


mean = Op(
    "mean",
    "reduction",
    inputs=("x",),
    params={"axis": None, "keepdims": False},
    canon=lambda x, axis, keepdims: _canon("mean", x, axis, keepdims),
    infer=lambda x, axis, keepdims: _infer("mean", x, axis, keepdims, x.dtype),
    eager=_mean_eager,
    lower=_mean_lower,
    vjp=(
        lambda g, x_shape, axis: (kept(g, x_shape, axis) * _over(_count(x_shape, axis), 0, g.dtype)).broadcast_to(
            shape=x_shape
        ),
    ),
    reorders="sum",
    complex_kernels=True,
    over_mask=_mean_over_mask,
    samples=_samples(_COMPLEX, values=[_EMPTY], dtypes="f8 f4"),
    error_samples=_bad_axes("mean"),
    accepts="inexact",
    method="mean",
    doc="Arithmetic mean over `axis`: sum / count. Integers become the default float; an empty mean is nan.",
)


def _var_eager(x: np.ndarray, axis: Any, correction: float, keepdims: bool) -> Any:
    centred = x - _mean_eager(x, axis, True)
    total = _add_reduce(centred * centred, axis=axis, keepdims=keepdims)
    return np.true_divide(total, x.dtype.type(max(0.0, _count(x.shape, axis) - correction)))


def _var_lower(s: Any, i: Index, x: Load, axis: Shape, correction: float, keepdims: bool) -> Scalar:
    average = _mean_lower(s, i, x, axis, keepdims)

    def squared(j: Index) -> Scalar:
        centred = s.sub(x(j), average)
        return s.mul(centred, centred)

    total = reduce_at(s, "add", i, x, axis, keepdims, squared)
    count = _count(x.shape, axis)
    if not is_dim(count):
        return s.div(total, s.const(max(0.0, count - correction), x.dtype))
    left = s.sub(s.const(count, dtypes.float64), s.const(correction, dtypes.float64))
    return s.div(total, s.cast(s.maximum(left, s.const(0.0, dtypes.float64)), x.dtype))


def _var_vjp(g: Any, x: Any, x_shape: Shape, axis: Any, correction: float) -> Any:
    scale = 2.0 * _over(_count(x_shape, axis), correction, g.dtype)
    return kept(g, x_shape, axis) * scale * (x - x.mean(axis=axis, keepdims=True))


def _var_over_mask(x: Any, mask: Any, axis: Shape, correction: float) -> Any:
    x, dtype = _over_mask(x)
    count = _chosen(x, mask, axis).astype(dtype=x.dtype)
    mean = kept(sum_(_filled(x, mask, -0.0), axis=axis) / count, tuple(x.shape), axis)
    centred = where(mask, x, mean) - mean
    total = sum_(where(mask, centred * centred, 0.0), axis=axis)
    return (total / maximum(count - correction, 0.0)).astype(dtype=dtype)


var = Op(
    "var",
    "reduction",
    inputs=("x",),
    params={"axis": None, "correction": 0.0, "keepdims": False},
    canon=lambda x, axis, correction, keepdims: {**_canon("var", x, axis, keepdims), "correction": float(correction)},
    infer=lambda x, axis, correction, keepdims: _infer("var", x, axis, keepdims, x.dtype),
    eager=_var_eager,
    lower=_var_lower,
    vjp=(_var_vjp,),
    reorders="squares",
    over_mask=lambda x, mask, axis, correction=0.0: _var_over_mask(x, mask, axis, correction),
    samples=_samples(([(3, 5)], {"axis": 1, "correction": 1}), dtypes="f8 f4"),
    error_samples=_bad_axes("var"),
    accepts="float",
    method="var",
    doc="Variance over `axis` in two passes (one pass cancels), divided by max(0, count - correction): correction 0 as "
    "NumPy and JAX, 1 for the sample variance, PyTorch's default.",
)

# ---------------------------------------------------------------- any, all


def _quantifier(name: str, ufunc: Any, op: str, doc: str) -> Op:
    made = Op(
        name,
        "reduction",
        inputs=("x",),
        params={"axis": None, "keepdims": False},
        canon=lambda x, axis, keepdims: _canon(name, x, axis, keepdims),
        infer=lambda x, axis, keepdims: _infer(name, x, axis, keepdims, dtypes.bool_),
        eager=lambda x, axis, keepdims: ufunc.reduce(x, axis=axis, keepdims=keepdims, dtype=bool),
        lower=lambda s, i, x, axis, keepdims: reduce_at(
            s, op, i, x, axis, keepdims, x if x.dtype.kind == "b" else lambda j: s.ne(x(j), s.const(0, x.dtype))
        ),
        vjp=(None,),
        samples=_samples(_EMPTY, _COMPLEX, dtypes="? f4 i8"),
        error_samples=_bad_axes(name),
        combine=op,
        over_mask=lambda x, mask, axis: made(_filled(x, mask, op == "and"), axis=axis),
        method=name,
        doc=doc,
    )
    return made


any_ = _quantifier("any", np.logical_or, "or", "Is any element over `axis` true (not 0)? False for none.")
all_ = _quantifier("all", np.logical_and, "and", "Are all elements over `axis` true (not 0)? True for none.")


def _some(found: np.ndarray, text: str) -> np.ndarray:
    if not found.all():
        raise ShapeError(text)
    return found


some = Op(
    "some",
    "opaque",
    public=False,
    inputs=("found",),
    params={"text": REQUIRED},
    infer=lambda found, text: Aval(found.shape, dtypes.bool_),
    fails=True,
    eager=_some,
    vjp=(None,),
    samples=lambda rng: (Sample((np.array(True),), {"text": "no elements"}, grad=False),),
    error_samples=lambda: (fails(ShapeError, "some: no elements", np.array(False), text="some: no elements"),),
    accepts="bool",
    doc="`found`, which is true; ShapeError with the `text` where it is not.",
)

ROWS = (sum_, prod, max_, min_, argmax, argmin, mean, var, any_, all_, some)
