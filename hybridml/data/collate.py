"""Samples made one batch: stacked leaf by leaf, converted to tensors, moved to page-locked memory."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hybridml_compiler.errors import ArgumentError, ShapeError

from .. import arrays as xp
from ..core.tensor import Tensor


def default_collate(batch: Sequence[Any]) -> Any:
    """Stacks samples along a new first axis, entry by entry of tuples, lists, dicts, named tuples and dataclasses.

    Tensors, arrays and numbers become tensors (floats of the default dtype, integers int64); strings and None stay
    a list. Containers keep their classes. Raises ShapeError for arrays of different shapes, ArgumentError for
    containers of different lengths or keys, and TypeError for samples of other kinds.

    >>> default_collate([(1, 2.0), (3, 4.0)])[0].tolist()
    [1, 3]
    >>> default_collate([{"x": [1, 2], "name": "a"}, {"x": [3, 4], "name": "b"}])
    {'x': [Tensor([1, 3]), Tensor([2, 4])], 'name': ['a', 'b']}
    """
    first: Any = batch[0]
    if first is None or isinstance(first, str | bytes):  # NumPy's too
        return list(batch)
    if isinstance(first, Tensor | np.ndarray | np.generic):
        return _stacked(batch)
    if isinstance(first, bool | int | float | complex):
        return xp.asarray(list(batch))
    if _is_container(first):
        return _rebuilt(first, [default_collate(column) for column in _columns(batch)])
    hint = "make arrays of images first (hm.data.transforms.ToTensor)" if hasattr(first, "getbands") else ""
    raise TypeError(
        f"default_collate: cannot batch samples of type {type(first).__name__}; {hint or 'pass a collate_fn'}"
    )


def default_convert(data: Any) -> Any:
    """Tensors of the arrays and NumPy scalars in nested containers; everything else as it is.

    >>> default_convert({"x": np.zeros(2), "name": "a"})
    {'x': Tensor([0., 0.], dtype=float64), 'name': 'a'}
    """
    if isinstance(data, np.ndarray | np.generic) and data.dtype.kind not in "OSUMm":
        return xp.asarray(data)
    if _is_container(data):
        return _rebuilt(data, [default_convert(entry) for (entry,) in _columns([data])])
    return data


def pinned(batch: Any, device: str | None) -> Any:
    """The batch with its tensors in page-locked memory; objects of other classes by their method `pin_memory`."""
    if isinstance(batch, Tensor):
        return batch.pin_memory(device)
    if _is_container(batch):
        return _rebuilt(batch, [pinned(entry, device) for (entry,) in _columns([batch])])
    own: Callable[[], Any] | None = getattr(batch, "pin_memory", None)
    return batch if own is None else own()


def _stacked(batch: Sequence[Any]) -> Tensor:
    shapes = sorted({np.shape(sample) for sample in batch})
    if len(shapes) > 1:
        raise ShapeError(
            f"default_collate: samples of shapes {', '.join(map(str, shapes))} make no batch; "
            "give them one shape (pad or crop), or pass a collate_fn"
        )
    if any(isinstance(sample, Tensor) for sample in batch):
        return xp.stack([xp.asarray(sample) for sample in batch])
    return xp.asarray(np.stack(batch))


def _is_container(value: Any) -> bool:
    if isinstance(value, str | bytes | Tensor | type):
        return False
    return isinstance(value, Mapping | Sequence) or dataclasses.is_dataclass(value)


def _names(value: Any) -> list[Any] | None:
    """The keys of a mapping or the fields of a dataclass; None for a sequence."""
    if isinstance(value, Mapping):
        return list(value)
    return None if isinstance(value, Sequence) else [field.name for field in dataclasses.fields(value)]


def _columns(batch: Sequence[Any]) -> list[list[Any]]:
    """For each entry, what it is in every sample."""
    first: Any = batch[0]
    names = _names(first)
    if isinstance(first, Mapping):
        if any(sample.keys() != first.keys() for sample in batch):
            raise ArgumentError("default_collate: samples differ in their keys; pass a collate_fn")
        return [[sample[key] for sample in batch] for key in first]
    if names is not None:
        return [[getattr(sample, name) for sample in batch] for name in names]
    if any(len(sample) != len(first) for sample in batch):
        raise ArgumentError("default_collate: samples differ in their number of entries; pass a collate_fn")
    return [list(column) for column in zip(*batch, strict=True)]


def _rebuilt(like: Any, entries: list[Any]) -> Any:
    """A container as `like` with other entries; one of a class that cannot be built from them is a dict or a list."""
    kind: Any = type(like)
    names = _names(like)
    if isinstance(like, Mapping):
        made: Any = copy.copy(like) if hasattr(like, "__setitem__") else dict(like)
        for key, entry in zip(like, entries, strict=True):
            made[key] = entry
        return made
    if names is not None:
        made = copy.copy(like)  # whatever its __init__ computes
        for name, entry in zip(names, entries, strict=True):
            object.__setattr__(made, name, entry)
        return made
    if hasattr(like, "_fields"):
        return kind(*entries)
    try:
        return kind(entries)
    except TypeError:
        return entries
