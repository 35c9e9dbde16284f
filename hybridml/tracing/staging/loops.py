"""Loops and branches of a graph that is run on dual numbers or batches: each is one of the level beneath.

A loop over dual numbers carries values, and the tangents of those that get one in some step; a loop over a batch
carries batches of what differs from element to element in some step. Which these are, steps tell that are run until no
more is found (as JAX does it for `scan`). A batched loop with a condition goes on while it holds for an element; the
others keep what they carry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hybridml_compiler.aval import Aval
from hybridml_compiler.dtypes import int64
from hybridml_compiler.graph import ir
from hybridml_compiler.ops.control import COND, LOOP
from hybridml_compiler.ops.table import OPS

from ...core.interpreter import below, interpret
from ...core.tensor import Tensor, aval_of
from ..capture.cond import Branch, Choice
from ..capture.loops.loop import Loop
from ..capture.subgraphs import enter, fresh, leave, snapshot
from ..capture.tracer import Tracer
from .graphs import NoRule, control, run_graph
from .kinds import Kind

_NO_GRADIENT = "data says where it begins, and ends it"
_where, _and, _add, _any = (OPS[name] for name in ("where", "logical_and", "add", "any"))


def loop_inside(around: Any, tracer: Tracer, node: ir.Node, operands: Sequence[Tensor]) -> list[Tensor]:
    """The results of a loop on tensors of `around`, which is in force."""
    kind, params = Kind(around), node.params
    counts, rest = operands[: params["counted"]], operands[params["counted"] :]
    c, n = params["consts"], params["carries"]
    consts, init, xs = rest[:c], rest[c : c + n], rest[c + n :]
    if any(kind.is_batch and kind.moves(t) for t in counts):
        raise NoRule("a loop of other numbers of steps for each element")
    sliced = [kind.moves(x) for x in xs]
    parts = kind.all_parts(xs, sliced)
    loop = _Inside(kind, tracer, node, consts, [kind.moves(t) for t in init], sliced)
    loop.counts = [around.lift(t)._array.tensor for t in counts]
    carried, stacks = below(around, lambda: loop.run(init, kind.turned(parts, sliced)))
    return [*kind.wholes(carried, loop.moving), *kind.wholes(stacks, loop.given_out)]


class _Inside:
    """A loop as one of the level beneath. `moving`: which carries move; `alive`: flags of the elements of a batch that
    have a first step, where that differs."""

    def __init__(
        self, kind: Kind, tracer: Tracer, node: ir.Node, consts: Sequence[Tensor], moving: list[bool],
        sliced: list[bool],
    ) -> None:  # fmt: skip
        self.kind, self.tracer, self.node, self.consts = kind, tracer, node, consts
        self.moving, self.sliced, self.given_out = moving, sliced, list[bool]()
        self.alive: Tensor | None = None
        self.counts: list[Tensor] = []
        self.body: ir.Graph = node.params["body"].graph
        condition = node.params["condition"]
        self.condition: ir.Graph | None = None if condition is None else condition.graph

    def run(self, init: Sequence[Tensor], xs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Emits it, beneath: the parts of carries after it, and of stacks."""
        loop = None
        while loop is None:
            loop = self._loop(init, xs)
        results = loop.run()
        own = sum(map(self.kind.count, self.moving))
        return results[:own], self.kind.turned(results[len(loop.carries) :], self.given_out)

    def _loop(self, init: Sequence[Tensor], xs: Sequence[Tensor]) -> Loop | None:
        """The loop, by a step of it; None where that has found more that moves."""
        tracer, kind, params, inside = self.tracer, self.kind, self.node.params, self._inside
        n = params["carries"]
        frame = enter(tracer)
        start = inside(lambda: kind.all_parts(init, self.moving))
        inputs = [_input(tracer, aval_of(t)) for t in start]
        slices = [fresh(tracer, Aval(x.shape[1:], x.dtype, device=x.device.type)) for x in xs]
        mask = None if self.alive is None else fresh(tracer, aval_of(self.alive))
        given = inside(lambda: kind.wholes(inputs, self.moving))
        found, go = inside(lambda: self._step(given, slices, mask))
        if not inside(lambda: self._is_known(init, found, go)):
            leave(tracer, keep=False)
            return None
        after = inside(lambda: kind.all_parts(found[:n], self.moving))
        ys = inside(lambda: kind.all_parts(found[n:], self.given_out))
        flag = None
        if mask is not None:
            more = inside(lambda: kind.parts(self._flag(kind.wholes(after, self.moving)), True))[0]
            inputs, after, start = [*inputs, mask], [*after, _and.fn(mask, more)], [*start, self.alive]
            flag = _any.fn(mask)
        elif go is not None:
            flag = inside(lambda: kind.parts(go, False))[0]
        if flag is not None:
            steps = fresh(tracer, Aval((), int64))
            inputs, after = [*inputs, steps], [*after, _add.fn(steps, 1)]
            start = [*start, tracer.wrap(ir.constant(0, int64))]
        after, ys = ([snapshot(tracer, t) for t in tensors] for tensors in (after, ys))
        leave(tracer)
        count, begin = [*self.counts, None, None][:2]
        return Loop(
            tracer, "a loop inside of a transform", frame.since, frame.made, inputs, slices, after, ys,
            [snapshot(tracer, tracer.lift(t)) for t in start], [snapshot(tracer, tracer.lift(x)) for x in xs],
            params["length"], params["reverse"], count=count, begin=begin, go=flag,
            steps=None if flag is None else len(inputs) - 1, step=params["step"], parallel=params["parallel"],
            first=params["first"], checks=list(frame.checks),
            no_gradient=_NO_GRADIENT if flag is not None and begin is not None else "",
        )  # fmt: skip

    def _is_known(self, init: Sequence[Tensor], found: Sequence[Tensor], go: Tensor | None) -> bool:
        """Whether nothing moves after a step that has not been known to; makes it known."""
        kind, n = self.kind, len(self.moving)
        if kind.is_batch and go is not None and kind.moves(go):
            self.alive, self.moving = kind.parts(self._flag(init), True)[0], [True] * n
            return False
        now = [kind.moves(t) for t in found]
        before, self.moving = self.moving, [a or b for a, b in zip(self.moving, now, strict=False)]
        self.given_out = now[n:]
        return before == self.moving

    def _inside(self, fn: Callable[[], Any]) -> Any:
        return interpret(self.kind.around, fn)

    def _flag(self, carries: Sequence[Tensor]) -> Tensor:
        """Whether there is a further step."""
        assert self.condition is not None
        given = dict(zip(self.condition.inputs, [*self.consts, *carries], strict=True))
        return run_graph(self.kind.around, self.tracer, self.condition.outputs, given)[0]

    def _step(
        self, carries: Sequence[Tensor], slices: Sequence[Tensor], mask: Tensor | None
    ) -> tuple[list[Tensor], Tensor | None]:
        """Carries and what is given out after a step, and the condition of that step."""
        kind, around = self.kind, self.kind.around
        own = kind.wholes(slices, self.sliced)
        given = dict(zip(self.body.inputs, [*self.consts, *carries, *own], strict=True))
        roots = [*self.body.outputs, *self.body.checks]
        found = run_graph(around, self.tracer, roots, given)[: len(self.body.outputs)]
        if mask is not None:
            if len(found) > len(carries):
                raise NoRule("a loop that ends at other steps for each element, and gives out values")
            alive = kind.whole([mask], True)
            found = [_where.fn(alive, t, old) for t, old in zip(found, carries, strict=True)]
        go = None if self.condition is None or mask is not None else self._flag(carries)
        return found, go


def _input(tracer: Tracer, aval: Aval) -> Tensor:
    """An input of a step; one for a number of Python's has no history."""
    t = fresh(tracer, aval)
    return tracer.wrap(t._array, True) if aval.weak else t


def branch_inside(around: Any, tracer: Tracer, node: ir.Node, operands: Sequence[Tensor]) -> list[Tensor]:
    """The results of a `cond` on tensors of `around`, which is in force."""
    kind, (flag, *given) = Kind(around), operands
    if kind.is_batch and kind.moves(flag):
        raise NoRule("a branch that differs from element to element")
    graphs: list[ir.Graph] = [node.params["true"].graph, node.params["false"].graph]

    def computed(graph: ir.Graph) -> list[Tensor]:
        roots = [*graph.outputs, *graph.checks]
        return run_graph(around, tracer, roots, dict(zip(graph.inputs, given, strict=True)))[: len(graph.outputs)]

    frames, found = [], []
    moving = [False] * len(graphs[0].outputs)
    for graph in graphs:
        frames.append(below(around, lambda: enter(tracer)))
        found.append(computed(graph))
        leave(tracer)
        moving = [a or kind.moves(t) for a, t in zip(moving, found[-1], strict=True)]
    predicate = kind.parts(flag, False)[0]
    branches = []
    for frame, values in zip(frames, found, strict=True):
        tracer.frames.append(frame)
        parts = kind.all_parts(values, moving)
        outputs = [snapshot(tracer, tracer.lift(t)) for t in parts]
        leave(tracer)
        branches.append(Branch(frame.since, frame.made, [], outputs, list(frame.checks)))
    results = below(around, lambda: Choice(tracer, predicate, branches[0], branches[1], []).run())
    return kind.wholes(results, moving)


control.update({LOOP: loop_inside, COND: branch_inside})
run = run_graph  # with these
