"""Programs of a GPU: their launches one by one, or recorded once and replayed as a graph.

A launch costs the host some microseconds, more than many kernels take. So the launches of a program that is called
often are captured as a graph, which is launched as one. Addresses are part of what is captured: a graph is that of a
call whose arrays are where they were. The pool gives an array the memory of one like it, so that the calls of a loop
come by a few sets of addresses again and again. Where they do not, a program gets memory of its own for its arrays, and
copies them there.

What the host has a part in (calls of NumPy, loops that look at a value), and what CuPy computes on the device
(cupy_rows.py), stands between the graphs of the launches before and after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby, pairwise

from ...locks import rlock
from ...loops.ir import KernelSpec
from ...once import lazy
from ...schedule.control import Choice, Loop
from ...schedule.host_call import HostCall
from ...schedule.kernels.transform import Transform
from ...schedule.launch import Launch
from ..base import Interface
from ..device import DeviceArray
from ..kernel_target import KernelExecutable, KernelProgram
from ..numpy_call import graph_of
from ..run_plan import Walk
from .cupy_rows import reason
from .device import CudaDevice
from .driver import Pointer, Stream
from .fallback import Interpreted
from .machine import DeviceMachine, RecordingMachine, sets_status
from .pool import NUMBER
from .user_kernels import has_kernel

# Sets of addresses of a program: training steps come by 3 to 14, depending on what the loop keeps.
_MOST_GRAPHS = 64
_MOST_MISSES = 128  # calls at new addresses until a program gets memory of its own

# What computes a launch, for people.
HOST = "computed on the host: its operands are copied there, its results back"
LIBRARY = "computed on the device by CuPy, between two graphs"

Step = Callable[[Walk], bool]


class CudaExecutable(KernelExecutable):
    """Takes and returns arrays of a GPU."""

    def __init__(self, program: KernelProgram, interface: Interface, device: CudaDevice) -> None:
        super().__init__(program, interface)
        self.device = device
        self.replay: Replay | None = None

    @lazy
    def checked(self) -> bool:
        """Whether a kernel may find an index out of range, so that a call is waited for."""
        return any(sets_status(launch.spec) for launch in self.plan.launches)

    def replayed(self) -> CudaExecutable:
        self.replay = Replay(self)
        return self

    def results(self) -> list[DeviceArray]:
        device, avals = self.device, self.plan.outputs
        blocks = device.pool.take_all([int(aval.nbytes) for aval in avals], device.stream)
        return [DeviceArray(device, b, a.shape, a.dtype) for b, a in zip(blocks, avals, strict=True)]

    def launch(self, arrays: Sequence[DeviceArray], results: Sequence[DeviceArray]) -> bool:
        stream, given, made = self._call(arrays, results)
        if self.replay is not None:
            return self.replay.launch(given, made, stream)
        machine = DeviceMachine(self.code, self.device, stream)
        machine.begin(self.checked)
        return Walk(self.plan, given, made, machine).run(self.plan.launches) and not machine.failed

    def timed(
        self, arrays: Sequence[DeviceArray], results: Sequence[DeviceArray]
    ) -> tuple[bool, list[tuple[float, float]]]:
        """`launch` without graphs, and the milliseconds after its beginning in which the device was at each launch."""
        stream, given, made = self._call(arrays, results)
        machine = DeviceMachine(self.code, self.device, stream)
        machine.begin(self.checked)
        walk, marks = Walk(self.plan, given, made, machine), [self.device.mark(stream, timed=True)]
        done = True
        for launch in self.plan.launches:
            done = done and walk.run([launch])
            marks.append(self.device.mark(stream, timed=True))
        self.device.driver.synchronize(stream)
        times = [self.device.driver.elapsed(marks[0], mark) for mark in marks]
        return done and not machine.failed, list(pairwise(times))

    def _call(
        self, arrays: Sequence[DeviceArray], results: Sequence[DeviceArray]
    ) -> tuple[Stream, list[Pointer], list[Pointer]]:
        """The stream in force, which waits for those that have made the arrays, and the memory of a call."""
        stream = self.device.stream
        self.device.join([array.memory for array in arrays], stream)
        return stream, [array.memory.pointer for array in arrays], [array.memory.pointer for array in results]

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
        self.executable, self.device, self.plan = executable, executable.device, executable.plan
        self._lock = rlock()
        self._machines: dict[Stream, RecordingMachine] = {}
        self._recordings: dict[tuple[object, ...], list[Step]] = {}
        self._own: dict[tuple[Stream, int], Pointer] = {}  # memory for array number k
        self.calls = self.misses = 0

    def launch(self, given: Sequence[Pointer], made: Sequence[Pointer], stream: Stream) -> bool:
        with self._lock:
            self.calls += 1
            if self.calls == 1 or len(self.plan.launches) < 2:  # what is loaded late must be there before a capture
                machine = DeviceMachine(self.executable.code, self.device, stream)
                machine.begin(self.executable.checked)
                return Walk(self.plan, given, made, machine).run(self.plan.launches) and not machine.failed
            # A number may be kept by the caller, such as the loss of each step: its memory is always another.
            moves = self.misses > _MOST_MISSES
            inputs = [self._own_memory(stream, k, p) if moves else p for k, p in enumerate(given)]
            outputs = [
                self._own_memory(stream, k, p) if moves or p.nbytes <= NUMBER else p
                for k, p in enumerate(made, len(given))
            ]
            copy = self.device.driver.copy
            for own, pointer in zip(inputs, given, strict=True):
                if own is not pointer:
                    copy(own, pointer, pointer.nbytes, stream)
            done = self._run(inputs, outputs, stream)
            for own, pointer in zip(outputs, made, strict=True):
                if own is not pointer:
                    copy(pointer, own, pointer.nbytes, stream)
            return done

    def _own_memory(self, stream: Stream, k: int, like: Pointer) -> Pointer:
        """Memory of the program's own for one of its arrays."""
        found = self._own.get((stream, k))
        if found is None:
            found = self._own[stream, k] = self.device.pool.take(like.nbytes, stream).pointer
        return found

    def _run(self, given: Sequence[Pointer], made: Sequence[Pointer], stream: Stream) -> bool:
        """Replays what was recorded for these addresses, or records it now."""
        machine = self._machines.get(stream)
        if machine is None:
            machine = self._machines[stream] = RecordingMachine(self.executable.code, self.device, stream)
        machine.restart()
        machine.begin(self.executable.checked)
        walk = Walk(self.plan, given, made, machine)
        key = (stream, *[p.block.address for p in given], *[p.block.address for p in made])
        steps = self._recordings.pop(key, None)
        if steps is None:
            self.misses += 1
            while len(self._recordings) >= _MOST_GRAPHS:
                self._recordings.pop(next(iter(self._recordings)))
            steps = self._recorded(walk, machine)
        self._recordings[key] = steps  # the last to go
        return all(step(walk) for step in steps) and not machine.failed

    def _recorded(self, walk: Walk, machine: RecordingMachine) -> list[Step]:
        """The launches as graphs, and what stands between them as it is."""
        steps: list[Step] = []
        for needs_host, launches in groupby(self.plan.launches, lambda launch: self.executable.needs_host(launch.spec)):
            group = list(launches)
            steps.append(_aside(group, machine) if needs_host else self._captured(walk, group, machine))
        return steps

    def _captured(self, walk: Walk, launches: Sequence[Launch], machine: RecordingMachine) -> Step:
        driver, stream = self.device.driver, machine.stream
        # On a stream of its own, as other threads may ask that of the call for something in the meantime.
        machine.stream = driver.stream()
        try:
            driver.begin_capture(machine.stream)
            try:
                walk.run(launches)
            finally:
                graph = driver.end_capture(machine.stream)
        finally:
            machine.stream = stream

        def replay(walk: Walk) -> bool:
            driver.replay(graph, stream)
            return True

        return replay


def _aside(launches: Sequence[Launch], machine: RecordingMachine) -> Step:
    """The launches of each call, in which the host has a part."""

    def run(walk: Walk) -> bool:
        with machine.aside():
            return walk.run(launches)

    return run
