"""Loops over arrays whose elements need no others: one loop of each element, inside of the loop over elements.

    while any(alive):                                for each element:
        z = where(alive, z * z + c, z)      ->           while alive:
        alive = alive & (abs(z) < 2)                         z = z * z + c; alive = abs(z) < 2

Values stay in registers from step to step instead of being read and written in each, and a vector of elements ends when
none of its own goes on. The results are the same where a step changes nothing of an element that is not alive. A step
waits for the one before it: with transcendental functions, whose chains are long, kernels over all elements are faster,
as those overlap (100,000 elements, half of them alive for 50 steps of a sine: 4.4 ms of processor time, 9 in one loop
each; of z * z + c with a count: 2.6 ms, 1.7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import dtypes
from ..aval import Aval
from ..graph.body import body_of, steps_in
from ..graph.facts import dependent, element_cost
from ..graph.ir import Graph, Node, apply, constant, input_node, topological
from ..ops.composite import COMPOSITE, WHILE
from ..ops.op import TRANSCENDENTAL
from ..ops.table import OPS
from ..sizes.dims import steps_of
from ..sizes.steps import linear
from .loop_parts import Loop, Optimize, Results, substitute
from .patterns import is_op

_MOST_CARRIES = 8  # that registers hold beside what a step computes
_and, _add, _less, _multiply, _astype = (OPS[name] for name in ("logical_and", "add", "less", "multiply", "astype"))


def interchanged(node: Node, operands: Sequence[Node], numbers: Sequence[int], optimized: Optimize) -> Results | None:
    """Results of a loop as nodes of loops of elements; None of another loop."""
    loop = Loop.of(node, operands)
    if loop.xs or loop.ys or loop.checks or loop.counts or loop.reverse:
        return None
    if type(loop.length) is not int or loop.length < 1:
        return None
    flag, alive = _alive(loop)
    if alive is None:
        return None
    shape = alive.shape
    kept = _kept(loop, [k for k in numbers if k != flag], alive)
    if flag in numbers or len(kept) > _MOST_CARRIES or any(loop.carries[k][1].shape != shape for k in numbers):
        return None
    starts, own, after = zip(*(loop.carries[k] for k in kept), strict=True)
    stays = [_when_dead(new, alive) is (None if x is alive else x) for x, new in zip(own, after, strict=True)]
    if not all(same for x, same in zip(own, stays, strict=True) if x.shape == shape):
        return None
    varies = dependent(after, own)
    steps = [n for n in topological(after) if n not in varies and loop.step in steps_in(n)]
    varies |= dependent(after, steps)
    inside = [n for n in topological(after) if n in varies and n not in own]
    if not all(_is_of_element(n, shape) or (n in steps and is_op(n, "full") and n.shape == ()) for n in inside):
        return None
    outer = [x for n in inside for x in n.inputs if x not in varies and not (x.is_constant and x.shape == ())]
    outer = list(dict.fromkeys(outer))
    body = _body(loop, own, after, alive, inside, steps, outer)
    if body is None:
        return None
    body = optimized(body)
    given = substitute(outer, {inner: start for start, inner in loop.consts})
    return {k: _whole(node.where, body, starts, given, own.index(alive), kept.index(k)) for k in numbers}


def _alive(loop: Loop) -> tuple[int | None, Node | None]:
    """The number of the carry that is the condition, and the carry that says which elements are alive."""
    carries = loop.carries
    if loop.go is None:
        masks = [own for _, own, after in carries if own.dtype.kind == "b" and own.shape]
        return None, next((own for own in masks if _when_dead(_after(loop, own), own) is None), None)
    flag = next((k for k, (_, own, _) in enumerate(carries) if own is loop.go), None)
    if flag is None or not _is_true(carries[flag][0]):
        return None, None
    last = carries[flag][2]
    while is_op(last, "where") and _is_true(last.inputs[1]) and _is_true(last.inputs[2], False):
        last = last.inputs[0]
    if not is_op(last, "any") or len(last.params["axis"]) != len(last.inputs[0].shape) or not last.inputs[0].shape:
        return None, None
    of = last.inputs[0]
    return flag, next((own for _, own, after in carries if after is of and _when_dead(after, own) is None), None)


def _after(loop: Loop, own: Node) -> Node:
    return next(after for _, x, after in loop.carries if x is own)


def _is_true(node: Node, value: bool = True) -> bool:
    return node.is_constant and node.shape == () and bool(node.value) is value


def _kept(loop: Loop, numbers: Sequence[int], alive: Node) -> list[int]:
    """Numbers of the carries that these results, and which elements are alive, are computed from."""
    places = {own: k for k, (_, own, _) in enumerate(loop.carries)}
    found, left = set[int](), {*numbers, places[alive]}
    while left:
        found |= left
        read = topological([loop.carries[k][2] for k in left])
        left = {places[n] for n in read if n in places} - found
    return sorted(found)


def _when_dead(node: Node, alive: Node) -> Node | None:
    """The value of a node where an element is not alive, as far as choices tell; None: false."""
    if node is alive:
        return None
    if is_op(node, "where"):
        condition = _when_dead(node.inputs[0], alive)
        return _when_dead(node.inputs[2], alive) if condition is None else node
    if is_op(node, "logical_and", "bitwise_and") and node.dtype.kind == "b":
        return None if any(_when_dead(n, alive) is None for n in node.inputs) else node
    return node


def _is_of_element(node: Node, shape: Sequence[Any]) -> bool:
    """Whether an operation is one of each element, which kernels have for its types."""
    op = node.op
    if op is None or node.kind != "elementwise" or op.results or op.fails or op.version or is_op(node, "after"):
        return False
    types = [node.dtype, *(n.dtype for n in node.inputs)]
    narrow = any(dtypes.is_narrow(t) for t in types)
    fits = op.complex_kernels or not any(t.kind == "c" for t in types)
    return fits and not narrow and element_cost(node) < TRANSCENDENTAL and node.shape in ((), tuple(shape))


def _body(
    loop: Loop, own: Sequence[Node], after: Sequence[Node], alive: Node, inside: Sequence[Node], steps: Sequence[Node],
    outer: Sequence[Node],
) -> Any:  # fmt: skip
    """A step of an element: whether it goes on, its carries, and the number of steps so far."""
    carries, given = ([input_node(Aval((), n.dtype)) for n in nodes] for nodes in (own, outer))
    count = input_node(Aval((), dtypes.int64))
    final: dict[Node, Node] = {**dict(zip(own, carries, strict=True)), **dict(zip(outer, given, strict=True))}
    final[alive] = constant(True)  # or there would be no step
    for node in inside:
        made = _number(loop, node, count) if node in steps else _of_numbers(node, final)
        if made is None:
            return None
        final[node] = made
    assert loop.length is not None
    following = apply(_add, [count, constant(1, dtypes.int64)])
    goes = apply(_and, [final[after[own.index(alive)]], apply(_less, [following, constant(loop.length, dtypes.int64)])])
    outputs = (goes, *(final.get(n, n) for n in after), following)
    return body_of(Graph((*carries, count, *given), outputs, "body"))


def _of_numbers(node: Node, final: Mapping[Node, Node]) -> Node:
    assert node.op is not None
    return apply(node.op, [final.get(n, n) for n in node.inputs], node.params)


def _number(loop: Loop, node: Node, count: Node) -> Node | None:
    """A number that the step decides, from the count of steps before it; None of one that is no line."""
    value = node.params["value"]
    found = [linear(value, step) for step in steps_of(value)]
    if len(found) != 1 or node.dtype.kind not in "if" or node.dtype.itemsize < 4:
        return None
    ((factor, rest),) = found
    if type(factor) is not int or type(rest) is not int or type(loop.first) is not int:
        return None
    line = apply(_multiply, [count, constant(factor, dtypes.int64)])
    line = apply(_add, [line, constant(rest + factor * loop.first, dtypes.int64)])
    return line if node.dtype is dtypes.int64 else apply(_astype, [line], {"dtype": node.dtype})


def _whole(where: str, body: Any, starts: Sequence[Node], given: Sequence[Node], alive: int, result: int) -> Node:
    """A result of the loops of all elements."""
    inputs = [input_node(Aval((), n.dtype)) for n in (*starts, *given)]
    carries, others = inputs[: len(starts)], inputs[len(starts) :]
    operands = [carries[alive], *carries, constant(0, dtypes.int64), *others]
    found = apply(WHILE, operands, {"body": body, "result": result})
    function = body_of(Graph(tuple(inputs), (found,), "element"))
    return apply(COMPOSITE, [*starts, *given], {"body": function}, where)
