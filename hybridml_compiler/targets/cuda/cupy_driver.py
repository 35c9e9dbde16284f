"""The driver of a real GPU: CuPy's thin layer over CUDA's runtime, and cuBLAS (see cublas.py).

Addresses are numbers, and machine code is what our own call of NVRTC has made: CuPy's arrays and functions are used for
operations that we have no kernels for, in our memory (cupy_rows.py). It is written from CuPy's documentation and
sources, and run in the tests on a stand-in for CuPy: `benchmarks/gpu_check.py` is what runs it on a GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ... import config
from ...errors import CompileError, DeviceError
from ...graph.ir import Graph
from ...once import lazy, once
from ..device import PageLocked
from . import nvrtc
from .driver import Argument, Convolve, Extent, Gemm, Pointer, Prepared, Properties
from .emit.kernel import ENTRY
from .launching.libcuda import Libcuda
from .libraries import cudnn, cupy_rows
from .libraries.cublas import Cublas, library
from .libraries.cupy_rows import CuPy

_TO_DEVICE, _TO_HOST, _ON_DEVICE = 1, 2, 3  # kinds of cudaMemcpy
_PINNED = 1  # cudaMemoryTypeHost
_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
_ATTRIBUTES = 13, 36, 37  # cudaDeviceAttr: kHz of the clock and of memory, bits of the way to memory
_SHARES_PAGES = 100  # cudaDevAttrPageableMemoryAccessUsesHostPageTables
_BLOCKS = 32  # of a launch, for each multiprocessor


class CupyDriver:
    """GPU number `index` (see driver.py). `cupy`, `blas`, `dnn` and `cuda` are the libraries; `form` tells what kernels
    become for an architecture, `load` imports others of CuPy's modules. DeviceError for a GPU that is too old."""

    scribble = None

    def __init__(
        self,
        index: int,
        cupy: Any,
        blas: Any = None,
        dnn: Any = None,
        form: Callable[[int], tuple[nvrtc.Form, int]] = nvrtc.form_for,
        load: Callable[[str], Any] = import_module,
        cuda: Any = None,
    ) -> None:
        self.name = "cuda" if index == 0 else f"cuda:{index}"
        self.index, self.cupy, self.form = index, cupy, form
        self._modules = CuPy(cupy, load)
        self.lacks = once(self._lack)
        self.runtime = cupy.cuda.runtime
        self._threads = threading.local()  # of those that have entered, where there is one GPU
        self._is_only = self.runtime.getDeviceCount() == 1
        self.enter()
        if self.properties.capability < nvrtc.VIRTUAL:
            raise DeviceError(
                f'device "{self.name}" is not available: {self.properties.name} is of architecture '
                f"sm_{self.properties.capability}, and kernels are for sm_{nvrtc.VIRTUAL} and newer"
            )
        self._calls, self._blas = Libcuda(cuda, self.name), blas or library()
        self.has_gemm = self._blas is not None
        # cuDNN ends the process where it finds no cuBLAS, which is loaded here.
        self._dnn = dnn or (cudnn.library() if self.has_gemm else None)
        self.libraries = "" if self._dnn is None else f"cuDNN {self._dnn.cudnnGetVersion()}"
        self.most_blocks = _BLOCKS * self.properties.multiprocessors

    @lazy
    def properties(self) -> Properties:
        found = self.runtime.getDeviceProperties(self.index)
        name = found["name"].decode() if isinstance(found["name"], bytes) else str(found["name"])
        capability = 10 * found["major"] + found["minor"]
        clock, memory_clock, bus = (self.runtime.deviceGetAttribute(n, self.index) for n in _ATTRIBUTES)
        bandwidth = 2 * memory_clock * 1e3 * bus / 8  # two transfers per cycle
        memory, multiprocessors = found["totalGlobalMem"], found["multiProcessorCount"]
        return Properties(name, capability, memory, multiprocessors, 1000 * clock, bandwidth)

    def enter(self) -> None:
        """Makes the GPU that of this thread, as CUDA's calls have none of their own."""
        if not self._is_only:  # others may have made another that of the thread
            self.runtime.setDevice(self.index)
        elif not hasattr(self._threads, "entered"):
            self.runtime.setDevice(self.index)
            self._threads.entered = True

    # ---- memory

    def alloc(self, nbytes: int) -> int:
        self.enter()
        try:
            return int(self.runtime.malloc(nbytes))
        except self.runtime.CUDARuntimeError as error:
            if error.status != _OUT_OF_MEMORY:
                raise
            raise MemoryError from None

    def free(self, raw: int) -> None:
        self.enter()
        self.runtime.free(raw)

    def address(self, raw: int) -> int:
        return raw

    def write(self, target: Pointer, data: np.ndarray, stream: Any) -> None:
        source = int(data.ctypes.data)
        self._copy(_at(target), source, data.nbytes, _TO_DEVICE, stream)
        # CUDA has staged memory that is not pinned before it returns, unless the GPU reads the host's pages by itself.
        if self._shares_pages or self.runtime.pointerGetAttributes(source).type == _PINNED:
            stream.synchronize()

    @lazy
    def _shares_pages(self) -> bool:
        """Whether the GPU reads any memory of the host, as a GH200 does: copies of all of it may be late."""
        return bool(self.runtime.deviceGetAttribute(_SHARES_PAGES, self.index))

    def page_locked(self, nbytes: int) -> PageLocked:
        self.enter()
        memory = self.cupy.cuda.alloc_pinned_memory(max(nbytes, 1))
        return PageLocked(memory, int(memory.ptr), nbytes)

    def mapped(self, array: np.ndarray) -> int:
        return int(array.ctypes.data)

    def write_later(self, target: Pointer, data: np.ndarray, stream: Any) -> None:
        self._copy(_at(target), int(data.ctypes.data), data.nbytes, _TO_DEVICE, stream)

    def read(self, source: Pointer, stream: Any) -> np.ndarray:
        data = np.empty(source.nbytes, np.uint8)
        self._copy(data.ctypes.data, _at(source), source.nbytes, _TO_HOST, stream)
        stream.synchronize()
        return data

    def copy(self, target: Pointer, source: Pointer, nbytes: int, stream: Any) -> None:
        self._copy(_at(target), _at(source), nbytes, _ON_DEVICE, stream)

    def _copy(self, target: int, source: int, nbytes: int, kind: int, stream: Any) -> None:
        self.enter()
        self.runtime.memcpyAsync(target, source, nbytes, kind, stream.ptr)

    def zero(self, target: Pointer, nbytes: int, stream: Any) -> None:
        self.enter()
        self.runtime.memsetAsync(_at(target), 0, nbytes, stream.ptr)

    # ---- launches

    def load(self, source: str, entry: str = ENTRY) -> Any:
        is_ptx = nvrtc.is_ptx(source)
        form, architecture = self.form(self.properties.capability)
        fast = config.field("fast_math")
        code = source.encode() if is_ptx else nvrtc.compile(source, form, architecture, fast=fast).code
        self.enter()
        module = self.cupy.cuda.Module()
        module.load(code)
        return module.get_function(entry)

    def launch(self, function: Any, grid: Extent, block: Extent, arguments: Sequence[Argument], stream: Any) -> None:
        self.enter()
        self.prepared(function, grid, block, arguments)((), stream, stream)

    def prepared(self, function: Any, grid: Extent, block: Extent, arguments: Sequence[Argument]) -> Prepared:
        return self._calls.prepared(function.ptr, grid, block, arguments)

    @lazy
    def _products(self) -> Cublas:
        self.enter()
        return Cublas(self._blas, self.alloc, self.properties.memory)

    def gemm(self, call: Gemm, a: Pointer, b: Pointer, out: Pointer, stream: Any, home: Any) -> None:
        self.enter()
        self.prepared_gemm(call, a, b, out)((), stream, home)

    def prepared_gemm(self, call: Gemm, a: Pointer, b: Pointer, out: Pointer) -> Prepared:
        return self._products.prepared(call, a, b, out)

    @lazy
    def _convolutions(self) -> cudnn.Cudnn | None:
        self.enter()
        try:
            return None if self._dnn is None else cudnn.Cudnn(self._dnn)
        except CompileError:  # its parts do not fit each other, or this GPU
            return None

    def convolution_bytes(self, call: Convolve) -> int | None:
        self.enter()
        return None if self._convolutions is None else self._convolutions.nbytes(call)

    def convolve(self, call: Convolve, a: Pointer, b: Pointer, out: Pointer, workspace: Pointer, stream: Any) -> None:
        self.enter()
        assert self._convolutions is not None
        self._convolutions.convolve(call, [_at(a), _at(b), _at(out)], _at(workspace), stream)

    def _lack(self, needs: str) -> str:
        self.enter()
        return cupy_rows.lack(self._modules, needs)

    def operation(self, graph: Graph, memories: Sequence[Pointer], stream: Any, take: Callable[[int], Pointer]) -> bool:
        self.enter()
        nodes = (*graph.inputs, *graph.outputs)
        arrays = [self.export(p, n.shape, n.dtype, stream) for p, n in zip(memories, nodes, strict=True)]
        lacking: list[MemoryError] = []

        def allocate(nbytes: int) -> Any:
            try:
                return self._memory(with_room(nbytes))
            except MemoryError as error:
                lacking.append(error)
                raise

        def with_room(nbytes: int) -> Pointer:
            try:
                return take(nbytes)
            except MemoryError:
                cupy_rows.drop_plans(self._modules)
                return take(nbytes)

        with stream, self.cupy.cuda.using_allocator(allocate):
            try:
                found = cupy_rows.compute(self._modules, graph, arrays[: len(graph.inputs)])
            except MemoryError as error:  # of Thrust it is another one, which says nothing
                raise next(iter(lacking), error) from None
            except (np.linalg.LinAlgError, NotImplementedError):  # the latter of older versions
                return False
            for out, value in zip(arrays[len(graph.inputs) :], found, strict=True):
                out[...] = value
        return True

    # ---- order

    def stream(self) -> Any:
        self.enter()
        return self.cupy.cuda.Stream(non_blocking=True)

    def others(self) -> Any:
        self.enter()
        return self.cupy.cuda.get_current_stream()

    def event(self, timed: bool) -> Any:
        self.enter()
        return self.cupy.cuda.Event(disable_timing=not timed)

    def record(self, event: Any, stream: Any) -> None:
        event.record(stream)

    def wait(self, stream: Any, event: Any) -> None:
        stream.wait_event(event)

    def is_done(self, work: Any) -> bool:
        return bool(work.done)

    def synchronize(self, work: Any) -> None:
        if work is not None:
            work.synchronize()
            return
        self.enter()
        self.runtime.deviceSynchronize()

    def elapsed(self, start: Any, end: Any) -> float:
        return float(self.cupy.cuda.get_elapsed_time(start, end))

    # ---- graphs

    def begin_capture(self, stream: Any) -> None:
        stream.begin_capture()

    def end_capture(self, stream: Any) -> Any:
        return stream.end_capture()

    def replay(self, graph: Any, stream: Any) -> None:
        self._calls.replay(graph.graphExec, stream)

    # ---- other libraries

    def export(self, pointer: Pointer, shape: tuple[int, ...], dtype: np.dtype, stream: Any) -> Any:
        return self.cupy.ndarray(shape, dtype, self._memory(pointer))

    def _memory(self, pointer: Pointer) -> Any:
        """Memory as CuPy has it, which keeps the block."""
        cuda = self.cupy.cuda
        return cuda.MemoryPointer(cuda.UnownedMemory(_at(pointer), pointer.nbytes, pointer.block, self.index), 0)

    def adopt(self, array: Any, stream: Any) -> tuple[int, Any]:
        self.enter()
        with stream:  # CuPy lets it wait for the stream of the array
            given = self.cupy.from_dlpack(array) if hasattr(array, "__dlpack__") else self.cupy.asarray(array)
            owner = self.cupy.ascontiguousarray(given)
        return int(owner.data.ptr), owner


def _at(pointer: Pointer) -> int:
    address: int = pointer.block.raw + pointer.offset
    return address
