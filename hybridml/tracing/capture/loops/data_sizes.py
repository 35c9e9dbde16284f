"""Slices whose ends data decides, in the steps of loops: `x[a[i]:a[i + 1]]` has as many elements as a symbol says.

That is a symbol as the number of a step is one, so that all is done with them that is done with slices `x[:i]`. In the
body of the loop whatever has such a size in it is computed by a loop of one step, whose number is the size:

    y[i] = x[n:m].sum()         for s in range(m - n, m - n + 1):       the size
                                    for b in range(n, n + 1):           the place, where that is not said by the size
                                        y[i] = x[b:b + s].sum()

Ends beyond the array are those of the array, as in Python. One that counts from the end where that was not to be seen
(`n` below 0, `-n` not below 0), and sizes that were to be equal and are not, are found by a check: Python makes the
call then, with its results or its error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from hybridml_compiler.dtypes import int64
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.body import body_of, family, steps_in
from hybridml_compiler.graph.checks import alone, fails
from hybridml_compiler.graph.updates import old_of
from hybridml_compiler.ops.control import LOOP
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record
from hybridml_compiler.sizes.dims import LEAST, Size, at_most, hint, is_dim, steps_of, symbol
from hybridml_compiler.sizes.steps import Undecided, is_step
from hybridml_compiler.walk import postorder

from ....core.context import current_interpreter
from ....core.proxies.integer import IntProxy
from ....core.proxies.scalar import ScalarProxy
from ....core.tensor import Tensor
from ...specialize.errors import StepByStep
from ..numbers.stored_ints import is_of_data
from ..traced_tensor import Traced
from .taken import fails_where
from .whole import is_whole

_MOST_SYMBOLS = 32  # of a step: each has a place in a table of sizes
_MOST_TERMS = 40  # of the form of a number, which is there to know equal sizes
Form = tuple[frozenset[tuple[ir.Node, int]], Size]  # factors of numbers of the graph, and what is added


@record
class DataSize:
    """A symbol, `number - least + LEAST`, for an int64 of a step that is from `least` to `most`."""

    name: str
    value: ir.Node
    least: int
    most: Size

    @property
    def number(self) -> Any:
        end = self.most - self.least + LEAST
        return symbol(self.name, max(LEAST, (hint(end) + LEAST) // 2), end) + (self.least - LEAST)


@record(frozen=False, eq=False)
class DataSizes:
    """The symbols of a step, by the forms of what they stand for. `place`: of its loop; `depth`: the number of loops
    around it; `learnt`: names of symbols that are not 0, and names with how far they are below what is known first."""

    place: Any = None
    depth: int = 0
    learnt: Sequence[Any] = ()
    found: dict[Any, DataSize] = field(default_factory=dict)

    @staticmethod
    def of(tracer: Any, place: Any) -> DataSizes:
        """The symbols of a step that begins now: there are none yet."""
        return DataSizes(place, len(tracer.loops) + 1, tracer.alone.get(place, ()))

    def size(self, tracer: Any, form: Form, value: Tensor, most: Size) -> DataSize:
        """The symbol for the number of elements of a slice: the same one for the same form."""
        known = self.found.get(form)
        if known is None:
            name = self._next()
            least = int(name in self.learnt)
            for less in (by for of, by in (n for n in self.learnt if type(n) is tuple) if of == name):
                most = most - less if at_most(less, most) else most
                value = OPS["minimum"].fn(value, _tensor(tracer, most))
            value = OPS["maximum"].fn(value, least)
            known = self.found[form] = DataSize(name, value._array, least, most)
        elif not at_most(known.most, most):  # of another array, which is shorter
            less = known.most - most  # the same for arrays of other sizes, when the loop comes again
            raise StepByStep(self.place, "slices of several arrays differ in their sizes", ((known.name, less),))
        return known

    def start(self, key: Any, value: Tensor, most: Size) -> DataSize:
        """The symbol for the place of a slice."""
        return self.found.setdefault(key, DataSize(self._next(), value._array, 0, most))

    def _next(self) -> str:
        if len(self.found) >= _MOST_SYMBOLS:
            raise StepByStep(self.place, "it has too many slices whose ends data decides")
        return f"i{_MOST_SYMBOLS * (self.depth + 1) + len(self.found)}"  # behind the numbers of loops and segments

    def learns(self, error: Undecided) -> str | None:
        """The name of a size that is to be above 0, which the framework has asked for; None where that is no news."""
        names = {size.name for size in self.found.values() if not size.least} & (error.steps - {*self.learnt})
        return min(names) if names and error.asked is not None and error.inside else None


def placed(x: Tensor, key: Any) -> Any:
    """The key of a slice with symbols in the places of ends that data decides, in the step of a loop."""
    parts = key if type(key) is tuple else (key,)
    tracer: Any = current_interpreter()
    if any(map(is_step, parts)) and getattr(tracer, "loops", None):
        parts = _with_places(tracer, x, parts)
        key = parts if type(key) is tuple else parts[0]
    if not any(type(k) is slice and (of_data(k.start) or of_data(k.stop)) for k in parts):
        return key
    loop = tracer.loops[-1] if getattr(tracer, "loops", None) else None
    taken = sum(k is not None and k is not Ellipsis for k in parts)
    if loop is None or tracer.frames[-1] is not loop.region or tracer.stages is not None or taken > x.ndim:
        return key
    found, axis = list[Any](), 0
    for k in parts:
        decided = type(k) is slice and k.step in (None, 1) and (of_data(k.start) or of_data(k.stop))
        found.append(_slice(tracer, loop.sizes, k, x.shape[axis]) if decided else k)
        axis += x.ndim - taken if k is Ellipsis else k is not None
    return tuple(found) if type(key) is tuple else found[0]


def _with_places(tracer: Any, x: Tensor, parts: Sequence[Any]) -> tuple[Any, ...]:
    """The parts of a key with ints of the program for numbers of steps that may be below 0, or beyond the array, in
    loops that are not parted there."""
    whole = {loop.name for loop in tracer.loops if is_whole(tracer, loop.place)}
    found, axis, taken = list[Any](), 0, sum(k is not None and k is not Ellipsis for k in parts)
    for k in parts:
        size = x.shape[axis] if axis < x.ndim else 0
        if is_step(k) and {s.name for s in steps_of(k)} & whole and not (at_most(0, k) and at_most(k, size - 1)):
            k = IntProxy(tracer, ScalarProxy(tracer.size(k)), None)
        found.append(k)
        axis += x.ndim - taken if k is Ellipsis else k is not None
    return tuple(found)


Traced._placed = placed  # type: ignore[assignment, method-assign]


def of_step(tracer: Any, key: Any) -> bool:
    """Whether steps of loops decide about the places of a key: by their numbers, or by ints of the program."""
    parts = key if type(key) is tuple else (key,)
    places = [k for k in parts if type(k) is not slice]
    ends = [end for k in parts if type(k) is slice for end in (k.start, k.stop, k.step)]
    decided = any(map(of_data, ends)) or any(map(is_of_data, places))
    return any(map(is_step, (*places, *ends))) or (decided and bool(tracer.loops))


def of_data(end: Any) -> bool:
    """Whether a place, or an end of a slice, is an int of the program."""
    if is_of_data(end):
        return True
    if issubclass(type(end), Tensor):
        return end.dtype.kind in "iu" and end.shape == ()
    return getattr(type(end), "as_index", None) is not None and end.as_index() is not None


@record
class _End:
    """An end of a slice: a size of the program, or its value with its form, and whether it is no such end."""

    value: Any
    form: Form
    wrong: Tensor | None = None


def _slice(tracer: Any, sizes: DataSizes, k: slice, size: Size) -> slice:
    low = _end(tracer, 0 if k.start is None else k.start, size)
    high = _end(tracer, size if k.stop is None else k.stop, size)
    most = (size if _is_tensor(high.value) else high.value) - (0 if _is_tensor(low.value) else low.value)
    between, form = _tensor(tracer, high.value) - _tensor(tracer, low.value), _combined(high.form, low.form, -1)
    count = OPS["maximum"].fn(between, 0)
    if form[0] and at_most(0, most):
        known = sizes.size(tracer, form, count, most)
        number, value = known.number, tracer.wrap(known.value)
    elif not form[0] and at_most(0, form[1]) and at_most(form[1], size):
        number, value = form[1], _tensor(tracer, form[1])
    else:
        return k
    if not _is_tensor(low.value):
        start = low.value
    elif not _is_tensor(high.value):
        start = high.value - number
    else:
        at = OPS["minimum"].fn(low.value, _tensor(tracer, size) - value)
        start = sizes.start((low.form, form, size), at, size - number).number
    for wrong in (low.wrong, high.wrong, None if value._array is count._array else OPS["not_equal"].fn(count, value)):
        if wrong is not None:
            fails_where(tracer, wrong)
    return slice(start, start + number)


def _end(tracer: Any, end: Any, size: Size) -> _End:
    if not of_data(end):
        end = end + size if end < 0 else end
        end = 0 if end < 0 else size if end > size else end
        return _End(end, (frozenset(), end))
    value: Any = OPS["astype"].fn(tracer.lift(end) if issubclass(type(end), Tensor) else end.as_index(), int64)
    form = _form(end._number._tensor._array if type(end) is IntProxy else value._array)
    from_end = bool(form[0]) and type(form[1]) is int and form[1] <= 0 and all(factor < 0 for _, factor in form[0])
    if from_end:
        whole = _tensor(tracer, size)
        taken = OPS["minimum"].fn(OPS["maximum"].fn(OPS["negative"].fn(value), 0), whole)
        return _End(whole - taken, _combined((frozenset(), size), form, 1), value >= 0)
    return _End(OPS["minimum"].fn(OPS["maximum"].fn(value, 0), _tensor(tracer, size)), form, value < 0)


def _is_tensor(value: Any) -> bool:
    return issubclass(type(value), Tensor)


def _tensor(tracer: Any, value: Any) -> Any:
    if _is_tensor(value):
        return value
    return tracer.wrap(ir.apply(OPS["full"], [], {"shape": (), "value": value, "dtype": int64}))


# -- forms of numbers: they tell which sizes are to be equal, and which ends count from the end


def _form(node: ir.Node, factor: int = 1, depth: int = 0) -> Form:
    """The number as a sum of others with factors; what it is not taken for, a check finds."""
    name, value = "" if node.op is None else node.op.name, _size(node)
    if value is not None:
        return frozenset(), value * factor
    if depth < _MOST_TERMS:
        if name in ("add", "subtract"):
            first, second = (_form(n, factor, depth + 1) for n in node.inputs)
            return _combined(first, second, 1 if name == "add" else -1)
        if name == "negative":
            return _form(node.inputs[0], -factor, depth + 1)
        if name in ("astype", "reshape") and node.aval.size == 1:
            return _form(node.inputs[0], factor, depth + 1)
        if name == "multiply":
            for one, other in (node.inputs, node.inputs[::-1]):
                if type(by := _size(one)) is int:
                    return _form(other, factor * by, depth + 1)
    return frozenset(((node, factor),)), 0


def _size(node: ir.Node) -> Size | None:
    """The number of a literal, or a size."""
    found: Any = node.params["value"] if node.op is OPS["full"] else None
    if node.value is not None and node.value.size == 1:
        found = node.value.item()
    is_whole = type(found) is int or (type(found) is float and found.is_integer())
    return int(found) if is_whole else found if is_dim(found) else None


def _combined(a: Form, b: Form, factor: int) -> Form:
    total = dict(a[0])
    for node, by in b[0]:
        total[node] = total.get(node, 0) + by * factor
    return frozenset((node, by) for node, by in total.items() if by), a[1] + b[1] * factor


# -- the loops of one step


def within_loops(outputs: Sequence[ir.Node], sizes: Sequence[DataSize], place: Any) -> list[ir.Node]:
    """The nodes of a body, where what has these sizes in it is computed in loops of one step. `place`: of its loop."""
    of = {s.name: s for s in sizes}

    def mentioned(node: ir.Node) -> set[str]:
        return {*steps_in(node), *(s.name for n in node.inputs for s in steps_of(*n.shape))} & of.keys()

    def operands(node: ir.Node) -> list[ir.Node]:
        return [*node.inputs, *(of[name].value for name in mentioned(node))]

    order = postorder(outputs, operands)
    inside = {node for node in order if any(s.name in of for s in steps_of(*node.shape))}
    if any(node in inside for node in outputs):
        raise StepByStep(place, "a slice whose size data decides is used after its step")
    apart = {*outputs, *(size.value for size in sizes)}
    whole = _in_whole(order, {node: bool(mentioned(node)) for node in order}, inside, apart)
    final: dict[ir.Node, ir.Node] = {}
    for node in order:
        if node in whole and whole[node] == {node}:
            own = {n for n, ends in whole.items() if node in ends}
            final[node] = _in_one_step(node, own, final, of)
        elif node not in whole:
            given = tuple([final[n] for n in node.inputs])
            final[node] = node if given == node.inputs else ir.with_inputs(node, given)
    return [final[node] for node in outputs]


def checks_outside(checks: Sequence[ir.Node], names: set[str]) -> list[ir.Node]:
    """The checks of a body as values without such sizes. Another result of a loop stands for one of such a size."""
    inside = {node for node in checks if any(s.name in names for s in steps_of(*node.shape))}
    runs = {family(node) for node in checks if node not in inside}
    return [alone(n) if n in inside else n for n in checks if n not in inside or family(n) not in runs]


def _in_whole(
    order: Sequence[ir.Node], mentioned: dict[ir.Node, bool], inside: set[ir.Node], apart: set[ir.Node]
) -> dict[ir.Node, set[ir.Node]]:
    """The nodes with which loops end that compute a node, for each that has such a size in it: itself, where others
    read it than one such loop."""
    read = ir.users(order)
    found: dict[ir.Node, set[ir.Node]] = {}
    for node in reversed(order):
        if node in inside or mentioned[node]:
            ends = [found.get(reader, {node}) for reader in read[node]]
            together = set().union(*ends)
            alone = node in apart or len(together) != 1 or node in together
            found[node] = together if node in inside or not alone else {node}
    return found


def _in_one_step(
    node: ir.Node, own: set[ir.Node], final: dict[ir.Node, ir.Node], of: dict[str, DataSize]
) -> ir.Node:  # fmt: skip
    """The value of a node as the carry of loops of one step, one for each symbol in it, which compute `own`."""
    order = postorder([node], lambda n: n.inputs if n in own else ())
    names = {name for n in own for name in steps_in(n) if name in of}
    names |= {s.name for name in names for s in steps_of(of[name].most) if s.name in of}
    given = [n for n in order if n not in own and not n.is_constant]
    base = old_of(node)
    while base is not None and base in own:
        base = old_of(base)
    start = final[base] if base in final else ir.apply(OPS["full"], [], _zeros(node))
    stand = {n: ir.input_node(n.aval, n.name) for n in given}
    carry = stand[base] if base in stand else ir.input_node(start.aval)
    made = _with_others([node], stand)
    consts = {stand[n]: final[n] for n in given if n is not base}
    root, checks = made[node], [made[n] for n in order if n in own and fails(n)]
    for name in sorted(names, key=lambda name: -int(name[1:])):  # ends of later ones are made of earlier ones
        size = of[name]
        value = begin = ir.input_node(size.value.aval)
        if size.least:
            begin = ir.apply(OPS["subtract"], [value, ir.constant(size.least, int64)])
        graph = ir.Graph((*consts, carry), (root,), checks=tuple(checks))
        outer = {n: ir.input_node(n.aval, n.name) for n in consts}
        again = ir.input_node(carry.aval, carry.name)
        end = ir.apply(OPS["add"], [begin, ir.constant(1, int64)])
        params = {
            "body": body_of(graph), "condition": None, "consts": len(consts), "carries": 1, "counted": 2,
            "length": size.most - size.least + 1, "reverse": False, "step": name, "first": LEAST, "parallel": False,
            "result": 0,
        }  # fmt: skip
        root = ir.apply(LOOP, [end, begin, *outer.values(), again], params, node.where)
        checks = [root] if checks else []
        consts = {value: final[size.value], **{outer[n]: around for n, around in consts.items()}}
        carry = again
    return _with_others([root], {**consts, carry: start})[root]


def _with_others(roots: Sequence[ir.Node], others: dict[ir.Node, ir.Node]) -> dict[ir.Node, ir.Node]:
    """The nodes that `roots` are made of, and what they are with others in the places of some."""
    found = dict(others)
    for node in postorder(roots, lambda n: () if n in others else n.inputs):
        if node not in found:
            inputs = tuple([found[n] for n in node.inputs])
            found[node] = node if inputs == node.inputs else ir.with_inputs(node, inputs)
    return found


def _zeros(node: ir.Node) -> dict[str, Any]:
    return {"shape": node.shape, "value": False if node.dtype.kind == "b" else 0, "dtype": node.dtype}
