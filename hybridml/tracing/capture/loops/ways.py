"""Two ways of a branch in one: what both compute alike is computed once, of operands that data chooses.

    where(c, f(1, x), f(0, x))                     ->  f(where(c, 1, 0), x)
    where(c, loop(x) of body f, loop(x) of body g) ->  loop(c, x) of the body where(c, f, g), which is joined in turn

Else each way would be computed as a whole, loops in it too, and whole arrays chosen that differ in an element. It is
done where that is no more to compute: an element that is chosen counts as one that is computed a second time. It is the
anti-unification of terms (Plotkin, "A note on inductive generalization", 1970).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hybridml_compiler.aval import Aval
from hybridml_compiler.dtypes import bool_
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.body import body_of
from hybridml_compiler.graph.updates import carry_position
from hybridml_compiler.ops.control import LOOP
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.sizes.dims import hint, is_dim, same
from hybridml_compiler.walk import postorder

Pair = tuple[ir.Node, ir.Node]
_slice, _update, _where, _broadcast = OPS["slice"], OPS["slice_update"], OPS["where"], OPS["broadcast_to"]
_reshape = OPS["reshape"]
_rows, _set_rows = OPS["take"], OPS["scatter_set"]
_and, _bits, _not = OPS["logical_and"], OPS["bitwise_and"], OPS["logical_not"]


def joined(
    question: ir.Node, yes: Sequence[ir.Node], no: Sequence[ir.Node], around: ir.Node | None = None
) -> list[ir.Node]:
    """The values after True where the answer is True, else those after False. `around`: where this is false nobody
    looks at them, but for arrays that are updated, which are as they were."""
    return Joined(question, yes, no, around).nodes()


class Joined:
    """Pairs of nodes, what they have in common, and how many elements are left to choose."""

    def __init__(
        self, question: ir.Node, yes: Sequence[ir.Node], no: Sequence[ir.Node], around: ir.Node | None = None
    ) -> None:
        self.question, self.around = question, around
        self.wanted = list(zip(yes, no, strict=True))
        self.bodies: dict[Pair, Joined] = {}  # of loops whose bodies differ
        self.into: dict[Pair, list[Pair]] = {}  # the operands that are chosen instead of a pair
        self.least: dict[Pair, Mapping[Pair, int]] = {}  # the pairs that are chosen for a pair, and their elements
        for pair in postorder(self.wanted, _operands):
            self.least[pair] = self._choices(pair)

    @property
    def choices(self) -> int:
        return sum(self._together(self.wanted).values())

    def _together(self, pairs: Sequence[Pair]) -> Mapping[Pair, int]:
        """The pairs that are chosen for all of these: once, where several of them have one."""
        return {one: size for pair in pairs for one, size in self.least[pair].items()}

    def nodes(self) -> list[ir.Node]:
        made: dict[Pair, ir.Node] = {}
        for pair in postorder(self.wanted, lambda p: self.into.get(p, ())):
            made[pair] = self._made(pair, [made[p] for p in self.into[pair]] if pair in self.into else None)
        return [made[pair] for pair in self.wanted]

    def _choices(self, pair: Pair) -> Mapping[Pair, int]:
        a, b = pair
        if a is b:
            return {}
        size, below = _elements(self.question, a, b), _operands(pair)
        itself = {pair: size}
        first, second, _ = _since(self.question, a, b)
        if not below or a in second or b in first:
            return itself
        whole, found = 2 * size, self._together(below)
        if a.op is LOOP:
            whole += len(a.params["body"].graph.nodes())  # else each of them is computed twice
            if a.params["body"] is not b.params["body"]:
                self.bodies[pair] = _bodies(*pair)
                found = {**found, pair: self.bodies[pair].choices}
        if sum(found.values()) > whole:
            return itself
        self.into[pair] = list(below)
        return found

    def _made(self, pair: Pair, operands: list[ir.Node] | None) -> ir.Node:
        if operands is None:
            return chosen(self.question, *pair, self.around)
        node = pair[0]
        if pair not in self.bodies:
            return ir.with_inputs(node, tuple(operands))
        body, params = self.bodies[pair], dict(node.params)
        given = (body.question, *params["body"].graph.inputs)
        params |= {"body": body_of(ir.Graph(given, tuple(body.nodes()))), "consts": params["consts"] + 1}
        operands.insert(params["counted"], self.question)
        return ir.apply(LOOP, operands, params, node.where)


def _bodies(a: ir.Node, b: ir.Node) -> Joined:
    first, second = (node.params["body"].graph for node in (a, b))
    others = substituted(second.outputs, dict(zip(second.inputs, first.inputs, strict=True)))
    return Joined(ir.input_node(Aval((), bool_)), first.outputs, others)


def _operands(pair: Pair) -> Sequence[Pair]:
    """The operands of two nodes that are alike but for these, and for bodies of loops; none of other nodes."""
    a, b = pair
    if a is b or a.op is None or a.op is not b.op or len(a.inputs) != len(b.inputs) or not _alike(a, b):
        return ()
    below = list(zip(a.inputs, b.inputs, strict=True))
    # A chosen number has a dtype of its own, where Python's numbers take that of others.
    return below if all(x is y or (x.aval == y.aval and not x.aval.weak) for x, y in below) else ()


def _alike(a: ir.Node, b: ir.Node) -> bool:
    if a.op is not LOOP or a.params["body"] is b.params["body"]:
        return _are_equal(a.params, b.params)
    bodies = a.params["body"], b.params["body"]
    if any(body.graph.checks for body in bodies) or bodies[0].inputs != bodies[1].inputs or a.params["condition"]:
        return False
    return _are_equal({**a.params, "body": None}, {**b.params, "body": None})


def _are_equal(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Whether parameters are equal by their form, whatever steps decide."""
    return a.keys() == b.keys() and all(_is_same(value, b[name]) for name, value in a.items())


def _is_same(a: Any, b: Any) -> bool:
    if is_dim(a) or is_dim(b):
        return same(a, b)
    if type(a) is tuple and type(b) is tuple:
        return len(a) == len(b) and all(map(_is_same, a, b))
    return bool(a == b)


def _elements(question: ir.Node, a: ir.Node, b: ir.Node) -> int:
    """The number of elements that are chosen one by one."""
    first, second, common = _since(question, *_flat(a, b))
    if common is None:
        return hint(a.aval.size)
    updates = [*first[: first.index(common)], *second[: second.index(common)]]
    return sum(hint(update.inputs[-1].aval.size) for update in updates if update.op is not LOOP)


def chosen(question: ir.Node, a: ir.Node, b: ir.Node, around: ir.Node | None = None) -> ir.Node:
    """`a` where the answer is True, else `b`. Updates of one array are chosen slice by slice and row by row, so that it
    can be updated in place; loops that update it have no step where the answer is another one."""
    if a is b:
        return a
    flat = _flat(a, b)
    if flat[0].shape != a.shape:
        return ir.apply(_reshape, [chosen(question, *flat, around)], {"shape": a.shape})
    first, second, common = _since(question, a, b)
    if common is None:
        return ir.apply(_where, [question, a, b])
    array = common
    for history, answer in ((first, True), (second, False)):
        becomes = {common: array}
        for update in reversed(history[: history.index(common)]):
            is_moved = array is not _before(update)
            if is_moved and update.op is LOOP:
                return ir.apply(_where, [question, a, b])
            spared = not is_moved and _spares(update, question, answer)
            array = becomes[update] = update if spared else _masked(update, array, becomes, question, answer, around)
    return array


def _masked(
    update: ir.Node, array: ir.Node, becomes: Mapping[ir.Node, ir.Node], question: ir.Node, answer: bool,
    around: ir.Node | None,
) -> ir.Node:  # fmt: skip
    """The update of an array, which leaves it as it is where the answer is another one."""
    *at, value = substituted(update.inputs[1:], becomes)
    window = dict(update.params)
    old = ir.apply(_rows if at else _slice, [array, *at], window)
    if value.shape != old.shape:
        value = ir.apply(_broadcast, [value], {"shape": old.shape})
    if around is not None:
        question = ir.apply(_and, [around, question if answer else ir.apply(_not, [question])])
    value = ir.apply(_where, [question, value, old] if answer or around is not None else [question, old, value])
    return ir.apply(_set_rows if at else _update, [array, *at, value], window, update.where)


def _spares(update: ir.Node, question: ir.Node, answer: bool) -> bool:
    """Whether an update leaves its array as it is where the answer is another one: so has a loop that has no step."""
    if update.op is not LOOP:
        value = update.inputs[-1]
        if value.op is not _where:
            return False
        taken, _, old = value.inputs
        is_old = (
            old.op in (_rows, _slice) and old.inputs == update.inputs[:-1] and _are_equal(old.params, update.params)
        )
        return is_old and _implies(taken, question, answer)
    counted, condition = update.params["counted"], update.params["condition"]
    if counted:
        count = update.inputs[0]
        is_none = count.op is _where and count.inputs[2].value is not None and not count.inputs[2].value.any()
        return is_none and _implies(count.inputs[0], question, answer)
    graph = None if condition is None else condition.graph
    if graph is None or graph.outputs[0] not in graph.inputs:
        return False
    return _implies(update.inputs[graph.inputs.index(graph.outputs[0])], question, answer)


def _implies(taken: ir.Node, question: ir.Node, answer: bool) -> bool:
    """Whether a condition is a conjunction with this answer in it."""
    if taken.op in (_and, _bits):
        return any(_implies(part, question, answer) for part in taken.inputs)
    return taken is question if answer else taken.op is _not and taken.inputs[0] is question


def _flat(a: ir.Node, b: ir.Node) -> Pair:
    """Two arrays in the shape in which elements of one are updated: `x[i, j] = v` is an update of x as one row."""
    for node in map(_whole, (a, b)):
        if node.op is _reshape and (updated := _whole(node.inputs[0])).op is _set_rows:
            return _in_shape(a, updated.shape), _in_shape(b, updated.shape)
    return a, b


def _in_shape(node: ir.Node, shape: tuple[Any, ...]) -> ir.Node:
    return _whole(ir.apply(_reshape, [node], {"shape": shape}))


def _since(question: ir.Node, a: ir.Node, b: ir.Node) -> tuple[list[ir.Node], list[ir.Node], ir.Node | None]:
    """The histories of two arrays, and the last array that both were."""
    first, second = _history(a, question, True), _history(b, question, False)
    known = set(second)
    return first, second, next((node for node in first if node in known), None)


def _history(node: ir.Node, question: ir.Node, answer: bool) -> list[ir.Node]:
    """An array, and what it was before each of its last updates: by loops too that have no step where the answer is
    another one."""
    found = [node := _whole(node)]
    while (before := _before(node)) is not None and (node.op is not LOOP or _spares(node, question, answer)):
        found.append(node := before)
    return found


def _before(node: ir.Node) -> ir.Node | None:
    """The array that is updated there, or of which a loop only updates elements."""
    if node.op is None or not (node.op is LOOP or node.op.is_update or node.op is _set_rows):
        return None
    if node.op is LOOP:
        body, k = node.params["body"].graph, node.params["result"]
        if k >= node.params["carries"]:
            return None
        at: ir.Node | None = _whole(body.outputs[k])
        while at is not None and at is not body.inputs[node.params["consts"] + k]:
            at = _before(at)
        return None if at is None else _whole(node.inputs[carry_position(node)])
    return _whole(node.inputs[0])


def _whole(node: ir.Node) -> ir.Node:
    """The array that `x[...]` shows, which is rows of the same."""
    while node.op is _reshape:
        below = _whole(node.inputs[0])
        of = below.inputs[0] if below.op is _reshape and node.shape != below.shape else below
        if node.shape != of.shape:
            return node if of is node.inputs[0] else ir.apply(_reshape, [of], {"shape": node.shape})
        node = of
    return node


def substituted(outputs: Sequence[ir.Node], becomes: Mapping[ir.Node, ir.Node]) -> list[ir.Node]:
    final = dict(becomes)
    for node in postorder(outputs, lambda n: () if n in becomes else n.inputs):
        if node not in final:
            inputs = tuple([final[n] for n in node.inputs])
            final[node] = node if inputs == node.inputs else ir.with_inputs(node, inputs)
    return [final[n] for n in outputs]
