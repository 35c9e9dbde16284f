"""Putting together, taking apart, padding and repeating, with NumPy's parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

import hybridml as hm
from hybridml_compiler.errors import ArgumentError

from ..manipulation import _axis, _tensor
from ..tensor import Tensor
from .table import implements, same


def _cast(x: Any, dtype: Any) -> Any:
    return x if dtype is None else hm.astype(x, dtype, copy=False)


@implements(np.concatenate)
def concatenate(arrays: Any, /, axis: int | None = 0, *, dtype: Any = None) -> Any:
    xs = [_tensor(x) for x in arrays]
    out = hm.concat([hm.ravel(x) for x in xs], axis=0) if axis is None else hm.concat(xs, axis=axis)
    return _cast(out, dtype)


@implements(np.stack)
def stack(arrays: Any, axis: int = 0, *, dtype: Any = None) -> Any:
    xs = hm.broadcast_arrays(*arrays) if len({x.dtype for x in map(_tensor, arrays)}) > 1 else list(arrays)
    common = hm.result_type(*map(_tensor, xs))
    return _cast(hm.stack([hm.astype(_tensor(x), common, copy=False) for x in xs], axis=axis), dtype)


@implements(np.append)
def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    return hm.append(arr, values, axis=axis)


@implements(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    return hm.insert(arr, obj, values, axis=axis)


@implements(np.delete)
def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    return hm.delete(arr, obj, axis=axis)


@implements(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    x = _tensor(ary)
    axis = _axis("np.split", axis, x.ndim, x)
    if isinstance(indices_or_sections, int) and x.shape[axis] % indices_or_sections:
        raise hm.ShapeError(f"np.split: {x.shape[axis]} elements do not make {indices_or_sections} equal pieces")
    return hm.array_split(x, indices_or_sections, axis=axis)


@implements(np.tile)
def tile(A: Any, reps: Any) -> Any:
    return hm.tile(_tensor(A), (reps,) if isinstance(reps, int | np.integer) else tuple(int(n) for n in reps))


@implements(np.repeat)
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    """Counts that differ decide the size of the result: a traced program asks for their values."""
    x = _tensor(a)
    if isinstance(repeats, int | np.integer):
        return hm.repeat(x, int(repeats), axis=axis)
    if axis is None:
        x, axis = hm.ravel(x), 0
    counts = np.broadcast_to(np.asarray(repeats), (x.shape[axis],))
    return hm.take(x, hm.asarray(np.repeat(np.arange(counts.size), counts)), axis=axis)


# -- padding

_MAPS = ("edge", "reflect", "symmetric", "wrap", "empty")
_STATISTICS = {"maximum": "max", "minimum": "min", "mean": "mean", "median": "median"}


@implements(np.pad)
def pad(
    array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0, reflect_type: str = "even",
    end_values: Any = 0, stat_length: Any = None,
) -> Any:  # fmt: skip
    x = _tensor(array)
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(k, pad_width.get(k - x.ndim, (0, 0))) for k in range(x.ndim)]
    widths = _pairs(pad_width, x.ndim)
    values = {"constant": constant_values, "linear_ramp": end_values}.get(mode, 0)
    numbers = [(None, None)] * x.ndim if stat_length is None else _pairs(stat_length, x.ndim)
    for k, ((before, after), ends, lengths) in enumerate(zip(widths, _pairs(values, x.ndim), numbers, strict=True)):
        if not before and not after:
            continue
        n = x.shape[k]
        if mode in _MAPS:
            found = _mapped(x, k, before, after, mode, reflect_type)
        elif mode == "constant":
            found = hm.concat([*_filled(x, k, before, ends[0]), x, *_filled(x, k, after, ends[1])], axis=k)
        elif mode == "linear_ramp":
            first, last = _ramp(x, k, 0, before, ends[0]), _ramp(x, k, n - 1, after, ends[1])
            found = hm.concat([first, x, hm.flip(last, axis=k)], axis=k)
        elif mode in _STATISTICS:
            spans = slice(0, lengths[0]), slice(n - min(lengths[1] or n, n), n)
            first, last = (_statistic(x[(*_lead(k), span)], k, mode) for span in spans)
            found = hm.concat([hm.repeat(first, before, axis=k), x, hm.repeat(last, after, axis=k)], axis=k)
        else:
            modes = ("constant", "linear_ramp", *_MAPS, *_STATISTICS)
            raise ArgumentError(f"np.pad: mode must be one of {', '.join(modes)}; got {mode!r}")
        x = hm.astype(found, x.dtype, copy=False)
    return x


def _pairs(value: Any, n: int) -> list[tuple[Any, Any]]:
    found: list[Any] = np.broadcast_to(np.asarray(value), (n, 2)).tolist()
    return [(a, b) for a, b in found]


def _lead(k: int) -> tuple[slice, ...]:
    return (slice(None),) * k


def _filled(x: Tensor, k: int, width: int, value: Any) -> list[Any]:
    return [hm.full((*x.shape[:k], width, *x.shape[k + 1 :]), value, dtype=x.dtype)] if width else []


def _mapped(x: Tensor, k: int, before: int, after: int, mode: str, reflect_type: str) -> Any:
    """Padding that repeats elements: NumPy pads their places in the same way."""
    places = np.pad(np.arange(x.shape[k]), (before, after), "edge" if mode == "empty" else mode)  # type: ignore[call-overload]
    out = hm.take(x, hm.asarray(places), axis=k)
    if reflect_type == "even" or mode not in ("reflect", "symmetric"):
        return out
    if max(before, after) > x.shape[k] - (mode == "reflect"):
        raise ArgumentError(f"np.pad: reflect_type='odd' pads at most {x.shape[k]} elements on tensors")
    ends = hm.take(x, hm.asarray(np.array([0, x.shape[k] - 1])), axis=k)
    first, last = ends[(*_lead(k), slice(0, 1))], ends[(*_lead(k), slice(1, 2))]
    parts = [out[(*_lead(k), s)] for s in (slice(0, before), slice(before, before + x.shape[k]))]
    rest = out[(*_lead(k), slice(before + x.shape[k], None))]
    return hm.concat([2 * first - parts[0], parts[1], 2 * last - rest], axis=k)


def _ramp(x: Tensor, k: int, at: int, width: int, end: Any) -> Any:
    edge = x[(*_lead(k), slice(at, at + 1))]
    weights = hm.arange(width, dtype=hm.get_default_dtype() if x.dtype.kind not in "fcV" else x.dtype)
    weights = hm.reshape(weights, tuple(width if j == k else 1 for j in range(x.ndim))) / max(width, 1)
    ramp = end + (edge - end) * weights
    return hm.floor(ramp) if x.dtype.kind in "iu" else ramp


def _statistic(x: Tensor, k: int, mode: str) -> Any:
    found = getattr(hm, _STATISTICS[mode])(x, axis=k, keepdims=True)
    return hm.round(found) if x.dtype.kind in "iu" and mode in ("mean", "median") else found


same(np, "hstack vstack dstack column_stack block array_split hsplit vsplit dsplit resize")
