"""Python's `for` loops over a `range`, captured as loops of the graph: one step for all numbers, whatever their count.

    for i in range(1, n):                 the name `range` is ours while a function is traced, and so is the iterator:
        a[i] = a[i - 1] * w               it gives the loop a symbolic number, `i0 - 1` with i0 = 2, 3, ..., and takes
                                          what one step does for what each of them does

A step runs as often as it takes to know what goes from one to the next: local variables that it assigns, tensors that
it updates. Then the loop is one node of the program, and the variables have the values of the last step. What cannot be
said of all steps at once (a condition on the number that is not always true or never, a list that grows, a value that
is asked for) has the trace begin anew, with that loop step by step (see `Entry.grow`).
"""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn

import numpy as np

from hybridml_compiler.aval import CPU
from hybridml_compiler.dtypes import float64
from hybridml_compiler.graph import ir
from hybridml_compiler.record import record
from hybridml_compiler.sizes.dims import LEAST, Size, bounds, hint, is_dim, same, symbol
from hybridml_compiler.sizes.steps import Undecided, is_step, odd_step, replaced

from ...core.aliasing import stamp
from ...core.context import clock
from ...core.proxies.scalar import ScalarProxy
from ...core.tensor import Tensor, aval_of, like
from ..capture.branches import Branch, following
from ..capture.loop import Loop, zeros
from ..capture.subgraphs import enter, fresh, leave, snapshot
from ..capture.tracer import Frame, ShadowLeaf, Tracer, top_tracer
from ..specialize.errors import StepByStep
from .for_loops import ForLoop, for_loop_over
from .held import CONSTANTS, are_same, held

FEWEST = 16  # steps: fewer fuse with what is around them
_ROUNDS = 6  # of a step, until all that it carries on is known
_BRANCHES = 8  # of a step, for questions about data
_PEELED = 2  # first steps that may give a variable another type than it has before them
_MISSING = object()


def steps_over(tracer: Tracer, frame: types.FrameType, args: tuple[Any, ...]) -> Any:
    """The result of `range` for traced code that runs in this frame: an iterator of its own for a loop that can be
    captured, which has many steps, or a number of them that another loop's number decides."""
    given = _bounds(args)
    if given is None or tracer is not top_tracer() or any(i.node.aval.device != CPU for i in tracer.inputs):
        return range(*args)
    start, stop, by = given
    loop = for_loop_over(frame.f_code, frame.f_lasti)
    if loop is None or loop.place in (tracer.step_by_step or ()):
        return range(start, stop, by)  # where it asks for a number of a step, that loop is done step by step
    length = _length(start, stop, by)
    alone = len(tracer.alone.get(loop.place, ()))
    if is_dim(length) or length >= FEWEST + alone:
        if is_dim(length) and (bounds(length) or 0) < alone:
            raise StepByStep(loop.place, "it may have no steps that could be by themselves")
        return _Steps(tracer, loop, start, by, length)
    return [start + k * by for k in range(length)] if is_dim(start) else range(start, stop, by)


def _bounds(args: tuple[Any, ...]) -> tuple[Size, Size, int] | None:
    """(start, stop, step) of a range of ints and of numbers of steps; None for any other."""
    if not 1 <= len(args) <= 3 or not all(type(a) is int or is_step(a) for a in args):
        return None
    start, stop, by = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
    return (start, stop, by) if type(by) is int and by else None


def _length(start: Size, stop: Size, by: int) -> Size:
    if not is_dim(start) and not is_dim(stop):
        return len(range(start, stop, by))
    between = stop - start if by > 0 else start - stop
    low, most = bounds(between), bounds(-between)
    if low is not None and low >= 0:
        return (between + abs(by) - 1) // abs(by)
    if most is not None and most >= 0:
        return 0
    raise Undecided(f"whether there are numbers from {start} to {stop}", between)


@record(frozen=False, eq=False)
class _Carry:
    """A local variable that goes from step to step: a tensor, a Python float, or an int that grows by `by`."""

    kind: Literal["tensor", "float", "int"]
    start: Any
    by: int = 0
    given: Tensor | None = None  # its input of the region


class _Steps:
    """The iterator of a loop that is captured."""

    def __init__(self, tracer: Tracer, loop: ForLoop, start: Size, by: int, length: Size) -> None:
        self.tracer, self.loop, self.start, self.by, self.length = tracer, loop, start, by, length
        self.place, self.name = loop.place, f"i{len(tracer.loops)}"
        self.carries: dict[str, _Carry] = {}
        self.states: list[Tensor] = []  # tensors from outside that it updates
        alone = tracer.alone.get(loop.place, [])
        self.firsts, self.lasts = alone.count("first"), alone.count("last")
        self.length = length - self.lasts
        self.rounds = self.peeled = 0
        self.answers: list[bool] = []  # to what this step asks, and the steps with other answers before it
        self.branches: list[Branch] = []
        self.made: set[ir.Node] = set()
        self.now: Literal["", "captured", "alone", "after"] = ""  # how the step runs that has been begun
        self.reads_arrays = False  # elements of NumPy arrays that the program makes, as tensors

    def __iter__(self) -> _Steps:
        return self

    def __next__(self) -> Any:
        frame = sys._getframe(1)
        if self.now == "captured" and self._end(frame):
            self._emit(frame)
            self.start, self.now = self.start + self.length * self.by, "after"
        if self.now in ("", "alone") and self.firsts:
            self.firsts, self.now = self.firsts - 1, "alone"
            return self._taken()
        if self.now == "after":
            if not self.lasts:
                raise StopIteration
            self.lasts -= 1
            return self._taken()
        return self._begin(frame)

    def _taken(self) -> Size:
        """The number of a step that is by itself, the next one of those that are left."""
        number = self.start
        self.start += self.by
        if self.now == "alone":
            self.length -= 1
        return number

    def refuse(self, why: str) -> NoReturn:
        raise StepByStep(self.place, why)

    # -- a step

    def _begin(self, frame: types.FrameType) -> Any:
        """Begins a step in a region of its own; returns its number."""
        tracer, variables = self.tracer, frame.f_locals
        if self.rounds >= _ROUNDS:
            self.refuse("each step updates other tensors")
        if not self.rounds:
            if not all(x._memory.becomes_traced() for r in tracer.arrays if (x := r()) is not None):
                self.refuse("NumPy has memory of an array")
            self.before = {name: variables[name] for name in self.loop.assigned if name in variables}
            self.held = held(variables, self.loop.read)
        self.now, self.asked = "captured", list[ir.Node]()
        if not self.branches:
            self._begin_round()
        tracer.loops.append(self)
        self.region = enter(tracer)
        self.outside = [(t, t._array, t._node) for t in self.states]
        self.grads = _grads(tracer)
        self.said = tracer.ask, tracer.prints, tracer.logs, tracer.clocks
        tracer.ask, tracer.prints, tracer.logs, tracer.clocks = self._asked, self._says, self._says, None
        for state, t in zip(self.states, self.given, strict=True):
            state._array, state._node = t._array, t._node
        values: dict[str, Any] = {}
        for name, carry in self.carries.items():
            if carry.kind == "int":
                values[name] = carry.start + self.number * carry.by
            else:
                assert carry.given is not None
                values[name] = self._as_variable(carry, carry.given)
        _assign(frame, values)
        return self.start + self.number * self.by

    def _begin_round(self) -> None:
        """Makes the number of the step, and inputs for all that is known to go from one to the next."""
        self.rounds += 1
        self.since = clock()
        self.most = self.length + (LEAST - 1)
        self.number = symbol(self.name, max(LEAST, (hint(self.most) + LEAST) // 2), self.most) - LEAST
        self.given = [self._input(t) for t in self.states]
        for carry in self.carries.values():
            if carry.kind != "int":
                carry.given = self._input(carry.start)

    def _input(self, start: Any) -> Tensor:
        """An input of the region for a value, which is not among the tensors that a question may give out."""
        given = fresh(self.tracer, aval_of(_tensor(self.tracer, start)))
        return like(given, given._array, given._node)

    def _as_variable(self, carry: _Carry, t: Tensor) -> Any:
        return ScalarProxy(self.tracer.wrap(t._array, True)) if carry.kind == "float" else t

    def _asked(self, node: ir.Node, what: str) -> np.ndarray:
        """The answer to a question about data, the one after the other."""
        if node.dtype.kind != "b" or node.aval.size != 1 or len(self.branches) >= _BRANCHES:
            self.refuse(f"{what} is asked for")
        self.asked.append(node)
        if len(self.asked) > len(self.answers):
            self.answers.append(True)
        return np.asarray(self.answers[len(self.asked) - 1])

    def _says(self, *args: Any, **kwargs: Any) -> NoReturn:
        self.refuse("a step prints or logs")

    def _end(self, frame: types.FrameType) -> bool:
        """Ends a step; whether all that goes from one to the next was known before it."""
        tracer, region, variables = self.tracer, self.region, frame.f_locals
        self.after = {name: variables[name] for name in self.loop.assigned if name in variables}
        self.next = [snapshot(tracer, t) for t in self.states]
        found = self._leave(region)
        if not are_same(self.grads, _grads(tracer)):
            self.refuse("a step sets gradients")
        now = held(variables, self.loop.read)
        if self.held is None or now is None or not are_same(self.held, now):
            self.refuse("a step may change a container or an object")
        self.states += found
        known = not found and self._learn()
        if known:
            self._branched(region)
            self.answers = following(self.answers) or []
        else:
            self.answers, self.branches = [], []
        if known and not self.answers:
            return True
        _assign(frame, {name: self.before.get(name) for name in self.after})
        return False

    def _branched(self, region: Frame) -> None:
        """Notes what this step has made of all that goes on, for the answers that it was given."""
        names = [name for name, carry in self.carries.items() if carry.kind != "int"]
        values = [*(_tensor(self.tracer, self.after[name]) for name in names), *self.next]
        if not self.branches:
            self.made, self.checks, self.named = set(), list(region.checks), dict(self.after)
        elif self.checks != list(region.checks):
            self.refuse("a branch checks an index")
        elif any(not self._is_settled(name) for name in self.loop.after):
            self.refuse("a variable that is read after it has another value in each branch")
        self.made |= region.made
        values = [like(t, t._array, t._node) for t in values]
        self.branches.append(Branch(tuple(self.asked), tuple(self.answers), values))

    def _is_settled(self, name: str) -> bool:
        """Whether a variable that is read after the loop is a carry, or has one value in all branches."""
        return name in self.carries or _is_same(self.after.get(name), self.named.get(name))

    def _leave(self, region: Frame) -> list[Tensor]:
        """Leaves the region, with all outside as it was before; tensors from outside that were found to be updated."""
        tracer = self.tracer
        leave(tracer)
        assert tracer.loops.pop() is self
        tracer.ask, tracer.prints, tracer.logs, tracer.clocks = self.said
        written = [*region.written.values()]
        for t, array, node in reversed([*self.outside, *written]):
            t._array, t._node = array, node
        carried = {id(carry.given) for carry in self.carries.values()}
        if any(id(t) in carried for t, *_ in written):
            self.refuse("a step updates a variable in place, and assigns it")
        shadows = {id(t) for t in tracer.shadows.values()}
        others = [t for t, *_ in written if id(t) in shadows or not region.has_made(t)]
        for t in (*self.states, *others):  # histories hold views, which later steps do not write to
            if type(t._version) is list:
                t._version[1:] = [r for r in t._version[1:] if (v := r()) is not None and not region.has_made(v)]
        region.written.clear()  # it holds views that end with the step
        return [t for t in others if all(t is not state for state in self.states)]

    def _learn(self) -> bool:
        """Whether all variables that are carried on were known to be; finds those that a step has changed."""
        known = True
        for name in self.loop.carried:
            if name not in self.before:
                self.refuse(f"{name} may have no value before it")
            start, end, carry = self.before[name], self.after.get(name), self.carries.get(name)
            if carry is None:
                if end is start or (type(end) is type(start) and type(start) in CONSTANTS and end == start):
                    continue
                carry, known = self._carry(start, end), False
                if carry is not None:
                    self.carries[name] = carry
            elif carry.kind == "int":
                now = carry.start + self.number * carry.by
                if not (type(end) is int or is_dim(end)) or not _is_number(end - now, carry.by):
                    self.refuse(f"{name} does not grow by the same number in each step")
            elif carry.given is None or not _is_like(end, carry):
                carry = None
            if carry is None:  # it may have another type in all steps but the first
                if self.peeled >= _PEELED or (bounds(self.length) or 0) < 1:
                    self.refuse(f"{name} changes its type")
                self.peeled, self.firsts, self.carries, self.rounds, self.now = self.peeled + 1, 1, {}, 0, "alone"
                return False
        return known

    def _carry(self, start: Any, end: Any) -> _Carry | None:
        """The way in which a variable goes on; None where it has another type after the step."""
        if all(type(x) is int or is_dim(x) for x in (start, end)):
            return _Carry("int", start, end - start) if type(end - start) is int else None
        if type(start) in (float, ScalarProxy) and type(end) in (float, ScalarProxy):
            return _Carry("float", start)
        if is_dim(self.length) and type(start) in (int, float) and _is_double(end):
            number = ir.constant(float(start), float64)  # a loop that may have no first step to be by itself
            return _Carry("tensor", self.tracer.wrap(number))
        if issubclass(type(start), Tensor) and issubclass(type(end), Tensor):
            lifted = self.tracer.lift(start)
            return _Carry("tensor", lifted) if aval_of(lifted) == aval_of(end) else None
        return None

    # -- the loop

    def _emit(self, frame: types.FrameType) -> None:
        """Adds the loop to the program, and gives variables and tensors the values that they have after it."""
        last: dict[str, Any] = {}
        for name in self.loop.after:
            end = self.after.get(name, _MISSING)
            if name in self.carries or end is _MISSING or end is self.before.get(name, _MISSING):
                continue
            if type(end) is int or is_dim(end):
                last[name] = replaced(end, self.name, self.length + (LEAST - 1))
            elif issubclass(type(end), Tensor) and (bounds(self.length) or 0) > 0 and not self.reads_arrays:
                start = zeros(end)
                self.carries[name] = _Carry("tensor", start, given=self._input(start))
            elif not (type(end) in CONSTANTS and name in self.before and end == self.before[name]):
                self.refuse(f"{name} is read after it")
        tensors = {name: carry for name, carry in self.carries.items() if carry.kind != "int"}
        results = self._results(tensors)
        ends = zip(*(b.values[len(b.values) - len(self.states) :] for b in self.branches), strict=True)
        for state, given, after, value in zip(self.states, self.given, ends, results[len(tensors) :], strict=True):
            self.tracer.will_write(state)
            state._array = value._array
            if any(end._node is not given._node for end in after):  # else it is written to under no_grad
                state._node = value._node
            stamp(state)
        last |= {name: self._as_variable(c, t) for (name, c), t in zip(tensors.items(), results, strict=False)}
        last |= {name: c.start + self.length * c.by for name, c in self.carries.items() if c.kind == "int"}
        # Views of arrays of the step must not live on in variables that nobody reads any more.
        unread = self.after.keys() - {*self.loop.after}
        _assign(frame, {name: self.before.get(name) for name in unread} | last)
        self.tracer.rolled = True

    def _results(self, carries: Mapping[str, _Carry]) -> list[Tensor]:
        """The carries and the states after the loop."""
        tracer = self.tracer
        inputs = [*(carry.given for carry in carries.values() if carry.given is not None), *self.given]
        after = [*(_tensor(tracer, self.after[name]) for name in carries), *self.next]
        start = [*(_tensor(tracer, carry.start) for carry in carries.values()), *self.states]
        n = len(self.branches[0].values) - len(self.next)  # variables that are read after the loop alone have one value
        alone = after[n : len(carries)]
        loop = Loop(
            tracer, "the loop", self.since, self.made, inputs, [], after, [],
            [snapshot(tracer, t) for t in start], [], self.length, step=self.name, checks=self.checks,
            branches=[b.with_more(alone, n) for b in self.branches],
        )  # fmt: skip
        # What a step keeps of a tensor that the next one writes to is lost for a gradient, as it is eagerly.
        written = zip(self.states, self.given, zip(*(b.values[n:] for b in self.branches), strict=True), strict=True)
        stamp(*(t for t, given, ends in written if all(end._array is not given._array for end in ends)))
        results = loop.run() if inputs else []
        if any(t._node is not None for t in results):
            try:
                loop.try_gradient()
            except Undecided as error:
                self.refuse(f"it is differentiated, and {error}")
        return results


def _tensor(tracer: Tracer, value: Any) -> Tensor:
    if type(value) is ScalarProxy:
        return value._tensor
    if type(value) is float:
        return tracer.wrap(ir.constant(value, weak=True), True)
    return value


def _grads(tracer: Tracer) -> list[Any]:
    """The leaves whose gradients have been set so far, each with its gradient."""
    leaves = [i.leaf for i in tracer.inputs]
    return [x for leaf in leaves if isinstance(leaf, ShadowLeaf) and leaf.changed for x in (leaf, leaf._grad)]


def _is_like(end: Any, carry: _Carry) -> bool:
    if carry.kind == "float":
        return type(end) in (float, ScalarProxy)
    return issubclass(type(end), Tensor) and carry.given is not None and aval_of(end) == aval_of(carry.given)


def _is_double(value: Any) -> bool:
    """Whether a value is a tensor of one float64, which computes as Python's floats do."""
    return issubclass(type(value), Tensor) and value.shape == () and value.dtype is float64


def _is_same(a: Any, b: Any) -> bool:
    """Whether two values are one, or were made twice."""
    if a is b or type(a) is not type(b):
        return a is b
    if issubclass(type(a), Tensor):
        return a._array is b._array
    if type(a) is ScalarProxy:
        return a._tensor._array is b._tensor._array
    return same(a, b) if is_dim(a) else type(a) in CONSTANTS and bool(a == b)


def _is_number(size: Any, number: int) -> bool:
    return type(size) is int and size == number


def _assign(frame: types.FrameType, values: dict[str, Any]) -> None:
    """Gives local variables of a running function values."""
    if not values:
        return
    frame.f_locals.update(values)
    if sys.version_info < (3, 13):
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))


def refused(loops: Sequence[_Steps], error: BaseException) -> StepByStep:
    """The exception for the loop that cannot be captured by one step for all: the innermost one whose number an error
    is about. A step at an end that is unlike the others is by itself."""
    names = error.steps if isinstance(error, Undecided) else ()
    loop = next((loop for loop in reversed(loops) if loop.name in names), loops[-1])
    alone = odd_step(error, loop.name, loop.most) if isinstance(error, Undecided) else None
    return StepByStep(loop.place, f"{type(error).__name__}: {error}", alone)
