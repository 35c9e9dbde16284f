"""One form per view: `reshape(reshape(x)) -> reshape(x)`, `x + broadcast_to(y) -> x + y`.

The canonical form, which the rules of `simplify` and the fusion of `schedule` may rely on:

- No view that changes nothing, and no two in a row of the same kind: chains of reshape, permute_dims, broadcast_to,
  slice, flip, concat are one node each.
- Views that only add, drop or move axes of size 1 are reshapes.
- One number everywhere is `full`, or a constant where it is a scalar.
- Elementwise operands are not stretched beforehand: the row broadcasts, a number is a scalar constant, and what is
  elementwise of stretched operands alone is computed before it is stretched.
- A matrix product reads a transposed operand as `matmul(permute_dims(a), b)`: one permutation, right on the operand, so
  that the backend can hand it to the product as strides or a flag instead of copying.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..graph.ir import Node, apply, constant
from ..graph.rewrite import CONSTANT, Rule, make
from ..ops.table import OPS, WITH_BODIES
from ..sizes.values import has_dims
from .patterns import filled, is_op, like, op_name, sample, scalar, splat

# ---------------------------------------------------------------- views that change nothing


def _same_shape(node: Node) -> Node | None:
    (x,) = node.inputs
    return x if x.shape == node.shape else None


def _no_permutation(node: Node) -> Node | None:
    axes = node.params["axes"]
    return node.inputs[0] if axes == tuple(range(len(axes))) else None


def _whole_slice(node: Node) -> Node | None:
    (x,) = node.inputs
    return x if x.shape == node.shape and all(step > 0 for step in node.params["steps"]) else None


def _flip_of_one(node: Node) -> Node | None:
    (x,) = node.inputs
    axes = tuple(k for k in node.params["axis"] if x.shape[k] > 1)
    if axes == node.params["axis"]:
        return None
    return make("flip", x, axis=axes) if axes else x


def _concat_of_empty(node: Node) -> Node | None:
    axis = node.params["axis"]
    kept = [x for x in node.inputs if x.shape[axis]] or list(node.inputs[:1])
    if len(kept) == 1:
        return kept[0]
    return make("concat", *kept, axis=axis) if len(kept) < len(node.inputs) else None


IDENTITY_RULES = (
    Rule("reshape, broadcast_to, pad to the same shape -> x", ("reshape", "broadcast_to", "pad"), _same_shape, lambda: [
        make("reshape", sample(), shape=(3, 4)), make("broadcast_to", sample(), shape=(3, 4)),
        make("pad", sample(), widths=0),
    ]),
    Rule("permute_dims in order -> x", ("permute_dims",), _no_permutation, lambda: [
        make("permute_dims", sample(), axes=(0, 1))
    ]),
    Rule("slice of everything -> x", ("slice",), _whole_slice, lambda: [
        make("slice", sample(), starts=(0, 0), stops=(3, 4)),
    ]),
    Rule("flip of axes of size 1 -> x", ("flip",), _flip_of_one, lambda: [
        make("flip", sample("f4", 3, 1), axis=(0, 1)), make("flip", sample("f4", 3, 1), axis=1),
    ]),
    Rule("concat without its empty operands", ("concat",), _concat_of_empty, lambda: [
        make("concat", sample(), axis=1), make("concat", sample("f4", 3, 0), sample(), axis=1),
        make("concat", sample(), sample("f4", 0, 4), sample()), make("concat", sample("f4", 0), sample("f4", 0)),
    ]),
)  # fmt: skip

# ---------------------------------------------------------------- views of views


def _last_wins(node: Node) -> Node | None:
    """`reshape(reshape(x))` and `broadcast_to(broadcast_to(x))`: only the last shape counts."""
    (x,) = node.inputs
    return make(op_name(node), x.inputs[0], shape=node.shape) if is_op(x, op_name(node)) else None


def _permute_permute(node: Node) -> Node | None:
    (x,) = node.inputs
    if not is_op(x, "permute_dims"):
        return None
    return make("permute_dims", x.inputs[0], axes=tuple(x.params["axes"][k] for k in node.params["axes"]))


def _reshape_of_stretched(node: Node) -> Node | None:
    """A reshape that only adds or drops axes of size 1, applied to the operand before it was stretched."""
    (x,) = node.inputs
    if not is_op(x, "broadcast_to") or [n for n in x.shape if n != 1] != [n for n in node.shape if n != 1]:
        return None
    (y,) = x.inputs
    sizes = iter([n for n, m in zip((1,) * (len(x.shape) - len(y.shape)) + y.shape, x.shape, strict=True) if m != 1])
    before = tuple(1 if n == 1 else next(sizes) for n in node.shape)
    return make("broadcast_to", make("reshape", y, shape=before), shape=node.shape)


def _flip_flip(node: Node) -> Node | None:
    (x,) = node.inputs
    if not is_op(x, "flip"):
        return None
    return make("flip", x.inputs[0], axis=tuple(sorted(set(node.params["axis"]) ^ set(x.params["axis"]))))


def _slice_slice(node: Node) -> Node | None:
    (x,) = node.inputs
    if not is_op(x, "slice") or _unknown_ends(node) or _unknown_ends(x):
        return None
    return _sliced(x.inputs[0], map(_through, _ranges(x), _ranges(node)))


def _slice_of_pad(node: Node) -> Node | None:
    """`slice(pad(x)) -> slice(x)` where the slice sees none of the padding: a padded gradient that is cut again."""
    (x,) = node.inputs
    if not is_op(x, "pad") or _unknown_ends(node) or has_dims((*x.params["widths"], x.inputs[0].shape)):
        return None
    (source,) = x.inputs
    ranges = []
    for r, (before, _), n in zip(_ranges(node), x.params["widths"], source.shape, strict=True):
        if r and not all(0 <= k - before < n for k in (r[0], r[-1])):
            return None
        ranges.append(range(r.start - before, r.stop - before, r.step) if r else range(0))
    return _sliced(source, ranges)


def _unknown_ends(node: Node) -> bool:
    return has_dims((node.params["starts"], node.params["stops"]))


def _ranges(node: Node) -> list[range]:
    """The positions that a slice takes, an axis each."""
    return list(map(range, node.params["starts"], node.params["stops"], node.params["steps"]))


def _through(inner: range, outer: range) -> range:
    if not outer:
        return range(0)
    first, step = inner[outer[0]], inner.step * outer.step
    return range(first, first + len(outer) * step, step)


def _sliced(x: Node, ranges: Iterable[range]) -> Node:
    found = list(ranges)
    starts, stops, steps = ([getattr(r, name) for r in found] for name in ("start", "stop", "step"))
    return make("slice", x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))


def _concat_concat(node: Node) -> Node | None:
    axis = node.params["axis"]

    def nested(x: Node) -> bool:
        return is_op(x, "concat") and x.params["axis"] == axis

    if not any(map(nested, node.inputs)):
        return None
    return make("concat", *(part for x in node.inputs for part in (x.inputs if nested(x) else (x,))), axis=axis)


CHAIN_RULES = (
    Rule("reshape(reshape(x)) -> reshape(x), and broadcast_to", ("reshape", "broadcast_to"), _last_wins, lambda: [
        make("reshape", make("reshape", sample(), shape=(2, 6)), shape=(4, 3)),
        make("broadcast_to", make("broadcast_to", sample("f4", 3, 1), shape=(3, 4)), shape=(2, 3, 4)),
    ]),
    Rule("reshape(broadcast_to(x)) -> broadcast_to(reshape(x)) for axes of size 1", ("reshape",), _reshape_of_stretched,
         lambda: [
        make("reshape", make("broadcast_to", sample("f4", 3, 1), shape=(2, 1, 3, 4)), shape=(1, 2, 3, 1, 4)),
        make("reshape", make("broadcast_to", sample("f4", 4), shape=(1, 3, 4)), shape=(3, 4)),
    ]),
    Rule("permute_dims(permute_dims(x)) -> permute_dims(x)", ("permute_dims",), _permute_permute, lambda: [
        make("permute_dims", make("permute_dims", sample("f4", 2, 3, 4), axes=(1, 2, 0)), axes=(0, 2, 1)),
    ]),
    Rule("flip(flip(x)) -> flip(x)", ("flip",), _flip_flip, lambda: [
        make("flip", make("flip", sample(), axis=axis), axis=1) for axis in (0, 1, (0, 1))
    ]),
    Rule("slice(slice(x)) -> slice(x)", ("slice",), _slice_slice, lambda: [
        make("slice", make("slice", sample("f4", 9), starts=a, stops=b, steps=c), starts=d, stops=e, steps=f)
        for a, b, c, d, e, f in ((1, 9, 2, 3, -1, -1), (8, -1, -1, 2, 8, 3), (0, 5, 1, 2, 2, 1), (8, -1, -4, 2, -1, -2))
    ]),
    Rule("slice(pad(x)) -> slice(x)", ("slice",), _slice_of_pad, lambda: [
        make("slice", make("pad", sample(), widths=((1, 2), (0, 3))), starts=s, stops=e, steps=by)
        for s, e, by in (((1, 0), (4, 4), (1, 1)), ((3, 1), (0, 4), (-2, 1)), ((0, 0), (0, 4), (1, 1)))
    ]),
    Rule("concat(concat(x, y), z) -> concat(x, y, z)", ("concat",), _concat_concat, lambda: [
        make("concat", make("concat", sample(), sample(), axis=1), sample(), axis=1)
    ]),
)  # fmt: skip

# ---------------------------------------------------------------- axes of size 1, and single numbers


def _permute_of_ones(node: Node) -> Node | None:
    (x,) = node.inputs
    moved = [k for k in node.params["axes"] if x.shape[k] != 1]
    return make("reshape", x, shape=node.shape) if moved == sorted(moved) else None


def permute_of_added_ones(node: Node) -> Node | None:
    """The permutation, applied before the axes of size 1 were added: where that is a product, the product can write
    it."""
    (x,) = node.inputs
    if not is_op(x, "reshape") or x.inputs[0].shape != tuple(n for n in x.shape if n != 1):
        return None
    long = [k for k, n in enumerate(x.shape) if n != 1]
    axes = tuple(long.index(k) for k in node.params["axes"] if x.shape[k] != 1)
    return make("reshape", make("permute_dims", x.inputs[0], axes=axes), shape=node.shape)


def _stretch_of_ones(node: Node) -> Node | None:
    (x,) = node.inputs
    return make("reshape", x, shape=node.shape) if x.aval.size == node.aval.size else None


def _one_number(node: Node) -> Node | None:
    """A view of one number is that number in another shape."""
    (x,) = node.inputs
    number = splat(x) if is_op(x, "full") or x.value is not None else None
    return None if number is None else filled(number, node)


def _scalar_full(node: Node) -> Node | None:
    number = splat(node)
    return None if node.shape or number is None else constant(np.asarray(number))


_VIEWS = ("reshape", "permute_dims", "broadcast_to", "slice", "flip")

SIZE_ONE_RULES = (
    Rule("view of one number -> full", _VIEWS, _one_number, lambda: [
        make("broadcast_to", scalar(-0.0), shape=(3, 4)), make("reshape", _ones(3, 4), shape=(12,)),
        make("permute_dims", _ones(3, 4)), make("slice", _ones(3, 4), starts=(0, 1), stops=(2, 3)),
        make("flip", _ones(3, 4)),
    ]),
    Rule("full of shape () -> constant", ("full",), _scalar_full, lambda: [make("full", shape=(), value=2.5)]),
    Rule("permute_dims of axes of size 1 -> reshape", ("permute_dims",), _permute_of_ones, lambda: [
        make("permute_dims", sample("f4", 3, 1, 4), axes=(1, 0, 2)), make("permute_dims", sample("f4", 1, 5)),
    ]),
    Rule("permute_dims(reshape(x)) -> reshape(permute_dims(x)) for added axes of size 1", ("permute_dims",),
         permute_of_added_ones, lambda: [
        make("permute_dims", make("reshape", sample("f4", 3, 4), shape=(1, 3, 1, 4)), axes=(3, 0, 2, 1)),
    ]),
    Rule("broadcast_to that adds axes of size 1 -> reshape", ("broadcast_to",), _stretch_of_ones, lambda: [
        make("broadcast_to", sample(), shape=(1, 3, 4)),
    ]),
)  # fmt: skip


def _ones(*shape: int) -> Node:
    return make("full", shape=shape, value=1.0, dtype=np.dtype("f4"))


# ---------------------------------------------------------------- operands of elementwise rows


def _unstretched(x: Node) -> Node:
    """The node that an elementwise row can read in place of x, because it broadcasts."""
    while x.op is not None and (x.op.name == "broadcast_to" or (x.op.name == "reshape" and _adds_leading_ones(x))):
        (x,) = x.inputs
    number = splat(x) if x.shape else None
    return x if number is None else constant(np.asarray(number))


def _adds_leading_ones(node: Node) -> bool:
    (x,) = node.inputs
    return node.shape == (1,) * (len(node.shape) - len(x.shape)) + x.shape


def _stretched_operands(node: Node) -> Node | None:
    operands = tuple([_unstretched(x) for x in node.inputs])
    if operands == node.inputs:
        return None
    assert node.op is not None
    return like(apply(node.op, operands, node.params), node)


def _stretched_samples() -> list[Node]:
    bias = make("broadcast_to", sample("f4", 4), shape=(3, 4))
    column = make("broadcast_to", sample("f4", 3, 1), shape=(3, 4))
    return [
        make("add", sample(), bias),
        make("multiply", column, bias),
        make("negative", bias),
        make("add", sample(), make("reshape", sample("f4", 4), shape=(1, 4))),
        make("maximum", _ones(3, 4), sample("f4", 4)),
        make("subtract", sample(), constant(np.full(4, 2.5, "f4"))),
        make("where", make("full", shape=(3, 4), value=True), sample("f4", 4), sample("f4", 1)),
        make("astype", bias, dtype=np.dtype("f8")),
        make("add", make("broadcast_to", sample("f4", 1), shape=(0,)), sample("f4", 0)),
    ]


_ELEMENTWISE = tuple(name for name, op in (OPS | WITH_BODIES).items() if op.kind == "elementwise")

_STRETCHED = ("broadcast_to", "reshape", "full", CONSTANT)

OPERAND_RULES = (
    Rule("f(x, broadcast_to(y)) -> f(x, y)", _ELEMENTWISE, _stretched_operands, _stretched_samples, _STRETCHED),
)

VIEW_RULES = (*IDENTITY_RULES, *SIZE_ONE_RULES, *CHAIN_RULES, *OPERAND_RULES)
