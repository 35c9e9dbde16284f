"""Counts of steps: a number of Python's that data decides is a float64, and goes from step to step of a loop as an
int64 where steps do no more than add ints to it, or put one in its place.

    n = where(c, n + 1.0, n)                     n = n + where(c, 1, 0)
    found[astype(n, int64)] = x        ->        found[n] = x

A step waits for the count of the one before: for a sum of floats and a choice five times as long as for a sum of ints.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from .. import dtypes
from ..aval import Aval
from ..graph.body import family
from ..graph.ir import Node, apply, constant, input_node, topological, with_inputs
from ..graph.rewrite import make
from ..ops.control import LOOP
from ..record import record, replace
from ..sizes.dims import is_dim
from .loop_parts import Loop, Optimize, Results
from .patterns import is_op, op_name, splat

_EXACT = float(1 << 51)  # with room for sums of two and a size: up to 2**53 a float64 is every int
_UNKNOWN = float(1 << 44)  # more steps than a loop of a length unknown here takes: they are hours
_SIZE = float(1 << 48)  # more than a size, or the number of a step
_ZERO = constant(0, dtypes.int64)
_COMPARISONS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")


@record
class _Int:
    """An int in the place of a float: a count, or nothing, and what is added to it. It is at most `most`, or as much as
    a carry before the step plus `grows`, which is infinite of a sum of two."""

    count: Node | None
    added: Node | None = None
    grows: float = -math.inf
    most: float = 0.0

    @property
    def node(self) -> Node:
        if self.count is None or self.added is None:
            found = self.count or self.added
            assert found is not None
            return found
        return make("add", self.count, self.added)


def counts_as_ints(loop: Loop, optimized: Optimize) -> set[int]:
    """Makes carries of a loop ints; their numbers."""
    starts = {
        k: found for k, (start, *_) in enumerate(loop.carries) if (found := _leaf(start)) and start.dtype.kind == "f"
    }
    return {*_converted(loop, starts, optimized)}


def as_floats(results: Results, counts: Iterable[int]) -> Results:
    """The results of a loop as they were before these carries were made ints."""
    return {k: _float(node) if k in counts else node for k, node in results.items()}


def _float(node: Node) -> Node:
    return make("astype", node, dtype=dtypes.float64)


def _as(node: Node, count: Node) -> Node:
    """A count as what stood in its place: carries of an inner loop are floats, and ints."""
    return count if node.dtype is dtypes.int64 else _float(count)


def _leaf(node: Node) -> _Int | None:
    """A number that is an int whatever data is."""
    if node.shape or node.dtype not in (dtypes.float64, dtypes.int64):
        return None
    if is_op(node, "full") and is_dim(value := node.params["value"]):
        return _Int(None, make("full", shape=(), value=value, dtype=dtypes.int64), most=_SIZE)
    value = splat(node)
    if value is None or not math.isfinite(value) or value != int(value) or (value == 0 and math.copysign(1, value) < 0):
        return None
    return _int_of(int(value)) if abs(value) < _SIZE else None


def _int_of(value: int) -> _Int:
    return _Int(None, constant(value, dtypes.int64), most=abs(float(value)))


def _converted(loop: Loop, starts: Mapping[int, _Int], optimized: Optimize) -> dict[int, _Int]:
    """Makes those of these carries ints that can be, from these starts; what each is after the loop, but for its
    node."""
    steps = float(loop.length) if type(loop.length) is int else _UNKNOWN
    roots = [*(after for *_, after in loop.carries), *loop.others]
    left = {k: start for k, start in starts.items() if loop.carries[k][2] is not loop.carries[k][1]}
    while left:
        own = {loop.carries[k][1]: input_node(Aval((), dtypes.int64), loop.carries[k][1].name) for k in left}
        final, ints = _rewritten(roots, own, optimized)
        ends = {k: x for k in left if (x := ints.get(loop.carries[k][2])) is not None and x.grows < math.inf}
        grows = max([0.0, *(steps * x.grows for x in ends.values())])
        most = max([x.most for x in (*ends.values(), *left.values())]) + grows
        if most >= _EXACT:
            return {}
        if ends.keys() == left.keys():
            for k, x in ends.items():
                loop.carries[k] = left[k].node, own[loop.carries[k][1]], x.node
            _replace(loop, left, final)
            grows += max([x.grows for x in left.values()])
            return {k: _Int(x.node, None, grows, most) for k, x in ends.items()}
        left = {k: left[k] for k in ends}
    return {}


def _replace(loop: Loop, counts: Iterable[int], final: Mapping[Node, Node]) -> None:
    """Puts what was rewritten in the place of all that a step computes, but for these carries."""
    kept = {*counts}
    for k, (start, own, after) in enumerate(loop.carries):
        if k not in kept:
            loop.carries[k] = start, own, final[after]
    loop.ys, loop.checks = [final[y] for y in loop.ys], [final[check] for check in loop.checks]
    loop.go = None if loop.go is None else final[loop.go]


def _rewritten(
    roots: Iterable[Node], own: Mapping[Node, Node], optimized: Optimize
) -> tuple[dict[Node, Node], dict[Node, _Int]]:
    """Returns what takes the place of each node where these inputs are ints, and the nodes that are ints then."""
    nodes = topological([*roots])
    ints = {node: _Int(count, None, 0.0) for node, count in own.items()}
    final = {node: _as(node, count) for node, count in own.items()}
    loops: dict[object, Results] = {}
    for node in nodes:
        if node in final:
            continue
        operands = tuple([final[n] for n in node.inputs])
        if node.op is LOOP and family(node) not in loops:
            read = [n for n in nodes if n.op is LOOP and family(n) == family(node)]
            loops[family(node)] = _inner(read, operands, ints, optimized)
        if node in ints:  # of a loop that was met before
            final[node] = _as(node, ints[node].node)
        elif node.op is LOOP and (made := loops[family(node)]):
            final[node] = made[node.params["result"]]
        elif (number := _int(node, operands, ints)) is not None:
            ints[node] = number
            final[node] = _as(node, number.node) if node.inputs else node
        else:
            final[node] = _with_ints(node, operands, ints)
    return final, ints


def _inner(loops: Sequence[Node], operands: Sequence[Node], ints: dict[Node, _Int], optimized: Optimize) -> Results:
    """Results of a loop in the body that goes on with ints; nothing of another one."""
    node = loops[0]
    starts = [start for start, *_ in Loop.of(node, node.inputs).carries]
    loop = Loop.of(node, operands)
    ends = _converted(loop, {k: ints[start] for k, start in enumerate(starts) if start in ints}, optimized)
    if not ends:
        return {}
    made = loop.nodes(sorted({n.params["result"] for n in loops}), optimized)
    for n in loops:
        if (k := n.params["result"]) in ends:
            ints[n] = replace(ends[k], count=made[k])
    return made


def _int(node: Node, operands: Sequence[Node], ints: Mapping[Node, _Int]) -> _Int | None:
    """The int that an operation makes of ints; None of one that makes no int for sure."""
    if node.shape or node.dtype not in (dtypes.float64, dtypes.int64):
        return None
    if is_op(node, "astype") and node.inputs[0].dtype is dtypes.float64:
        return ints.get(node.inputs[0])
    if node.inputs and not all(n in ints for n in node.inputs[-2:]):
        return None
    if is_op(node, "where") and not operands[0].shape:
        x, y = (ints[n] for n in node.inputs[1:])
        grows, most = max(x.grows, y.grows), max(x.most, y.most)
        if x.count is y.count:
            return _Int(x.count, make("where", operands[0], x.added or _ZERO, y.added or _ZERO), grows, most)
        return _Int(make("where", operands[0], x.node, y.node), None, grows, most)
    if is_op(node, "add", "subtract"):
        x, y = (ints[n] for n in node.inputs)
        if is_op(node, "add") and x.count is None:
            x, y = y, x
        if y.count is not None or y.added is None:
            single = x.grows < math.inf and y.grows < math.inf
            return _Int(make(op_name(node), x.node, y.node), None, math.inf, x.most + y.most) if single else None
        added = y.added if x.added is None and is_op(node, "add") else make(op_name(node), x.added or _ZERO, y.added)
        return _Int(x.count, added, x.grows + y.most, x.most + y.most)
    return _leaf(node)


def _with_ints(node: Node, operands: tuple[Node, ...], ints: Mapping[Node, _Int]) -> Node:
    """The operation on ints, where that says the same, or on these operands."""
    if node.inputs and all(n in ints for n in node.inputs):
        if is_op(node, *_COMPARISONS):
            return make(op_name(node), *(ints[n].node for n in node.inputs))
    if operands == node.inputs or node.op is None:
        return node
    if node.kind == "control":
        return with_inputs(node, operands)
    return apply(node.op, operands, node.params, node.where)  # a float that was an int is not weak
