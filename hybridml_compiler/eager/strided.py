"""Arrays that do not lie in row-major order, as a program reads them: as views of a dense array that is its input.

    x[:, :512].T of 2048 x 1024  ->  permute_dims(slice(input of 2048 x 1024))

The input begins where the elements begin. It may end behind the memory of the array, of which the views leave that out.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..ops.table import OPS
from ..schedule.cost import STEP

if TYPE_CHECKING:
    from ..graph.ir import Node

_broadcast_to, _flip, _permute_dims, _reshape, _slice = (
    OPS[name] for name in ("broadcast_to", "flip", "permute_dims", "reshape", "slice")
)


class Form(NamedTuple):
    """The place of an array in memory: a slice of a dense one, from its beginning on, in steps along the last axis,
    with axes turned, reversed and repeated."""

    dense: tuple[int, ...]  # shape
    shape: tuple[int, ...]  # of the slice; axes of size 1 are left out
    step: int  # of the slice, along its last axis
    axes: tuple[int, ...]  # of the slice, in the order of the array
    reversed: tuple[int, ...]  # axes of the array
    repeated: tuple[int, ...]  # axes of the array, which the slice does not have


def form_of(array: np.ndarray) -> Form | None:
    """The form of an array; None where it has none: elements are far from each other along all axes, which kernels
    would gather, or are seen at several indices of one axis."""
    longer = [k for k, n in enumerate(array.shape) if n != 1]
    axes = [k for k in longer if array.strides[k]]
    order = sorted(axes, key=lambda k: -abs(array.strides[k]))
    if not array.size or not axes:
        return None
    step, part = divmod(abs(array.strides[order[-1]]), array.itemsize)
    if part or step > STEP:
        return None
    widths = [abs(array.strides[k]) for k in order[:-1]] + [array.itemsize]  # bytes from an index to the next
    shape = tuple([array.shape[k] for k in order])
    inner = [divmod(outer, width) for outer, width in itertools.pairwise(widths)]
    ends = _ends(shape, step)
    if any([rest or size < end for (size, rest), end in zip(inner, ends[1:], strict=True)]):
        return None
    dense = (ends[0], *[size for size, _ in inner])
    backwards = tuple([k for k in axes if array.strides[k] < 0])
    repeated = tuple([k for k in longer if not array.strides[k]])
    return Form(dense, shape, step, tuple([order.index(k) for k in axes]), backwards, repeated)


def _ends(shape: tuple[int, ...], step: int) -> tuple[int, ...]:
    """The ends of a slice along each axis, behind its last element."""
    return (*shape[:-1], (shape[-1] - 1) * step + 1)


def first_element(array: np.ndarray, form: Form) -> np.ndarray:
    """A view that begins where the elements do."""
    if not form.reversed:
        return array
    ahead, back = slice(None), slice(None, None, -1)
    return array[tuple([back if k in form.reversed else ahead for k in range(array.ndim)])]


def viewed(x: Node, form: Form, shape: Sequence[int]) -> Node:
    """The array of this shape, from a program's input."""
    from ..graph.ir import apply

    def view(x: Node, op: Any, **params: Any) -> Node:
        return apply(op, [x], params)

    if form.dense != form.shape:
        steps = (*(1,) * (len(form.shape) - 1), form.step)
        x = view(x, _slice, starts=(0,) * len(form.shape), stops=_ends(form.shape, form.step), steps=steps)
    if form.axes != tuple(range(len(form.axes))):
        x = view(x, _permute_dims, axes=form.axes)
    once = tuple([1 if k in form.repeated else n for k, n in enumerate(shape)])
    if x.shape != once:
        x = view(x, _reshape, shape=once)
    if form.reversed:
        x = view(x, _flip, axis=form.reversed)
    return view(x, _broadcast_to, shape=tuple(shape)) if form.repeated else x
