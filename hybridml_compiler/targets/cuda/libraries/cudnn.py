"""cuDNN through ctypes: convolutions, by the few functions of its backend API.

A description is made of nodes with attributes: tensors, an operation, a graph of it. The library's heuristics list
engines for the graph, the fastest first as they expect; the first that computes in our precision, and in the same order
at each call, becomes a plan. Its older functions for convolutions are deprecated, and do not take bfloat16; the package
nvidia-cudnn-frontend wraps the API below, which is in the library itself, that PyTorch brings.

Source: the cuDNN documentation, https://docs.nvidia.com/deeplearning/cudnn/, and the header cudnn_graph.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from .... import dtypes
from ....errors import CompileError
from ....locks import rlock
from ....record import record
from ..driver import ALIGNMENT, Convolve, Images
from .files import libraries, loaded

# cudnnDataType_t
_TYPES = {dtypes.float32: 0, dtypes.float64: 1, dtypes.float16: 2, dtypes.canonical("bfloat16"): 9}
_MOST_ENGINES = 32  # that are asked for
_MOST_BYTES = 1 << 30  # of memory that an engine may work in
_CROSS_CORRELATION = 1  # cudnnConvolutionMode_t
_BY_MODEL, _FALLBACK = 3, 2  # cudnnBackendHeurMode_t: A, and engines that can, in no order
# cudnnBackendNumericalNote_t. Winograd's sums have larger errors than those of the products.
_TENSOR_CORE, _DOWN_CONVERT, _REDUCED, _FFT, _NONDETERMINISTIC, _WINOGRAD = range(6)
_NOTES = 16  # more than there are
_REFUSED = {_REDUCED, _FFT, _NONDETERMINISTIC, _WINOGRAD}
_ROUNDING = {_TENSOR_CORE, _DOWN_CONVERT}  # of operands of float32

# cudnnBackendDescriptorType_t
_CONVOLUTION, _ENGINE, _CONFIGURATION, _HEURISTICS, _PLAN = 1, 2, 3, 4, 5
_FORWARD, _OF_WEIGHTS, _GRAPH, _PACK, _TENSOR = 10, 11, 15, 16, 17
# cudnnBackendAttributeType_t, with the type of C
_HANDLE, _DTYPE, _INT64, _FLOAT, _DOUBLE, _POINTER, _MODE, _HEURISTIC_MODE, _NOTE, _NODE = (
    (0, ctypes.c_void_p), (1, ctypes.c_int), (3, ctypes.c_int64), (4, ctypes.c_float), (5, ctypes.c_double),
    (6, ctypes.c_void_p), (7, ctypes.c_int), (8, ctypes.c_int), (11, ctypes.c_int), (15, ctypes.c_void_p),
)  # fmt: skip
_Kind = tuple[int, Any]

# cudnnBackendAttributeName_t: of a convolution 100, heuristics 200, a configuration 300, a plan 400, the operations
# 700 and 712, a graph 800, a tensor 900, a pack of variables 1000 and an engine 1300
_X, _Y, _W = 1, 2, 3  # numbers of the tensors of a graph


def library() -> ctypes.CDLL | None:
    """The library, from NVIDIA's wheels or the toolkit's; None where there is none."""
    for name in libraries("cudnn"):
        with suppress(OSError):
            return loaded(name)
    return None


class _Refused(Exception):
    """The library's answer to a description, by its status."""


class _Node:
    """A new description of the library's, by its kind."""

    def __init__(self, library: Any, kind: int) -> None:
        self.library, self.at = library, ctypes.c_void_p()
        self.parts: list[_Node] = []  # that it needs as long as it is there
        self._call("cudnnBackendCreateDescriptor", kind, ctypes.byref(self.at))

    def __del__(self) -> None:
        if self.at.value:
            self.library.cudnnBackendDestroyDescriptor(self.at)

    def set(self, name: int, kind: _Kind, *values: Any) -> _Node:
        number, c = kind
        self.parts += [value for value in values if isinstance(value, _Node)]
        array = (c * len(values))(*(value.at if isinstance(value, _Node) else value for value in values))
        self._call("cudnnBackendSetAttribute", self.at, name, number, ctypes.c_int64(len(values)), array)
        return self

    def finish(self) -> _Node:
        self._call("cudnnBackendFinalize", self.at)
        return self

    def get(self, name: int, kind: _Kind, most: int = 1) -> list[int]:
        number, c = kind
        array, count = (c * most)(), ctypes.c_int64()
        self._call("cudnnBackendGetAttribute", self.at, name, number, ctypes.c_int64(most), ctypes.byref(count), array)
        return list(array[: count.value])

    def nodes(self, name: int, kind: int, most: int = 1) -> list[_Node]:
        """Descriptions of this kind, which the library fills."""
        found = [_Node(self.library, kind) for _ in range(most)]
        array, count = (ctypes.c_void_p * most)(*(node.at for node in found)), ctypes.c_int64()
        self._call(
            "cudnnBackendGetAttribute", self.at, name, _NODE[0], ctypes.c_int64(most), ctypes.byref(count), array
        )
        for node in found:
            node.parts.append(self)
        return found[: count.value]

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise _Refused(f"{name}: status {status}")


@record(eq=False)
class _Plan:
    node: _Node
    nbytes: int  # that it works in


class Cudnn:
    """A handle of the library, and its plans. Several threads may use it."""

    def __init__(self, library: Any) -> None:
        self.library, self._lock = library, rlock()
        self._handle = ctypes.c_void_p()
        self._check("cudnnCreate", ctypes.byref(self._handle))
        self._plans: dict[Convolve, _Plan | None] = {}

    def nbytes(self, call: Convolve) -> int | None:
        """The size of the memory that a convolution works in; None where no engine computes it."""
        plan = self._plan(call)
        return None if plan is None else plan.nbytes

    def convolve(self, call: Convolve, addresses: Sequence[int], workspace: int, stream: Any) -> None:
        """Computes a convolution of operands and a result at these addresses."""
        plan = self._plan(call)
        assert plan is not None
        numbers = (_X, _Y, _W) if call.weights else (_X, _W, _Y)
        at = [a + i.offset * i.dtype.itemsize for a, i in zip(addresses, call.memories, strict=True)]
        pack = _Node(self.library, _PACK).set(1000, _INT64, *numbers).set(1001, _POINTER, *at)
        pack.set(1003, _POINTER, workspace).finish()
        with self._lock:
            self._check("cudnnSetStream", self._handle, ctypes.c_void_p(stream.ptr))
            self._check("cudnnBackendExecute", self._handle, plan.node.at, pack.at)

    def _plan(self, call: Convolve) -> _Plan | None:
        with self._lock:
            if call not in self._plans:
                self._plans[call] = next(self.plans(call), None)
            return self._plans[call]

    def plans(self, call: Convolve, refused: set[int] = _REFUSED) -> Iterator[_Plan]:
        """The plans that compute in our precision, the best first as the library expects; engines with one of the notes
        `refused` are left out."""
        if call.dtype is dtypes.float32 and call.x.dtype is dtypes.float32 and not call.tf32:
            refused = refused | _ROUNDING
        try:
            graph = self._graph(call)
        except _Refused:
            return
        for mode in (_BY_MODEL, _FALLBACK):
            with suppress(_Refused):
                heuristics = _Node(self.library, _HEURISTICS).set(201, _NODE, graph).set(200, _HEURISTIC_MODE, mode)
                for configuration in heuristics.finish().nodes(202, _CONFIGURATION, _MOST_ENGINES):
                    with suppress(_Refused):
                        (engine,) = configuration.nodes(300, _ENGINE)
                        if refused.isdisjoint(engine.get(1303, _NOTE, _NOTES)):
                            yield self._planned(configuration)

    def _planned(self, configuration: _Node) -> _Plan:
        node = _Node(self.library, _PLAN).set(400, _HANDLE, self._handle).set(401, _NODE, configuration).finish()
        (nbytes,) = node.get(402, _INT64)
        if nbytes > _MOST_BYTES:
            raise _Refused(f"it works in {nbytes} bytes")
        return _Plan(node, nbytes)

    def _graph(self, call: Convolve) -> _Node:
        lib, double = self.library, call.dtype is dtypes.float64
        tensors = {number: _tensor(lib, number, x) for number, x in ((_X, call.x), (_Y, call.y), (_W, call.w))}
        convolution = _Node(lib, _CONVOLUTION).set(106, _INT64, 2).set(100, _DTYPE, _TYPES[call.dtype])
        convolution.set(101, _MODE, _CROSS_CORRELATION).set(102, _INT64, *call.dilation).set(103, _INT64, *call.stride)
        convolution.set(104, _INT64, *call.after).set(105, _INT64, *call.before).finish()
        operation = _Node(lib, _OF_WEIGHTS if call.weights else _FORWARD)
        first = 712 if call.weights else 700  # alpha, beta, the convolution and then three tensors
        for name, factor in ((first, 1.0), (first + 1, 0.0)):
            operation.set(name, _DOUBLE if double else _FLOAT, factor)
        operation.set(first + 2, _NODE, convolution)
        for k, number in enumerate((_W, _X, _Y), start=3):
            operation.set(first + k, _NODE, tensors[number])
        operation.finish()
        return _Node(lib, _GRAPH).set(800, _HANDLE, self._handle).set(801, _NODE, operation).finish()

    def _check(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise CompileError(f"cuda: {name} failed with status {status}")


def _tensor(library: Any, number: int, images: Images) -> _Node:
    node = _Node(library, _TENSOR).set(901, _DTYPE, _TYPES[images.dtype])
    node.set(902, _INT64, *images.shape).set(903, _INT64, *images.strides).set(906, _INT64, number)
    # An offset may leave less than the alignment of the memory.
    first = images.offset * images.dtype.itemsize
    return node.set(900, _INT64, first & -first if first % ALIGNMENT else ALIGNMENT).finish()
