"""End of a path of a traced function: its program, the values written back, the results."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Container, Generator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hybridml_compiler.errors import CompileError, HybridmlError, TraceError, is_late
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.checks import uncovered
from hybridml_compiler.hooks import hooks
from hybridml_compiler.ops.memory_order import order_of
from hybridml_compiler.record import record, replace
from hybridml_compiler.sizes.dims import is_dim
from hybridml_compiler.sizes.values import bindings, evaluate, has_dims, substitute

from ...core import aliasing, pytree
from ...core.autodiff.tape import is_node
from ...core.context import grad_is_off, no_grad
from ...core.device_tensor import wrapped
from ...core.proxies.array import ArrayProxy
from ...core.proxies.base import concrete_value, plain_key
from ...core.proxies.integer import IntProxy
from ...core.proxies.scalar import tensor_of
from ...core.shared import is_generator_state
from ...core.tensor import Tensor, adopt, place_of
from ..capture.memory import RETURNED
from ..capture.memory_order import Order, as_seen, in_memory
from ..capture.numbers.stored_ints import INTS
from ..capture.program_arrays import is_program
from ..capture.selection import settle_shared
from ..capture.texts import parts_of
from ..capture.traced_tensor import is_number
from ..capture.tracer import Input, Tracer
from ..capture.waiting_arrays import argument_of
from ..python_state.mutations import Mutation
from ..specialize.errors import CheckFailed, StepByStep, Untraceable
from ..specialize.held_gradient import held_gradient
from ..specialize.held_gradient import parts_of as parts_of_sparse
from ..specialize.path_tree import PathEnd
from .array_results import placed, steps_of_view
from .backend import Backend
from .gradient_effects import is_called_once
from .program import Program, dense
from .random_draws import Draw, blocks_between
from .sparse_outputs import SparseOutput, outputs_of, rows_of, updated_in_place

_ndarray = np.ndarray
_LAZY = (Generator, AsyncGenerator, map, filter, zip, enumerate, reversed)


class Leaves(list[Any]):
    """Leaves of the arguments of a call, with the arguments themselves, the objects that count by identity, and the
    places that the function rebinds."""

    __slots__ = ("given", "objects", "places")
    given: Any
    objects: list[Any]
    places: Any


@record
class View:
    """A result that shares its memory with an input or another result: made as eager code makes it, in the call."""

    of_input: bool
    index: int  # of the input or output
    steps: tuple[tuple[Any, dict[str, Any]], ...]  # rows, outermost last
    recorded: bool

    def make(self, base: Tensor, sizes: Mapping[str, int] | None = None) -> Tensor:
        def view() -> Tensor:
            found = base
            for row, params in self.steps:
                known = {name: substitute(v, sizes) for name, v in params.items()} if sizes is not None else params
                found = row.fn(found, **known)
            return found

        if self.recorded:
            return view()
        with no_grad():
            return view()

    @property
    def is_sized(self) -> bool:
        """Whether a size comes with the call."""
        return any(has_dims(v) for _, params in self.steps for v in params.values())


@record
class Result:
    """A leaf of the returned container: "output" k, "float" k (a number, with its type), "input" (what is given, or a
    tensor of that array), "view" k, "array" (NumPy's, over output k), "size" (of a symbolic dimension), "value".
    """

    kind: str
    index: int
    value: Any = None


class CompiledPath(PathEnd):
    """End of a path. `given`: what the segments on the way to it compute, which its program may read; `checked`: what
    they raise for."""

    graph: Any = None  # what `fn.graph` is, once it has been asked for

    def __init__(
        self, tracer: Tracer, result: Any, backend: Backend, given: Sequence[ir.Node] = (),
        effects: Sequence[Mutation] = (),
        arguments: Sequence[tuple[int, Any]] = (), there: Sequence[tuple[int, Any]] = (),
        checked: Container[ir.Node] = (),
    ) -> None:  # fmt: skip
        """Containers that are returned as they are, by their numbers (see pytree.py): copies of those that are
        `arguments`, where a call returns its own, and those that were `there` before.
        """
        self.tracer, self.effects = tracer, effects
        self.early = [clock for clock in tracer.clocks or () if not clock.late]
        self.late = [clock for clock in tracer.clocks or () if clock.late]
        outputs: list[Tensor] = []
        leaves: list[Any] = []
        known = {id(container): number for number, container in (*there, *arguments)}
        self.known = len(known)
        flat = _plain_keys(pytree.flatten((result, *(effect.value for effect in effects)), leaves, known))
        settle_shared(tracer, leaves)
        made, leaves = iter(leaves), []
        self.structure = pytree.graft(flat, made, partial(parts_of, tracer.texts), leaves)
        whole = pytree.known_in(self.structure)
        self.own = sorted(number for number, _ in arguments if number in whole)
        self.there = {number: container for number, container in there if number in whole}
        _read_arrays(leaves)
        seen: dict[int, int] = {}
        self.views: list[View] = []
        shared = _shared_bases(tracer, leaves)
        self.results = [self._result(leaf, tracer, outputs, seen, shared) for leaf in leaves]
        self.n_results = len(outputs)  # write-backs and gradients follow
        self.writes: list[tuple[int, Input]] = []
        blocks = {r.index for r in self.results if r.kind == "array"}  # of memory, in its order
        orders: list[Order | None] = [
            None if o.ndim < 2 or k in blocks or place_of(o) is not None else order_of(aliasing.layout(o))
            for k, o in enumerate(outputs)
        ]
        updated = tracer.written()
        _check_writable(updated, tracer.inputs)
        for source in updated:
            self.writes.append((len(outputs), source))
            outputs.append(source.shadow)
            orders.append(source.order)
        self.n_own = len(outputs)  # results and write-backs: what can have a history
        self.grads: list[tuple[Input, int | None]] = []
        self.sparse: list[SparseOutput] = []
        for source, grad in tracer.grads():
            few = rows_of(tracer, source, grad) if id(grad) not in seen else None
            if few is not None:
                self.sparse.append(outputs_of(source, few, outputs))
                orders += [None, None]
                grad = None
            self.grads.append((source, None if grad is None else len(outputs)))
            if grad is not None:  # in the order of what it is the gradient of: an optimizer reads both side by side
                outputs.append(grad)
                orders.append(source.order)
        self.in_place = [outputs_of(i, grad, outputs, in_place=True) for i, grad in updated_in_place(tracer)]
        orders += [None, None] * len(self.in_place)
        checks = uncovered([o._array for o in outputs], [n for n in tracer.checks if n not in checked])
        reached = set(ir.topological([*(o._array for o in outputs), *checks]))
        self.inputs = [i for i in tracer.inputs if i.kind != "scalar" or i.node in reached]
        position = {id(i): k for k, i in enumerate(self.inputs)}
        returned = {id(tracer.inputs[r.index]) for r in self.results if r.kind == "input"}
        returned |= {id(tracer.inputs[v.index]) for v in self.views if v.of_input}
        left = [*self.writes, *((k, i) for i, k in self.grads if k is not None)]
        self.program = Program(
            tracer, [i.node for i in self.inputs], [i.leaf for i in self.inputs], outputs, backend, tracer.name,
            {k: position[id(i)] for k, i in self.writes}, [i.order for i in self.inputs], orders, given,
            sum(i.kind == "argument" for i in self.inputs), checks, [n for n in tracer.checks if is_called_once(n)],
            left={k: i for k, i in left if (i.owner or i).kind == "held" and id(i) not in returned},
        )  # fmt: skip
        at = {k: position[id(i)] for k, i in enumerate(tracer.inputs) if id(i) in position}
        self.results = [replace(r, index=at[r.index]) if r.kind == "input" else r for r in self.results]
        self.views = [replace(v, index=at[v.index]) if v.of_input else v for v in self.views]
        # Write-backs that end the history of what they update (y.zero_()).
        self.cut = [k for k, i in self.writes if i.leaf is not None and i.shadow._node is None]
        states = [(k, i) for k, i in self.writes if is_generator_state(i.real)]
        found = [(position[id(i)], i.real, blocks_between(i.node, outputs[k]._array)) for k, i in states]
        alone = bool(given) or any(blocks is None for *_, blocks in found)
        self.drawn: list[Tensor] = [i.real for _, i in states] if alone else []
        self.draws = [Draw(k, t, n) for k, t, n in found if n is not None and not alone]
        written = {position[id(i)] for _, i in self.writes}
        recorded = [k for k in self.program.differentiable() if k < self.n_own]
        # Values that a later backward reads and this call overwrites are copied first (the state of a generator).
        self.copies = sorted(written & set(self.program.needed())) if recorded and written else []
        self.fetches: dict[Any, Any] = {}  # executables of parts of it, and its values by their names (see fetch.py)
        self.named: Any = None
        self.calls = 0
        self.taken = 0  # calls that have asked their way to it
        self.first_ms = self.run_ms = 0.0  # the first call in all, and its run alone
        self.steady_ms: list[float] = []

    def _result(
        self, leaf: Any, tracer: Tracer, outputs: list[Tensor], seen: dict[int, int], shared: set[int]
    ) -> Result:
        if is_program(leaf) and (argument := argument_of(leaf)) is not None:
            return Result("input", next(k for k, i in enumerate(tracer.inputs) if i.shadow is argument))
        if is_program(leaf):
            if leaf._memory.is_given:
                leaf._memory.settle(RETURNED)
            t, place = placed(leaf)
            if id(t) not in seen:
                seen[id(t)] = len(outputs)
                outputs.append(t)
            return Result("array", seen[id(t)], place)
        if isinstance(leaf, _ndarray) and id(leaf) in tracer.shadows:
            return Result("value", -1, leaf)
        if isinstance(leaf, _LAZY):
            raise TraceError(
                f"{tracer.name} returns a {type(leaf).__name__}, which would run when the trace is over; return a list"
            )
        if is_dim(leaf):
            return Result("size", -1, leaf)
        given = tracer.later[id(leaf)][1] if type(leaf) is float and id(leaf) in tracer.later else leaf
        leaf = given._number._tensor if type(given) is IntProxy else tensor_of(given)
        if not issubclass(type(leaf), Tensor):
            return Result("value", -1, concrete_value(leaf))
        t = tracer.lift(leaf) if issubclass(type(leaf), tracer.cls) or id(leaf) in tracer.shadows else leaf
        if not issubclass(type(t), tracer.cls):
            return Result("value", -1, t)  # a tensor from outside that the program only hands on
        for k, source in enumerate(tracer.inputs if not t.is_double else ()):  # a float is given, NumPy's is returned
            if source.shadow is t and source.real is not None and source.kind != "scalar":
                return Result("input", k, isinstance(source.real, _ndarray) and type(given) is not ArrayProxy)
        base, steps = steps_of_view(t)
        if steps:
            of = next((k for k, i in enumerate(tracer.inputs) if i.shadow is base and i.real is not None), None)
            if of is not None or id(base) in shared:
                if any(getattr(op, "of_data", False) for op, _ in steps):
                    notes = (INTS,) if tracer.keeps_ints else ()
                    raise StepByStep(None, "a view is returned, of a place that data decides", notes)
                if of is None and id(base) not in seen:
                    seen[id(base)] = len(outputs)
                    outputs.append(base)
                if ~id(t) not in seen:
                    seen[~id(t)] = len(self.views)
                    index = seen[id(base)] if of is None else of
                    self.views.append(View(of is not None, index, steps, t._node is not None))
                return Result("view", seen[~id(t)])
        if id(t) not in seen:
            seen[id(t)] = len(outputs)
            outputs.append(t)
        return Result("float", seen[id(t)], given.__class__) if is_number(t) else Result("output", seen[id(t)])

    # -- the call

    def run(self, leaves: Sequence[Any], known: Mapping[ir.Node, np.ndarray]) -> Any:
        """Runs a call, with the values that its segments have computed. All that a call writes is written here."""
        start = time.perf_counter()
        for clock in self.early:
            clock.take()
        reals = [real_of(source, leaves) for source in self.inputs]
        arrays = [in_memory(array_of(r), source.order) for r, source in zip(reals, self.inputs, strict=True)]
        given = arrays.copy()
        for k, a in enumerate(arrays):
            arrays[k] = dense(a)
        for draw in self.draws:  # the program works on a copy, which is dropped
            given[draw.at] = arrays[draw.at] = np.empty(2, np.uint64)
        taken = [draw.take(arrays[draw.at]) for draw in self.draws]
        kept: list[Any] = list(reals)
        recording = not grad_is_off() and any(
            leaf is not None and isinstance(r, Tensor) and r._node is not None
            for leaf, r in zip(self.program.leaves, reals, strict=True)
        )
        if recording:
            for k in self.copies:
                array = arrays[k].copy() if type(arrays[k]) is _ndarray else arrays[k]
                copy = wrapped(as_seen(array, self.inputs[k].order))
                copy._node = reals[k]._node if isinstance(reals[k], Tensor) else None
                kept[k] = copy
        try:
            k = self.program.lead
            more = [known[n] for n in self.program.reads]
            outputs = self.program.call([*arrays[:k], *more, *arrays[k:]] if more else arrays, arrays)
        except BaseException as error:
            for draw, after in zip(self.draws, taken, strict=True):
                draw.give_back(after)
            ours = isinstance(error, CompileError) or is_late(error)  # eager would hide it
            if isinstance(error, HybridmlError) and not ours:
                raise CheckFailed from error
            hooks.forget_effects()
            raise
        for clock in self.late:
            clock.take()
        fresh: dict[int, Tensor] = {}
        for k, _ in self.writes:
            i = self.program.donate[k]
            if type(given[i]) is not _ndarray:
                aliasing.exchange(reals[i], outputs[k])
            elif outputs[k] is not given[i]:
                np.copyto(given[i], outputs[k])
        aliasing.stamp(*(r for k, _ in self.writes if isinstance(r := reals[self.program.donate[k]], Tensor)))
        for result in self.results:
            if result.kind == "output" and result.index not in fresh:
                fresh[result.index] = self._seen(outputs, result.index)
        for view in self.views:
            if not view.of_input and view.index not in fresh:
                fresh[view.index] = self._seen(outputs, view.index)
        for sparse in self.in_place:  # also those that the call drops: others may hold them
            sparse.put(real_of(sparse.source, leaves), wrapped(outputs[sparse.rows]), wrapped(outputs[sparse.values]))
        for source, index in self.grads:
            grad = None if index is None else wrapped(as_seen(outputs[index], source.order))
            real_of(source, leaves)._node.grad = grad
        for sparse in self.sparse:
            sparse.put(real_of(sparse.source, leaves), wrapped(outputs[sparse.rows]), wrapped(outputs[sparse.values]))
        if recording or self._makes_leaves():
            self._record(kept, fresh, reals, outputs[len(self.program.outputs) :])
        views = self._views(fresh, reals) if self.views else []
        sizes: dict[str, int] = {}
        if any(r.kind == "size" for r in self.results):
            sizes = bindings([i.node.shape for i in self.inputs], [a.shape for a in arrays])
        values = [self._value(r, fresh, outputs, reals, views, sizes) for r in self.results]
        made = dict(self.there)
        if self.own and isinstance(leaves, Leaves):
            there = pytree.containers(leaves.given)
            made |= {k: there[-1 - k] for k in self.own}
        value, *put = pytree.unflatten(self.structure, values, made, self.known)
        for effect, new in zip(self.effects, put, strict=True):
            effect.put(new)
        self._time(start)
        return value

    def _makes_leaves(self) -> bool:
        return any(o._node is not None for o in self.program.outputs)

    def _record(self, kept: list[Any], fresh: dict[int, Tensor], reals: list[Any], saved: list[np.ndarray]) -> None:
        results = dict(fresh)
        for k, _ in self.writes:
            real = reals[self.program.donate[k]]
            if isinstance(real, Tensor) and is_node(self.program.outputs[k]._node):
                results[k] = real  # an update in place that is part of the history
        self.program.record(kept, results, saved)
        for k in self.cut:
            reals[self.program.donate[k]]._node = None

    def _seen(self, outputs: Sequence[np.ndarray], k: int) -> Tensor:
        return wrapped(as_seen(outputs[k], self.program.output_orders[k]))

    def _views(self, fresh: dict[int, Tensor], reals: list[Any]) -> list[Tensor]:
        sizes = None
        if any(view.is_sized for view in self.views):
            arrays = [in_memory(array_of(r), i.order).shape for r, i in zip(reals, self.inputs, strict=True)]
            sizes = bindings([n.shape for n in self.program.nodes], arrays)
        return [
            view.make(_tensor(reals[view.index]) if view.of_input else fresh[view.index], sizes) for view in self.views
        ]

    def _value(
        self,
        r: Result,
        fresh: dict[int, Tensor],
        outputs: Sequence[np.ndarray],
        reals: list[Any],
        views: list[Tensor],
        sizes: Mapping[str, int],
    ) -> Any:
        if r.kind == "view":
            return views[r.index]
        if r.kind == "output":
            return fresh[r.index]
        if r.kind == "array":
            return r.value.of_memory(outputs[r.index])
        if r.kind == "float":
            return r.value(wrapped(outputs[r.index]).item())
        if r.kind == "size":
            return evaluate(r.value, sizes)
        if r.kind == "input":
            return _tensor(reals[r.index]) if r.value else reals[r.index]
        return r.value

    def _time(self, start: float) -> None:
        self.calls += 1
        elapsed = (time.perf_counter() - start) * 1e3
        if self.calls == 1:
            self.run_ms = elapsed
            self.first_ms += elapsed
        elif self.calls < 64:
            self.steady_ms.append(elapsed)


def _read_arrays(leaves: Sequence[Any]) -> None:
    """Makes the arrays among the arguments that are returned inputs, before others are counted."""
    for leaf in leaves:
        if is_program(leaf):
            argument_of(leaf)
        elif type(leaf) is ArrayProxy:
            tensor_of(leaf)


def real_of(source: Input, leaves: Sequence[Any]) -> Any:
    """The value of an input in a call with these arguments."""
    if source.kind == "argument":
        return leaves[source.index]
    if source.kind == "grad" and source.owner is not None:
        grad: Any = held_gradient(real_of(source.owner, leaves))
        return grad if source.index < 0 else parts_of_sparse(grad)[source.index]
    return source.real if source.scalar is None else source.scalar.read()


def hooks_of(node: Any) -> tuple[int, ...]:
    """Keys of the hooks of a leaf, and of what takes its gradients: the program has them built in."""
    keys = tuple(node.hooks) if node.hooks else ()
    return keys if node.reduction is None else (*keys, node.reduction[0].key)


def _plain_keys(s: pytree.Structure) -> pytree.Structure:
    """A structure without numbers of the trace, whose values are known when they have become keys."""
    if s.kind is None or s.kind is pytree.Again:
        return s
    keys = tuple([plain_key(key) for key in s.keys])
    return s._replace(keys=keys, children=tuple(map(_plain_keys, s.children)))


def _shared_bases(tracer: Tracer, leaves: Sequence[Any]) -> set[int]:
    """Ids of the base arrays that several results are views of."""
    found: dict[int, set[int]] = {}
    for leaf in leaves:
        if issubclass(type(leaf), tracer.cls):
            found.setdefault(id(steps_of_view(leaf)[0]), set()).add(id(leaf))
    return {base for base, several in found.items() if len(several) > 1}


def _tensor(real: Any) -> Tensor:
    return real if isinstance(real, Tensor) else adopt(real)


def owner_of(array: np.ndarray) -> Any:
    """The object whose memory an array has; one for all buffers that are not NumPy's, as a file that is mapped."""
    owner = array if array.base is None else array.base
    return owner if type(owner) is _ndarray and owner.base is None else memoryview


def array_of(real: Any) -> np.ndarray:
    if isinstance(real, Tensor):
        return real._array
    return real if type(real) is _ndarray else np.asarray(real, dtype=np.float64)


def in_host_memory(real: Any) -> bool:
    """Whether the memory of an input is NumPy's, which others may share."""
    return not isinstance(real, Tensor) or type(real).home is None


def has_kin(written: Sequence[Tensor], inputs: Sequence[Any]) -> bool:
    """Whether a tensor of a device is written to, and another input is a view of it, or of what it views."""
    cells = {id(t._version) for t in written if type(t._version) is list}
    return len({id(i) for i in inputs if isinstance(i, Tensor) and id(i._version) in cells}) > len(cells)


def _check_writable(written: Sequence[Input], inputs: Sequence[Input]) -> None:
    """Raises an error where an update in place cannot reach its memory, or another input would show it half done."""
    placed = [i.real for i in written if not in_host_memory(i.real)]
    if has_kin(placed, [i.real for i in inputs]):
        raise Untraceable("in-place update of a tensor that is passed together with a view of it; clone() one of them")
    inputs, written = ([i for i in group if in_host_memory(i.real)] for group in (inputs, written))
    for source in written:
        if not array_of(source.real).flags.writeable:
            raise Untraceable(f"in-place update of {source.node.name}, whose memory is read-only; clone() it first")
    targets = {id(source) for source in written}
    arrays = [(array_of(i.real), i) for i in inputs if isinstance(i.real, Tensor | _ndarray)]
    spans = [(*np.lib.array_utils.byte_bounds(array), i) for array, i in arrays]
    spans.sort(key=lambda span: span[:2])
    reach: list[tuple[int, Input]] = []  # spans before this one that end behind its start
    for low, high, i in spans if written else ():
        reach = [(end, other) for end, other in reach if end > low]
        for _, other in reach:
            if {id(i), id(other)} & targets and np.shares_memory(array_of(i.real), array_of(other.real)):
                source, shown = (i, other) if id(i) in targets else (other, i)
                raise Untraceable(
                    f"in-place update of {source.node.name}, which shares memory with {shown.node.name}: a compiled "
                    "program cannot see the one through the other; pass only one of them, or clone() one"
                )
        reach.append((high, i))
