"""Shape functions that are compositions of rows: squeeze, expand_dims, stack, split, moveaxis, ..."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, AxisError, ShapeError
from hybridml_compiler.ops.shapes import broadcast
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.steps import is_one
from hybridml_compiler.sizes.values import has_dims

from ...core.device_tensor import transfer
from ...core.interpreter import interpreter_stack
from ...core.library import compiled_when_repeated, compiled_when_small
from ...core.tensor import Device, Tensor
from ..creation import asarray

_reshape, _permute, _concat, _broadcast = (OPS[name] for name in ("reshape", "permute_dims", "concat", "broadcast_to"))


def _tensor(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else asarray(x)


def _axis(name: str, axis: int, ndim: int, x: Tensor) -> int:
    if not -ndim <= axis < ndim:
        raise AxisError(f"{name}: axis {axis} does not exist in {Aval(x.shape, x.dtype)}; use {-ndim} to {ndim - 1}")
    return axis % ndim


def reshape(x: Tensor, /, shape: Any, *, copy: bool | None = None) -> Tensor:
    """The elements of x, in row-major order, in another shape; one size may be -1, which is what is left.

    `copy=True` always copies, `copy=False` never does: ArgumentError where the memory does not allow it. Without it the
    result shares the memory of x where that is possible. Raises ShapeError for a shape of another size.

    >>> import hybridml as hm
    >>> hm.reshape(hm.arange(6), (2, -1)).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    out: Tensor = _reshape.fn(x, shape)
    if copy is None:
        return out
    if copy:
        return out.clone()
    a, b = _tensor(x)._array, out._array
    if type(a) is np.ndarray and type(b) is np.ndarray and a.size and not np.may_share_memory(a, b):
        raise ArgumentError(f"reshape: copy=False, but {x.shape} with strides {a.strides} has no view of shape {shape}")
    return out


def concat(arrays: Sequence[Tensor], /, axis: int | None = 0) -> Tensor:
    """Tensors one after the other along an axis (flattened ones with `axis=None`); all other sizes must agree.

    Dtypes are promoted. Raises ShapeError where sizes differ.

    >>> import hybridml as hm
    >>> hm.concat([hm.ones((1, 2)), hm.zeros((2, 2))]).shape
    (3, 2)
    >>> hm.concat([hm.arange(2), hm.arange(3)], axis=None).tolist()
    [0, 1, 0, 1, 2]
    """
    if axis is None:
        arrays, axis = [_reshape.fn(x, (-1,)) if _tensor(x).size else _reshape.fn(x, (0,)) for x in arrays], 0
    out: Tensor = _concat.fn(arrays, axis)
    return out


def expand_dims(x: Tensor, /, axis: int | Sequence[int] = 0) -> Tensor:
    """x with axes of size 1 at the given places of the result.

    Raises AxisError, an IndexError, for a place that is not there, ShapeError for one named twice.

    >>> import hybridml as hm
    >>> hm.expand_dims(hm.ones((3,)), axis=-1).shape
    (3, 1)
    """
    x = _tensor(x)
    shape = x.shape
    if isinstance(axis, int):
        at = _axis("expand_dims", axis, len(shape) + 1, x)
        return _reshape.fn(x, (*shape[:at], 1, *shape[at:]))
    axes = tuple(axis)
    places = {_axis("expand_dims", a, len(shape) + len(axes), x) for a in axes}
    if len(places) != len(axes):
        raise ShapeError(f"expand_dims: axis {axes} names a place twice")
    for at in sorted(places):
        shape = (*shape[:at], 1, *shape[at:])
    return _reshape.fn(x, shape)


def squeeze(x: Tensor, /, axis: int | Sequence[int] | None = None) -> Tensor:
    """x without the named axes, which must have size 1 (ShapeError); without any of size 1 when no axis is named.

    >>> import hybridml as hm
    >>> hm.squeeze(hm.ones((1, 3, 1)), axis=0).shape
    (3, 1)
    """
    x = _tensor(x)
    if axis is None:
        return _reshape.fn(x, tuple(n for n in x.shape if not is_one(n)))
    axes = {_axis("squeeze", a, x.ndim, x) for a in ((axis,) if isinstance(axis, int | np.integer) else axis)}
    for a in axes:
        if x.shape[a] != 1:
            raise ShapeError(f"squeeze: axis {a} of {Aval(x.shape, x.dtype)} has size {x.shape[a]}, not 1")
    return _reshape.fn(x, tuple(n for k, n in enumerate(x.shape) if k not in axes))


@compiled_when_small
def stack(arrays: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis.

    Raises ShapeError where shapes differ, or for no tensors.

    >>> import hybridml as hm
    >>> hm.stack([hm.arange(2), hm.arange(2)], axis=1).tolist()
    [[0, 0], [1, 1]]
    """
    if (as_array := getattr(type(arrays), "as_array", None)) is not None:  # a list of a trace, made when the call ends
        return as_array(arrays, functools.partial(stack, axis=axis))
    xs = [_tensor(x) for x in arrays]
    if not xs:
        raise ShapeError("stack: needs at least one tensor")
    shape = xs[0].shape
    for k, x in enumerate(xs):
        if x.shape != shape:
            raise ShapeError(f"stack: all shapes must be equal; tensor 0 has {shape}, tensor {k} has {x.shape}")
    at = _axis("stack", axis, len(shape) + 1, xs[0])
    if at == 0 and shape and interpreter_stack() is None:  # in a third of the time
        return _reshape.fn(_concat.fn(xs, 0), (len(xs), *shape))
    parts = (*shape[:at], 1, *shape[at:])
    return _concat.fn([_reshape.fn(x, parts) for x in xs], at)


def unstack(x: Tensor, /, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along an axis, without that axis.

    Raises AxisError for an axis that is not there.

    >>> import hybridml as hm
    >>> [x.tolist() for x in hm.unstack(hm.asarray([[1, 2], [3, 4]]), axis=1)]
    [[1, 3], [2, 4]]
    """
    axis = _axis("unstack", axis, x.ndim, x)
    lead = (slice(None),) * axis
    return tuple(x[(*lead, k)] for k in range(x.shape[axis]))


def split(x: Tensor, /, split_size_or_sections: Any, axis: int = 0) -> tuple[Tensor, ...]:
    """Pieces of x along an axis: of one size (the last may be smaller), or of the listed sizes. Sizes as PyTorch.

    Raises ShapeError where listed sizes do not add up.

    >>> import hybridml as hm
    >>> [x.tolist() for x in hm.split(hm.arange(5), 2)]
    [[0, 1], [2, 3], [4]]
    """
    x = _tensor(x)
    axis = _axis("split", axis, x.ndim, x)
    n = x.shape[axis]
    if getattr(split_size_or_sections, "shape", None) == ():  # of a tensor or of NumPy
        split_size_or_sections = index(split_size_or_sections)
    if isinstance(split_size_or_sections, int):
        size = split_size_or_sections
        if size <= 0:
            raise ArgumentError(f"split: the size of a piece must be positive, got {size}")
        sizes = [min(size, n - at) for at in range(0, max(n, 1), size)]
    else:
        sizes = list(split_size_or_sections)
        if sum(sizes) != n or any(s < 0 for s in sizes):
            raise ShapeError(f"split: sizes {sizes} do not add up to {n}, the size of axis {axis}")
    lead, at, pieces = (slice(None),) * axis, 0, []
    for size in sizes:
        piece = slice(at, at + size)
        pieces.append(x[(*lead, piece) if axis else piece])
        at += size
    return tuple(pieces)


def chunk(x: Tensor, /, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` pieces of equal size (the last may be smaller).

    Source: PyTorch. Raises ArgumentError for a number below 1.

    >>> import hybridml as hm
    >>> [x.tolist() for x in hm.chunk(hm.arange(5), 2)]
    [[0, 1, 2], [3, 4]]
    """
    if chunks <= 0:
        raise ArgumentError(f"chunk: needs a positive number of pieces, got {chunks}")
    n = x.shape[_axis("chunk", axis, x.ndim, x)]
    return split(x, max(1, -(-n // chunks)), axis=axis)


def moveaxis(x: Tensor, /, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """x with the `source` axes moved to the `destination` places, the others in order.

    Raises AxisError for an axis that is not there, ShapeError where they do not pair.

    >>> import hybridml as hm
    >>> hm.moveaxis(hm.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = _tensor(x)
    froms = [_axis("moveaxis", a, x.ndim, x) for a in ([source] if isinstance(source, int) else source)]
    places = [_axis("moveaxis", a, x.ndim, x) for a in ([destination] if isinstance(destination, int) else destination)]
    if len(froms) != len(places) or len(set(froms)) != len(froms) or len(set(places)) != len(places):
        raise ShapeError(f"moveaxis: source {froms} and destination {places} must name as many different axes")
    order = [k for k in range(x.ndim) if k not in froms]
    for place, axis in sorted(zip(places, froms, strict=True)):
        order.insert(place, axis)
    return _permute.fn(x, tuple(order))


def unflatten(x: Tensor, axis: int, sizes: Sequence[int]) -> Tensor:
    """x with one axis as several of `sizes`, of which one may be -1: what is left. Source: PyTorch.

    ShapeError where the sizes do not multiply to that of the axis.

    >>> import hybridml as hm
    >>> hm.unflatten(hm.ones((2, 6)), 1, (3, -1)).shape
    (2, 3, 2)
    """
    k = _axis("unflatten", axis, x.ndim, x)
    known = math.prod(n for n in sizes if n != -1)
    unknown = sum(n == -1 for n in sizes)
    if (
        unknown > 1
        or (known and x.shape[k] % known)
        or (not unknown and known != x.shape[k])
        or (unknown and not known)
    ):
        raise ShapeError(f"unflatten: axis {axis} of {Aval(x.shape, x.dtype)} cannot have the sizes {tuple(sizes)}")
    new = tuple(x.shape[k] // known if n == -1 else n for n in sizes)
    return _reshape.fn(x, (*x.shape[:k], *new, *x.shape[k + 1 :]))


def unfold(x: Tensor, axis: int, size: int, step: int = 1) -> Tensor:
    """Windows of `size` elements along an axis, `step` apart, as a new last axis. Source: PyTorch's `Tensor.unfold`.

    (..., n, ...) gives (..., (n - size) // step + 1, ..., size). ShapeError for a size greater than n.

    >>> import hybridml as hm
    >>> hm.unfold(hm.arange(5), 0, 3, 2).tolist()
    [[0, 1, 2], [2, 3, 4]]
    """
    k = _axis("unfold", axis, x.ndim, x)
    return OPS["windows"].fn(x, size=(size,), stride=(step,), axes=(k,))


def swapaxes(x: Tensor, /, axis1: int, axis2: int) -> Tensor:
    """x with two axes exchanged.

    Raises AxisError for an axis that is not there.

    >>> import hybridml as hm
    >>> hm.swapaxes(hm.ones((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    return exchanged(x, axis1, axis2)


def exchanged(x: Tensor, axis1: int, axis2: int) -> Tensor:
    """`swapaxes`, without other names of its parameters."""
    x = _tensor(x)
    n = len(x.shape)
    if type(axis1) is not int or type(axis2) is not int or not (-n <= axis1 < n and -n <= axis2 < n):
        axis1, axis2 = _axis("swapaxes", axis1, n, x), _axis("swapaxes", axis2, n, x)
    return _permute.fn(x, _exchanged(n, axis1, axis2))


@functools.lru_cache(maxsize=1024)
def _exchanged(n: int, axis1: int, axis2: int) -> tuple[int, ...]:
    order = list(range(n))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return tuple(order)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """x with its last two axes exchanged.

    Raises ShapeError for fewer than two axes.

    >>> import hybridml as hm
    >>> hm.matrix_transpose(hm.ones((2, 3, 4))).shape
    (2, 4, 3)
    """
    if len(x.shape) < 2:
        raise ShapeError(f"matrix_transpose: needs at least 2 axes, got {Aval(x.shape, x.dtype)}")
    return exchanged(x, -1, -2)


@compiled_when_repeated
def roll(x: Tensor, /, shift: int | Sequence[int], axis: int | Sequence[int] | None = None) -> Tensor:
    """Elements moved along axes; what leaves at the end comes in at the start.

    Without an axis over the flattened x. Raises AxisError for an axis that is not there.

    >>> import hybridml as hm
    >>> hm.roll(hm.arange(4), 1).tolist()
    [3, 0, 1, 2]
    """
    x = _tensor(x)
    if axis is None:
        return roll(x.reshape((-1,)), shift, axis=0).reshape(x.shape)
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    if len(shifts) != len(axes):
        raise ArgumentError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for by, a in zip(shifts, axes, strict=True):
        k = _axis("roll", a, x.ndim, x)
        n = x.shape[k]
        cut = -by % n if n else 0
        if cut:
            lead = (slice(None),) * k
            x = _concat.fn([x[(*lead, slice(cut, None))], x[(*lead, slice(0, cut))]], axis=k)
    return x


@compiled_when_repeated
def tile(x: Tensor, /, repetitions: int | Sequence[int]) -> Tensor:
    """x repeated along each axis.

    Counts are for the last axes; more counts than axes make new ones.

    >>> import hybridml as hm
    >>> hm.tile(hm.arange(2), (2, 2)).tolist()
    [[0, 1, 0, 1], [0, 1, 0, 1]]
    """
    x = _tensor(x)
    counts = (repetitions,) if isinstance(repetitions, int | np.integer) else tuple(repetitions)
    ndim = max(len(counts), x.ndim)
    counts = (1,) * (ndim - len(counts)) + counts
    shape = (1,) * (ndim - x.ndim) + x.shape
    inner = tuple(v for n in shape for v in (1, n))
    outer = tuple(v for c, n in zip(counts, shape, strict=True) for v in (c, n))
    return _reshape.fn(
        _broadcast.fn(_reshape.fn(x, inner), outer), tuple(c * n for c, n in zip(counts, shape, strict=True))
    )


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """The tensors stretched to their common shape.

    Raises ShapeError where they have none.

    >>> import hybridml as hm
    >>> [x.shape for x in hm.broadcast_arrays(hm.ones((3, 1)), hm.ones((4,)))]
    [(3, 4), (3, 4)]
    """
    try:
        shape = broadcast_shapes(*(x.shape for x in arrays))
    except ShapeError:
        raise ShapeError(f"broadcast_arrays: shapes {[x.shape for x in arrays]} do not broadcast") from None
    return [_broadcast.fn(x, shape) for x in arrays]


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape that the given shapes broadcast to.

    Raises ShapeError where there is none.

    >>> import hybridml as hm
    >>> hm.broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    try:
        if any(map(has_dims, shapes)):
            return broadcast("broadcast_shapes", *(Aval(tuple(shape), dtypes.float32) for shape in shapes))
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(f"broadcast_shapes: {shapes} do not broadcast to one shape") from None


def std(x: Tensor, /, axis: Any = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Standard deviation; `correction` is subtracted from the number of elements in the divisor.

    Integers become the default float; gradients flow through it, and are 0 where the deviation is 0, as PyTorch's.

    >>> import hybridml as hm
    >>> hm.std(hm.asarray([1.0, 3.0])).item()
    1.0
    """
    return root(OPS["var"].fn(_tensor(x), axis, correction, keepdims))


def root(x: Tensor) -> Tensor:
    """The square root of a sum of squares: at 0, where its slope is infinite, the gradient is 0, as PyTorch's."""
    if not x.requires_grad:  # the value is the same
        value: Tensor = OPS["sqrt"].fn(x)
        return value
    zero = OPS["equal"].fn(x, 0)
    found: Tensor = OPS["where"].fn(zero, x, OPS["sqrt"].fn(OPS["where"].fn(zero, 1, x)))
    return found


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """x in another data type; x itself when it has that type and `copy` is False.

    Floats are cut to integers, bool is x != 0. Raises DTypeError for complex to real: say which part.

    >>> import hybridml as hm
    >>> hm.astype(hm.asarray([1.7, -1.7]), hm.int32).tolist()
    [1, -1]
    """
    x = _tensor(x) if device is None else transfer(_tensor(x), Device(device).type)
    wanted = dtypes.canonical(dtype)
    return x if not copy and x.dtype is wanted else OPS["astype"].fn(x, wanted)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """x limited to min..max; either bound may be missing, a number or a tensor. NaN stays NaN.

    Bounds broadcast. The gradient passes inside of them.

    >>> import hybridml as hm
    >>> hm.clip(hm.asarray([-1.0, 0.5, 3.0]), 0, 1).tolist()
    [0.0, 0.5, 1.0]
    """
    if min is None:
        return _tensor(x) if max is None else OPS["minimum"].fn(x, max)
    return OPS["maximum"].fn(x, min) if max is None else OPS["clip"].fn(x, min, max)


cat = concatenate = concat

__all__ = [
    "astype", "broadcast_arrays", "broadcast_shapes", "cat", "chunk", "clip", "concat", "concatenate", "expand_dims",
    "matrix_transpose", "moveaxis", "reshape", "roll", "split", "squeeze", "stack", "std", "swapaxes",
    "tile", "unflatten", "unfold", "unstack",
]  # fmt: skip
