"""`pad` with NumPy's modes: an array is surrounded by a constant, pieces of it, a ramp, or a figure of its axis.

Axes are padded one after the other, so that corners are what NumPy makes them. Modes that repeat elements ask NumPy for
the table of positions and take its runs as slices: their gradients are slices too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, DTypeError
from hybridml_compiler.ops.table import OPS

from ...core.context import placed
from ...core.tensor import Tensor
from .manipulation import _tensor

_REPEATING = ("edge", "reflect", "symmetric", "wrap")
_FIGURES = ("maximum", "minimum", "mean", "median")
_OPTIONS: dict[str, tuple[str, ...]] = {
    "constant": ("constant_values",),
    "empty": (),
    "linear_ramp": ("end_values",),
    **{mode: ("reflect_type",) if mode in ("reflect", "symmetric") else () for mode in _REPEATING},
    **dict.fromkeys(_FIGURES, ("stat_length",)),
}


def pad(x: Any, /, pad_width: Any, mode: str = "constant", **options: Any) -> Tensor:
    """x with elements around each axis, as `numpy.pad`: any shape and dtype.

    `pad_width` is a number, ``(before, after)``, such a pair for each axis, or a dict of them by axis. Modes:
    "constant" (`constant_values`, 0), "edge", "reflect" and "symmetric" (`reflect_type` "even" or "odd"), "wrap",
    "linear_ramp" (`end_values`, 0), "maximum", "minimum", "mean" and "median" (of `stat_length` elements at that end;
    of the whole axis if not given), "empty" (zeros). Raises ArgumentError for other modes, options and widths.

    >>> import hybridml as hm
    >>> hm.pad(hm.asarray([1, 2, 3]), (2, 1), mode="reflect").tolist()
    [3, 2, 1, 2, 3, 2]
    """
    x = _tensor(x)
    if mode not in _OPTIONS:
        raise ArgumentError(f"pad: mode must be one of {sorted(_OPTIONS)}, got {mode!r}")
    if unknown := options.keys() - set(_OPTIONS[mode]):
        raise ArgumentError(f"pad: mode {mode!r} takes {list(_OPTIONS[mode]) or 'no options'}, got {sorted(unknown)}")
    widths = [_width(pair) for pair in _pairs("pad_width", pad_width, x.ndim)]
    if mode in ("constant", "empty"):
        values = _pairs("constant_values", options.get("constant_values", 0), x.ndim)
        if all(value == values[0][0] for pair in values for value in pair):
            return OPS["pad"].fn(x, tuple(widths), values[0][0] if values else 0)
    if x.dtype.kind == "b" and (mode in ("linear_ramp", "mean", "median") or options.get("reflect_type") == "odd"):
        raise DTypeError(f"pad: mode {mode!r} computes what it adds, got a bool tensor; cast it with .astype(hm.int8)")
    more = _pairs(_OPTIONS[mode][0], options.get(_OPTIONS[mode][0]), x.ndim) if _OPTIONS[mode] else [None] * x.ndim
    for axis, (width, option) in enumerate(zip(widths, more, strict=True)):
        if width != (0, 0):
            x = padded_axis(x, axis, width, mode, option)
    return x


def padded_axis(x: Tensor, axis: int, width: tuple[int, int], mode: str, option: Any = None) -> Tensor:
    """x with `width` elements before and after one axis; `option` is what its mode takes, a pair."""
    if x.shape[axis] == 0 and mode != "constant":
        raise ArgumentError(f"pad: axis {axis} is empty, which mode {mode!r} cannot extend; use mode='constant'")
    if mode == "constant":
        before, after = (_repeated(_like(x, axis, v), axis, n) for v, n in zip(option, width, strict=True))
        return _joined([before, x, after], axis)
    if mode in _FIGURES:
        return _around_by_figures(x, axis, width, mode, option)
    if mode == "linear_ramp":
        ends = [0 if v is None else v for v in option]
        rising = _ramp(ends[0], x, axis, 0, width[0])
        falling = OPS["flip"].fn(_ramp(ends[1], x, axis, x.shape[axis] - 1, width[1]), axis=(axis,))
        return _joined([rising, x, falling], axis)
    kind = option[0] if option is not None and option[0] is not None else "even"
    if kind not in ("even", "odd"):
        raise ArgumentError(f"pad: reflect_type must be 'even' or 'odd', got {kind!r}")
    n = int(x.shape[axis])
    if kind == "odd" and n > 1:
        return _reflected_oddly(x, axis, width, mode == "symmetric")
    table = np.pad(np.arange(n), width, mode=mode)  # type: ignore[call-overload]
    left, right = (list(_pieces(x, axis, part)) for part in (table[: width[0]], table[width[0] + n :]))
    return _joined([*left, x, *right], axis)


def _pieces(x: Tensor, axis: int, table: np.ndarray) -> Iterator[Tensor]:
    """The elements that a table of positions names, in runs that ascend, descend or stay."""
    at = 0
    while at < len(table):
        first, step, count = int(table[at]), 1, 1
        if at + 1 < len(table) and abs(int(table[at + 1]) - first) <= 1:
            step = int(table[at + 1]) - first
            while at + count < len(table) and table[at + count] == first + step * count:
                count += 1
        if step == 0:
            yield _repeated(_part(x, axis, first, first + 1), axis, count)
        elif step == 1:
            yield _part(x, axis, first, first + count)
        else:
            yield OPS["flip"].fn(_part(x, axis, first - count + 1, first + 1), axis=(axis,))
        at += count


def _reflected_oddly(x: Tensor, axis: int, width: tuple[int, int], with_edge: bool) -> Tensor:
    """Reflections turned over at the edge: 2 * edge - element. Of each turn the source is what the one before made."""
    period = x.shape[axis] if with_edge else x.shape[axis] - 1
    left, right = width
    while left or right:
        skip, n = 0 if with_edge else 1, x.shape[axis]
        most = (n - skip) // period * period
        before, after = min(left, most), min(right, most)
        first, last = _part(x, axis, 0, 1), _part(x, axis, n - 1, n)
        turned = OPS["flip"].fn(_part(x, axis, skip, skip + before), axis=(axis,))
        behind = OPS["flip"].fn(_part(x, axis, n - skip - after, n - skip), axis=(axis,))
        x = _joined([first * 2 - turned, x, last * 2 - behind], axis)
        left, right = left - before, right - after
    return x


def _around_by_figures(x: Tensor, axis: int, width: tuple[int, int], mode: str, lengths: Any) -> Tensor:
    n = x.shape[axis]
    parts = []
    for k, length in enumerate(lengths):
        size = n if length is None else min(index(length), n)
        if size < 1:
            raise ArgumentError(f"pad: stat_length must be 1 or more for mode {mode!r}, got {length}")
        part = _part(x, axis, 0, size) if k == 0 else _part(x, axis, n - size, n)
        if mode in ("mean", "median") and x.dtype.kind in "iu":
            figure = _figure(OPS["astype"].fn(part, np.dtype(np.float64)), axis, mode)
            parts.append(OPS["astype"].fn(OPS["round"].fn(figure), x.dtype))
        else:
            parts.append(_figure(part, axis, mode))
    before, after = (_repeated(part, axis, n) for part, n in zip(parts, width, strict=True))
    return _joined([before, x, after], axis)


def _figure(x: Tensor, axis: int, mode: str) -> Tensor:
    if mode != "median":
        return OPS[{"maximum": "max", "minimum": "min", "mean": "mean"}[mode]].fn(x, axis=axis, keepdims=True)
    n, ordered = x.shape[axis], OPS["sort"].fn(x, axis=axis)
    low, high, last = (_part(ordered, axis, k, k + 1) for k in ((n - 1) // 2, n // 2, n - 1))
    return OPS["where"].fn(OPS["isnan"].fn(last), last, (low + high) * 0.5)  # nan is the last in order


@placed
def _ramp(end: Any, x: Tensor, axis: int, place: int, count: int) -> Tensor:
    """`count` elements from `end` towards the element at `place`, without it."""
    edge = _part(x, axis, place, place + 1)
    whole = x.dtype.kind in "iu"
    if whole:
        edge = OPS["astype"].fn(edge, np.dtype(np.float64))
    shape = tuple(count if k == axis else 1 for k in range(x.ndim))
    steps = OPS["arange"].fn(start=0, stop=count, step=1, dtype=edge.dtype).reshape(shape)
    ramp = steps * ((edge - end) / max(count, 1)) + end
    return OPS["astype"].fn(OPS["floor"].fn(ramp), x.dtype) if whole else ramp


def _part(x: Tensor, axis: int, start: int, stop: int) -> Tensor:
    return x[(*(slice(None),) * axis, slice(start, stop))]


def _repeated(x: Tensor, axis: int, count: int) -> Tensor:
    """x, of size 1 along `axis`, `count` times."""
    return OPS["broadcast_to"].fn(x, tuple(count if k == axis else n for k, n in enumerate(x.shape)))


@placed
def _like(x: Tensor, axis: int, value: Any) -> Tensor:
    """`value` in the shape of x with size 1 along `axis`."""
    shape = tuple(1 if k == axis else n for k, n in enumerate(x.shape))
    return OPS["full"].fn(shape=shape, value=value, dtype=x.dtype)


def _joined(parts: Sequence[Tensor], axis: int) -> Tensor:
    return OPS["concat"].fn([part for part in parts if part.shape[axis]], axis=axis)


# ---------------------------------------------------------------- arguments


def _pairs(name: str, value: Any, ndim: int) -> list[tuple[Any, Any]]:
    """(before, after) for each axis, from one value, a pair, or a pair (or a number in a tuple) for each."""
    if isinstance(value, Mapping):
        found: list[tuple[Any, Any]] = [(0, 0)] * ndim
        for axis, pair in value.items():
            if not -ndim <= axis < ndim:
                raise ArgumentError(f"pad: {name} names axis {axis} of {ndim}")
            found[axis] = _pair(name, pair)
        return found
    if not isinstance(value, list | tuple | np.ndarray) or np.ndim(value) == 0:
        return [(value, value)] * ndim
    items = list(value)
    if items and not isinstance(items[0], list | tuple | np.ndarray):
        return [_pair(name, items)] * ndim
    if len(items) not in (1, ndim):
        raise ArgumentError(f"pad: {name} must be a number, a pair, or a pair for each of {ndim} axes, got {value!r}")
    return [_pair(name, item) for item in items] * (ndim if len(items) == 1 else 1)


def _pair(name: str, value: Any) -> tuple[Any, Any]:
    if not isinstance(value, list | tuple | np.ndarray):
        return value, value
    if len(value) not in (1, 2):
        raise ArgumentError(f"pad: {name} must have (before, after) for an axis, got {value!r}")
    return value[0], value[-1]


def _width(pair: tuple[Any, Any]) -> tuple[int, int]:
    try:
        before, after = map(index, pair)
    except TypeError:
        raise ArgumentError(f"pad: pad_width must be of integers, got {pair!r}") from None
    if before < 0 or after < 0:
        raise ArgumentError(f"pad: pad_width must not be negative, got {pair!r}; slice the array to make it smaller")
    return before, after


__all__ = ["pad"]
