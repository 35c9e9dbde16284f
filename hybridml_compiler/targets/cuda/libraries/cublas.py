"""cuBLAS through ctypes: CuPy refuses its own calls of it while a stream is captured.

cuBLAS is for matrices in column-major order: a row-major matrix is its transpose there, so that out = a @ b is computed
as out' = b' @ a'. Source: the cuBLAS documentation, https://docs.nvidia.com/cuda/cublas/.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from .... import config, dtypes
from ....errors import CompileError, OutOfMemoryError
from ....locks import rlock
from ..driver import Gemm, Memory, Place, Pointer, Prepared
from .files import libraries, loaded

# Bytes for each stream, as PyTorch gives it on an H100. Its own would be allocated in the middle of a capture.
_WORKSPACE = 32 << 20
# cudaDataType
_TYPES = {dtypes.float32: 0, dtypes.float64: 1, dtypes.float16: 2, dtypes.canonical("bfloat16"): 14}
_FLOAT32, _TF32, _FLOAT64 = 68, 77, 70  # cublasComputeType
_HOST, _DEFAULT = 0, -1  # where alpha and beta are, and the choice of the algorithm


def library() -> ctypes.CDLL | None:
    """The library, from NVIDIA's wheels or the toolkit's; None where there is none."""
    for name in libraries("cublas"):
        with suppress(OSError):
            return loaded(name, "cublasLt")
    return None


class Cublas:
    """A handle of the library. Several threads may use it, and several streams, each with working memory of its own:
    their products run at the same time, and write to it."""

    def __init__(self, library: Any, alloc: Callable[[int], int], memory: int) -> None:
        """`memory` is how much the GPU has, of which `alloc` gives some."""
        self.library, self._alloc, self._lock = library, alloc, rlock()
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetPointerMode_v2", self._handle, _HOST)
        self._size = min(_WORKSPACE, memory >> 6)
        self._entered: tuple[Any, Any] | None = None  # the streams that it works for now, which are kept
        self._workspaces: dict[Any, ctypes.c_void_p] = {}  # streams, which are kept: their numbers are never another's

    def prepared(self, call: Gemm, a: Pointer, b: Pointer, out: Pointer) -> Prepared:
        """A product of matrices, in the working memory of the stream that it is done on."""
        double = call.dtype is dtypes.float64
        number = ctypes.c_double if double else ctypes.c_float
        compute, chooses = _FLOAT64 if double else _FLOAT32, call.a.dtype is dtypes.float32
        sides = [(call.b, b), (call.a, a)]
        # Where each begins, and what stands behind its address.
        starts = [_start(p, side.offset, side.dtype) for side, p in sides]
        starts.append(_start(out, call.offset, call.result))
        behind = [(_TYPES[side.dtype], side.leading, ctypes.c_longlong(side.step)) for side, _ in sides]
        head = (int(call.b.transposed), int(call.a.transposed), call.n, call.m, call.k, ctypes.byref(number(1)))
        zero = ctypes.byref(number(0))
        tail = (_TYPES[call.result], call.n, ctypes.c_longlong(call.m * call.n), call.count)
        gemm, handle = self.library.cublasGemmStridedBatchedEx, self._handle

        def multiply(memories: Sequence[Memory], stream: Any, home: Any) -> None:
            left, right, result = [
                ctypes.c_void_p(at if number is None else memories[number].raw + at) for number, at in starts
            ]
            how = _TF32 if chooses and config.field("tf32") else compute
            with self._lock:
                self._enter(stream, home)
                status = gemm(handle, *head, left, *behind[0], right, *behind[1], zero, result, *tail, how, _DEFAULT)
            if status:
                raise _failed("cublasGemmStridedBatchedEx", status)

        return multiply

    def _enter(self, stream: Any, home: Any) -> None:
        """Lets the library work for a stream, in the memory of another."""
        if self._entered is not None and self._entered[0] is stream and self._entered[1] is home:
            return
        self._entered = None
        workspace = self._workspace(home)
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream.ptr))  # which forgets the workspace
        self._call("cublasSetWorkspace_v2", self._handle, workspace, ctypes.c_size_t(self._size))
        self._entered = stream, home

    def _workspace(self, stream: Any) -> ctypes.c_void_p:
        if stream not in self._workspaces:
            try:
                self._workspaces[stream] = ctypes.c_void_p(self._alloc(self._size))
            except MemoryError:
                raise OutOfMemoryError(f"cuda: no memory for the {self._size} bytes that cuBLAS works in") from None
        return self._workspaces[stream]

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise _failed(name, status)


def _failed(name: str, status: int) -> CompileError:
    return CompileError(f"cuda: {name} failed with status {status}")


def _start(pointer: Pointer, offset: int, dtype: np.dtype) -> tuple[int | None, int]:
    """The place of a matrix: the number of the memory that comes with a call, if it does, and bytes from there on."""
    at = pointer.offset + offset * dtype.itemsize
    block = pointer.block
    return (block.number, at) if isinstance(block, Place) else (None, block.raw + at)
