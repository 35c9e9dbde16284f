"""One compiled signature of a traced function: where its inputs come from, what it writes back, what it returns."""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybridml_compiler.errors import TraceError

from .. import aliasing, tree
from ..context import grad_is_off
from ..tape import KEPT
from ..tensor import Tensor, adopt, wrap
from .capture import Input, Tracer, same_float
from .guards import Watch
from .order import Order, as_seen, in_memory
from .program import Program, dense

_ndarray = np.ndarray


class TraceWarning(UserWarning):
    """A traced function does something that a compiled call will not repeat."""


@dataclass(frozen=True)
class Result:
    """A leaf of the returned container: "output" k, "float" k (of lifted floats), "input" (the tensor given),
    "value".
    """

    kind: str
    index: int
    value: Any = None


class Entry:
    """See the module. Made by `capture`, called by `TracedFunction`."""

    def __init__(self, tracer: Tracer, watch: Watch, result: Any, backend: str, objects: list[Any]) -> None:
        self.tracer, self.watch, self.keep = tracer, watch, objects
        outputs: list[Tensor] = []
        leaves: list[Any] = []
        self.structure = tree.flatten(result, leaves)
        seen: dict[int, int] = {}
        self.results = [self._result(leaf, tracer, outputs, seen) for leaf in leaves]
        self.n_results = len(outputs)  # write-backs and gradients follow
        self.writes: list[tuple[int, Input]] = []
        orders: list[Order | None] = [None] * len(outputs)
        updated = tracer.written()
        _check_writable(updated, tracer.inputs)
        for source in updated:
            self.writes.append((len(outputs), source))
            outputs.append(source.shadow)
            orders.append(source.order)
        self.n_own = len(outputs)  # results and write-backs: what can have a history
        self.grads: list[tuple[Input, int | None]] = []
        for source, grad in tracer.grads():
            self.grads.append((source, None if grad is None else len(outputs)))
            if grad is not None:  # in the order of what it is the gradient of: an optimizer reads both side by side
                outputs.append(grad)
                orders.append(source.order)
        self.inputs = list(tracer.inputs)
        position = {id(i): k for k, i in enumerate(self.inputs)}
        self.program = Program(
            tracer, [i.node for i in self.inputs], [i.leaf for i in self.inputs], outputs, backend, tracer.name,
            {k: position[id(i)] for k, i in self.writes}, [i.order for i in self.inputs], orders,
        )  # fmt: skip
        self.held = [(i.real, i.real._array, i.wants, i.recorded) for i in self.inputs if i.kind == "held"]
        self.hooks = [(i, _hooks(i.real._node)) for i in self.inputs if i.leaf is not None and not i.recorded]
        self.special = list(tracer.special.items())
        # An argument that the program also reaches in another way (a parameter passed in, say) must be that one again.
        self.aliased = [(i.index, i.real) for i in self.inputs if i.kind == "argument" and id(i.real) in tracer.reached]
        # An argument must not share memory with a tensor that is updated; NumPy's views know the array that owns it.
        self.owners: dict[int, list[np.ndarray]] = {}
        for _, i in self.writes:
            if i.kind != "argument":
                self.owners.setdefault(id(_owner(_array(i.real))), []).append(_array(i.real))
        self.updated = {id(i): i for _, i in self.writes if i.kind == "argument"}
        self.grad_guards = [(i, none) for i, none in tracer.grad_guards]
        written = {position[id(i)] for _, i in self.writes}
        recorded = [k for k in self.program.differentiable() if k < self.n_own]
        # Values that a later backward reads and this call overwrites are copied first (the state of a generator).
        self.copies = sorted(written & set(self.program.needed())) if recorded and written else []
        for source in self.inputs:  # a call brings its own; the first call's must not stay in memory
            if source.kind in ("argument", "grad") and id(source.real) not in tracer.reached:
                tracer.shadows.pop(id(source.real), None)
                source.real = None
        self.fast: Any = None  # set by `fast.build` at the second call
        self.calls = 0
        self.first_ms = self.run_ms = 0.0  # the first call in all, and its run alone
        self.steady_ms: list[float] = []

    def _result(self, leaf: Any, tracer: Tracer, outputs: list[Tensor], seen: dict[int, int]) -> Result:
        if isinstance(leaf, _ndarray) and id(leaf) in tracer.shadows:
            return Result("value", -1, leaf)
        if not isinstance(leaf, Tensor):
            return Result("value", -1, leaf)
        t = tracer.lift(leaf) if type(leaf) is tracer.cls or id(leaf) in tracer.shadows else leaf
        if type(t) is not tracer.cls:
            return Result("value", -1, t)  # a tensor from outside that the program only hands on
        for k, source in enumerate(tracer.inputs):
            if source.shadow is t and source.real is not None:
                return Result("input", k)
        if id(t) not in seen:
            seen[id(t)] = len(outputs)
            outputs.append(t)
        return Result("float" if t._array.aval.weak else "output", seen[id(t)])

    # -- guards

    def holds(self, leaves: Sequence[Any]) -> bool:
        """Whether the compiled program is right for this call (the signature has been compared already)."""
        for index, value in self.special:
            if not same_float(leaves[index], value):
                return False
        for index, real in self.aliased:
            if leaves[index] is not real:
                return False
        if self.owners and self.overlaps(leaves):
            return False
        if self.updated and self._clashes(leaves):
            return False
        for t, array, wants, recorded in self.held:
            if t._array is not array and (t._array.shape != array.shape or t._array.dtype is not array.dtype):
                return False
            node = t._node
            if (node is not None) is not wants or (wants and (type(node) is list) is not recorded):
                return False
        for source, hooks in self.hooks:
            if _hooks(self._real(source, leaves)._node) != hooks:
                return False
        for source, none in self.grad_guards:
            if (self._grad(source, leaves) is None) is not none:
                return False
        for source in self.inputs:
            if source.kind == "grad" and source.owner is not None:
                grad = self._grad(source.owner, leaves)
                if grad is None or grad.shape != source.start.shape or grad.dtype is not source.node.dtype:
                    return False
        return self.watch.holds()

    def overlaps(self, leaves: Sequence[Any]) -> bool:
        """Whether an argument shares memory with a captured tensor that the program updates."""
        for leaf in leaves:
            if isinstance(leaf, Tensor | _ndarray):
                array = _array(leaf)
                for other in self.owners.get(id(_owner(array)), ()):
                    if np.shares_memory(array, other):
                        return True
        return False

    def _clashes(self, leaves: Sequence[Any]) -> bool:
        """Whether an argument that is updated is read-only, or lies where another input does: capturing says which."""
        owners: dict[int, list[tuple[Any, bool]]] = {}
        for source in self.inputs:
            real = self._real(source, leaves)
            if isinstance(real, Tensor | _ndarray):
                updated = id(source) in self.updated
                if updated and not _array(real).flags.writeable:
                    return True
                owners.setdefault(id(_owner(_array(real))), []).append((real, updated))
        return any(
            (p or q) and x is not y and np.shares_memory(_array(x), _array(y))
            for same in owners.values()
            for (x, p), (y, q) in itertools.combinations(same, 2)
        )

    def _grad(self, source: Input, leaves: Sequence[Any]) -> Tensor | None:
        node = self._real(source, leaves)._node
        return None if node is None or type(node) is list else node.grad

    def _real(self, source: Input, leaves: Sequence[Any]) -> Any:
        if source.kind == "argument":
            return leaves[source.index]
        if source.kind == "grad" and source.owner is not None:
            return self._grad(source.owner, leaves)
        return source.real

    # -- the call

    def run(self, leaves: Sequence[Any]) -> Any:
        start = time.perf_counter()
        reals = [self._real(source, leaves) for source in self.inputs]
        arrays = [in_memory(_array(r), source.order) for r, source in zip(reals, self.inputs, strict=True)]
        given = arrays.copy()
        for k, a in enumerate(arrays):
            arrays[k] = dense(a)
        kept: list[Any] = list(reals)
        recording = not grad_is_off() and any(
            leaf is not None and isinstance(r, Tensor) and r._node is not None
            for leaf, r in zip(self.program.leaves, reals, strict=True)
        )
        if recording:
            for k in self.copies:
                copy = wrap(as_seen(arrays[k].copy(), self.inputs[k].order))
                copy._node = reals[k]._node if isinstance(reals[k], Tensor) else None
                kept[k] = copy
        outputs = self.program.executable(arrays)
        fresh: dict[int, Tensor] = {}
        for k, _ in self.writes:
            i = self.program.donate[k]
            if given[i] is not arrays[i]:
                np.copyto(given[i], arrays[i])
            if isinstance(reals[i], Tensor):
                aliasing.stamp(reals[i])
        for result in self.results:
            if result.kind == "output" and result.index not in fresh:
                fresh[result.index] = wrap(outputs[result.index])
        for source, index in self.grads:
            grad = None if index is None else wrap(as_seen(outputs[index], source.order))
            self._real(source, leaves)._node.grad = grad
        if recording or self._makes_leaves():
            self._record(kept, fresh, reals)
        value = tree.unflatten(self.structure, [self._value(r, fresh, outputs, reals) for r in self.results])
        self._time(start)
        return value

    def _makes_leaves(self) -> bool:
        return any(o._node is not None for o in self.program.outputs)

    def _record(self, kept: list[Any], fresh: dict[int, Tensor], reals: list[Any]) -> None:
        results = dict(fresh)
        for k, _ in self.writes:
            real = reals[self.program.donate[k]]
            node = self.program.outputs[k]._node
            if isinstance(real, Tensor) and type(node) is list and len(node) > KEPT:
                results[k] = real  # an update in place that is part of the history
        self.program.record(kept, results)

    def _value(self, r: Result, fresh: dict[int, Tensor], outputs: Sequence[np.ndarray], reals: list[Any]) -> Any:
        if r.kind == "output":
            return fresh[r.index]
        if r.kind == "float":
            return outputs[r.index].item()
        return reals[r.index] if r.kind == "input" else r.value

    def _time(self, start: float) -> None:
        self.calls += 1
        elapsed = (time.perf_counter() - start) * 1e3
        if self.calls == 1:
            self.run_ms = elapsed
            self.first_ms += elapsed
        elif self.calls < 64:
            self.steady_ms.append(elapsed)


def _hooks(node: Any) -> tuple[int, ...]:
    """Keys of the hooks of a leaf: the program has them built in."""
    return tuple(node.hooks) if node.hooks else ()


def _owner(array: np.ndarray) -> Any:
    return array if array.base is None else array.base


def _array(real: Any) -> np.ndarray:
    if isinstance(real, Tensor):
        return real._array
    return real if type(real) is _ndarray else np.asarray(real, dtype=np.float64)


def _check_writable(written: Sequence[Input], inputs: Sequence[Input]) -> None:
    """An update in place must reach its memory, and no other input may show it half done."""
    for source in written:
        if not _array(source.real).flags.writeable:
            raise TraceError(f"in-place update of {source.node.name}, whose memory is read-only; clone() it first")
    targets = {id(source) for source in written}
    spans = [(*np.lib.array_utils.byte_bounds(_array(i.real)), i) for i in inputs if i.real is not None]
    spans.sort(key=lambda span: span[:2])
    reach: list[tuple[int, Input]] = []  # spans before this one that end behind its start
    for low, high, i in spans if written else ():
        reach = [(end, other) for end, other in reach if end > low]
        for _, other in reach:
            if {id(i), id(other)} & targets and np.shares_memory(_array(i.real), _array(other.real)):
                source, shown = (i, other) if id(i) in targets else (other, i)
                raise TraceError(
                    f"in-place update of {source.node.name}, which shares memory with {shown.node.name}: a compiled "
                    "program cannot see the one through the other; pass only one of them, or clone() one"
                )
        reach.append((high, i))


def capture(
    fn: Any, name: str, backend: str, structure: tree.Structure, leaves: Sequence[Any], objects: list[Any]
) -> Entry:
    """Trace `fn` on shadows of the arguments."""
    watch = Watch(fn, objects)
    tracer = Tracer(name)
    shadows = []
    for k, leaf in enumerate(leaves):
        label = f"arg{k}"
        if isinstance(leaf, Tensor):
            shadows.append(tracer.argument(k, leaf, leaf, label))
        elif isinstance(leaf, _ndarray):
            shadows.append(tracer.argument(k, leaf, adopt(leaf), label))
        elif isinstance(leaf, float):
            shadows.append(tracer.argument(k, float(leaf), None, label))
        else:
            shadows.append(leaf)
    args, kwargs = tree.unflatten(structure, shadows)
    entry: Entry = tracer.run(lambda: Entry(tracer, watch, fn(*args, **kwargs), backend, objects))
    changed = watch.drop_changed()
    if changed:
        warnings.warn(
            f"{name} changes {', '.join(sorted(set(changed)))} while it is traced: a compiled call does not repeat "
            "that; keep such values in tensors, or do it outside of the traced function",
            TraceWarning, stacklevel=5,
        )  # fmt: skip
    return entry
