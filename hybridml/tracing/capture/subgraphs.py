"""Regions: the parts of a traced program that a control operation runs, captured as graphs of their own.

A function is run on fresh inputs by the tracer that is in force, so it may reach whatever the program around it may.
What it takes from around it becomes an operand of the control operation when the region is closed, and what it writes
(a tensor from outside, updated in place; the state of a generator) goes in and out as one more value. Its history is
recorded on the same tape: what is older than the region is its boundary (see `tape.run`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

from hybridml_compiler.aval import Aval
from hybridml_compiler.errors import TraceError, user_location
from hybridml_compiler.graph import ir
from hybridml_compiler.record import record
from hybridml_compiler.walk import postorder

from ...core.aliasing import stamp
from ...core.autodiff.tape import Leaf, Node, is_freed, make_node, parents_of
from ...core.context import clock, grad_is_off
from ...core.tensor import Tensor, aval_of
from ..python_state.guards import Watch
from ..python_state.mutations import find
from ..python_state.side_effects import Undone
from ..specialize.errors import NotCacheable
from .traced_tensor import ShadowLeaf
from .tracer import Frame, Tracer

NONE: Mapping[ir.Node, ir.Node] = MappingProxyType({})
_ROUNDS = 8  # captures until no further tensor from outside is found to be written; two are enough for all but nests


@record(frozen=False, eq=False)
class Region:
    """`outputs` as functions of `inputs` and captured values; `states` are tensors from outside that it writes,
    whose values are its last inputs and outputs. `silent` are those that it writes without history (`no_grad`)."""

    tracer: Tracer
    since: int
    inputs: list[Tensor]
    outputs: list[Tensor]
    states: list[Tensor]
    silent: list[Tensor]
    made: set[ir.Node]
    checks: Sequence[ir.Node] = ()  # what may raise in it

    def leave(self, values: Sequence[Tensor]) -> None:
        """Gives the states the values that the control operation has left them with."""
        for state, value in zip(self.states, values, strict=True):
            self.tracer.will_write(state)
            state._array = value._array
            if all(state is not t for t in self.silent):
                state._node = value._node
            stamp(state)


def fresh(tracer: Tracer, like: Aval, name: str = "", where: str = "") -> Tensor:
    """An input of a region; what is computed from one that is a float has a history that ends in `leaf_of` it."""
    aval = Aval(like.shape, like.dtype, like.weak, device=like.device)
    t = tracer.wrap(ir.input_node(aval, name, where))
    t._node = _entrance(t)
    return t


def _entrance(t: Tensor) -> Any:
    """The history of an input: no leaf, since a region may write to its inputs in place."""
    if grad_is_off() or t.dtype.kind not in "fV":
        return None
    return make_node(_pass_on, t.shape, [Leaf(t.shape, t.dtype)])


def _pass_on(g: Tensor, node: Node) -> Any:
    return ((parents_of(node)[0], g),)


def leaf_of(t: Tensor) -> Leaf | None:
    """The leaf that receives the gradient of a region's input; none, where a backward inside has freed its history."""
    return None if t._node is None or is_freed(t._node) else parents_of(t._node)[0]


def snapshot(tracer: Tracer, t: Tensor) -> Tensor:
    """The present value and history of a tensor."""
    copy = tracer.wrap(t._array)
    copy._node = t._node
    return copy


def written_around(tracer: Tracer, frame: Frame) -> list[tuple[Tensor, Any, Any]]:
    """The tensors from around a region that it has written to, with their values and histories before. What it has made
    itself keeps what is written to it."""
    shadows = {id(t) for t in tracer.shadows.values()}
    return [w for w in frame.written.values() if id(w[0]) in shadows or not frame.has_made(w[0])]


def enter(tracer: Tracer) -> Frame:
    tracer.frames.append(Frame(clock()))
    return tracer.frames[-1]


def leave(tracer: Tracer, keep: bool = True) -> None:
    """Ends the frame that was entered last; what it made was made in the one around it, too. With `keep`, its tensors
    live as long as those do."""
    frame = tracer.frames.pop()
    if tracer.frames:
        tracer.frames[-1].made |= frame.made
        if keep:
            tracer.frames[-1].tensors |= frame.tensors


def capture_region(
    tracer: Tracer,
    what: str,
    avals: Sequence[Aval],
    fn: Callable[[list[Tensor]], list[Tensor]],
    users: Sequence[Callable[..., Any]],
    once: bool = False,
) -> Region:
    """Captures `fn` of a list of tensors, which calls a user's functions, as a region. `what` names it in errors: "the
    body of scan".

    What it writes is an input as well, unless it runs `once`: then it starts from the value outside. What it changes
    in Python it would change in every step: such a call runs eagerly.
    """
    watch = Watch(users[0], users[1:]) if tracer.ask is not None else None
    states: list[Tensor] = []
    frames: list[Frame] = []  # of captures so far: some of their tensors are views, written with what they show
    where = user_location()
    for _ in range(_ROUNDS):
        frame = enter(tracer)
        leaves = [i.leaf for i in tracer.inputs]
        grads = {id(leaf): (leaf, leaf._grad, leaf.changed) for leaf in leaves if isinstance(leaf, ShadowLeaf)}
        known = [(t, t._array, t._node) for t in states]
        try:
            inputs = [fresh(tracer, aval, what, where) for aval in avals]
            given = [snapshot(tracer, t) if once else fresh(tracer, aval_of(t), what, where) for t in states]
            for state, t in zip(states, given, strict=True):
                state._array, state._node = t._array, t._node
            outputs = fn(inputs) if watch is None else _watched(what, watch, partial(fn, inputs))
            silent = [state for state, t in zip(states, given, strict=True) if state._node is t._node]
            for state in silent:
                state._node = None
            outputs = [*outputs, *(snapshot(tracer, t) for t in states)]
        finally:
            before = [*known, *written_around(tracer, frame)]
            leave(tracer)
            for t, array, node in reversed(before):
                t._array, t._node = array, node
        _no_gradients(tracer, what, grads)
        frames.append(frame)
        shadows = {id(t) for t in tracer.shadows.values()}
        if any(id(t) in frame.written for t in inputs):
            raise TraceError(
                f"{what} updates one of its arguments in place; compute the new value and return it instead"
            )
        found = [
            t
            for t, _, _ in frame.written.values()
            if (id(t) in shadows or not any(f.has_made(t) for f in frames)) and all(t is not s for s in states)
        ]
        if not found:
            inputs += [] if once else given
            return Region(tracer, frame.since, inputs, outputs, states, silent, frame.made, list(frame.checks))
        states += found
    raise TraceError(f"{what} updates other tensors in place each time it runs; return new values instead")


def _watched(what: str, watch: Watch, call: Callable[[], list[Tensor]]) -> list[Tensor]:
    """The result of calling a user's function, which must have no side effects."""

    def refuse(name: str, line: str) -> Exception:
        return NotCacheable(
            f"{what} calls {name} ({line}), once and not each time it runs; call it before, and pass what it gives"
        )

    watch.begin()
    undone = Undone(watch, watch.name_of, refuse)
    with undone:
        outputs = call()
    if undone.lost:
        names = ", ".join(sorted(name for name, _ in undone.lost))
        raise TraceError(
            f"{what} goes through {names} when it is captured, which cannot be set back; take the items before, and "
            "pass them as a tensor"
        )
    if changed := find(watch, undone):
        raise NotCacheable(
            f"{what} changes {', '.join(sorted(map(str, changed)))}, once and not each time it runs; return the value "
            "instead"
        )
    return outputs


def _no_gradients(tracer: Tracer, what: str, before: dict[int, tuple[ShadowLeaf, Tensor | None, bool]]) -> None:
    """Raises TraceError if the region has called `backward()`: its gradients would belong to no step in particular."""
    changed = False
    for leaf in [i.leaf for i in tracer.inputs]:
        if isinstance(leaf, ShadowLeaf):
            _, grad, was = before.get(id(leaf), (leaf, None, False))
            if leaf.changed and not (was and leaf._grad is grad):
                leaf._grad, leaf.changed, changed = grad, was, True
    if changed:
        raise TraceError(
            f"{what} sets .grad of a tensor from outside (backward()); use hm.autograd.grad inside, and return what it "
            "gives"
        )


# -- closing


@record
class Closed:
    """Graph outputs over `inputs` of the region and one input for each of `taken`, values from around it."""

    outputs: list[ir.Node]
    taken: list[ir.Node]
    given: list[ir.Node]  # the inputs that stand for them


def close(
    outputs: Sequence[ir.Node],
    inside: Callable[[ir.Node], bool],
    inputs: Mapping[ir.Node, ir.Node],
    instead: Mapping[ir.Node, ir.Node] = NONE,
) -> Closed:
    """Cuts the graph of `outputs` where it leaves the region.

    `inside` says which nodes are computed in the region; `inputs` are given to it, each as another node. `instead`:
    nodes of the region in whose places others are computed.
    """
    final: dict[ir.Node, ir.Node] = dict(inputs)
    taken: dict[ir.Node, ir.Node] = {}

    def operands(node: ir.Node) -> Sequence[ir.Node]:
        if node in instead:
            return (instead[node],)
        return node.inputs if node.op is not None and inside(node) else ()

    for node in postorder(outputs, operands, set(final)):
        if node in instead:
            final[node] = final[instead[node]]
        elif node.is_constant:
            final[node] = node
        elif node.op is None or not inside(node):
            final[node] = taken[node] = ir.input_node(node.aval, node.name)
        else:
            given = tuple([final[n] for n in node.inputs])
            final[node] = node if given == node.inputs else ir.with_inputs(node, given)
    return Closed([final[n] for n in outputs], list(taken), list(taken.values()))
