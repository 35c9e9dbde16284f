"""A long Python loop whose body repeats becomes a loop of the graph: it compiles in the time of one step.

    %5 = tanh(%4); %9 = tanh(%8); ...      anchors: nodes of one operation, type and line
    steps: the nodes that an anchor is computed from, and anchors before it are not
    equal steps, node by node, that read   -> carries    results of the step before
                                              constants  values from outside, the same for all
                                              slices     x[t], x[t + 1], ... of one array; numbers that change

Only in graphs that are long: a loop costs a launch and a table of pointers per step, and fuses nothing across steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from ..errors import LOCATION, CompileWarning, warn
from ..graph.body import body_of
from ..graph.ir import Graph, Node, apply, constant, input_node, topological, users, with_inputs
from ..graph.rewrite import make
from ..ops.control import LOOP
from ..record import record
from ..walk import postorder
from . import patterns

_FEWEST = 32  # steps
_MANY = 100  # steps that are worth a word where they cannot be rolled
_TRIED = 12  # anchors: their steps are collected in one walk over the graph each, unless `_may_repeat` sees why not
_DEPTH, _PAIRS = 8, 64  # how far `_alike` looks: operands of operands, and how many in all

Step = list[Node]
Cuts = dict[Node, "_Slice"]  # the nodes of a graph that are slices
Reference = tuple[str, int]  # "own" or "before" and a position, or "given" and a position among operands that vary


def roll_loops(graph: Graph) -> Graph:
    """Rolls repeated steps into loops, one after the other, while the graph is long."""
    while len(graph.nodes()) > patterns.LONG:
        nodes = graph.nodes()
        cuts, anchors = _cuts(nodes), _anchors(nodes)
        rolled = _roll(graph, nodes, cuts, anchors)
        if rolled is None:
            _report(graph, nodes, cuts, anchors)
            return graph
        graph = rolled
    return graph


def _report(graph: Graph, nodes: Sequence[Node], cuts: Cuts, candidates: Sequence[Sequence[Node]]) -> None:
    """Say which line repeats, if there is one, that must be compiled step by step."""
    # A line's operation that comes least often is tried: it comes once per step, and its others begin the same steps
    # elsewhere.
    of_line = {anchors[0].where: anchors for anchors in candidates if len(anchors) > _MANY}
    for where, anchors in of_line.items():
        loop = _loop(anchors, nodes, cuts, _MANY, exact=False) if where else None
        if loop is not None:
            size = len(loop.steps) * len(loop.steps[0])
            warn(
                f"{graph.name}: a loop of {len(loop.steps)} steps is compiled step by step, {size} operations, because "
                "the steps read different arrays; put those into one array, or use hm.scan over it"
                f"{LOCATION}{where}",
                CompileWarning,
            )
            return


def _roll(graph: Graph, nodes: Sequence[Node], cuts: Cuts, candidates: Sequence[Sequence[Node]]) -> Graph | None:
    """The graph with the loop that covers the most."""
    covered: set[Node] = set()  # anchors among them would give the same steps, begun elsewhere
    best, most = None, 0
    for anchors in candidates:
        loop = None if anchors[len(anchors) // 2] in covered else _loop(anchors, nodes, cuts)
        size = 0 if loop is None else len(loop.steps) * len(loop.steps[0])
        if loop is not None and size > most:
            rolled = loop.rolled(graph, nodes)
            if rolled is not None and _work(rolled.nodes()) < _work(nodes):
                best, most = rolled, size
                covered.update(node for step in loop.steps for node in step)
        if most * 8 > len(nodes):  # the rest of its steps is rolled next
            break
    return best


def _work(nodes: Iterable[Node]) -> int:
    """Operations that are more than a view."""
    return sum(node.kind not in ("", "movement") for node in nodes)


def _anchors(nodes: Sequence[Node]) -> list[list[Node]]:
    alike: dict[Any, list[Node]] = {}
    for node in nodes:
        if node.op is not None and node.kind not in ("movement", "control"):
            alike.setdefault((node.op.name, node.text, node.aval, node.where), []).append(node)
    position = {node: k for k, node in enumerate(nodes)}
    many = [found for found in alike.values() if len(found) >= _FEWEST]
    return sorted(many, key=lambda found: (-len(found), position[found[-1]]))[:_TRIED]


# -- steps


@record(frozen=False)
class _Loop:
    """Equal steps, and the one before them. `reads[k]`: the sources of the operands of node k of a step."""

    before: Step
    steps: list[Step]
    reads: list[tuple[Reference, ...]]

    def rolled(self, graph: Graph, nodes: Sequence[Node]) -> Graph | None:
        """The graph with these steps as a loop; None where a value that varies is not a slice, or depends on the
        loop."""
        inside = {node for step in self.steps for node in step}
        carried = sorted({p for refs in self.reads for kind, p in refs if kind == "before"})
        if any(self.before[p].aval != self.steps[0][p].aval for p in carried):
            return None
        varying = self._varying()
        outer = {node for values in varying.values() for node in values}
        if any(node in inside for node in topological([*outer, *(self.before[p] for p in carried)])):
            return None
        sources = {at: _stacked(values) for at, values in varying.items()}
        if any(source is None for source in sources.values()):
            return None
        sliced = {at: source for at, source in sources.items() if isinstance(source, _Slices)}
        strides = [source.stride for source in sliced.values() if not source.first.base.is_constant]
        reverse = bool(strides) and max(strides) < 0
        constants = {at: source for at, source in sources.items() if isinstance(source, Node)}
        stand = {at: input_node(varying[at][0].aval) for at in sources}
        carries = {p: input_node(self.before[p].aval) for p in carried}
        body: Step = []
        for node, refs in zip(self.steps[0], self.reads, strict=True):
            operands = []
            for k, (kind, p) in enumerate(refs):
                at = (len(body), k)
                operands.append(body[p] if kind == "own" else carries[p] if kind == "before" else stand[at])
            body.append(with_inputs(node, tuple(operands)))
        wanted = self._wanted(graph, nodes, inside)
        if any(self.steps[0][p].aval.weak for p in (*carried, *wanted)):
            return None  # numbers of Python's: no result of a loop is one
        fixed = [at for at in stand if at in constants]
        moving = [at for at in stand if at in sliced]
        given = [*(stand[at] for at in fixed), *carries.values(), *(stand[at] for at in moving)]
        outputs = [*(body[p] for p in carried), *(body[p] for p in wanted)]
        params: dict[str, Any] = {
            "body": body_of(Graph(tuple(given), tuple(outputs), "body")), "condition": None, "consts": len(fixed),
            "carries": len(carried), "length": len(self.steps), "counted": 0, "reverse": reverse,
        }  # fmt: skip
        operands = [
            *(constants[at] for at in fixed), *(self.before[p] for p in carried),
            *(sliced[at].whole(reverse) for at in moving),
        ]  # fmt: skip
        results = [apply(LOOP, operands, {**params, "result": k}, self.steps[0][-1].where) for k in range(len(outputs))]
        becomes: dict[Node, Node] = {}
        for number, p in enumerate(wanted, len(carried)):
            for t, step in enumerate(self.steps):
                becomes[step[p]] = _row(results[number], len(self.steps) - 1 - t if reverse else t)
        becomes |= {self.steps[-1][p]: results[k] for k, p in enumerate(carried)}
        return _replaced(graph, nodes, becomes)

    def _varying(self) -> dict[tuple[int, int], list[Node]]:
        """The operands from outside, for all steps, by node and number."""
        return {
            (n, k): [step[n].inputs[k] for step in self.steps]
            for n, refs in enumerate(self.reads)
            for k, (kind, _) in enumerate(refs)
            if kind == "given"
        }

    def _wanted(self, graph: Graph, nodes: Sequence[Node], inside: set[Node]) -> list[int]:
        """Positions of the nodes that something outside reads, other than the last value of a carry."""
        readers = users(nodes)
        outputs = set(graph.roots)
        carried = {p for refs in self.reads for kind, p in refs if kind == "before"}
        found: set[int] = set()
        for t, step in enumerate(self.steps):
            for p, node in enumerate(step):
                if p in carried and t == len(self.steps) - 1:
                    continue
                if node in outputs or any(reader not in inside for reader in readers[node]):
                    found.add(p)
        return sorted(found)


def _loop(
    anchors: Sequence[Node], nodes: Sequence[Node], cuts: Cuts, fewest: int = _FEWEST, *, exact: bool = True
) -> _Loop | None:
    """The longest run of equal steps that end at these nodes, or at every second of them, ...; unless `exact`, of steps
    that may read anything from outside."""
    for stride in (1, 2, 3, 4):
        if len(anchors) // stride <= fewest:  # the first step is the one before
            return None
        ends = anchors[stride - 1 :: stride]
        if exact and not _may_repeat(ends):
            continue
        steps = _steps(ends, nodes, cuts)
        reads = [_reads(step, before) for step, before in zip(steps[1:], steps, strict=False)]
        keys = [
            tuple(
                (node.op, node.text, node.aval, refs, _sources(node, refs) if exact else ())
                for node, refs in zip(step, own, strict=True)
            )
            for step, own in zip(steps[1:], reads, strict=True)
        ]
        low, high = _longest(keys)
        if high - low >= fewest:
            return _Loop(steps[low], steps[low + 1 : high + 1], reads[low])
    return None


def _may_repeat(anchors: Sequence[Node]) -> bool:
    """Whether some run of equal steps may end at these nodes, by what is near to each: layers read other weights.

    An operand of an operand is at most that many steps back, so of 32 equal steps the first 8 may read those before.
    """
    pairs, enough = list(pairwise(anchors)), _FEWEST - 1 - _DEPTH
    if not any(_alike(*pair) for pair in pairs[enough - 1 :: enough]):  # any such run has one of these
        return False
    return any(same and sum(1 for _ in run) >= enough for same, run in groupby(_alike(a, b) for a, b in pairs))


def _alike(one: Node, other: Node) -> bool:
    """Whether two nodes may have one place in two equal steps: the same operations on equal sources, as far as seen."""
    level, seen = [(one, other)], {(one, other)}
    for _ in range(_DEPTH):
        if any(len(a.inputs) != len(b.inputs) for a, b in level):
            return False
        below = dict.fromkeys(pair for a, b in level for pair in zip(a.inputs, b.inputs, strict=True))
        level = []
        for pair in below:
            a, b = pair
            if a is b or pair in seen:
                continue
            if a.op is not b.op or a.text != b.text or a.aval != b.aval or a.op is None:
                if _source(a) != _source(b):
                    return False
                continue
            seen.add(pair)
            level.append(pair)
        if len(seen) > _PAIRS:
            break
    return True


def _cuts(nodes: Iterable[Node]) -> Cuts:
    return {node: cut for node in nodes if (cut := _slice_of(node)) is not None}


def _steps(anchors: Sequence[Node], nodes: Iterable[Node], cuts: Cuts) -> list[Step]:
    """For each anchor the nodes that it needs and no anchor before it does, operands first. Slices of outer values are
    outside."""
    seen: set[Node] = set()
    varies = {anchors[0]}
    for node in nodes if cuts else ():
        if not varies.isdisjoint(node.inputs):
            varies.add(node)

    def inside(node: Node) -> list[Node]:
        return [n for n in node.inputs if n.op is not None and (n not in cuts or cuts[n].base in varies)]

    return [postorder([anchor], inside, seen) for anchor in anchors]


def _reads(step: Step, before: Step) -> list[tuple[Reference, ...]]:
    own = {node: k for k, node in enumerate(step)}
    last = {node: k for k, node in enumerate(before)}

    def reference(node: Node) -> Reference:
        if node in own:
            return "own", own[node]
        return ("before", last[node]) if node in last else ("given", 0)

    return [tuple([reference(n) for n in node.inputs]) for node in step]


def _sources(node: Node, refs: Sequence[Reference]) -> tuple[Any, ...]:
    """Sources of the operands from outside, up to parts that may vary from step to step."""
    return tuple([_source(n) for n, (kind, _) in zip(node.inputs, refs, strict=True) if kind == "given"])


def _source(node: Node) -> Any:
    if node.is_constant:
        return node.aval
    found = _slice_of(node)
    return node if found is None else (found.base, found.axis, found.shape)


def _longest(keys: Sequence[Any]) -> tuple[int, int]:
    """The longest run of equal keys."""
    best, low = (0, 0), 0
    for k in range(1, len(keys) + 1):
        if k == len(keys) or keys[k] != keys[low]:
            best, low = max(best, (low, k), key=lambda run: run[1] - run[0]), k
    return best


# -- values that vary from step to step


@record
class _Slice:
    """Element `at` along an axis of an array."""

    base: Node
    axis: int
    at: int
    shape: tuple[int, ...]  # of the value


def _slice_of(node: Node) -> _Slice | None:
    """`x[3]` of an array: a slice of one element along one axis, perhaps reshaped."""
    if node.op is None or node.op.name not in ("reshape", "slice"):  # most nodes
        return None
    inner = node.inputs[0] if node.op.name == "reshape" else node
    if inner.op is None or inner.op.name != "slice":
        return None
    (base,), p = inner.inputs, inner.params
    every = zip(p["starts"], p["stops"], p["steps"], base.shape, strict=True)
    cut = [k for k, (start, stop, step, size) in enumerate(every) if (start, stop, step) != (0, size, 1)]
    if len(cut) != 1 or type(p["starts"][cut[0]]) is not int or p["stops"][cut[0]] != p["starts"][cut[0]] + 1:
        return None
    return _Slice(base, cut[0], p["starts"][cut[0]], node.shape)


@record
class _Slices:
    first: _Slice
    stride: int
    count: int

    def whole(self, reverse: bool) -> Node:
        """All slices along a new first axis, the last one first if `reverse`."""
        if self.first.base.value is not None and self.first.at == 0 and self.count == len(self.first.base.value):
            data = self.first.base.value
            return constant(data[::-1]) if reverse else self.first.base
        axis, low = self.first.axis, self.first.at
        high = low + self.stride * (self.count - 1)
        starts, stops, steps = (
            [0] * len(self.first.base.shape),
            [*self.first.base.shape],
            [1] * len(self.first.base.shape),
        )
        starts[axis], stops[axis], steps[axis] = min(low, high), max(low, high) + 1, abs(self.stride)
        node = make("slice", self.first.base, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))
        if axis:
            node = make("permute_dims", node, axes=(axis, *(k for k in range(len(starts)) if k != axis)))
        node = make("reshape", node, shape=(self.count, *self.first.shape))
        return node if (self.stride < 0) is reverse else make("flip", node, axis=(0,))


def _stacked(values: Sequence[Node]) -> Node | _Slices | None:
    """The operand of a loop for these values, one per step: one node for all steps, or slices."""
    first = values[0]
    if all(node is first for node in values):
        return first
    if all(node.value is not None for node in values):
        if not all(node.aval == first.aval for node in values):
            return None
        whole = constant(np.stack([node.value for node in values if node.value is not None]))
        return _Slices(_Slice(whole, 0, 0, first.shape), 1, len(values))
    slices = [s for s in map(_slice_of, values) if s is not None]
    if len(slices) < len(values) or len({(s.base, s.axis, s.shape) for s in slices}) > 1:
        return None
    strides = {after.at - before.at for before, after in pairwise(slices)}
    return _Slices(slices[0], strides.pop(), len(values)) if len(strides) == 1 and 0 not in strides else None


# -- the graph around the loop


def _row(stack: Node, at: int) -> Node:
    starts, stops = [0] * len(stack.shape), list(stack.shape)
    starts[0], stops[0] = at, at + 1
    cut = make("slice", stack, starts=tuple(starts), stops=tuple(stops), steps=(1,) * len(stops))
    return make("reshape", cut, shape=stack.shape[1:])


def _replaced(graph: Graph, nodes: Iterable[Node], becomes: dict[Node, Node]) -> Graph:
    final = dict(becomes)
    for node in nodes:
        if node not in final:
            operands = tuple([final.get(n, n) for n in node.inputs])
            new = node if operands == node.inputs else with_inputs(node, operands)
            final[node] = _joined(new)
    return graph.with_roots([final[n] for n in graph.roots])


def _joined(node: Node) -> Node:
    """`concat` of rows of one array, in order or in reverse: the array, or a slice of it."""
    if node.op is None or node.op.name != "concat" or len(node.inputs) < _FEWEST:
        return node
    parts: list[Node] = []
    run: list[_Slice] = []

    def end() -> None:
        if len(run) > 1:
            whole = _Slices(run[0], run[1].at - run[0].at, len(run)).whole(False)
            axis, shape = node.params["axis"], run[0].shape
            if all(n == 1 for n in shape[:axis]):  # rows follow each other in memory
                joined = (*shape[:axis], len(run) * shape[axis], *shape[axis + 1 :])
                parts[-len(run) :] = [make("reshape", whole, shape=joined)]
        run.clear()

    for operand in node.inputs:
        found = _slice_of(_under(operand))
        found = None if found is None else _Slice(found.base, found.axis, found.at, operand.shape)
        if run and (found is None or not _follows(run, found)):
            end()
        parts.append(operand)
        if found is not None:
            run.append(found)
    end()
    return node if len(parts) == len(node.inputs) else make("concat", *parts, axis=node.params["axis"])


def _under(node: Node) -> Node:
    """The node before one reshape or two."""
    below = node.inputs[0] if node.op is not None and node.op.name == "reshape" else node
    return below if below.op is not None and below.op.name == "reshape" else node


def _follows(run: Sequence[_Slice], new: _Slice) -> bool:
    last = run[-1]
    if new.base is not last.base or new.axis != last.axis or new.shape != last.shape:
        return False
    step = new.at - last.at
    return abs(step) == 1 and (len(run) == 1 or step == run[1].at - run[0].at)
