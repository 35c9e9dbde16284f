"""Steps of a loop that do not need each other, as an axis of what they compute: one operation on all of them, which has
vectors, where a loop computes a few numbers at a time.

    for j: b[i, j] += (a[i+1:, i] * b[i+1:, j]).sum()   ->   b[i, :] += (a[i+1:, i] * b[i+1:, :].T).sum(axis=1)

    for j: n += 1 if a[j] > t else 0                    ->   n += where(a > t, 1, 0).sum()

A value of the step becomes one of all steps, with them along its first axis; what is the same in all steps stays. It is
done for small steps, whose values are one position along an axis of an array, and elementwise work, sums and views of
them. Which loops these are is known from the slices that steps read and write (see graph/independence.py). What steps
add to an int is the same in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .. import dtypes
from ..graph.body import steps_in
from ..graph.facts import reduced_axes
from ..graph.independence import dependence_of
from ..graph.ir import Graph, Node, apply, topological, with_inputs
from ..graph.rewrite import make
from ..record import record
from ..sizes.dims import Size, hint, is_dim, same, steps_of
from ..sizes.steps import Undecided, linear, replaced
from .loop_parts import Loop, Optimize, Results
from .patterns import is_op
from .updates import same_window

_STEP_ELEMENTS = 1 << 12  # of a value of a step: a loop over larger ones loses nothing
_BYTES = 1 << 22  # of a value of all steps, if it is in memory
_LEAST_STEPS = 4


def steps_as_axis(node: Node, operands: Sequence[Node], read: Sequence[int], optimized: Optimize) -> Results:
    """The results of a loop without the loop; nothing where its steps are to be one after the other."""
    p, body = node.params, node.params["body"]
    if p["parallel"] or p["reverse"] or p["condition"] is not None or p["counted"] or p["step"] is None:
        return {}
    if optimized(body) is not body or body.graph.checks or hint(p["length"]) < _LEAST_STEPS:
        return {}
    loop = Loop.of(node, operands)
    if not all(_is_small(n, loop) for n in body.graph.nodes()):
        return {}
    loop.substituted(_forwarded(body.graph.nodes()))
    sums = {k: term for k in range(len(loop.carries)) if (term := _term(loop, k)) is not None}
    outputs = tuple(after for *_, after in loop.carries)
    graph = Graph(body.graph.inputs, (*outputs, *loop.ys), "body")
    if any(dependence_of(graph, p, k) is not None for k in range(len(loop.carries)) if k not in sums):
        return {}
    try:
        return _of_all_steps(loop, sums, read)
    except Undecided:  # of the steps of a loop around it
        return {}


def _of_all_steps(loop: Loop, sums: Mapping[int, Node], read: Sequence[int]) -> Results:
    steps, found = _Steps(loop), Results()
    for k, (start, own, after) in enumerate(loop.carries):
        end = None if k in sums else _Update.of(loop, own, after)
        if end is None and k not in sums:
            return {}
        every = steps.of(sums[k] if end is None else end.value)
        if every is None:
            return {}
        if end is None:
            total = make("sum", every, axis=(0,), dtype=own.dtype, keepdims=False)
            found[k] = make("add", start, total)
        else:
            found[k] = end.of_all(start, every)
        found[k].where = found[k].where or after.where
    for y in loop.ys:
        every = steps.of(y)
        if every is None:
            return {}
        found[len(found)] = every
    return {k: found[k] for k in read}


def _term(loop: Loop, k: int) -> Node | None:
    """Returns the value that steps add to an int, where they need the int for nothing else."""
    _, own, after = loop.carries[k]
    if not is_op(after, "add") or own.dtype is not dtypes.int64 or own not in after.inputs or own.shape != after.shape:
        return None
    term = after.inputs[1 if after.inputs[0] is own else 0]
    others = [end for j, (*_, end) in enumerate(loop.carries) if j != k]
    return None if own in topological([term, *others, *loop.ys]) or term.shape != own.shape else term


def _forwarded(nodes: Sequence[Node]) -> dict[Node, Node]:
    """Returns what takes the place of nodes: of a read where a step has written, what it wrote; of an update of an
    update, one of the array before."""
    final: dict[Node, Node] = {}
    for node in nodes:
        operands = tuple([final.get(n, n) for n in node.inputs])
        if is_op(node, "slice", "slice_update") and is_op(operands[0], "slice_update"):
            array, value = operands[0].inputs
            if node.params["steps"] and operands[0].params["steps"] and same_window(node, operands[0]):
                if is_op(node, "slice_update"):
                    operands = (array, *operands[1:])
                elif value.aval == node.aval:
                    final[node] = value
                    continue
        if operands != node.inputs:
            final[node] = with_inputs(node, operands)
    return final


def _is_small(node: Node, loop: Loop) -> bool:
    """Whether the values of a node in all steps are few, or an array that steps take parts of."""
    if node.is_input or node.op is None or is_op(node, "slice_update"):
        return True
    size = hint(node.aval.size)
    return size <= _STEP_ELEMENTS and size * hint(loop.length or 1) * node.dtype.itemsize <= _BYTES


@record
class _Window:
    """A slice, or an update of one, that is one position of an axis in a step, and the next in the next."""

    axis: int
    starts: tuple[Size, ...]
    stops: tuple[Size, ...]
    steps: tuple[int, ...]

    @staticmethod
    def of(loop: Loop, node: Node) -> _Window | None:
        """The window of all steps; None where it is another one in each step."""
        starts, stops, steps = (node.params[name] for name in ("starts", "stops", "steps"))
        steps = steps or (1,) * len(starts)
        moving = [(k, s) for k, ends in enumerate(zip(starts, stops, strict=True)) for s in steps_of(*ends)]
        axes = {k for k, s in moving if s.name == loop.step}
        if len(axes) != 1 or loop.length is None:
            return None
        (axis,) = axes
        start, stop = starts[axis], stops[axis]
        atom = next(s for k, s in moving if s.name == loop.step)
        factor, rest = linear(start, atom) if is_dim(start) else (0, start)
        turns = any(s.name == loop.step for s in steps_of(rest))  # as `i % 6` does
        if steps[axis] != 1 or not same(stop - start, 1) or type(factor) is not int or factor != 1 or turns:
            return None
        first = replaced(start, str(loop.step), loop.first)
        starts, stops = ((*of[:axis], n, *of[axis + 1 :]) for of, n in ((starts, first), (stops, first + loop.length)))
        return _Window(axis, starts, stops, tuple(steps))

    @property
    def bounds(self) -> dict[str, Any]:
        return {"starts": self.starts, "stops": self.stops, "steps": self.steps}


@record
class _Update:
    """The update of a carry: the value of a step, as large as its window."""

    value: Node
    window: _Window

    @staticmethod
    def of(loop: Loop, own: Node, after: Node) -> _Update | None:
        if not is_op(after, "slice_update") or after.inputs[0] is not own:
            return None
        window, value = _Window.of(loop, after), after.inputs[1]
        bounds = zip(after.params["starts"], after.params["stops"], strict=True)
        whole = len(value.shape) == len(after.shape) and all(
            same(n, stop - start) for n, (start, stop) in zip(value.shape, bounds, strict=True)
        )
        return _Update(value, window) if window is not None and whole else None

    def of_all(self, start: Node, value: Node) -> Node:
        """The array after all steps; `value` has them along its first axis."""
        axis, (n, *shape) = self.window.axis, value.shape
        others = shape[:axis] + shape[axis + 1 :]
        value = make("reshape", value, shape=(n, *others))
        order = [k + 1 for k in range(len(others))]
        value = make("permute_dims", value, axes=(*order[:axis], 0, *order[axis:]))
        return make("slice_update", start, value, **self.window.bounds)


class _Steps:
    """Values of a step as values of all steps, which have them along their first axis where they are not the same."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.length = loop, loop.length
        self.known: dict[Node, tuple[Node, bool]] = {own: (start, False) for start, own in loop.consts}
        self.known |= {own: (start, False) for start, own, _ in loop.carries}
        self.known |= {own: (x, True) for x, own in loop.xs}

    def of(self, value: Node) -> Node | None:
        """The value of all steps; None where there is no such operation."""
        for node in topological([value], self.known):
            if node not in self.known:
                made = self._of_node(node)
                if made is None:
                    return None
                self.known[node] = made
        found, varies = self.known[value]
        return found if varies else make("broadcast_to", found, shape=(self.length, *value.shape))

    def _of_node(self, node: Node) -> tuple[Node, bool] | None:
        if node.op is None:
            return node, False
        operands = [self.known[n] for n in node.inputs]
        moves = self.loop.step in steps_in(node)
        if not moves and not any(varies for _, varies in operands):
            return apply(node.op, [n for n, _ in operands], node.params), False
        if moves:
            found = self._part(node, *operands[0]) if is_op(node, "slice") else None
        elif node.kind == "elementwise" and node.op.element_map == "broadcast" and "body" not in node.params:
            found = apply(node.op, [self._lifted(*x, len(x[0].shape) - x[1], node) for x in operands], node.params)
        else:
            found = self._moved(node, operands[0][0])
        if found is None or (found.dtype, found.aval.weak) != (node.dtype, node.aval.weak):
            return None
        found.where = found.where or node.where
        shape = (self.length, *node.shape)
        alike = len(shape) == len(found.shape) and all(same(n, m) for n, m in zip(found.shape, shape, strict=True))
        return (found, True) if alike else None

    def _part(self, node: Node, array: Node, varies: bool) -> Node | None:
        """The parts of an array that steps take."""
        window = None if varies else _Window.of(self.loop, node)
        if window is None:
            return None
        part = make("slice", array, **window.bounds)
        others = [k for k in range(len(part.shape)) if k != window.axis]
        part = make("permute_dims", part, axes=(window.axis, *others))
        return make("reshape", part, shape=(self.length, *node.shape))

    def _lifted(self, found: Node, varies: bool, rank: int, node: Node) -> Node:
        """An operand whose other axes are the last ones of a result's."""
        more = len(node.shape) - rank
        if not varies or not more:
            return found
        return make("reshape", found, shape=(self.length, *(1,) * more, *found.shape[1:]))

    def _moved(self, node: Node, found: Node) -> Node | None:
        """A view or a sum of a value, of all steps."""
        p, length = node.params, self.length
        match node.op.name if node.op else "":
            case "reshape":
                return make("reshape", found, shape=(length, *p["shape"]))
            case "permute_dims":
                return make("permute_dims", found, axes=(0, *(k + 1 for k in p["axes"])))
            case "slice":
                window = {"starts": (0, *p["starts"]), "stops": (length, *p["stops"]), "steps": (1, *p["steps"])}
                return make("slice", found, **window)
            case "broadcast_to":
                return make(
                    "broadcast_to", self._lifted(found, True, len(found.shape) - 1, node), shape=(length, *p["shape"])
                )
        axes = reduced_axes(node)
        if not axes or type(p["axis"]) is not tuple or node.op is None:
            return None
        return apply(node.op, [found], {**p, "axis": tuple(k + 1 for k in axes)})
