"""Gradients of the parts of an array, put side by side: `zeros with a in rows 0..2 + zeros with b in rows 2..5`.

What splits an array (slices, `split`, the queries, keys and values of one product) has a gradient for each part, an
array of zeros otherwise, and the sum of these. Element by element that is a choice a part; as a concatenation it is
copied. `x + 0.0` stays: it turns -0.0 into 0.0, as the sum did.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

from ..graph.ir import Node
from ..graph.rewrite import Rule, make
from ..sizes.values import has_dims
from .patterns import is_op, is_value, sample, scalar


class _Part(NamedTuple):
    value: Node
    starts: tuple[int, ...]
    stops: tuple[int, ...]


def _part(node: Node) -> _Part | None:
    """The part of a node that is zero elsewhere, and its place."""
    if not is_op(node, "slice_update") or not is_value(node.inputs[0], 0) or set(node.params["steps"]) != {1}:
        return None
    return _Part(node.inputs[1], node.params["starts"], node.params["stops"])


def _sum_of_parts(node: Node) -> Node | None:
    left, right = (_part(n) for n in node.inputs)
    if left is None or right is None or has_dims((left.starts, left.stops, right.starts, right.stops)):
        return None
    apart = [k for k in range(len(node.shape)) if (left.starts[k], left.stops[k]) != (right.starts[k], right.stops[k])]
    if len(apart) != 1:
        return None
    (axis,) = apart
    first, last = sorted((left, right), key=lambda part: part.starts[axis])
    if first.stops[axis] != last.starts[axis]:
        return None
    pieces = [p for part in (first, last) for p in _pieces(part.value, axis)]
    joined = make("concat", *(_plus_zero(p) for p in pieces), axis=axis)
    if joined.shape == node.shape:
        return joined
    zeros, _ = node.inputs[0].inputs
    stops = tuple(last.stops[k] if k == axis else stop for k, stop in enumerate(first.stops))
    return make("slice_update", zeros, joined, starts=first.starts, stops=stops, steps=(1,) * len(stops))


def _pieces(value: Node, axis: int) -> tuple[Node, ...]:
    """The pieces that a value puts together along this axis, perhaps before a reshape; itself if it does not."""
    if is_op(value, "concat") and value.params["axis"] == axis:
        return value.inputs
    if is_op(value, "reshape") and is_op(value.inputs[0], "concat"):
        (joined,), k = value.inputs, value.inputs[0].params["axis"]
        size, inner = joined.shape[k], math.prod(joined.shape[k + 1 :])
        if _merges(size, inner, value.shape, axis) and math.prod(joined.shape[:k]) == math.prod(value.shape[:axis]):
            each = value.shape[axis] // size
            shapes = [(*value.shape[:axis], p.shape[k] * each, *value.shape[axis + 1 :]) for p in joined.inputs]
            return tuple(make("reshape", p, shape=s) for p, s in zip(joined.inputs, shapes, strict=True))
    return (value,)


def _merges(size: int, inner: int, shape: tuple[int, ...], axis: int) -> bool:
    """Whether an axis of a shape is made of one of this size, as the outermost, and of axes inside of it."""
    return size > 0 and shape[axis] % size == 0 and shape[axis] // size * math.prod(shape[axis + 1 :]) == inner


def _plus_zero(x: Node) -> Node:
    """`x + 0.0`, under the views that x is of it."""
    if is_op(x, "reshape", "permute_dims"):
        return make(x.op.name, _plus_zero(x.inputs[0]), **x.params) if x.op is not None else x
    if x.dtype.kind != "f" or (is_op(x, "add") and is_value(x.inputs[1], 0)):
        return x
    return make("add", x, scalar(0, x.dtype.str))


def _permuted_parts(node: Node) -> Node | None:
    (joined,) = node.inputs
    if not _computed(joined):
        return None
    axes = node.params["axes"]
    pieces = [make("permute_dims", piece, axes=axes) for piece in joined.inputs]
    return make("concat", *pieces, axis=axes.index(joined.params["axis"]))


def _reshaped_pieces(node: Node) -> Node | None:
    """An axis that the reshape of every piece made out of one that they share, as the outermost, and equal inner ones:
    put together before it, a loop over a piece has the axes that there were."""
    if not all(is_op(piece, "reshape") for piece in node.inputs):
        return None
    axis, shapes = node.params["axis"], [piece.inputs[0].shape for piece in node.inputs]
    outer, first = math.prod(node.shape[:axis]), shapes[0]
    for k in range(len(first)):
        alike = all(s[:k] == first[:k] and s[k + 1 :] == first[k + 1 :] for s in shapes)
        merged = _merges(first[k], math.prod(first[k + 1 :]), node.inputs[0].shape, axis)
        if alike and merged and math.prod(first[:k]) == outer:
            joined = make("concat", *(piece.inputs[0] for piece in node.inputs), axis=k)
            return make("reshape", joined, shape=node.shape)
    return None


def _consecutive_slices(node: Node) -> Node | None:
    """Slices of an array that follow each other along the axis are one slice; a stack of all rows is the array."""
    axis, pieces = node.params["axis"], list[Node]()
    for piece in node.inputs:
        if pieces and _follows(pieces[-1], piece, axis):
            before = pieces.pop()
            stops = (*before.params["stops"][:axis], piece.params["stops"][axis], *before.params["stops"][axis + 1 :])
            piece = make("slice", before.inputs[0], **{**before.params, "stops": stops})
        pieces.append(piece)
    if len(pieces) == len(node.inputs):
        return None
    return pieces[0] if len(pieces) == 1 else make("concat", *pieces, axis=axis)


def _stacked_slices(node: Node) -> Node | None:
    """Columns of an array, one after the other, put side by side as rows: the array, transposed."""
    axis, cuts = node.params["axis"], [n.inputs[0] for n in node.inputs if is_op(n, "reshape")]
    if len(cuts) < max(2, len(node.inputs)):
        return None
    along = [k for k in range(len(cuts[0].shape)) if _follows(cuts[0], cuts[1], k)]
    if not along or not all(_follows(*pair, along[0]) for pair in pairwise(cuts)) or cuts[0].shape[along[0]] != 1:
        return None
    (k,) = along
    order = [a for a in range(len(cuts[0].shape)) if a != k]
    order.insert(axis, k)
    if any(n.shape != tuple(cuts[0].shape[a] for a in order) for n in node.inputs):
        return None
    return make("permute_dims", make("concat", *cuts, axis=k), axes=tuple(order))


def _follows(before: Node, piece: Node, axis: int) -> bool:
    """Whether a slice begins where the one before ends, and is the same along all other axes."""
    if not (is_op(before, "slice") and is_op(piece, "slice") and before.inputs == piece.inputs):
        return False
    one, other = (
        [*zip(*(n.params[name] for name in ("starts", "stops", "steps")), strict=True)] for n in (before, piece)
    )
    (_, stop, step), (start, _, other_step) = one.pop(axis), other.pop(axis)
    return one == other and step == other_step == 1 and type(stop) is type(start) is int and stop == start


def _computed(node: Node) -> bool:
    """A concatenation of sums, as the first rule makes it, or of views of them: in no memory that a view would save."""
    return is_op(node, "concat") and node.dtype.kind == "f" and all(map(_is_sum, node.inputs)) and 0 not in node.shape


def _is_sum(node: Node) -> bool:
    while is_op(node, "reshape", "permute_dims"):
        (node,) = node.inputs
    return is_op(node, "add") and is_value(node.inputs[1], 0)


# ---------------------------------------------------------------- samples


def _update(value: Node, shape: tuple[int, ...], axis: int, start: int) -> Node:
    stop = start + value.shape[axis]
    return make(
        "slice_update", make("full", shape=shape, value=0, dtype=value.dtype), value,
        starts=tuple(start if k == axis else 0 for k in range(len(shape))),
        stops=tuple(stop if k == axis else n for k, n in enumerate(shape)),
        steps=(1,) * len(shape),
    )  # fmt: skip


def _sum_samples() -> list[Node]:
    a, b = sample("f4", 3, 2), sample("f4", 3, 4)
    return [
        make("add", _update(a, (3, 6), 1, 0), _update(b, (3, 6), 1, 2)),
        make("add", _update(b, (3, 9), 1, 3), _update(a, (3, 9), 1, 1)),
        make("add", _update(sample("i4", 1, 2), (4, 2), 0, 1), _update(sample("i4", 2, 2), (4, 2), 0, 2)),
    ]


def _parts(axis: int) -> Node:
    return make("concat", _plus_zero(sample("f4", 2, 3, 5)), _plus_zero(sample("f4", 2, 3, 5)), axis=axis)


def _rows(at: int, axis: int = 0) -> Node:
    places = [(1, 4), (1, 4)]
    places[axis] = at, at + 1
    return make("slice", _SLICED, starts=[a for a, _ in places], stops=[b for _, b in places], steps=(1, 1))


_SLICED = sample("f4", 5, 6)
CONCAT_RULES = (
    Rule("zeros with a + zeros with b -> concat(a, b)", ("add",), _sum_of_parts, _sum_samples, ("slice_update",)),
    Rule("permute(concat of sums) -> concat(permuted)", ("permute_dims",), _permuted_parts, lambda: [
        make("permute_dims", _parts(0), axes=(1, 0, 2))
    ]),
    Rule("concat(slices in a row) -> slice", ("concat",), _consecutive_slices, lambda: [
        make("concat", *map(_rows, (0, 1, 2)), axis=0),
        make("concat", *map(_rows, (3, 4)), sample("f4", 2, 3), *map(_rows, (0, 1, 3)), axis=0),
    ]),
    Rule("concat(slices as rows) -> permute(concat)", ("concat",), _stacked_slices, lambda: [
        make("concat", *(make("reshape", _rows(k, 1), shape=(1, 3)) for k in (0, 1, 2)), axis=0),
        make("concat", *(make("reshape", _rows(k, 0), shape=(3, 1)) for k in (1, 2)), axis=1),
    ]),
    Rule("concat(reshaped) -> reshape(concat)", ("concat",), _reshaped_pieces, lambda: [
        make("concat", *(make("reshape", sample("f4", 2, n, 3, 5), shape=(2, 15 * n)) for n in (2, 1)), axis=1),
        make("concat", *(make("reshape", sample("f4", n, 3), shape=(n * 3,)) for n in (2, 1, 4)), axis=0),
    ]),
)  # fmt: skip
