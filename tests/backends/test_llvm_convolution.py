"""Our own convolutions: every size of edge, layout, stride, dilation, padding and width of vector, against NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hybridml_compiler import dtypes, pipeline
from hybridml_compiler.backends.llvm import ir
from hybridml_compiler.backends.llvm.convolution.direct import emit_direct, emit_packed
from hybridml_compiler.backends.llvm.convolution.pack import emit_turn
from hybridml_compiler.backends.llvm.convolution.winograd import (
    emit_backward,
    emit_forward,
    emit_winograd,
    emit_winograd_weights,
)
from hybridml_compiler.graph.interpret import interpret
from hybridml_compiler.graph.ir import Graph, apply, graph_of
from hybridml_compiler.ops.convolution import convolution as op
from hybridml_compiler.ops.table import OPS
from hybridml_compiler.runtime import jit, scratch, threads
from hybridml_compiler.runtime.linking import loader
from hybridml_compiler.schedule.fusion.epilogue import Fused
from hybridml_compiler.schedule.kernels import conv_tiling, conv_winograd
from hybridml_compiler.schedule.kernels.conv_tiling import Machine
from hybridml_compiler.schedule.kernels.convolution import Convolution, Strided, Turn

RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
MACHINES = [Machine(64, 32, 2), Machine(32, 16, 1), Machine(32, 32, 3)]
PARTS = ("forward", "backward")

pytestmark = pytest.mark.skipif(jit.host().vector_bits < 256, reason="without fused multiply-add fma is a call")


def one_and_many() -> list[Machine]:
    return [replace(machines()[0], cores=cores) for cores in (1, 64)]


def machines() -> list[Machine]:
    return [m for m in MACHINES if 8 * m.vector_bytes <= jit.host().vector_bits]


class Case:
    """A convolution and operands for it, whose axes lie in memory in the order given, last one next to each other."""

    def __init__(
        self,
        x: tuple[int, ...],
        w: tuple[int, ...],
        stride: Any = 1,
        padding: Any = ((0, 0), (0, 0)),
        dilation: Any = 1,
        x_order: Sequence[int] = (0, 1, 2, 3, 4),
        w_order: Sequence[int] = (0, 1, 2, 3, 4),
        flip: tuple[int, ...] = (),
        dtype: np.dtype = dtypes.float32,
        channels_first: bool = False,
    ) -> None:
        rng = np.random.default_rng([*x, *w])
        self.x, a = self._operand(rng, x, x_order, (), dtype)
        self.w, b = self._operand(rng, w, w_order, flip, dtype)
        self.params = {"stride": stride, "padding": padding, "dilation": dilation}
        wide = [v.astype(np.float64) for v in (self.x, self.w)]
        self.expected = op.eager(*wide, **self.params)
        self.scale = op.eager(*map(np.abs, wide), **self.params)
        pairs = {k: (v, v) if isinstance(v, int) else v for k, v in self.params.items() if k != "padding"}
        self.convolution = Convolution(
            dtype,
            x[0],
            x[1:3],
            self.expected.shape[1:3],
            w[:2],
            x[3],
            x[4],
            w[4],
            pairs["stride"],
            pairs["dilation"],
            (padding[0][0], padding[1][0]),
            a,
            b,
            channels_first,
        )

    @staticmethod
    def _operand(
        rng: np.random.Generator, shape: tuple[int, ...], order: Sequence[int], flip: tuple[int, ...], dtype: np.dtype
    ) -> tuple[np.ndarray, Strided]:
        offset = 5
        memory = np.full(offset + int(np.prod(shape)) + 64, np.nan, dtype)  # what must not be read would show
        stored = memory[offset : offset + int(np.prod(shape))].reshape([shape[k] for k in order])
        stored[...] = rng.standard_normal(stored.shape)
        values = np.flip(stored.transpose(np.argsort(order)), flip)
        first = (values.ctypes.data - memory.ctypes.data) // dtype.itemsize
        return values, Strided(first, tuple(s // dtype.itemsize for s in values.strides))

    def run(self, emit: Any, plan: Any, ranges: Sequence[tuple[int, int]], weights: Any = None) -> np.ndarray:
        """`weights` stands for the memory of the weights."""
        guard = 64
        memory = np.full(self.expected.size + 2 * guard, np.nan, self.convolution.dtype)
        out = memory[guard:-guard]
        right = self._start(1) if weights is None else weights
        self._call(emit, plan, ranges, [self._start(0), right, out.ctypes.data])
        assert np.isnan(memory[:guard]).all() and np.isnan(memory[-guard:]).all(), "wrote outside of the result"
        return out.reshape(self.expected.shape)

    def _start(self, number: int) -> int:
        """Where the memory of an operand starts."""
        values, place = ((self.x, self.convolution.a), (self.w, self.convolution.w))[number]
        return values.ctypes.data - place.offset * self.convolution.dtype.itemsize

    def _call(self, emit: Any, plan: Any, ranges: Sequence[tuple[int, int]], buffers: Sequence[int]) -> None:
        module = ir.Module("convolution")
        more: dict[str, Any] = {}
        turned = emit in (emit_direct, emit_winograd) and self.convolution.channels_first
        if turned or emit in (emit_packed, emit_winograd, emit_winograd_weights):
            emit_turn(module, "turn", Turn(self.convolution.dtype, plan.lanes))
            more = {"turn": "turn"}
        if emit is emit_winograd:
            parts = conv_winograd.parts(self.convolution, plan)
            for name, part, emit_part in zip(PARTS, parts, (emit_forward, emit_backward), strict=True):
                emit_part(module, name, part)
            more["parts"] = PARTS
        emit(module, "convolution", self.convolution, plan, **more)
        library = loader.load([jit.compile_ir(str(module), passes=False)], scratch.symbols(), ["convolution"])
        scratch.require()
        table = (ctypes.c_void_p * len(buffers))(*buffers)
        run = RUN(library.address("convolution"))
        for lo, hi in ranges:
            run(ctypes.addressof(table), lo, hi)

    def channels_last(self, out: np.ndarray) -> np.ndarray:
        n, h, w, groups, features = self.expected.shape
        if not self.convolution.channels_first:
            return out
        return out.reshape(n, groups, features, h, w).transpose(0, 3, 4, 1, 2)

    def check(self, out: np.ndarray, slack: float = 8) -> None:
        c = self.convolution
        terms = c.kernel[0] * c.kernel[1] * c.channels
        tolerance = (terms + slack) * float(np.finfo(c.dtype).eps)
        assert np.all(np.abs(out - self.expected) <= tolerance * self.scale + 1e-300), str(c)

    def direct(self, machine: Machine, apart: bool = False) -> np.ndarray:
        plan, c = conv_tiling.tiling_of(self.convolution, machine), self.convolution
        assert plan is not None
        memory = self._prepared(
            emit_packed, plan, conv_tiling.packed_bytes(c, plan), conv_tiling.pack_units(c, plan), apart
        )
        out = self.channels_last(
            self.run(emit_direct, plan, _ranges(conv_tiling.units(c, plan), apart), memory.ctypes.data)
        )
        self.check(out)
        return out

    def winograd(self, plan: conv_winograd.Winograd, apart: bool = False) -> np.ndarray:
        c = self.convolution
        nbytes, count = conv_winograd.transformed_bytes(c, plan), conv_winograd.weight_units(c, plan)
        memory = self._prepared(emit_winograd_weights, plan, nbytes, count, apart)
        out = self.channels_last(
            self.run(emit_winograd, plan, _ranges(conv_winograd.units(c, plan), apart), memory.ctypes.data)
        )
        self.check(out)
        return out

    def _prepared(self, emit: Any, plan: Any, nbytes: int, count: int, apart: bool) -> np.ndarray:
        memory = np.full(nbytes // self.convolution.dtype.itemsize, np.nan, self.convolution.dtype)
        self._call(emit, plan, _ranges(count, apart), [self._start(1), memory.ctypes.data])
        return memory


def _ranges(count: int, apart: bool) -> list[tuple[int, int]]:
    return [(k, k + 1) for k in reversed(range(count))] if apart else [(0, count)]


CASES: dict[str, dict[str, Any]] = {
    "3x3": {"x": (2, 9, 17, 1, 5), "w": (3, 3, 1, 5, 37), "padding": ((1, 1), (1, 1))},
    "one image, odd": {"x": (1, 5, 31, 1, 7), "w": (3, 2, 1, 7, 50), "padding": ((1, 0), (0, 1))},
    "narrow maps": {"x": (5, 3, 4, 1, 6), "w": (3, 3, 1, 6, 20), "padding": ((1, 1), (1, 1))},
    "first layer": {
        "x": (2, 23, 25, 1, 3),
        "w": (7, 7, 1, 3, 24),
        "stride": 2,
        "padding": ((3, 3), (3, 3)),
        "x_order": (0, 3, 4, 1, 2),
        "w_order": (2, 4, 3, 0, 1),
    },
    "stride and dilation": {
        "x": (2, 19, 22, 1, 6),
        "w": (3, 3, 1, 6, 9),
        "stride": (2, 3),
        "dilation": (3, 2),
        "padding": ((3, 4), (5, 1)),
    },
    "groups": {"x": (2, 6, 7, 3, 5), "w": (3, 3, 3, 5, 18), "padding": ((1, 1), (1, 1)), "stride": (1, 2)},
    "cropped": {"x": (2, 9, 12, 1, 4), "w": (3, 3, 1, 4, 8), "padding": ((-1, 2), (-2, -1))},
    "rows without a tap": {"x": (1, 2, 3, 1, 5), "w": (2, 2, 1, 5, 4), "padding": ((4, 3), (5, 4))},
    "pointwise": {"x": (2, 5, 9, 1, 33), "w": (1, 1, 1, 33, 40), "stride": 2},
    "gradient": {
        "x": (2, 8, 10, 1, 21),
        "w": (3, 3, 1, 21, 19),
        "padding": ((1, 1), (1, 1)),
        "w_order": (0, 1, 2, 4, 3),
        "flip": (0, 1),
    },
    "gradient of weights (o, c, kh, kw)": {
        "x": (2, 8, 10, 2, 21),
        "w": (3, 5, 2, 21, 19),
        "padding": ((1, 1), (2, 2)),
        "w_order": (2, 3, 4, 0, 1),
        "flip": (0, 1),
    },
    "weights in no useful order": {
        "x": (1, 4, 5, 2, 3),
        "w": (2, 2, 2, 3, 5),
        "w_order": (0, 4, 1, 3, 2),
        "flip": (3, 4),
    },
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("machine", machines(), ids=str)
def test_direct(name: str, machine: Machine) -> None:
    Case(**CASES[name]).direct(machine)


@pytest.mark.parametrize("name", CASES)
def test_direct_with_channels_first(name: str) -> None:
    expected = Case(**CASES[name]).direct(machines()[0])
    np.testing.assert_array_equal(Case(**CASES[name], channels_first=True).direct(machines()[0], apart=True), expected)


@pytest.mark.parametrize("name", ["3x3", "first layer", "gradient"])
def test_direct_float64(name: str) -> None:
    Case(**CASES[name], dtype=dtypes.float64).direct(machines()[-1])


@pytest.mark.parametrize("name", ["3x3", "first layer", "groups", "gradient"])
def test_bits_depend_neither_on_units_nor_on_the_width_of_a_vector(name: str) -> None:
    case = Case(**CASES[name])
    first, *others = (case.direct(machine, apart) for machine in machines() for apart in (False, True))
    for other in others:
        np.testing.assert_array_equal(other, first)


WINOGRAD: dict[str, dict[str, Any]] = {
    "even": {"x": (2, 8, 12, 1, 32), "w": (3, 3, 1, 32, 64), "padding": ((1, 1), (1, 1))},
    "odd": {"x": (3, 7, 5, 1, 48), "w": (3, 3, 1, 48, 37), "padding": ((1, 1), (1, 1))},
    "without padding": {"x": (2, 9, 6, 1, 32), "w": (3, 3, 1, 32, 33)},
    "wide padding": {"x": (1, 4, 3, 1, 32), "w": (3, 3, 1, 32, 40), "padding": ((3, 2), (2, 4))},
    "cropped": {"x": (1, 9, 8, 1, 32), "w": (3, 3, 1, 32, 40), "padding": ((-1, 0), (0, -2))},
    "gradient": {
        "x": (2, 6, 9, 1, 64),
        "w": (3, 3, 1, 64, 50),
        "padding": ((1, 1), (1, 1)),
        "w_order": (0, 1, 2, 4, 3),
        "flip": (0, 1),
    },
    "image (n, c, h, w)": {
        "x": (2, 5, 19, 1, 32),
        "w": (3, 3, 1, 32, 35),
        "padding": ((1, 1), (1, 1)),
        "x_order": (0, 3, 4, 1, 2),
    },
    "5x5": {"x": (2, 7, 12, 1, 32), "w": (5, 5, 1, 32, 45), "padding": ((2, 2), (2, 2))},
    "gradient of 5x5": {
        "x": (1, 9, 7, 1, 48),
        "w": (5, 5, 1, 48, 33),
        "padding": ((2, 2), (2, 2)),
        "w_order": (2, 3, 4, 0, 1),
        "flip": (0, 1),
    },
    "weights (o, c, kh, kw)": {
        "x": (2, 6, 9, 1, 64),
        "w": (3, 3, 1, 64, 50),
        "padding": ((1, 1), (1, 1)),
        "w_order": (4, 2, 3, 0, 1),
    },
}


@pytest.mark.parametrize("name", WINOGRAD)
def test_winograd(name: str) -> None:
    case = Case(**WINOGRAD[name])
    whole, parts, *others = (conv_winograd.cut(case.convolution, machine) for machine in (*one_and_many(), *machines()))
    first = case.winograd(whole)
    for plan in (parts, replace(whole, lines=1, rows=5), *others):
        np.testing.assert_array_equal(case.winograd(plan, apart=True), first)


@pytest.mark.parametrize("name", ["even", "odd", "wide padding", "5x5"])
def test_winograd_with_channels_first(name: str) -> None:
    first, last = Case(**WINOGRAD[name], channels_first=True), Case(**WINOGRAD[name])
    plan = conv_winograd.cut(first.convolution, machines()[0])
    np.testing.assert_array_equal(first.winograd(plan, apart=True), last.winograd(plan))


GRAPHS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "winograd": ((2, 16, 18, 1, 32), (3, 3, 1, 32, 48), {"padding": ((1, 1), (1, 1))}),
    "direct": ((3, 17, 15, 2, 19), (3, 3, 2, 19, 21), {"stride": 2, "padding": ((1, 1), (1, 1))}),
}


@pytest.mark.parametrize("channels_first", [False, True])
@pytest.mark.parametrize("name", GRAPHS)
def test_a_compiled_graph_with_an_epilogue(name: str, channels_first: bool) -> None:
    """The result plus itself squared, so that the epilogue reads what the kernel wrote, on any number of threads."""
    x, w, params = GRAPHS[name]
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32) for shape in (x, w)]
    nodes = graph_of(arrays)
    y = apply(OPS["convolution"], nodes, {**params, "channels_first": channels_first})
    graph = Graph(tuple(nodes), (apply(OPS["add"], [y, apply(OPS["multiply"], [y, y], {})], {}),))
    executable = pipeline.compile(graph)
    assert any(isinstance(launch.work, Fused) for launch in executable.launches)
    (expected,), count = interpret(graph, arrays), threads.get_num_threads()
    results = []
    try:
        for number in (1, 2, 3):
            threads.set_num_threads(number)
            results.append(executable(arrays)[0])
    finally:
        threads.set_num_threads(count)
    for result in results:
        np.testing.assert_array_equal(result, results[0])
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-3)
