"""The driver of `cuda:sim`: memory is bytes of the host, and kernels are PTX that the simulator interprets.

Work is done when a stream is asked for it. What would be wrong on a GPU is wrong here: memory that is new or freed is
nan, and a stream that is being captured can be neither waited for nor read.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from ...errors import DeviceError
from ...graph.ir import Graph
from ..device import PageLocked
from ..numpy_call import run_call
from . import nvrtc
from .driver import Argument, Convolve, Extent, Gemm, Memory, Operand, Pointer, Prepared, Properties, filled
from .emit.kernel import ENTRY
from .sim.convolutions import array_of, convolve
from .sim.simulator import Simulator

_ALIGNMENT = 256  # bytes, as CUDA's
_MOST_LATE = 64  # arrays that are watched
_POISON = 0xFF  # nan in floats, -1 in integers


class SimulatedStream:
    """A stream; `recorded`: the work that has been asked for since its capture began."""

    def __init__(self) -> None:
        self.recorded: list[Callable[[], object]] | None = None

    @property
    def ptr(self) -> int:
        """CUDA's number of the stream."""
        return id(self)

    def do(self, work: Callable[[], object]) -> None:
        if self.recorded is None:
            work()
        else:
            self.recorded.append(work)


class SimulatedEvent:
    """A mark, and when it was passed."""

    seconds = 0.0


class SimulatedDriver:
    """The simulated GPU (see driver.py)."""

    has_gemm = True
    libraries = "NumPy"
    most_blocks = 1024  # the simulator's threads take turns

    def __init__(self, name: str = "cuda:sim", memory: int = 1 << 32) -> None:
        self.name = name
        self.properties = Properties("simulated GPU", nvrtc.VIRTUAL, memory, 1)
        self._others = SimulatedStream()
        self._late: deque[tuple[np.ndarray, bytes]] = deque(maxlen=_MOST_LATE)  # arrays that a GPU might yet copy

    # ---- memory

    def alloc(self, nbytes: int) -> np.ndarray:
        whole = np.empty(nbytes + _ALIGNMENT, np.uint8)
        return whole[-self.address(whole) % _ALIGNMENT :][:nbytes]

    def free(self, raw: np.ndarray) -> None:
        """Leaves it to Python: graphs may still have it."""

    def scribble(self, raw: np.ndarray) -> None:
        raw.fill(_POISON)

    def address(self, raw: np.ndarray) -> int:
        found: int = raw.__array_interface__["data"][0]
        return found

    def write(self, target: Pointer, data: np.ndarray, stream: SimulatedStream) -> None:
        _at(target)[: data.nbytes] = np.frombuffer(data.tobytes(), np.uint8)

    def page_locked(self, nbytes: int) -> PageLocked:
        memory = np.empty(max(nbytes, 1), np.uint8)
        return PageLocked(memory, self.address(memory), nbytes)

    def mapped(self, array: np.ndarray) -> np.ndarray:
        return array.view(np.uint8)

    def write_later(self, target: Pointer, data: np.ndarray, stream: SimulatedStream) -> None:
        self.write(target, data, stream)
        self._late.append((data, data.tobytes()))

    def _check_late(self) -> None:
        """Raises DeviceError for an array that was changed when a GPU might not yet have copied it."""
        late, self._late = self._late, deque(maxlen=_MOST_LATE)
        for data, before in late:
            if data.tobytes() != before:
                raise DeviceError(
                    f"{self.name}: page-locked memory {data.shape} was changed before its copy with non_blocking=True "
                    "was waited for: call hm.cuda.synchronize(), or synchronize() of an event, first"
                )

    def read(self, source: Pointer, stream: SimulatedStream) -> np.ndarray:
        self._check_late()
        self._refuse(stream, "read from")
        return _at(source)

    def copy(self, target: Pointer, source: Pointer, nbytes: int, stream: SimulatedStream) -> None:
        to, of = _at(target)[:nbytes], _at(source)[:nbytes]
        stream.do(lambda: np.copyto(to, of))

    def zero(self, target: Pointer, nbytes: int, stream: SimulatedStream) -> None:
        to = _at(target)[:nbytes]
        stream.do(lambda: to.fill(0))

    # ---- launches

    def load(self, source: str, entry: str = ENTRY) -> tuple[Callable[[], Simulator], str]:
        """A function that gives the simulator, and the kernel: reading PTX takes 10 ms, which is left to the first
        launch."""
        text = source if nvrtc.is_ptx(source) else nvrtc.compile(source, "ptx").code.decode()
        return cache(lambda: Simulator(text)), entry

    def launch(
        self,
        function: tuple[Callable[[], Simulator], str],
        grid: Extent,
        block: Extent,
        arguments: Sequence[Argument],
        stream: SimulatedStream,
    ) -> None:
        (simulator, entry), given = function, [_at(a) if isinstance(a, Pointer) else a for a in arguments]
        stream.do(lambda: simulator().launch(entry, grid, block, given))

    def prepared(
        self, function: tuple[Callable[[], Simulator], str], grid: Extent, block: Extent, arguments: Sequence[Argument]
    ) -> Prepared:
        def call(memories: Sequence[Memory], stream: SimulatedStream, home: SimulatedStream) -> None:
            self.launch(function, grid, block, [filled(a, memories) for a in arguments], stream)

        return call

    def enter(self) -> None:
        """Returns: there are no others."""

    def gemm(
        self, call: Gemm, a: Pointer, b: Pointer, out: Pointer, stream: SimulatedStream, home: SimulatedStream
    ) -> None:
        left, right = (
            _matrices(_at(a), call.a, call.count, call.m, call.k),
            _matrices(_at(b), call.b, call.count, call.k, call.n),
        )
        size = call.count * call.m * call.n
        result = _typed(_at(out), call.result)[call.offset : call.offset + size].reshape(call.count, call.m, call.n)

        def multiply() -> None:
            with np.errstate(all="ignore"):
                result[...] = left.astype(call.dtype, copy=False) @ right.astype(call.dtype, copy=False)

        stream.do(multiply)

    def prepared_gemm(self, call: Gemm, a: Pointer, b: Pointer, out: Pointer) -> Prepared:
        def multiply(memories: Sequence[Memory], stream: SimulatedStream, home: SimulatedStream) -> None:
            left, right, result = (filled(p, memories) for p in (a, b, out))
            self.gemm(call, left, right, result, stream, home)

        return multiply

    def convolution_bytes(self, call: Convolve) -> int | None:
        return 0

    def convolve(
        self, call: Convolve, a: Pointer, b: Pointer, out: Pointer, workspace: Pointer, stream: SimulatedStream
    ) -> None:
        arrays = [array_of(_at(p), images) for p, images in zip((a, b, out), call.memories, strict=True)]
        stream.do(lambda: convolve(call, *arrays))

    def lacks(self, needs: str) -> str:
        return ""

    def operation(
        self, graph: Graph, memories: Sequence[Pointer], stream: SimulatedStream, take: Callable[[int], Pointer]
    ) -> bool:
        self._refuse(stream, "given an operation of a library")
        return run_call(graph, [_at(pointer) for pointer in memories])

    # ---- order

    def stream(self) -> SimulatedStream:
        return SimulatedStream()

    def others(self) -> SimulatedStream:
        return self._others

    def event(self, timed: bool) -> SimulatedEvent:
        return SimulatedEvent()

    def record(self, event: SimulatedEvent, stream: SimulatedStream) -> None:
        event.seconds = time.perf_counter()

    def wait(self, stream: SimulatedStream, event: SimulatedEvent) -> None:
        """Returns at once: what is before the mark is done."""

    def is_done(self, work: Any) -> bool:
        self._check_late()
        return True

    def synchronize(self, work: Any) -> None:
        self._check_late()
        if isinstance(work, SimulatedStream):
            self._refuse(work, "waited for")

    def elapsed(self, start: SimulatedEvent, end: SimulatedEvent) -> float:
        return (end.seconds - start.seconds) * 1e3

    # ---- graphs

    def begin_capture(self, stream: SimulatedStream) -> None:
        stream.recorded = []

    def end_capture(self, stream: SimulatedStream) -> list[Callable[[], object]]:
        recorded, stream.recorded = stream.recorded, None
        assert recorded is not None, "no capture has begun"
        return recorded

    def replay(self, graph: list[Callable[[], object]], stream: SimulatedStream) -> None:
        for work in graph:
            stream.do(work)

    def _refuse(self, stream: SimulatedStream, what: str) -> None:
        if stream.recorded is not None:
            raise DeviceError(f"{self.name}: a stream is {what} while it is captured")

    # ---- other libraries

    def export(self, pointer: Pointer, shape: tuple[int, ...], dtype: np.dtype, stream: SimulatedStream) -> np.ndarray:
        array = _typed(_at(pointer), dtype)[: int(np.prod(shape))].reshape(shape).view(_Exported)
        array.block, array.flags.writeable = pointer.block, False
        return array

    def adopt(self, array: Any, stream: SimulatedStream) -> tuple[np.ndarray, np.ndarray]:
        owner = np.ascontiguousarray(np.from_dlpack(array))
        return owner.reshape(-1).view(np.uint8), owner


class _Exported(np.ndarray):
    """An array that keeps the block whose memory it is."""

    block: Any


def _at(pointer: Pointer) -> np.ndarray:
    whole: np.ndarray = pointer.block.raw[pointer.offset : pointer.offset + pointer.nbytes]
    return whole


def _typed(memory: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return memory[: memory.size // dtype.itemsize * dtype.itemsize].view(dtype)


def _matrices(memory: np.ndarray, side: Operand, count: int, rows: int, columns: int) -> np.ndarray:
    """One side of a product as an array (count, rows, columns)."""
    row, column = (1, side.leading) if side.transposed else (side.leading, 1)
    steps = [step * side.dtype.itemsize for step in (side.step, row, column)]
    flat = _typed(memory, side.dtype)[side.offset :]
    assert (count - 1) * side.step + (rows - 1) * row + (columns - 1) * column < flat.size, "a matrix ends outside"
    found: np.ndarray = np.lib.stride_tricks.as_strided(flat, (count, rows, columns), steps, writeable=False)
    return found
