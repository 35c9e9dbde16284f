"""A depthwise convolution: `void convolution(ptr buffers, i64 lo, i64 hi)` over rows of pixels of the result.

Channels are the vector. For some pixels of a row and one vector of channels, a row of taps is loaded into registers and
each pixel that they meet once; taps beside the image are left out, by ranges of rows and by micro-kernels for the
borders. Every element is one chain of fused multiply-adds over (ky, kx).
"""

from __future__ import annotations

from typing import Any

from ...schedule.convolve import Convolution
from ...schedule.depthwise import DepthwiseTiling, Run
from . import ir
from .gemm import call_epilogue
from .gemm_tile import Vectors, greatest, i64, least, loop, repeat
from .kernel import KERNEL_TYPE
from .types import I64, PTR, VOID

_LINE = 64  # bytes of a cache line, and of the widest vector
_TILE_TYPE = ir.FunctionType(VOID, [PTR, PTR, PTR, I64, I64])  # x, weights, result; rows of taps from, to


def emit_depthwise(
    module: ir.Module,
    name: str,
    convolution: Convolution,
    tiling: DepthwiseTiling,
    epilogue: ir.Function | None = None,
) -> ir.Function:
    """The epilogue runs over a row of pixels, when it is in L1 or L2."""
    function = ir.Function(module, KERNEL_TYPE, name)
    function.attributes.add("nounwind")
    _Depthwise(function, convolution, tiling, epilogue).emit()
    return function


class _Depthwise:
    """One emission: the micro-kernels by the taps that their pixels meet, and where the weights are."""

    def __init__(
        self, function: ir.Function, convolution: Convolution, tiling: DepthwiseTiling, epilogue: ir.Function | None
    ) -> None:
        self.convolution, self.tiling, self.epilogue = convolution, tiling, epilogue
        self.function = function
        self.table, self.lo, self.hi = function.args
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.v = Vectors(self.b, convolution.dtype, tiling.lanes)
        c = convolution
        self.packs = c.w.strides[2] != 1  # else weights are read where they are
        self.tap_steps = (c.kernel[1] * c.groups, c.groups) if self.packs else c.w.strides[:2]
        if self.packs:
            memory = self.b.alloca(self.v.scalar_type, size=c.kernel[0] * c.kernel[1] * c.groups)
            memory.align = _LINE
            self.packed = self.b.inttoptr(self.b.ptrtoint(memory, I64), PTR)  # llvmlite types the result of an alloca
        patterns = {run.pixels: run for run in tiling.runs}
        self.tiles = {p: self._emit_tile(f"{function.name}_{k}", run) for k, (p, run) in enumerate(patterns.items())}

    def _emit_tile(self, name: str, run: Run) -> ir.Function:
        """`void tile(ptr x, ptr weights, ptr y, i64 first, i64 last)`, all channels of some pixels."""
        c, lanes = self.convolution, self.tiling.lanes
        function = ir.Function(self.function.module, _TILE_TYPE, name)
        function.linkage = "internal"
        for attribute in ("nounwind", "noinline"):
            function.attributes.add(attribute)
        b = ir.IRBuilder(function.append_basic_block("entry"))
        x, weights, y, first, last = function.args
        v = Vectors(b, c.dtype, lanes)
        _, height, width, _, _ = c.a.strides
        columns = run.columns(c.stride[1], c.dilation[1])
        taps = sorted({tap for met in columns.values() for _, tap in met})

        def channels(at: Any) -> None:
            mask = v.mask(b.sub(i64(c.groups), at), 0) if c.groups % lanes else None
            x_at, w_at, y_at = (v.element(p, at) for p in (x, weights, y))

            # What the next row of pixels reads for the first time and where it writes, into L2 (8x128x56x56 by 3x3,
            # one core: 2.5 -> 2.0 -> 1.1 ms).
            below = (c.kernel[0] - 1) * c.dilation[0] + 1
            for line in range(below, below + c.stride[0]):
                for column in columns:
                    v.prefetch(v.element(x_at, i64(line * height + column * width)), level=2)
            for i in range(run.width):
                v.prefetch(v.element(y_at, i64((c.out_size[1] + i) * c.groups)), level=2)

            def row(k: Any, sums: list[Any]) -> list[Any]:
                x_row = v.element(x_at, b.mul(k, i64(c.dilation[0] * height)))
                w_row = v.element(w_at, b.mul(k, i64(self.tap_steps[0])))
                kernel = {t: v.load(v.element(w_row, i64(t * self.tap_steps[1])), mask) for t in taps}
                sums = list(sums)
                for column, met in columns.items():
                    value = v.load(v.element(x_row, i64(column * width)), mask)
                    for pixel, tap in met:
                        sums[pixel] = v.fma(value, kernel[tap], sums[pixel])
                return sums

            before = b.block
            with b.if_then(b.icmp_signed("<", first, last)):
                computed = loop(b, first, last, 1, [v.zero] * run.width, row)
                after = b.block
            sums = [v.merge((v.zero, before), (value, after)) for value in computed]
            for i, value in enumerate(sums):
                v.store(value, v.element(y_at, i64(i * c.groups)), mask)

        repeat(b, i64(0), i64(c.groups), lanes, channels)
        b.ret_void()
        return function

    def emit(self) -> None:
        b, c, v = self.b, self.convolution, self.v
        x, weights, self.y = (b.load(b.gep(self.table, [i64(k)], source_etype=PTR), typ=PTR) for k in range(3))
        self.x, self.weights = v.element(x, i64(c.a.offset)), v.element(weights, i64(c.w.offset))
        if self.packs:
            self._pack()
            self.weights = self.packed
        repeat(b, self.lo, self.hi, 1, self._row)
        b.ret_void()

    def _pack(self) -> None:
        b, v, c = self.b, self.v, self.convolution
        to_y, to_x, to_channel = c.w.strides[:3]

        def channel(k: Any) -> None:
            source, target = v.element(self.weights, b.mul(k, i64(to_channel))), v.element(self.packed, k)

            def row(ky: Any) -> None:
                read = v.element(source, b.mul(ky, i64(to_y)))
                write = v.element(target, b.mul(ky, i64(self.tap_steps[0])))
                for kx in range(c.kernel[1]):
                    value = v.scalar(v.element(read, i64(kx * to_x)))
                    b.store(value, v.element(write, i64(kx * self.tap_steps[1])), align=c.dtype.itemsize)

            repeat(b, i64(0), i64(c.kernel[0]), 1, row)

        repeat(b, i64(0), i64(c.groups), 1, channel)

    def _row(self, index: Any) -> None:
        b, c, v = self.b, self.convolution, self.v
        image, row = b.udiv(index, i64(c.out_size[0])), b.urem(index, i64(c.out_size[0]))
        top, step = b.sub(b.mul(row, i64(c.stride[0])), i64(c.padding[0])), c.dilation[0]
        first, last = (
            b.udiv(greatest(b, b.sub(i64(edge + step - 1), top), i64(0)), i64(step)) for edge in (0, c.size[0])
        )
        last = least(b, last, i64(c.kernel[0]))
        at_n, at_h, at_w, _, _ = c.a.strides
        x = v.element(self.x, b.add(b.mul(image, i64(at_n)), b.mul(top, i64(at_h))))
        pixel = b.mul(index, i64(c.out_size[1]))
        for run in self.tiling.runs:

            def tile(t: Any, run: Run = run) -> None:
                start = b.add(i64(run.first), b.mul(t, i64(run.width)))
                column = b.sub(b.mul(start, i64(c.stride[1])), i64(c.padding[1]))
                x_at = v.element(x, b.mul(column, i64(at_w)))
                y_at = v.element(self.y, b.mul(b.add(pixel, start), i64(c.groups)))
                b.call(self.tiles[run.pixels], [x_at, self.weights, y_at, first, last])

            repeat(b, i64(0), i64(run.tiles), 1, tile)
        if self.epilogue is not None:
            ends = pixel, b.add(pixel, i64(c.out_size[1]))
            call_epilogue(b, self.epilogue, self.table, ends, (i64(0), i64(c.groups)))
