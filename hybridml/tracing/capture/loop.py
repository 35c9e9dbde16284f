"""Loops of a traced program: emitted as nodes of the graph, recorded as one step of the history.

The gradient of a loop is a loop the other way round. Its body is the history of the forward body, walked back in the
same trace (Griewank and Walther, "Evaluating Derivatives", 2008, chapter 3), and it is a loop like any other, recorded
in its turn, so that derivatives of any order are made the same way.

    forward    carry -> next carry, y          saves, stacked: the carries, and what is dear to compute again
    backward   d(next carry), d(y), saved -> d(carry), d(x);  gradients of what lies outside are added up in a carry

What is saved is chosen when the gradient is asked for: a second forward loop that also gives out the saved values is
put into the graph, and the compiler makes one loop of the two (passes/control.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

from hybridml_compiler.errors import GradientError
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.body import body_of
from hybridml_compiler.hoist import dependent, is_dear, varying
from hybridml_compiler.ops.control import LOOP
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record, replace
from hybridml_compiler.walk import reachable

from ...core.autodiff.tape import Node, boundary, is_node, kept_by, make_node, part, run
from ...core.context import at_place, enable_grad, grad_is_off
from ...core.tensor import Tensor, aval_of
from .subgraphs import close, enter, fresh, leaf_of, leave, snapshot
from .tracer import Tracer

_add, _full = OPS["add"], OPS["full"]


@record(frozen=False, eq=False)
class Loop:
    """A recorded loop: the body as tensors of a region, and the operands that it runs on.

    `next` are the carries after a step, `ys` what it gives out. `count` is the number of steps where that is a value
    of the program; `go` the condition, a function of the carries, under which there is a further one, and `steps` the
    carry that counts them. `saved` are values of the region that are given to it, a slice of `stacks` each.
    """

    tracer: Tracer
    what: str  # the user's name of it
    since: int
    made: set[ir.Node]
    carries: list[Tensor]
    slices: list[Tensor]
    next: list[Tensor]
    ys: list[Tensor]
    init: list[Tensor]
    xs: list[Tensor]
    length: int | None
    reverse: bool = False
    count: Tensor | None = None
    go: Tensor | None = None
    steps: int | None = None
    step: str | None = None  # the symbol of the number of a step
    again: bool = False  # the gradient computes a step again from its carries, and saves nothing else
    saved: list[ir.Node] = field(default_factory=list)
    stacks: list[Tensor] = field(default_factory=list)
    checks: Sequence[ir.Node] = ()  # what may raise in the body
    gradients: dict[tuple[int, ...], Gradient] = field(default_factory=dict)  # by the results that have a cotangent

    def run(self) -> list[Tensor]:
        """Emits the loop, and returns its results: last carries, stacked ys."""
        results: list[Tensor] = [self.tracer.wrap(node) for node in self._nodes()]
        if not grad_is_off():
            self._record(results)
        return results

    def _nodes(self) -> list[ir.Node]:
        outputs = [t._array for t in (*self.next, *self.ys)]
        values = [*outputs, *self.checks, *([] if self.go is None else [self.go._array])]
        carries = [t._array for t in self.carries]
        inputs = {node: node for node in (*carries, *(t._array for t in self.slices))}
        inputs |= {node: ir.input_node(node.aval) for node in self.saved if node not in inputs}
        closed = close(values, varying(values, inputs, self.made, self.step), inputs)
        roots, n, m = tuple(closed.outputs), len(outputs), len(outputs) + len(self.checks)
        read = set(ir.topological(roots))
        slices = [t._array for t in self.slices] + [inputs[node] for node in self.saved]
        used = [k for k, node in enumerate(slices) if node in read]
        params: dict[str, Any] = {
            "body": body_of(
                ir.Graph((*closed.given, *carries, *(slices[k] for k in used)), roots[:n], checks=roots[n:m])
            ),
            "condition": None, "consts": len(closed.taken), "carries": len(carries), "length": self.length,
            "counted": self.count is not None, "reverse": self.reverse, "step": self.step,
        }  # fmt: skip
        if self.go is not None:
            params["condition"] = body_of(ir.Graph((*closed.given, *carries), (closed.outputs[-1],)))
        xs = [*self.xs, *self.stacks]
        taken = [self.tracer.wrap(node) for node in closed.taken]
        counts = [] if self.count is None else [self.count]
        operands = [*counts, *taken, *self.init, *(xs[k] for k in used)]
        return [self.tracer.emit(LOOP, operands, {**params, "result": k})._array for k in range(len(outputs))]

    # -- the history

    def _output(self, k: int) -> Tensor:
        return self.next[k] if k < len(self.next) else self.ys[k - len(self.next)]

    def _record(self, results: list[Tensor]) -> None:
        recorded = tuple(k for k, _ in enumerate(results) if is_node(self._output(k)._node))
        if not recorded or not self.is_differentiated(recorded):
            return
        try:
            around = self.gradient(recorded).around
        except GradientError:  # of a loop in it: an error for those who ask for the gradient
            around = self._around(recorded)
        wanting = [t._node for t in (*self.init, *self.xs) if t._node is not None]
        joint = make_node(_pull_loop, None, [*wanting, *around], self)
        for k in recorded:
            results[k]._node = part(joint, k, results[k].shape)

    def is_differentiated(self, recorded: Sequence[int]) -> bool:
        """Whether these results are computed from anything that has a history."""
        return any(t._node is not None for t in (*self.init, *self.xs)) or bool(self._around(recorded))

    def _around(self, recorded: Sequence[int]) -> list[Any]:
        own = [leaf_of(t) for t in (*self.carries, *self.slices)]
        return boundary([self._output(k)._node for k in recorded], self.since, own)

    def gradient(self, mask: tuple[int, ...]) -> Gradient:
        """The body of the gradient of the results in `mask`."""
        if mask not in self.gradients:
            frame = enter(self.tracer)
            try:
                with enable_grad():
                    self.gradients[mask] = _derive(self, mask)
            finally:
                leave(self.tracer)
            self.made |= frame.made
        return self.gradients[mask]


def _pull_loop(bundle: dict[int, Tensor], node: Node) -> list[tuple[Any, Tensor]]:
    loop: Loop
    (loop,) = kept_by(node)
    if loop.length is None:
        raise GradientError(
            f"{loop.what}: a traced gradient needs to know how many steps there can be, to keep what it reads of each; "
            "pass max_steps"
        )
    gradient = loop.gradient(tuple(sorted(bundle)))
    found = gradient.run(loop, bundle)
    n, m = len(gradient.carried), len(gradient.around)
    starts = zip((loop.init[k]._node for k in gradient.carried), found[:n], strict=True)
    around = zip(gradient.around, found[n : n + m], strict=True)
    xs = zip((loop.xs[k]._node for k in gradient.sliced), found[n + m :], strict=True)
    return [(source, g) for source, g in (*starts, *around, *xs) if source is not None]


@record(frozen=False, eq=False)
class Gradient:
    """The body of the gradient of a loop: inputs and outputs in the region of that loop's own body."""

    cotangents: list[Tensor]  # inputs, of the carries after the step that are numbered in `carried`
    carried: list[int]
    sums: list[Tensor]  # inputs, of the histories in `around`
    around: list[Any]
    given: dict[int, Tensor]  # inputs: of ys k
    next: list[Tensor]  # cotangents of the carries before the step, and the sums
    ys: list[Tensor]  # cotangents of the slices that are numbered in `sliced`
    sliced: list[int]

    def run(self, loop: Loop, bundle: dict[int, Tensor]) -> list[Tensor]:
        """The cotangents of `carried`, `around` and `sliced`, from those of the results of the loop."""
        tracer, n = loop.tracer, len(loop.carries)
        saved = [] if loop.again else _worth_saving(loop, self)
        forward = replace(loop, ys=[*loop.ys, *loop.carries, *map(tracer.wrap, saved)], gradients={})
        results = forward.run()
        stacks = results[n + len(loop.ys) :]
        init = [snapshot(tracer, bundle[k]) if k in bundle else zeros(loop.carries[k]) for k in self.carried]
        backward = Loop(
            tracer, f"the gradient of {loop.what}", loop.since, loop.made,
            [*self.cotangents, *self.sums], [*loop.carries, *loop.slices, *self.given.values()], self.next, self.ys,
            [*init, *(zeros(t) for t in self.sums)],
            [*stacks[:n], *loop.xs, *(snapshot(tracer, bundle[n + k]) for k in self.given)],
            loop.length, not loop.reverse, loop.count if loop.steps is None else results[loop.steps],
            again=loop.again, saved=[*loop.saved, *saved], stacks=[*loop.stacks, *stacks[n:]],
        )  # fmt: skip
        return backward.run()


def _derive(loop: Loop, mask: tuple[int, ...]) -> Gradient:
    """Walks the history of the body back, from a cotangent of each of its results in `mask`."""
    tracer, n = loop.tracer, len(loop.carries)
    floats = [k for k, t in enumerate(loop.carries) if t._node is not None]
    cotangents = {k: fresh(tracer, aval_of(loop.carries[k])) for k in floats}
    given = {k - n: fresh(tracer, aval_of(loop.ys[k - n])) for k in mask if k >= n}
    seeds = [(loop.next[k]._node, g) for k, g in cotangents.items() if is_node(loop.next[k]._node)]
    seeds += [(loop.ys[k]._node, g) for k, g in given.items()]
    found = run(seeds, retain=True, create=True, since=loop.since)
    before = {k: found.pop(id(leaf_of(loop.carries[k])), None) for k in floats}
    slices = {k: found.pop(id(leaf_of(t)), None) for k, t in enumerate(loop.slices)}
    carried = [k for k in floats if before[k] is not None or is_node(loop.next[k]._node)]
    sliced = {k: pair[1] for k, pair in slices.items() if pair is not None}
    around = list(found.values())
    sums = [fresh(tracer, aval_of(g)) for _, g in around]
    ends = [before[k] or (None, zeros(loop.carries[k])) for k in carried]
    added = [_add.fn(total, g) for total, (_, g) in zip(sums, around, strict=True)]
    return Gradient(
        [cotangents[k] for k in carried], carried, sums, [source for source, _ in around], given,
        [*(g for _, g in ends), *added], list(sliced.values()), list(sliced),
    )  # fmt: skip


def zeros(like: Tensor) -> Tensor:
    return at_place(like.device.type, lambda: _full.fn(shape=like.shape, value=0.0, dtype=like.dtype))


def _worth_saving(loop: Loop, gradient: Gradient) -> list[ir.Node]:
    """The values of a step that its gradient reads from memory instead of computing them again.

    Cheap values are computed again from dear ones, unless that would keep more memory than they are.
    """
    outputs = [t._array for t in (*gradient.next, *gradient.ys)]
    order = ir.topological(outputs)
    late = dependent(outputs, [t._array for t in (*gradient.cotangents, *gradient.sums, *gradient.given.values())])
    inputs = {*(t._array for t in (*loop.carries, *loop.slices)), *loop.saved}
    early = dependent(outputs, inputs)
    read = {n for node in order if node in late for n in node.inputs if n in early and n not in late}
    read |= {n for n in outputs if n in early and n not in late}
    sources = {node: _dear_sources(node, early, inputs) for node in order if node in read and node not in inputs}
    uses = Counter(source for found in sources.values() for source in found)
    saved: dict[ir.Node, None] = {}
    for node, found in sources.items():
        alone = sum(source.aval.nbytes for source in found if uses[source] == 1)
        saved.update(dict.fromkeys([node] if alone > node.aval.nbytes else found))
    return list(saved)


def _dear_sources(root: ir.Node, early: set[ir.Node], inputs: Iterable[ir.Node]) -> set[ir.Node]:
    """The expensive values that a value is computed from by cheap operations."""
    given = {*inputs} - {root}

    def cheap(node: ir.Node) -> list[ir.Node]:
        return [] if is_dear(node) else [n for n in node.inputs if n in early and n not in given]

    return {node for node in reachable([root], cheap) if is_dear(node)}
