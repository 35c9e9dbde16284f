"""Making tensors (`like=`), asking for shapes and dtypes, and changing shapes, with NumPy's parameters."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, DTypeError, ShapeError
from hybridml_compiler.sizes.values import at_hand

from ... import arrays as xp
from ...arrays.shaping.manipulation import _axis, _tensor
from ...core.aliasing import origin_of
from ...core.context import current_interpreter
from ...core.tensor import Tensor
from .table import implements, same

# -- made from nothing: `np.ones(3, like=t)`


def _shape(shape: Any) -> tuple[int, ...]:
    return (operator.index(shape),) if not isinstance(shape, tuple | list) else tuple(operator.index(n) for n in shape)


@implements(np.ones)
def ones(shape: Any, dtype: Any = None) -> Any:
    return xp.ones(_shape(shape), dtype=dtype)


@implements(np.zeros, np.empty)
def zeros(shape: Any, dtype: Any = None) -> Any:
    return xp.zeros(_shape(shape), dtype=dtype)


@implements(np.full)
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    value = fill_value if isinstance(fill_value, bool | int | float | complex) else _tensor(fill_value)
    return xp.full(_shape(shape), value, dtype=dtype)


def _like(name: str, a: Any, dtype: Any, shape: Any, *value: Any) -> Any:
    x = _tensor(a)
    return getattr(xp, name)(
        x.shape if shape is None else _shape(shape), *value, dtype=x.dtype if dtype is None else dtype
    )


@implements(np.ones_like)
def ones_like(a: Any, dtype: Any = None, shape: Any = None) -> Any:
    return _like("ones", a, dtype, shape)


@implements(np.zeros_like)
def zeros_like(a: Any, dtype: Any = None, shape: Any = None) -> Any:
    return _like("zeros", a, dtype, shape)


@implements(np.empty_like)
def empty_like(prototype: Any, /, dtype: Any = None, shape: Any = None) -> Any:
    return _like("zeros", prototype, dtype, shape)


@implements(np.full_like)
def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    return _like("full", a, dtype, shape, fill_value)


@implements(np.eye)
def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    return xp.eye(N, M, k=k, dtype=dtype)


@implements(np.identity)
def identity(n: int, dtype: Any = None) -> Any:
    return xp.eye(n, dtype=dtype)


@implements(np.tri)
def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    return xp.tri(N, M, k=k, dtype=dtype)


@implements(np.arange)
def arange(start_or_stop: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None) -> Any:
    return xp.arange(start_or_stop, stop, step, dtype=dtype)


@implements(np.array, np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray)
def array(a: Any, dtype: Any = None, *, copy: Any = None, ndmin: int = 0, ndmax: int = 0) -> Any:
    x = xp.asarray(a, dtype=dtype, copy=copy)
    return xp.reshape(x, (1,) * (ndmin - x.ndim) + x.shape) if x.ndim < ndmin else x


@implements(np.require)
def require(a: Any, dtype: Any = None, requirements: Any = None) -> Any:
    return xp.asarray(a, dtype=dtype)


@implements(np.copy)
def copy(a: Any) -> Any:
    return _tensor(a).clone()


@implements(np.fromfunction)
def fromfunction(function: Any, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    lines = [xp.arange(n, dtype=dtype) for n in shape]
    return function(*xp.meshgrid(*lines, indexing="ij"), **kwargs)


def _read(function: Any) -> Any:
    def read(*args: Any, **kwargs: Any) -> Tensor:
        return xp.asarray(function(*args, **kwargs))

    read.__name__ = function.__name__

    return read


for _function in (np.frombuffer, np.fromfile, np.fromiter, np.fromstring, np.loadtxt, np.genfromtxt):
    implements(_function)(_read(_function))


# -- sequences between two ends, which may be tensors


@implements(np.linspace)
def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0
) -> Any:
    """Evenly spaced numbers between two tensors, elementwise, along a new axis."""
    start, stop = _real(start), _real(stop)
    n = num - 1 if endpoint else num
    apart = stop - start
    steps = xp.reshape(xp.arange(num, dtype=apart.dtype), (num,) + (1,) * apart.ndim)
    step = apart / n if n > 0 else apart * xp.nan
    out = start + (steps * step if n > 0 else steps)
    if endpoint and num > 1:
        out = xp.concat([out[:-1], xp.expand_dims(xp.broadcast_to(stop, out.shape[1:]), axis=0)], axis=0)
    out = xp.moveaxis(out, 0, axis)
    if dtype is not None:
        out = xp.astype(xp.floor(out) if np.dtype(dtype).kind in "iu" else out, dtype)
    return (out, step) if retstep else out


def _real(x: Any) -> Tensor:
    x = _tensor(x)
    return x if x.dtype.kind in "fcV" else xp.astype(x, xp.get_default_dtype())


@implements(np.logspace)
def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Any:
    powers = linspace(start, stop, num, endpoint, axis=axis)
    if not isinstance(base, int | float):
        base = xp.expand_dims(_real(base), axis=axis) if _tensor(base).ndim else _real(base)
    out = xp.pow(xp.full((), float(base), dtype=powers.dtype) if isinstance(base, int | float) else base, powers)
    return out if dtype is None else xp.astype(out, dtype)


@implements(np.geomspace)
def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    start, stop = _real(start), _real(stop)
    signs = xp.sign(start)
    powers = linspace(xp.log10(start * signs), xp.log10(stop * signs), num, endpoint, axis=0)
    out = xp.pow(xp.full((), 10.0, dtype=powers.dtype), powers)
    if num > 0:
        out = xp.concat([xp.expand_dims(xp.broadcast_to(start * signs, out.shape[1:]), axis=0), out[1:]], axis=0)
    if endpoint and num > 1:
        out = xp.concat([out[:-1], xp.expand_dims(xp.broadcast_to(stop * signs, out.shape[1:]), axis=0)], axis=0)
    out = xp.moveaxis(signs * out, 0, axis)
    return out if dtype is None else xp.astype(out, dtype)


# -- what it is


@implements(np.shape)
def shape(a: Any) -> tuple[int, ...]:
    return _tensor(a).shape


@implements(np.ndim)
def ndim(a: Any) -> int:
    return _tensor(a).ndim


@implements(np.size)
def size(a: Any, axis: Any = None) -> int:
    x = _tensor(a)
    if axis is None:
        return x.numel()
    return int(np.prod([x.shape[k] for k in (axis if isinstance(axis, tuple) else (axis,))]))


@implements(np.can_cast)
def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    source, target = (x.dtype if isinstance(x, Tensor) else x for x in (from_, to))
    return np.can_cast(source, target, casting)


@implements(np.common_type)
def common_type(*arrays: Any) -> type:
    return np.common_type(*(np.empty(0, _tensor(x).dtype) for x in arrays))


@implements(np.min_scalar_type)
def min_scalar_type(a: Any, /) -> np.dtype:
    x = _tensor(a)
    return np.min_scalar_type(x.item()) if x.ndim == 0 else x.dtype


def _memories(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray]:
    """Arrays that share memory where the values do. What is traced has none: views of one tensor are those of one
    array of its shape.
    """
    owners: dict[int, np.ndarray] = {}
    return _memory(a, owners), _memory(b, owners)


def _memory(x: Any, owners: dict[int, np.ndarray]) -> np.ndarray:
    if not isinstance(x, Tensor) or current_interpreter() is None:
        return x._array if isinstance(x, Tensor) else np.asarray(x)
    view = origin_of(x)
    if view is None:
        return owners.setdefault(id(x), np.empty(at_hand(tuple(x.shape)), x.dtype))
    parent, op, params = view
    found: np.ndarray = op.eager(_memory(parent, owners), **{name: at_hand(value) for name, value in params.items()})
    return found


@implements(np.may_share_memory)
def may_share_memory(a: Any, b: Any, /) -> bool:
    return np.may_share_memory(*_memories(a, b))


@implements(np.shares_memory)
def shares_memory(a: Any, b: Any, /) -> bool:
    return np.shares_memory(*_memories(a, b))


@implements(np.iscomplexobj)
def iscomplexobj(x: Any) -> bool:
    return _tensor(x).dtype.kind == "c"


@implements(np.isrealobj)
def isrealobj(x: Any) -> bool:
    return _tensor(x).dtype.kind != "c"


# -- parts of complex numbers


@implements(np.real)
def real(val: Any) -> Any:
    x = _tensor(val)
    return xp.real(x) if x.dtype.kind == "c" else x


@implements(np.imag)
def imag(val: Any) -> Any:
    x = _tensor(val)
    return xp.imag(x) if x.dtype.kind == "c" else xp.zeros_like(x)


@implements(np.angle)
def angle(z: Any, deg: bool = False) -> Any:
    out = xp.angle(_tensor(z))
    return xp.rad2deg(out) if deg else out


@implements(np.iscomplex)
def iscomplex(x: Any) -> Any:
    return xp.not_equal(imag(x), 0)


@implements(np.isreal)
def isreal(x: Any) -> Any:
    return xp.equal(imag(x), 0)


@implements(np.real_if_close)
def real_if_close(a: Any, tol: float = 100) -> Any:
    x = _tensor(a)
    if x.dtype.kind != "c":
        return x
    most = tol * float(np.finfo(x.dtype).eps) if tol > 1 else tol
    return xp.real(x) if bool(xp.all(xp.abs(xp.imag(x)) < most)) else x


# -- the same elements in another shape


@implements(np.reshape)
def reshape(a: Any, /, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    x = _tensor(a)
    wanted = _shape(shape)
    out = x.reshape(wanted, order=order)
    return out.clone() if copy else out


@implements(np.ravel)
def ravel(a: Any, order: str = "C") -> Any:
    return _tensor(a).ravel(order)


@implements(np.transpose)
def transpose(a: Any, axes: Any = None) -> Any:
    x = _tensor(a)
    order = range(x.ndim)[::-1] if axes is None else [_axis("np.transpose", k, x.ndim, x) for k in axes]
    return xp.permute_dims(x, tuple(order))


@implements(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    return xp.moveaxis(_tensor(a), source, destination)


@implements(np.rollaxis)
def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    x = _tensor(a)
    axis = _axis("np.rollaxis", axis, x.ndim, x)
    start = start + x.ndim if start < 0 else start
    if not 0 <= start <= x.ndim:
        raise ShapeError(f"np.rollaxis: start {start} is not one of 0..{x.ndim}")
    return xp.moveaxis(x, axis, start - 1 if axis < start else start)


@implements(np.swapaxes)
def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    return xp.swapaxes(_tensor(a), axis1, axis2)


@implements(np.expand_dims)
def expand_dims(a: Any, axis: Any) -> Any:
    return xp.expand_dims(_tensor(a), axis=axis)


@implements(np.squeeze)
def squeeze(a: Any, axis: Any = None) -> Any:
    return xp.squeeze(_tensor(a), axis=axis)


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any) -> Any:
    return xp.broadcast_to(_tensor(array), _shape(shape))


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any) -> tuple[Any, ...]:
    found = [_tensor_or_objects(x) for x in args]
    shape = xp.broadcast_shapes(*(x.shape for x in found))
    return tuple(np.broadcast_to(x, shape) if isinstance(x, np.ndarray) else xp.broadcast_to(x, shape) for x in found)


def _tensor_or_objects(x: Any) -> Any:
    """The tensor of numbers; an array of NumPy's of what is none (None, a text), as matplotlib passes them together."""
    try:
        return _tensor(x)
    except DTypeError:
        return np.asarray(x)


@implements(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Any, ...]:
    lines = [xp.ravel(_tensor(x)) for x in xi]
    if not sparse:
        return tuple(xp.meshgrid(*lines, indexing=indexing))
    places = list(range(len(lines)))
    if indexing == "xy" and len(lines) > 1:
        places[:2] = [1, 0]
    return tuple(
        xp.reshape(x, tuple(x.size if k == at else 1 for k in range(len(lines))))
        for x, at in zip(lines, places, strict=True)
    )


@implements(np.flip)
def flip(m: Any, axis: Any = None) -> Any:
    return xp.flip(_tensor(m), axis=axis)


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    x = _tensor(a)
    if isinstance(axis, tuple) and isinstance(shift, tuple) and len(shift) == 1:
        shift = shift * len(axis)
    if isinstance(axis, int) and isinstance(shift, tuple):  # one axis, rolled several times
        shift = sum(shift)
    return xp.roll(x, shift, axis=axis)


@implements(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(x: Any, window_shape: Any, axis: Any = None, *, writeable: bool = False) -> Any:
    x, window = _tensor(x), _shape(window_shape)
    if axis is None and len(window) != x.ndim:
        raise ShapeError(f"np.lib.stride_tricks.sliding_window_view: {len(window)} sizes for {x.ndim} axes; give axis=")
    if writeable:
        raise ArgumentError("np.lib.stride_tricks.sliding_window_view: writeable=True is not supported on tensors")
    axes = None if axis is None else (axis,) if isinstance(axis, int) else tuple(axis)
    return xp.windows(x, size=window, axes=axes)


def _indices_of(name: str) -> Any:
    def indices(arr: Any, k: int = 0) -> tuple[Tensor, ...]:
        shape: Sequence[int] = _tensor(arr).shape
        if len(shape) != 2:
            raise ShapeError(f"np.{name}_from: needs a matrix, got shape {tuple(shape)}")
        return getattr(xp, name)(shape[0], k, shape[1])

    return indices


for _name in ("tril_indices", "triu_indices"):
    implements(getattr(np, f"{_name}_from"))(_indices_of(_name))


@implements(np.diag_indices_from)
def diag_indices_from(arr: Any) -> tuple[Tensor, ...]:
    x = _tensor(arr)
    if x.ndim < 2 or len(set(x.shape)) != 1:
        raise ShapeError(f"np.diag_indices_from: needs at least 2 axes of one length, got shape {x.shape}")
    return (xp.arange(x.shape[0], dtype=xp.int64),) * x.ndim


same(np, "astype result_type tril triu fliplr flipud rot90 diag diagflat diagonal vander matrix_transpose unstack")
same(np, "atleast_1d atleast_2d atleast_3d")
