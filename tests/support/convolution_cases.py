"""Convolutions with operands in memory, and runs of the code that is emitted for them, beside NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridml_compiler import dtypes
from hybridml_compiler.ops.convolution import convolution as op
from hybridml_compiler.schedule.kernels.convolution import Convolution, Pretranspose, Strided
from hybridml_compiler.targets.cpu.kernels import conv_tiling, conv_winograd
from hybridml_compiler.targets.cpu.kernels.conv_tiling import Machine
from hybridml_compiler.targets.cpu.kernels.conv_weights_blocking import WeightBlocking, weight_blocking_of
from hybridml_compiler.targets.cpu.llvm import ir
from hybridml_compiler.targets.cpu.llvm.contraction.emission import Emission
from hybridml_compiler.targets.cpu.llvm.contraction.packing import emit_turn
from hybridml_compiler.targets.cpu.llvm.convolution.direct import DirectConvolution
from hybridml_compiler.targets.cpu.llvm.convolution.pack import emit_packed
from hybridml_compiler.targets.cpu.llvm.convolution.weights import WeightGradient
from hybridml_compiler.targets.cpu.llvm.convolution.winograd import (
    WinogradConvolution,
    emit_backward,
    emit_forward,
    emit_winograd_weights,
)
from hybridml_compiler.targets.cpu.runtime import jit, scratch
from hybridml_compiler.targets.cpu.runtime.linking import loader
from hybridml_compiler.targets.cpu.spec import host_spec

RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
MACHINES = [Machine(64, 32, 2), Machine(32, 16, 1), Machine(32, 32, 3)]


def machines() -> list[Machine]:
    return [m for m in MACHINES if 8 * m.vector_bytes <= host_spec().vector_bits]


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
            (x[1], x[2]),
            self.expected.shape[1:3],
            (w[0], w[1]),
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
        module = ir.Module("convolution", host_spec())
        turned = emit in (DirectConvolution, WinogradConvolution) and self.convolution.channels_first
        symbols = []
        if emit is WinogradConvolution:
            forward, backward = plan.transforms(self.convolution)
            symbols = [emit_forward(module, "forward", forward), emit_backward(module, "backward", backward)]
        if turned or emit in (emit_packed, WinogradConvolution, emit_winograd_weights):
            symbols.append(emit_turn(module, "turn", Pretranspose(self.convolution.dtype, plan.lanes)))
        made = emit(module, "convolution", self.convolution, plan, symbols=[function.name for function in symbols])
        if isinstance(made, Emission):
            made.emit()
        library = loader.load([jit.compile_ir(str(module))], scratch.symbols(), ["convolution"])
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
        memory = self._prepared(emit_packed, plan, *plan.prepared(c)[1], apart)
        out = self.channels_last(self.run(DirectConvolution, plan, _ranges(plan.units(c), apart), memory.ctypes.data))
        self.check(out)
        return out

    def winograd(self, plan: conv_winograd.Winograd, apart: bool = False) -> np.ndarray:
        c = self.convolution
        memory = self._prepared(emit_winograd_weights, plan, *plan.prepared(c)[1], apart)
        out = self.channels_last(self.run(WinogradConvolution, plan, _ranges(plan.units(c), apart), memory.ctypes.data))
        self.check(out)
        return out

    def _prepared(self, emit: Any, plan: Any, nbytes: int, count: int, apart: bool) -> np.ndarray:
        memory = np.full(nbytes // self.convolution.dtype.itemsize, np.nan, self.convolution.dtype)
        self._call(emit, plan, _ranges(count, apart), [self._start(1), memory.ctypes.data])
        return memory


def _ranges(count: int, apart: bool) -> list[tuple[int, int]]:
    return [(k, k + 1) for k in reversed(range(count))] if apart else [(0, count)]


LAST, FIRST = (4, 1, 2, 3, 0), (4, 3, 0, 1, 2)  # x in memory: (n, h, w, g, c), (n, g, c, h, w)
GRADIENT = (3, 0, 1, 2, 4)  # (n, h, w, g, o)


def exchanged(
    n: int,
    size: tuple[int, int],
    groups: int,
    c: int,
    o: int,
    kernel: tuple[int, int],
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (0, 0),
    dilation: tuple[int, int] = (1, 1),
    **more: Any,
) -> dict[str, Any]:
    """The gradient of the weights of this convolution, as a convolution: batch and channels, stride and dilation."""
    steps = list(zip(size, kernel, stride, padding, dilation, strict=True))
    pixels = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in steps]
    after = [d * (k - 1) + s * (m - 1) + 1 - n - p for (n, k, s, p, d), m in zip(steps, pixels, strict=True)]
    return {
        "x": (c, *size, groups, n),
        "w": (*pixels, groups, n, o),
        "stride": dilation,
        "padding": tuple(zip(padding, after, strict=True)),
        "dilation": stride,
        "x_order": LAST,
        "w_order": GRADIENT,
        **more,
    }


def _emit_gradient(
    module: ir.Module, name: str, convolution: Convolution, plan: WeightBlocking, symbols: Sequence[str]
) -> ir.Function:
    turns = [emit_turn(module, "turn", Pretranspose(convolution.dtype, plan.lanes)).name] if plan.turned else []
    return WeightGradient(module, name, convolution, plan, symbols=turns).emit()


def run_gradient(case: Case, machine: Machine, apart: bool = False) -> np.ndarray:
    plan = weight_blocking_of(case.convolution, machine)
    assert plan is not None
    count = plan.units(case.convolution)
    ranges = [(k, k + 1) for k in reversed(range(count))] if apart else [(0, count // 3), (count // 3, count)]
    out = case.run(_emit_gradient, plan, ranges)
    case.check(out)
    return out
