"""Meaning of a key of `x[key]`: slices of every axis, a reshape, and arrays of positions that replace axes.

NumPy's rules hold. Index arrays broadcast together, and their axes stand where they stood in the key, or in front when
something stands between them (an integer beside an index array counts as one). A mask of n axes is one array, of the
positions of its true elements in those n axes taken together.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import ArgumentError, MaskError, OutOfBoundsError, ShapeError
from hybridml_compiler.ops.shapes import Positions, count, positions
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record, replace
from hybridml_compiler.sizes.dims import Dim, is_dim, is_symbolic, same

from ...core.device_tensor import transfer
from ...core.proxies.integer import IntProxy
from ...core.proxies.scalar import tensor_of
from ...core.tensor import Tensor, place_of
from ..shaping.manipulation import broadcast_shapes
from .selecting import lifted, true_positions

_ndarray = np.ndarray
_BASIC = (int, Dim, slice, np.integer, type(None), type(Ellipsis))
_PLAIN = frozenset((int, slice, type(None), type(Ellipsis)))  # of which most keys are
_WHOLE = slice(None)


@record
class Plan:
    """A key as rows: a slice of every axis, a reshape that drops, adds and joins axes, and index arrays."""

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    steps: tuple[int, ...]
    shape: tuple[int, ...]  # after the reshape; the axes that index arrays replace are still there
    arrays: tuple[tuple[int, int, Any], ...] = ()  # (axis of `shape`, axis of x, integers, or one that is known)
    front: int = 0  # axes of the result before those of the index arrays

    @property
    def window(self) -> tuple[int, ...]:
        """The shape of the slices, before the reshape."""
        return tuple(map(count, map(positions, self.starts, self.stops, self.steps)))

    def is_whole(self, shape: tuple[int, ...]) -> bool:
        """Whether the slices take all of x as it is."""
        ends = zip((*self.starts, *self.stops), (*(0 for _ in shape), *shape), strict=True)
        return all(same(a, b) for a, b in ends) and all(step == 1 for step in self.steps)  # no question about a size


def is_basic(key: Any) -> bool:
    """Whether a key makes a view."""
    if type(key) is tuple:
        return _PLAIN.issuperset(map(type, key)) or all(isinstance(k, _BASIC) and type(k) is not bool for k in key)
    return isinstance(key, _BASIC) and type(key) is not bool


def at_data(key: Any) -> tuple[Any, ...] | None:
    """A key with tensors in the places of ints that data decides; None of any other."""
    parts = key if type(key) is tuple else (key,)
    places = [_place(k) for k in parts]
    if all(place is None for place in places):
        return None
    return tuple([k if place is None else place for k, place in zip(parts, places, strict=True)])


def _place(k: Any) -> Tensor | None:
    """The tensor of an int that data decides: of Python's, or an element of a NumPy array of the program."""
    if type(k) is IntProxy:
        return k.as_index() if k._value is None else None
    element: Callable[[Any], Tensor | None] | None = getattr(type(k), "as_index", None)
    return None if element is None else element(k)


@record
class MaskPlace:
    """A mask in a key that is basic before and after it."""

    before: tuple[Any, ...]
    mask: Any
    after: tuple[Any, ...]

    @property
    def is_part(self) -> bool:
        return bool(self.before or self.after)

    def key(self, mask: Any) -> Any:
        return (*self.before, mask, *self.after) if self.is_part else mask

    def part(self, x: Tensor) -> Tensor:
        """The view of x in which the mask chooses along axes from `lead` on."""
        return x[(*self.before, *(_WHOLE,) * self.mask.ndim, *self.after)] if self.is_part else x

    def lead(self, ndim: int) -> int:
        """Number of axes of that view before those of the mask, for an x of `ndim` axes."""
        named = sum(k is not None and k is not Ellipsis for k in (*self.before, *self.after)) + self.mask.ndim
        return sum(k is None or type(k) is slice for k in self.before) + (ndim - named) * (Ellipsis in self.before)


def mask_in(key: Any, ndim: int) -> MaskPlace | None:
    """The one mask of a key for an x of `ndim` axes; None of another key, and where NumPy puts its axis elsewhere."""
    parts = key if type(key) is tuple else (key,)
    at = [k for k, part in enumerate(parts) if isinstance(part, Tensor | _ndarray)]
    if len(at) != 1 or parts[at[0]].dtype.kind != "b" or not parts[at[0]].ndim:
        return None
    place = MaskPlace(parts[: at[0]], parts[at[0]], parts[at[0] + 1 :])
    others = (*place.before, *place.after)
    kept = [type(k) is not int for k in parts]
    axes = sum(k is not None and k is not Ellipsis for k in others) + place.mask.ndim
    if any(type(k) not in _PLAIN for k in others) or sum(k is Ellipsis for k in others) > 1 or axes > ndim:
        return None
    numbers = [k for k in range(len(parts)) if not kept[k]] + at
    in_a_row = max(numbers) - min(numbers) < len(numbers)
    return place if in_a_row or all(not is_kept for is_kept in kept[: at[0]]) else None


def plan(key: Any, aval: Aval) -> Plan:
    """Rows for a key; `OutOfBoundsError` for an index that does not exist, `ShapeError` for a mask or index arrays that
    do not fit, `ArgumentError` for a key of another kind.
    """
    key = at_data(key) or key
    parts = [_part(tensor_of(k), aval) for k in (key if isinstance(key, tuple) else (key,))]
    taken = sum(map(_axes, parts))
    if taken > aval.ndim:
        raise OutOfBoundsError(f"index: {taken} indices for {aval}, which has {aval.ndim} axes")
    dots = [i for i, k in enumerate(parts) if k is Ellipsis]
    if len(dots) > 1:
        raise ArgumentError("index: an index can have one '...' only")
    at = dots[0] if dots else len(parts)
    # The '...' itself stays: it keeps index arrays apart even where it stands for no axis.
    parts[at:at] = [_WHOLE] * (aval.ndim - taken)
    indexed, together = any(isinstance(k, Tensor) for k in parts), _is_of_numbers(parts)
    ranges: list[Positions] = []
    shape: list[int] = []
    arrays: list[tuple[int, int, Any]] = []
    runs = 0  # of neighbours among index arrays and integers
    front, inside = 0, False
    for k in parts:
        axis = len(ranges)
        among = indexed and (isinstance(k, Tensor) or _is_integer(k))
        if among and not inside:
            runs, front = runs + 1, len(shape) - len(arrays) if not runs else front
        inside = among
        if k is None:
            shape.append(1)
        elif isinstance(k, slice):
            r = _slice(k, aval.shape[axis])
            ranges.append(r)
            shape.append(count(r))
        elif isinstance(k, Tensor):
            sizes = aval.shape[axis : axis + _axes(k)]
            if k.dtype.kind == "b" and k.shape != sizes and not _selects_nothing(k.shape, sizes):
                raise MaskError(
                    f"index: a mask of shape {k.shape} does not fit {aval}"
                    + (f" at axes {axis} to {axis + k.ndim - 1}" if axis and k.ndim else "")
                )
            arrays.append((len(shape), axis, true_positions(k, "x[mask]") if k.dtype.kind == "b" else k))
            shape.append(math.prod(sizes))
            ranges += [positions(0, n, 1) for n in sizes]
        elif k is not Ellipsis:
            size = aval.shape[axis]
            i = k if is_dim(k) else int(k)
            i = i + size if i < 0 else i
            if not 0 <= i < size:
                raise OutOfBoundsError(f"index: {k} is out of bounds for axis {axis} of {aval}")
            if together:
                arrays.append((len(shape), axis, i))
                shape.append(size)
            ranges.append(positions(0, size, 1) if together else positions(i, i + 1, 1))
    return Plan(
        tuple(r.start for r in ranges), tuple(r.stop for r in ranges), tuple(r.step for r in ranges),
        tuple(shape), tuple(arrays), front if runs == 1 else 0,
    )  # fmt: skip


def _is_of_numbers(parts: Sequence[Any]) -> bool:
    """Whether integers of a key stand beside numbers that data decides, and beside nothing else: `x[i, 3]` is an
    element of x as one row then, which an update replaces in place, and not one of a column, which would be copied."""
    among = [n for n, k in enumerate(parts) if isinstance(k, Tensor) or _is_integer(k)]
    arrays = [k for k in parts if isinstance(k, Tensor)]
    numbers = all(k.ndim == 0 and k.dtype.kind in "iu" for k in arrays)
    return bool(arrays) and numbers and among[-1] - among[0] < len(among)


def _selects_nothing(mask: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
    """A mask may be empty along an axis that is not: NumPy and the array API have it so."""
    return len(mask) == len(sizes) and 0 in mask and all(m in (0, n) for m, n in zip(mask, sizes, strict=True))


def _axes(part: Any) -> int:
    """Number of axes of x that a part of a key takes."""
    if isinstance(part, Tensor):
        return part.ndim if part.dtype.kind == "b" else 1
    return 0 if part is None or part is Ellipsis else 1


def _is_integer(part: Any) -> bool:
    return isinstance(part, int | np.integer | Dim)


def _part(k: Any, aval: Aval) -> Any:
    """A part of a key as a slice, None, ..., an integer, or a tensor of integers or of bools."""
    if isinstance(k, bool | np.bool_):
        raise ArgumentError("index: a Python bool is not an index; use where, or a mask of the tensor's shape")
    if isinstance(k, _BASIC):
        return k
    if not isinstance(k, Tensor | _ndarray | list | tuple | range):
        raise ArgumentError(
            f"index: {k!r} cannot index {aval}; use integers, slices, None, ..., integer arrays or masks"
        )
    t = lifted(k)
    if t.dtype.kind not in "iub":
        raise ArgumentError(f"index: an index array must hold integers (or bool, for a mask), got {t.dtype.name}")
    return t


def _slice(k: slice, size: Any) -> Positions:
    try:
        return _positions(k, size)
    except TypeError:
        raise ArgumentError(f"index: {k} has bounds that are not integers; use int()") from None
    except ValueError:
        raise ArgumentError(f"index: a slice step cannot be 0, got {k}") from None


def _positions(k: slice, size: Any) -> Positions:
    """`range(size)[k]`, for sizes that come with the call as well (see hybridml_compiler.sizes)."""
    if not is_symbolic((size, k.start, k.stop)):
        return range(size)[k]
    step = 1 if k.step is None else operator.index(k.step)
    if step == 0:
        raise ValueError("slice step cannot be zero")
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def end(value: Any, default: Any) -> Any:
        if value is None:
            return default
        value = value if is_dim(value) else operator.index(value)
        value = value + size if value < 0 else value
        return low if value < low else high if value > high else value

    first, last = (low, high) if step > 0 else (high, low)
    return positions(end(k.start, first), end(k.stop, last), step)


# -- slices, and the axes that index arrays replace brought together


def sliced(x: Tensor, p: Plan) -> Tensor:
    """The view of x before index arrays; `x[...]` is a view as well, not x itself."""
    out = x if p.is_whole(x.shape) else OPS["slice"].fn(x, p.starts, p.stops, p.steps)
    return OPS["reshape"].fn(out, p.shape) if out is x or out.shape != p.shape else out


@record
class Gathered:
    """`x` with one axis where index arrays replace several, and the positions in it."""

    x: Tensor
    index: Tensor
    axis: int
    order: tuple[int, ...]  # axes of what it was made from, as they lie now
    shape: tuple[int, ...]  # of that, in this order

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of the indexed elements."""
        return (*self.x.shape[: self.axis], *self.index.shape, *self.x.shape[self.axis + 1 :])

    def back(self, x: Tensor) -> Tensor:
        """Undoes the permutation of axes, for another x."""
        if x.shape != self.shape:
            x = OPS["reshape"].fn(x, self.shape)
        if self.order == tuple(range(len(self.order))):
            return x
        return OPS["permute_dims"].fn(x, tuple(self.order.index(k) for k in range(len(self.order))))


def gathered(x: Tensor, p: Plan) -> Gathered:
    """`x`: what `sliced` gives."""
    place = place_of(x)
    if place is not None:  # index arrays of the CPU may select from a device's tensor, as in PyTorch
        p = replace(p, arrays=tuple([(axis, named, _there(index, place)) for axis, named, index in p.arrays]))
    axes = tuple(axis for axis, _, _ in p.arrays)
    rest = [k for k in range(len(p.shape)) if k not in axes]
    order = (*rest[: p.front], *axes, *rest[p.front :])
    shape = tuple(p.shape[k] for k in order)
    if order != tuple(range(len(order))):
        x = OPS["permute_dims"].fn(x, order)
    if len(axes) == 1:
        return Gathered(x, p.arrays[0][2], p.front, order, shape)
    joined = (*shape[: p.front], math.prod(shape[p.front : p.front + len(axes)]), *shape[p.front + len(axes) :])
    return Gathered(OPS["reshape"].fn(x, joined), _joined(p), p.front, order, shape)


def _there(index: Any, place: Any) -> Any:
    return transfer(index, place) if isinstance(index, Tensor) else index


def _joined(p: Plan) -> Tensor:
    """Several index arrays as one array of positions in their axes taken together."""
    _broadcasts([index for _, _, index in p.arrays if isinstance(index, Tensor)])
    flat: Any = None
    for axis, named, index in p.arrays:
        size = p.shape[axis]
        at = OPS["index"].fn(index, size, named) if isinstance(index, Tensor) else index
        flat = (
            at
            if flat is None
            else _sum(OPS["multiply"].fn(flat, size) if isinstance(flat, Tensor) else flat * size, at)
        )
    found: Tensor = flat
    return found


def _sum(x: Any, y: Any) -> Any:
    """The sum of positions, of which any may be known."""
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        return x + y
    return y if same(x, 0) else x if same(y, 0) else OPS["add"].fn(x, y)


def _broadcasts(arrays: Sequence[Tensor]) -> None:
    shapes = [t.shape for t in arrays]
    try:
        broadcast_shapes(*shapes)
    except ShapeError:
        raise MaskError(f"index: index arrays of shapes {shapes} do not broadcast to one shape") from None
