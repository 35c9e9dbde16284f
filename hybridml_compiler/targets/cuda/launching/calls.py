"""Plans as lists of the driver's calls.

The walk over a plan (targets/run_plan.py) is the same each time but for where its arrays are. So it is made once, on
memory that stands for that of a call, with a driver that notes what it is asked for: a call of the program is then a
few calls of the driver, whose arguments are ready but for some addresses. Launches in which the host has a part are
walked over in each call. [Note: GPU calls] has the figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from ....loops.ir import KernelSpec
from ....record import record
from ....schedule.launch import Launch, Plan
from ...run_plan import Walk, memory_of
from ..device import CudaDevice
from ..driver import (
    Argument,
    Convolve,
    Driver,
    Extent,
    Function,
    Gemm,
    Memory,
    Place,
    Pointer,
    Prepared,
    Stream,
    filled,
)
from ..machine import DeviceMachine
from ..pool import NUMBER, rounded

if TYPE_CHECKING:
    from ...kernel_target import KernelCode


@record(eq=False)
class HostPart:
    """Launches in which the host has a part, on memory that comes with a call."""

    code: KernelCode
    device: CudaDevice
    launches: Sequence[Launch]
    memory: Mapping[str, Sequence[Pointer]]
    status: Pointer | None

    def run(self, memories: Sequence[Memory], stream: Stream) -> bool:
        machine = DeviceMachine(self.code, self.device, stream)
        machine.status = self.status
        memory = {base: [filled(pointer, memories) for pointer in found] for base, found in self.memory.items()}
        return Walk(memory, machine).run(self.launches)


Part = Sequence[Prepared] | HostPart


class CallList:
    """The calls of a plan. Their memory is given by number: inputs, outputs, and then `temporaries`, which a call needs
    for itself."""

    def __init__(
        self,
        plan: Plan,
        code: KernelCode,
        device: CudaDevice,
        needs_host: Callable[[KernelSpec], bool],
        status: Pointer | None,
    ) -> None:
        """`status`: the word that kernels set where an index is out of range."""
        self.device, self.driver = device, device.driver
        avals = [*plan.inputs, *plan.outputs]
        machine = _NotingMachine(code, device, [Place(k, max(int(a.nbytes), NUMBER)) for k, a in enumerate(avals)])
        pointers = [place.pointer for place in machine.places]
        machine.status = status
        memory = memory_of(plan, pointers[: len(plan.inputs)], pointers[len(plan.inputs) :], machine)
        walk = Walk(memory, machine)
        self.parts: list[Part] = []
        for on_host, group in groupby(plan.launches, lambda launch: needs_host(launch.spec)):
            launches = list(group)
            if on_host:
                self.parts.append(HostPart(code, device, launches, memory, status))
                continue
            machine.calls = []
            walk.run(launches)
            self.parts.append(machine.calls)
        self.shared = machine.shared
        self.temporaries = [(place.nbytes, rounded(place.nbytes)) for place in machine.places[len(avals) :]]

    def run(self, memories: Sequence[Memory], stream: Stream, parts: Sequence[Part] | None = None) -> bool:
        """Runs a call, or other `parts` that stand for these; False where an operation of the host has failed."""
        self.driver.enter()
        for block in self.shared:
            if block.stream is not stream:
                block.users |= {stream}  # which may read it yet when the program is dropped
        for part in self.parts if parts is None else parts:
            if type(part) is list:
                for call in part:
                    call(memories, stream, stream)
            elif not part.run(memories, stream):  # type: ignore[union-attr]
                return False
        return True

    @property
    def count(self) -> int:
        """The number of calls of the driver, or launches with a part of the host."""
        return sum(len(p.launches) if isinstance(p, HostPart) else len(p) for p in self.parts)

    def captured(self, memories: Sequence[Memory], stream: Stream) -> list[Part]:
        """The parts for these memories and this stream, those without the host as graphs."""
        return [p if isinstance(p, HostPart) else [self._graph(p, memories, stream)] for p in self.parts]

    def _graph(self, calls: Sequence[Prepared], memories: Sequence[Memory], home: Stream) -> Prepared:
        driver = self.driver
        # On a stream of its own, as other threads may ask that of the call for something in the meantime.
        with self.device.spare_stream() as stream:
            driver.begin_capture(stream)
            try:
                for call in calls:
                    call(memories, stream, home)
            finally:
                graph = driver.end_capture(stream)
        return lambda _, stream, home: driver.replay(graph, stream)


class _NotingMachine(DeviceMachine):
    """A machine whose memory is places, and whose driver notes its calls."""

    def __init__(self, code: KernelCode, device: CudaDevice, places: list[Place]) -> None:
        super().__init__(code, device, device.default_stream)
        self.driver: Any = _NotingDriver(self, device.driver)
        self.places, self.calls, self.shared = places, list[Prepared](), list[Any]()
        self.free: list[Place] = []  # places that the launches before are done with

    def memory(self, array: Any) -> Pointer:
        found = super().memory(array)
        self.shared.append(found.block)
        return found

    def new(self, nbytes: int) -> Pointer:
        """The smallest place that was given back and is large enough, or one more."""
        fitting = [place for place in self.free if place.nbytes >= nbytes]
        if fitting:
            place = min(fitting, key=lambda place: place.nbytes)
            self.free.remove(place)
            return place.pointer[:nbytes]
        self.places.append(Place(len(self.places), max(nbytes, NUMBER)))
        return self.places[-1].pointer

    def done(self, memories: Sequence[Pointer]) -> None:
        self.free += [memory.block for memory in memories if isinstance(memory.block, Place)]


class _NotingDriver:
    """The calls of a driver that can be prepared."""

    def __init__(self, machine: _NotingMachine, driver: Driver) -> None:
        self.machine, self.driver = machine, driver
        self.most_blocks, self.lacks = driver.most_blocks, driver.lacks

    def load(self, source: str, entry: str) -> Function:
        return self.driver.load(source, entry)

    def launch(
        self, function: Function, grid: Extent, block: Extent, arguments: Sequence[Argument], stream: Stream
    ) -> None:
        self.machine.calls.append(self.driver.prepared(function, grid, block, arguments))

    def copy(self, target: Pointer, source: Pointer, nbytes: int, stream: Stream) -> None:
        def call(memories: Sequence[Memory], stream: Stream, home: Stream) -> None:
            self.driver.copy(filled(target, memories), filled(source, memories), nbytes, stream)

        self.machine.calls.append(call)

    def zero(self, target: Pointer, nbytes: int, stream: Stream) -> None:
        self.machine.calls.append(
            lambda memories, stream, home: self.driver.zero(filled(target, memories), nbytes, stream)
        )

    def gemm(self, call: Gemm, a: Pointer, b: Pointer, out: Pointer, stream: Stream, home: Stream) -> None:
        self.machine.calls.append(self.driver.prepared_gemm(call, a, b, out))

    def convolution_bytes(self, call: Convolve) -> int | None:
        return self.driver.convolution_bytes(call)

    def convolve(
        self, call: Convolve, a: Pointer, b: Pointer, out: Pointer, workspace: Pointer, stream: Stream
    ) -> None:
        def convolve(memories: Sequence[Memory], stream: Stream, home: Stream) -> None:
            left, right, result, work = (filled(pointer, memories) for pointer in (a, b, out, workspace))
            self.driver.convolve(call, left, right, result, work, stream)

        self.machine.calls.append(convolve)
