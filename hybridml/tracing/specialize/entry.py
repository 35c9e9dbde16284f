"""One signature of a traced function: what it relies on, and the tree of paths that its calls have taken."""

from __future__ import annotations

import inspect
import itertools
import sys
from collections.abc import Callable, Container, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import Any

import numpy as np

from hybridml_compiler import time_limit
from hybridml_compiler.config import is_deterministic
from hybridml_compiler.errors import CompileError, TraceError
from hybridml_compiler.graph import ir
from hybridml_compiler.graph.body import steps_in
from hybridml_compiler.graph.digest import digest
from hybridml_compiler.sizes.steps import Undecided

from ...core import pytree
from ...core.autodiff import replay
from ...core.autodiff.tape import is_node
from ...core.shared import accumulating
from ...core.tensor import Tensor, adopt
from ..capture.line_observer import Observer
from ..capture.memory_order import in_memory
from ..capture.numpy_rules import raises
from ..capture.program_arrays import unlike_eager
from ..capture.texts import has_text
from ..capture.tracer import Input, Tracer
from ..python_state.builtin_patches import patches, variables_read
from ..python_state.captured_scalars import lift, over, scalar_sources, seen_in, settle
from ..python_state.guard_types import LevelGuard, thread_guards
from ..python_state.guards import Watch
from ..python_state.mutations import Mutation, find, is_plain, of_recorder, only_kept
from ..python_state.names import Names, arguments, changed
from ..python_state.prints import Output
from ..python_state.promoted_ints import Integers
from ..python_state.rebound import Places, are_apart, contain, in_place, read_and_rebound, take
from ..python_state.rebound import settle as settle_places
from ..python_state.recorded import Recorder, recordable, recording
from ..python_state.side_effects import SideEffects, set_back
from ..python_state.updated_scalars import placed
from ..rolling.capture import MOST_PARTS
from ..rolling.hooks import Rolling
from ..rolling.undecided import refused as stepwise
from ..run.backend import INTERPRET, Backend
from ..run.compiled_path import (
    CompiledPath,
    array_of,
    has_kin,
    hooks_of,
    in_host_memory,
    owner_of,
    real_of,
)
from ..run.program import dense
from .call_leaves import begin_turned, shadow, shares_any
from .eager_calls import MANY_SEGMENTS, Patience, Trial, in_time
from .errors import CheckFailed, Filled, NotGeneralizable, RunEagerly, StepByStep, TraceFailed, Untraceable, refused
from .held_gradient import form_of, held_gradient
from .path_tree import Arrays, Path, ValueBranch, build_segment, paths_of, walk
from .results import each_call_has, finished, keys_of
from .symbolic_shapes import Sized, decisions

_ndarray = np.ndarray
_NOTHING = nullcontext()


class Entry:
    """A signature with the tree of its paths: `grow` adds a path, `find` follows one."""

    def __init__(
        self, fn: Callable[..., Any], name: str, backend: Backend, objects: list[Any], strict: bool,
        sized: Sized | None = None, integers: frozenset[int] = frozenset(), seen: Integers | None = None,
        doubles: frozenset[int] = frozenset(), positions: frozenset[int] = frozenset(),
        rebound: Places | None = None,
    ) -> None:  # fmt: skip
        self.sized = sized  # where sizes are symbolic
        self.fn, self.name, self.backend, self.objects, self.strict = fn, name, backend, objects, strict
        self.watch = Watch(fn, objects)
        self.rebound = rebound or {}  # places whose tensors are behind the arguments
        self.places = take(self.watch, self.rebound)
        self.scalars = scalar_sources(fn, self.watch, seen)  # of numbers that are inputs
        self.integers, self.seen = integers, seen  # ints among the arguments that are inputs; those around it
        self.doubles = doubles  # NumPy's float64 among the arguments; native code takes them for Python's floats
        self.positions = positions  # ints among the arguments that come as lengths of arrays
        self.pinned: frozenset[int] = frozenset()  # of those, what a trace has looked at
        self.not_zero: list[Input] = []  # numbers that others are divided by
        self.root: ValueBranch | CompiledPath | None = None
        self.step_by_step: dict[Any, str] = {}  # places of loops that are not captured by one step for all: line, why
        self.apart: dict[Any, list[Any]] = {}  # of those that are, where they are parted (see errors.py)
        self.rolled = self.keeps_loops = False  # it has loops of the program; it is for any size only with loops
        self.staged = False  # functions of transforms, with loops in them, are captured first
        self.silent = False  # of a library function, which runs compiled in every stance
        self.eager = False  # calls run the function itself: it asks for another value each time
        self.patience, self.since = Patience(), time_limit.clock()  # for its traces, and since when
        self.trial: Trial | None = None  # while its calls are timed
        self.fast: Any = None  # set by `fast.build` at the second call
        self.grown = self.tried = self.asks = 0  # paths, those when `fast` was made, values that the last one asks for
        self.last: CompiledPath | None = None  # that ran the long way
        self.nodes, self.by_node = dict[Any, ir.Node](), dict[ir.Node, Input]()  # inputs of all paths
        self.build = build_segment(backend, {}, None if sized is None else sized.guards)
        # What is guarded, of all paths.
        self.inputs: list[Input] = []
        self.held: dict[int, tuple[Tensor, np.ndarray, bool, bool]] = {}
        self.hooks: list[tuple[Input, tuple[int, ...]]] = []
        # An argument that the program also reaches in another way (a parameter passed in, say) must be that one again.
        self.aliased: list[tuple[int, Any]] = []
        # An argument must not share memory with a tensor that is updated; NumPy's views know the array that owns it.
        self.owners: dict[int, list[np.ndarray]] = {}
        self.recorded: list[Any] = []  # containers that it fills, in whose place traces have a stand-in
        self.placed: list[Tensor] = []  # captured tensors of a device that a path updates
        self.updated: dict[int, Input] = {}
        self.grad_guards: list[tuple[Input, Any]] = []
        self.draws, self.drawn = False, list[Tensor]()  # generators whose states it owns in a call (random_draws.py)

    # -- paths

    @property
    def lifts(self) -> bool:
        """Whether this entry traces with a stand-in that the function may not take."""
        return bool(self.integers) or any(scalar.is_new for scalar in self.scalars)

    @property
    def paths(self) -> list[CompiledPath]:
        return list(paths_of(self.root))

    def find(self, leaves: Sequence[Any]) -> tuple[CompiledPath | None, Arrays, list[ValueBranch]]:
        """The path that this call takes (None: an unknown one), with the values on the way to it."""
        known = Arrays(lambda node: self._array(self.by_node[node], leaves))
        path, passed = walk(self.root, known)
        return path, known, passed

    def run(self, path: CompiledPath, leaves: Sequence[Any], known: Arrays) -> Any:
        """Runs the end of a path with this call's values."""
        self.last = path
        return path.run(leaves, known)

    def shown(self) -> CompiledPath | None:
        """The path of the last call."""
        return self.last if self.fast is None or self.fast.last is None else self.fast.last

    def _array(self, source: Input, leaves: Sequence[Any]) -> np.ndarray:
        return dense(in_memory(array_of(real_of(source, leaves)), source.order))

    def again(self) -> Entry:
        """A second entry for the same inputs, which traces the same nodes."""
        sized = None if self.sized is None else Sized(self.sized.pattern)
        other = Entry(
            self.fn, self.name, self.backend, self.objects, self.strict, sized, self.integers, self.seen, self.doubles,
            self.positions, self.rebound,
        )  # fmt: skip
        other.scalars, other.nodes = self.scalars, self.nodes
        return other

    def plain(self) -> Entry:
        """One for the same inputs in which all numbers but floats are constants."""
        return Entry(
            self.fn, self.name, self.backend, self.objects, self.strict, doubles=self.doubles, positions=self.positions,
            rebound=self.rebound,
        )  # fmt: skip

    def grow(
        self, structure: pytree.Structure, leaves: Sequence[Any], known: Arrays, observer: Observer | None = None
    ) -> tuple[CompiledPath, Arrays]:
        """The path that `_traced` gives; again with stand-ins of containers, where it changes some, and step by step
        through loops that cannot be captured otherwise."""
        ends = None if self.strict or is_deterministic() else self.since + self.patience.seconds
        while True:
            put_back = self.watch.kept()
            try:
                return self._traced(structure, leaves, known, observer, ends)
            except Filled as found:
                self.recorded += found.containers
            except StepByStep as loop:
                put_back()
                self.staged = self.staged or loop.stages
                apart = self.apart.setdefault(loop.place, [])
                if not loop.parts_again(self.apart) and (not loop.says or len(apart) >= MOST_PARTS):
                    loop.refuse_if(self.keeps_loops)
                    self.step_by_step.setdefault(loop.place, str(loop))
                apart += loop.apart

    def _traced(
        self, structure: pytree.Structure, leaves: Sequence[Any], known: Arrays, observer: Observer | None,
        ends: float | None = None,
    ) -> tuple[CompiledPath, Arrays]:  # fmt: skip
        """Traces the function on shadows of the arguments: the path of this call, and its values on the way. With an
        `observer` nothing but the names is wanted, and the entry stays what it is.

        An error of the function leaves state as it does eagerly: what was updated before it is.
        """
        labels = list(arguments(self.fn, structure))
        objects = {label: leaf for label, leaf in zip(labels, leaves, strict=True) if not _is_data(leaf)}
        names = Names(self.fn, objects)
        tracer = Tracer(self.name, self.nodes, self.sized, names, self.silent)
        given: dict[int, Any] = {}
        shadows = [
            tracer.lift_integer("argument", k, leaf, label, double=k in self.doubles)
            if k in self.integers
            else tracer.argument(k, leaf, adopt(leaf), label).shape[0]
            if k in self.positions
            else tracer.lift_float("argument", k, leaf, label, double=True)
            if k in self.doubles and type(leaf) is float
            else np.int64(leaf)
            if k in self.doubles
            else shadow(tracer, k, leaf, label, given)
            for k, (leaf, label) in enumerate(zip(leaves, labels, strict=True))
        ]
        copies: dict[int, Any] = {}
        args, kwargs, *more = pytree.unflatten(structure, shadows, copies)
        whole = [(-1 - k, c) for k, c in copies.items()]
        there = [(-1 - len(whole) - k, c) for k, c in enumerate(filter(pytree.is_container, self.watch.reached()))]
        found = Arrays(lambda node: self._array(tracer.input_of(node), leaves))
        found.update(known)
        proxies, contained, moving = lift(tracer, self.scalars)
        seen_as = partial(patches, self.watch.functions, self.watch.names)
        with seen_as():
            fn = over(self.fn, proxies, self.watch, tracer.copies)
        path = Path(tracer, self.root, found, self.build, self.strict)
        path.observer = tracer.observer = observer
        tracer.ask, tracer.strict = path.answer, self.strict
        tracer.alone, tracer.step_by_step, tracer.ends = self.apart, self.step_by_step, ends
        tracer.seconds = self.patience.seconds
        if observer is None and not self.silent and self.backend.takes_sizes and None not in self.step_by_step:
            tracer.rolling = Rolling(tracer, self.staged)
        tracer.root = getattr(getattr(self.fn, "__func__", self.fn), "__code__", None)
        tracer.codes, tracer.named = frozenset(self.watch.codes), dict(self.watch.named_arrays(sys.maxsize))
        tracer.knows = self.watch.knows
        output = Output(tracer, tracer.knows)
        tracer.clocks, tracer.only_kept = [], partial(only_kept, self.watch)
        tracer.prints, tracer.logs = output.print, output.log

        def end(result: Any, backend: Backend) -> CompiledPath:
            self.rolled = tracer.rolled and not self.step_by_step
            effects = [*output.said, *self._effects(hidden), *(of_recorder(self.watch, r) for r in recorders if r.done)]
            if effects and tracer.rolled:  # by which step of which loop is not known
                raise StepByStep(None, "the function changes something else")
            if not hidden.found and observer is None:
                self._record(effects, tracer)
            if any(issubclass(type(key), Tensor) for key in keys_of(result)):
                raise refused(tracer, "returns a dict that has tensors as keys")
            if shared := sorted(self.watch.name_of(r.of) for r in recorders if r.is_shared):
                raise refused(tracer, f"changes {', '.join(shared)} beside another thread")
            if seen := [e for e in effects if not e.repeats and has_text(tracer.texts, *pytree.tree_leaves(e.value))]:
                raise refused(tracer, f"changes {', '.join(sorted(map(str, seen)))}")
            if not hidden.found and any(not effect.repeats and not is_plain(effect.value) for effect in effects):
                raise refused(tracer, f"changes {', '.join(sorted(map(str, effects)))}")
            parts: list[Any] = []
            known = {id(container): number for number, container in (*there, *whole)}
            if pytree.is_cyclic(pytree.flatten(result, parts, known), len(there) + len(whole)):
                raise refused(tracer, "returns a container that contains itself")
            for leaf in parts:
                if not (each_call_has(leaf) or self.watch.knows(leaf) or any(leaf is obj for obj in self.objects)):
                    raise refused(tracer, f"returns a {type(leaf).__name__} that it makes")
            if why := unlike_eager(tracer, [*parts, *pytree.tree_leaves([effect.value for effect in effects])]):
                raise refused(tracer, why)
            arrays = [i.real for i in tracer.written() if i.kind == "argument" and type(i.real) is _ndarray]
            if arrays and any(shares_any(array, arrays) for _, array in self.watch.named_arrays(sys.maxsize)):
                raise refused(tracer, "updates an argument that it has by another name, too")
            for effect in effects:
                changed = contain(self.places, effect.container)
                if changed or (effect.array is not None and _reads(tracer, effect.array)):  # before or after: who knows
                    raise RunEagerly(f"changes {effect}, which it computes with")
            return CompiledPath(tracer, result, backend, list(path.given), effects, whole, there, path.checked)

        recorders: list[Recorder] = []
        put_in_place = recording(self.recorded, self.watch)

        def trace() -> CompiledPath:
            try:
                with hidden:
                    begin_turned(shadows)
                    stand_ins = placed(moving, self.watch), in_place(self.places, more[0] if more else {}, self.watch)
                    with seen_as(), seen_in(tracer, proxies), stand_ins[0], stand_ins[1], put_in_place as made:
                        recorders.extend(made)
                        contained.begin()
                        with nullcontext() if tracer.rolling is None else tracer.rolling.watched():
                            result = finished(fn(*args, **kwargs), self.name)
                        if tracer.loops:
                            tracer.loops[0].refuse("an error ends it")
                        if observer is not None:  # it holds all that there was
                            observer.end(tracer)
                        elif not contained.are_untouched():
                            raise NotGeneralizable(why="it changes or keeps a container of numbers that are inputs")
                self._check_arguments((args, kwargs, *more), structure, shadows, hidden)
            except BaseException as error:
                given_up = isinstance(error, RunEagerly | NotGeneralizable)
                if isinstance(error, StepByStep | Undecided) or (tracer.loops and not given_up):
                    self._effects(hidden)
                    set_back(hidden, tracer.name)
                    if isinstance(error, StepByStep):
                        raise
                    if not tracer.loops:  # of the loop itself, after its step
                        raise StepByStep(None, str(error)) from error
                    raise stepwise(tracer.loops, error) from error
                if observer is not None:
                    self._effects(hidden)
                    hidden.set_back()
                    raise
                if (self.sized is not None or self.lifts) and isinstance(error, Exception):
                    self._effects(hidden)
                    set_back(hidden, tracer.name)
                    # Traced again for its own sizes and ints, with the error of those.
                    raise NotGeneralizable(why=f"its trace fails ({type(error).__name__}: {error})") from error
                if isinstance(error, Exception) and not isinstance(error, TraceError):
                    self._check_arguments((args, kwargs, *more), structure, shadows, hidden)
                    if not (self.strict or self._is_async) and not hidden.set_back():
                        self._effects(hidden)
                        raise TraceFailed(self, error) from error
                    end(None, INTERPRET).run(leaves, found)
                else:
                    self._effects(hidden)
                    if given_up or isinstance(error, Untraceable | CheckFailed):
                        set_back(hidden, tracer.name)
                raise
            return end(result, self.backend)

        self.watch.begin()
        self._is_async = inspect.iscoroutinefunction(self.fn)
        hidden = SideEffects(self.watch, self.watch.name_of)
        try:
            with decisions(tracer.guards):
                compiled = tracer.run(trace)
                if self.sized is not None:
                    # What a gradient and the order of results in memory decide is decided now.
                    compiled.program.needed()
                    _ = compiled.program.whole
        finally:
            tracer.end()
            names.forget()
        if observer is not None:
            return compiled, found
        if self.sized is not None:
            self.sized.settle(leaves)
        if tracer.rolled and any(map(steps_in, compiled.program.graph.nodes())):
            raise StepByStep(None, "a value of a step is used after it")
        try:
            with nullcontext() if hidden.found else in_time(tracer):  # Python must be able to make the call again
                _ = compiled.program.executable  # an error of the compiler leaves no path behind
        except Undecided as error:
            raise StepByStep(None, str(error)) from error
        except (CompileError, TraceError) as error:
            if self.sized is None:
                raise
            raise NotGeneralizable(why=f"it cannot be compiled for any size ({str(error).splitlines()[0]})") from error
        settle_places(self.places, compiled.effects)
        used = {i.index for o in (compiled, *self.paths) for i in o.inputs if i.kind == "scalar"}
        self.scalars = settle(self.scalars, tracer, used, self.watch, compiled.effects)
        looked_at = {i.index for i in tracer.inputs if i.kind == "argument" and i.node in tracer.looked_at}
        self.pinned |= looked_at & self.integers
        arrays: Container[int] = ()
        if self.seen is not None:
            asked, values = [(ask.what, value) for ask, value in path.asked], repr([r.value for r in compiled.results])
            captured = [i.real for i in tracer.inputs if i.kind == "array"]
            arrays = self.seen.only_inputs(self.watch, captured, (digest(compiled.program.graph), asked, values))
        self.watch.read_by_numpy(arrays)
        self._guard(compiled)
        loggers = (hidden.levels | output.loggers).values()
        self.watch.free += [LevelGuard(logger, f"the level of {logger.name}") for logger in loggers]
        self.watch.free += [*variables_read(tracer), *thread_guards(i.real for i in tracer.inputs)]
        self.draws |= bool(compiled.draws)
        self.drawn += [state for state in compiled.drawn if all(state is not known for known in self.drawn)]
        if self.step_by_step or tracer.may_be_slower or len(path.asked) >= MANY_SEGMENTS:
            self.trial = None if ends is None or self.silent else Trial()
        self.grown, self.asks = self.grown + 1, len(path.asked)  # now that all guards are there
        self.root = path.place(compiled)
        return compiled, found

    def _check_arguments(
        self, given: Any, structure: pytree.Structure, shadows: Sequence[Any], hidden: SideEffects
    ) -> None:
        """Raises an error if the trace has changed the containers of its arguments, which are copies."""
        leaves: list[Any] = []
        found = pytree.flatten(given, leaves, {})
        if found == structure and all(a is b for a, b in zip(leaves, shadows, strict=True)):
            return
        self._effects(hidden)
        name = changed(self.fn, (structure, shadows), (found, leaves))
        if self.strict:
            raise TraceError(
                f"{self.name} changes what its argument {name} contains, which a compiled call does not do; with "
                "strict=True that is an error. Return the new value instead"
            )
        raise RunEagerly(f"changes what its argument {name} contains")

    def _effects(self, hidden: SideEffects) -> list[Mutation]:
        """Finds what the trace has done to Python, and takes it back: it is done when the path runs."""
        effects = find(self.watch, hidden)
        for effect in reversed(effects):
            if effect.take_back is not None:
                effect.take_back()
        if self.strict and effects and sys.exception() is None:
            raise TraceError(
                f"{self.name} changes {', '.join(sorted(map(str, effects)))}, which a compiled call does not do; with "
                "strict=True that is an error. Return the value, or keep it in a tensor"
            )
        return effects

    def _record(self, effects: Sequence[Mutation], tracer: Tracer) -> None:
        """Raises `Filled` for containers that a trace has changed in a way that stands no other in its place."""
        updated = {p.slot for p in self.scalars if p.updated} | {p.slot for p in self.places}
        updated |= read_and_rebound(self.watch, effects, [i.real for i in tracer.inputs])
        changed = {id(e.container): e.container for e in effects if not (e.repeats or e.slot in updated)}
        found = recordable(self.watch, [c for c in changed.values() if all(c is not known for known in self.recorded)])
        if found:
            raise Filled(found)

    def _guard(self, path: CompiledPath) -> None:
        """Adds the facts that the new path relies on."""
        tracer = path.tracer
        for i in tracer.inputs:
            if i.node in self.by_node:
                continue
            self.by_node[i.node] = i
            self.inputs.append(i)
            if i.kind == "held":
                self.held[id(i.real)] = (i.real, i.real._array, i.wants, i.recorded)
            if i.leaf is not None and not i.recorded:
                self.hooks.append((i, hooks_of(i.real._node)))
        self.aliased += [
            (i.index, i.real) for i in tracer.inputs if i.kind == "argument" and id(i.real) in tracer.reached
        ]
        for _, i in path.writes:
            if i.kind == "argument":
                self.updated[id(self.by_node[i.node])] = self.by_node[i.node]
            else:
                if not in_host_memory(i.real):
                    self.placed.append(i.real)
                    continue
                array = array_of(i.real)
                same = self.owners.setdefault(id(owner_of(array)), [])
                if not any(array is other for other in same):
                    same.append(array)
        self.grad_guards += tracer.grad_guards
        self.not_zero += [self.by_node[node] for node in tracer.not_zero if node not in {i.node for i in self.not_zero}]
        for i in tracer.inputs:  # a call brings its own; the first call's must not stay in memory
            if i.kind in ("argument", "grad", "scalar") and id(i.real) not in tracer.reached:
                tracer.shadows.pop(id(i.real), None)
                i.real = None

    # -- guards

    def alone(self) -> AbstractContextManager[Any]:
        """The lock held while guards are compared and a path of this entry runs, where it updates shared state."""
        if not (self.grad_guards or self.drawn):
            return _NOTHING
        stack = ExitStack()
        if self.drawn or self.draws:  # this lock comes first
            stack.enter_context(replay.source().alone(self.drawn))
        if self.grad_guards:
            stack.enter_context(accumulating)
        return stack

    def grads_hold(self, leaves: Sequence[Any]) -> bool:
        """Whether gradients have the forms that they had, and the shapes of what they are of."""
        for source, form in self.grad_guards:
            real = real_of(source, leaves)
            grad = held_gradient(real)
            if form_of(grad) != form or (grad is not None and grad.shape != real._array.shape):
                return False
        return True

    def holds(self, leaves: Sequence[Any]) -> bool:
        """Whether the compiled program is right for this call (the signature has been compared already)."""
        for scalar in self.scalars:
            if not scalar.fits(scalar.read()):
                return False
        for source in self.not_zero:
            if real_of(source, leaves) == 0:
                return False
        for index, real in self.aliased:
            if leaves[index] is not real:
                return False
        if self.owners and self.overlaps(leaves):
            return False
        if self.placed and has_kin(self.placed, [real_of(source, leaves) for source in self.inputs]):
            return False
        if self.updated and self.clashes(leaves):
            return False
        if raises() and any(type(leaf) is _ndarray for leaf in leaves):
            return False
        for t, array, wants, recorded in self.held.values():
            if t._array is not array and (t._array.shape != array.shape or t._array.dtype is not array.dtype):
                return False
            node = t._node
            if (node is not None) is not wants or (wants and is_node(node) is not recorded):
                return False
        for source, hooks in self.hooks:
            if hooks_of(real_of(source, leaves)._node) != hooks:
                return False
        if not are_apart(self.places) or (self.grad_guards and not self.grads_hold(leaves)):
            return False
        return self.watch.holds()

    def overlaps(self, leaves: Sequence[Any]) -> bool:
        """Whether an argument shares memory with a captured tensor that the program updates."""
        for leaf in leaves:
            if issubclass(type(leaf), (Tensor, _ndarray)) and in_host_memory(leaf):
                array = array_of(leaf)
                for other in self.owners.get(id(owner_of(array)), ()):
                    if np.shares_memory(array, other):
                        return True
        return False

    def named_alike(self, leaves: Sequence[Any]) -> bool:
        """Whether an updated array of NumPy's has memory of one that code names, which NumPy reads."""
        arrays = [real for i in self.updated.values() if type(real := real_of(i, leaves)) is _ndarray]
        return bool(arrays) and any(shares_any(array, arrays) for _, array in self.watch.named_arrays(sys.maxsize))

    def clashes(self, leaves: Sequence[Any]) -> bool:
        """Whether an updated argument is read-only, or has memory of another input, or is it: capturing says which."""
        owners: dict[int, list[tuple[Any, bool]]] = {}
        placed: list[Any] = []
        written: list[Any] = []
        for source in self.inputs:
            real = real_of(source, leaves)
            if isinstance(real, Tensor | _ndarray):
                updated = id(source) in self.updated
                if not in_host_memory(real):
                    placed.append(real)
                    if updated:
                        written.append(real)
                    continue
                if updated and not array_of(real).flags.writeable:
                    return True
                owners.setdefault(id(owner_of(array_of(real))), []).append((real, updated))
        return (
            self.named_alike(leaves)
            or has_kin(written, placed)
            or any(
                (p or q) and (x is y or np.shares_memory(array_of(x), array_of(y)))
                for same in owners.values()
                for (x, p), (y, q) in itertools.combinations(same, 2)
            )
        )


def _reads(tracer: Tracer, array: np.ndarray) -> bool:
    """Whether any of this memory is an input of the program."""
    reals = (i.real for i in tracer.inputs if isinstance(i.real, Tensor | _ndarray) and in_host_memory(i.real))
    return any(np.shares_memory(array_of(real), array) for real in reals)


def _is_data(leaf: Any) -> bool:
    return type(leaf) is float or issubclass(type(leaf), (Tensor, _ndarray))
