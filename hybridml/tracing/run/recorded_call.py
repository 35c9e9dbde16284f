"""Calls of library functions that leave something behind: numbers drawn, arguments updated, a node of the tape."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from hybridml_compiler.eager.large import contiguous

from ...core import aliasing
from ...core.autodiff.tape import Node, kept_by, make_node, node_source, parents_of, part, stale
from ...core.context import clock, grad_is_off
from ...core.interpreter import interpreter_stack
from ...core.library import MISS, missed
from ...core.nested import top_nesting
from ...core.source_location import here
from ...core.tensor import Tensor, like, wrap
from ..capture.memory_order import Order, as_seen, in_memory
from .compiled_path import CompiledPath
from .native_program import Given, Native, is_plain, native_of
from .program import Backward, Program

_COMPARED = frozenset((int, float, bool, str, type(None)))


class Stateful:
    """A native call that draws random numbers, or updates its arguments, as a batch norm in training does."""

    def __init__(self, path: CompiledPath, native: Native, captured: list[Any]) -> None:
        self.native, self.captured, self.draws, self.copies = native, captured, path.draws, path.copies
        places = {id(i): k for k, i in enumerate(path.inputs)}
        drawn = {draw.at for draw in self.draws}
        self.updated = [k for _, i in path.writes if (k := places[id(i)]) not in drawn]

    def run(self, given: Given) -> tuple[Any, list[Any]]:
        """The result, and the inputs as they were, for a backward."""
        inputs = [*given, *self.captured]
        for k in self.updated:
            flags = inputs[k]._array.flags
            if not flags.c_contiguous or not flags.writeable:  # native code would update a copy, or what is read-only
                return MISS, inputs
        for k in self.copies:
            inputs[k] = like(inputs[k], inputs[k]._array.copy(), inputs[k]._node)
        operands = [*given, *self.captured]
        taken = []
        for draw in self.draws:
            state = np.empty(2, np.uint64)
            taken.append(draw.take(state))
            operands[draw.at] = wrap(state)
            inputs[draw.at] = wrap(state.copy())
        out = MISS
        try:
            out = self.native(*operands)
        finally:
            if out is MISS:
                for draw, after in zip(self.draws, taken, strict=True):
                    draw.give_back(after)
        if out is not MISS:
            aliasing.stamp(*[operands[k] for k in self.updated])
        return out, inputs

    def __call__(self, *given: Any) -> Any:
        return self.run(given)[0]

    def direct(self, program: Program, given: Given, args: Given, places: list[int]) -> Native:
        """A call that draws and updates nothing else, with the arguments of its function, of which those in these
        places are inputs."""
        if self.updated or self.copies:
            return missed
        count, extra = len(args), len(self.captured)
        native = native_of(
            program, [*given, *self.captured], [*args, *self.captured], [*places, *range(count, count + extra)]
        )
        if not is_plain(native):
            return missed
        draws, captured = [(draw, draw.at - len(given)) for draw in self.draws], self.captured
        kinds, expected = [*map(type, args)], [_shape_or_value(a) for a in args]
        plain = args if Tensor not in kinds else None  # 0.2 us in place of 0.5

        def call(*args: Any) -> Any:
            if interpreter_stack() is not None:  # a comparison of sizes would be a guard of a trace
                return MISS
            # Before anything is drawn: a checkpoint has no other numbers.
            if [*map(type, args)] != kinds or (args != plain and [*map(_shape_or_value, args)] != expected):
                return MISS
            operands, taken, out = [*captured], [], MISS
            for draw, at in draws:
                state = np.empty(2, np.uint64)
                taken.append(draw.take(state))
                operands[at] = wrap(state)
            try:
                out = native(*args, *operands)
            finally:
                if out is MISS:
                    for (draw, _), after in zip(draws, taken, strict=True):
                        draw.give_back(after)
            return out

        return call


def _shape_or_value(value: Any) -> Any:
    """The part of an argument that tells it from others of its class."""
    kind = type(value)
    if kind is Tensor:
        return value._array.shape
    return value if kind in _COMPARED or (kind is tuple and all([type(n) is int for n in value])) else None


class Recorded:
    """A call whose results have a history."""

    def __init__(self, program: Program, run: Native | Stateful, wanting: list[int], captured: list[Any]) -> None:
        """`wanting`: inputs that want a gradient. Raises what deriving the gradient raises."""
        self.program, self.run, self.wanting, self.captured = program, run, wanting, captured
        self.name = program.name
        self.recorded = program.differentiable()  # results
        self.several = len(program.executable.fresh) > 1
        self.kept = program.vjp(self.recorded).used
        self.pulls: dict[tuple[int, ...], Pull] = {}  # by the results whose cotangents there are

    def direct(self, native: Native, places: list[int]) -> Native:
        """The call with the arguments of its function, of which those in these places are inputs. MISS where a gradient
        is wanted of others than before."""
        wanting = [places[k] for k in self.wanting]
        kept = [f"args[{places[k]}]" for k in self.kept]
        others = [f"type(args[{k}]) is Tensor and args[{k}]._node is not None" for k in places if k not in wanting]
        env: dict[str, Any] = {
            "native": native, "call": self, "MISS": MISS, "_clock": clock, "pull": self.of_result, "here": here,
            "several": self.of_results, "part": part, "Tensor": Tensor,
        }  # fmt: skip
        node = partial(node_source, parents=[f"p{k}" for k in wanting], kept=["call", "here()", *kept])
        if self.several:
            history = [f"    joint = {node('several', 'None')}"]
            history += [f"    out[{k}]._node = part(joint, {k}, out[{k}]._array.shape)" for k in self.recorded]
        else:
            history = [f"    out._node = {node('pull', 'out._array.shape')}"]
        lines = [
            "def direct(*args):",
            "    out = native(*args)",
            "    if out is MISS:",
            "        return MISS",
            *[f"    p{k} = args[{k}]._node" for k in wanting],
            f"    if {' or '.join([*(f'p{k} is None' for k in wanting), *others])}:",
            "        return MISS",
            *history,
            "    return out",
        ]
        exec(compile("\n".join(lines), f"<{self.name}>", "exec"), env)
        direct: Native = env["direct"]
        return direct

    def __call__(self, *given: Any) -> Any:
        if type(self.run) is Stateful:
            out, inputs = self.run.run(given)
        else:
            inputs = [*given, *self.captured]
            out = self.run(*inputs)
        if out is not MISS:
            parents = [given[k]._node for k in self.wanting]
            kept = [inputs[k] for k in self.kept]
            if not self.several:
                out._node = make_node(self.of_result, out._array.shape, parents, self, here(), *kept)
            else:
                joint = make_node(self.of_results, None, parents, self, here(), *kept)
                for k in self.recorded:
                    out[k]._node = part(joint, k, out[k]._array.shape)
        return out

    def of_result(self, g: Tensor, node: Node) -> list[tuple[Any, Tensor]]:
        """The gradients of the inputs, with their nodes, for the cotangent of the only result."""
        return self.pull(self.recorded, (g,), node)

    def of_results(self, cotangents: dict[int, Tensor], node: Node) -> list[tuple[Any, Tensor]]:
        """The gradients of the inputs, with their nodes, for the cotangents of some results."""
        mask = tuple(sorted(cotangents))
        return self.pull(mask, [cotangents[k] for k in mask], node)

    def pull(self, mask: tuple[int, ...], cotangents: Sequence[Tensor], node: Node) -> list[tuple[Any, Tensor]]:
        _, place, *kept = kept_by(node)
        for k, t in zip(self.kept, kept, strict=True):
            if type(t) is Tensor and t._version:
                stale(self.program.name, f"input {self.program.nodes[k].name}", t._version, node, place)
        pull = self.pulls.get(mask)
        if pull is None:
            pull = self.pulls[mask] = Pull(self.program.vjp(mask), self.kept, self.wanting)
        found = pull.gradients(kept, cotangents)
        parents = parents_of(node)
        return [(parents[k], g) for k, g in zip(pull.order, found, strict=True)]


class Pull:
    """A backward of a program, from cotangents of some of its results."""

    def __init__(self, backward: Backward, kept: list[int], wanting: list[int]) -> None:
        self.program = backward.program
        self.used = [kept.index(k) for k in backward.used]
        self.held = [as_tensor(i.real) for i in backward.held]
        self.order = [wanting.index(k) for k in backward.wanted]  # places of the parents that the gradients are for
        self.native: Native | None = None

    def gradients(self, kept: Sequence[Any], cotangents: Sequence[Tensor]) -> Sequence[Tensor]:
        """One for each input that the program gives one for."""
        operands = [kept[k] for k in self.used]
        if self.held:
            operands += self.held
        if not grad_is_off() or top_nesting() is not None:
            return self.program.apply([*operands, *cotangents])
        orders = self.program.orders[len(operands) :]
        operands += map(in_order, cotangents, orders)  # that of a sum is one number, seen as many
        if self.native is None:
            self.native = native_of(self.program, operands)
        found = self.native(*operands)
        if found is not MISS:
            return (found,) if type(found) is Tensor else found
        return self.program.apply(operands)


def in_order(t: Tensor, order: Order | None) -> Tensor:
    """The tensor with its axes in this order of memory."""
    array = in_memory(t._array, order)
    if array.flags.c_contiguous:
        return t
    return like(t, as_seen(contiguous(array), order))


def as_tensor(value: Any) -> Any:
    """A value that a program captures, as its native call takes it."""
    return wrap(value) if isinstance(value, np.ndarray) else value
