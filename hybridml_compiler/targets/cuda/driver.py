"""The protocol of drivers: what the framework asks of a GPU, or of the simulated one.

    alloc free   write read copy zero   load launch gemm operation   stream event   capture replay

A driver has no policy: memory is kept and counted by pool.py, launches are chosen by machine.py, recorded and replayed
by executable.py. `SimulatedDriver` and `CupyDriver` are the two that there are, and all else is the same for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ... import dtypes
from ...graph import ir
from ...record import record
from ..device import PageLocked
from .emit.kernel import ENTRY

Raw = Any  # memory as the driver has it: an address, or bytes of the host
Stream = Any
Event = Any
Function = Any
Graph = Any
Extent = int | tuple[int, ...]
ALIGNMENT = 16  # bytes, of what a library's convolutions read and write


@record
class Properties:
    """A GPU. `capability` is its architecture: 90 for sm_90; clock and bandwidth are 0 where they are not known."""

    name: str
    capability: int
    memory: int  # bytes
    multiprocessors: int
    clock: int = 0  # cycles per second
    bandwidth: float = 0  # of its memory, bytes per second


class Memory(Protocol):
    """A block of memory, which its pointers keep (see pool.py)."""

    raw: Raw
    address: int  # the driver's number of `raw`
    nbytes: int
    stream: Stream
    users: frozenset[Stream]  # other streams that have used it


class Pointer:
    """Bytes of a block; `pointer[first:last]` are a part of them."""

    __slots__ = ("block", "nbytes", "offset")

    def __init__(self, block: Memory, offset: int, nbytes: int) -> None:
        self.block, self.offset, self.nbytes = block, offset, nbytes

    def __getitem__(self, part: slice) -> Pointer:
        first = min(part.start or 0, self.nbytes)
        last = self.nbytes if part.stop is None else min(part.stop, self.nbytes)
        return Pointer(self.block, self.offset + first, max(last - first, 0))


class Place:
    """Stands for memory that comes with a call: number `number` of those that it is given (see Prepared)."""

    __slots__ = ("nbytes", "number")
    raw, address, stream = None, 0, None
    users: frozenset[Stream] = frozenset()

    def __init__(self, number: int, nbytes: int) -> None:
        self.number, self.nbytes = number, nbytes

    @property
    def pointer(self) -> Pointer:
        return Pointer(self, 0, self.nbytes)


Argument = Pointer | int | np.generic


def filled(argument: Any, memories: Sequence[Memory]) -> Any:
    """An argument of a call that is given these memories: pointers to a `Place` are to them."""
    if isinstance(argument, Pointer) and isinstance(argument.block, Place):
        return Pointer(memories[argument.block.number], argument.offset, argument.nbytes)
    return argument


# Work whose arguments are ready but for memory that comes with a call: it is given that, the stream that it goes to,
# and the one on which it is done in the end, where that only records it.
Prepared = Callable[[Sequence[Memory], Stream, Stream], None]


@record
class Operand:
    """One side of a matrix product, in elements: matrix i begins at `offset + i * step`, its rows (its columns where it
    is transposed) are `leading` apart."""

    dtype: np.dtype
    offset: int
    step: int
    leading: int
    transposed: bool


@record
class Gemm:
    """out[i] = a[i] @ b[i] for i < count: m x n from m x k and k x n, added up in `dtype` and stored as `result`; the
    results follow each other in row-major order, from element `offset` on."""

    dtype: np.dtype
    result: np.dtype
    count: int
    m: int
    n: int
    k: int
    a: Operand
    b: Operand
    offset: int = 0


@record
class Images:
    """Four axes in memory, in elements: images (or features), channels, rows and columns."""

    dtype: np.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@record
class Convolve:
    """A convolution by a library: `y` of x and w or, with `weights`, `w` of x and y, which is the gradient of weights.

    Channels of x are those of all groups, as are the features, the first axis of w and the second of y. It is given the
    memory of its two operands, in that order, and of its result.
    """

    dtype: np.dtype  # of its sums
    x: Images
    w: Images
    y: Images
    stride: tuple[int, int]
    dilation: tuple[int, int]
    before: tuple[int, int]  # zeros round x
    after: tuple[int, int]
    weights: bool = False
    tf32: bool = False  # whether operands of float32 may be rounded

    @property
    def memories(self) -> tuple[Images, Images, Images]:
        return (self.x, self.y, self.w) if self.weights else (self.x, self.w, self.y)

    def __str__(self) -> str:
        what = "gradient of weights" if self.weights else "convolution"
        shapes = ", ".join(f"{dtypes.short(i.dtype)}{list(i.shape)}" for i in self.memories)
        return f"{what} by a library: {shapes}"


class Driver(Protocol):
    """A GPU as a queue of work. What takes a stream is done when that has come to it, unless it says otherwise."""

    name: str  # of the device
    has_gemm: bool  # whether there is a library for `gemm`
    libraries: str  # the others that compute something, with their versions
    most_blocks: int  # of a launch: more of them take turns

    @property
    def properties(self) -> Properties:
        """The GPU that launches and copies go to."""

    # ---- memory

    def alloc(self, nbytes: int) -> Raw:
        """New memory. MemoryError where there is none left."""

    def free(self, raw: Raw) -> None:
        """Gives memory back, which nothing uses any more."""

    @property
    def scribble(self) -> Callable[[Raw], None] | None:
        """A function that overwrites memory whose contents nobody may read; None where nobody checks."""

    def address(self, raw: Raw) -> int:
        """A number that no other memory has as long as this is there."""

    def write(self, target: Pointer, data: np.ndarray, stream: Stream) -> None:
        """Copies from the host; the array may change when this returns."""

    def page_locked(self, nbytes: int) -> PageLocked:
        """New memory of the host that `write_later` copies from."""

    def mapped(self, array: np.ndarray) -> Raw:
        """Page-locked memory as kernels have it."""

    def write_later(self, target: Pointer, data: np.ndarray, stream: Stream) -> None:
        """Copies from page-locked memory when the stream comes to it. Until then the array must stay as it is."""

    def read(self, source: Pointer, stream: Stream) -> np.ndarray:
        """The bytes, on the host, when all that the stream was asked for is done."""

    def copy(self, target: Pointer, source: Pointer, nbytes: int, stream: Stream) -> None:
        """Copies the first bytes."""

    def zero(self, target: Pointer, nbytes: int, stream: Stream) -> None:
        """Sets the first bytes to zero."""

    # ---- launches

    def load(self, source: str, entry: str = ENTRY) -> Function:
        """A function of a source of CUDA C, or of PTX, compiled and loaded."""

    def launch(
        self, function: Function, grid: Extent, block: Extent, arguments: Sequence[Argument], stream: Stream
    ) -> None:
        """Launches so many blocks of so many threads, along one axis or up to three. Python's integers are passed in
        64 bits, numbers of NumPy in their own."""

    def prepared(self, function: Function, grid: Extent, block: Extent, arguments: Sequence[Argument]) -> Prepared:
        """`launch` for many calls, whose pointers may be to a `Place`. `enter` comes before it."""

    def enter(self) -> None:
        """Makes the GPU that of this thread."""

    def gemm(self, call: Gemm, a: Pointer, b: Pointer, out: Pointer, stream: Stream, home: Stream) -> None:
        """A matrix product by the library, which works in memory of the stream `home`: that on which it is done in the
        end, where `stream` only records it."""

    def prepared_gemm(self, call: Gemm, a: Pointer, b: Pointer, out: Pointer) -> Prepared:
        """`gemm` for many calls."""

    def convolution_bytes(self, call: Convolve) -> int | None:
        """The size of the memory that a library works in when it computes a convolution; None where there is none that
        does."""

    def convolve(
        self, call: Convolve, a: Pointer, b: Pointer, out: Pointer, workspace: Pointer, stream: Stream
    ) -> None:
        """A convolution by the library. Its memory begins at multiples of ALIGNMENT."""

    def lacks(self, needs: str) -> str:
        """The reason why operations that need a library (cupy_rows.py) are left to the host; "" where it is there."""

    def operation(
        self, graph: ir.Graph, memories: Sequence[Pointer], stream: Stream, take: Callable[[int], Pointer]
    ) -> bool:
        """Computes a graph of one operation, from the memory of its inputs to that of its outputs, by the library,
        which `take` gives memory to work in; False where that refuses what it is given. No graph may hold it."""

    # ---- order

    def stream(self) -> Stream:
        """A new queue, which is beside all others."""

    def others(self) -> Stream:
        """The stream of other libraries in this thread, which what they are handed is ordered by."""

    def event(self, timed: bool) -> Event:
        """A new mark in a queue."""

    def record(self, event: Event, stream: Stream) -> None:
        """Puts the mark behind all that the stream was asked for."""

    def wait(self, stream: Stream, event: Event) -> None:
        """Lets the stream wait for the mark."""

    def is_done(self, work: Stream | Event) -> bool:
        """Whether all of a stream, or what is before a mark, is done."""

    def synchronize(self, work: Stream | Event | None) -> None:
        """Waits for that, or for all that the GPU was asked for."""

    def elapsed(self, start: Event, end: Event) -> float:
        """Milliseconds between two marks that were timed."""

    # ---- graphs

    def begin_capture(self, stream: Stream) -> None:
        """From here on work for the stream is recorded, not done."""

    def end_capture(self, stream: Stream) -> Graph:
        """Calls that were recorded."""

    def replay(self, graph: Graph, stream: Stream) -> None:
        """Calls the recorded functions again, with the same arguments."""

    # ---- other libraries

    def export(self, pointer: Pointer, shape: tuple[int, ...], dtype: np.dtype, stream: Stream) -> Any:
        """The memory as an array with `__dlpack__`, which keeps it."""

    def adopt(self, array: Any, stream: Stream) -> tuple[Raw, Any]:
        """Memory of an array of another library with `__dlpack__` or `__cuda_array_interface__`, and a dense array that
        keeps it."""
