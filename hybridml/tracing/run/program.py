"""A captured graph as a differentiable function of arrays: run it, record it on the eager tape, derive its gradient.

The gradient of a program is another program: the history that was recorded while the function was traced is walked back
*inside the same trace*, so it follows exactly what an eager backward would do (custom functions, `detach`, `no_grad`,
hooks), and it is itself recorded: gradients of gradients are made the same way. It computes what it needs of the
forward pass again, together with the gradient, in one graph.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import partial
from typing import Any, TypeVar

import numpy as np

from hybridml_compiler.aval import CPU, Aval
from hybridml_compiler.errors import CompileError, GradientError, HybridmlError, TraceError, warn
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.checks import uncovered
from hybridml_compiler.graph.devices import device_of
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.sizes import at_sizes
from hybridml_compiler.graph.text import print_graph
from hybridml_compiler.hooks import hooks
from hybridml_compiler.once import lazy
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.record import record
from hybridml_compiler.sizes.guards import Guard, Guards
from hybridml_compiler.sizes.steps import Undecided
from hybridml_compiler.sizes.values import bindings, check_of
from hybridml_compiler.targets.registry import find_device

from ...core.autodiff.tape import Leaf, Node, freed, is_freed, is_node, kept_by, make_node, parents_of, part, run, stale
from ...core.context import grad_is_off, no_grad, watch_var
from ...core.device_tensor import wrapped
from ...core.nested import top_nesting
from ...core.source_location import here
from ...core.tensor import Tensor
from ..capture.memory_order import Order, as_seen, in_memory, inverse
from ..capture.subgraph import between, cut
from ..capture.tracer import Input, Tracer
from ..specialize.symbolic_shapes import binders, decisions
from .backend import INTERPRET, LLVM, Backend
from .gradient_effects import is_called_once, with_updates
from .inlined import inlined
from .placed import PlacedExecutable

_ndarray = np.ndarray
T = TypeVar("T")


class Interpreted:
    """The executable without a compiler: every node by its `eager` column. Same protocol, same donation."""

    def __init__(self, graph: ir.Graph, donate: Mapping[int, int], backend: Backend = LLVM) -> None:
        self.graph, self.donate, self.backend = graph, donate, backend
        self.ir, self.llvm = print_graph(graph), ""
        self.stats: Any = None

    @lazy
    def compiled(self) -> Any:
        """An executable with a native entry."""
        return compile_graph(self.graph, self.donate, self.backend)

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        outputs = interpret(self.graph, arrays)
        owned: set[int] = set()
        for k, out in enumerate(outputs):
            own = out.base is None and out.flags.writeable and out.flags.c_contiguous and id(out) not in owned
            if k not in self.donate and (not own or any(out is a for a in arrays)):
                outputs[k] = out.copy()
            owned.add(id(outputs[k]))
        held = {k: np.array(outputs[k]) for k in self.donate}
        for k, i in self.donate.items():
            np.copyto(arrays[i], held[k])
            outputs[k] = arrays[i]
        return outputs


def is_native(executable: Any) -> bool:
    """Whether an executable has an entry for native callers: none has that is interpreted, or of another device."""
    return hasattr(executable, "step")


def compile_graph(
    graph: ir.Graph, donate: Mapping[int, int], backend: Backend = LLVM, guards: Guards | None = None
) -> Any:
    """An executable: `exe(arrays) -> arrays`, donated outputs written into the memory of their inputs.

    TraceError where a value that a body of control flow was given has come out of it by way of Python.
    """
    given = set(graph.inputs)
    for node in graph.nodes():
        if node.is_input and node not in given:
            raise TraceError(
                f"{graph.name} uses a value of {node.name} outside of it (given at {node.where}); values come out of "
                "it as what its function returns"
            )
    from hybridml_compiler.pipeline import compile

    if any(node.aval.device != CPU for node in graph.nodes()):
        from hybridml_compiler.placement.by_operands import placement, spans_devices
        from hybridml_compiler.targets.partitioned import PartitionedExecutable

        def compiled(part: ir.Graph, donated: Mapping[int, int]) -> Any:
            return compile(
                part, dict(donated), graph.name, guards, None, backend.among, backend.memory, backend.settings
            )

        if backend.among or spans_devices(graph, placement(graph)):
            executable = compiled(graph, {})
            if type(executable) is PartitionedExecutable:
                return executable
        return PlacedExecutable(graph, donate, find_device(device_of(graph)), compiled)
    if backend.name == INTERPRET.name:
        return Interpreted(graph, donate)

    try:
        return compile(graph, dict(donate), graph.name, guards, None, backend.among, backend.memory, backend.settings)
    except ImportError as missing:  # a platform without llvmlite
        warn(
            f"traced functions run without the compiler, one NumPy operation at a time ({missing}); install llvmlite, "
            "or trace with backend='interpret' where this is meant"
        )
        return Interpreted(graph, donate)


class PerSize:
    """The executable of a gradient with symbolic sizes for which the compiler makes none: a program for each size."""

    def __init__(self, graph: ir.Graph, donate: Mapping[int, int], backend: Backend) -> None:
        self.graph, self.donate, self.backend = graph, donate, backend
        self.ir, self.llvm = print_graph(graph), ""
        self.stats: Any = None
        self._programs: dict[tuple[tuple[str, int], ...], Any] = {}

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        sizes = bindings([node.shape for node in self.graph.inputs], [a.shape for a in arrays])
        key = tuple(sizes.items())
        if key not in self._programs:
            self._programs[key] = compile_graph(at_sizes(self.graph, sizes), self.donate, self.backend)
        found: list[np.ndarray] = self._programs[key](arrays)
        return found


@record(frozen=False, eq=False)
class Program:
    """Graph inputs (with the leaf of each that wants a gradient) and traced outputs (with their traced history)."""

    tracer: Tracer
    nodes: list[ir.Node]
    leaves: list[Leaf | None]
    outputs: list[Tensor]
    backend: Backend
    name: str
    donate: dict[int, int] = field(default_factory=dict)
    # Of the memory of each input, and of each output; a gradient lies as what it is the gradient of.
    orders: list[Order | None] = field(default_factory=list)
    output_orders: list[Order | None] = field(default_factory=list)
    # Nodes whose values the caller has by now: the executable takes those that it needs (`reads`) after the first
    # `lead` of its inputs, the arguments.
    given: Sequence[ir.Node] = ()
    lead: int = 0
    checks: Sequence[ir.Node] = ()  # what eager code raises for and the outputs may not
    once: Sequence[ir.Node] = ()  # what a gradient does not compute again (see gradient_effects.py)
    guards: list[Guard] = field(default_factory=list)  # of a gradient that was derived after its call
    left: Mapping[int, Input] = field(default_factory=dict)  # outputs that are left in captured tensors, or their .grad
    is_gradient: bool = False
    compile_ms: float = 0.0
    _executable: Any = None
    _vjps: dict[tuple[int, ...], Backward] = field(default_factory=dict)

    @lazy
    def whole(self) -> ir.Graph:
        """The graph from the inputs of a call; `graph` is the part left to compute after the values asked for."""
        stored = tuple(
            o._array if order is None else ir.apply(OPS["permute_dims"], [o._array], {"axes": order})
            for o, order in zip(self.outputs, self.output_orders, strict=True)
        )
        return ir.Graph(tuple(self.nodes), (*stored, *self.saved), self.name, tuple(self.checks))

    @lazy
    def saved(self) -> list[ir.Node]:
        """The values among `once` that a call gives after its outputs, and its history keeps. A gradient gives all: its
        own is derived when somebody asks for it.
        """
        if self.is_gradient or not self.once or not self.differentiable():
            return list(self.once) if self.is_gradient else []
        reads = {node for backward in self._backwards() for node in backward.program.reads}
        return [node for node in self.once if node in reads]

    @lazy
    def _cut(self) -> tuple[ir.Graph, list[ir.Node]]:
        if not self.given:
            return self.whole, []
        graph, reads = cut(self.whole.outputs, dict.fromkeys(self.given), self.name, self.nodes, self.checks)
        own, k = len(self.nodes), self.lead
        inputs = (*self.nodes[:k], *graph.inputs[own:], *self.nodes[k:])
        return ir.Graph(inputs, graph.outputs, self.name, graph.checks), reads[own:]

    @lazy
    def graph(self) -> ir.Graph:
        regions = self.tracer.regions
        found: ir.Graph = self._cut[0] if regions is None else regions.part(self)
        return found

    @property
    def reads(self) -> list[ir.Node]:
        return self._cut[1]

    def places(self, saved: Sequence[ir.Node]) -> list[int]:
        """The places of saved values in what a history keeps: behind the inputs."""
        at = {node: k for k, node in enumerate(self.saved, len(self.nodes))} if saved else {}
        return [at[node] for node in saved]

    @property
    def orders_of_call(self) -> list[Order | None]:
        """The orders of what a gradient is called with: its inputs, and what the call that it is of has saved."""
        return [*self.orders, *(None for _ in self.reads)]

    def without_saved(self, results: list[T]) -> list[T]:
        """The outputs among what the executable gives."""
        return results[: len(self.outputs)]

    @property
    def executable(self) -> Any:
        if self._executable is None:
            with self.tracer.deriving:
                self._compile()
        return self._executable

    def _compile(self) -> None:
        if self._executable is None:
            start = time.perf_counter()
            shift = len(self.reads)
            donate = {k: i if i < self.lead else i + shift for k, i in self.donate.items()}
            try:
                self._executable = compile_graph(self.graph, donate, self.backend, self.tracer.guards)
            except (CompileError, TraceError) as error:
                undecided = isinstance(error, Undecided)  # of a loop, when it is too late to take it step by step
                if not self.is_gradient or (self.tracer.guards is None and not undecided):
                    raise
                self._executable = PerSize(self.graph, donate, INTERPRET if undecided else self.backend)
            self.compile_ms = (time.perf_counter() - start) * 1e3

    def call(self, arrays: Sequence[np.ndarray], own: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Runs the executable. `own`: the inputs of `whole`, for whoever looks for the node that made a NaN."""
        watching = watch_var.get()
        outputs: list[np.ndarray] = self.executable(arrays) if watching is None else watching.call(self, arrays, own)
        return outputs

    def differentiable(self) -> tuple[int, ...]:
        """Positions of the outputs that have a traced history."""
        return tuple(k for k, o in enumerate(self.outputs) if is_node(o._node) and not is_freed(o._node))

    def vjp(self, mask: tuple[int, ...]) -> Backward:
        """The program from inputs and cotangents of the outputs in `mask` to cotangents of the inputs."""
        found = self._vjps.get(mask)
        if found is None:
            with self.tracer.deriving:
                found = self._vjps.get(mask)
                if found is None:
                    found = self._vjps[mask] = self._derived(mask)
        return found

    def _derived(self, mask: tuple[int, ...]) -> Backward:
        guards = self.tracer.guards
        before = None if guards is None else guards.copy()
        with decisions(guards):
            found = self._make_vjp(mask)
        found.program.is_gradient = True
        found.program.guards = [] if guards is None or before is None else guards.since(before)
        return found

    def _make_vjp(self, mask: tuple[int, ...]) -> Backward:
        tracer = self.tracer
        known = len(tracer.inputs)
        positions = {id(leaf): k for k, leaf in enumerate(self.leaves) if leaf is not None}
        inputs, cotangents, orders = [], [], [self.output_orders[k] for k in mask]
        for k, order in zip(mask, orders, strict=True):  # each lies as what it is the cotangent of
            o = self.outputs[k]
            shape = o.shape if order is None else tuple([o.shape[axis] for axis in order])
            node = ir.input_node(Aval(shape, o.dtype, device=o._array.aval.device), f"g{k}")
            inputs.append(node)
            seen = node if order is None else ir.apply(OPS["permute_dims"], [node], {"axes": inverse(order)})
            g = tracer.wrap(seen)
            g._node = Leaf(o.shape, o.dtype)
            cotangents.append(g)
        seeds = [(self.outputs[k]._node, g) for k, g in zip(mask, cotangents, strict=True)]
        mine = set(self.nodes)
        before, tracer.checks = tracer.checks, {}
        try:
            walk = partial(run, seeds, retain=True, create=True, wanted=positions)
            found, updates = with_updates(tracer, walk, mine, self.name)
        finally:
            own, tracer.checks = tracer.checks, before
        wanted = sorted(positions[key] for key in found)
        outputs = [*(found[id(self.leaves[k])][1] for k in wanted), *(tracer.wrap(node) for _, node in updates)]
        checks = uncovered([o._array for o in outputs], own)
        roots = [*(o._array for o in outputs), *checks]
        reached, read = set(ir.topological(roots)), set(between(roots, set(self.once)))
        sources = dict.fromkeys((*tracer.inputs, *(i for i, _ in updates)))
        held = [i for i in sources if i.node in read and i.node not in mine]
        more = set(binders(reached, [n for n in reached if n.is_input], self.nodes))
        # A gradient of it may want that of an input, even if the values behind `once` are not computed again.
        used = [
            k for k, (node, leaf) in enumerate(zip(self.nodes, self.leaves, strict=False))
            if node in read or node in more or (leaf is not None and node in reached)
        ]  # fmt: skip
        assert all(i.kind in ("held", "array") or k >= known for k, i in enumerate(held)), held
        program = Program(
            tracer,
            nodes := [*(self.nodes[k] for k in used), *(i.node for i in held), *inputs],
            [*(self.leaves[k] for k in used), *(i.leaf for i in held), *(g._node for g in cotangents)],
            outputs, self.backend, f"{self.name}_vjp", {},
            [*(self.orders[k] for k in used), *(i.order for i in held), *orders],
            [*(self.orders[k] for k in wanted), *(i.order for i, _ in updates)],
            self.once, len(nodes), checks, [*self.once, *filter(is_called_once, own)],
        )  # fmt: skip
        return Backward(program, used, held, wanted, [i for i, _ in updates])

    def _check(self, arrays: Sequence[np.ndarray]) -> None:
        """Raises TraceError if a gradient with symbolic sizes was derived for other sizes than the call's."""
        shapes = getattr(self.executable, "shapes", None) if self.guards else None
        if shapes is None:
            return
        values = dict(zip(shapes.names, shapes.values(arrays), strict=True))
        broken = [g for g in self.guards if not check_of(list(values), [g])(*values.values())]
        if broken:
            raise TraceError(
                f"{self.name}: this gradient holds where {broken[0]} ({broken[0].where}), and the call had "
                f"{', '.join(f'{name} = {value}' for name, value in values.items())}; trace the function with "
                "dynamic=False"
            )

    def record(self, tensors: Sequence[Any], results: Mapping[int, Tensor], saved: Sequence[np.ndarray] = ()) -> None:
        """Gives the results of an eager call of this program their history. `saved`: the values that it has saved."""
        if grad_is_off():
            return
        positions = {id(leaf): k for k, leaf in enumerate(self.leaves) if leaf is not None}
        wanting = [
            k for k, leaf in enumerate(self.leaves)
            if leaf is not None and isinstance(tensors[k], Tensor) and tensors[k]._node is not None
        ]  # fmt: skip
        joint: Node | None = None
        for k, t in results.items():
            node = self.outputs[k]._node
            if node is None:
                continue
            if id(node) in positions:  # an input as it came: its history goes on
                given = tensors[positions[id(node)]]
                t._node = given._node if isinstance(given, Tensor) else None
            elif not is_node(node):
                t.requires_grad_()  # a leaf that the program itself has made
            elif is_freed(node):
                t._node = freed(t.shape)  # an inner backward has freed its history
            elif wanting:
                if joint is None:
                    joint = self._joint(tensors, wanting, saved)
                t._node = part(joint, k, t.shape)

    def _joint(self, tensors: Sequence[Any], wanting: list[int], saved: Sequence[np.ndarray]) -> Node:
        needed = set(self.needed())
        kept = [*(t if k in needed else None for k, t in enumerate(tensors)), *map(wrapped, saved)]
        return self.history([tensors[k] for k in wanting], wanting, kept)

    def history(self, parents: Sequence[Tensor], wanting: list[int], kept: list[Any]) -> Node:
        """The tape node of a call's results: `parents` at the inputs `wanting` get gradients, computed from `kept`."""
        return make_node(_pull_program, None, [t._node for t in parents], self, wanting, kept, here())

    def needed(self) -> list[int]:
        """Inputs whose values a backward of this program reads."""
        return sorted({k for backward in self._backwards() for k in backward.used})

    def _backwards(self) -> list[Backward]:
        """The gradient of all outputs together; where that is an error, of each for which it is none."""
        mask = self.differentiable()
        try:
            return [self.vjp(mask)]
        except HybridmlError:  # of one of them; it will be raised again, and meant, when a backward from it comes
            found = []
            for k in mask if len(mask) > 1 else ():
                with suppress(HybridmlError):
                    found.append(self.vjp((k,)))
            return found

    def apply(self, tensors: Sequence[Any]) -> list[Tensor]:
        """Runs on tensors (or arrays), recording where they want gradients."""
        around = top_nesting()
        if around is not None:
            return inlined(self, around, tensors)
        arrays = [
            dense(in_memory(t._array if isinstance(t, Tensor) else t, order))
            for t, order in zip(tensors, self.orders_of_call, strict=True)
        ]
        self._check(arrays)
        try:
            arrays = self.call(arrays, arrays)
        except BaseException:
            hooks.forget_effects()
            raise
        outputs = zip(self.without_saved(arrays), self.output_orders, strict=True)
        results = [wrapped(as_seen(a, order)) for a, order in outputs]
        self.record(tensors[: len(self.nodes)], dict(enumerate(results)), arrays[len(results) :])
        return results


@record(frozen=False, eq=False)
class Backward:
    """The gradient of a program, with the inputs that it reads and those that its outputs are cotangents of."""

    program: Program
    used: list[int]
    held: list[Input]
    wanted: list[int]
    updated: list[Input]  # tensors whose new values follow the cotangents


def dense(array: np.ndarray | float) -> np.ndarray:
    """The array that native code reads: C-contiguous, aligned, in this machine's byte order; a captured scalar is
    a float64 number.
    """
    if isinstance(array, float | int):
        return np.asarray(array, np.float64)
    if not isinstance(array, _ndarray):
        return array  # of a device
    if array.flags.c_contiguous and array.flags.aligned and array.dtype.isnative:
        return array
    return array.copy() if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="), "C")


def _pull_program(bundle: dict[int, Tensor], node: Node) -> list[tuple[Any, Tensor]]:
    program, wanting, kept, place = kept_by(node)
    mask = tuple(sorted(bundle))
    backward = program.vjp(mask)
    for k in backward.used:
        t = kept[k]
        if t is None:
            raise GradientError(f"{program.name}: the gradient needs input {k}, which the call did not keep")
        if isinstance(t, Tensor) and t._version:
            stale(program.name, f"input {program.nodes[k].name}", t._version, node, place)
    tensors = [*(kept[k] for k in backward.used), *(i.real for i in backward.held), *(bundle[k] for k in mask)]
    found = backward.program.apply([*tensors, *(kept[k] for k in program.places(backward.program.reads))])
    gradients, states = found[: len(backward.wanted)], found[len(backward.wanted) :]
    with no_grad():
        for source, state in zip(backward.updated, states, strict=True):
            source.real.copy_(state)
    at = {k: g for k, g in zip(backward.wanted, gradients, strict=True)}
    return [(parent, at[k]) for parent, k in zip(parents_of(node), wanting, strict=True) if k in at]
