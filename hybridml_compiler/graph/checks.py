"""Checks: operations that may raise, whose errors a program owes even where their results go unread.

A capture notes every operation that may raise, as eager code would run it. A node that computes all of it raises
its error too; for the others the graph keeps a check, a root that nothing reads:

    x[[0, 9]] of three rows, unused               -> sum(index([0, 9], size=3))    one number, of the indices alone
    cholesky(a), unused                           -> itself

A value is *covered* where something that is computed reads all of it. A slice does not, nor does an operation without
elements; a choice does only where its condition is data. See [Note: Checks].
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from .body import bodies_of, family
from .facts import is_cast
from .ir import Node, topological
from .rewrite import make

INDEXED = ("gather", "scatter")


def fails(node: Node) -> bool:
    """True for a node that may raise for the values it is given: an index, a singular matrix, such a node in a body."""
    if node.op is None or node.op.fails:
        return node.op is not None
    return node.kind == "control" and any(body.graph.checks for body in bodies_of(node))


def alone(node: Node) -> Node:
    """A check as cheap as can be: one number of the indices where the error is one of an index, else the node."""
    if node.op is None or node.op.kind not in INDEXED:
        return node
    indices = operand(node)
    axis = node.params.get("axis", 0)
    return make("sum", make("index", indices, size=limit(node), axis=axis))


def operand(node: Node) -> Node:
    """The indices that a row looks up."""
    assert node.op is not None
    return node.inputs[node.op.inputs.index("indices")]


def limit(node: Node) -> int:
    """The size of the axis that the indices are looked up in."""
    found: int = node.params["size"] if "size" in node.params else node.inputs[0].shape[node.params["axis"]]
    return found


def behind(token: Node, checks: Iterable[Node]) -> Node:
    """The token of an effect, which is there once nothing has raised of what may, of what comes since the last effect:
    where eager code raises before it calls others, so does the program."""
    for check in reversed(list(checks)):
        if check.op is not None and check.op.kind == "effect":
            break
        if not same_size(check, 0):
            token = make("checked", alone(check), token)
    return token


def uncovered(outputs: Sequence[Node], checks: Iterable[Node]) -> list[Node]:
    """The checks whose errors `outputs` may not raise, whatever the passes do."""
    checks = list(checks)
    if not checks:
        return checks
    found = whole(topological(outputs), outputs)
    runs = {family(node) for node in found if fails(node) and node.op is not None and node.op.kind not in INDEXED}
    left: dict[object, Node] = {}
    for node in checks:
        assert node.op is not None
        if node.op.kind in INDEXED:
            if not same_size(operand(node), 0) and (node not in found or same_size(node, 0)):
                left.setdefault(node, node)
        elif family(node) not in runs or same_size(node, 0):
            left.setdefault(family(node), node)
    return list(left.values())


def same_size(node: Node, size: int) -> bool:
    """True for a node of so many elements. Sizes that come with the call are 2 and more."""
    return type(node.aval.size) is int and node.aval.size == size


def whole(nodes: Sequence[Node], roots: Iterable[Node], loops: Collection[str] = ()) -> set[Node]:
    """The nodes whose elements are all computed. `loops`: kinds that compute all of their result and read memory, in a
    graph that is final; without them, the nodes that no pass may remove."""
    found = set(roots)
    for node in reversed(nodes):
        if node.op is not None and (node in found or node.kind in loops) and not same_size(node, 0):
            found.add(node)
            found.update(_read(node, bool(loops)))
    return found


def _read(node: Node, final: bool) -> Iterator[Node]:
    """Operands that are read whole to compute a node."""
    assert node.op is not None
    kind, op = node.kind, node.op
    if kind == "elementwise":
        yield from _operands(node, final)
    elif kind == "movement":
        covered = op.covers(**node.params) if callable(op.covers) else op.covers
        yield from (node.inputs if op.variadic and covered else [node.inputs[op.inputs.index(x)] for x in covered])
    elif kind == "gather":
        yield operand(node)
    elif kind == "reduction":
        if "axis" in node.params and not (op.decided_by == "axis" and _long_axes(node) == _long_axes(node.inputs[0])):
            yield from node.inputs
    elif kind in ("convolution", "control"):  # some become slices; a body may not read its operands
        yield from node.inputs if final else ()
    elif kind != "creation":
        yield from node.inputs


def _long_axes(node: Node) -> int:
    """The number of axes that have not one element."""
    return sum(type(size) is not int or size != 1 for size in node.shape)


def _operands(node: Node, final: bool) -> Iterator[Node]:
    """Operands of elementwise arithmetic that count: floats do, as a nan would show; a choice may be known before."""
    assert node.op is not None
    decided_by, stored = node.op.decided_by, all(map(_is_stored, node.inputs))
    inexact = all(n.dtype.kind in "fVc" for n in node.inputs)
    if len(node.inputs) == 1:
        yield from () if node.inputs[0].dtype.kind in node.op.constant_of else node.inputs
    elif inexact and decided_by != "logic":
        yield from node.inputs
    elif all(_is_data(n, final) for n in node.inputs if n.dtype.kind == "b"):
        if decided_by in ("comparison", "extremum"):
            yield from filter(_is_stored, node.inputs)
        elif decided_by == "choice":
            yield from node.inputs if final else node.inputs[1:]  # where(c, x, x) is x
        elif decided_by != "logic" and (stored or (final and decided_by != "number")):  # x * 0 is 0 for integers
            yield from node.inputs


def _is_data(condition: Node, final: bool) -> bool:
    """True for a truth value that neither the passes nor the ranges of its operands can decide."""
    if condition.op is None:
        return bool(condition.is_input or (final and condition.shape))
    if condition.op.decided_by == "comparison":
        return any(_is_stored(n) or (final and n.dtype.kind in "fVc") for n in condition.inputs)
    if condition.kind in ("elementwise", "movement"):
        return bool(condition.inputs) and all(n.dtype.kind == "b" and _is_data(n, final) for n in condition.inputs)
    return condition.kind != "creation"


def _is_stored(node: Node) -> bool:
    """Whether a node is read from memory as it is, with a range that nothing knows."""
    while node.op is not None and (node.kind == "movement" or is_cast(node)) and len(node.inputs) == 1:
        (node,) = node.inputs
    if node.dtype.kind == "b":
        return False
    return (
        bool(node.is_input or node.shape)
        if node.op is None
        else node.kind not in ("elementwise", "creation", "movement")
    )
