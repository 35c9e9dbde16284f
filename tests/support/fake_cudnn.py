"""A stand-in for cuDNN: the functions of its backend API by the names that cudnn.py calls, on addresses.

It checks descriptions as far as the library's documentation says what they need, and computes with NumPy what they say.
Five engines are listed for each graph: one adds up in no fixed order, one rounds operands of float32, one has no plan,
one needs too much memory, and the last is as it should be.
"""

from __future__ import annotations

import ctypes
from typing import Any

from hybridml_compiler import dtypes
from hybridml_compiler.targets.cuda.driver import ALIGNMENT, Convolve, Images
from hybridml_compiler.targets.cuda.sim.convolutions import array_of, convolve

DATA_TYPES = {0: dtypes.float32, 1: dtypes.float64, 2: dtypes.float16, 9: dtypes.canonical("bfloat16")}
NOT_SUPPORTED, BAD_PARAM = 3000, 2000
WORKSPACE = 1000  # bytes
NOTES: tuple[list[int], ...] = ([4], [0, 1], [], [], [])
# The attributes that each kind of description must have, with the type of their values (cudnn_graph.h).
FORWARD, OF_WEIGHTS = (
    dict.fromkeys((first, first + 1), 4) | dict.fromkeys(range(first + 2, first + 6), 15) for first in (700, 712)
)
REQUIRED = {
    1: {100: 1, 101: 7, 102: 3, 103: 3, 104: 3, 105: 3, 106: 3},
    4: {200: 8, 201: 15},
    5: {400: 0, 401: 15},
    10: FORWARD,
    11: OF_WEIGHTS,
    15: {800: 0, 801: 15},
    16: {1000: 3, 1001: 6, 1003: 6},
    17: {900: 3, 901: 1, 902: 3, 903: 3, 906: 3},
}


class Description:
    def __init__(self, kind: int) -> None:
        self.kind, self.finished = kind, False
        self.values: dict[int, list[Any]] = {}
        self.types: dict[int, int] = {}


class FakeDnn:
    """cuDNN on a stand-in for CUDA's runtime. `engines`: the numbers of those that were run."""

    def __init__(self, runtime: Any) -> None:
        self.runtime, self.stream = runtime, 0
        self.made: dict[int, Description] = {}
        self.count, self.engines = 0x1000, list[int]()
        self.calls: list[Convolve] = []

    def cudnnGetVersion(self) -> int:
        return 91000

    def cudnnCreate(self, handle: Any) -> int:
        handle._obj.value = 1
        return 0

    def cudnnSetStream(self, handle: Any, stream: ctypes.c_void_p) -> int:
        assert stream.value is not None
        self.stream = stream.value
        return 0

    def cudnnBackendCreateDescriptor(self, kind: int, at: Any) -> int:
        self.count += 1
        self.made[self.count] = Description(kind)
        at._obj.value = self.count
        return 0

    def cudnnBackendDestroyDescriptor(self, at: ctypes.c_void_p) -> int:
        assert at.value is not None
        del self.made[at.value]
        return 0

    def cudnnBackendSetAttribute(self, at: Any, name: int, kind: int, count: ctypes.c_int64, values: Any) -> int:
        found = self.made[at.value]
        assert not found.finished and len(values) == count.value
        found.values[name], found.types[name] = list(values), kind
        return 0

    def cudnnBackendFinalize(self, at: Any) -> int:
        found = self.made[at.value]
        doubles = {name: 5 for name in (700, 701, 712, 713) if found.types.get(name) == 5}
        if found.types != REQUIRED[found.kind] | doubles:
            return BAD_PARAM
        if any(not self.made[v].finished for n, t in found.types.items() if t == 15 for v in found.values[n]):
            return BAD_PARAM
        if found.kind == 5:
            engine = self.made[found.values[401][0]].values[0][0]
            if engine == 2:
                return NOT_SUPPORTED
            found.values[402] = [1 << 40 if engine == 3 else WORKSPACE]
        found.finished = True
        return 0

    def cudnnBackendGetAttribute(
        self, at: Any, name: int, kind: int, most: ctypes.c_int64, count: Any, values: Any
    ) -> int:
        found = self.made[at.value]
        assert found.finished, "a description that is not finished"
        given: list[Any]
        if name == 202:  # configurations, which have a graph and the number of an engine
            graph = found.values[201][0]
            call = self._call_of(graph)
            alike = call.x.dtype is call.w.dtype is call.y.dtype
            given = list(range(len(NOTES))) if alike and found.values[200] == [3] else []
            for k in given:
                self.made[values[k]].values.update({0: [k], 1: [graph]})
                self.made[values[k]].finished = True
            count._obj.value = len(given)
            return 0
        if name == 300:
            self.made[values[0]].values[0] = found.values[0]
            self.made[values[0]].finished = True
            count._obj.value = 1
            return 0
        given = NOTES[found.values[0][0]] if name == 1303 else found.values[name]
        assert len(given) <= most.value
        values[: len(given)] = given
        count._obj.value = len(given)
        return 0

    def cudnnBackendExecute(self, handle: Any, plan: Any, pack: Any) -> int:
        """Computes the graph of a plan, whose tensors have numbers, with the memory of a pack."""
        configuration = self.made[self.made[plan.value].values[401][0]].values
        call = self._call_of(configuration[1][0])
        values = self.made[pack.value].values
        memory = dict(zip(values[1000], values[1001], strict=True))
        self.runtime.view(values[1003][0])[:WORKSPACE].fill(0xFF)
        numbers = (1, 2, 3) if call.weights else (1, 3, 2)
        if any(memory[number] % ALIGNMENT for number in numbers):
            return BAD_PARAM
        arrays = [array_of(self.runtime.view(memory[n]), i) for n, i in zip(numbers, call.memories, strict=True)]
        self.engines.append(configuration[0][0])
        self.calls.append(call)
        self.runtime.streams[self.stream].do(lambda: convolve(call, *arrays))
        return 0

    def _call_of(self, graph: int) -> Convolve:
        """The convolution that a graph describes."""
        (operation,) = (self.made[at] for at in self.made[graph].values[801])
        weights = operation.kind == 11
        first = 712 if weights else 700
        assert [operation.values[first + k] for k in range(2)] == [[1.0], [0.0]], "alpha, beta"
        convolution, w, x, y = (self.made[operation.values[first + k][0]].values for k in range(2, 6))
        assert [t[906] for t in (x, y, w)] == [[1], [2], [3]]
        assert convolution[106] == [2] and convolution[101] == [1], "two axes, without turning the kernel"
        images = [Images(DATA_TYPES[t[901][0]], 0, tuple(t[902]), tuple(t[903])) for t in (x, w, y)]
        padding = zip(convolution[105], convolution[104], strict=True)
        steps, apart = convolution[103], convolution[102]
        axes = zip(images[0].shape[2:], padding, images[1].shape[2:], steps, apart, strict=True)
        sizes = [(n + low + high - (k - 1) * d - 1) // step + 1 for n, (low, high), k, step, d in axes]
        assert tuple(sizes) == images[2].shape[2:], "as many positions as y has"
        assert (images[0].shape[0], images[1].shape[0]) == images[2].shape[:2]
        assert all(_is_dense(i) for i in images[1:2])
        stride, dilation, before, after = ((convolution[k][0], convolution[k][1]) for k in (103, 102, 105, 104))
        dtype, (x_images, w_images, y_images) = DATA_TYPES[convolution[100][0]], images
        return Convolve(dtype, x_images, w_images, y_images, stride, dilation, before, after, weights)


def _is_dense(images: Images) -> bool:
    """Whether weights have no gaps, in one of the two orders."""
    _, c, h, w = images.shape
    orders = (c * h * w, h * w, w, 1), (c * h * w, 1, w * c, c)
    return any(all(m == 1 or s == t for m, s, t in zip(images.shape, images.strides, o, strict=True)) for o in orders)
