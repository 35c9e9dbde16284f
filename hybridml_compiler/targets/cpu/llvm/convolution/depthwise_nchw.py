"""A depthwise convolution with channels first: `void convolution(ptr buffers, i64 lo, i64 hi)` over planes.

A plane is one channel of one image. A tile is some rows of the result, one vector of pixels wide; a row of the
image is loaded once for every column of taps, and serves all rows of the tile that it meets. Rows beside the image are
read from zeros, pixels beside it are masked. Every element is one chain of fused multiply-adds over (ky, kx).
"""

from __future__ import annotations

from typing import Any

from .....schedule.kernels.convolution import Convolution
from ...kernels.conv_depthwise_nchw import Planes, borders
from ...kernels.conv_depthwise_nchw import zeros as zeros_of
from .. import ir
from ..gemm.kernel import call_epilogue
from ..gemm.tile import Vectors, i64, least, repeat
from ..kernel import KERNEL_TYPE
from ..types import I1, I64, PTR, VOID, Literal

_KEPT_TAPS = 16  # so many weights stay in registers; more are loaded where they are used


def emit_planes(
    module: ir.Module, name: str, convolution: Convolution, planes: Planes, epilogue: ir.Function | None = None
) -> ir.Function:
    """The function; its epilogue runs over a plane, when that is in L1 or L2."""
    function = ir.Function(module, KERNEL_TYPE, name)
    function.attributes.add("nounwind")
    _Planes(function, convolution, planes, epilogue).emit()
    return function


class _Planes:
    def __init__(
        self, function: ir.Function, convolution: Convolution, planes: Planes, epilogue: ir.Function | None
    ) -> None:
        self.function, self.convolution, self.planes, self.epilogue = function, convolution, planes, epilogue
        self.table, self.lo, self.hi = function.args
        self.b = function.build()
        self.v = Vectors(self.b, convolution.dtype, planes.lanes)
        self.tile = self._emit_tile(f"{function.name}_tile")

    def _emit_tile(self, name: str) -> ir.Function:
        """`void tile(ptr x, ptr weights, ptr y, ptr zeros, i64 row)`: rows from `row` on of a plane of the result."""
        c, g = self.convolution, self.planes
        function = ir.Function(self.function.module, ir.FunctionType(VOID, [PTR, PTR, PTR, PTR, I64]), name)
        function.linkage = "internal"
        for attribute in ("nounwind", "noinline"):
            function.attributes.add(attribute)
        b = function.build()
        x, weights, y, zeros, row = function.args
        v = Vectors(b, c.dtype, g.lanes)
        (kh, kw), (dy, dx), (top, left), (to_y, to_x) = c.kernel, c.dilation, c.padding, c.w.strides[:2]
        meets: dict[int, list[tuple[int, int]]] = {}  # row of the image -> rows of the tile, rows of taps
        for i in range(g.rows):
            for k in range(kh):
                meets.setdefault(i + k * dy, []).append((i, k))
        lines = {}
        for i in sorted(meets):
            at = b.add(row, i64(i - top))
            within = b.icmp_unsigned("<", at, i64(c.size[0]))
            lines[i] = b.select(within, v.element(x, b.mul(at, i64(c.a.strides[1]))), zeros)
        y_row = v.element(y, b.mul(row, i64(c.out_size[1])))

        def weight(ky: int, kx: int) -> Any:
            return v.splat(v.scalar(v.element(weights, i64(ky * to_y + kx * to_x))))

        kept = {(ky, kx): weight(ky, kx) for ky in range(kh) for kx in range(kw)} if kh * kw <= _KEPT_TAPS else {}

        def pixels(start: Any, masks: list[Any], live: Any) -> None:
            sums = [v.zero] * g.rows
            for i, met in sorted(meets.items()):
                here = v.element(lines[i], start)
                if i < g.rows:  # this place in the next plane, into L2
                    v.prefetch(v.element(here, i64(c.a.strides[3])), level=2)
                for kx in range(kw):
                    value = v.load(v.element(here, i64(kx * dx - left)), masks[kx])
                    for n, ky in met:
                        sums[n] = v.fma(value, kept.get((ky, kx)) or weight(ky, kx), sums[n])
            for n, value in enumerate(sums):
                place = v.element(y_row, b.add(start, i64(n * c.out_size[1])))
                v.prefetch(v.element(place, i64(c.out_size[0] * c.out_size[1])), level=2)
                v.store(value, place, live)

        special = borders(c, g.starts, g.lanes)
        if len(g.starts) > 1 and len(g.starts) - 1 not in special:
            special.append(len(g.starts) - 1)  # its distance from the one before is another
        live = None if c.out_size[1] >= g.lanes else self._mask(0, c.out_size[1])
        for k in special:
            masks = [
                self._mask(left - kx * dx - g.starts[k], c.size[1] + left - kx * dx - g.starts[k]) for kx in range(kw)
            ]
            pixels(i64(g.starts[k]), masks, live)
        plain = [k for k in range(len(g.starts)) if k not in special]
        if plain:
            first, last = plain[0] * g.lanes, (plain[-1] + 1) * g.lanes
            repeat(b, i64(first), i64(last), g.lanes, lambda start: pixels(start, [None] * kw, live))
        b.ret_void()
        return function

    def _mask(self, low: int, high: int) -> Any:
        """Lanes from `low` to `high`; None for all."""
        lanes = [low <= k < high for k in range(self.planes.lanes)]
        if all(lanes):
            return None
        text = ", ".join(f"i1 {str(lane).lower()}" for lane in lanes)
        return Literal(ir.VectorType(I1, self.planes.lanes), f"<{text}>")

    def emit(self) -> None:
        b, c, g, v = self.b, self.convolution, self.planes, self.v
        x, weights, y = (b.load(b.gep(self.table, [i64(k)], source_etype=PTR), typ=PTR) for k in range(3))
        x, weights = v.element(x, i64(c.a.offset)), v.element(weights, i64(c.w.offset))
        before = max(c.padding[1], 0)
        size = zeros_of(c, g.lanes)
        zeros = b.memory(v.scalar_type, size, ir.LINE)
        repeat(b, i64(0), i64(size - g.lanes), g.lanes, lambda k: v.store(v.zero, v.element(zeros, k)))
        pixels = c.out_size[0] * c.out_size[1]

        def plane(index: Any) -> None:
            image, group = b.udiv(index, i64(c.groups)), b.urem(index, i64(c.groups))
            x_at = v.element(x, b.add(b.mul(image, i64(c.a.strides[0])), b.mul(group, i64(c.a.strides[3]))))
            w_at = v.element(weights, b.mul(group, i64(c.w.strides[2])))
            y_at = v.element(y, b.mul(index, i64(pixels)))

            def rows(start: Any) -> None:
                row = least(b, start, i64(c.out_size[0] - g.rows))
                b.call(self.tile, [x_at, w_at, y_at, v.element(zeros, i64(before)), row])

            repeat(b, i64(0), i64(c.out_size[0]), g.rows, rows)
            if self.epilogue is not None:
                call_epilogue(b, self.epilogue, self.table, (index, b.add(index, i64(1))), (i64(0), i64(pixels)))

        repeat(b, self.lo, self.hi, 1, plane)
        b.ret_void()
