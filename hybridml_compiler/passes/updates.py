"""Updates that change nothing: `x[i] += v` writes twice in Python, `t = x[i]; t += v` in place, and then `x[i] = t`;
`x[:0] = v` writes no element.

Nothing is read past an update here, although a slice of an updated array may be what was written, or what was there
before: with a reader of its own the old array could not be updated in place.
"""

from __future__ import annotations

from ..graph.ir import Node
from ..graph.rewrite import Rule, make
from ..ops.table import OPS
from ..sizes.dims import same
from .patterns import is_op, sample

_SCATTERS = tuple(op.name for op in OPS.values() if op.kind == "scatter")


def same_window(a: Node, b: Node) -> bool:
    """Whether slices, or updates of them, are at the same place."""
    return all(all(map(same, a.params[name], b.params[name])) for name in ("starts", "stops", "steps"))


def _nothing_new(node: Node) -> Node | None:
    base, value = node.inputs
    own = is_op(value, "slice") and value.inputs[0] is base and same_window(node, value)
    again = is_op(base, "slice_update") and base.inputs[1] is value and same_window(node, base)
    return base if own or again else None


def _no_elements(node: Node) -> Node | None:
    return node.inputs[0] if any(map(same, node.params["starts"], node.params["stops"])) else None


def _no_places(node: Node) -> Node | None:
    return node.inputs[0] if same(node.inputs[1].aval.size, 0) and node.inputs[0].aval == node.aval else None


def _scatter_samples() -> list[Node]:
    shapes = [(0, 6) if OPS[op].params["axis"] == -1 else (0,) for op in _SCATTERS]  # along the axis an index for each
    return [
        make(op, sample("f4", 5, 6), sample("i8", *shape), sample("f4", 0, 6), axis=0)
        for op, shape in zip(_SCATTERS, shapes, strict=True)
    ]


def _empty_samples() -> list[Node]:
    x, v = sample("f4", 5, 6), sample("f4", 0, 6)
    window = {"starts": (2, 0), "stops": (2, 6), "steps": (1, 1)}
    back = {"starts": (1, 0), "stops": (4, 6), "steps": (-1, 1)}
    return [make("slice_update", x, v, **w) for w in (window, back)]


def _samples() -> list[Node]:
    x, v = sample("f4", 5, 6), sample("f4", 2, 6)
    window = {"starts": (1, 0), "stops": (3, 6), "steps": (1, 1)}
    own = make("slice_update", x, make("slice", x, **window), **window)
    return [own, make("slice_update", make("slice_update", x, v, **window), v, **window)]


UPDATE_RULES = (
    Rule("update(x, what is there) -> x", ("slice_update",), _nothing_new, _samples, ("slice", "slice_update")),
    Rule("update(x, no elements) -> x", ("slice_update",), _no_elements, _empty_samples),
    Rule("scatter(x, no places) -> x", _SCATTERS, _no_places, _scatter_samples),
)  # fmt: skip
