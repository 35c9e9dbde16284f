"""Programs of a GPU: their calls one by one (calls.py), or recorded once and replayed as a graph.

A launch costs the host some microseconds, more than many kernels take. So the launches of a program that is called
often are captured as a graph, which is launched as one. Addresses are part of what is captured: a graph is that of a
call whose arrays are where they were. The pool gives an array the memory of one like it, so that the calls of a loop
come by a few sets of addresses again and again. Where they do not, a program gets memory of its own for its arrays, and
copies them there.

What the host has a part in (calls of NumPy, loops that look at a value), and what CuPy computes on the device
(cupy_rows.py), stands between the graphs of the launches before and after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ...errors import CompileError
from ...locks import rlock
from ...loops.ir import KernelSpec
from ...once import lazy
from ...schedule.control import Choice, Loop
from ...schedule.host_call import HostCall
from ...schedule.kernels.transform import Transform
from ..base import Interface
from ..device import DeviceArray, kind_of
from ..kernel_target import KernelExecutable, KernelProgram
from ..numpy_call import graph_of
from ..run_plan import Walk, memory_of
from .device import CudaDevice
from .driver import Memory, Stream
from .fallback import Interpreted
from .launching.calls import CallList, HostPart, Part
from .launching.checks import Watch
from .libraries.cupy_rows import reason
from .machine import DeviceMachine, sets_status
from .pool import NUMBER, Block, rounded
from .user_kernels import has_kernel

# Sets of addresses of a program: training steps come by 3 to 14, depending on what the loop keeps.
_MOST_GRAPHS = 64
_MOST_MISSES = 128  # calls at new addresses until a program gets memory of its own
_FEW = 4  # launches
_ALIGNMENT = 16  # bytes: that of the widest access

# What computes a launch, for people.
HOST = "computed on the host: its operands are copied there, its results back"
LIBRARY = "computed on the device by CuPy, between two graphs"


class CudaExecutable(KernelExecutable):
    """Takes and returns arrays of a GPU."""

    def __init__(self, program: KernelProgram, interface: Interface, device: CudaDevice) -> None:
        super().__init__(program, interface)
        self.device = device
        self.replay: Replay | None = None
        self._taken = [kind_of(device, aval.shape, aval.dtype) for aval in self.plan.inputs]
        self._made = [kind_of(device, aval.shape, aval.dtype) for aval in self.plan.outputs]
        self._sizes = [(max(kind.nbytes, NUMBER), rounded(kind.nbytes)) for kind in self._made]

    @lazy
    def watch(self) -> Watch | None:
        """The watch over its indices, where a kernel may find one out of range."""
        checked = [launch for launch in self.plan.launches if sets_status(launch.spec)]
        places = list(dict.fromkeys(place for launch in checked for place in launch.where if place))
        return self.device.checks.watch(self.plan.inputs, self.stages.failure, places) if checked else None

    @lazy
    def calls(self) -> CallList:
        status = None if self.watch is None else self.watch.pointer
        return CallList(self.plan, self.code, self.device, self.needs_host, status)

    @property
    def may_fail(self) -> bool:
        """Whether a call may fail when some of it is done: where the host has a part."""
        return any(isinstance(part, HostPart) for part in self.calls.parts)

    @lazy
    def _needs(self) -> list[tuple[int, int]]:
        """Memory of a call without graphs: results and temporaries."""
        return [*self._sizes, *self.calls.temporaries]

    def replayed(self) -> CudaExecutable:
        # The graph of one launch costs the host half of what the launch does; a copy of a number costs more.
        if self.calls.count > 1 or not any(kind.nbytes <= NUMBER for kind in self._made):
            self.replay = Replay(self)
        return self

    def __call__(self, arrays: Sequence[DeviceArray]) -> list[DeviceArray]:
        results = self.run(arrays)
        return results if results is not None and not self.donate else self._placed(results, arrays)

    def run(self, arrays: Sequence[DeviceArray]) -> list[DeviceArray] | None:
        device = self.device
        stream = device.current() or device.default_stream
        memories, taken = [], self._taken
        if len(arrays) != len(taken):
            self._check(arrays)
        for array, kind in zip(arrays, taken, strict=True):
            memory = array.memory
            memories.append(memory)
            if array.kind is not kind or memory.stream is not stream or memory.address % _ALIGNMENT:
                self._check(arrays)
                device.join([array.memory for array in arrays], stream)
                memories = [self._aligned(array.memory, stream) for array in arrays]
                break
        replay = self.replay
        if replay is None:
            made = device.pool.take_all(self._needs, stream)
            memories += made
            done = self.calls.run(memories, stream)
        else:
            made = device.pool.take_all(self._sizes, stream)
            done = replay.launch(memories, made, stream)
        if self.watch is not None:
            device.checks.note(self.watch, arrays, stream)
        return [DeviceArray(kind, block) for kind, block in zip(self._made, made, strict=False)] if done else None

    def _check(self, arrays: Sequence[DeviceArray]) -> None:
        """Raises where the arrays are not those that the program takes."""
        if [(a.device, a.shape, a.dtype) for a in arrays] != [(k.device, k.shape, k.dtype) for k in self._taken]:
            raise CompileError(
                f"{self.name}: takes {[*map(str, self.inputs)]} on {self.device.name}, got {list(arrays)}"
            )

    def _aligned(self, memory: Memory, stream: Stream) -> Memory:
        """Memory of another library that begins where kernels cannot read it, as a copy."""
        if memory.address % _ALIGNMENT == 0:
            return memory
        copy = self.device.pool.take(memory.nbytes, stream)
        self.device.copy(copy, memory)
        return copy

    def timed(self, arrays: Sequence[DeviceArray]) -> tuple[list[DeviceArray] | None, list[tuple[float, float]]]:
        """`run` without graphs, and the milliseconds after its beginning in which the device was at each launch."""
        device, stream = self.device, self.device.stream
        device.join([array.memory for array in arrays], stream)
        results = self.results()
        given, made = ([array.memory.pointer for array in group] for group in (arrays, results))
        machine = DeviceMachine(self.code, device, stream)
        machine.begin(self.watch is not None)
        walk, marks = Walk(memory_of(self.plan, given, made, machine), machine), [device.mark(stream, timed=True)]
        done = True
        for launch in self.plan.launches:
            done = done and walk.run([launch])
            marks.append(device.mark(stream, timed=True))
        device.driver.synchronize(stream)
        times = [device.driver.elapsed(marks[0], mark) for mark in marks]
        return results if done and not machine.failed else None, list(pairwise(times))

    def computed_by(self, spec: KernelSpec) -> str:
        match spec:
            case Loop() | Choice():
                parts = (self.computed_by(launch.spec) for plan in spec.plans for launch in plan.launches)
                return next(filter(None, parts), "")
            case HostCall() if has_kernel(graph_of(spec.text)):
                return ""
            case HostCall():
                why = reason(graph_of(spec.text), self.device.driver.lacks)
                return f"{HOST}: {why}" if why else LIBRARY
            case Transform():
                return HOST
        return HOST if any(isinstance(code, Interpreted) for code in self.code.codes(spec)) else ""

    def needs_host(self, spec: KernelSpec) -> bool:
        """Whether the host takes a part in a launch, or CuPy's libraries, which no graph can hold."""
        if isinstance(spec, Choice) or (isinstance(spec, Loop) and (spec.counted or spec.condition is not None)):
            return True
        if isinstance(spec, Loop):
            return any(self.needs_host(launch.spec) for launch in spec.body.launches)
        return bool(self.computed_by(spec))


class Replay:
    """The recordings of a program, each for the addresses of its arrays. One call at a time: they share memory."""

    def __init__(self, executable: CudaExecutable) -> None:
        self.executable, self.device = executable, executable.device
        self._kept = frozenset(executable.donate.values())  # inputs that are written over
        self._lock = rlock()
        self._recordings: dict[tuple[int, ...], list[Part]] = {}
        self._temporaries: dict[int, tuple[Stream, list[Block]]] = {}  # by the id of a stream that is kept
        self._own: dict[tuple[int, int], Block] = {}  # memory for array number k, by that and the stream
        self.calls = self.misses = 0

    def launch(self, given: Sequence[Memory], made: Sequence[Memory], stream: Stream) -> bool:
        calls = self.executable.calls
        with self._lock:
            self.calls += 1
            temporaries = self._temporaries.get(id(stream))
            if temporaries is None:
                temporaries = self._temporaries[id(stream)] = (
                    stream, self.device.pool.take_all(calls.temporaries, stream),
                )  # fmt: skip
            if self.calls == 1:  # what is loaded late must be there before a capture
                return calls.run([*given, *made, *temporaries[1]], stream)
            if self.misses > _MOST_MISSES and calls.count <= _FEW:  # which cost less than copies of arrays
                return calls.run([*given, *made, *temporaries[1]], stream)
            # A number may be kept by the caller, such as the loss of each step: its memory is always another.
            moves = self.misses > _MOST_MISSES
            memories = [*given, *made]
            moved = [(k, p) for k, p in enumerate(memories) if moves or (k >= len(given) and p.nbytes <= NUMBER)]
            for k, memory in moved:
                memories[k] = own = self._own_memory(stream, k, memory)
                if k < len(given):
                    self.device.copy(own, memory)
            done = self._run(memories, temporaries[1], stream)
            for k, memory in moved:
                if k >= len(given) or k in self._kept:
                    self.device.copy(memory, memories[k])
            return done

    def _own_memory(self, stream: Stream, k: int, like: Memory) -> Block:
        """Memory of the program's own for one of its arrays."""
        found = self._own.get((id(stream), k))
        if found is None:
            found = self._own[id(stream), k] = self.device.pool.take(like.nbytes, stream)
        return found

    def _run(self, memories: list[Memory], temporaries: Sequence[Memory], stream: Stream) -> bool:
        """Replays what was recorded for these addresses, or records it now."""
        calls, key = self.executable.calls, (id(stream), *[memory.address for memory in memories])
        memories += temporaries
        parts = self._recordings.pop(key, None)
        if parts is None:
            self.misses += 1
            while len(self._recordings) >= _MOST_GRAPHS:
                self._recordings.pop(next(iter(self._recordings)))
            parts = calls.captured(memories, stream)
        self._recordings[key] = parts  # the last to go
        return calls.run(memories, stream, parts)
