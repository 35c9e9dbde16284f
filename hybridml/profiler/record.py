"""Recording of a profile while it is on: eager operations, calls of traced functions, launches, arrays.

Times are those of `time.perf_counter_ns`. An operation is timed inside of its hook: what the profile itself does (5 us
to find the user's line, to count bytes, to watch the result) lies between operations. Launches are timed by the program
itself: while a profile is on, its step is one that reads the clock round every launch, with the same kernels.
"""

from __future__ import annotations

import threading
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from hybridml_compiler.errors import ArgumentError, describe_line, user_frame
from hybridml_compiler.graph.flops import flops
from hybridml_compiler.locks import lock, rlock
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.targets.cpu.executable import CpuExecutable
from hybridml_compiler.targets.cpu.program import STEP
from hybridml_compiler.targets.cpu.python_entry import entry
from hybridml_compiler.targets.cpu.runtime.spans import Span, clock
from hybridml_compiler.targets.cuda.executable import CudaExecutable
from hybridml_compiler.targets.partitioned import PartitionedExecutable

from ..core import dispatch, native_methods, pytree
from ..core.context import current_interpreter, watchers
from ..core.tensor import Tensor
from ..tracing.casting import configured
from ..tracing.function import TracedFunction
from ..tracing.run.placed import PlacedExecutable
from .watch import Watch

_now = time.perf_counter_ns


class Call(NamedTuple):
    """An eager operation; a call of a traced function (`compiled`: one that traced and compiled, too), or of a compiled
    program by eager code (a gradient, a large operation)."""

    name: str
    kind: str  # "operation", "call", "program"
    thread: int
    start: int
    end: int
    place: tuple[str, int]  # file and line of the user
    bytes: int
    flops: int
    compiled: bool = False
    watching: int = 0  # nanoseconds that its hook took beside it
    again: Callable[[], Any] | None = None  # does an operation again, unwatched once the recording has ended


class Memory(NamedTuple):
    """An array that eager code or a traced function has made: alive from `time` on."""

    time: int
    nbytes: int
    what: str
    place: tuple[str, int]


class Timed:
    """The step of a program that reads the clock, beside the `plain` one. It does not keep the program alive."""

    def __init__(self, executable: CpuExecutable) -> None:
        stages: Any = executable.stages
        self.plain = executable.step
        self.library, self.recorder = stages.code.timed(stages.plan)
        self.step = self.library.address(STEP)


def use(programs: Mapping[CpuExecutable, Timed], timed: bool) -> None:
    """Makes the timed (or the plain) steps those of every later call of programs, those of native entries included."""
    steps: dict[int, int] = {}
    for executable, of in programs.items():
        old, new = (of.plain, of.step) if timed else (of.step, of.plain)
        executable.step = steps[old] = new
    for block in entry.blocks:  # once for all: a session has thousands
        if (found := steps.get(block.step)) is not None:
            block.step = found


# A program that has once been profiled keeps its other step for the next time: making one takes milliseconds.
_timed: weakref.WeakKeyDictionary[CpuExecutable, Timed] = weakref.WeakKeyDictionary()
_one = lock()  # profile at a time
# Threads change steps one after the other: a second `Timed` of a program would take the step of the first, whose code
# goes with it, for the plain one.
_preparing = rlock()


def timed_step(executable: CpuExecutable) -> Timed:
    """The step of a program that reads the clock, with nothing recorded."""
    timed = _timed.get(executable)
    if timed is None:
        timed = _timed[executable] = Timed(executable)
    timed.recorder.take()
    return timed


@contextmanager
def launches_timed(executables: Iterable[CpuExecutable]) -> Iterator[list[tuple[CpuExecutable, list[Span]]]]:
    """While it lasts, these programs record their launches, which the list has afterwards. Calls take the ways that
    they take without a profile: nothing else is watched."""
    if not _one.acquire(blocking=False):
        raise ArgumentError("explain_speed: a profile is on; only one can be at a time")
    found: list[tuple[CpuExecutable, list[Span]]] = []
    used: dict[CpuExecutable, Timed] = {}
    try:
        with _preparing:
            for executable in executables:
                used[executable] = timed_step(executable)
        use(used, True)
        yield found
    finally:
        use(used, False)
        for executable, timed in used.items():
            found.append((executable, timed.recorder.take()))
        _one.release()


class Recording:
    """The recording of one profile, on between `begin` and `end`."""

    def __init__(self, repeatable: bool = False) -> None:
        """`repeatable`: operations may be done again, so that their operands are kept."""
        self.repeatable = repeatable
        self.calls: list[Call] = []
        self.arrays: list[Memory] = []
        self.freed: dict[int, int] = {}  # number of an array -> when
        self.launches: list[tuple[Any, list[Span], int]] = []  # of each program, with the number of lost ones
        self.own: set[Any] = set()  # programs of the user's traced functions: the others are the library's
        self.threads: dict[int, str] = {}
        self.start = self.stop = 0
        self._watch = Watch()
        self._used: dict[CpuExecutable, Timed] = {}
        self._gpu: dict[CudaExecutable, list[Span]] = {}
        self._inside = threading.local()
        self._known: dict[int, weakref.ref[np.ndarray]] = {}
        self._compiles: dict[int, int] = {}
        self._functions: dict[int, TracedFunction] = {}
        self._breaks: list[tuple[int, int]] = []  # in which programs were prepared for being timed

    def begin(self) -> None:
        if not _one.acquire(blocking=False):
            raise ArgumentError("profile: another profile is on; only one can be at a time")
        for function in _operations():
            self._watch.add(function, self._operation)
        self._watch.add(dispatch.slow, self._general)  # type: ignore[arg-type]
        self._watch.add(TracedFunction.__call__, self._traced)  # type: ignore[arg-type]
        self._watch.add(CpuExecutable.run, self._executable)  # type: ignore[arg-type]
        self._watch.add(CudaExecutable.run, self._on_gpu)  # type: ignore[arg-type]
        self._watch.add(entry.build_entry, self._entry)  # type: ignore[arg-type]
        watchers.value += 1
        self.start = _now()

    def end(self, as_if_unwatched: bool = True) -> None:
        """Ends the recording. `as_if_unwatched`: with times as if preparing programs had taken none."""
        with _preparing:
            self.stop = _now()
        watchers.value -= 1
        self._watch.end()
        use(self._used, False)
        for executable, timed in self._used.items():
            lost = timed.recorder.lost
            self.launches.append((executable, timed.recorder.take(), lost))
        self.launches += [(executable, spans, 0) for executable, spans in self._gpu.items()]
        for function in self._functions.values():
            self.own.update(programs(function))
        if as_if_unwatched:
            self._leave_out_breaks()
        self.threads = {t.ident: t.name for t in threading.enumerate() if t.ident is not None}
        for used in (self._used, self._gpu, self._known, self._functions):
            used.clear()
        _one.release()

    def _leave_out_breaks(self) -> None:
        """Shifts all times as if preparing programs had taken none."""
        shown = _without(self._breaks)
        self.stop = shown(self.stop)
        self.calls = [call._replace(start=shown(call.start), end=shown(call.end)) for call in self.calls]
        self.arrays = [array._replace(time=shown(array.time)) for array in self.arrays]
        self.freed = {number: shown(time) for number, time in self.freed.items()}
        self.launches = [
            (executable, [span._replace(start=shown(span.start), end=shown(span.end)) for span in spans], lost)
            for executable, spans, lost in self.launches
        ]

    # -- hooks

    def _operation(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._hook(original, original.__name__)

    def _general(self, original: Callable[..., Any]) -> Callable[..., Any]:
        hook = self._hook(original, "")

        def general(op: Any, args: Any, params: Any, *more: Any, **names: Any) -> Any:
            return hook(op, args, params, *more, **names)

        return general

    def _hook(self, original: Callable[..., Any], name: str) -> Callable[..., Any]:
        """Wraps an op's function to record outermost operations: an op that casts its operands first is one."""
        inside, calls = self._inside, self.calls

        def operation(*args: Any, **kwargs: Any) -> Any:
            if current_interpreter() is not None or getattr(inside, "operation", False):
                return original(*args, **kwargs)
            inside.operation = True
            start = _now()
            try:
                result = original(*args, **kwargs)
                end = _now()
            finally:
                inside.operation = False
            op = OPS.get(name or args[0].name)
            if type(result) is Tensor and op is not None:
                given = args if name else args[1]
                arrays = list(_arrays((*given, *kwargs.values()) if name else given))
                out = result._array
                moved = 0
                if op.kind != "movement" or out.base is None:
                    moved = out.nbytes + sum(a.nbytes for a in arrays)
                count = flops(op.kind, [a.shape for a in arrays], out.shape)
                place, again = _place(), partial(original, *args, **kwargs) if self.repeatable else None
                self._born(out, op.name, place)
                thread, watching = threading.get_ident(), _now() - end
                calls.append(
                    Call(op.name, "operation", thread, start, end, place, moved, count, watching=watching, again=again)
                )
            return result

        return operation

    def _traced(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(function: TracedFunction, *args: Any, **kwargs: Any) -> Any:
            if current_interpreter() is not None:
                return original(function, *args, **kwargs)
            entered = _now()
            function = configured(function)
            before = function._compiles
            if not function._silent:
                self._functions[id(function)] = function
            if self._compiles.get(id(function)) != before:
                self._prepare(programs(function))
                self._compiles[id(function)] = before
            outer = getattr(self._inside, "operation", False)
            self._inside.operation = False  # what an operation runs compiled is inside of it
            start = _now()
            try:
                result = original(function, *args, **kwargs)
            finally:
                self._inside.operation = outer
                name = function._name
                place = self._note(name, "call", entered, start, function._compiles != before)
            for leaf in pytree.tree_leaves(result):
                if type(leaf) is Tensor:
                    self._born(leaf._array, f"result of {name}", place)
            return result

        return call

    def _executable(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(executable: CpuExecutable, *args: Any, **kwargs: Any) -> Any:
            entered = _now()
            self._prepare([executable])
            start = _now()
            try:
                return original(executable, *args, **kwargs)
            finally:
                self._note(executable.name, "program", entered, start)

        return run

    def _on_gpu(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def run(executable: CudaExecutable, arrays: Any) -> Any:
            start, thread = _now(), threading.get_ident()
            results, times = executable.timed(arrays)
            spans = self._gpu.setdefault(executable, [])
            for k, (first, last) in enumerate(times):
                spans.append(Span(k, thread, start + int(first * 1e6), start + int(last * 1e6), False))
            return results

        return run

    def _entry(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def build(spec: Any) -> Any:
            self._prepare([owner for owner in spec.keep if isinstance(owner, CpuExecutable)])
            made = original(spec)
            use({one: timed for one, timed in list(self._used.items()) if timed.plain == spec.step}, True)
            return made

        return build

    def _prepare(self, executables: Any) -> None:
        for executable in executables:
            if executable in self._used or clock() is None or not hasattr(executable, "step"):
                continue
            with _preparing:
                if executable not in self._used and not self.stop:
                    self._prepare_one(executable)

    def _prepare_one(self, executable: CpuExecutable) -> None:
        start = _now()
        timed = self._used[executable] = timed_step(executable)
        use({executable: timed}, True)
        self._breaks.append((start, _now()))

    def _note(self, name: str, kind: str, entered: int, start: int, compiled: bool = False) -> tuple[str, int]:
        """Records a call since `start`, of which the hook was entered before."""
        end, place = _now(), _place()
        thread, watching = threading.get_ident(), start - entered + _now() - end
        self.calls.append(Call(name, kind, thread, start, end, place, 0, 0, compiled, watching))
        return place

    # -- memory

    def _born(self, array: Any, what: str, place: tuple[str, int]) -> None:
        if type(array) is not np.ndarray or array.base is not None or not array.nbytes:
            return  # a view has no memory of its own
        known = self._known.get(id(array))
        if known is not None and known() is array:
            return
        number, freed = len(self.arrays), self.freed

        def gone(_: Any, number: int = number) -> None:
            freed[number] = _now()

        self._known[id(array)] = weakref.ref(array, gone)
        self.arrays.append(Memory(_now(), array.nbytes, what, place))


def programs(function: TracedFunction) -> Iterator[CpuExecutable | CudaExecutable]:
    """The programs that a traced function has compiled, with those of its questions and gradients."""
    for entries in list(function._entries.values()):
        for found in entries:
            made = [path.program for path in found.paths]
            while made:
                program = made.pop()
                made += [backward.program for backward in program._vjps.values()]
                yield from _recorded(program._executable)
            at = [found.root]
            while at:
                ask = at.pop()
                segment = getattr(ask, "segment", None)
                if segment is not None:
                    yield from _recorded(segment.executable)
                at += list(getattr(ask, "next", {}).values())


def _recorded(executable: Any) -> list[CpuExecutable | CudaExecutable]:
    """The programs of an executable whose launches are timed."""
    if isinstance(executable, PlacedExecutable):
        executable = executable.executable
    every = executable.executables if isinstance(executable, PartitionedExecutable) else [executable]
    return [exe for exe in every if isinstance(exe, CpuExecutable | CudaExecutable)]


def _without(breaks: list[tuple[int, int]]) -> Callable[[int], int]:
    """Returns a function from a time to the one on a clock that stands still in the breaks."""
    starts: list[int] = []
    ends: list[int] = []
    for start, end in sorted(breaks):
        if ends and start <= ends[-1]:  # of two threads at once
            ends[-1] = max(end, ends[-1])
        else:
            starts.append(start)
            ends.append(end)
    before = [0, *accumulate(end - start for start, end in zip(starts, ends, strict=True))]

    def shown(time: int) -> int:
        k = bisect_right(starts, time)
        return time - before[k] + (max(ends[k - 1] - time, 0) if k else 0)

    return shown


def describe(place: tuple[str, int]) -> str:
    """The line of a described location with its text: `file.py:12: y = x @ w`."""
    return describe_line(*place) if place[0] else ""


def _place() -> tuple[str, int]:
    frame = user_frame()
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def _operations() -> Iterator[FunctionType]:
    """The functions of the rows, and their copies that are operators of Tensor."""
    found = [*(op.fn for op in OPS.values()), *vars(Tensor).values(), *native_methods.fallbacks.values()]
    for function in found:
        if isinstance(function, FunctionType) and function.__code__.co_filename.startswith("<dispatch "):
            yield function


def _arrays(values: Any) -> Iterator[np.ndarray]:
    for value in values:
        if isinstance(value, Tensor):
            yield value._array
        elif isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, list | tuple):
            yield from _arrays(value)
