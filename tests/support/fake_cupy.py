"""A stand-in for CuPy on a machine without a GPU: the names that `CupyDriver` uses, with memory of the host.

Addresses are those of NumPy arrays, and modules are PTX that the simulator runs. So the driver's own lines are run: its
arguments, their order, and what it may not ask for while a stream is captured. It says nothing of hardware.
"""

from __future__ import annotations

import ctypes
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.targets.cuda.sim.simulator import Simulator
from tests.support.fake_cupy_rows import Libraries

DATA_TYPES = {0: dtypes.float32, 1: dtypes.float64, 2: dtypes.float16, 14: dtypes.canonical("bfloat16")}  # cudaDataType


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"CUDA error {status}")
        self.status = status


class Runtime:
    """`cupy.cuda.runtime`; what it is asked for is in `calls`, by name."""

    CUDARuntimeError = CUDARuntimeError

    def __init__(self, memory: int) -> None:
        self.memory, self.calls, self.capability = memory, list[str](), (8, 0)
        self.allocated: dict[int, np.ndarray] = {}
        self.streams: dict[int, Stream] = {}
        self.functions: dict[int, tuple[Simulator, str]] = {}
        self.graphs: dict[int, Sequence[Callable[[], Any]]] = {}
        self.pinned: dict[int, int] = {}  # bytes by addresses, of memory of the host that is copied late
        self.mapped: dict[int, np.ndarray] = {}  # memory of the host that is pinned
        self.allocator: Any = None  # of CuPy's own arrays
        self.current: Any = None  # the stream of this thread
        self.uploaded = self.downloaded = 0  # bytes
        self.shares_pages = False  # whether copies of memory of the host that is not pinned are late, too

    def setDevice(self, index: int) -> None:
        if index:
            raise CUDARuntimeError(101)

    def getDeviceCount(self) -> int:
        return 1

    def getDeviceProperties(self, index: int) -> dict[str, Any]:
        major, minor = self.capability
        found = {"name": b"stand-in", "major": major, "minor": minor, "multiProcessorCount": 4}
        return {**found, "totalGlobalMem": self.memory}

    def deviceGetAttribute(self, attribute: int, index: int) -> int:
        return {13: 1_000_000, 36: 1_000_000, 37: 4096, 100: int(self.shares_pages)}[attribute]

    def malloc(self, nbytes: int) -> int:
        self.calls.append("malloc")
        if sum(a.nbytes for a in self.allocated.values()) + nbytes > self.memory:
            raise CUDARuntimeError(2)
        whole = np.full(nbytes + 256, 0xFF, np.uint8)
        array = whole[-whole.ctypes.data % 256 :][:nbytes]
        address = int(array.ctypes.data)
        self.allocated[address] = array
        return address

    def free(self, address: int) -> None:
        self.calls.append("free")
        del self.allocated[address]

    def memcpyAsync(self, target: int, source: int, nbytes: int, kind: int, stream: int) -> None:
        self.calls.append("memcpy")
        if kind == 2:
            self.downloaded += nbytes
            self.streams[stream].refuse_if_captured()
        self.uploaded += nbytes * (kind == 1)
        if kind == 1 and (self.shares_pages or self._is_pinned(source)):
            self.streams[stream].late.append(lambda: ctypes.memmove(target, source, nbytes))
        elif kind == 1:  # the array of the host may change at once
            copy = bytes((ctypes.c_char * nbytes).from_address(source))
            self.streams[stream].do(lambda: ctypes.memmove(target, copy, nbytes))
        else:
            self.streams[stream].do(lambda: ctypes.memmove(target, source, nbytes))

    def memsetAsync(self, target: int, value: int, nbytes: int, stream: int) -> None:
        self.calls.append("memset")
        self.streams[stream].do(lambda: ctypes.memset(target, value, nbytes))

    def pointerGetAttributes(self, address: int) -> Any:
        return SimpleNamespace(type=int(self._is_pinned(address)))

    def _is_pinned(self, address: int) -> bool:
        return any(start <= address < start + nbytes for start, nbytes in self.pinned.items())

    def deviceSynchronize(self) -> None:
        self.calls.append("deviceSynchronize")
        for stream in self.streams.values():
            stream.catch_up()

    def view(self, address: int) -> np.ndarray:
        """The bytes of the allocation around an address, from there on."""
        for start, array in self.mapped.items():
            if start <= address < start + array.nbytes:
                return array[address - start :]
        starts = sorted(self.allocated)
        start = starts[bisect_right(starts, address) - 1]
        found: np.ndarray = self.allocated[start][address - start :]
        assert found.size, "an address behind its allocation"
        return found


class Stream:
    def __init__(self, runtime: Runtime, non_blocking: bool) -> None:
        assert non_blocking, "no other can be captured beside the default stream"
        self.ptr, self.runtime = 1000 + len(runtime.streams), runtime
        self.recorded: list[Callable[[], Any]] | None = None
        self.late: list[Callable[[], Any]] = []
        self.waited: list[Stream | None] = []  # for work of these streams, in order
        runtime.streams[self.ptr] = self

    def do(self, work: Callable[[], Any]) -> None:
        if self.recorded is None:
            self.catch_up()
            work()
        else:
            self.recorded.append(work)

    def refuse_if_captured(self) -> None:
        if self.recorded is not None:
            raise CUDARuntimeError(900)  # cudaErrorStreamCaptureUnsupported

    def synchronize(self) -> None:
        self.refuse_if_captured()
        self.catch_up()

    def catch_up(self) -> None:
        """Runs the work that was put off, before any other."""
        while self.late:
            self.late.pop(0)()

    @property
    def done(self) -> bool:
        self.refuse_if_captured()
        return not self.late

    def wait_event(self, event: Event) -> None:
        self.runtime.calls.append("wait_event")
        assert event.seconds is not None, "an event that nobody has recorded"
        self.waited.append(event.stream)
        if event.stream is not None:
            event.stream.catch_up()

    def begin_capture(self) -> None:
        self.recorded = []

    def end_capture(self) -> Graph:
        recorded, self.recorded = self.recorded, None
        assert recorded is not None
        number = len(self.runtime.graphs) + 1
        self.runtime.graphs[number] = recorded
        return Graph(number)

    def __enter__(self) -> Stream:
        self.before, self.runtime.current = self.runtime.current, self
        return self

    def __exit__(self, *_: object) -> None:
        self.runtime.current = self.before


class Graph:
    graphExec = property(lambda self: self.number)

    def __init__(self, number: int) -> None:
        self.number = number


class Event:
    def __init__(self, disable_timing: bool) -> None:
        self.timed, self.seconds, self.stream = not disable_timing, None, None

    seconds: float | None
    stream: Stream | None

    @property
    def done(self) -> bool:
        """Whether what is copied late on its stream is copied."""
        return self.stream is None or not self.stream.late

    def record(self, stream: Stream) -> None:
        self.seconds, self.stream = time.perf_counter(), stream

    def synchronize(self) -> None:
        assert self.seconds is not None and self.stream is not None
        self.stream.catch_up()


class PinnedMemoryPointer:
    """Page-locked memory. The next that is asked for may have it as soon as nobody has this one."""

    def __init__(self, runtime: Runtime, nbytes: int) -> None:
        self.array, self.runtime = np.empty(nbytes, np.uint8), runtime
        self.ptr = int(self.array.ctypes.data)
        runtime.pinned[self.ptr], runtime.mapped[self.ptr] = nbytes, self.array

    def __del__(self) -> None:
        del self.runtime.pinned[self.ptr], self.runtime.mapped[self.ptr]
        self.array.fill(0xFF)


class Module:
    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def load(self, code: bytes) -> None:
        self.simulator = Simulator(code.decode())

    def get_function(self, name: str) -> Any:
        address = len(self.runtime.functions) + 1
        self.runtime.functions[address] = self.simulator, name
        return SimpleNamespace(ptr=address)


class FakeCuda:
    """libcuda by the functions that libcuda.py calls, on addresses."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime

    def cuLaunchKernel(self, function: Any, *given: Any) -> int:
        *sizes, shared, stream, table, extra = given
        assert shared.value == 0 and extra is None
        simulator, name = self.runtime.functions[function.value]
        lowest = min(self.runtime.allocated)
        types = [dtype for _, dtype in simulator.module.entries[name].parameters]
        arguments = [self._argument(dtype, at, lowest) for dtype, at in zip(types, table, strict=True)]
        grid, block = (tuple(n.value for n in part) for part in (sizes[:3], sizes[3:]))
        self.runtime.calls.append("launch")
        self.runtime.streams[stream.value].do(lambda: simulator.launch(name, grid, block, arguments))
        return 0

    def _argument(self, dtype: np.dtype, at: int, lowest: int) -> Any:
        value = np.frombuffer(ctypes.string_at(at, dtype.itemsize), dtype)[0]
        is_number = dtype.itemsize < 8 or dtype.kind not in "iu"
        is_address = not is_number and (value >= min([lowest, *self.runtime.mapped]))
        return self.runtime.view(int(value)) if is_address else value

    def cuGraphLaunch(self, graph: Any, stream: Any) -> int:
        self.runtime.calls.append("graph")
        for work in self.runtime.graphs[graph.value]:
            self.runtime.streams[stream.value].do(work)
        return 0


class FakeArray(np.ndarray):
    """`cupy.ndarray`: an array whose `__array_interface__` is CUDA's, as others see it."""

    memory: Any

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.__array_interface__, "version": 3}

    def __dlpack_device__(self) -> Any:
        return (2, 0)

    def __dlpack__(self, **asked: Any) -> Any:
        return self.view(np.ndarray).__dlpack__()


class FakeBlas:
    """cuBLAS by the names that cublas.py calls, on addresses."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.stream, self.workspace, self.computes = runtime, None, None, list[int]()
        self.used: dict[int, set[int]] = {}  # working memory, and the streams that ran or recorded products with it

    stream: int | None
    workspace: int | None

    def cublasCreate_v2(self, handle: Any) -> int:
        return 0

    def cublasSetPointerMode_v2(self, handle: Any, mode: int) -> int:
        return mode

    def cublasSetStream_v2(self, handle: Any, stream: ctypes.c_void_p) -> int:
        self.stream, self.workspace = stream.value, None
        return 0

    def cublasSetWorkspace_v2(self, handle: Any, workspace: ctypes.c_void_p, size: ctypes.c_size_t) -> int:
        self.workspace = workspace.value
        return 0

    def cublasGemmStridedBatchedEx(
        self, handle: Any, ta: int, tb: int, m: int, n: int, k: int, alpha: Any, a: Any, a_type: int, lda: int,
        a_step: Any, b: Any, b_type: int, ldb: int, b_step: Any, beta: Any, c: Any, c_type: int, ldc: int, c_step: Any,
        count: int, compute: int, algorithm: int,
    ) -> int:  # fmt: skip
        """Column-major: c (m x n) = op(a) @ op(b), where op is a transpose of what is asked for."""
        assert self.workspace is not None, "SetStream has taken the workspace back"
        assert self.stream is not None
        self.used.setdefault(self.workspace, set()).add(self.stream)
        self.computes.append(compute)
        rows_a, rows_b = (k if ta else m), (n if tb else k)
        if lda < rows_a or ldb < rows_b or ldc < m:
            return 7  # CUBLAS_STATUS_INVALID_VALUE

        def matrix(at: Any, kind: int, leading: int, rows: int, columns: int, step: Any, i: int) -> np.ndarray:
            dtype = DATA_TYPES[kind]
            flat = self.runtime.view(at.value)
            flat = flat[: flat.size // dtype.itemsize * dtype.itemsize].view(dtype)[i * step.value :]
            strides = (dtype.itemsize, leading * dtype.itemsize)
            return np.lib.stride_tricks.as_strided(flat, (rows, columns), strides)

        def multiply() -> None:
            dtype = DATA_TYPES[c_type]
            for i in range(count):
                left = matrix(a, a_type, lda, rows_a, m if ta else k, a_step, i).astype(dtype)
                right = matrix(b, b_type, ldb, rows_b, k if tb else n, b_step, i).astype(dtype)
                out = matrix(c, c_type, ldc, m, n, c_step, i)
                out[...] = (left.T if ta else left) @ (right.T if tb else right)

        self.runtime.streams[self.stream].do(multiply)
        return 0


def fake_cupy(memory: int = 1 << 28) -> Any:
    """A module with CuPy's names over a new memory of so many bytes."""
    runtime = Runtime(memory)
    runtime.current = Stream(runtime, True)  # the default one
    libraries = Libraries(runtime)

    def elapsed(start: Event, end: Event) -> float:
        assert start.timed and end.timed and start.seconds is not None and end.seconds is not None
        return (end.seconds - start.seconds) * 1e3

    def unowned(address: int, nbytes: int, owner: Any, device: int) -> Any:
        return SimpleNamespace(address=address, nbytes=nbytes, owner=owner)

    def ndarray(shape: tuple[int, ...], dtype: np.dtype, pointer: Any) -> FakeArray:
        data = runtime.view(pointer.address)[: int(np.prod(shape)) * dtype.itemsize].view(dtype).reshape(shape)
        array = data.view(FakeArray)
        array.memory = pointer
        return array

    def from_dlpack(x: Any) -> Any:
        capsule = x.__dlpack__(stream=1)
        source = SimpleNamespace(__dlpack__=lambda **_: capsule, __dlpack_device__=lambda: (1, 0))
        return _Adopted(np.from_dlpack(source), runtime)

    def adopted(x: Any) -> Any:
        return _Adopted(np.asarray(x).view(np.ndarray), runtime)

    cuda = SimpleNamespace(
        runtime=runtime,
        Stream=lambda non_blocking: Stream(runtime, non_blocking),
        Event=Event,
        get_current_stream=lambda: runtime.current,
        alloc_pinned_memory=lambda nbytes: PinnedMemoryPointer(runtime, nbytes),
        using_allocator=libraries.using_allocator,
        Module=lambda: Module(runtime),
        UnownedMemory=unowned,
        MemoryPointer=lambda memory, offset: memory,
        get_elapsed_time=elapsed,
    )
    return SimpleNamespace(
        **libraries.cupy(),
        libraries=libraries,
        cuda=cuda,
        ndarray=ndarray,
        from_dlpack=from_dlpack,
        asarray=lambda x: np.asarray(x).view(FakeArray) if np.ndim(x) == 0 else adopted(x),
        ascontiguousarray=lambda x: x,
    )


class _Adopted:
    """An array of another library as one of CuPy's, whose memory the stand-in then knows."""

    def __init__(self, array: np.ndarray, runtime: Runtime) -> None:
        self.array = np.ascontiguousarray(array)
        self.shape, self.dtype, self.nbytes = self.array.shape, self.array.dtype, self.array.nbytes
        address = int(self.array.ctypes.data)
        self.data = SimpleNamespace(ptr=address)
        inside = any(start <= address < start + a.nbytes for start, a in runtime.allocated.items())
        if not inside:
            runtime.allocated[address] = self.array.reshape(-1).view(np.uint8)
