"""Calls of `jvp` and `vmap` in a trace: their functions are captured by the tracer alone, and then run as graphs.

    hm.vmap(fn)(xs)         fn(input) -> nodes, loops among them        the nodes, as operations of batches

So loops in them become one loop, as elsewhere; under an interpreter that stands on the tracer they would be captured
step by step. A trace begins like that, and is begun anew with this where it meets such a loop. What cannot be done this
way (a function that updates tensors around it, asks for the value of an element, draws random numbers, or ends
histories) makes the trace begin once more, with that call as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from hybridml_compiler.dtypes import is_inexact
from hybridml_compiler.errors import describe_line, user_frame
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.facts import dependent
from hybridml_compiler.ops.op import Op
from hybridml_compiler.record import record

from ...core.aliasing import origin_of
from ...core.autodiff.tape import Mark, is_recorded
from ...core.batching.interpreter import Batching
from ...core.context import clock, grad_is_off, no_grad
from ...core.interpreter import below
from ...core.proxies.base import Proxy
from ...core.pytree import flatten, unflatten
from ...core.tensor import Tensor, aval_of
from ..capture.loops.ways import substituted
from ..capture.subgraphs import enter, fresh, leave, written_around
from ..capture.tracer import Tracer, inputs_of
from ..specialize.errors import StepByStep
from . import loops
from .graphs import NoRule
from .histories import Histories

Place = tuple[Any, int, str]


@record(frozen=False, eq=False)
class Stage:
    """A function of a transform while it is captured."""

    around: Any
    place: Place
    histories: Histories
    inputs: dict[ir.Node, Tensor] = field(default_factory=dict)  # that stand for tensors of `around`
    checks: list[ir.Node] = field(default_factory=list)  # what may raise in it
    parts: bool = False  # steps of its loops go different ways, of which a graph computes all

    @property
    def is_batched(self) -> bool:
        return type(self.around) is Batching

    def refuse(self, why: str) -> StepByStep:
        code, offset, name = self.place
        line = next((n for start, end, n in code.co_lines() if start <= offset < end and n is not None), 0)
        error = StepByStep(None, why)
        error.place = self.place  # type: ignore[assignment]
        error.args = (f"{name} at {describe_line(code.co_filename, line)} ({why})",)
        return error


class Stages:
    """The transforms of a trace."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.running: list[Stage] = []
        self.known: dict[ir.Node, Tensor] = {}  # values that operations have read with a history
        self.bare: set[ir.Node] = set()  # and without
        self.free: set[ir.Node] = set()  # results of loops that depend on nothing that is recorded

    def see(self, op: Op, tensors: Sequence[Tensor]) -> None:
        """Takes note of an operation of the trace."""
        for t in tensors:
            if t._node is not None:
                self.known.setdefault(t._array, t)
            elif op.kind != "control":
                self.bare.add(t._array)
        if self.running:
            self.running[-1].histories.see(op, tensors)

    def made(self, results: Sequence[Tensor], ways: int = 1) -> None:
        """Takes note of what a branch has made, or a loop whose steps go so many ways."""
        self.free |= {t._array for t in results if t._node is None}
        for stage in self.running[-1:]:
            stage.parts = stage.parts or ways > 1

    def saved(self, stacks: Sequence[Tensor]) -> None:
        """Takes note of what a loop has saved for its gradient: it may have a history that is not known."""
        self.free -= {t._array for t in stacks if t._node is None}

    def check_asked(self, node: ir.Node, what: str) -> None:
        """Refuses a question about a value that may differ from element to element: in loops, all that is in steps."""
        batched = [stage for stage in self.running if stage.is_batched]
        if batched and not {i.node for i in self.tracer.inputs}.issuperset(inputs_of(node)):
            raise batched[-1].refuse(f"{what} is asked for")

    def of(self, around: Any, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The function that a transform calls with tensors of `around`, on top of the tracer."""
        frame = user_frame()
        if frame is None:
            return fn
        place = frame.f_code, frame.f_lasti, "vmap" if type(around) is Batching else "jvp"
        if place in self.tracer.step_by_step or (type(around) is Batching and around.name is not None):
            return fn
        return partial(self.call, around, fn, place)

    def call(self, around: Any, fn: Callable[..., Any], place: Place, /, *args: Any, **kwargs: Any) -> Any:
        """The result of the function, for tensors of `around`, which is in force."""
        leaves: list[Any] = []
        structure = flatten((args, kwargs), leaves)
        numbers = [k for k, leaf in enumerate(leaves) if around.owns(leaf)]
        given = [leaves[k] for k in numbers]
        stage, depth = Stage(around, place, Histories(clock(), self.free)), len(self.tracer.loops)
        try:
            form, found, inner = below(around, lambda: self._captured(stage, fn, structure, leaves, numbers))
            return unflatten(form, self._run(stage, found, given, inner))
        except Exception as error:
            if len(self.tracer.loops) > depth:  # of the loop that is captured
                raise
            raise stage.refuse(f"{type(error).__name__}: {error}") from error

    def _captured(
        self, stage: Stage, fn: Callable[..., Any], structure: Any, leaves: Sequence[Any], numbers: Sequence[int]
    ) -> tuple[Any, list[Any], list[Tensor]]:
        """The form of the result, its leaves, and the tensors that the function has been given."""
        tracer = self.tracer
        frame, grads, said = enter(tracer), tracer.grads(), (tracer.ask, tracer.prints, tracer.logs, tracer.clocks)
        inner, whole, perhaps_numbers = [], list(leaves), len(tracer.perhaps_numbers)
        for k in numbers:
            t = fresh(tracer, aval_of(leaves[k]))
            t._node = None if leaves[k]._node is None else Mark(t.shape)
            stage.inputs[t._array] = leaves[k]
            inner.append(t)
            whole[k] = t
            if t._node is not None:
                stage.histories.recorded.add(t._array)
        starts = [t._array for t in inner]
        tracer.ask = partial(self._answer, stage, said[0])
        tracer.prints = tracer.logs = partial(_says, stage)
        tracer.clocks = None
        self.running.append(stage)
        try:
            args, kwargs = unflatten(structure, whole)
            out = fn(*args, **kwargs)
        finally:
            self.running.pop()
            tracer.ask, tracer.prints, tracer.logs, tracer.clocks = said
        if len(tracer.perhaps_numbers) > perhaps_numbers:
            raise stage.refuse("it may make a number where a loop takes no step")
        if written_around(tracer, frame):
            raise stage.refuse("it updates a tensor around it, or draws random numbers")
        if [*map(id, chain(*grads))] != [*map(id, chain(*tracer.grads()))]:
            raise stage.refuse("it sets gradients")
        found: list[Any] = []
        form = flatten(out, found)
        for k, leaf in enumerate(found):
            if isinstance(leaf, Proxy):
                raise stage.refuse("it returns a number")
            if isinstance(leaf, Tensor):
                found[k] = tracer.lift(leaf)
        stage.checks += frame.checks
        leave(tracer)
        updated = [t for t, start in zip(inner, starts, strict=True) if t._array is not start]
        if updated and stage.is_batched and any(origin_of(t) is not None for t in inner):
            raise stage.refuse("it updates a view")
        return form, found, inner

    def _run(self, stage: Stage, found: Sequence[Any], given: Sequence[Tensor], inner: Sequence[Tensor]) -> list[Any]:
        """The leaves of the result for tensors of `around`, and its updates of those that it is given."""
        starts = [*stage.inputs]
        updated = [k for k, t in enumerate(inner) if t._array is not starts[k]] if stage.is_batched else []
        tensors = [x for x in found if isinstance(x, Tensor)] + [inner[k] for k in updated]
        ends = [t._array for t in tensors]
        has_history = any(t._node is not None for t in tensors)
        for t in tensors if has_history else ():
            if t._node is None:
                stage.histories.see_bare(t._array)
        if has_history and stage.histories.are_cut:
            raise stage.refuse("it ends histories, by detach, no_grad or a gradient of its own")
        outside = stage.histories.entered.values()
        if stage.parts and (any(map(is_recorded, outside)) or any(map(_is_recorded, given))):
            raise stage.refuse("it is differentiated once more, and data decides what a step does")

        def run() -> list[Tensor]:
            roots = [*ends, *stage.checks]
            return loops.run(stage.around, self.tracer, roots, stage.inputs, partial(self._known, stage))

        with nullcontext() if has_history else no_grad():
            made = dict(zip(ends, run(), strict=False))
        fixed = {t._array for t in tensors} - dependent(ends, starts)  # tensors from around it, as they are
        made = {node: t for node, t in made.items() if node not in fixed}
        for k in updated:
            given[k].copy_(made[inner[k]._array])
        own = {id(t): x for t, x in zip(inner, given, strict=True)}
        return [
            made.get(x._array, x) if isinstance(x, Tensor) and id(x) not in own else own.get(id(x), x) for x in found
        ]

    def _known(self, stage: Stage, node: ir.Node) -> Tensor:
        """The tensor of a value that does not depend on inputs of the function, with the history that it has there."""
        bare = node in stage.histories.bare
        if not bare and node in self.known:
            if node in self.bare and node not in stage.histories.recorded:
                raise NoRule("a value has a history at one place and none at another")
            return self.known[node]
        if not (bare or grad_is_off() or node in self.free) and node.kind == "control" and is_inexact(node.dtype):
            raise NoRule("what a loop keeps has a history that is not known")
        return self.tracer.wrap(node, node.aval.weak)

    def _answer(self, stage: Stage, ask: Any, node: ir.Node, what: str) -> np.ndarray:
        """The value of a node, where it does not differ from element to element."""
        if node in dependent([node], stage.inputs):
            if stage.is_batched or ask is None:
                raise stage.refuse(f"{what} is asked for")
            values = {inner: stage.around.parts(t)[0]._array for inner, t in stage.inputs.items()}
            (node,) = substituted([node], values)
        return ask(node, what)


def _is_recorded(t: Tensor) -> bool:
    """Whether a backward may come to a tensor of an interpreter, by what is beneath."""
    value = t._array
    parts = value.tensor, getattr(value, "tangent", None)
    return any(x is not None and is_recorded(x._node) for x in parts)


def _says(stage: Stage, *args: Any, **kwargs: Any) -> None:
    raise stage.refuse("it prints or logs")
